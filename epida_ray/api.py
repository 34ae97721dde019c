"""The command line's work from Python, for paths and for tables in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from epida_ray.core.errors import RequestError
from epida_ray.data.storage import Storage, below

if TYPE_CHECKING:
    from epida_ray.stream.augment import AugmentResult
    from epida_ray.stream.driver import TrainResult


def augment(data: Any, output: str, *, progress: bool = False, **options: Any) -> AugmentResult:
    """Like `epida augment`: `options` are those of the command line, with underscores.

    `data` is a path or URL, a pandas DataFrame, an Arrow table, a Hugging Face or a Ray dataset; a table in memory is
    first written to a folder in `output/input/`, named by its content, so that the run can be resumed.
    """
    from epida_ray.core.progress import Reporter
    from epida_ray.method.requests import AugmentConfig, make_config
    from epida_ray.stream.augment import augment as run

    config = make_config(AugmentConfig, {"input": _location(data, output, "input"), "output": output} | options)
    return run(config, Reporter(quiet=not progress))


def train(
    data: Any, output: str, *, dev: Any = None, eval: Any = None, progress: bool = False, **options: Any
) -> TrainResult:
    """Like `epida train`: trains on `data` with online augmentation; `data`, `dev` and `eval` as in `augment`."""
    from epida_ray.core.progress import Reporter
    from epida_ray.method.requests import TrainConfig, make_config
    from epida_ray.stream.driver import train as run

    given = {"input": data, "dev": dev, "eval": eval}
    places = {name: _location(value, output, name) for name, value in given.items() if value is not None}
    return run(make_config(TrainConfig, places | {"output": output} | options), Reporter(quiet=not progress))


def _location(data: Any, output: str, name: str) -> str:
    """Where the data is; what is in memory is put into the run's directory."""
    if isinstance(data, str) or hasattr(data, "__fspath__"):
        return str(data)
    from epida_ray.runs.run import directory_digest

    storage = Storage(output)
    here = Path(storage.root) if storage.is_local else None
    if here is not None:
        here.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".epida-", dir=here) as folder:  # large data has no room in /tmp
        parts = Storage(folder)
        for number, table in enumerate(_tables(data)):
            parts.write_table(f"part-{number:05d}.parquet", table)
        place = f"input/{name}-{directory_digest(Path(folder))[:16]}"
        if not storage.names(place) >= {part.name for part in Path(folder).iterdir()}:
            storage.upload(Path(folder), place)
    return below(storage.location, place)


def _tables(data: Any) -> Iterator[pa.Table]:
    """The data as Arrow tables, whatever library holds it."""
    if isinstance(data, pa.Table):
        yield data
    elif hasattr(data, "iter_batches") and hasattr(data, "map_batches"):
        yield from data.iter_batches(batch_size=65_536, batch_format="pyarrow")
    elif hasattr(data, "with_format") and hasattr(data, "column_names"):
        yield data.with_format("arrow")[:]
    elif hasattr(data, "to_dict") and hasattr(data, "columns"):
        try:
            yield pa.Table.from_pandas(data, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise RequestError(f"the table has values of several types in one column: {error.args[-1]}") from error
    else:
        raise RequestError(
            f"data of type {type(data).__name__} is not understood; give a path, a pandas DataFrame, an Arrow table, "
            "a Hugging Face dataset or a Ray dataset"
        )
