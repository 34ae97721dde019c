from __future__ import annotations

import errno
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import fsspec.implementations.local
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from epida_ray.core.errors import RequestError, RunError, TransientError
from epida_ray.data import retry
from epida_ray.data.atomic import move
from epida_ray.data.storage import Storage, below, check_url, open_filesystem, url_of, whole_file


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


@pytest.mark.parametrize(
    "url",
    [
        "s3://key:secret@bucket/x",
        "zip://x.csv::https://u:p@h/a.zip",
        "simplecache::https://u:p@h/x.csv",
        "https://abc@github.com/x.csv",
        "s3://abc@bucket/x.csv",
        "https://account.blob.core.windows.net/c/x.csv?sv=2022&sig=abc",
        "https://h/x.csv?token=abc",
        "https://b.s3.amazonaws.com/x?X-Amz-Credential=a&X-Amz-Signature=b",
        "abfss://c@account/x?client_secret=abc",
        "s3://bucket/x?secret_key=abc",
        "https://h/x.csv?api_key=abc",
        "https://h/x.csv?AWSAccessKeyId=abc",
        "https://h/x.csv?PASSWORD=abc",
        "zip://x.csv::https://h/a.zip?key=abc",
        "s3://key:sec/ret@bucket/x",
        "s3://key:sec#ret@bucket/x",
        "sftp://me%3Aabc@host/x",
        "https://h/x.csv?a=1;sig=abc",
        "https://h/x.csv?pw=abc",
        "https://h/x.csv?passphrase=abc",
    ],
)
def test_secrets_in_a_url_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(RequestError, match="out of URLs") as caught:
        open_filesystem(url)
    assert "abc" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "abfss://container@account.dfs.core.windows.net/x",
        "abfs://container@account/x?blob_storage_authority=.local&enable_tls=false",
        "sftp://me@host/x",
        "hdfs://user@namenode:9000/x?replication=2",
        "s3://bucket/x?endpoint_override=127.0.0.1:9000&region=us-east-1&scheme=http",
        "memory://x/a@b:c",
    ],
)
def test_users_and_options_in_a_url_are_fine(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize("url", ["s3://[ab]c/x", "s3://[abc/x", "zip://x.csv::https://[u:abc@h/a.zip"])
def test_what_is_no_url_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(RequestError, match="the URL of .*:// is wrong: brackets hold no IPv6") as caught:
        open_filesystem(url)
    assert "abc" not in str(caught.value)


class Renaming(fsspec.implementations.local.LocalFileSystem):
    """A filesystem as fsspec's for sftp and hdfs: it renames, but does not replace."""

    protocol = "epida-renaming"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.removeprefix("epida-renaming://"))

    def mv(self, path1: str, path2: str) -> None:
        if Path(path2).exists():
            raise FileExistsError(path2)
        Path(path1).rename(path2)


fsspec.register_implementation("epida-renaming", Renaming, clobber=True)


def test_a_filesystem_that_renames_never_shows_half_a_file(tmp_path: Path) -> None:
    storage = Storage(f"epida-renaming://{tmp_path}/run")
    assert not storage.is_local
    for data in (b"one", b"two"):
        storage.write("a/b.txt", data)
        assert storage.read("a/b.txt") == data and [p.name for p in (tmp_path / "run" / "a").iterdir()] == ["b.txt"]
    with pytest.raises(ValueError, match="stop"), whole_file(f"epida-renaming://{tmp_path}/c.txt") as sink:
        sink.write(b"half")
        assert not (tmp_path / "c.txt").exists() and len(list(tmp_path.glob(".*.part"))) == 1
        raise ValueError("stop")
    (tmp_path / "run" / ".dead.part").write_bytes(b"half")
    storage.remove_unfinished()
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a", "b.txt", "run"]


@pytest.mark.parametrize("kill", [1, 2, 3, 4])
def test_a_kill_while_a_file_is_replaced_loses_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill: int
) -> None:
    storage = Storage(f"epida-renaming://{tmp_path}/run")
    storage.write("a/b.parquet", b"one")
    storage.write_table("a/c.parquet", pa.table({"text": ["x"]}))
    left = kill

    def killed(operation: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: object, **options: object) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                raise KeyboardInterrupt
            operation(*arguments, **options)

        return call

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        for name in ("mv", "rm"):
            patch.setattr(Renaming, name, killed(getattr(Renaming, name)))
        storage.write("a/b.parquet", b"two")
    assert storage.read("a/b.parquet") == (b"two" if kill == 4 else b"one") and storage.exists("a/b.parquet")
    assert storage.names("a") == {"b.parquet", "c.parquet"} == storage.sizes("a").keys()
    with storage.open("a/b.parquet") as file:
        assert file.size() == 3
    assert (storage.local_copy("a") / "b.parquet").read_bytes() in (b"one", b"two")
    storage.write("a/b.parquet", b"three")
    assert storage.read("a/b.parquet") == b"three"
    storage.remove("a/b.parquet")
    assert not storage.exists("a/b.parquet") and storage.names("a") == {"c.parquet"}


def test_a_filesystem_without_atomic_writes_is_refused(tmp_path: Path) -> None:
    for location in (f"simplecache::file://{tmp_path}", "http://127.0.0.1:9/x"):
        with pytest.raises(RequestError, match="cannot be written atomically"):
            Storage(location).write("a", b"")


@pytest.mark.parametrize("location", ["{}/new/x.csv", "memory://epida-whole/new/x.csv"])
def test_nothing_is_left_of_a_file_that_was_not_finished(tmp_path: Path, location: str) -> None:
    location = location.format(tmp_path)
    filesystem, path = open_filesystem(location)
    with pytest.raises(ValueError, match="stop"), whole_file(location) as sink:
        sink.write(b"half")
        raise ValueError("stop")
    assert filesystem.get_file_info(path).type.name == "NotFound" and not list(tmp_path.rglob("*.part"))
    with whole_file(location) as sink:
        sink.write(b"all")
    with filesystem.open_input_stream(path) as stream:
        assert stream.read() == b"all"


@pytest.mark.parametrize("failures", [1, 1000])
def test_an_upload_that_fails_is_tried_again_and_leaves_no_part(monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
    monkeypatch.setattr(retry, "WAITS", (0.0, 0.0))
    location = f"memory://epida-upload/{failures}.csv"
    filesystem, path = open_filesystem(location)
    copy, left = shutil.copyfileobj, failures

    def failing(source: Any, target: Any, size: int) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            target.write(source.read(3))
            raise OSError("AWS Error SLOW_DOWN during UploadPart operation")
        copy(source, target, size)

    monkeypatch.setattr(shutil, "copyfileobj", failing)
    if failures > 3:
        with pytest.raises(TransientError, match=f"cannot write {location}"), whole_file(location) as sink:
            sink.write(b"all of it")
        assert filesystem.get_file_info(path).type.name == "NotFound"
        return
    with whole_file(location) as sink:
        sink.write(b"all of it")
    with filesystem.open_input_stream(path) as stream:
        assert stream.read() == b"all of it"


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


def test_the_file_that_says_that_a_model_is_there_is_uploaded_last(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors", "encoder/config.json"):
        (tmp_path / "here" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "here" / name).write_bytes(b"1")
    written: list[str] = []

    class Watched(Storage):
        def write(self, name: str, data: bytes | pa.Buffer) -> None:
            written.append(name)

    Watched(str(tmp_path / "run")).upload(tmp_path / "here", "model")
    assert written == ["model/encoder/config.json", "model/model.safetensors", "model/config.json"]


def test_a_late_writer_whose_temporary_file_is_gone_removes_nothing(tmp_path: Path) -> None:
    """It took the failed renaming for a target that cannot be replaced, and removed it; the simulator found that."""
    filesystem = pafs.PyFileSystem(pafs.FSSpecHandler(fsspec.filesystem("file")))
    (tmp_path / "shard").write_bytes(b"of the one who was faster")
    with pytest.raises(FileNotFoundError):
        move(filesystem, str(tmp_path / ".gone.part"), str(tmp_path / "shard"))
    assert (tmp_path / "shard").exists()


OPERATIONS: list[Callable[[Storage], object]] = [
    lambda s: s.write("a/new", b"1"),
    lambda s: s.read("a/b.parquet"),
    lambda s: s.names("a"),
    lambda s: s.sizes("a"),
    lambda s: s.footer("a/b.parquet"),
    lambda s: s.from_own("a/b.parquet", lambda file: file.read()),
    lambda s: s.remove("a/b.parquet"),
    lambda s: s.local_copy("a"),
    lambda s: s.create("a/1.json", b"1"),
]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("number", [None, errno.EIO])
def test_a_store_that_fails_for_a_moment_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, operation: Callable[[Storage], object], number: int | None
) -> None:
    """One answer of SlowDown while a shard was written, or a model read, used to end the run."""
    monkeypatch.setattr(retry, "WAITS", (0.0, 0.0, 0.0, 0.0))
    storage = Storage("memory://flaky")
    table = pa.table({"text": ["x"]})
    inner = storage.filesystem.handler.fs
    left = 0

    def failing(name: str) -> Callable[..., object]:
        original = getattr(inner, name)

        def call(*args: object, **options: object) -> object:
            nonlocal left
            if left:
                left -= 1
                raise OSError(number, "busy") if number else OSError("AWS Error SLOW_DOWN during PutObject operation")
            return original(*args, **options)

        return call

    storage.write_table("a/b.parquet", table)
    for name in ("open", "find", "rm"):
        monkeypatch.setattr(inner, name, failing(name))
    left = 4
    operation(storage)
    assert left == 0
    storage.write_table("a/b.parquet", table)
    left = 1000
    with pytest.raises(TransientError, match="memory://flaky: .*run the same command again once the storage works"):
        operation(storage)
    left = 0


def test_an_outage_is_a_wrong_request_only_where_a_request_names_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "WAITS", ())
    storage = Storage("memory://down")

    def down(*_: object, **__: object) -> None:
        raise OSError("AWS Error SLOW_DOWN during HeadObject operation")

    for name in ("info", "exists", "isfile", "isdir"):
        monkeypatch.setattr(storage.filesystem.handler.fs, name, down)
    with pytest.raises(TransientError, match="run the same command again"):
        storage.exists("checkpoint/failure.json")
    with pytest.raises(RequestError, match="cannot look into memory://down: AWS Error SLOW_DOWN"):
        storage.given("config.json")


def test_what_no_attempt_can_change_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry.time, "sleep", lambda _: pytest.fail("tried again"))
    with pytest.raises(FileNotFoundError):
        Storage(str(tmp_path)).read("none")
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        Storage(str(tmp_path / "file" / "run")).write("a", b"1")


@pytest.mark.parametrize("where", [4, -6, -60, -120])
def test_a_damaged_footer_is_told_from_a_failing_store(tmp_path: Path, where: int) -> None:
    """Of some damage Arrow says what it says of a failing disk, and resuming ended in a traceback."""
    storage = Storage(str(tmp_path))
    storage.write_table("a.parquet", pa.table({"text": ["x"]}))
    data = bytearray(storage.read("a.parquet"))
    data[where : where + 2] = b"\xff\xff"
    (tmp_path / "a.parquet").write_bytes(data)
    if where == 4:  # not in the footer
        assert storage.footer("a.parquet").num_rows == 1
        assert storage.from_own("a.parquet", lambda file: file.metadata.num_rows) == 1
    else:
        with pytest.raises(ValueError):
            storage.footer("a.parquet")
        with pytest.raises(RunError, match=r"a\.parquet (cannot be read|is not a file that a run wrote): .*restore"):
            storage.from_own("a.parquet", lambda file: file.read())
