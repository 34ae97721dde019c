"""Labelled data sets for experiments: loading, low-resource subsets, and the cleaning of the paper."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from epida_ray.core.errors import RequestError
from epida_ray.core.labels import label_numbers, label_set
from epida_ray.data.formats import KNOWN, format_of
from epida_ray.data.plan import Columns, plan_inputs
from epida_ray.generate.stopwords import STOP_WORDS
from epida_ray.method.prepare import read_labelled
from epida_ray.method.trainer import LabelledRows

Ints = NDArray[np.int64]

SPLITS = ("train", "dev", "test")
MAX_REJECTED = 0.2
"""Share of a file's rows that may be rejected."""
_URL = re.compile(r"https?://\S+|www\.\S+", re.IGNORECASE)
_HASHTAG = re.compile(r"#\w+")
_NOT_A_WORD = re.compile(r"[^\w\s']|_|\b\w*\d\w*\b")


@dataclass(frozen=True)
class Dataset:
    name: str
    labels: tuple[str, ...]
    train: LabelledRows
    test: LabelledRows
    dev: LabelledRows | None = None
    notes: tuple[str, ...] = ()
    """What a reader of results should know of the data: rejected rows, texts in two splits."""

    def digest(self) -> str:
        """Return a digest that changes with every text, label and id, and with the order of the rows."""
        total = blake2b("\0".join(self.labels).encode(), digest_size=16)
        for split in (self.train, self.dev, self.test):
            if split is not None:
                for texts in (split.ids, split.texts):
                    total.update("\0".join(texts).encode("utf-8", "surrogatepass") + b"\1")
                total.update(split.y.tobytes())
        return total.hexdigest()

    def cleaned(self) -> Dataset:
        """Return the data with the paper's text cleaning; a text of which nothing would be left stays as it is."""

        def each(rows: LabelledRows) -> LabelledRows:
            return rows._replace(texts=[clean(text) or text for text in rows.texts])

        return replace(self, train=each(self.train), test=each(self.test), dev=self.dev and each(self.dev))


def load_dataset(
    name: str, data_dir: str | Path, text_column: str = "text", label_column: str | None = None
) -> Dataset:
    """Load `hub:NAME` from the Hugging Face hub, any other name from a folder of `data_dir`."""
    hub = name.removeprefix("hub:")
    if hub != name:
        return load_hub(hub, text_column, label_column or "label")
    return load_directory(name, data_dir, text_column, label_column)


def load_directory(
    name: str, data_dir: str | Path, text_column: str = "text", label_column: str | None = None
) -> Dataset:
    """Load `data_dir/name/{train,test[,dev]}`, files of any format; the label column is label_name, else label."""
    folder = Path(data_dir) / name
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        split = path.name.partition(".")[0]
        if split not in SPLITS or not path.is_file() or format_of(path.name) is None:
            continue
        if split in found:
            raise RequestError(f"{folder} has both {found[split].name} and {path.name}; keep one of them")
        found[split] = path
    if "train" not in found or "test" not in found:
        known = sorted(p.name for p in Path(data_dir).iterdir() if p.is_dir()) if Path(data_dir).is_dir() else []
        there = f"; there are {', '.join(known)}: use --setting {known[0]}:100%" if known else ""
        raise RequestError(f"{folder} has no train and test file; each may be {KNOWN}{there}")
    return load_files(name, found, text_column, label_column)


def load_files(
    name: str, files: dict[str, Path], text_column: str = "text", label_column: str | None = None
) -> Dataset:
    """Load a data set from files by split; the label column is `label_name` if there is one, else `label`.

    Row ids are those that a run on the same file would use: `FILE:ROW`.
    """
    read, notes = {}, []
    for split, path in files.items():
        rows, reasons = _read(path, text_column, label_column)
        read[split] = rows
        if rejected := sum(reasons.values()):
            total = len(rows.ids) + rejected
            note = f"{rejected:,} of the {total:,} rows of {path.name} are rejected: {reasons.most_common(1)[0][0]}"
            if rejected > MAX_REJECTED * total:
                raise RequestError(f"{path}: {note}")
            notes.append(f"{name}: {note}.")
    return _dataset(name, read, notes)


def load_hub(name: str, text_column: str = "text", label_column: str = "label") -> Dataset:
    """Load a data set of the Hugging Face hub, such as `ag_news`; this needs the package `datasets` and the network."""
    try:
        import datasets
    except ImportError as error:
        raise RequestError("data sets of the hub need the package datasets; pip install datasets") from error
    try:
        splits = datasets.load_dataset(name)
    except Exception as error:  # the client of the hub raises many kinds of errors
        raise RequestError(
            f"cannot load the data set {name!r} from the hub: {' '.join(str(error).split())[:200]}"
        ) from error
    return from_hub(name, splits, text_column, label_column)


def from_hub(name: str, splits: Any, text_column: str = "text", label_column: str = "label") -> Dataset:
    """Return a data set from a `datasets.DatasetDict`; its validation split becomes the dev split."""
    read = {}
    for split, key in zip(SPLITS, ("train", "validation", "test"), strict=True):
        if key not in splits:
            continue
        rows = splits[key]
        for column in (text_column, label_column):
            if column not in rows.column_names:
                raise RequestError(f"{name} has no column {column!r}; it has {', '.join(rows.column_names)}")
        names = getattr(rows.features[label_column], "names", None)
        texts, classes = list(rows[text_column]), list(rows[label_column])
        if not all(isinstance(text, str) for text in texts):
            raise RequestError(f"{name}: the {key} split has rows without a text in the column {text_column!r}")
        if any(c is None or (names and c < 0) for c in classes):  # the hub marks withheld labels with -1
            raise RequestError(f"{name}: the {key} split has rows without a label; use a data set with all labels")
        ids = [f"{key}:{i}" for i in range(len(texts))]
        read[split] = _Rows(ids, texts, [names[i] if names else str(i) for i in classes])
    return _dataset(name, read)


class _Rows(NamedTuple):
    ids: list[str]
    texts: list[str]
    labels: list[str]


def _read(path: Path, text_column: str, label_column: str | None) -> tuple[_Rows, Counter[str]]:
    """Return the good rows, and how many others were rejected for which reason."""
    if label_column is None:
        try:
            return _read(path, text_column, "label_name")
        except RequestError:
            return _read(path, text_column, "label")
    plan = plan_inputs(str(path), Columns(text=text_column, label=label_column))
    good, rejected = read_labelled(plan)
    rows = _Rows([r.id for r in good], [r.text for r in good], [r.label for r in good])
    return rows, Counter(row.reason for row in rejected)


def _dataset(name: str, read: dict[str, _Rows], notes: Sequence[str] = ()) -> Dataset:
    for split in ("train", "test"):
        if split not in read or not read[split].ids:
            raise RequestError(f"{name} has no usable rows in its {split} split")
    labels = label_set(read["train"].labels)
    if len(labels) < 2:
        raise RequestError(f"{name} has one class only, {labels[0]!r}; at least two classes are required")
    splits = {}
    for split, rows in read.items():
        if unknown := sorted(set(rows.labels) - set(labels)):
            raise RequestError(f"{name}: the {split} split has the label {unknown[0]!r}, which train does not have")
        splits[split] = LabelledRows(rows.ids, rows.texts, label_numbers(labels, rows.labels))
    train_texts = set(splits["train"].texts)
    if shared := sum(text in train_texts for text in splits["test"].texts):
        notes = [*notes, f"{name}: {shared:,} of the {len(splits['test']):,} test texts are also training texts."]
    return Dataset(name, labels, splits["train"], splits["test"], splits.get("dev"), tuple(notes))


def order_stratified(labels: Ints, seed: int) -> Ints:
    """Return all rows in an order of which every beginning is stratified, so that subsets are nested."""
    rng = np.random.default_rng(seed)
    keys = np.empty(len(labels))
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        keys[rows] = (rng.permutation(len(rows)) + 0.5) / len(rows)
    return np.lexsort((rng.permutation(len(labels)), keys))


def subset(labels: Ints, size: str | int, seed: int) -> Ints:
    """Return the rows of a stratified, seeded and nested subset: `10%`, a number of rows, or `5 per class`."""
    text = str(size).strip()
    order = order_stratified(labels, seed)
    try:
        if text.endswith("%"):
            percent = float(text[:-1])
            if not 0 < percent <= 100:
                raise ValueError
            return order[: max(1, round(len(labels) * percent / 100))]
        if text.endswith("per class"):
            each = int(text.removesuffix("per class"))
            if each < 1:
                raise ValueError
            return np.concatenate([order[labels[order] == label][:each] for label in np.unique(labels)])
        if not 1 <= int(text) <= len(labels):
            raise ValueError
    except ValueError:
        raise RequestError(
            f"the size of a subset is a percentage such as 10%, a number of rows up to {len(labels)}, or N per class; "
            f"not {size!r}"
        ) from None
    return order[: int(text)]


def clean(text: str) -> str:
    """Return the text without punctuation, stop words, hashtags, numbers and URLs."""
    text = _HASHTAG.sub(" ", _URL.sub(" ", text))
    stop = STOP_WORDS["en"]
    words = (word.strip("'") for word in _NOT_A_WORD.sub(" ", text.replace("’", "'")).split())
    return " ".join(word for word in words if word and word.lower() not in stop)
