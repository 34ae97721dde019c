"""Rows of a run as CSV, TSV and JSONL."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from epida_ray.core.errors import RequestError, RunError
from epida_ray.runs.export import export

TEXTS = ["plain", '=HYPERLINK("http://x","y")', "+1", "-1", "@cmd", "\tx", "\rx", "＝1", 'says "a, b"\nand more', "a=b"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    for number, folder in enumerate(("round=001", "round=002")):
        (run / "augmented" / folder).mkdir(parents=True)
        table = pa.table({"text": TEXTS, "round": [number + 1] * len(TEXTS), "s_div": [-0.5] * len(TEXTS)})
        pq.write_table(table, run / "augmented" / folder / "shard.parquet")
    (run / "manifest.json").write_text(json.dumps({"format": 1, "status": "finished"}))
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


def test_wrong_requests(run: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"\.csv, \.tsv or \.jsonl"):
        export(str(run), str(tmp_path / "out.xlsx"))
    with pytest.raises(RequestError, match="is no run directory"):
        export(str(tmp_path), str(tmp_path / "out.csv"))
    (run / "manifest.json").write_text(json.dumps({"format": 1, "status": "running"}))
    with pytest.raises(RequestError, match="is running, not finished"):
        export(str(run), str(tmp_path / "out.csv"))


def test_nothing_is_left_of_a_file_that_could_not_be_finished(run: Path, tmp_path: Path) -> None:
    (run / "augmented" / "round=002" / "shard.parquet").write_bytes(b"not parquet")
    with pytest.raises(RunError, match="no rows in"):
        export(str(run), str(tmp_path / "out.csv"))
    assert not list(tmp_path.glob("out*"))
