from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from epida_ray.errors import RequestError
from epida_ray.storage import Storage, open_filesystem


def test_a_write_is_whole_or_absent_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "run"))
    storage.write("a/b.txt", b"one")
    storage.write("a/b.txt", b"two")
    assert storage.read("a/b.txt") == b"two" and storage.names("a") == {"b.txt"}
    with pytest.raises(TypeError):
        storage.write("a/c.txt", 5)  # type: ignore[arg-type]
    assert [p.name for p in (tmp_path / "run" / "a").iterdir()] == ["b.txt"]


def test_what_a_killed_writer_left_is_not_listed_and_can_be_removed(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    storage.write("a/x.parquet", b"x")
    (tmp_path / "a" / ".deadbeef.part").write_bytes(b"half")
    assert storage.names("a") == {"x.parquet"}
    storage.remove_unfinished("a")
    assert not (tmp_path / "a" / ".deadbeef.part").exists()


def test_equal_tables_give_equal_bytes(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    for name in ("a", "b"):
        storage.write_table(name, pa.table({"text": ["x", "y"] * 100, "n": list(range(200))}))
    assert storage.read("a") == storage.read("b")
    assert pq.read_table(tmp_path / "a").num_rows == 200


def test_it_travels_between_processes_by_its_absolute_location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps(Storage("here"))
    monkeypatch.chdir("/")
    assert pickle.loads(data).root == str(tmp_path / "here")


def test_a_scheme_nobody_knows_is_refused() -> None:
    with pytest.raises(RequestError, match="nosuch"):
        open_filesystem("nosuch://bucket/x")
