"""`epida train`."""

from __future__ import annotations

from epida_ray.cli.options import QUIET, takes
from epida_ray.core.progress import Reporter
from epida_ray.method.requests import TrainRequest

EXAMPLE = "epida train tickets.csv --eval test.csv --output run"


@takes(TrainRequest)
def command(request: TrainRequest, quiet: QUIET = False) -> None:
    """Train a classifier on few labelled texts.

    The classifier first learns from the originals. Then, in each round, it scores new rewrites of every text, keeps the
    best m, and learns from them and the originals. With --unlabelled, it also learns from other texts.
    DIR/model is the model of the best round. If the run is interrupted, the same command resumes it.
    """
    from epida_ray.api import write_report
    from epida_ray.stream.driver import train

    reporter = Reporter(quiet)
    result = train(request, reporter, write_report)
    reporter.say(f"model: {result.model_dir}")
