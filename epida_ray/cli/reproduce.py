"""`epida reproduce`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from epida_ray.cli.options import default, shared
from epida_ray.core.errors import RequestError
from epida_ray.core.options import key_values
from epida_ray.core.progress import Reporter

EXAMPLE = "epida reproduce ablation --data-dir data --output results --quick"


def command(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Experiment to run; `epida reproduce list` shows their names.")
    ],
    data_dir: Annotated[
        str | None, typer.Option(metavar="D", help="Directory with D/DATASET/train.* and test.*, as Parquet, CSV, …")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="DIR", help="Directory for the results, which go to DIR/NAME."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Finish in minutes: short training, and 2 seeds unless --seeds is given.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Use more generators and sizes, in experiments that have them.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(metavar="N", help="Number of seeds, counted from 0. Without it, 5.")
    ] = None,
    protocol: Annotated[
        Literal["dev", "paper"],
        typer.Option(help="Choose the best round on dev rows, or, as the authors' code does, on the test set."),
    ] = "dev",
    classifier: Annotated[
        str, typer.Option(metavar="NAME", help="Classifier; `epida list classifiers` shows them.")
    ] = default("classifier"),
    classifier_args: Annotated[list[str] | None, shared("classifier_args")] = None,
    generator: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Generator; `epida list generators` shows them. May be repeated."),
    ] = None,
    generator_args: Annotated[list[str] | None, shared("generator_args")] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DATASET:SIZE",
            help="Data and its size, such as trec:1%, mine:60 or hub:ag_news:60. May be repeated.",
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Run only this method, named as in the table. May be repeated."),
    ] = None,
    text_column: Annotated[str, shared("text_column")] = default("text_column"),
    label_column: Annotated[
        str | None, shared("label_column", "Column with the label. Without it, label_name or label.")
    ] = None,
    clean: Annotated[bool, typer.Option("--clean", help="Clean the texts as the paper does.")] = False,
    steps: Annotated[
        int | None,
        typer.Option(metavar="N", help="Largest number of training steps. Without it, the classifier's default."),
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(metavar="RATE", help="Learning rate. Without it, the classifier's default.")
    ] = None,
    address: Annotated[str | None, shared("address")] = None,
    stall_timeout: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="Give up after this long without a finished trial.")
    ] = 7200,
) -> None:
    """Repeat an experiment of the paper, on its data or on yours.

    Writes the table or figure with the paper's numbers beside the measured ones.
    """
    from epida_ray.experiments.catalogue import EXPERIMENTS, find
    from epida_ray.experiments.options import make_options

    if name == "list":
        for experiment in EXPERIMENTS.values():
            typer.echo(f"{experiment.name:15} {experiment.title}")
        return
    find(name)
    if output is None:
        raise RequestError("--output DIR is missing: where should the results go?")
    if data_dir is None and not (setting and all(one.startswith("hub:") for one in setting)):
        raise RequestError("--data-dir D is missing: it is required unless every --setting is hub:NAME:SIZE")
    options = make_options(
        seeds=seeds, quick=quick, full=full, protocol=protocol, classifier=classifier, generators=generator or (),
        settings=setting or (), methods=method or (), clean=clean, steps=steps, learning_rate=learning_rate,
        text_column=text_column, label_column=label_column,
        classifier_args=key_values(classifier_args or []), generator_args=key_values(generator_args or []),
    )  # fmt: skip
    from epida_ray.data.storage import Storage
    from epida_ray.experiments.layout import TABLE
    from epida_ray.experiments.reproduce import reproduce

    folder = reproduce(
        name, data_dir or "", output, options, address=address, reporter=Reporter(), stall_timeout=stall_timeout
    )
    typer.echo(Storage(folder).read(TABLE).decode())
    typer.echo(f"results: {folder}; `epida report {folder}` shows them in a browser")
