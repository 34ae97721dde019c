import numpy as np
import pytest
import torch

from epida_ray.classify.cnn import CNN
from epida_ray.classify.training import Trainer, TrainingOptions, dev_split, fit, label_numbers, make_groups
from epida_ray.core.errors import RequestError, RunError

LABELS = ("fruit", "tool")
WORDS = {
    "fruit": ["apple", "pear", "plum", "cherry", "melon", "grape"],
    "tool": ["hammer", "saw", "drill", "pliers", "wrench", "chisel"],
}


def corpus(rows: int, seed: int = 0) -> tuple[list[str], list[str]]:
    random = np.random.default_rng(seed)
    labels = [LABELS[i % 2] for i in range(rows)]
    texts = [f"i want a {random.choice(WORDS[label])} today number {random.integers(99)}" for label in labels]
    return texts, labels


def small(dropout: float = 0.5) -> CNN:
    return CNN(LABELS, vectors="hashed:20", channels=8, dropout=dropout, seed=3)


def trainer(classifier: CNN, **options: object) -> Trainer:
    return Trainer(classifier, TrainingOptions(batch_size=4, learning_rate=0.01, **options), total_steps=40)


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


def test_learns_and_reports():
    texts, labels = corpus(120)
    classifier = small()
    history = fit(classifier, texts, labels, options=TrainingOptions(epochs=12))
    assert history.train_rows == 108 and history.dev_rows == 12 and len(history.epochs) == 12
    assert history.epochs[-1].loss < history.epochs[0].loss
    assert history.best.macro_f1 == max(e.macro_f1 for e in history.epochs) > 0.9
    ties = [e for e in history.epochs if e.macro_f1 == history.best.macro_f1]
    assert history.best.dev_loss == min(e.dev_loss for e in ties)
    unseen, truth = corpus(60, seed=1)
    right = classifier.predict_proba(unseen).argmax(axis=1) == label_numbers(LABELS, truth)
    assert right.mean() > 0.9


def test_the_best_epochs_weights_are_kept():
    texts, labels = corpus(60)
    dev = corpus(30, seed=5)
    whole = small()
    best = fit(whole, texts, labels, dev, TrainingOptions(epochs=8)).best
    p = whole.predict_proba(dev[0])
    y = label_numbers(LABELS, dev[1])
    assert -np.log(p[np.arange(30), y]).mean() == pytest.approx(best.dev_loss, rel=1e-5)


def test_same_seed_same_bits_and_the_global_generator_is_left_alone():
    texts, labels = corpus(40)
    states = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        np.random.seed(noise)
        before = torch.get_rng_state()
        classifier = small()
        fit(classifier, texts, labels, options=TrainingOptions(epochs=3, seed=7))
        assert torch.equal(torch.get_rng_state(), before)
        states.append(classifier.state())
    assert same(*states)
    other = small()
    fit(other, texts, labels, options=TrainingOptions(epochs=3, seed=8))
    assert not same(other.state(), states[0])


def test_resume_is_exact():
    texts, labels = corpus(30)
    classifier = small()
    groups = make_groups(classifier, texts, label_numbers(LABELS, labels))
    straight = trainer(classifier)
    for _ in range(3):
        straight.train_epoch(groups)
    first = trainer(classifier)
    first.train_epoch(groups)
    checkpoint = first.state()
    first.train_epoch(groups)
    resumed = trainer(small())
    resumed.load_state(checkpoint)
    losses = [resumed.train_epoch(groups) for _ in range(2)]
    assert same(resumed.state(), straight.state())
    assert all(np.isfinite(loss.total) for loss in losses)


def test_a_checkpoint_of_another_model_is_refused():
    checkpoint = trainer(small()).state()
    other = CNN(LABELS, vectors="hashed:20", channels=9)
    with pytest.raises(RequestError, match="another model"):
        trainer(other).load_state(checkpoint)


def test_loss_of_originals_and_candidates():
    texts, labels = corpus(6)
    y = label_numbers(LABELS, labels)
    kept = [[f"{t} please", f"well {t}"] if i % 3 else [] for i, t in enumerate(texts)]
    classifier = small(dropout=0.0)

    def nll(rows: list[str], y: np.ndarray) -> np.ndarray:
        return -np.log(classifier.predict_proba(rows)[np.arange(len(rows)), y])

    original = nll(texts, y).mean()
    augmented = sum(nll(k, np.repeat(y[i], len(k))).mean() for i, k in enumerate(kept) if k) / len(texts)
    for loss, expected in (
        ("sum", (original + augmented, original, augmented)),
        ("original", (original, original, 0)),
        ("augmented", (augmented, 0, augmented)),
    ):
        groups = make_groups(classifier, texts, y, kept, loss)
        run = Trainer(classifier, TrainingOptions(batch_size=100), total_steps=1)
        assert run.train_epoch(groups) == pytest.approx(expected, abs=1e-4)
        assert run.step == 1


def test_shares_of_a_batch_average_to_the_whole():
    texts, labels = corpus(7)
    y = label_numbers(LABELS, labels)
    kept = [[f"{t} please"] * (i % 3) for i, t in enumerate(texts)]
    classifier = small(dropout=0.0)
    groups = make_groups(classifier, texts, y, kept)

    def gradient(rank: int, world: int) -> list[torch.Tensor]:
        options = TrainingOptions(batch_size=100, clip=1e9)
        run = Trainer(classifier, options, total_steps=1, rank=rank, world=world)
        run.train_epoch(groups)
        return [p.grad for p in run.module.parameters()]

    whole = gradient(0, 1)
    for world in (2, 3, 8):
        shares = [gradient(rank, world) for rank in range(world)]
        for i, expected in enumerate(whole):
            torch.testing.assert_close(sum(s[i] for s in shares) / world, expected, atol=1e-6, rtol=1e-4)


def test_the_wrapped_module_is_the_one_that_runs():
    calls = []

    class Wrapped(torch.nn.Module):
        def __init__(self, inner: torch.nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, **batch: torch.Tensor) -> torch.Tensor:
            calls.append(len(batch["offsets"]) - 1)
            return self.inner(**batch)

    texts, labels = corpus(10)
    classifier = small()
    run = Trainer(classifier, TrainingOptions(batch_size=4), total_steps=3, wrap=Wrapped)
    run.train_epoch(make_groups(classifier, texts, label_numbers(LABELS, labels)))
    assert calls == [4, 4, 2]
    assert run.weights().keys() == classifier.state().keys() - {"temperature"}


def test_a_loss_that_is_not_finite_stops_with_the_step():
    texts, labels = corpus(30)
    classifier = small()
    run = Trainer(classifier, TrainingOptions(batch_size=10), total_steps=3)
    groups = make_groups(classifier, texts, label_numbers(LABELS, labels))
    run.train_epoch(groups)
    before = run.weights()
    groups.weights[:] = np.inf
    with pytest.raises(RunError, match=r"step 3 \(learning rate"):
        run.train_epoch(groups)
    assert same(run.weights(), before)


def test_patience_stops_early():
    texts, labels = corpus(40)
    history = fit(small(), texts, labels, options=TrainingOptions(epochs=200, patience=2, learning_rate=0.02))
    assert len(history.epochs) < 200
    assert len(history.epochs) - history.best.epoch == 2


def test_no_epochs_leaves_the_weights():
    texts, labels = corpus(20)
    classifier = small()
    before = classifier.state()
    assert fit(classifier, texts, labels, options=TrainingOptions(epochs=0)).best is None
    assert same(classifier.state(), before)


def test_dev_split_is_stratified():
    y = np.array([0] * 50 + [1] * 12 + [2] * 2 + [3])
    taken = dev_split(y, 0.1, seed=0)
    assert np.bincount(y[taken], minlength=4).tolist() == [5, 1, 1, 0]
    assert np.array_equal(taken, dev_split(y, 0.1, seed=0))
    assert not np.array_equal(taken, dev_split(y, 0.1, seed=1))


def test_unknown_label():
    with pytest.raises(RequestError, match="'sport' is not among the declared ones: fruit, tool"):
        fit(small(), ["a", "b"], ["fruit", "sport"])
    assert label_numbers(LABELS, [0, 1, 1]).tolist() == [0, 1, 1]
    with pytest.raises(RequestError, match="5"):
        label_numbers(LABELS, [0, 5])


def test_too_little_to_train_on():
    with pytest.raises(RequestError, match="dev split"):
        fit(small(), ["one"], ["fruit"])


def test_a_label_missing_from_the_training_set_is_fine():
    classifier = CNN((*LABELS, "never"), vectors="hashed:20", channels=8)
    texts, labels = corpus(40)
    fit(classifier, texts, labels, options=TrainingOptions(epochs=2))
    assert classifier.predict_proba(texts).shape == (40, 3)
