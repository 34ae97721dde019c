import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from epida_ray.classify import load
from epida_ray.classify.cnn import CNN
from epida_ray.classify.tokens import words
from epida_ray.core.errors import RequestError

LABELS = ("a", "b", "c")
ODD = [
    "",
    " \t\n",
    "!",
    "?! ... ;;",
    "\x00",
    "a\x00b",
    "\ud800 lone \udfff",
    "one",
    "two words",
    "hello hello hello",
    "我喜欢这个产品",
    "Привет, мир",
    "😀 👩‍👩‍👧",
    "It’s don't #tag @user http://x.y/z 1,000.50",
    "x" * 1_000_000,
    "word " * 200_000,
    "! " * 1000,
]


def plain(classifier: CNN, texts: list[str]) -> np.ndarray:
    """The same network as one convolution over padded texts."""
    module = classifier.module().eval()
    with torch.inference_mode():
        table = classifier.table(texts).batch(np.arange(len(texts)))
        features = torch.relu(module.convolved(**table))
        return torch.softmax(module.linear(features) / classifier.temperature, dim=1).numpy()


@pytest.fixture(scope="module")
def cnn() -> CNN:
    return CNN(LABELS, vectors="hashed", seed=1)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=80), min_size=1, max_size=12))
def test_compiled_scoring_equals_the_convolution(cnn, texts):
    p = cnn.predict_proba(texts)
    assert p.dtype == np.float32 and p.shape == (len(texts), 3)
    np.testing.assert_allclose(p, plain(cnn, texts), atol=1e-5)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("filters", [(1,), (2, 3, 4), (3, 4, 5), (5, 1, 2), (7,)])
@pytest.mark.parametrize("channels", [1, 7, 100])
def test_any_filters(filters, channels):
    cnn = CNN(LABELS, vectors="hashed:20", filters=filters, channels=channels, seed=2)
    texts = ["", "one", "two words", "the quick brown fox jumps over the lazy dog", "a b c d e"]
    np.testing.assert_allclose(cnn.predict_proba(texts), plain(cnn, texts), atol=1e-5)


@pytest.mark.parametrize("classes", [2, 3, 8, 9, 50, 150])
def test_any_number_of_classes(classes):
    cnn = CNN([str(i) for i in range(classes)], vectors="hashed", channels=20)
    texts = ["a text to score", "another", ""]
    np.testing.assert_allclose(cnn.predict_proba(texts), plain(cnn, texts), atol=1e-5)


def test_odd_texts(cnn):
    p = cnn.predict_proba(ODD)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p, plain(cnn, ODD), atol=1e-5)
    assert cnn.predict_proba([]).shape == (0, 3)


def test_a_text_scores_the_same_bits_in_any_batch(cnn):
    random = np.random.default_rng(0)
    vocabulary = [f"word{i}" for i in range(300)]
    texts = [" ".join(random.choice(vocabulary, random.integers(0, 40))) for _ in range(200)] + ODD
    together = cnn.predict_proba(texts)
    fresh = CNN(LABELS, vectors="hashed", seed=1)
    alone = np.concatenate([fresh.predict_proba([text]) for text in reversed(texts)])[::-1]
    order = random.permutation(len(texts))
    shuffled = np.empty_like(together)
    shuffled[order] = cnn.predict_proba([texts[i] for i in order])
    assert np.array_equal(together, alone)
    assert np.array_equal(together, shuffled)


def test_the_word_cache_is_bounded_and_changes_nothing(monkeypatch):
    monkeypatch.setattr("epida_ray.classify.cnn.CACHE_BYTES", 0)
    cnn = CNN(LABELS, vectors="hashed", channels=10, seed=1)
    texts = [f"text number {i} has words{i} of its{i} own" for i in range(2000)]
    first = np.concatenate([cnn.predict_proba(texts[i : i + 100]) for i in range(0, 2000, 100)])
    assert len(cnn._rows) < 4000
    assert np.array_equal(first, CNN(LABELS, vectors="hashed", channels=10, seed=1).predict_proba(texts))


def test_long_texts_are_cut():
    cnn = CNN(LABELS, vectors="hashed", max_words=5)
    p = cnn.predict_proba(["a b c d e", "a b c d e f g", "a b c d e-f-g", "a,b,c,d,e"])
    assert np.array_equal(p[0], p[1])
    assert np.array_equal(p[0], p[2])
    assert not np.array_equal(p[0], p[3])


def test_new_weights_replace_the_old(cnn):
    other = CNN(LABELS, vectors="hashed", seed=9)
    texts = ["some words to score", "and some more words"]
    before = cnn.predict_proba(texts)
    state = cnn.state()
    cnn.load_state(other.state())
    assert np.array_equal(cnn.predict_proba(texts), other.predict_proba(texts))
    cnn.load_state(state)
    assert np.array_equal(cnn.predict_proba(texts), before)


def test_embed_gives_the_pooled_features(cnn):
    texts = ["", "some words to score"]
    features = cnn.embed(texts)
    assert features.shape == (2, 300)
    module = cnn.module().eval()
    with torch.inference_mode():
        expected = torch.relu(module.convolved(**cnn.table(texts).batch(np.arange(2)))).numpy()
    np.testing.assert_allclose(features, expected, atol=1e-5)


def test_gradient_equals_the_convolutions(cnn):
    texts = ["one", "", "the quick brown fox jumps over the lazy dog", "some words , some words"]
    batch = cnn.table(texts).batch(np.array([2, 0, 3, 1, 2]))
    gradients = []
    for path in ("pooled", "convolved"):
        module = cnn.module()
        weights = torch.linspace(-1, 1, 1500).reshape(5, 300)
        features = getattr(module, path)(**batch)
        (features * weights).sum().backward()
        gradients.append([features.detach()] + [p.grad for n, p in module.named_parameters() if n.startswith("conv")])
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_save_and_load(cnn, tmp_path):
    cnn.save(tmp_path / "one")
    again = load(tmp_path / "one")
    again.save(tmp_path / "two")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert sorted(p.name for p in (tmp_path / "one").iterdir()) == ["config.json", "model.safetensors"]
    assert again.labels == LABELS and again.describe() == cnn.describe()
    texts = ["some words to score", ""]
    assert np.array_equal(again.predict_proba(texts), cnn.predict_proba(texts))


def test_what_cannot_be_loaded_is_refused_in_one_line(cnn, tmp_path):
    cnn.save(tmp_path)
    weights, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    good_weights, good_config = weights.read_bytes(), config.read_bytes()

    def refused(match: str, **options: object) -> None:
        with pytest.raises(RequestError, match=match) as caught:
            load(tmp_path, **options)
        assert "\n" not in str(caught.value)

    refused("labels", labels=("a", "b"))
    weights.write_bytes(good_weights[: len(good_weights) // 2])
    refused("damaged")
    weights.write_bytes(b"\x80\x04\x95" + good_weights)
    refused("pickle")
    weights.unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK")
    refused("pytorch_model.bin")
    weights.write_bytes(good_weights)
    config.write_text("{")
    refused("JSON")
    config.write_text("[]")
    refused("configuration")
    config.write_text('{"classifier": "nothing"}')
    refused("nothing")
    config.write_text('{"classifier": "cnn"}')
    refused("not complete")
    config.write_text(json.dumps(json.loads(good_config) | {"labels": ["a", "b"]}))
    refused("linear.weight")
    config.write_text(json.dumps(json.loads(good_config) | {"vectors": {"source": "hashed", "dimension": 7}}))
    refused("conv2.weight")
    config.unlink()
    refused("config.json")
    with pytest.raises(RequestError, match="no model directory"):
        load(tmp_path / "absent")


@pytest.mark.parametrize("labels", [("a",), ("a", "a"), (1, 2), "ab"])
def test_bad_labels(labels):
    with pytest.raises(RequestError):
        CNN(labels, vectors="hashed")


@pytest.mark.parametrize("options", [{"filters": ()}, {"filters": (0,)}, {"filters": (2, 2)}, {"channels": 0}])
def test_bad_options(options):
    with pytest.raises(RequestError):
        CNN(LABELS, vectors="hashed", **options)


def test_weights_that_are_not_finite_are_refused(cnn):
    state = cnn.state()
    state["linear.bias"][0] = np.nan
    with pytest.raises(RequestError, match=r"linear\.bias"):
        cnn.load_state(state)


def test_words():
    assert words("It’s what I DON'T want: 1,000.5 #Tags!") == [
        *("it", "'s", "what", "i", "do", "n't", "want", ":", "1,000.5", "#", "tags", "!"),
    ]
    assert words("我喜欢 abc你好") == ["我", "喜", "欢", "abc", "你", "好"]
    assert words("हिन्दी भाषा") == ["हिन्दी", "भाषा"]
    assert words(" \t") == []
