from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from epida_ray.core.errors import RequestError, RunError
from epida_ray.stream import tasks
from epida_ray.stream.tasks import Outcome, run_tasks, share

pytestmark = pytest.mark.usefixtures("local_ray")


def act(what: str, value: Any = None) -> Any:
    match what:
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "request":
            raise RequestError("that is wrong; do this")
        case "raise":
            raise ZeroDivisionError("by zero")
        case "sleep":
            time.sleep(600)
    return value


def test_every_task_has_one_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "RETRIES", 0)
    calls = {"a": ("return", 1), "b": ("raise",), "c": ("request",), "d": ("die",), "e": ("return", 2)}
    found = {outcome.key: outcome for outcome in run_tasks(act, calls, what="call", stall_timeout=120)}
    assert found.keys() == calls.keys()
    assert found["a"] == Outcome("a", 1) and found["e"].value == 2
    assert found["b"].failure == "ZeroDivisionError: by zero"
    assert found["c"].failure == "that is wrong; do this"
    assert "WorkerCrashedError" in str(found["d"].failure)


def test_a_shared_value_reaches_every_task() -> None:
    shared = share([1, 2, 3])
    calls = {str(i): ("return", shared) for i in range(5)}
    assert [o.value for o in run_tasks(act, calls, what="call", stall_timeout=120)] == [[1, 2, 3]] * 5


def test_more_cpus_than_any_node_has_are_cut_to_what_there_is() -> None:
    (outcome,) = run_tasks(act, {"a": ("return", 1)}, what="call", stall_timeout=120, cpus=1000)
    assert outcome.value == 1


def test_tasks_that_never_end_are_given_up_and_stopped() -> None:
    calls = {str(i): ("sleep",) for i in range(9)}
    said = "no call ended for 1 s; 0 of 9 calls ended; `ray status` shows what is pending"
    with pytest.raises(RunError, match=f"{said}$"):
        list(run_tasks(act, calls, what="call", stall_timeout=1))
    with pytest.raises(RunError, match=f"{said}; --limit sets the limit$"):
        list(run_tasks(act, calls, what="call", stall_timeout=1, hint="--limit sets the limit"))
    (outcome,) = run_tasks(act, {"a": ("return", 1)}, what="call", stall_timeout=120)  # the CPUs are free again
    assert outcome.value == 1
