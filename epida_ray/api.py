"""What `import epida_ray` offers: the commands `augment` and `train`, saved models, and `augment_texts` without Ray."""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from epida_ray.core.errors import EpidaError, RequestError
from epida_ray.core.progress import Reporter
from epida_ray.data.storage import Storage, below

if TYPE_CHECKING:
    from epida_ray.classify.model import Model
    from epida_ray.method.results import AugmentResult, TrainResult


def augment(data: Any, output: str, *, progress: bool = False, **options: Any) -> AugmentResult:
    """Do what `epida augment` does; `options` are those of the command line, with underscores.

    `data` is a path or URL, a pandas DataFrame, an Arrow table, a Hugging Face or a Ray dataset; a table in memory is
    first written to a folder in `output/input/`, named by its content, so that the run can be resumed. `progress` shows
    how the run goes; warnings are Python warnings.
    """
    from epida_ray.method.requests import AugmentRequest, make_request
    from epida_ray.stream.augment import augment as run

    take_over = bool(options.get("take_over"))
    with python_names():
        place = _location(data, output, "input", take_over)
        request = make_request(AugmentRequest, {"input": place, "output": output} | options)
        return run(request, reporter(progress), write_report)


def augment_texts(
    texts: Sequence[str],
    labels: Sequence[Any],
    ids: Sequence[Any] | None = None,
    *,
    generator: str = "eda",
    classifier: Any = None,
    m: int = 3,
    k: int = 3,
    seed: int = 0,
    **options: Any,
) -> pa.Table:
    """Return the kept rewrites of these texts with their scores, in this process and without Ray.

    The rows are those that `epida augment` would write. `classifier` is a name, the directory of a saved model, or a
    classifier object; without it, a CNN is trained on these rows. `ids` are the texts' ids, by default 0, 1, 2, …: a
    rewrite depends on the id of its text and on `seed`. Other `options` are those of `epida augment`, with
    underscores, but for `candidates`. A text that cannot be used is left out with a warning; with `max_rejected`, a
    larger share of such texts is an error.
    """
    from epida_ray.method.memory import augment_texts as run

    with python_names():
        return run(texts, labels, ids, generator=generator, classifier=classifier, m=m, k=k, seed=seed, **options)


def train(
    data: Any,
    output: str,
    *,
    dev: Any = None,
    eval: Any = None,
    unlabelled: Any = None,
    progress: bool = False,
    **options: Any,
) -> TrainResult:
    """Do what `epida train` does; `data`, `dev`, `eval` and `unlabelled` are as `data` of `augment`."""
    from epida_ray.method.requests import TrainRequest, make_request
    from epida_ray.stream.driver import train as run

    given = {"input": data, "dev": dev, "eval": eval, "unlabelled": unlabelled}
    take_over = bool(options.get("take_over"))
    with python_names():
        there = {name: value for name, value in given.items() if value is not None}
        places = {name: _location(value, output, name, take_over) for name, value in there.items()}
        return run(make_request(TrainRequest, places | {"output": output} | options), reporter(progress), write_report)


def load(directory: str | Path, *, trust_code: Sequence[str] = ()) -> Model:
    """Return the model that is saved in a directory, such as `run/model`, to `predict` with.

    A model with code of your own is refused unless `trust_code` names that code.
    """
    from epida_ray.classify import load as load_classifier
    from epida_ray.classify.model import Model, saved_card
    from epida_ray.classify.saving import has_model
    from epida_ray.method.evaluate import no_model

    with python_names():
        where = Storage(str(directory))
        if not has_model(where):
            raise RequestError(no_model(str(directory), where))
        path = where.local_copy("")
        return Model(load_classifier(path, trust=trust_code), saved_card(path))


def write_report(directory: str, trust_code: Sequence[str] = ()) -> str:
    """Do what `epida report` does; return the page's location. What draws the page is only imported here."""
    from epida_ray.experiments.report import write_report as write

    return write(directory, trust_code)


def read(directory: str | Path) -> pa.Table:
    """Return the rows that the finished run in a directory kept: rewrites, or what `epida label` labelled.

    Only files that the run committed are read; RequestError when one is missing, RunError when one has changed.
    """
    from epida_ray.runs.export import read as read_kept

    with python_names():
        return read_kept(str(directory))


class _PythonReporter(Reporter):
    """Warnings are Python warnings, which a program can catch, whether or not progress is shown."""

    def warn(self, message: str) -> None:
        warnings.warn(_python_words(message), stacklevel=2)


def reporter(progress: bool) -> Reporter:
    """Return the reporter of a run that Python code started."""
    return _PythonReporter(quiet=not progress)


@contextmanager
def python_names(kind: type[RequestError] = RequestError) -> Iterator[None]:
    """Name options in errors as Python code writes them; raise a wrong request as `kind`."""
    try:
        yield
    except EpidaError as error:
        error.args = (_python_words(str(error)),)
        if isinstance(error, RequestError) and not isinstance(error, kind):
            raise kind(*error.args) from error
        raise


def _python_words(message: str) -> str:
    """Replace the flags of the command line by the names of arguments: --generator-arg is generator_args."""
    from epida_ray.core.options import flag, option_of
    from epida_ray.method.requests import AugmentRequest, TrainRequest

    names: dict[str, str] = {}
    for request in (AugmentRequest, TrainRequest):
        for name, info in request.model_fields.items():
            form = option_of(info)
            names |= {flag(name, request): name} | ({form.off: f"{name}=False"} if form.off else {})
    return re.sub(r"(?<![\w-])--?[a-z][a-z-]*(?![\w-])", lambda found: names.get(found[0], found[0]), message)


def _location(data: Any, output: str, name: str, take_over: bool = False) -> str:
    """Return where the data is; write what is in memory into the run's directory, which nobody else may own then."""
    if isinstance(data, str) or hasattr(data, "__fspath__"):
        return str(data)
    from epida_ray.runs import layout
    from epida_ray.runs.run import Run, directory_digest

    run = Run(str(output))
    storage = run.storage
    run.check_place()
    here = Path(storage.root) if storage.is_local else None
    if here is not None:
        here.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".epida-", dir=here) as folder:  # large data has no room in /tmp
        parts = Storage(folder)
        for number, table in enumerate(_tables(data)):
            parts.write_table(f"part-{number:05d}.parquet", table)
        place = f"{layout.INPUT}/{name}-{directory_digest(Path(folder))[:16]}"
        if not storage.names(place) >= {part.name for part in Path(folder).iterdir()}:
            with run.putting_input(take_over):
                storage.upload(Path(folder), place)
    return below(storage.location, place)


def _tables(data: Any) -> Iterator[pa.Table]:
    """Yield the data as Arrow tables, whatever library holds it."""
    if isinstance(data, pa.Table):
        yield data
    elif hasattr(data, "iter_batches") and hasattr(data, "map_batches"):
        yield from data.iter_batches(batch_size=65_536, batch_format="pyarrow")
    elif hasattr(data, "with_format") and hasattr(data, "features"):  # a Hugging Face dataset
        whole = hasattr(data, "__len__")
        tables = [data.with_format("arrow")[:]] if whole else map(pa.table, data.iter(batch_size=10_000))
        for table in tables:
            yield _with_class_names(table, data.features or {})
    elif hasattr(data, "with_format") and hasattr(data, "keys"):
        names = ", ".join(data)
        raise RequestError(f"this is a dictionary of data sets ({names}); give one of them: data[{next(iter(data))!r}]")
    elif hasattr(data, "to_dict") and hasattr(data, "columns"):
        try:
            yield pa.Table.from_pandas(data, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise RequestError(f"the table has values of several types in one column: {error.args[-1]}") from error
    else:
        raise RequestError(
            f"data of type {type(data).__name__} is not supported; give a path, a pandas DataFrame, an Arrow table, "
            "a Hugging Face dataset or a Ray dataset"
        )


def _with_class_names(table: pa.Table, features: Any) -> pa.Table:
    """Replace the numbers of Hugging Face's ClassLabel columns by the names of the classes; -1 is no label."""
    for name, feature in features.items():
        if hasattr(feature, "int2str") and name in table.column_names:
            numbers = table[name].to_pylist()
            names = [None if n is None or n < 0 else feature.names[n] for n in numbers]
            table = table.set_column(table.column_names.index(name), name, pa.array(names, pa.string()))
    return table
