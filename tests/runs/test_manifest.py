"""The run's directory as an interface: manifest, counts and paths."""

from __future__ import annotations

import errno
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from epida_ray.core.errors import RequestError, RunError, TakenOver
from epida_ray.data.storage import Storage
from epida_ray.runs.counts import ShardCounts, Totals
from epida_ray.runs.manifest import FORMAT, Manifest, read_manifest
from epida_ray.runs.run import Run, digest, interruptible


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    written = Manifest(kind="augment", status="running", request={"m": 3}, shards=4, nodes={"10.0.0.1": 2})
    written.write(storage)
    assert read_manifest(storage) == written
    assert json.loads((tmp_path / "manifest.json").read_text())["format"] == FORMAT


def test_a_message_or_a_command_that_is_no_utf_8_is_written_with_question_marks(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    written = Manifest(
        kind="augment",
        status="failed",
        request={},
        failure="mine: \udcff",
        problem="a \ud800",
        command=["epida", "\udcff"],
    )
    written.write(storage)
    found = read_manifest(storage)
    assert (found.failure, found.problem, found.command) == ("mine: ?", "a ?", ["epida", "?"])


OTHERWISE_VALID = '"kind": "train", "status": "finished", "request": {}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"format": 1, "kind": "train", "status": "finished", "asked": {}}', "written by an older version"),
        (f'{{"format": {FORMAT + 1}, "kind": "train", "new": 1}}', "written by a newer version"),
        (f'{{"format": {FORMAT - 1}, {OTHERWISE_VALID}}}', "written by an older version"),
        (f'{{"format": {FORMAT + 1}, {OTHERWISE_VALID}}}', "written by a newer version"),
        (f'{{"format": {FORMAT}, "kind": "dance", "status": "finished", "request": {{}}}}', "kind: Input should be"),
        (f'{{"format": {FORMAT}, "kind": "train"}}', "status: Field required"),
        ("{", "is this a run directory?"),
        ("[]", "is this a run directory?"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused_with_the_reason(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(RequestError, match=re.escape(said)):
        read_manifest(Storage(str(tmp_path)))
    with pytest.raises(RequestError, match="it does not exist, or is empty"):
        read_manifest(Storage(str(tmp_path / "nowhere")))


def test_counts_of_a_shard_travel_in_a_block_and_in_a_file(tmp_path: Path) -> None:
    counts = ShardCounts(
        rows=10, candidates=90, kept=28, rejected=1, short=1, flips=2, s_div=3.5, s_qua=-1.25,
        reasons={"the text is empty": 1}, seconds={"read": 0.5}, node="10.0.0.1",
    )  # fmt: skip
    assert ShardCounts.from_block(counts.to_block()) == counts
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata(counts.to_metadata()), tmp_path / "shard.parquet")
    read = ShardCounts.from_metadata(pq.ParquetFile(tmp_path / "shard.parquet").metadata.metadata)
    assert (read.rows, read.s_qua, read.reasons) == (10, -1.25, {"the text is empty": 1})
    assert not read.seconds and not read.node, "what differs between attempts must not be in the file"
    totals = Totals()
    totals.add(counts)
    totals.add(counts)
    assert (totals.shards, totals.kept, totals.s_div, totals.nodes) == (2, 56, 7.0, {"10.0.0.1": 2})
    assert totals.commonest_reason() == "the most common reason (2 rows): the text is empty"


def test_another_request_in_the_same_directory_is_refused_with_the_options_that_differ(tmp_path: Path) -> None:
    run = Run(str(tmp_path / "run"))
    assert not run.open("augment", {"m": 3, "input": digest("one")}, {})
    run.save(status="running")
    with pytest.raises(RequestError, match="-m was 3, now 2; choose another --output|-m was 3, now 2"):
        Run(str(tmp_path / "run")).open("augment", {"m": 2, "input": digest("one")}, {})
    with pytest.raises(RequestError, match="holds a run of `epida augment`"):
        Run(str(tmp_path / "run")).open("train", {"m": 3}, {})
    with pytest.raises(RequestError, match="the input is different"):
        Run(str(tmp_path / "run")).open("augment", {"m": 3, "input": digest("two")}, {})


@pytest.mark.parametrize(
    ("option", "before", "now", "said"),
    [
        ("unlabelled", digest("one"), digest("two"), "(the file of --unlabelled is different)"),
        ("unlabelled", None, digest("two"), "(--unlabelled was null, now a file)"),
        ("teacher", "a" * 64, "b" * 64, "(the saved model of --teacher is different)"),
        ("model", "a" * 64, "b" * 64, "(the saved model of --model is different)"),
        ("classifier", "a" * 64, "b" * 64, "(the saved model of --classifier is different)"),
        ("classifier", "cnn", "linear", '(--classifier was "cnn", now "linear")'),
        ("classifier", "cnn", "b" * 64, '(--classifier was "cnn", now a saved model)'),
    ],
)
def test_another_file_or_model_is_named_without_its_digest(
    tmp_path: Path, option: str, before: str | None, now: str, said: str
) -> None:
    run = Run(str(tmp_path / "run"))
    assert not run.open("train", {option: before}, {})
    run.save(status="running")
    with pytest.raises(RequestError, match=re.escape(said)):
        Run(str(tmp_path / "run")).open("train", {option: now}, {})

        Run(str(tmp_path / "run")).open("augment", {"m": 3, "input": "other"}, {})


def test_what_a_refused_request_left_is_not_taken_for_that_of_the_next(tmp_path: Path) -> None:
    first = Run(str(tmp_path / "run"))
    with first:
        first.open("label", {"model": "one"}, {})
        made = ("model/config.json", "model/sub/weights", "corpus/index.arrow", "rejected/train.parquet", "review.csv")
        for name in (*made, "initial/config.json", "augmented/round=001/x.parquet", "tracking.json"):
            first.storage.write(name, b"of the first")
    foreign = ("input/data.parquet", "notes.txt", "my/model/config.json")
    for name in foreign:
        Storage(str(tmp_path / "run")).write(name, b"not ours")
    second = Run(str(tmp_path / "run"))
    with second:
        assert not second.open("label", {"model": "two"}, {})
        assert second.manifest.request == {"model": "two"}
    files = {p.relative_to(tmp_path / "run").as_posix() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    assert {name for name in files if not name.startswith("owner/")} == {"manifest.json", *foreign}


def test_a_kill_while_the_rest_of_another_request_is_removed_leaves_it_to_none(tmp_path: Path) -> None:
    with Run(str(tmp_path / "run")) as first:
        first.open("label", {"model": "one"}, {})
        first.storage.write("corpus/index.arrow", b"of the first")
        first.storage.write("model/config.json", b"of the first")
    with Run(str(tmp_path / "run")) as second, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Storage, "remove", _killed)
        with pytest.raises(KeyboardInterrupt):
            second.open("label", {"model": "two"}, {})
    for request in ({"model": "one"}, {"model": "two"}):
        with Run(str(tmp_path / "run")) as again:
            assert not again.open("label", request, {})
            assert not again.storage.files_below("model", "corpus")


def _killed(storage: Storage, name: str) -> None:
    if not name.startswith("owner/"):
        raise KeyboardInterrupt


@pytest.mark.parametrize("file", [None, "/tmp/epida-1/weights"])
def test_a_full_disk_ends_a_run_with_a_line_that_says_how_to_resume(tmp_path: Path, file: str | None) -> None:
    run = Run(str(tmp_path / "run"))
    run.open("augment", {"m": 3}, {})
    said = (
        f"{file or run.storage.location}: No space left on device. What is done is kept in {run.storage.location}; run"
    )
    with pytest.raises(RunError, match=f"^{re.escape(said)}"), run, interruptible(run):
        raise OSError(errno.ENOSPC, "full", file)
    assert read_manifest(run.storage).status == "failed" and "No space" in (run.manifest.failure or "")


def test_a_directory_that_cannot_be_listed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Storage, "names", denied)
    with pytest.raises(RequestError, match=f"cannot use {tmp_path}/run for output: Permission denied"):
        Run(str(tmp_path / "run")).open("augment", {"m": 3}, {})


def test_a_file_that_is_gone_because_another_command_owns_the_directory_is_said(tmp_path: Path) -> None:
    run, other = Run(str(tmp_path / "run")), Run(str(tmp_path / "run"))
    run.open("augment", {"m": 3}, {})
    other.open("augment", {"m": 3}, {}, take_over=True)
    with other, pytest.raises(TakenOver), run, interruptible(run):
        raise FileNotFoundError(errno.ENOENT, "gone")
