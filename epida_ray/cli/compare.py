"""`epida compare`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epida_ray.cli.options import QUIET, default, shared
from epida_ray.core.errors import RequestError
from epida_ray.core.progress import Reporter, duration, plain_console

if TYPE_CHECKING:
    from epida_ray.experiments.compare_results import Comparison

EXAMPLE = "epida compare train.csv --test test.csv --output compared --time 30m"
WIDTH = 140
"""Of the table, where the output is not a terminal."""
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


def command(
    train: Annotated[str, typer.Argument(metavar="TRAIN", help="Labelled texts: a file, directory, pattern or URL.")],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Directory for everything the comparison writes.")
    ],
    test: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Labelled file to test the recommended recipe on, once, at the end."),
    ] = None,
    unlabelled: Annotated[
        str | None, typer.Option(metavar="POOL", help="Unlabelled texts; also compares recipes that use them.")
    ] = None,
    time: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Time limit for the comparison, such as 90s, 30m or 2h; --train-best takes extra time."
        ),
    ] = "30m",
    train_best: Annotated[
        bool, typer.Option("--train-best", help="Train the recommended recipe on all rows, into DIR/model.")
    ] = False,
    recipe: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Compare only this recipe and the simplest one. May be repeated."),
    ] = None,
    generator: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Generator whose rewrites are compared, eda by default. May be repeated."),
    ] = None,
    folds: Annotated[int, typer.Option(metavar="N", help="Folds of the cross-validation.")] = 5,
    allow_rare: Annotated[
        bool,
        typer.Option("--allow-rare", help="Allow classes with only one row, which is trained on but never tested."),
    ] = False,
    text_column: Annotated[str, shared("text_column")] = default("text_column"),
    label_column: Annotated[str, shared("label_column")] = default("label_column"),
    encoding: Annotated[str, shared("encoding")] = default("encoding"),
    delimiter: Annotated[str | None, shared("delimiter")] = None,
    seed: Annotated[int, shared("seed")] = default("seed"),
    track: Annotated[list[str] | None, shared("track")] = None,
    address: Annotated[str | None, shared("address")] = None,
    quiet: QUIET = False,
) -> None:
    """Compare ways to train on your data and recommend one.

    Each recipe is an `epida train` command. All are tested on the same folds of TRAIN; those that are clearly behind
    stop early. Recommends the simplest recipe that is not worse than the best. If the comparison is interrupted, the
    same command resumes it.
    """
    from epida_ray.experiments.compare import CompareOptions, compare

    options = CompareOptions(
        train, output, test, unlabelled, seconds(time), train_best, tuple(recipe or ()), tuple(generator or ("eda",)),
        folds, allow_rare, text_column, label_column, encoding, delimiter, seed, address,
        tuple(track or ()),
    )  # fmt: skip
    show(compare(options, Reporter(quiet)), output)


def seconds(text: str) -> float:
    """Return the seconds of a time such as 90s, 30m or 1.5h."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", text)
    if match is None or not float(match[1]):
        raise RequestError(f"--time is a time such as 90s, 30m or 2h, not {text!r}")
    return float(match[1]) * _UNITS[match[2]]


def show(found: Comparison, output: str) -> None:
    """Print the table, the learning curve and the recommendation."""
    from rich.table import Table

    from epida_ray.experiments.compare_results import more_labels

    console = plain_console()
    if not console.is_terminal:
        console = plain_console(width=WIDTH)
    table = Table("recipe", "macro-F1", f"against {found.recipes[0]['recipe']}", "folds", "to train", "texts/s", "")
    for row in found.recipes:
        table.add_row(*_cells(row, found.recommended))
    console.print(table)
    why = {
        "time": "the time was up: a longer --time gives more folds, and may change the table",
        "clear": "more folds would not change the recommendation",
        "repetitions": "all repetitions are done",
    }
    console.print(
        f"{found.rows:,} rows, {found.classes} classes, {found.folds} folds; {duration(found.seconds)}; "
        f"{why[found.stopped]}. Brackets: 95% confidence intervals.", soft_wrap=True,
    )  # fmt: skip
    if found.curve:
        points = ", ".join(f"{row['labels']:,} labels {row['macro_f1']:.3f}" for row in found.curve)
        console.print(f"learning curve: {points}", soft_wrap=True)
    if found.recommended is not None:
        console.print(more_labels(found.curve, found.rows), soft_wrap=True)
    guess = " (a first guess)" if found.missing_time and found.recommended else ""
    console.print(f"\nRecommendation{guess}: {found.reason}.", soft_wrap=True)
    if found.missing_time:
        console.print(
            f"Not every recipe was tested in every fold; that takes about {duration(found.missing_time)} more. What is "
            "done is kept: run the same command with a longer --time.", soft_wrap=True,
        )  # fmt: skip
    for line in found.commands:
        console.print(f"  {line}", soft_wrap=True)
    if found.test is not None:
        validated = next(row["macro_f1"] for row in found.recipes if row["recipe"] == found.recommended)
        console.print(f"macro-F1 on TEST: {found.test['macro_f1']:.3f}; cross-validated: {validated:.3f}")
    if found.model is not None:
        console.print(f"model: {found.model}", soft_wrap=True)
    console.print(f"all figures: {output}; as a page: epida report {output}", soft_wrap=True)


def _cells(row: dict[str, Any], recommended: str | None) -> list[str]:
    against = f"{row['difference']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]" if row["low"] is not None else ""
    note = "recommended" if row["recipe"] == recommended else row["verdict"]
    if row["dropped_after"] is not None:
        note = f"clearly behind after {row['dropped_after']} folds"
    elif row["failure"]:
        note = f"failed: {row['failure'][:60]}"
    elif row["paused"] or not row["folds"]:
        note = "no time for more folds"
    return [
        row["recipe"],
        "" if row["macro_f1"] is None else f"{row['macro_f1']:.3f}",
        against,
        str(row["folds"]),
        "" if row["train_seconds"] is None else duration(row["train_seconds"]),
        "" if row["texts_per_second"] is None else f"{row['texts_per_second']:,.0f}",
        note,
    ]
