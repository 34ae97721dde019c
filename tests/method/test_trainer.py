from __future__ import annotations

import numpy as np
import pytest

from epida_ray.classify.cnn import CNN
from epida_ray.classify.examples import Kept, PoolTexts
from epida_ray.classify.linear import Linear
from epida_ray.classify.training import TrainingOptions
from epida_ray.core.errors import RequestError
from epida_ray.method.schedule import Schedule
from epida_ray.method.trainer import LabelledRows, LearnOptions, Progress, RoundTrainer

LABELS = ("fruit", "tool")
WORDS = {"fruit": ["apple", "pear", "plum", "cherry"], "tool": ["hammer", "saw", "drill", "pliers"]}


def rows(count: int, seed: int = 0) -> LabelledRows:
    random = np.random.default_rng(seed)
    y = np.arange(count) % 2
    texts = [f"i want a {random.choice(WORDS[LABELS[c]])} today number {random.integers(99)}" for c in y]
    return LabelledRows([str(i) for i in range(count)], texts, y)


def trainer(**options: object) -> RoundTrainer:
    classifier = CNN(LABELS, vectors="hashed:20", channels=8, seed=3)
    schedule = options.pop("schedule", Schedule(2, (1, 1, 1)))
    training = TrainingOptions(batch_size=4, learning_rate=0.01)
    learn = LearnOptions(schedule, training, **options)  # type: ignore[arg-type]
    return RoundTrainer(classifier, rows(24), rows(12, seed=1), learn)


def shouted(round_: int) -> Kept:
    return Kept([[f"{text} {'!' * round_}"] for text in rows(24).texts])


def test_rounds_learn_from_the_rewrites_of_their_source_and_the_best_is_restored() -> None:
    for online, wanted in ((True, [1, 2, 3]), (False, [1])):
        made: list[int] = []

        def kept(round_: int, made: list[int] = made) -> Kept:
            made.append(round_)
            return shouted(round_)

        one = trainer(online=online)
        one.run(kept)
        assert made == wanted and [line["round"] for line in one.progress.metrics] == [0, 1, 2, 3]
        assert one.progress.metrics[0]["loss_augmented"] == 0 < one.progress.metrics[1]["loss_augmented"]
        best = max(one.progress.metrics, key=lambda line: (line["dev_macro_f1"], -line["dev_loss"]))
        assert one.progress.best_round == best["round"]
        state = one.classifier.state()
        assert all(np.array_equal(state[name], one.best[name]) for name in state)


def test_without_rewrites_round_0_may_be_the_best_and_patience_ends_training() -> None:
    one = trainer(loss="original", patience=1, schedule=Schedule(30, (1,) * 50))
    one.run(shouted)
    assert one.progress.stopped and one.progress.round == one.progress.best_round + 1 < 50


def test_patience_ends_training_with_unlabelled_texts_that_bring_nothing_more() -> None:
    one = trainer(loss="original", patience=3, schedule=Schedule(30, (1,) * 50))
    texts = one.train_rows.texts
    labels = np.eye(len(one.classifier.labels), dtype=np.float32)[one.train_rows.y]
    one.run(shouted, lambda round_: PoolTexts(texts, labels, np.ones(len(texts), np.float32), 0.1))
    f1 = [line["dev_macro_f1"] for line in one.progress.metrics]
    assert one.progress.stopped and len(f1) < 51
    assert len(f1) - 1 - f1.index(max(f1)) == 3


def test_a_trainer_continues_where_another_stopped() -> None:
    whole = trainer()
    whole.run(shouted)
    first = trainer()
    for round_ in (0, 1):
        first.train_round(round_, shouted(round_) if round_ else None)
    arrays = first.state()
    parts = {
        prefix: {k.removeprefix(f"{prefix}/"): v for k, v in arrays.items() if k.startswith(f"{prefix}/")}
        for prefix in ("trainer", "best")
    }
    second = trainer()
    progress = Progress(**vars(first.progress))
    second.load_state(parts["trainer"], parts["best"], progress)
    assert next(second.rounds_left()) == 2
    second.run(shouted)
    ours, theirs = second.classifier.state(), whole.classifier.state()
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


def test_nothing_to_learn_from_is_refused() -> None:
    with pytest.raises(RequestError, match="add rows"):
        RoundTrainer(CNN(LABELS, vectors="hashed:20"), rows(0), rows(4), LearnOptions(Schedule(1, ())))


def test_a_refit_learns_from_the_dev_rows_too_but_the_dev_score_does_not() -> None:
    def fitted(train: LabelledRows, refit: bool) -> RoundTrainer:
        classifier = Linear(LABELS)
        one = RoundTrainer(classifier, train, rows(12, seed=1), LearnOptions(Schedule(1, ()), refit=refit))
        one.run(shouted)
        return one

    train, dev = rows(24), rows(12, seed=1)
    plain, refitted, on_all = fitted(train, False), fitted(train, True), fitted(train.plus(dev), False)
    assert refitted.progress.best == plain.progress.best
    for name, weights in on_all.classifier.state().items():
        np.testing.assert_array_equal(refitted.classifier.state()[name], weights)
    assert any(not np.array_equal(plain.best[name], refitted.best[name]) for name in plain.best)
