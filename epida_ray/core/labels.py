"""Labels: names in their order, class numbers, and the split into training and dev rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from epida_ray.core.errors import RequestError


def label_set(names: Sequence[str]) -> tuple[str, ...]:
    """Return the distinct labels: numbers in numeric order, anything else sorted as text."""
    distinct = sorted(set(names))
    numbers = all(re.fullmatch(r"-?[0-9]{1,400}", name) for name in distinct)
    return tuple(sorted(distinct, key=int) if numbers else distinct)


def label_numbers(labels: Sequence[str], names: Sequence[str] | Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the class numbers of label names (numbers stay as they are); raise RequestError for an unknown one."""
    number: dict[Any, int] = {label: i for i, label in enumerate(labels)}
    number |= {i: i for i in range(len(labels))}
    try:
        return np.array([number[name] for name in names], np.int64)
    except KeyError as error:
        known = ", ".join(labels)
        raise RequestError(f"the label {error.args[0]!r} is not among the declared ones: {known}") from None


def hard(y: np.ndarray) -> np.ndarray:
    """Return class numbers [N] of labels that are numbers [N] or distributions over the classes [N, C]."""
    return y if y.ndim == 1 else y.argmax(axis=1)


def unknown_label(label: str, labels: Sequence[str]) -> str:
    """Say why a row with this label is rejected."""
    known = ", ".join(labels[:10]) + (", …" if len(labels) > 10 else "")
    return f"the label {label[:40]!r} is not one of {known}"


def dev_split(y: np.ndarray, share: float, seed: int, leader: np.ndarray | None = None) -> np.ndarray:
    """Return bool [N]: which rows go to dev. Each class gives its share, at least one row where it has two or more.

    `leader` [N] is the first row with the text of each row. Rows of one text count as one and go to the same side, or
    the model would be measured on what it has learned by heart; only where that leaves no dev row, they are separated.
    No class gives all of its rows.
    """
    taken = np.zeros(len(y), np.bool_)
    first = np.arange(len(y)) if leader is None else leader
    random = np.random.default_rng([seed, 2])
    for label in np.unique(y):
        rows = random.permutation(np.flatnonzero((y == label) & (first == np.arange(len(y)))))
        count = min(max(1, round(share * len(rows))), len(rows) - 1)
        taken[rows[: max(0, count)]] = True
    taken = taken[first]
    for label in np.unique(y):
        if taken[y == label].all():  # its texts are in another class, too
            taken[first == first[y == label][0]] = False
    if leader is not None and not taken.any():  # too few different texts: equal ones have to be on both sides
        return dev_split(y, share, seed)
    return taken
