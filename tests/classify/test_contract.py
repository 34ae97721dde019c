"""What every classifier must do, whatever it is."""

import filecmp

import numpy as np
import pytest

from epida_ray.classify import create, load
from epida_ray.classify.calibration import calibrate
from epida_ray.classify.examples import Kept, make_examples
from epida_ray.classify.learning import make_learner
from epida_ray.classify.training import TrainingOptions
from epida_ray.core.errors import RequestError
from epida_ray.core.labels import label_numbers
from epida_ray.method.trainer import fit
from tests.classify import tiny

LABELS = ("fruit", "tool")
WORDS = {
    "fruit": ("apple", "pear", "plum", "cherry", "melon", "grape"),
    "tool": ("hammer", "saw", "drill", "pliers", "wrench", "chisel"),
}
SMALL = {
    "cnn": {"vectors": "hashed:20", "channels": 8},
    "bilstm": {"vectors": "hashed:20", "hidden": 16, "dropout": 0.1, "max_words": 64},
}
TRANSFORMERS = ["bert", "xlnet", "xlm-roberta", "roberta", "distilbert", "deberta-v2"]
ENCODERS = ["encoder", "encoder-contrastive", "encoder-full"]
NAMES = ["cnn", "bilstm", "linear", *ENCODERS, "sklearn", "sklearn-margin", "own", *TRANSFORMERS]
TRUST = ["tests.classify.tiny:Lengths"]
LEARNERS = [n for n in NAMES if n != "own"]


def corpus(rows: int, seed: int = 0) -> tuple[list[str], list[str]]:
    random = np.random.default_rng(seed)
    labels = [LABELS[i % 2] for i in range(rows)]
    return [f"i want a {random.choice(WORDS[label])} today" for label in labels], labels


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """A function that makes the classifier `name` for a label set."""
    pytest.importorskip("skops")
    folder = tmp_path_factory.mktemp("tiny")

    def make(name: str, labels=LABELS, seed: int = 0, **more):
        if name in TRANSFORMERS:
            path = folder / name
            if not path.exists():
                tiny.transformer(name, path)
            return create(f"transformer:{path}", labels, seed=seed, **more)
        if name in ENCODERS:
            path = folder / "sentence"
            if not path.exists():
                tiny.transformer("bert", path)
            tune = name.partition("-")[2] or "none"
            return create(f"encoder:{path}", labels, seed=seed, tune=tune, steps=20, learning_rate=3e-3, **more)
        if name.startswith("sklearn"):
            factory = "margin_pipeline" if name.endswith("margin") else "pipeline"
            return create(f"sklearn:tests.classify.tiny:{factory}", labels, seed=seed, **more)
        if name == "own":
            return create("tests.classify.tiny:Lengths", labels, scale=5.0)
        return create(name, labels, seed=seed, **SMALL.get(name, {}), **more)

    return make


@pytest.fixture(scope="module")
def trained(make):
    """Each classifier, trained once."""
    ready = {}

    def trained(name: str):
        if name not in ready:
            classifier = make(name)
            rate = 3e-3 if name in TRANSFORMERS else 1e-2 if name == "bilstm" else None
            fit(
                classifier,
                *corpus(80),
                corpus(20, seed=8),
                training=TrainingOptions(batch_size=8, learning_rate=rate),
                epochs=8,
            )
            ready[name] = classifier
        return ready[name]

    return trained


@pytest.mark.parametrize("name", NAMES)
def test_shapes_sums_and_order(trained, name):
    classifier = trained(name)
    texts = corpus(30, seed=3)[0]
    p = classifier.predict_proba(texts)
    assert p.dtype == np.float32 and p.shape == (30, 2) and (p >= 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(classifier.predict_proba(texts[::-1]), p[::-1], atol=1e-5)
    assert np.array_equal(classifier.predict_proba(texts), p)
    assert classifier.predict_proba([]).shape == (0, 2)
    assert isinstance(classifier.describe(), str) and "\n" not in classifier.describe()


@pytest.mark.parametrize("name", LEARNERS)
def test_learns(trained, name):
    texts, labels = corpus(40, seed=4)
    right = trained(name).predict_proba(texts).argmax(axis=1) == label_numbers(LABELS, labels)
    assert right.mean() > 0.9


@pytest.mark.parametrize("name", NAMES)
def test_odd_texts(trained, name):
    texts = [
        "",
        " ",
        "!",
        "\x00",
        "\ud800",
        "хорошо",
        "我喜欢",
        "😀",
        "x" * 100_000,
        "word " * 20_000,
        "i want a pear today",
    ]
    p = trained(name).predict_proba(texts)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(p[-1], trained(name).predict_proba(texts[-1:])[0], atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_save_and_load(trained, name, tmp_path):
    classifier = trained(name)
    classifier.save(tmp_path / "one")
    again = load(tmp_path / "one", LABELS, trust=TRUST)
    texts = corpus(20, seed=5)[0]
    assert again.labels == classifier.labels
    assert np.array_equal(again.predict_proba(texts), classifier.predict_proba(texts))
    again.save(tmp_path / "two")
    same = filecmp.dircmp(tmp_path / "one", tmp_path / "two", ignore=[])
    assert not same.left_only + same.right_only
    for file in same.common_files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file
    with pytest.raises(RequestError, match="labels"):
        load(tmp_path / "one", ("fruit", "vegetable"), trust=TRUST)


@pytest.mark.parametrize("name", NAMES)
def test_publish_and_load(make, trained, name):
    scorer = make(name, seed=5)
    texts = corpus(20, seed=6)[0]
    scorer.predict_proba(texts)
    scorer.load_state(trained(name).state())
    assert np.array_equal(scorer.predict_proba(texts), trained(name).predict_proba(texts))
    with pytest.raises((RequestError, KeyError)):
        scorer.load_state({"something": np.zeros(3)})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("classes", [3, 150])
def test_any_number_of_classes(make, name, classes):
    labels = tuple(f"class {i}" for i in range(classes))
    classifier = make(name, labels)
    fit(
        classifier,
        [f"i want number {i % classes}{' today' * (i < classes)}" for i in range(2 * classes)],
        [labels[i % classes] for i in range(2 * classes)],
        epochs=1,
    )
    p = classifier.predict_proba(["i want number 2", "a pear"])
    assert p.shape == (2, classes)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_class_without_rows(make, name):
    classifier = make(name, (*LABELS, "never"))
    fit(classifier, *corpus(24), corpus(12, seed=8), epochs=1)
    p = classifier.predict_proba(["a pear"])
    assert p.shape == (1, 3)
    np.testing.assert_allclose(p.sum(), 1, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_unseen_label_is_refused(make, name):
    with pytest.raises(RequestError, match="'sport'"):
        fit(make(name), ["a", "b"], ["fruit", "sport"])


@pytest.mark.parametrize("name", LEARNERS)
def test_same_seed_same_bits(make, name):
    states = []
    for _ in range(2):
        classifier = make(name, seed=2)
        fit(classifier, *corpus(24), corpus(12, seed=8), training=TrainingOptions(seed=2), epochs=1)
        states.append(classifier.state())
    assert states[0].keys() == states[1].keys()
    assert all(np.array_equal(states[0][key], states[1][key]) for key in states[0])


@pytest.mark.parametrize("name", ["cnn", "bilstm", *ENCODERS, *TRANSFORMERS])
def test_hidden_states(trained, name):
    texts = corpus(6)[0]
    hidden = trained(name).embed([*texts, "", texts[0]])
    assert hidden.ndim == 2 and len(hidden) == 8 and hidden.dtype == np.float32 and np.isfinite(hidden).all()
    np.testing.assert_allclose(hidden[0], hidden[-1], atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_calibration(trained, name, tmp_path):
    classifier = trained(name)
    texts, labels = corpus(40, seed=8)
    y = label_numbers(LABELS, labels)
    noisy = np.where(np.random.default_rng(0).random(40) < 0.3, 1 - y, y)
    before = classifier.predict_proba(texts)
    try:
        result = calibrate(classifier, texts, noisy)
        after = classifier.predict_proba(texts)
        assert result.temperature == classifier.temperature != 1
        assert np.array_equal(after.argmax(axis=1), before.argmax(axis=1))
        rows = np.arange(40)
        assert -np.log(after[rows, noisy]).mean() <= -np.log(np.maximum(before[rows, noisy], 1e-9)).mean() + 1e-6
        classifier.save(tmp_path)
        assert load(tmp_path, trust=TRUST).temperature == pytest.approx(classifier.temperature)
        np.testing.assert_allclose(load(tmp_path, trust=TRUST).predict_proba(texts), after, atol=1e-6)
    finally:
        classifier.temperature = 1.0


@pytest.mark.parametrize("name", LEARNERS)
def test_soft_targets(make, name):
    """One-hot distributions teach what class numbers teach; even ones teach that nothing is known."""
    texts, labels = corpus(24)
    y = label_numbers(LABELS, labels)
    options = TrainingOptions(batch_size=8)
    learnt = []
    for target in (y, np.eye(2, dtype=np.float32)[y]):
        classifier = make(name, seed=2)
        make_learner(classifier, 24, options, 1).train(make_examples(texts, target, 2, Kept([[t] for t in texts])), 1)
        learnt.append(classifier.predict_proba(texts))
    np.testing.assert_allclose(learnt[0], learnt[1], atol=1e-4)
    if name == "sklearn-margin":
        return  # a hinge loss knows nothing of probabilities
    classifier = make(name, seed=2)
    unsure = make_examples(texts, np.full((24, 2), 0.5, np.float32), 2)
    even = make_learner(classifier, 24, options, 30).train(unsure, 30)
    assert even.total >= np.log(2) - 1e-3
    if name != "sklearn-margin":  # margins have no even odds
        assert np.abs(classifier.predict_proba(texts) - 0.5).mean() < 0.2


@pytest.mark.parametrize("name", LEARNERS)
def test_rows_with_little_weight_teach_little(make, name):
    texts, labels = corpus(24)
    y = label_numbers(LABELS, labels)
    wrong = np.concatenate([y, 1 - y])
    weights = np.concatenate([np.ones(24), np.full(24, 1e-6)])
    classifier = make(name, seed=2)
    options = TrainingOptions(batch_size=8, learning_rate=3e-3 if name in TRANSFORMERS else 1e-2)
    examples = make_examples(texts * 2, wrong, 2)._replace(weights=weights.astype(np.float32))
    make_learner(classifier, 48, options, 10).train(examples, 10)
    assert (classifier.predict_proba(texts).argmax(axis=1) == y).mean() > 0.9
