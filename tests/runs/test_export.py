"""Rows of a run as CSV, TSV and JSONL."""

from __future__ import annotations

import codecs
import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import epida_ray
from epida_ray.core.errors import RequestError, RunError
from epida_ray.data.plan import Columns, Plan, plan_inputs
from epida_ray.data.reader import ShardReader
from epida_ray.runs import layout
from epida_ray.runs.export import export
from epida_ray.runs.manifest import FORMAT, Kind
from epida_ray.runs.run import CARD, Run

TEXTS = ["plain", '=HYPERLINK("http://x","y")', "+1", "-1", "@cmd", "\tx", "\rx", "＝1", 'says "a, b"\nand more', "a=b"]


def manifest(status: str) -> str:
    return json.dumps({"format": FORMAT, "kind": "train", "status": status, "request": {}})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    for number, folder in enumerate(("round=001", "round=002")):
        (run / "augmented" / folder).mkdir(parents=True)
        table = pa.table({"text": TEXTS, "round": [number + 1] * len(TEXTS), "s_div": [-0.5] * len(TEXTS)})
        pq.write_table(table, run / "augmented" / folder / "shard.parquet")
    (run / "manifest.json").write_text(manifest("finished"))
    return run


@pytest.mark.parametrize(("suffix", "delimiter"), [(".csv", ","), (".tsv", "\t")])
def test_csv_reads_back_as_it_was(run: Path, tmp_path: Path, suffix: str, delimiter: str) -> None:
    assert export(str(run), str(tmp_path / f"out{suffix}")) == 2 * len(TEXTS)
    with (tmp_path / f"out{suffix}").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter=delimiter))
    assert [row["text"] for row in rows] == TEXTS * 2
    assert [row["round"] for row in rows] == ["1"] * len(TEXTS) + ["2"] * len(TEXTS)


def test_formulas_are_neutralized_on_request_and_numbers_stay(run: Path, tmp_path: Path) -> None:
    export(str(run), str(tmp_path / "out.csv"), neutralize_formulas=True)
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = [row["text"] for row in rows[: len(TEXTS)]]
    assert found == [TEXTS[0], *("'" + text for text in TEXTS[1:8]), *TEXTS[8:]]
    assert {float(row["s_div"]) for row in rows} == {-0.5}


def test_jsonl_through_the_command_line(run: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "epida_ray.cli", "export", str(run), str(tmp_path / "out.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and f"{2 * len(TEXTS)} rows" in done.stdout, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]
    assert rows[1] == {"text": TEXTS[1], "round": 1, "s_div": -0.5}
    again = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert again.returncode == 2 and "exists already" in again.stderr and len(again.stderr.splitlines()) == 1


def test_a_csv_for_excel_takes_the_place_of_another_on_request(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    export(str(run), str(out))
    plain = out.read_bytes()
    with pytest.raises(RequestError, match="exists already; choose another name, or add --overwrite"):
        export(str(run), str(out), encoding="utf-8-sig")
    export(str(run), str(out), encoding="utf-8-sig", overwrite=True)
    assert out.read_bytes() == codecs.BOM_UTF8 + plain
    with pytest.raises(RequestError, match=r"--encoding is for .csv and .tsv files"):
        export(str(run), str(tmp_path / "out.parquet"), encoding="utf-8-sig")
    with pytest.raises(RequestError, match="--encoding is utf-8, utf-8-sig, utf-16, not cp1252"):
        export(str(run), str(out), encoding="cp1252", overwrite=True)


@pytest.mark.parametrize("suffix", [".xlsx", ".json", ".parquet", ".feather", ".csv.gz", ".jsonl.zst"])
def test_other_formats_read_back_as_they_were(run: Path, tmp_path: Path, suffix: str) -> None:
    assert export(str(run), str(tmp_path / f"out{suffix}")) == 2 * len(TEXTS)
    plan = plan_inputs(str(tmp_path / f"out{suffix}"), Columns(label="round"))
    rows = ShardReader(plan).read(next(plan.shards())).to_pylist()
    assert [row["text"] for row in rows] == TEXTS * 2
    assert [row["label"] for row in rows] == ["1"] * len(TEXTS) + ["2"] * len(TEXTS)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_run_that_kept_nothing(run: Path, tmp_path: Path, suffix: str) -> None:
    for path in run.rglob("*.parquet"):
        pq.write_table(pq.read_table(path).slice(0, 0), path)
    assert export(str(run), str(tmp_path / f"out{suffix}")) == 0
    out = tmp_path / f"out{suffix}"
    header = pq.read_schema(out).names if suffix == ".parquet" else next(csv.reader(out.open(newline="")))
    assert header == ["text", "round", "s_div"]
    shutil.rmtree(run / "augmented")
    with pytest.raises(RequestError, match="kept no rows"):
        export(str(run), str(tmp_path / "again.csv"))


def test_wrong_requests(run: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"not a \.parquet, \.csv"):
        export(str(run), str(tmp_path / "out.doc"))
    with pytest.raises(RequestError, match="is not a run directory"):
        export(str(tmp_path), str(tmp_path / "out.csv"))
    (run / "manifest.json").write_text(manifest("running"))
    with pytest.raises(RequestError, match="is running, not finished"):
        export(str(run), str(tmp_path / "out.csv"))


def test_nothing_is_left_of_a_file_that_could_not_be_finished(run: Path, tmp_path: Path) -> None:
    (run / "augmented" / "round=002" / "shard.parquet").write_bytes(b"not parquet")
    with pytest.raises(RunError, match="shard.parquet is not a file that a run wrote"):
        export(str(run), str(tmp_path / "out.csv"))
    assert not list(tmp_path.glob("out*"))


def finished(tmp_path: Path, kind: Kind) -> str:
    """Write a small finished run, with a file of somebody else in its folder of rows."""
    run, table = Run(str(tmp_path / kind)), pa.table({"text": TEXTS})
    with run:
        run.open(kind, {"m": 3}, {})
        run.plan, run.fingerprint = Plan(root="", files=(), columns=Columns(), shard_rows=64), "0" * 32
        folder = layout.LABELLED if kind == "label" else layout.AUGMENTED
        place = layout.round_folder(folder, 1) if kind == "train" else folder
        run.storage.write_table(f"{place}/in-000000000000-000000000064-{'0' * 12}.parquet", table)
        run.storage.write(f"{layout.MODEL}/config.json", b"{}")
        run.storage.write(f"{layout.MODEL}/{CARD}", b"card")
        run.finish()
    run.storage.guard = None
    run.storage.write_table(f"{folder}/notes.parquet", table)
    return str(tmp_path / kind)


@pytest.mark.parametrize("kind", ["augment", "label", "train"])
def test_only_committed_rows_are_read(tmp_path: Path, kind: Kind) -> None:
    directory = finished(tmp_path, kind)
    assert epida_ray.read(directory).to_pydict() == {"text": TEXTS}
    (file,) = Path(directory).rglob("in-*.parquet")
    file.unlink()
    with pytest.raises(RequestError, match="missing or damaged"):
        epida_ray.read(directory)


@pytest.mark.parametrize("name", ["model/config.json", "augmented/round=001"])
def test_a_finished_training_of_which_something_is_gone_is_noticed(tmp_path: Path, name: str) -> None:
    directory = finished(tmp_path, "train")
    path = Path(directory, name)
    assert Run(directory).open("train", {"m": 3}, {})
    Path(directory, "model", CARD).write_text("my own words about it")
    Path(directory, "model", "mine.txt").write_text("mine")
    assert Run(directory).open("train", {"m": 3}, {})
    (shutil.rmtree if path.is_dir() else Path.unlink)(path)
    with pytest.raises(RunError, match=f"1 files of the finished training.*missing or damaged, such as {name}"):
        Run(directory).open("train", {"m": 3}, {})
    Path(directory, layout.COMMITTED).unlink()
    assert Run(directory).open("train", {"m": 3}, {}), "it was made by a version that wrote no such list"


@pytest.mark.parametrize("kind", ["augment", "label", "train"])
def test_a_file_that_changed_is_not_read(tmp_path: Path, kind: Kind) -> None:
    directory = finished(tmp_path, kind)
    (file,) = Path(directory).rglob("in-*.parquet")
    data = file.read_bytes()
    whole = pq.read_table(file)
    changed = pa.table({"text": [text.replace("plain", "plane") for text in TEXTS]})
    Run(directory).storage.write_table(str(file.relative_to(directory)), changed)
    assert len(file.read_bytes()) == len(data), "the size alone would tell"
    for use in (epida_ray.read, lambda d: export(d, str(tmp_path / "out.csv"))):
        with pytest.raises(RunError, match=f"{file.name} has changed since the run was finished; put it back"):
            use(directory)
    assert not (tmp_path / "out.csv").exists()
    file.write_bytes(data)
    assert epida_ray.read(directory) == whole.replace_schema_metadata(None)


def test_a_list_of_an_earlier_version_has_sizes_alone(tmp_path: Path) -> None:
    directory = finished(tmp_path, "augment")
    file = Path(directory) / "committed.json"
    files = json.loads(file.read_text())
    assert all(set(one) == {"size", "sha256"} for one in files.values())
    file.write_text(json.dumps({name: one["size"] for name, one in files.items()}))
    assert epida_ray.read(directory).to_pydict() == {"text": TEXTS}
    file.write_text(json.dumps({name: one["size"] + 1 for name, one in files.items()}))
    with pytest.raises(RequestError, match="missing or damaged"):
        epida_ray.read(directory)


WRONG_LISTS = [
    "[]", "null", "3", "{", '{"a": "b"}', '{"a": {"size": 3}}', '{"a": {"size": "3", "sha256": null}}', '{"a": [1]}',
]  # fmt: skip


@pytest.mark.parametrize("text", WRONG_LISTS)
def test_a_list_of_another_shape_is_damaged(tmp_path: Path, text: str) -> None:
    directory = finished(tmp_path, "augment")
    (Path(directory) / "committed.json").write_text(text)
    with pytest.raises(RequestError, match="files of the run in .* are missing or damaged; run its command again"):
        epida_ray.read(directory)
    with Run(directory) as run:
        assert not run.open("augment", {"m": 3}, {}), "a run with such a list goes on"


def test_a_finished_training_with_a_list_of_another_shape_says_so(tmp_path: Path) -> None:
    directory = finished(tmp_path, "train")
    (Path(directory) / "committed.json").write_text("[]")
    with pytest.raises(RunError, match="of the finished training in .* are missing or damaged, such as committed.json"):
        Run(directory).open("train", {"m": 3}, {})
