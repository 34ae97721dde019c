"""A share of what `make simulate` plays; and Hypothesis, which looks for the shortest schedule that goes wrong."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.simulator.patches import BUGS
from tests.simulator.schedules import KNOWN, Machine, Violation, seeded, undisturbed


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_schedules_of_seeds(first: int) -> None:
    for seed in range(first, first + 50):
        seeded(seed)


def test_a_schedule_is_a_function_of_its_seed() -> None:
    assert [seeded(seed) for seed in range(20)] == [seeded(seed) for seed in range(20)]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("bug", sorted(BUGS))
def test_an_old_bug_that_is_put_back_is_found(bug: int) -> None:
    with pytest.raises(Violation, match=f"--bug {bug}"):
        for seed in range(10_000):
            seeded(seed, bug)


class Disturbances(RuleBasedStateMachine):
    """Commands and disturbances in any order; the account is made at the end."""

    machine: Machine | None = None

    @initialize(kind=st.sampled_from(["augment", "train"]), store=st.booleans(), seed=st.integers(0, 2**32))
    def begin(self, kind: str, store: bool, seed: int) -> None:
        for known in KNOWN:
            undisturbed(*known)
        self.machine = Machine(random.Random(seed), kind, store)
        self.machine.__enter__()
        self.machine.schedule.start()

    @rule(operations=st.sampled_from([1, 2, 5, 20, 100, 1000]))
    @precondition(lambda self: self.machine)
    def go_on(self, operations: int) -> None:
        self.machine.schedule.go_on(operations)

    @rule(request=st.integers(0, 2), take_over=st.booleans())
    @precondition(lambda self: self.machine and len(self.machine.schedule.commands) < 8)
    def start(self, request: int, take_over: bool) -> None:
        self.machine.schedule.start(request, take_over)

    @rule(action=st.sampled_from(["kill", "pause", "resume", "fail", "fill", "jump", "damage"]))
    @precondition(lambda self: self.machine)
    def disturb(self, action: str) -> None:
        getattr(self.machine.schedule, action)()

    def teardown(self) -> None:
        if self.machine is not None:
            try:
                self.machine.schedule.calm()
            finally:
                self.machine.__exit__(None, None, None)


Disturbances.TestCase.settings = settings(
    max_examples=60, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
TestDisturbances = Disturbances.TestCase
