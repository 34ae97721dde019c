"""`epida doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from epida_ray.cli.options import shared

EXAMPLE = "epida doctor --address auto"


def command(address: Annotated[str | None, shared("address")] = None) -> None:
    """Check the installation and the machine.

    Shows installed versions, which generators and classifiers can be used and how to install the others, free disk
    space, and what Ray offers. The exit status is 1 if Ray cannot be reached or started.
    """
    from epida_ray.stream.doctor import examine

    if not examine(address):
        raise typer.Exit(1)
