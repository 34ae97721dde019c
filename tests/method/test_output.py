from __future__ import annotations

import pyarrow as pa
import pytest

from epida_ray.method.output import general_reason, label_values


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
    assert label_values(labels, label_type).equals(expected)


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
    assert general_reason(reason) == expected
