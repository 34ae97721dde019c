import numpy as np
import pytest

from epida_ray.classify import create
from epida_ray.classify.examples import Kept, make_examples
from epida_ray.classify.learning import make_learner
from epida_ray.classify.training import TrainingOptions

TEXTS = ["the bread is good", "a ball was thrown", "bread and butter", "he threw the ball"]
Y = np.array([0, 1, 0, 1])
KEPT = [["fine bread here", "good bread now"], [], ["butter on bread"], ["throw that ball"]]


class Recorded:
    """A linear classifier that tells what it was fitted with."""

    def __init__(self) -> None:
        self.inner = create("linear", ("food", "sport"), seed=0)
        self.seen: dict[str, float] = {}
        fit = self.inner.fit

        def record(texts, y, weights, seed):
            self.seen = dict(zip(texts, weights.tolist(), strict=True))
            return fit(texts, y, weights, seed)

        self.inner.fit = record


@pytest.mark.parametrize("loss", ["sum", "original", "augmented"])
def test_a_fitted_classifier_learns_by_the_same_weights_as_torch(loss: str) -> None:
    recorded = Recorded()
    learner = make_learner(recorded.inner, len(TEXTS), TrainingOptions(), 1)
    result = learner.train(make_examples(TEXTS, Y, 2, Kept(KEPT), loss), 1)
    originals = {} if loss == "augmented" else dict.fromkeys(TEXTS, 1.0)
    kept = {} if loss == "original" else {t: 1 / len(some) for some in KEPT for t in some}
    assert recorded.seen == originals | kept
    assert (result.original > 0) == bool(originals) and (result.augmented > 0) == bool(kept)
    assert result.total == pytest.approx(result.original + result.augmented)


def test_with_nothing_kept_the_originals_are_learnt() -> None:
    recorded = Recorded()
    make_learner(recorded.inner, len(TEXTS), TrainingOptions(), 1).train(
        make_examples(TEXTS, Y, 2, Kept([[]] * 4), "augmented"), 1
    )
    assert set(recorded.seen) == set(TEXTS)
