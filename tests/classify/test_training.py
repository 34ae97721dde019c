import numpy as np
import pytest
import torch

from epida_ray.classify.cnn import CNN
from epida_ray.classify.examples import Kept, PoolTexts, make_examples
from epida_ray.classify.training import Trainer, TrainingOptions
from epida_ray.classify.training import make_groups as groups_of
from epida_ray.core.errors import RequestError, RunError
from epida_ray.core.labels import dev_split, label_numbers
from epida_ray.core.steps import listening
from epida_ray.method.trainer import fit

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


def make_groups(classifier: CNN, texts: list[str], y: np.ndarray, kept: list | None = None, loss: str = "sum"):
    return groups_of(classifier, make_examples(texts, y, 2, None if kept is None else Kept(kept), loss))


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


def test_learns_and_reports():
    texts, labels = corpus(120)
    classifier = small()
    progress = fit(classifier, texts, labels, epochs=12)
    lines = progress.metrics
    assert len(lines) == 12 and lines[-1]["loss"] < lines[0]["loss"]
    assert progress.best.macro_f1 == max(line["dev_macro_f1"] for line in lines) > 0.9
    ties = [line["dev_loss"] for line in lines if line["dev_macro_f1"] == progress.best.macro_f1]
    assert progress.best.loss == min(ties)
    unseen, truth = corpus(60, seed=1)
    right = classifier.predict_proba(unseen).argmax(axis=1) == label_numbers(LABELS, truth)
    assert right.mean() > 0.9


def test_the_best_epochs_weights_are_kept():
    texts, labels = corpus(60)
    dev = corpus(30, seed=5)
    whole = small()
    best = fit(whole, texts, labels, dev, epochs=8).best
    p = whole.predict_proba(dev[0])
    y = label_numbers(LABELS, dev[1])
    assert -np.log(p[np.arange(30), y]).mean() == pytest.approx(best.loss, rel=1e-5)


def test_same_seed_same_bits_and_the_global_generator_is_left_alone():
    texts, labels = corpus(40)
    states = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        np.random.seed(noise)
        before = torch.get_rng_state()
        classifier = small()
        fit(classifier, texts, labels, training=TrainingOptions(seed=7), epochs=3)
        assert torch.equal(torch.get_rng_state(), before)
        states.append(classifier.state())
    assert same(*states)
    other = small()
    fit(other, texts, labels, training=TrainingOptions(seed=8), epochs=3)
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
        ("sum", (original + augmented, original, augmented, 0)),
        ("original", (original, original, 0, 0)),
        ("augmented", (augmented, 0, augmented, 0)),
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
    progress = fit(small(), texts, labels, training=TrainingOptions(learning_rate=0.02), epochs=200, patience=2)
    assert progress.round < 199
    assert progress.round - progress.best_round == 2


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
    fit(classifier, texts, labels, epochs=2)
    assert classifier.predict_proba(texts).shape == (40, 3)


def test_soft_labels_and_unlabelled_texts_have_their_share_of_the_loss():
    texts, labels = corpus(5)
    pool_texts, _ = corpus(12, seed=4)
    y = label_numbers(LABELS, labels)
    classifier = small(dropout=0.0)
    random = np.random.default_rng(0)
    soft = random.dirichlet([1, 1], 12).astype(np.float32)
    weights = random.random(12).astype(np.float32)
    kept = Kept([[f"{t} please"] for t in texts], [random.dirichlet([1, 1], 1).astype(np.float32) for _ in texts])
    examples = make_examples(texts, y, 2, kept, pool=PoolTexts(pool_texts, soft, weights, share=0.5))

    def nll(rows: list[str], target: np.ndarray) -> np.ndarray:
        return -(np.log(classifier.predict_proba(rows)) * target).sum(axis=1)

    original = nll(texts, np.eye(2)[y]).mean()
    augmented = nll([row[0] for row in kept.texts], np.concatenate(kept.soft)).mean()
    unlabelled = 0.5 * (nll(pool_texts, soft) * weights).sum() / weights.sum()
    expected = (original + augmented + unlabelled, original, augmented, unlabelled)
    run = Trainer(classifier, TrainingOptions(batch_size=100), total_steps=1)
    assert run.train_epoch(groups_of(classifier, examples)) == pytest.approx(expected, abs=1e-4)
    shares = np.bincount(examples.groups[examples.terms == 2])
    assert shares.tolist() == [3, 3, 2, 2, 2]


def test_balanced_classes_weigh_the_same():
    y = np.array([0, 0, 0, 1])
    examples = make_examples(["a", "b", "c", "d"], y, 3, Kept([["a a", "a b"], [], [], ["d d"]]), balance=True)
    of_class = [examples.weights[examples.y == c] for c in (0, 1)]
    assert of_class[0].tolist() == pytest.approx([2 / 3, 1 / 3, 1 / 3, 2 / 3, 2 / 3])
    assert of_class[1].tolist() == [2.0, 2.0]


def test_every_step_is_told_so_that_long_training_is_not_taken_for_a_stall():
    heard = []
    classifier = small()
    with listening(lambda: heard.append(1), every=0.0):
        fit(classifier, *corpus(16), epochs=2)
    assert len(heard) >= 2
