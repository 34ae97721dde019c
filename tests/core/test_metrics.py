import numpy as np
import pytest

from epida_ray.core.metrics import confusion, macro_f1, scores


def test_against_scikit_learn():
    sklearn = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    for classes in (2, 5, 30):
        y, p = random.integers(0, classes, 40), random.integers(0, classes, 40)
        result = scores([f"c{i}" for i in range(classes)], y, p)
        assert result["accuracy"] == pytest.approx(sklearn.accuracy_score(y, p))
        expected = sklearn.f1_score(y, p, average="macro", zero_division=0)
        assert result["macro_f1"] == pytest.approx(expected) == pytest.approx(macro_f1(classes, y, p))
        present = range(classes)
        precision, recall, f1, support = sklearn.precision_recall_fscore_support(y, p, labels=present, zero_division=0)
        for i in present:
            row = result["per_class"][f"c{i}"]
            assert row == pytest.approx(
                {"precision": precision[i], "recall": recall[i], "f1": f1[i], "support": support[i]}
            )


def test_classes_that_do_not_occur_do_not_count():
    result = scores(("a", "b", "never"), np.array([0, 0, 1]), np.array([0, 0, 1]))
    assert result["macro_f1"] == 1.0
    assert result["per_class"]["never"]["support"] == 0


def test_a_class_that_is_only_predicted_counts():
    assert scores(("a", "b"), np.array([0, 0]), np.array([0, 1]))["macro_f1"] == pytest.approx((2 / 3) / 2)


def test_nothing_to_score():
    assert scores(("a", "b"), np.array([], int), np.array([], int))["macro_f1"] == 0.0


def test_confusion_has_truth_in_rows():
    assert confusion(2, np.array([0, 0, 1]), np.array([1, 1, 1])).tolist() == [[0, 2], [0, 1]]
