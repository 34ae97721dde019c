from __future__ import annotations

from epida_ray.core.sample import fold_space, sample_seeds


def test_seeds_depend_on_every_part_and_on_nothing_else() -> None:
    base = sample_seeds(0, 0, ["a", "b"], "eda", 0)
    assert sample_seeds(0, 0, ["b", "a"], "eda", 0) == base[::-1]
    others = [
        sample_seeds(1, 0, ["a"], "eda", 0),
        sample_seeds(0, 1, ["a"], "eda", 0),
        sample_seeds(0, 0, ["a"], "aeda", 0),
        sample_seeds(0, 0, ["a"], "eda", 1),
        [base[1]],
    ]
    assert len({base[0], *(seeds[0] for seeds in others)}) == 6
    assert sample_seeds(7, 3, ["data/train.csv:12", "\ud800"], "eda", 2) == [3367855651078287252, 12194862759667533796]


def test_fold_space() -> None:
    assert fold_space("  a \t b\n") == "a b"
