"""`epida demo`."""

from __future__ import annotations

from typing import Annotated

import typer

EXAMPLE = "epida demo --output my-demo"


def command(
    output: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="Directory to write to.")] = "epida-demo",
) -> None:
    """See the whole method on a bundled corpus.

    Augments 70 labelled support requests. Trains without and with rewrites, with unlabelled requests, and with a
    sentence encoder. Compares the results, in a minute or two.
    """
    from epida_ray.experiments.demo import run_demo

    run_demo(output)
