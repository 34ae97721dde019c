import numpy as np
import pytest
import torch

from epida_ray.classify import create
from epida_ray.classify.examples import Kept, make_examples
from epida_ray.classify.learning import make_learner
from epida_ray.classify.training import TrainingOptions
from epida_ray.classify.two_heads import TwoHeads
from epida_ray.core.errors import RequestError
from tests.classify import tiny

LABELS = ("fruit", "tool")
TEXTS = [f"i want a {word} today" for word in ("apple", "hammer", "pear", "saw")] * 3
Y = np.array([0, 1] * 6)
KEPT = Kept([[f"{text} please", f"well {text}"] for text in TEXTS])
OPTIONS = TrainingOptions(multi_task=True, seed=3, batch_size=4, learning_rate=5e-3)
ORIGINALS = make_examples(TEXTS, Y, 2)
BOTH = make_examples(TEXTS, Y, 2, KEPT, "multi-task")


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    folders = {kind: tiny.transformer(kind, tmp_path_factory.mktemp(kind), LABELS) for kind in ("bert", "xlm-roberta")}

    def make(name: str):
        if name in folders:
            return create(f"transformer:{folders[name]}", LABELS)
        return create(name, LABELS, seed=0, vectors="hashed:20")

    return make


def second_head(learner) -> dict[str, np.ndarray]:
    return {k: v for k, v in learner.state().items() if k.startswith("weights/rewrites.")}


@pytest.mark.parametrize("name", ["cnn", "bilstm", "bert", "xlm-roberta"])
def test_it_learns_and_is_exact_on_resume_and_the_second_head_stays_behind(make, name: str) -> None:
    def learner():
        return make_learner(make(name), len(TEXTS), OPTIONS, 12)

    whole, first, second = learner(), learner(), learner()
    before = torch.get_rng_state()
    for one, epochs in ((whole, 8), (first, 3)):
        one.train(ORIGINALS, 4)
        one.train(BOTH, epochs)
    second.load_state(first.state())
    second.train(BOTH, 5)
    assert torch.equal(torch.get_rng_state(), before)
    for key, value in whole.state().items():
        np.testing.assert_array_equal(second.state()[key], value, err_msg=key)
    classifier = whole.classifier
    assert (classifier.predict_proba(TEXTS).argmax(axis=1) == Y).all()
    fresh = make(name)
    assert classifier.state().keys() == fresh.state().keys()  # what is saved and published
    fresh.load_state(classifier.state())
    np.testing.assert_array_equal(fresh.predict_proba(TEXTS), classifier.predict_proba(TEXTS))


def test_until_there_are_rewrites_the_heads_are_equal_and_the_training_is_the_usual_one(make) -> None:
    two = make_learner(make("cnn"), len(TEXTS), OPTIONS, 4)
    one = make_learner(make("cnn"), len(TEXTS), OPTIONS.model_copy(update={"multi_task": False}), 4)
    for learner in (one, two):
        learner.train(ORIGINALS, 2)
    for name, value in one.classifier.state().items():
        np.testing.assert_array_equal(two.classifier.state()[name], value, err_msg=name)
    for kind in ("weight", "bias"):
        np.testing.assert_array_equal(
            second_head(two)[f"weights/rewrites.{kind}"], two.classifier.state()[f"linear.{kind}"]
        )
    two.train(BOTH, 1)
    assert (second_head(two)["weights/rewrites.weight"] != two.classifier.state()["linear.weight"]).any()


def test_a_row_reaches_its_own_head_only() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))

    class Named(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = network

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers(x)

    two = TwoHeads(Named(), 2)
    with torch.no_grad():
        two.rewrites.weight.zero_()
        two.rewrites.bias.copy_(torch.tensor([5.0, 6.0]))
    x, rewrites = torch.randn(4, 3), torch.tensor([False, True, True, False])
    logits = two(rewrites=rewrites, x=x)
    torch.testing.assert_close(logits[1:3], torch.tensor([[5.0, 6.0]] * 2))
    torch.testing.assert_close(logits[[0, 3]], network(x)[[0, 3]])
    logits[1:3].sum().backward()
    assert network[1].weight.grad.abs().sum() == 0 < two.rewrites.bias.grad.abs().sum()


def test_with_mixtures_too(make) -> None:
    learner = make_learner(make("cnn"), len(TEXTS), OPTIONS.model_copy(update={"mixup": 0.2}), 12)
    learner.train(BOTH, 12)
    assert (learner.classifier.predict_proba(TEXTS).argmax(axis=1) == Y).all()


def test_a_classifier_without_a_network_is_refused() -> None:
    with pytest.raises(RequestError, match="--loss multi-task trains two heads on one network, and linear has none"):
        make_learner(create("linear", LABELS), 4, OPTIONS, 1)
