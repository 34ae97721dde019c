"""`epida tune`."""

from __future__ import annotations

from typing import Annotated

import typer

from epida_ray.cli.options import QUIET, default, shared
from epida_ray.core.progress import Reporter

EXAMPLE = "epida tune train.csv --output tuned --trials 60"


def command(
    train: Annotated[str, typer.Argument(metavar="TRAIN", help="Labelled texts: a file, directory, pattern or URL.")],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Directory for everything the search writes.")
    ],
    test: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Labelled file that the search never sees. Without it, a part of TRAIN."),
    ] = None,
    space: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="YAML file with the values to search. Without it, search for a policy for the CNN."
        ),
    ] = None,
    trials: Annotated[int, typer.Option(metavar="N", min=1, help="Number of option combinations to try.")] = 60,
    folds: Annotated[int, typer.Option(metavar="N", min=2, help="Folds of the cross-validation.")] = 3,
    text_column: Annotated[str, shared("text_column")] = default("text_column"),
    label_column: Annotated[str, shared("label_column")] = default("label_column"),
    encoding: Annotated[str, shared("encoding")] = default("encoding"),
    delimiter: Annotated[str | None, shared("delimiter")] = None,
    seed: Annotated[int, shared("seed")] = default("seed"),
    track: Annotated[list[str] | None, shared("track")] = None,
    address: Annotated[str | None, shared("address")] = None,
    quiet: QUIET = False,
) -> None:
    """Search for better training options with Ray Tune.

    Ray Tune cross-validates points of a space of options. The best one is then measured on rows that the search never
    saw, and the output says how much of its gain remains. If the search is interrupted, the same command resumes it.
    """
    from epida_ray.experiments.tune import BEST, TuneOptions, tune

    options = TuneOptions(
        train, output, test, space, trials, folds, text_column, label_column, encoding, delimiter, seed, address,
        tuple(track or ()),
    )  # fmt: skip
    found = tune(options, Reporter(quiet), quiet)
    plain = "" if found.outer_plain is None else f", what was found without its rewrites {found.outer_plain:.3f}"
    typer.echo(
        f"macro-F1 over the folds: {found.validated:.3f}, baseline without rewrites {found.baseline:.3f}; on "
        f"{found.outer_rows:,} other rows: {found.outer:.3f}, baseline {found.outer_baseline:.3f}{plain}"
    )
    typer.echo(found.summary)
    typer.echo(f"to train with what was found: epida train {train} --config {output}/{BEST} --output model")
