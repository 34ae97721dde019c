"""`epida check`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epida_ray.cli.options import QUIET, default, shared
from epida_ray.core.progress import Reporter, plain_console, printable

if TYPE_CHECKING:
    from epida_ray.method.check import Checked, Finding

EXAMPLE = "epida check train.csv --test test.csv"
SHOWN = 3
"""Examples of each finding on the terminal."""


def command(
    train: Annotated[str, typer.Argument(metavar="TRAIN", help="Labelled texts: a file, directory, pattern or URL.")],
    test: Annotated[
        str | None, typer.Option(metavar="FILE", help="Labelled file that models will be tested on.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Write check.json and a CSV file with all rows of each finding."
        ),
    ] = None,
    classifier: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Classifier that judges the labels. Without it, encoder, or linear for many rows."
        ),
    ] = None,
    text_column: Annotated[str, shared("text_column")] = default("text_column"),
    label_column: Annotated[str, shared("label_column")] = default("label_column"),
    encoding: Annotated[str, shared("encoding")] = default("encoding"),
    delimiter: Annotated[str | None, shared("delimiter")] = None,
    seed: Annotated[int, shared("seed")] = default("seed"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on standard output, for programs.")
    ] = False,
    quiet: QUIET = False,
) -> None:
    """Find problems in labelled files before training.

    Reports duplicates, texts of TRAIN in TEST, texts with two labels, labels that are probably wrong, classes that are
    too small, and damaged texts. For each problem, shows how many rows have it, some of them, and what to do.
    """
    from epida_ray.data.storage import Storage
    from epida_ray.method.check import check, write

    found = check(
        train, test, text_column=text_column, label_column=label_column, encoding=encoding, delimiter=delimiter,
        classifier=classifier, seed=seed, exclude=output, reporter=Reporter(quiet or as_json),
    )  # fmt: skip
    if output is not None:
        write(found, Storage(output))
    if as_json:
        typer.echo(json.dumps(found.plain(), ensure_ascii=False))
        return
    show(found)
    if output is not None:
        typer.echo(f"all rows: {output}")


def show(found: Checked) -> None:
    """Print every finding with its first examples."""
    console = plain_console(soft_wrap=True)
    test = f", {found.test:,} of TEST" if found.test else ""
    console.print(
        f"{found.train:,} rows of TRAIN{test}, {len(found.classes)} class{'es' if len(found.classes) > 1 else ''}"
    )
    for finding in found.findings:
        count = f": {finding.count:,}" if finding.rows else ""
        console.print(f"\n{finding.level}: {printable(finding.what, 300)}{count}")
        for row in finding.rows[:SHOWN]:
            console.print(f"    {_line(finding, row)}")
        if len(finding.rows) > SHOWN:
            console.print(f"    … and {len(finding.rows) - SHOWN:,} more")
        console.print(f"  → {finding.advice}")
    if not found.findings:
        console.print("no problems found")


def _line(finding: Finding, row: dict[str, Any]) -> str:
    text = f"“{printable(str(row['text']), 70)}”" if "text" in row else ""
    rest = {k: v for k, v in row.items() if k not in ("text", "other_text", "id", "other_id", "ids", "similarity")}
    if finding.name == "denied-labels":
        shown = f"{row['label']} → {row['instead']}? ({row['confidence']:.0%} against {row['probability']:.0%})"
    elif "other_text" in row:
        other = "" if row["text"] == row["other_text"] else f" ~ “{printable(str(row['other_text']), 70)}”"
        shown = f"{row['label']} / {row['other_label']}{other}"
    else:
        shown = ", ".join(f"{k} {', '.join(map(str, v)) if isinstance(v, list) else v}" for k, v in rest.items())
    return f"{text}  {printable(shown, 200)}".strip()
