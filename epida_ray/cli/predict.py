"""`epida predict`."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from epida_ray.cli.options import MODEL_DIR, OVERWRITE, default, shared
from epida_ray.core.errors import RequestError
from epida_ray.core.progress import Reporter

EXAMPLE = """epida predict run/model new.csv --output labelled.csv
epida predict run/model --text "where is my parcel?"
cat texts.txt | epida predict run/model - --probabilities"""


def command(
    model: MODEL_DIR,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="Texts: Parquet, CSV, JSON, Excel or Arrow. Labels are not needed. Use - for standard input, one text "
            "per line.",
        ),
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option("--text", metavar="TEXT", help="A text, in place of FILE. May be repeated.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="File to write, in the format of FILE. CSV, TSV and Excel count as one format, and so do Parquet and "
            "Arrow.",
        ),
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Also give the probability of every class.")
    ] = False,
    overwrite: OVERWRITE = False,
    text_column: Annotated[str, shared("text_column")] = default("text_column"),
    encoding: Annotated[str, shared("encoding")] = default("encoding"),
    delimiter: Annotated[str | None, shared("delimiter")] = None,
    trust_code: Annotated[list[str] | None, shared("trust_code")] = None,
) -> None:
    """Label new texts with a model.

    Writes the rows of FILE to OUT with two more columns: `predicted`, the class, and `confidence`, its probability.
    --probabilities adds `p_LABEL` for every class. For --text and standard input, prints one JSON object per text.
    """
    from epida_ray.method.predict import predict, predict_texts

    if (file is None) == (not text):
        raise RequestError("give either FILE, or - for standard input, or --text")
    if file is None or file == "-":
        if output is not None:
            raise RequestError("--output needs a FILE; the answers to --text and standard input are printed")
        lines = text or (line.rstrip("\r\n") for line in sys.stdin)
        for answer in predict_texts(model, lines, trust_code or (), probabilities):
            typer.echo(json.dumps(answer, ensure_ascii=False))
        return
    if output is None:
        raise RequestError(f"--output OUT is missing: the file to write the rows of {file} to")
    found = predict(
        model, file, output, text_column, encoding, trust_code or (), Reporter(), delimiter, probabilities, overwrite
    )
    without = f"; {found.without:,} without a prediction" if found.without else ""
    typer.echo(f"{found.rows:,} rows written to {output}{without}")
