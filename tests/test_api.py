"""Tables in memory become files of the run, one folder for each content."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import epida_ray
from epida_ray.api import _location, _tables
from epida_ray.core.errors import RequestError, TakenOver
from epida_ray.data.plan import Columns, Plan, plan_inputs
from epida_ray.runs import lease
from epida_ray.runs.run import Run


class Parts:
    """Looks like a Ray dataset of so many batches."""

    def __init__(self, *batches: pa.Table) -> None:
        self.batches = batches

    def iter_batches(self, **options: object) -> tuple[pa.Table, ...]:
        return self.batches

    def map_batches(self) -> None: ...


def table(rows: int = 40, kind: str = "lamp") -> pa.Table:
    labels = ["ask" if i % 2 else "tell" for i in range(rows)]
    return pa.table({"text": [f"{label} me of the {kind} {i}" for i, label in enumerate(labels)], "label": labels})


def test_what_was_stored_before_is_neither_read_nor_overwritten(tmp_path: Path) -> None:
    three = _location(Parts(table(), table(), table()), str(tmp_path), "input")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*.parquet")}
    one = _location(table(), str(tmp_path), "input")
    assert one != three and {p: p.read_bytes() for p in before} == before
    plan = plan_inputs(one, Columns())
    assert plan.rows == 40 and [f.path for f in plan.files] == ["part-00000.parquet"]
    assert _location(table(), str(tmp_path), "input") == one
    assert plan_inputs(three, Columns()).rows == 120


def test_nothing_is_written_to_a_folder_that_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear all")
    with pytest.raises(RequestError, match="is not empty and holds no run; choose another output"):
        epida_ray.augment(table(), str(tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["letter.txt"]


def test_nothing_is_written_to_a_directory_of_another_command(tmp_path: Path) -> None:
    owner = lease.claim(str(tmp_path))
    with pytest.raises(RequestError, match="is in use by process"):
        epida_ray.train(table(), str(tmp_path), dev=table(20, "chair"))
    assert [p.name for p in tmp_path.iterdir()] == ["owner"]
    _location(table(), str(tmp_path), "input", take_over=True)
    with pytest.raises(TakenOver):
        owner.check()
    assert _location(table(10), str(tmp_path), "input"), "the directory is free again"


def test_a_finished_run_stays_finished_when_its_input_is_given_again(tmp_path: Path) -> None:
    with Run(str(tmp_path)) as run:
        run.open("augment", {"m": 3}, {})
        run.plan, run.fingerprint = Plan(root="", files=(), columns=Columns(), shard_rows=64), "0" * 32
        run.finish()
    before = sorted((tmp_path / "owner").iterdir())
    _location(table(), str(tmp_path), "input")
    assert sorted((tmp_path / "owner").iterdir()) == before
    assert Run(str(tmp_path)).open("augment", {"m": 3}, {})


@pytest.mark.usefixtures("local_ray")
def test_training_on_tables_runs_resumes_and_refuses_other_data(tmp_path: Path) -> None:
    options = {"rounds": 1, "classifier": "linear", "generator_actors": 1, "scorer_actors": 1, "stall_timeout": 240.0}
    output = str(tmp_path / "run")
    first = epida_ray.train(table(), output, dev=table(20, "chair"), eval=table(20, "phone"), **options)
    assert first.test is not None and first.test["rows"] == 20
    again = epida_ray.train(table(), output, dev=table(20, "chair"), eval=table(20, "phone"), **options)
    assert again.metrics == first.metrics
    with pytest.raises(RequestError, match="the file of dev is different"):
        epida_ray.train(table(), output, dev=table(20, "stool"), eval=table(20, "phone"), **options)


def test_data_sets_of_hugging_face_keep_the_names_of_classes(tmp_path: Path) -> None:
    from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

    features = Features({"text": Value("string"), "label": ClassLabel(names=["world", "sport"])})
    data = Dataset.from_dict({"text": ["a b", "c d", "e f"], "label": [1, 0, -1]}, features=features)
    for given in (data, data.to_iterable_dataset()):
        assert [t["label"].to_pylist() for t in _tables(given)] == [["sport", "world", None]]
    with pytest.raises(RequestError, match=r"data sets \(train, test\); give one of them: data\['train'\]"):
        epida_ray.augment(DatasetDict({"train": data, "test": data}), str(tmp_path / "run"))
    with pytest.raises(RequestError, match=r"has no column 'tweet'; it has 'text', 'label'; use text_column$"):
        epida_ray.train(data, str(tmp_path / "run"), text_column="tweet", classifier="linear")
