from itertools import pairwise

import pytest

from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Sample
from epida_ray.generate import GENERATORS
from epida_ray.generate.strength import set_strength, strength

WORDS = "the quick brown dog jumped over the lazy old cat while seven small children watched it from a wooden house"
SAMPLES = [Sample(str(i), f"{WORDS} number {i}") for i in range(20)]
STRENGTHS = {
    "eda": dict.fromkeys(("alpha_sr", "alpha_ri", "alpha_rs", "p_rd"), 0.5),
    "synonym": {"alpha": 0.5},
    "spelling": {"alpha": 0.5},
    "aeda": {"share": 0.5},
    "mix": {"spelling": {"alpha": 0.5}, "aeda": {"share": 0.5}},
    "policy": {"operations": [{"operation": "delete", "probability": 1, "magnitude": 0.5}]},
}


def changes(generator) -> int:
    """How many words of the originals are gone from the rewrites, and how many new ones are there."""
    answers = generator.generate(SAMPLES, 3, range(20))
    differences = [
        set(sample.text.split()) ^ set(text.split())
        for sample, answer in zip(SAMPLES, answers, strict=True)
        for text in answer.texts
    ]
    return sum(map(len, differences))


@pytest.mark.parametrize("name", STRENGTHS)
def test_a_weaker_generator_changes_less_and_all_of_the_strength_is_the_usual_one(name: str) -> None:
    plain, other = (GENERATORS.create(name, **STRENGTHS[name]) for _ in range(2))
    set_strength(name, other, 0.2)
    assert changes(other) < 0.7 * changes(plain)
    set_strength(name, other, 1.0)
    assert other.generate(SAMPLES, 3, range(20)) == plain.generate(SAMPLES, 3, range(20))


def test_a_masked_lm_has_a_strength(masked_model: str) -> None:
    generator = GENERATORS.create("masked-lm", model=masked_model, share=0.5)
    usual = changes(generator)
    set_strength("masked-lm", generator, 0.2)
    assert changes(generator) < usual


def test_shares_grow_in_equal_steps_to_the_whole() -> None:
    shares = [strength(round_, 5) for round_ in range(1, 6)]
    assert shares[0] == 0.2 and shares[-1] == 1.0
    assert [b - a for a, b in pairwise(shares)] == pytest.approx([0.2] * 4)
    assert strength(1, 1) == strength(1000, 5) == 1.0


@pytest.mark.parametrize(("name", "arguments"), [("morph", {}), ("mix", {"eda": 1, "morph": 1})])
def test_a_generator_without_a_strength_is_refused(name: str, arguments: dict) -> None:
    with pytest.raises(RequestError, match="--curriculum: morph has no strength that could grow; eda, aeda") as caught:
        set_strength(name, GENERATORS.create(name, **arguments), 0.2)
    assert "\n" not in str(caught.value)
