from __future__ import annotations

import numpy as np
import pytest

from epida_ray.classify.linear import Linear
from epida_ray.core.labels import label_numbers
from epida_ray.method.requests import TrainRequest
from epida_ray.method.round import kept_texts, one_round
from epida_ray.method.stages import RoundOptions, block_of, kept_per_class

LABELS = ("common", "rare")


def test_rarer_classes_keep_more_rewrites_within_the_budget() -> None:
    rows = np.array([900, 90, 10])
    kept = kept_per_class(3, 5, rows)
    assert kept == sorted(kept) and kept[0] < 3 < kept[2] <= 15
    assert (np.array(kept) * rows).sum() / rows.sum() == pytest.approx(3, abs=0.5)
    assert kept_per_class(3, 3, np.array([50, 50])) == [3, 3]
    assert kept_per_class(1, 1, np.array([1000, 1])) == [1, 1]
    assert kept_per_class(3, 3, np.array([5, 0])) == [3, 7]


def test_a_balanced_round_keeps_the_best_of_each_text() -> None:
    names = [LABELS[0]] * 40 + [LABELS[1]] * 2
    texts = [f"please send the small parcel number {i} to my house in the old town" for i in range(len(names))]
    y = label_numbers(LABELS, names)
    judge = Linear(LABELS)
    judge.fit(texts, y, np.ones(len(y)), 0)
    request = TrainRequest(input="", output="", generator="eda", classifier="linear", balance=True)
    found = {}
    for balanced in (False, True):
        options = RoundOptions.of(request, LABELS, y if balanced else None)
        block = block_of([str(i) for i in range(len(texts))], texts, y)
        found[balanced] = kept_texts(
            one_round(block, options.make_generator(), judge, options.make_selector(), options, 1)
        )
    assert all(len(one) == 3 for one in found[False])
    common, rare = kept_per_class(3, 3, np.bincount(y))
    assert [len(one) for one in found[True]] == [common] * 40 + [rare] * 2 and common <= 3 < rare
    for few, many in zip(found[False], found[True], strict=True):
        both = min(len(few), len(many))
        assert few[:both] == many[:both]
