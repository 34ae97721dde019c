from collections import Counter
from pathlib import Path

import pytest

from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Candidates, Sample
from epida_ray.generate import GENERATORS, protect
from epida_ray.method.requests import AugmentRequest, make_request

SAMPLES = [Sample(str(i), f"big dogs number {i} ran home in the early morning of a cold day") for i in range(60)]
FILE = str(Path(__file__).parent / "policy.yaml")


def policy(*operations):
    names = ("operation", "probability", "magnitude")
    return GENERATORS.create("policy", operations=[dict(zip(names, one, strict=True)) for one in operations])


def test_operations_have_their_probabilities() -> None:
    made = policy(("swap", 0.8, 0.1), ("punctuation", 0.2, 0.3)).generate(SAMPLES, 5, range(60))
    counts = Counter(operation for answer in made for operation in answer.operations)
    assert counts.total() == 300 and set(counts) == {"swap", "punctuation", "swap+punctuation"}
    marked = counts["punctuation"] + counts["swap+punctuation"]
    assert 30 <= marked <= 90  # a fifth of 300; what is neither swapped nor marked is swapped


def test_magnitudes() -> None:
    weak, strong = (policy(("delete", 1, magnitude)).generate(SAMPLES, 3, range(60)) for magnitude in (0.1, 0.6))

    def words(made):
        return sum(len(text.split()) for answer in made for text in answer.texts)

    assert words(strong) < 0.7 * words(weak)


def test_a_sample_does_not_depend_on_its_batch() -> None:
    generator = GENERATORS.create(f"policy:{FILE}")
    together = generator.generate(SAMPLES, 4, range(60))
    assert together == [generator.generate([sample], 4, [seed])[0] for seed, sample in enumerate(SAMPLES)]


def test_protected_spans_stay_after_several_operations() -> None:
    text = "the Acme Rocket flew over the old house near the river"
    sample = Sample("a", text, protected=protect([text], ["acme rocket"])[0])
    (answer,) = policy(("insert", 1, 0.5), ("swap", 1, 0.5), ("spelling", 1, 0.9)).generate([sample], 20, [1])
    assert isinstance(answer, Candidates) and all("Acme Rocket" in text for text in answer.texts)


def test_a_request_holds_the_content_of_the_file() -> None:
    request = make_request(AugmentRequest, {"input": "a", "output": "b", "generator": f"policy:{FILE}"})
    assert request.generator == "policy" and request.generator_args["operations"][0]["operation"] == "synonym"
    assert request.result_options()["generator_args"] == request.generator_args


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        ([{"operation": "magic"}], "an operation of a policy has the keys"),
        ([{"operation": "swap", "strength": 1}], "an operation of a policy has the keys"),
        ([{"operation": "swap", "probability": 2}], "the probability of swap is a number from 0 to 1"),
        ([{"operation": "swap", "probability": 0}], "no operation with a probability above 0"),
        ([], "no operation with a probability above 0"),
    ],
)
def test_wrong_policies(operations, message) -> None:
    with pytest.raises(RequestError, match=message):
        GENERATORS.create("policy", operations=operations)


def test_wrong_files(tmp_path) -> None:
    for text in ("[1, 2]", "operations: 3", "a: [", "\0"):
        (tmp_path / "p.yaml").write_text(text)
        with pytest.raises(RequestError, match="the policy .* (cannot be read|has no list of operations)"):
            GENERATORS.create(f"policy:{tmp_path / 'p.yaml'}")
    with pytest.raises(RequestError, match="cannot be read"):
        GENERATORS.create("policy:/no/such/file")
    with pytest.raises(RequestError, match="give one of them"):
        GENERATORS.create("policy")
