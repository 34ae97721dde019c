"""Storage that fails for a moment, files that change, links, outputs among the inputs."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from epida_ray.core.errors import RequestError, RunError, TransientError
from epida_ray.data import convert, discovery, reader, retry
from epida_ray.data.plan import Columns, Plan, plan_inputs
from epida_ray.data.reader import ShardReader
from epida_ray.data.writer import open_writer

ROWS = [{"text": f"text {i}", "label": "ab"[i % 2]} for i in range(100)]


class Flaky(pafs.FileSystemHandler):
    """A local filesystem of which opening a file fails a number of times."""

    def __init__(self, failures: int, error: Callable[[], Exception]) -> None:
        self.failures, self.error, self.local = failures, error, pafs.LocalFileSystem()

    def open_input_file(self, path: str):
        if self.failures:
            self.failures -= 1
            raise self.error()
        return self.local.open_input_file(path)

    open_input_stream = open_input_file

    def get_file_info(self, paths):
        return self.local.get_file_info(paths)

    def get_file_info_selector(self, selector):
        return self.local.get_file_info(selector)

    def get_type_name(self) -> str:
        return "flaky"

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def _unused(self, *_: object):
        raise NotImplementedError

    copy_file = create_dir = delete_dir = delete_dir_contents = delete_file = delete_root_dir_contents = _unused
    move = normalize_path = open_append_stream = open_output_stream = _unused


Flaky.__abstractmethods__ = frozenset()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "WAITS", (0.0, 0.0, 0.0, 0.0))


def write(path: Path) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    elif path.suffix == ".csv":
        path.write_text("text,label\n" + "".join(f"{r['text']},{r['label']}\n" for r in ROWS))
    else:
        path.write_text("".join(json.dumps(r) + "\n" for r in ROWS))
    return path


def flaky(monkeypatch: pytest.MonkeyPatch, failures: int, error: Callable[[], Exception]) -> None:
    filesystem = pafs.PyFileSystem(Flaky(failures, error))
    for module in (reader, discovery):
        monkeypatch.setattr(module, "open_filesystem", lambda location: (filesystem, location))
    monkeypatch.setattr(discovery, "folder_url", lambda filesystem, location, path, folder: folder)


ERRORS = [
    lambda: OSError(errno.ESTALE, "Stale file handle"),
    lambda: OSError("When reading: AWS Error SLOW_DOWN during GetObject operation"),
    lambda: FileNotFoundError(errno.ENOENT, "No such file"),
]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", ["in.parquet", "in.csv", "in.jsonl"])
def test_storage_that_fails_for_a_moment_costs_no_row(tmp_path: Path, monkeypatch, name: str, error) -> None:
    path = write(tmp_path / name)
    flaky(monkeypatch, 3, error)
    plan = plan_inputs(str(path), Columns())
    flaky(monkeypatch, 3, error)
    got = [row for shard in plan.shards() for row in ShardReader(plan).read(shard).to_pylist()]
    assert [(r["text"], r["label"], r["reason"]) for r in got] == [(r["text"], r["label"], None) for r in ROWS]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", ["in.parquet", "in.csv", "in.jsonl"])
def test_storage_that_fails_on_and_on_is_an_error_and_rejects_nothing(tmp_path, monkeypatch, name, error) -> None:
    path = write(tmp_path / name)
    plan = plan_inputs(str(path), Columns())
    flaky(monkeypatch, 1000, error)
    with pytest.raises(TransientError, match=f"cannot read {name}: .*run the same command again"):
        ShardReader(plan).read(next(plan.shards()))
    with pytest.raises(TransientError, match=f"cannot read {name}"):
        plan_inputs(str(path), Columns())


class Busy(Flaky):
    """A filesystem whose reads fail in files of which the number, by the order of opening, is among these."""

    def __init__(self, *busy: int) -> None:
        super().__init__(0, OSError)
        self.busy, self.opened = busy, 0

    def open_input_file(self, path: str):
        self.opened += 1
        data = Path(path).read_bytes()
        return pa.PythonFile(BusyFile(data) if self.opened in self.busy else io.BytesIO(data), "r")


class BusyFile(io.BytesIO):
    def read(self, count: int | None = -1) -> bytes:
        raise OSError("When reading: AWS Error SLOW_DOWN during GetObject operation")


@pytest.mark.parametrize("busy", [(1, 3), (1, 2, 3), (2, 3), (1, 2, 4)])
@pytest.mark.parametrize("name", ["in.parquet", "in.csv", "in.jsonl"])
def test_a_store_that_fails_every_other_time_costs_no_row(tmp_path: Path, monkeypatch, name: str, busy) -> None:
    plan = plan_inputs(str(write(tmp_path / name)), Columns())
    filesystem = pafs.PyFileSystem(Busy(*busy))
    monkeypatch.setattr(reader, "open_filesystem", lambda location: (filesystem, location))
    got = [row for shard in plan.shards() for row in ShardReader(plan).read(shard).to_pylist()]
    assert [(r["text"], r["reason"]) for r in got] == [(r["text"], None) for r in ROWS]


def test_damaged_pages_are_told_from_a_failing_store(tmp_path: Path) -> None:
    path = write(tmp_path / "in.parquet")
    plan = plan_inputs(str(path), Columns())
    data = bytearray(path.read_bytes())
    data[40:400] = bytes(360)
    path.write_bytes(data)
    rows = ShardReader(plan).read(next(plan.shards())).to_pylist()
    assert {r["reason"][:22] for r in rows} == {"cannot read in.parquet"}


@pytest.mark.parametrize("name", ["in.parquet", "in.csv", "in.jsonl"])
def test_a_file_that_changed_fails_the_shard(tmp_path: Path, monkeypatch, name: str) -> None:
    path = write(tmp_path / name)
    plan = plan_inputs(str(path), Columns())
    monkeypatch.setattr("tests.data.test_faults.ROWS", ROWS[:50])
    write(path)
    with pytest.raises(RunError, match="did the file change"):
        ShardReader(plan).read(next(plan.shards()))


@pytest.mark.parametrize("left", [0, 100])
def test_a_file_that_was_cut_short_after_planning_fails_the_shard(tmp_path: Path, left: int) -> None:
    path = write(tmp_path / "in.parquet")
    plan = plan_inputs(str(path), Columns())
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(RunError, match=f"{left} bytes where .* were planned; did the file change"):
        ShardReader(plan).read(next(plan.shards()))


def test_files_without_rows_are_said(tmp_path: Path) -> None:
    write(tmp_path / "in.parquet")
    pq.write_table(pa.table({"other": pa.array([], pa.int64())}), tmp_path / "a.parquet")
    assert plan_inputs(str(tmp_path), Columns()).remarks() == ["a.parquet: it has no rows"]
    pq.write_table(pa.table({"other": pa.array([], pa.int64())}), tmp_path / "b.parquet")
    assert plan_inputs(str(tmp_path), Columns()).remarks() == ["2 files have no rows, such as a.parquet"]


def test_rows_that_went_missing_from_a_file_of_the_same_size_fail_the_shard(tmp_path: Path) -> None:
    path = write(tmp_path / "in.csv")
    plan = plan_inputs(str(path), Columns())
    path.write_bytes(path.read_bytes().replace(b"text 7,b\n", b"text 7,b "))
    with pytest.raises(RunError, match="63 rows where 64 were planned; did the file change"):
        ShardReader(plan).read(next(plan.shards()))


def paths(plan: Plan) -> list[str]:
    return [f.path for f in plan.files]


def test_each_real_file_is_read_once_whatever_links_lead_to_it(tmp_path: Path) -> None:
    root = tmp_path / "in"
    (root / "sub").mkdir(parents=True)
    write(root / "sub" / "b.csv")
    write(root / "z.csv")
    write(tmp_path / "outside.csv")
    (root / "loop").symlink_to(".")
    (root / "again").symlink_to("sub")
    (root / "a.csv").symlink_to("z.csv")
    (root / "far.csv").symlink_to(tmp_path / "outside.csv")
    (root / "gone.csv").symlink_to("nothing.csv")
    plan = plan_inputs(str(root), Columns())
    assert paths(plan) == ["far.csv", "sub/b.csv", "z.csv"]
    assert sorted(plan.skipped) == [
        "a.csv: the same file as z.csv",
        "again: a link to a folder that is read already",
        "gone.csv: a link to nothing.csv, which does not exist",
        "loop: a link to a folder that is read already",
    ]


def test_a_linked_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "in").mkdir()
    write(tmp_path / "real" / "b.csv")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "real")
    assert paths(plan_inputs(str(tmp_path / "in"), Columns())) == ["link/b.csv"]


def test_a_file_without_rows_needs_no_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"other": pa.array([], pa.string())}), tmp_path / "a.parquet")
    write(tmp_path / "b.parquet")
    plan = plan_inputs(str(tmp_path), Columns())
    assert plan.rows == 100 and plan.label_type == "string"


def test_labels_of_several_types_become_strings(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["t"], "label": [1]}), tmp_path / "a.parquet")
    assert plan_inputs(str(tmp_path), Columns()).label_type == "int64"
    pq.write_table(pa.table({"text": ["t"], "label": ["x"]}), tmp_path / "b.parquet")
    assert plan_inputs(str(tmp_path), Columns()).label_type == "string"


def test_a_first_line_of_any_length_costs_no_other_row(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    lines = [json.dumps({"text": "x" * 9_000_000, "label": 1}), *(json.dumps({"text": "t", "label": 1}),) * 5]
    path.write_text("\n".join(lines))
    plan = plan_inputs(str(path), Columns())
    rows = ShardReader(plan).read(next(plan.shards())).to_pylist()
    assert rows[0]["reason"] == "the text has 9,000,000 characters; the limit is 100,000"
    assert [r["reason"] for r in rows[1:]] == [None] * 5 and plan.label_type == "int64"


def test_outputs_are_never_inputs(tmp_path: Path) -> None:
    for name in ("in.csv", "run/augmented/a.csv", "run2/b.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path / name)
    output = str(tmp_path / "run")
    for location in (tmp_path, tmp_path / "**" / "*.csv"):
        plan = plan_inputs(str(location), Columns(), exclude=output)
        assert paths(plan) == ["in.csv", "run2/b.csv"]
        assert plan.skipped == ("run/: the output directory, with 1 files",)
    assert paths(plan_inputs(f"{output}/augmented", Columns(), exclude=output)) == ["a.csv"]
    assert paths(plan_inputs(str(tmp_path / "in.csv"), Columns(), exclude=str(tmp_path))) == ["in.csv"]
    with pytest.raises(RequestError, match="is the output directory as well"):
        plan_inputs(str(tmp_path), Columns(), exclude=str(tmp_path))
    os.symlink(tmp_path, tmp_path.parent / f"{tmp_path.name}-link")
    linked = plan_inputs(str(tmp_path.parent / f"{tmp_path.name}-link"), Columns(), exclude=output)
    assert paths(linked) == ["in.csv", "run2/b.csv"]


def test_files_of_unknown_formats_are_listed(tmp_path: Path) -> None:
    write(tmp_path / "in.csv")
    (tmp_path / "README.md").write_text("hello")
    (skipped,) = plan_inputs(str(tmp_path), Columns()).skipped
    assert skipped.startswith("README.md: not a .parquet")


@pytest.mark.parametrize("name", ["in.parquet", "in.csv", "in.jsonl"])
def test_unlabelled_text(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name)
    for text in ("text", "label"):
        plan = plan_inputs(str(path), Columns(text=text, label=None))
        table = ShardReader(plan).read(next(plan.shards()))
        assert table.schema.field("label").type == pa.string() and table["label"].null_count == 64
        assert table["reason"].null_count == 64 and table["text"][0].as_py() == ROWS[0][text]
    path.unlink()
    (tmp_path / "only.csv").write_text('text\na\n""\n')
    plan = plan_inputs(str(tmp_path / "only.csv"), Columns(label=None))
    rows = ShardReader(plan).read(next(plan.shards())).to_pylist()
    assert [(r["text"], r["label"], r["reason"]) for r in rows] == [("a", None, None), ("", None, "the text is empty")]


def test_a_disk_that_fails_while_a_file_is_converted_rejects_nothing(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "in.csv.gz"
    path.write_bytes(gzip.compress(write(tmp_path / "plain.csv").read_bytes()))
    decompress, failures = convert._decompress, [OSError(errno.ESTALE, "Stale file handle")] * 3

    def failing(*args: object) -> None:
        if failures:
            raise failures.pop()
        decompress(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(convert, "_decompress", failing)
    assert plan_inputs(str(path), Columns()).rows == 100 and not failures
    shutil.rmtree(convert._cache())
    failures += [OSError(errno.EIO, "Input/output error")] * 100
    with pytest.raises(TransientError, match=r"cannot read in.csv.gz: .*Input/output error"):
        plan_inputs(str(path), Columns())


@pytest.mark.parametrize("kind", ["csv.gz", "xlsx", "json", "arrow"])
def test_a_converted_file_that_changed_fails_the_shard(tmp_path: Path, monkeypatch, kind: str) -> None:
    path = tmp_path / f"in.{kind}"
    for rows in (ROWS, ROWS[:50]):
        path.unlink(missing_ok=True)
        with open_writer(str(path)) as writer:
            writer.table(pa.Table.from_pylist(rows))
        if rows is ROWS:
            plan = plan_inputs(str(path), Columns())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # as on another node, which has not converted it yet
    with pytest.raises(RunError, match="did it change"):
        ShardReader(plan).read(next(plan.shards()))


def test_a_file_that_may_not_be_read_is_said_at_once(tmp_path: Path, monkeypatch) -> None:
    path = write(tmp_path / "in.csv")
    flaky(monkeypatch, 1, lambda: PermissionError(errno.EACCES, "Permission denied"))
    with pytest.raises(RunError, match=r"cannot read in.csv: .*Permission denied; allow this user to read it"):
        plan_inputs(str(path), Columns())


def test_what_other_runs_wrote_is_not_read(tmp_path: Path) -> None:
    for name in ("in.csv", "old/augmented/a.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path / name)
    manifest = tmp_path / "old" / "manifest.json"
    manifest.write_text(json.dumps({"format": 2, "kind": "augment", "status": "finished", "request": {}}))
    for location in (tmp_path, tmp_path / "**"):
        plan = plan_inputs(str(location), Columns(), exclude=str(tmp_path / "new"))
        assert paths(plan) == ["in.csv"]
        assert plan.remarks() == ["not read: old/: the directory of another run, with 2 files"]
    plan = plan_inputs(str(tmp_path / "**" / "*.csv"), Columns())
    assert paths(plan) == ["in.csv"] and plan.remarks() == [
        "not read: old/: the directory of another run, with 1 files"
    ]
    assert not plan_inputs(str(tmp_path / "*.csv"), Columns()).remarks()
    with pytest.raises(RequestError, match="no file matches .*old/: the directory of another run, with 1 files"):
        plan_inputs(str(tmp_path / "*" / "augmented" / "*.csv"), Columns())
    for location in (tmp_path / "old" / "augmented", tmp_path / "old" / "augmented" / "*.csv"):
        assert paths(plan_inputs(str(location), Columns())) == ["a.csv"]
    write(tmp_path / "old" / "in.csv")  # a run beside its input resumes
    assert paths(plan_inputs(str(tmp_path / "old" / "*.csv"), Columns(), exclude=str(tmp_path / "old"))) == ["in.csv"]
    (tmp_path / "old" / "in.csv").unlink()
    with pytest.raises(RequestError, match=r"is the directory of a run.*did you mean .*old/augmented\?"):
        plan_inputs(str(tmp_path / "old"), Columns())
    manifest.unlink()
    assert paths(plan_inputs(str(tmp_path), Columns())) == ["in.csv", "old/augmented/a.csv"]


def test_many_skipped_files_are_counted(tmp_path: Path) -> None:
    write(tmp_path / "in.csv")
    for i in range(25):
        (tmp_path / f"{i:02}.md").touch()
    remarks = plan_inputs(str(tmp_path), Columns()).remarks()
    assert len(remarks) == 21 and remarks[-1] == "not read: 5 more files"
