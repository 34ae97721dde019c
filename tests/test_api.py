"""Tables in memory become files of the run, one folder for each content."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import epida_ray
from epida_ray.api import _location
from epida_ray.core.errors import RequestError
from epida_ray.data.inputs import Columns, plan_inputs


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


@pytest.mark.usefixtures("local_ray")
def test_training_on_tables_runs_resumes_and_refuses_other_data(tmp_path: Path) -> None:
    options = {"rounds": 1, "classifier": "linear", "generators": 1, "scorers": 1, "stall_timeout": 240.0}
    output = str(tmp_path / "run")
    first = epida_ray.train(table(), output, dev=table(20, "chair"), eval=table(20, "phone"), **options)
    assert first.test is not None and first.test["rows"] == 20
    again = epida_ray.train(table(), output, dev=table(20, "chair"), eval=table(20, "phone"), **options)
    assert again.metrics == first.metrics
    with pytest.raises(RequestError, match="the file of --dev has changed"):
        epida_ray.train(table(), output, dev=table(20, "stool"), eval=table(20, "phone"), **options)
