"""EPiDA on Ray: better text classifiers from few labelled samples.

`augment` and `train` do what the commands of the same names do, for paths and for tables in memory. `load` returns a
saved model, and `read` the rows that a finished run kept. `augment_texts` and `select` run in this process, without
Ray. `EpidaClassifier` and `Augmenter` are for scikit-learn, which they need.
"""

from typing import TYPE_CHECKING, Any

from epida_ray import classify
from epida_ray.api import augment, augment_texts, load, read, train
from epida_ray.core.errors import EpidaError, RequestError, RunError
from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.select import select

if TYPE_CHECKING:
    from epida_ray.estimator import Augmenter, EpidaClassifier

__version__ = "0.1.0"
__all__ = [
    "Augmenter",
    "Candidates",
    "EpidaClassifier",
    "EpidaError",
    "Rejected",
    "RequestError",
    "RunError",
    "Sample",
    "augment",
    "augment_texts",
    "classify",
    "load",
    "read",
    "select",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in ("Augmenter", "EpidaClassifier"):  # scikit-learn is imported by those who use it
        from epida_ray import estimator

        return getattr(estimator, name)
    raise AttributeError(f"module 'epida_ray' has no attribute {name!r}")
