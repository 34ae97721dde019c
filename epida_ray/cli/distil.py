"""`epida distil`."""

from __future__ import annotations

from typing import Annotated

import typer

from epida_ray.cli.options import QUIET, default, shared
from epida_ray.core.progress import Reporter

EXAMPLE = "epida distil pool.parquet --teacher run/model --classifier cnn --output fast"


def command(
    input: Annotated[str, typer.Argument(metavar="POOL", help="Texts to learn from. Labels are not needed.")],
    teacher: Annotated[str, typer.Option(metavar="DIR", help="Saved model to learn from.")],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Directory for everything the run writes.")
    ],
    classifier: Annotated[
        str, typer.Option(metavar="NAME", help="Classifier to train; `epida list classifiers` shows them.")
    ] = "cnn",
    eval: Annotated[
        str | None, typer.Option(metavar="FILE", help="Labelled file to test the final model on, once.")
    ] = None,
    text_column: Annotated[str, shared("text_column", "Column with the text, in POOL and FILE.")] = default(
        "text_column"
    ),
    label_column: Annotated[str, shared("label_column", "Column with the label, in FILE.")] = default("label_column"),
    encoding: Annotated[str, shared("encoding")] = default("encoding"),
    delimiter: Annotated[str | None, shared("delimiter")] = None,
    trust_code: Annotated[list[str] | None, shared("trust_code")] = None,
    seed: Annotated[int, shared("seed")] = default("seed"),
    address: Annotated[str | None, shared("address")] = None,
    quiet: QUIET = False,
) -> None:
    """Train a fast model to do what a slow one does.

    The teacher labels POOL with its probabilities (as `epida label` does, to DIR/labels), and the classifier learns
    them (as `epida train --soft-labels` does). DIR/student/model is the result.
    """
    from epida_ray.classify import load
    from epida_ray.core.options import make_request
    from epida_ray.data.plan import Columns
    from epida_ray.data.storage import Storage, below
    from epida_ray.method.distil import evaluation_rows
    from epida_ray.method.prepare import saved_model
    from epida_ray.method.requests import NO_GENERATOR, LabelRequest, TrainRequest
    from epida_ray.stream.driver import train
    from epida_ray.stream.label import label

    saved = saved_model("--teacher", teacher)  # `label` would blame --model
    reporter = Reporter(quiet)
    test = None
    if eval is not None:
        columns = Columns(text=text_column, label=label_column)
        test = evaluation_rows(eval, columns, encoding, delimiter, load(saved, trust=trust_code or ()).labels, reporter)
    shared_options = {"seed": seed, "address": address, "trust_code": tuple(trust_code or ())}
    reading = {"text_column": text_column, "encoding": encoding, "delimiter": delimiter}
    labels = {"input": input, "model": teacher, "output": below(output, "labels")} | reading | shared_options
    made = label(make_request(LabelRequest, labels), reporter)
    if test is not None:  # with the columns that the labelled texts have, whatever those of POOL are called
        Storage(output).write_table("test.parquet", test)
        eval = below(output, "test.parquet")
    student = {
        "input": made.labelled, "output": below(output, "student"), "teacher": teacher, "soft_labels": True,
        "generator": NO_GENERATOR, "classifier": classifier, "eval": eval, "labels": tuple(made.manifest.labels),
    } | shared_options  # fmt: skip
    result = train(make_request(TrainRequest, student), reporter)
    reporter.say(f"model: {result.model_dir}")
