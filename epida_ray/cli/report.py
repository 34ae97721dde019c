"""`epida report`."""

from __future__ import annotations

from typing import Annotated

import typer

from epida_ray.cli.options import RUN_DIR, shared
from epida_ray.core.errors import RunError

EXAMPLE = "epida report run"


def command(
    directory: RUN_DIR,
    open: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    trust_code: Annotated[list[str] | None, shared("trust_code")] = None,
) -> None:
    """Write a web page about a run: DIR/report.html.

    DIR is the --output of augment, train, label, reproduce, compare, tune or check. The page needs no network.
    """
    from epida_ray.experiments.report import write_report

    location = write_report(directory, trust_code or ())
    typer.echo(location)
    if open:
        import webbrowser
        from pathlib import Path

        if "://" in location or not webbrowser.open(Path(location).resolve().as_uri()):
            raise RunError(f"no browser could be opened; open {location} yourself")
