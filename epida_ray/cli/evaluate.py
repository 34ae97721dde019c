"""`epida evaluate`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from epida_ray.cli.options import MODEL_DIR, default, shared
from epida_ray.core.progress import Reporter, plain_console, printable

EXAMPLE = "epida evaluate run/model test.csv"


def command(
    model: MODEL_DIR,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Labelled texts: Parquet, CSV, JSON, Excel or Arrow.")],
    text_column: Annotated[str, shared("text_column")] = default("text_column"),
    label_column: Annotated[str, shared("label_column")] = default("label_column"),
    encoding: Annotated[str, shared("encoding")] = default("encoding"),
    delimiter: Annotated[str | None, shared("delimiter")] = None,
    trust_code: Annotated[list[str] | None, shared("trust_code")] = None,
    max_rejected: Annotated[
        float,
        shared(
            "max_rejected", "Share of the rows that may be left out: unreadable, or with a label unknown to the model."
        ),
    ] = default("max_rejected"),
    noise: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:SHARE]",
            help="Also test on noisy texts: spelling:0.3, keyboard:0.3, case, punctuation, any generator, or an attack "
            "such as textattack-attack:DeepWordBugGao2018. May be repeated.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on standard output, for programs.")
    ] = False,
) -> None:
    """Measure a model on a labelled file.

    Prints accuracy, macro-F1, and precision, recall and F1 of each class.
    """
    from epida_ray.method.evaluate import evaluate_model

    result = evaluate_model(
        model,
        file,
        text_column,
        label_column,
        encoding,
        trust_code or (),
        max_rejected,
        delimiter,
        Reporter(),
        noise or (),
    )
    for reason, count in result["reasons"].items():
        Reporter().warn(f"{count:,} of {result['rows'] + result['rejected']:,} rows are left out: {reason}")
    if as_json:
        typer.echo(json.dumps(result))
        return
    from rich.table import Table

    table = Table("class", "precision", "recall", "F1", "rows")
    for label, one in result["per_class"].items():
        table.add_row(
            printable(label), *(f"{one[k]:.3f}" for k in ("precision", "recall", "f1")), f"{one['support']:,}"
        )
    console = plain_console()
    console.print(table)
    console.print(f"accuracy {result['accuracy']:.4f}, macro-F1 {result['macro_f1']:.4f}, {result['rows']:,} rows")
    for spec, one in result.get("noise", {}).items():
        console.print(f"with noise {spec}: accuracy {one['accuracy']:.4f}, macro-F1 {one['macro_f1']:.4f}")
