"""`epida export-model`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from epida_ray.cli.options import MODEL_DIR, default, shared

EXAMPLE = "epida export-model run/model --to onnx --output exported"


def command(
    model: MODEL_DIR,
    output: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="Directory to write, new or empty.")],
    to: Annotated[Literal["onnx"], typer.Option(help="Format of the graph.")] = "onnx",
    int8: Annotated[
        bool,
        typer.Option("--int8", help="Use 8-bit integers: a quarter of the size, about twice as fast, less accurate."),
    ] = False,
    eval: Annotated[
        str | None, typer.Option(metavar="FILE", help="Labelled file to measure the loss in accuracy on.")
    ] = None,
    text_column: Annotated[str, shared("text_column")] = default("text_column"),
    label_column: Annotated[str, shared("label_column")] = default("label_column"),
) -> None:
    """Export a model for programs without Ray and torch.

    Writes an encoder or transformer as an ONNX graph, with its tokeniser, its labels and predict.py, which uses them.
    Compares the export with the original: in float32 a difference above 1e-5 is an error.
    """
    from epida_ray.method.export_model import SCRIPT, export_model

    found = export_model(model, output, int8, eval, text_column, label_column)
    typer.echo(
        f"largest difference of a probability: {found.largest_difference:.1e}; same class: {found.same_class:.1%}"
    )
    for name, one in found.scores.items():
        typer.echo(f"{name}: accuracy {one['accuracy']:.4f}, macro-F1 {one['macro_f1']:.4f} on {one['rows']:,} rows")
    typer.echo(f'written to {output}; try: python {output}/{SCRIPT} "a text"')
