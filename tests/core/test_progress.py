from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from epida_ray.core import progress
from epida_ray.core.progress import Pace, Reporter, printable, speed


def lines(reporter: Reporter) -> io.StringIO:
    out = io.StringIO()
    reporter.console = Console(file=out, soft_wrap=True)
    return out


class Clock:
    """Time that passes only when told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


def test_plain_lines_say_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    reporter = Reporter()
    out = lines(reporter)
    clock = Clock(monkeypatch)
    with reporter.track("augment", 200) as tracker:
        for step in range(1, 5):
            clock.now += progress.LINE_EVERY
            tracker.update(50 * step, f"{150 * step} kept")
    assert out.getvalue().splitlines() == [
        "augment: 50 of 200 rows, 150 kept",
        "augment: 100 of 200 rows, 300 kept",
        "augment: 150 of 200 rows, 10 rows/s, 450 kept, about 5.0 s left",
        "augment: 200 of 200 rows, 10 rows/s, 600 kept",
    ]


def test_start_up_and_earlier_attempts_do_not_count_as_work() -> None:
    pace = Pace(1000)
    for done, now in ((1000, 0.0), (1000, 300.0), (1010, 600.0)):
        pace.update(done, now)
        assert pace.rate() is None
    pace.update(1020, 605.0)
    assert pace.rate() is None  # two marks, five seconds apart, are too few
    pace.update(1030, 610.0)
    assert pace.rate() == 2.0


def test_two_long_units_are_enough_for_an_estimate() -> None:
    pace = Pace(0)
    pace.update(1, 100.0)
    pace.update(2, 140.0)
    assert pace.rate() == 1 / 40


def test_the_pace_is_that_of_the_latest_units() -> None:
    pace = Pace(0)
    for second in range(100):
        pace.update(second + 1, second)
    for second in range(100):
        pace.update(100 + 5 * (second + 1), 100 + second)
    assert pace.rate() == pytest.approx(5)


def test_many_small_updates_do_not_shorten_the_window() -> None:
    pace = Pace(0)
    for step in range(1, 5001):
        pace.update(step, step / 1000)
    assert pace.rate() == pytest.approx(1000)
    assert len(pace._marks) == 5


@pytest.mark.parametrize(
    ("rate", "unit", "said"),
    [
        (12345.6, "rows", "12,346 rows/s"),
        (3.21, "rows", "3.2 rows/s"),
        (0.5, "rounds", "2.0 s per round"),
        (1 / 42, "rounds", "42 s per round"),
        (0.001, "trials", "17 min per trial"),
        (0.5, "MB", "2.0 s per MB"),
    ],
)
def test_a_slow_pace_is_said_as_time_per_unit(rate: float, unit: str, said: str) -> None:
    assert speed(rate, unit) == said


def test_a_notebook_gets_plain_lines_on_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert progress.in_notebook()
    reporter = Reporter()
    reporter.say("hello")
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    with reporter.track("augment", 2) as tracker:
        tracker.update(1)
    seen = capsys.readouterr()
    assert seen.out == "hello\naugment: 1 of 2 rows\n" and seen.err == ""


def test_a_terminal_gets_a_bar_with_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    reporter, out, clock = Reporter(), io.StringIO(), Clock(monkeypatch)
    reporter.console = Console(file=out, force_terminal=True, width=160, _environ={"TERM": "xterm"})
    with reporter.track("train", 4, unit="rounds") as tracker:
        for step in (1, 2, 3):
            clock.now += 20
            tracker.update(step, "loss [0.1]")
    assert "20 s per round, loss [0.1], about 20 s left" in out.getvalue() and "3/4" in out.getvalue()


def test_a_long_silence_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SILENCE", 0.1)
    reporter = Reporter()
    out = lines(reporter)
    with reporter.track("reproduce", 9, unit="trials"):
        deadline = time.monotonic() + 30
        while not out.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert out.getvalue().startswith("reproduce: still working, 0 of 9 trials after ")


@pytest.mark.parametrize("method", ["say", "warn"])
def test_a_message_is_one_line_of_plain_text(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    getattr(Reporter(), method)("the label '\x1b[2Jx\ny' of [b]file[/c] :tada:")
    assert capsys.readouterr().err.endswith("the label '�[2Jx y' of [b]file[/c] :tada:\n")


def test_texts_are_made_printable() -> None:
    assert printable("a\x1b[31m b\n c") == "a�[31m b c"
    assert printable("x" * 100, 10) == "x" * 9 + "…"
