from __future__ import annotations

import pyarrow as pa
import pytest
from ray.data._internal.util import _annotate_exception_with_retry_context

from epida_ray.stream.pipeline import _general, _label_values, cause


@pytest.mark.parametrize(
    ("labels", "label_type", "expected"),
    [
        (("1", "2"), "int64", pa.array([1, 2])),
        (("1", "2", "other"), "int64", pa.array(["1", "2", "other"])),
        (("1", "01"), "int64", pa.array(["1", "01"])),
        (("1", "9" * 30), "int64", pa.array(["1", "9" * 30])),
        (("false", "true"), "bool", pa.array([False, True])),
        (("0", "true"), "bool", pa.array(["0", "true"])),
        (("1", "2"), "string", pa.array(["1", "2"])),
    ],
)
def test_labels_have_the_type_of_the_input_where_all_of_them_are_of_it(
    labels: tuple[str, ...], label_type: str, expected: pa.Array
) -> None:
    assert _label_values(labels, label_type).equals(expected)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("the label 'x' is not one of a, b", "the label … is not one of a, b"),
        ('the label "it\'s" is not one of a, b', "the label … is not one of a, b"),
        ("the label 'a \\'b\\' \"c\"' is not one of a, b", "the label … is not one of a, b"),
        ("the classifier's probabilities are not finite", "the classifier's probabilities are not finite"),
        ("'utf-8' codec can't decode byte", "… codec can't decode byte"),
    ],
)
def test_a_summary_of_reasons_says_what_they_share(reason: str, expected: str) -> None:
    assert _general(reason) == expected


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
