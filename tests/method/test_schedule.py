from __future__ import annotations

import pytest

from epida_ray.classify import Defaults
from epida_ray.data.plan import SHARD_BYTES
from epida_ray.method.round_plan import ROUND_SHARD, round_shard_rows
from epida_ray.method.schedule import Schedule, make_schedule

DEFAULTS = Defaults(epochs=60, steps=5000, batch_size=16, learning_rate=1e-3, weight_decay=0.01)


@pytest.mark.parametrize(
    ("rows", "rounds", "options", "expected"),
    [
        (160, 4, {}, Schedule(20, (10, 10, 10, 10))),  # 60 epochs of 10 steps
        (160, 8, {}, Schedule(20, (5,) * 8)),
        (16_000, 3, {}, Schedule(2, (1, 1, 1))),  # 1,000 steps an epoch: 5 epochs
        (1_000_000, 4, {}, Schedule(1, (1,) * 4)),  # never less than an epoch a round
        (160, 4, {"batch_size": 160}, Schedule(20, (10, 10, 10, 10))),
        (160, 4, {"steps": 100}, Schedule(3, (2, 2, 1, 2))),
        (160, 2, {"pretrain_epochs": 0}, Schedule(0, (30, 30))),
        (160, 2, {"epochs_per_round": 7, "pretrain_epochs": 1}, Schedule(1, (7, 7))),
    ],
)
def test_pretraining_and_rounds_share_the_epochs(
    rows: int, rounds: int, options: dict[str, int], expected: Schedule
) -> None:
    schedule = make_schedule(rows, rounds, DEFAULTS, **options)  # type: ignore[arg-type]
    assert schedule == expected
    assert [schedule.of(r) for r in range(rounds + 1)] == [schedule.pretrain, *schedule.rounds]
    assert schedule.epochs == schedule.pretrain + sum(schedule.rounds)


def test_a_classifier_that_is_fitted_in_one_go_is_fitted_once_a_round() -> None:
    assert make_schedule(1000, 3, None) == Schedule(1, (1, 1, 1))


def test_a_shard_of_a_round_is_cut_by_what_its_texts_take() -> None:
    short, long = ["word " * 5] * 20_000, ["word " * 50_000] * 20_000
    assert round_shard_rows(short, 10, 2) > 4 * round_shard_rows(long, 10, 2)
    assert round_shard_rows(short[:300], 10, 2) == ROUND_SHARD
    assert round_shard_rows(long, 10, 2) * 10 * 250_000 <= SHARD_BYTES
