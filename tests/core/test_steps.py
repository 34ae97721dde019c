"""Waits that last as long as somebody makes progress."""

from __future__ import annotations

import time

import pytest

from epida_ray.core import steps
from epida_ray.core.steps import Patience, computing, listening, made_step


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(steps, "time", clock)
    return clock


def test_work_longer_than_the_limit_is_waited_for_while_it_makes_steps(clock: Clock) -> None:
    made = 0
    patience = Patience(10.0, lambda: made)
    for _ in range(100):
        clock.now += 9
        made += 1
        assert not patience.over()
    clock.now += 9
    assert not patience.over()
    clock.now += 2
    assert patience.over()


def test_steps_are_heard_inside_the_block_and_not_too_often(clock: Clock) -> None:
    heard: list[float] = []
    made_step()
    with listening(lambda: heard.append(clock.now), every=5.0):
        for _ in range(11):
            made_step()
            clock.now += 1
    made_step()
    assert heard == [0, 5, 10]


def test_one_long_call_makes_steps_while_it_computes_and_none_while_it_hangs() -> None:
    heard: list[float] = []
    with listening(lambda: heard.append(time.monotonic()), every=0.0):
        with computing(every=0.05):
            time.sleep(0.5)
        assert heard == []
        end = time.monotonic() + 10
        with computing(every=0.05):
            while not heard and time.monotonic() < end:
                sum(range(10_000))
        assert heard
