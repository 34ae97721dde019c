"""`epida label`."""

from __future__ import annotations

from epida_ray.cli.options import QUIET, takes
from epida_ray.core.progress import Reporter
from epida_ray.method.requests import LabelRequest

EXAMPLE = "epida label pool.parquet --model run/model --output labels --for-review 100"


@takes(LabelRequest)
def command(request: LabelRequest, quiet: QUIET = False) -> None:
    """Label a corpus of any size with a model.

    Writes the texts with the likeliest class, its probability and all probabilities to DIR/labelled. If the run is
    interrupted, the same command resumes it. For one file of a few thousand rows, `epida predict` is simpler.
    """
    from epida_ray.stream.label import label

    reporter = Reporter(quiet)
    result = label(request, reporter)
    reporter.say(f"{result.manifest.done.kept:,} texts labelled: {result.labelled}")
