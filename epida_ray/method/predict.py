"""`epida predict`: the rows of a file as they are, with a model's class and its probability in new columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from epida_ray.classify import load
from epida_ray.core.errors import RequestError
from epida_ray.core.progress import Reporter
from epida_ray.data.formats import KNOWN, format_of, how_to_convert
from epida_ray.data.plan import Columns, InputFile, Plan, plan_inputs
from epida_ray.data.reader import ShardReader, Source
from epida_ray.data.storage import Storage, check_url, open_filesystem
from epida_ray.data.writer import RowWriter, format_to_write, open_writer
from epida_ray.method.checks import long_texts, warn_of_long_texts
from epida_ray.method.evaluate import no_model

NEW = ("predicted", "confidence")
LINES = 64
"""Lines of standard input that are scored together."""
_SAME_SHAPE = (("csv", "tsv", "xlsx"), ("parquet", "arrow"), ("jsonl",), ("json",))
"""Formats whose rows can be written as those of one another."""


class Predicted(NamedTuple):
    rows: int
    without: int
    """Rows that have no prediction: no text, or a row that cannot be read."""


def predict(
    model: str,
    file: str,
    output: str,
    text_column: str = "text",
    encoding: str = "auto",
    trust_code: Sequence[str] = (),
    reporter: Reporter | None = None,
    delimiter: str | None = None,
    probabilities: bool = False,
    overwrite: bool = False,
) -> Predicted:
    """Write the rows of `file` to `output` with the columns predicted and confidence.

    With `probabilities`, also with a column p_LABEL for each class. With `overwrite`, `output` may be there already.
    """
    reporter = reporter or Reporter(quiet=True)
    _check_names(file, output, overwrite)
    where = _saved(model)
    columns = Columns(text=text_column, label=None)
    plan = plan_inputs(file, columns, encoding, delimiter=delimiter, may_be_empty=True)
    for line in plan.remarks():
        reporter.say(line)
    reader, source = ShardReader(plan, whole=True), plan.files[0]
    schema = reader.schema() if source.format == "parquet" else None
    names = schema.names if schema is not None else source.header
    classifier = load(where.local_copy(""), trust=trust_code)
    new = (*NEW, *(f"p_{label}" for label in classifier.labels)) if probabilities else NEW
    if source.format != "jsonl":
        _check_columns(names, text_column, new)
    if schema is None and "json" not in source.conversion:  # an array is written in UTF-8
        _check_encoding(classifier.labels, source)
    rows, long, reasons = 0, 0, Counter[str]()
    same_kind = format_of(output) == format_of(file)
    with (
        open_writer(
            output,
            source.encoding,
            source.delimiter if same_kind else None,
            lines="json" not in source.conversion,
            overwrite=overwrite,
        ) as writer,
        reporter.track("predict", max(1, plan.rows)) as tracker,
    ):
        _begin(writer, schema, names, source, new)
        for shard in plan.shards():
            checked, given = reader.read_whole(shard)
            good = [i for i, reason in enumerate(checked["reason"].to_pylist()) if reason is None]
            reasons.update(reason for reason in checked["reason"].to_pylist() if reason is not None)
            found: list[list[Any]] = [[None] * len(new) for _ in range(len(checked))]
            if good:
                every = checked["text"].to_pylist()
                texts = [every[i] for i in good]
                long += long_texts(classifier, texts)
                for i, p in zip(good, classifier.predict_proba(texts), strict=True):
                    found[i] = _answer(p, classifier.labels)[: len(new)]
            _write(writer, given, new, found, plan, shard.start)
            rows += len(checked)
            tracker.update(rows)
    for reason, count in reasons.most_common(5):
        reporter.say(f"{count:,} {'row has' if count == 1 else 'rows have'} no prediction: {reason}")
    warn_of_long_texts(classifier, long, reporter)
    return Predicted(rows, sum(reasons.values()))


def predict_texts(
    model: str, texts: Iterable[str], trust_code: Sequence[str] = (), probabilities: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield what the model says of every text, in order; of a blank text, nulls."""
    classifier = load(_saved(model).local_copy(""), trust=trust_code)
    texts = iter(texts)
    while some := list(islice(texts, LINES)):
        good = [text for text in some if text.strip()]
        answers = iter(classifier.predict_proba(good)) if good else iter(())
        for text in some:
            predicted, confidence, *all_ = (
                _answer(next(answers), classifier.labels) if text.strip() else [None] * (2 + len(classifier.labels))
            )
            row = {"text": text, "predicted": predicted, "confidence": confidence}
            yield row | ({"probabilities": dict(zip(classifier.labels, all_, strict=True))} if probabilities else {})


def _answer(p: np.ndarray, labels: Sequence[str]) -> list[Any]:
    """Return the class, its probability, and the probability of every class."""
    return [labels[int(p.argmax())], round(float(p.max()), 4), *(round(float(value), 4) for value in p)]


def _saved(model: str) -> Storage:
    where = Storage(model)
    if not where.given("config.json"):
        raise RequestError(no_model(model, where))
    return where


def _check_names(file: str, output: str, overwrite: bool) -> None:
    check_url(file)
    given = format_of(file)
    if given is None:
        raise RequestError(f"{file} is not {KNOWN}; {how_to_convert(file)}")
    filesystem, path = open_filesystem(file)
    if filesystem.get_file_info(path).type != pafs.FileType.File:
        raise RequestError(f"there is no file {file}")
    shape = next(shape for shape in _SAME_SHAPE if given.kind in shape)
    if format_to_write(output, overwrite).kind not in shape:
        others = " or ".join(f".{kind}" for kind in shape)
        raise RequestError(f"{output} must end as {file} does: its rows can be written as {others}")


def _check_columns(names: Sequence[str], text_column: str, new: Sequence[str]) -> None:
    if text_column not in names:
        raise RequestError(f"there is no column {text_column!r}; there are {', '.join(names)}; use --text-column")
    if taken := set(new) & set(names):
        raise RequestError(f"there is a column {min(taken)!r} already; rename it")


def _check_encoding(labels: Sequence[str], file: InputFile) -> None:
    for label in labels:
        try:
            label.encode(file.encoding)
        except UnicodeEncodeError:
            raise RequestError(
                f"the class {label!r} cannot be written in {file.encoding}, the encoding of {file.path}; convert the "
                "file to UTF-8"
            ) from None


def _begin(
    writer: RowWriter, schema: pa.Schema | None, names: Sequence[str], file: InputFile, new: Sequence[str]
) -> None:
    """Write what comes before the first row, so that a file without rows is valid too."""
    if schema is not None:
        writer.table(_more_columns(schema.empty_table(), new, []))
    elif file.format != "jsonl":
        writer.fields([[*names, *new]])


def _write(
    writer: RowWriter, given: Source, new: Sequence[str], found: list[list[Any]], plan: Plan, start: int
) -> None:
    """Write rows with what was `found` of each in the `new` columns."""
    file = plan.files[0]
    if isinstance(given, pa.Table):
        writer.table(_more_columns(given, new, found))
    elif file.format == "jsonl":
        for number, row in enumerate(given, start + 1):
            if isinstance(row, dict) and (taken := set(new) & set(row)):
                raise RequestError(f"row {number:,} of {file.path} has {min(taken)!r} already; rename it")
        both = zip(given, found, strict=True)
        writer.objects(
            [row | dict(zip(new, more, strict=True)) if isinstance(row, dict) else row for row, more in both]
        )
    else:
        width = len(file.header)
        spreadsheet = "xlsx" in file.conversion
        text = file.header.index(plan.columns.text)
        lines: list[list[Any]] = []
        for row, more in zip(given, found, strict=True):
            values = [v if i == text or not spreadsheet else _number(v) for i, v in enumerate(row)]
            # Extra fields stay, after the new columns, so that all columns keep their names.
            lines.append([*values[:width], *[""] * (width - len(values)), *more, *values[width:]])
        writer.fields(lines)


def _more_columns(table: pa.Table, new: Sequence[str], found: list[list[Any]]) -> pa.Table:
    for i, name in enumerate(new):
        values = pa.array([row[i] for row in found], pa.string() if name == NEW[0] else pa.float32())
        table = table.append_column(name, values)
    return table


def _number(value: str) -> int | float | str:
    """Return the number that a cell of a spreadsheet held, if its text is just that number's; 007 stays a text."""
    for kind in (int, float):
        try:
            number = kind(value)
        except ValueError:
            continue
        if str(number) == value and len(value) <= 15 and number == number and abs(number) != float("inf"):
            return number
    return value
