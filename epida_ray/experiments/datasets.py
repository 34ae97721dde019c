"""Labelled data sets for experiments: whole, as low-resource subsets, and cleaned as in the paper."""

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
from epida_ray.data.inputs import Columns, ShardReader, plan_inputs
from epida_ray.generate.stopwords import STOP_WORDS

Ints = NDArray[np.int64]

SPLITS = ("train", "dev", "test")
MAX_LEFT_OUT = 0.2
"""Share of a file's rows that may be unusable."""
_SUFFIXES = (".parquet", ".csv", ".tsv", ".jsonl")
_URL = re.compile(r"https?://\S+|www\.\S+", re.IGNORECASE)
_HASHTAG = re.compile(r"#\w+")
_NOT_A_WORD = re.compile(r"[^\w\s']|_|\b\w*\d\w*\b")


class Split(NamedTuple):
    texts: list[str]
    labels: Ints
    """Class numbers: positions in the data set's `labels`."""

    def take(self, rows: Ints) -> Split:
        return Split([self.texts[i] for i in rows.tolist()], self.labels[rows])

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class Dataset:
    name: str
    labels: tuple[str, ...]
    train: Split
    test: Split
    dev: Split | None = None
    notes: tuple[str, ...] = ()
    """What a reader of results should know of the data: rows that were left out, texts in two splits."""

    def digest(self) -> str:
        """Changes when a text, a label or the order of rows changes."""
        total = blake2b("\0".join(self.labels).encode(), digest_size=16)
        for split in (self.train, self.dev, self.test):
            if split is not None:
                total.update("\0".join(split.texts).encode("utf-8", "surrogatepass"))
                total.update(split.labels.tobytes())
        return total.hexdigest()

    def cleaned(self) -> Dataset:
        """With the paper's text cleaning; rows of which nothing is left keep their text."""

        def each(split: Split) -> Split:
            return Split([clean(text) or text for text in split.texts], split.labels)

        return replace(self, train=each(self.train), test=each(self.test), dev=self.dev and each(self.dev))


def load_dataset(
    name: str, data_dir: str | Path, text_column: str = "text", label_column: str | None = None
) -> Dataset:
    """`hub:NAME` from the Hugging Face hub, any other name from a folder of `data_dir`."""
    hub = name.removeprefix("hub:")
    if hub != name:
        return load_hub(hub, text_column, label_column or "label")
    return load_directory(name, data_dir, text_column, label_column)


def load_directory(
    name: str, data_dir: str | Path, text_column: str = "text", label_column: str | None = None
) -> Dataset:
    """`data_dir/name/{train,test[,dev]}.{parquet,csv,tsv,jsonl}`; the label column is label_name, else label."""
    folder = Path(data_dir) / name
    found = {split: path for split in SPLITS for suffix in _SUFFIXES if (path := folder / f"{split}{suffix}").is_file()}
    if "train" not in found or "test" not in found:
        known = sorted(p.name for p in Path(data_dir).iterdir() if p.is_dir()) if Path(data_dir).is_dir() else []
        there = f"; there are {', '.join(known)}" if known else ""
        raise RequestError(f"{folder} holds no train and test file (.parquet, .csv, .tsv or .jsonl){there}")
    return load_files(name, found, text_column, label_column)


def load_files(
    name: str, files: dict[str, Path], text_column: str = "text", label_column: str | None = None
) -> Dataset:
    """A data set from files of one's own; the label column is `label_name` where there is one, else `label`."""
    read, notes = {}, []
    for split, path in files.items():
        texts, labels, reasons = _read(path, text_column, label_column)
        read[split] = texts, labels
        if left_out := sum(reasons.values()):
            rows = len(texts) + left_out
            note = f"{left_out:,} of the {rows:,} rows of {path.name} cannot be used: {reasons.most_common(1)[0][0]}"
            if left_out > MAX_LEFT_OUT * rows:
                raise RequestError(f"{path}: {note}")
            notes.append(f"{name}: {note}.")
    return _dataset(name, read, notes)


def load_hub(name: str, text_column: str = "text", label_column: str = "label") -> Dataset:
    """A data set of the Hugging Face hub, such as `ag_news`; needs the package `datasets` and a hub within reach."""
    try:
        import datasets
    except ImportError as error:
        raise RequestError("data sets of a hub need the package datasets; pip install datasets") from error
    try:
        splits = datasets.load_dataset(name)
    except Exception as error:  # the hub's client raises many kinds
        raise RequestError(
            f"the data set {name!r} cannot be had from the hub: {' '.join(str(error).split())[:200]}"
        ) from error
    return from_hub(name, splits, text_column, label_column)


def from_hub(name: str, splits: Any, text_column: str = "text", label_column: str = "label") -> Dataset:
    """From a `datasets.DatasetDict`; its validation split is the dev split."""
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
        if any(c is None or (names and c < 0) for c in classes):  # -1 is the hub's way to withhold labels
            raise RequestError(f"{name}: the {key} split has rows without a label, so nothing can be measured on it")
        read[split] = texts, [names[i] if names else str(i) for i in classes]
    return _dataset(name, read)


def _read(path: Path, text_column: str, label_column: str | None) -> tuple[list[str], list[str], Counter[str]]:
    """Texts, labels, and why other rows were left out."""
    if label_column is None:
        try:
            return _read(path, text_column, "label_name")
        except RequestError:
            return _read(path, text_column, "label")
    plan = plan_inputs(str(path), Columns(text=text_column, label=label_column))
    reader = ShardReader(plan)
    texts: list[str] = []
    labels: list[str] = []
    reasons: Counter[str] = Counter()
    for shard in plan.shards():
        table = reader.read(shard)
        for text, label, reason in zip(*(table[c].to_pylist() for c in ("text", "label", "reason")), strict=True):
            if reason is None:
                texts.append(text)
                labels.append(label)
            else:
                reasons[reason] += 1
    return texts, labels, reasons


def _dataset(name: str, read: dict[str, tuple[list[str], list[str]]], notes: Sequence[str] = ()) -> Dataset:
    for split in ("train", "test"):
        if not read.get(split, ([], []))[0]:
            raise RequestError(f"{name} has no rows to use in its {split} split")
    labels = tuple(sorted(set(read["train"][1])))
    if len(labels) < 2:
        raise RequestError(f"{name} has one class only, {labels[0]!r}; a classifier needs two or more")
    index = {label: i for i, label in enumerate(labels)}
    splits = {}
    for split, (texts, names) in read.items():
        if unknown := sorted(set(names) - set(labels)):
            raise RequestError(f"{name}: the {split} split has the label {unknown[0]!r}, which train does not have")
        splits[split] = Split(texts, np.array([index[n] for n in names], np.int64))
    learnt = set(splits["train"].texts)
    if shared := sum(text in learnt for text in splits["test"].texts):
        tested = len(splits["test"])
        notes = [*notes, f"{name}: {shared:,} of the {tested:,} texts to test on are among those to learn from."]
    return Dataset(name, labels, splits["train"], splits["test"], splits.get("dev"), tuple(notes))


def order_stratified(labels: Ints, seed: int) -> Ints:
    """All rows, in an order whose every beginning has the classes in proportion: smaller subsets lie in larger ones."""
    rng = np.random.default_rng(seed)
    keys = np.empty(len(labels))
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        keys[rows] = (rng.permutation(len(rows)) + 0.5) / len(rows)
    return np.lexsort((rng.permutation(len(labels)), keys))


def subset(labels: Ints, size: str | int, seed: int) -> Ints:
    """Rows of a stratified low-resource subset, seeded and nested: `10%`, a total such as 60, or `5 per class`."""
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
            f"a subset is a percentage such as 10%, a number of rows up to {len(labels)}, or N per class; not {size!r}"
        ) from None
    return order[: int(text)]


def split_dev(labels: Ints, share: float, seed: int) -> tuple[Ints, Ints]:
    """(train rows, dev rows): a stratified share, with a row of each class in dev where the class has two or more."""
    order = order_stratified(labels, seed)
    wanted = max(1, round(len(labels) * share))
    dev = set(order[:wanted].tolist())
    for label in np.unique(labels):
        rows = order[labels[order] == label].tolist()
        if len(rows) == 1:
            dev.discard(rows[0])
        elif not dev.intersection(rows):
            dev.add(rows[0])
    chosen = np.array(sorted(dev), np.int64)
    return np.setdiff1d(np.arange(len(labels)), chosen), chosen


def clean(text: str) -> str:
    """Without punctuation, stop words, hashtags, numbers and URLs."""
    text = _HASHTAG.sub(" ", _URL.sub(" ", text))
    stop = STOP_WORDS["en"]
    words = (word.strip("'") for word in _NOT_A_WORD.sub(" ", text.replace("’", "'")).split())
    return " ".join(word for word in words if word and word.lower() not in stop)
