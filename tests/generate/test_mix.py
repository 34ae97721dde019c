from collections import Counter
from collections.abc import Sequence

import pytest

from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.generate import GENERATORS

SAMPLES = [Sample(str(i), f"big dogs number {i} ran home in the early morning") for i in range(40)]


def test_the_parts_have_their_proportions() -> None:
    mix = GENERATORS.create("mix", eda=2, aeda=1, spelling=1)
    answers = mix.generate(SAMPLES, 9, range(40))
    parts = Counter(operation.split("/")[0] for answer in answers for operation in answer.operations)
    assert all(len(set(answer.texts)) == 9 for answer in answers)
    assert sum(parts.values()) == 360
    assert abs(parts["eda"] - 180) <= 20 and abs(parts["aeda"] - 90) <= 20 and abs(parts["spelling"] - 90) <= 20


def test_a_part_that_falls_short_is_made_up_for() -> None:
    mix = GENERATORS.create("mix", synonym=1, aeda=1)
    (answer,) = mix.generate([Sample("a", "zzz qqq")], 6, [1])
    assert [operation.split("/")[0] for operation in answer.operations] == ["aeda"] * 6


class Counting:
    """Its candidates depend on how many it is asked for, as those of many libraries do."""

    def generate(self, samples: Sequence[Sample], n: int, seeds: Sequence[int]) -> list[Candidates]:
        return [Candidates([f"{s.text} {i} of {n}" for i in range(n)], ["count"] * n) for s in samples]


def test_a_sample_does_not_depend_on_its_batch() -> None:
    """Five candidates of two parts: one of them makes three, and which is drawn for each sample."""
    mix = GENERATORS.create("mix", eda=1, **{"tests.generate.test_mix:Counting": 1})
    together = mix.generate(SAMPLES, 5, range(40))
    assert together == [mix.generate([sample], 5, [seed])[0] for seed, sample in enumerate(SAMPLES)]


def test_the_reasons_of_all_parts_are_given() -> None:
    (answer,) = GENERATORS.create("mix", eda=1, spelling=1).generate([Sample("a", "")], 6, [1])
    assert isinstance(answer, Rejected) and "eda: " in answer.reason and "spelling: " in answer.reason


def test_parts_take_arguments() -> None:
    mix = GENERATORS.create("mix", eda={"alpha_sr": 0, "alpha_ri": 0, "p_rd": 0})
    assert {operation for a in mix.generate(SAMPLES, 4, range(40)) for operation in a.operations} == {"eda/swap"}


def test_the_notices_of_all_parts_are_given() -> None:
    guided = {"endpoint": "http://localhost/v1", "guide": "classifier"}
    assert GENERATORS.create("mix", eda=1, aeda=1).notice == ""
    notice = GENERATORS.create("mix", eda=1, **{"language-model": guided}).notice
    assert notice.startswith("language-model: an endpoint cannot be guided")


def test_the_language_goes_to_all_parts() -> None:
    mix = GENERATORS.create("mix", language="ru", spelling=1, aeda=1)
    operations = [o for a in mix.generate([Sample("a", "привет мир")], 20, [1]) for o in a.operations]
    assert "spelling/neighbour" in operations and "aeda/mark" in operations
    with pytest.raises(RequestError, match="back-translation takes no language"):
        GENERATORS.create("mix", language="ru", spelling=1, **{"back-translation": 1})
