"""`epida augment`."""

from __future__ import annotations

from epida_ray.cli.options import QUIET, takes
from epida_ray.core.progress import Reporter
from epida_ray.method.requests import AugmentRequest

EXAMPLE = "epida augment tickets.csv --output run"


@takes(AugmentRequest)
def command(request: AugmentRequest, quiet: QUIET = False) -> None:
    """Write a larger training set from labelled texts.

    For each text of INPUT, the generator makes K·m candidates, the classifier scores them, and the best m are written
    to DIR/augmented. INPUT may be of any size. If the run is interrupted, the same command resumes it.
    """
    from epida_ray.api import write_report
    from epida_ray.method.results import summary
    from epida_ray.stream.augment import augment

    reporter = Reporter(quiet)
    result = augment(request, reporter, write_report)
    for line in summary(result.manifest):
        reporter.say(line)
    reporter.say(f"results: {result.augmented}")
