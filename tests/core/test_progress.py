from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from epida_ray.core import progress
from epida_ray.core.progress import Reporter, printable


def lines(reporter: Reporter) -> io.StringIO:
    out = io.StringIO()
    reporter.console = Console(file=out, soft_wrap=True)
    return out


def test_plain_lines_say_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    reporter = Reporter()
    out = lines(reporter)
    with reporter.track("augment", 200) as tracker:
        tracker.update(50, "150 kept")
    assert out.getvalue().startswith("augment: 50 of 200 rows, ")
    assert "150 kept, about " in out.getvalue()


def test_a_long_silence_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SILENCE", 0.1)
    reporter = Reporter()
    out = lines(reporter)
    with reporter.track("reproduce", 9, unit="trials"):
        deadline = time.monotonic() + 30
        while not out.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert out.getvalue().startswith("reproduce: at work, 0 of 9 trials after ")


@pytest.mark.parametrize("method", ["say", "warn"])
def test_a_message_is_one_line_of_plain_text(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    getattr(Reporter(), method)("the label '\x1b[2Jx\ny' of [b]file[/c] :tada:")
    assert capsys.readouterr().err.endswith("the label '�[2Jx y' of [b]file[/c] :tada:\n")


def test_texts_are_made_printable() -> None:
    assert printable("a\x1b[31m b\n c") == "a�[31m b c"
    assert printable("x" * 100, 10) == "x" * 9 + "…"
