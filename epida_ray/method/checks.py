"""Problems of labelled rows that can be found before anything is trained."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from epida_ray.core.errors import RequestError
from epida_ray.core.labels import unknown_label
from epida_ray.core.progress import Reporter
from epida_ray.data.plan import Plan
from epida_ray.data.reader import ShardReader
from epida_ray.method.pool import text_hash
from epida_ray.method.scripts import main_script

MANY_CLASSES = 20
"""From this many classes on, there must be more than two rows per class."""
MOST_NUMBERS = 10
"""More numbers with a fraction than this are measurements, not classes."""
SEPARATORS = "|;,"
UNEVEN = 3.0
"""Ratio of the largest to the smallest class from which --balance is worth a try."""
TOKENISED = 1000
"""Texts whose tokens are counted at a time."""


def check_classes(labels: Sequence[str], names: Sequence[str], column: str, named: bool = False) -> None:
    """Refuse labels that are not one class per row: too few, numbers that were measured, or several per row.

    `labels` are the classes, `names` those of the rows. `named`: the user has named the classes, so any name is meant.
    """
    if len(labels) < 2:
        raise RequestError(
            f"column {column!r} has one class only ({', '.join(labels)}); at least two classes are required"
        )
    classes = set(names)
    lists = [name for name in classes if name.startswith("[") and name.endswith("]")]
    if lists:
        raise RequestError(
            f"column {column!r} holds lists, such as {min(lists)[:60]}: these are multi-label data, and epida learns "
            "one class per text; choose one, or train a model for each class with a yes/no column"
        )
    if not named and (joined := _joined(classes)):
        raise RequestError(
            f"column {column!r} has labels such as {joined[:60]!r}, which join classes that also stand alone: these "
            "are multi-label data, and epida learns one class per text; choose one, train a model for each class with "
            "a yes/no column, or name all classes with --labels to learn each combination as a class of its own"
        )
    if not named and len(classes) > MOST_NUMBERS and _measured(classes):
        raise RequestError(
            f"column {column!r} has {len(classes):,} different numbers, such as {min(classes)[:40]}: these are "
            "measurements, not classes; put them into a few classes, name all of them with --labels to learn each as a "
            "class, or see --label-column"
        )
    if len(classes) >= MANY_CLASSES and 2 * len(classes) > len(names):
        raise RequestError(
            f"column {column!r} has {len(classes):,} different values in {len(names):,} rows, such as "
            f"{min(classes)[:40]!r}: these are not classes; see --label-column"
        )


def _measured(classes: set[str]) -> bool:
    """Return whether all names are numbers, and not all of them whole ones."""
    try:
        return not all(float(name).is_integer() for name in classes)
    except ValueError:
        return False


def _joined(classes: set[str]) -> str | None:
    """Return a label that joins classes which also stand alone, such as a|b beside a and b; not a|b beside a only,
    which may be a class and a part of it."""
    for name in sorted(classes):
        parts = _parts(name)
        if len(parts) > 1 and set(parts) <= classes:
            return name
    return None


def _parts(name: str) -> list[str]:
    return [part.strip() for part in re.split(f"[{SEPARATORS}]", name)]


def multi_label_hint(names: Iterable[str]) -> str | None:
    """Return a warning when labels look like several classes joined by separators."""
    classes = set(names)
    joined = _joined_names(classes)
    if len(joined) > 1 and (_all_parts(joined) & classes or _combinations(joined)):
        return (
            f"labels such as {min(joined)[:60]!r} look like multi-label data; epida learns each combination as a class "
            "of its own"
        )
    return None


def check_combinations(names: Iterable[str], column: str) -> None:
    """Refuse labels that combine the same few parts in more ways than there are parts: several classes per row."""
    joined = _joined_names(set(names))
    if _combinations(joined):
        raise RequestError(
            f"column {column!r} has {len(joined):,} labels such as {min(joined)[:60]!r}, which combine "
            f"{len(_all_parts(joined)):,} parts: these are multi-label data, and epida learns one class per text; "
            "choose one, train a model for each class with a yes/no column, or name all classes with --labels to "
            "learn each combination as a class of its own"
        )


def _joined_names(classes: Iterable[str]) -> list[str]:
    return [name for name in classes if len(_parts(name)) > 1]


def _all_parts(joined: Iterable[str]) -> set[str]:
    return {part for name in joined for part in _parts(name)}


def _combinations(joined: Sequence[str]) -> bool:
    return len(joined) > 1 and len(_all_parts(joined)) < len(joined)


def warn_of_overlap(
    name: str, texts: Iterable[str], others: Iterable[str], reporter: Reporter, where: str = "TRAIN"
) -> None:
    """Warn when texts of the file of --NAME are among those that the model learns from or is chosen by."""
    known = {text_hash(text) for text in others}
    hashes = [text_hash(text) for text in texts]
    found = sum(one in known for one in hashes)
    if found:
        reporter.warn(
            f"{found:,} of {len(hashes):,} texts of --{name} are in {where} too: the score on them is too high; remove "
            "them from one of the files"
        )


def long_texts(classifier: Any, texts: Iterable[str]) -> int:
    """Return how many texts the classifier reads only the beginning of, as far as it says how much it reads."""
    if (limit := getattr(classifier, "max_words", None)) is not None:
        return sum(1 for text in texts if len(text) > limit and sum(1 for _ in islice(text.split(), limit + 1)) > limit)
    if (reader := _token_reader(classifier)) is None:
        return 0
    texts = (text for text in texts if len(text) > reader.max_length)  # a token is a character or more
    long = 0
    while some := list(islice(texts, TOKENISED)):
        long += sum(len(tokens) > reader.max_length for tokens in reader.tokenize(some, more=1))
    return long


def _token_reader(classifier: Any) -> Any:
    """Return what turns texts into tokens and cuts them: the encoder of a classifier that has one, else itself."""
    reader = getattr(classifier, "encoder", classifier)
    return reader if all(hasattr(reader, name) for name in ("tokenizer", "tokenize", "max_length")) else None


def warn_of_long_texts(classifier: Any, long: int, reporter: Reporter, trained: bool = True) -> None:
    """Warn that `long` texts are longer than what the classifier reads, and before training say what to do."""
    if long:
        texts = "text has" if long == 1 else "texts have"
        words = getattr(classifier, "max_words", None)
        limit, unit, option = (
            (words, "words", "max_words") if words is not None
            else (_token_reader(classifier).max_length, "tokens", "max_length")
        )  # fmt: skip
        argument = f"--classifier-arg {option}=N"
        reporter.warn(
            f"{long:,} {texts} more than {limit:,} {unit}, of which the classifier reads the first {limit:,} "
            + (f"(a model trained with {argument} can read more)" if trained else f"({argument})")
        )


def warn_of_other_script(train: Iterable[str], pool: Iterable[str], reporter: Reporter) -> None:
    """Warn when most unlabelled texts are in another script than most of TRAIN: then they are in another language."""
    ours, theirs = main_script(train), main_script(pool)
    if ours and theirs and ours != theirs:
        reporter.warn(
            f"most texts of --unlabelled are in {theirs} script, those of TRAIN in {ours}: texts in another language "
            "can hardly help; give some like TRAIN's"
        )


def say_of_unread_labels(plan: Plan, column: str, reporter: Reporter) -> None:
    """Say that the label column of a pool is not read, if it has one."""
    reader = ShardReader(plan, whole=True)
    for shard in islice(plan.shards(), 1):
        file = plan.files[shard.file]
        names: Iterable[str] = file.header
        if file.format == "jsonl":
            names = {name for row in reader.read_whole(shard)[1] if isinstance(row, dict) for name in row}
        elif file.format == "parquet" and shard.file == 0:
            names = reader.schema().names
        if column in names:
            reporter.say(f"column {column!r} of --unlabelled is not read: the texts are used without labels")


def check_judge(labels: Sequence[str], plan: Plan, max_rejected: float, trained: bool = True) -> None:
    """Refuse labels that do not fit INPUT, by the first shard of it: those of a saved judge, or of one to be trained.

    So few rows may have another label as may be rejected.
    """
    for shard in islice(plan.shards(), 1):
        table = ShardReader(plan).read(shard)
        names = [name for name in table["label"].to_pylist() if name is not None]
        unknown = [name for name in names if name not in set(labels)]
        if len(unknown) > max_rejected * len(names):
            reason = unknown_label(unknown[0], labels)
            if not trained:
                few = f"{len(unknown):,} of {len(names):,} rows of INPUT have"
                raise RequestError(
                    f"{few} labels that are not in --train or --labels: {reason}; name them the same way"
                )
            raise RequestError(
                f"the judge of --classifier does not fit INPUT: {reason}; choose a model that was trained on "
                "these labels"
            )
