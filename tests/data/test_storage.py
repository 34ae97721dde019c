from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from epida_ray.core.errors import RequestError
from epida_ray.data.storage import Storage, below, open_filesystem, url_of


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
    storage.remove_unfinished()
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


def test_a_url_keeps_its_options_and_its_encoding() -> None:
    server = "s3://bucket/a%20b?endpoint_override=127.0.0.1:1&scheme=http"
    assert url_of(server, "bucket/a b/c") == "s3://bucket/a%20b/c?endpoint_override=127.0.0.1:1&scheme=http"
    assert url_of("hdfs://host:9000/x", "/x/y") == "hdfs://host:9000/x/y"
    assert below(server, "augmented") == "s3://bucket/a%20b/augmented?endpoint_override=127.0.0.1:1&scheme=http"
    assert below("dir/", "augmented") == "dir/augmented" and below("what?", "augmented") == "what?/augmented"


def test_credentials_in_a_url_are_refused() -> None:
    for url in ("s3://key:secret@bucket/x", "zip://x.csv::https://u:p@h/a.zip", "simplecache::https://u:p@h/x.csv"):
        with pytest.raises(RequestError, match="keep credentials out of URLs"):
            open_filesystem(url)


def test_folders_are_copied_with_what_is_below_them(tmp_path: Path) -> None:
    (tmp_path / "here" / "sub").mkdir(parents=True)
    (tmp_path / "here" / "sub" / "file").write_bytes(b"1")
    storage = Storage("memory://epida-test")
    storage.upload(tmp_path / "here", "model")
    assert storage.names("", folders=True) == {"model"} and storage.names("") == set()
    with storage.local("model") as directory:
        assert (directory / "sub" / "file").read_bytes() == b"1"
    assert not directory.exists()
    assert (storage.local_copy("model") / "sub" / "file").read_bytes() == b"1"
