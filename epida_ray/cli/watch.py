"""`epida watch`."""

from __future__ import annotations

from typing import Annotated

import typer

from epida_ray.cli.options import RUN_DIR, shared

EXAMPLE = "epida watch run --open"


def command(
    directory: RUN_DIR,
    port: Annotated[
        int, typer.Option(metavar="N", help="Port on 127.0.0.1; 0 picks a free one.", min=0, max=65_535)
    ] = 0,
    open: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    trust_code: Annotated[list[str] | None, shared("trust_code")] = None,
) -> None:
    """Show the report of a run while it is running.

    DIR is any that `epida report` takes, also while `epida reproduce` works on it.
    Serves the page on this machine only and updates it every few seconds until the run ends. Ctrl-C stops the page, not
    the run.
    """
    import webbrowser

    from epida_ray.experiments.watch import watcher

    with watcher(directory, port, trust_code or ()) as server:
        url = f"http://127.0.0.1:{server.server_port}/"
        typer.echo(f"{url} shows the run; Ctrl-C stops the page")
        if open:
            webbrowser.open(url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
