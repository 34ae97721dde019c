"""Files of a run's directory may come from anybody: no code of a type that they name runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from epida_ray.core.errors import RunError
from epida_ray.data import retry
from epida_ray.data.storage import Storage
from epida_ray.experiments.report import _originals
from epida_ray.experiments.report_rows import read_rows
from epida_ray.method.prepare import read_prepared
from epida_ray.method.review import _most_uncertain, write_review
from epida_ray.method.round_worker import Worker
from epida_ray.method.serving import NewestModel
from epida_ray.runs.export import _tables


class Pickled(pa.ExtensionType):
    def __init__(self) -> None:
        super().__init__(pa.binary(), "ray.data.arrow_pickled_test")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Pickled:
        raise AssertionError("the code of the type ran")


@pytest.fixture
def registered() -> Iterator[None]:
    pa.register_extension_type(Pickled())
    yield
    pa.unregister_extension_type("ray.data.arrow_pickled_test")


def worker(storage: Storage) -> Any:
    return SimpleNamespace(task=SimpleNamespace(storage=storage))


READERS: dict[str, tuple[str, Callable[[Storage], object]]] = {
    "prepared": ("prepared/dev.parquet", lambda s: read_prepared(s, "dev", ("x",))),
    "round": ("augmented/round=001/a.parquet", lambda s: Worker._read(worker(s), "augmented/round=001")),
    "review": ("labelled/a.parquet", lambda s: write_review(s, None, 1, 0)),
    "report": ("augmented/a.parquet", lambda s: read_rows(s, "augmented", 10)),
    "map": ("prepared/train.parquet", _originals),
    "table": ("augmented/a.parquet", lambda s: list(_tables(s, "augmented/a.parquet", None))),
}


def write_typed(file: Path) -> None:
    names = ["sample_id", "label", "soft_label", "confidence", "rank"]
    columns: dict[str, Any] = {name: pa.array(["x"]) for name in names}
    columns["text"] = pa.ExtensionArray.from_storage(Pickled(), pa.array([b"x"]))
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table(columns), file)


@pytest.mark.parametrize("reader", READERS)
def test_a_type_in_a_file_of_a_run_is_refused_before_its_code_runs(
    tmp_path: Path, reader: str, registered: None
) -> None:
    name, read = READERS[reader]
    write_typed(tmp_path / name)
    with pytest.raises(RunError, match="not a file that a run wrote: column 'text' has the type ray.data.arrow_pickle"):
        read(Storage(str(tmp_path)))


LATER: dict[str, Callable[[Storage], object]] = {
    "review": lambda s: _most_uncertain(s, 3),
    "report": lambda s: read_rows(s, "labelled", 3),
    "serve": lambda s: NewestModel._signature(SimpleNamespace(_storage=s)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("reader", LATER)
def test_a_store_that_fails_for_a_moment_is_read_again(
    tmp_path: Path, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "WAITS", (0.0,) * 4)
    storage = Storage(f"memory://{tmp_path.name}")
    columns = {"soft_label": [[0.5, 0.5]], "sample_id": ["a"], "text": ["t"], "label": ["l"], "confidence": [0.5]}
    storage.write_table("labelled/a.parquet", pa.table(columns))
    inner = storage.filesystem.handler.fs
    failed: list[str] = []

    def failing(name: str) -> Callable[..., object]:
        original = getattr(inner, name)

        def call(*args: object, **options: object) -> object:
            if failed.count(name) < 2:
                failed.append(name)
                raise OSError("AWS Error SLOW_DOWN")
            return original(*args, **options)

        return call

    for name in ("open", "find"):
        monkeypatch.setattr(inner, name, failing(name))
    assert LATER[reader](storage)
    assert failed


def test_the_footer_of_a_file_with_a_type_is_damaged(tmp_path: Path, registered: None) -> None:
    write_typed(tmp_path / "augmented" / "a.parquet")
    with pytest.raises(ValueError, match="column 'text' has the type ray.data.arrow_pickle"):
        Storage(str(tmp_path)).footer("augmented/a.parquet")
