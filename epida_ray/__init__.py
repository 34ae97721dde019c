"""EPiDA on Ray: better text classifiers from few labelled samples.

`augment` and `train` do what the commands of the same names do, for paths and for tables in memory; `select` works on
arrays alone, with no Ray running.
"""

from epida_ray import classify
from epida_ray.api import augment, train
from epida_ray.core.errors import EpidaError, RequestError, RunError
from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.select import select

__version__ = "0.1.0"
__all__ = [
    "Candidates",
    "EpidaError",
    "Rejected",
    "RequestError",
    "RunError",
    "Sample",
    "augment",
    "classify",
    "select",
    "train",
]
