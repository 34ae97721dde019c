from __future__ import annotations

import pytest
from ray.data._internal.util import _annotate_exception_with_retry_context

from epida_ray.stream.pipeline import cause


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("Failed to find the word"), "ValueError: Failed to find the word"),
        (KeyError("word"), "KeyError: 'word"),
        (RuntimeError(), "RuntimeError"),
        (ValueError("begin " + "x" * 1000 + " end"), "ValueError: begin xxx"),
    ],
)
def test_the_cause_of_a_failure_comes_without_the_advice_of_ray(error: Exception, expected: str) -> None:
    for _ in range(2):
        _annotate_exception_with_retry_context(
            error, description="apply UDF transform", attempts=1, max_attempts=1, total_backoff_s=0, exception_str=""
        )
    said = cause(error)
    assert said.startswith(expected) and "attempts" not in said and "\n" not in said and len(said) < 500
    assert said.endswith(" end") or len(said) < len(expected) + 3


def test_of_a_long_cause_both_ends_are_said() -> None:
    said = cause(RuntimeError("begin " + "x" * 1000 + " ValueError: the point of a traceback"))
    assert said.startswith("RuntimeError: begin") and said.endswith("the point of a traceback")
