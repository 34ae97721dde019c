"""`epida export`."""

from __future__ import annotations

from typing import Annotated

import typer

from epida_ray.cli.options import OVERWRITE, RUN_DIR

EXAMPLE = "epida export run kept.csv --neutralize-formulas"


def command(
    directory: RUN_DIR,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="File to write: .csv, .tsv, .jsonl, .json, .xlsx, .parquet or .arrow.")
    ],
    neutralize_formulas: Annotated[
        bool,
        typer.Option(
            "--neutralize-formulas", help="Put ' before texts that a spreadsheet program would take for a formula."
        ),
    ] = False,
    encoding: Annotated[
        str, typer.Option(metavar="NAME", help="Encoding of .csv and .tsv: utf-8, utf-8-sig (for Excel) or utf-16.")
    ] = "utf-8",
    overwrite: OVERWRITE = False,
) -> None:
    """Write the kept rewrites of a finished run to one file."""
    from epida_ray.runs.export import export

    rows = export(directory, file, neutralize_formulas, encoding, overwrite)
    typer.echo(f"{rows:,} rows written to {file}")
