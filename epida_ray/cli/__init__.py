"""The command line. Thin: options become a config, errors become one line and an exit status."""

from __future__ import annotations

import inspect
import json
import os
import sys
import threading
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
import typer.core
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from epida_ray.core.errors import EpidaError, RequestError
from epida_ray.core.progress import MESSAGE, Reporter, best_round, plain_console, printable
from epida_ray.method.requests import AugmentConfig, MethodConfig, TrainConfig, flag, make_config, read_config

app = typer.Typer(
    name="epida",
    help="Better text classifiers from few labelled samples: rewrite every sample K·m ways, let the classifier judge, "
    "keep the best m.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


def _version(asked: bool) -> None:
    if asked:
        from epida_ray import __version__

        typer.echo(f"epida {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


PANELS = {
    "Input": ("text_column", "label_column", "id_column", "encoding", "labels"),
    "Method": (
        "generator", "generator_args", "language", "protect", "classifier", "classifier_args", "trust_pickle",
        "trust_code", "train", "train_rows", "m", "k",
        "select", "combine", "alpha", "normalize", "seed",
    ),
    "Training": (
        "dev", "eval", "rounds", "online", "loss", "pretrain_epochs", "epochs_per_round", "batch_size",
        "learning_rate", "patience", "calibrate", "max_staleness", "workers", "threads",
    ),
    "Output": ("output", "with_originals", "candidates"),
    "Where and how": (
        "address", "generators", "scorers", "generator_gpus", "max_rejected", "generator_timeout", "stall_timeout",
    ),
}  # fmt: skip
"""The headings that `--help` has, and the options under each."""


class Grouped(typer.core.TyperCommand):
    """A command with many options, which its help shows under headings."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in ("Arguments", *PANELS, "Options")}
        for parameter in self.get_params(ctx):
            heading = getattr(parameter, "rich_help_panel", None)
            if record := parameter.get_help_record(ctx):
                groups["Arguments" if parameter.param_type_name == "argument" else heading or "Options"].append(record)
        for heading, records in groups.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


TrustCode = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help=f"{MethodConfig.model_fields['trust_code'].description} May be repeated."),
]


def _with_options(model: type[BaseModel], metavar: str) -> Any:
    """A decorator: the function takes `values`, a dict of what was given for the model's fields, on top of its own."""

    def decorate(function: Any) -> Any:
        def command(ctx: typer.Context, **given: Any) -> None:
            explicit = {
                name: value
                for name, value in given.items()
                if (source := ctx.get_parameter_source(name)) is not None and source.name == "COMMANDLINE"
            }
            own = {name: given[name] for name in own_parameters}
            values = {name: value for name, value in explicit.items() if name in model.model_fields}
            function(_values(values, given.get("config"), metavar), **own)

        own_parameters = [name for name in inspect.signature(function, eval_str=True).parameters if name != "values"]
        parameters = [inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
        parameters += [
            _parameter(name, info, metavar if name == "input" else "") for name, info in model.model_fields.items()
        ]
        parameters += [p for p in inspect.signature(function, eval_str=True).parameters.values() if p.name != "values"]
        parameters.sort(key=lambda p: p.default is not inspect.Parameter.empty)
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__name__ = function.__name__
        command.__doc__ = function.__doc__
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate


def _parameter(name: str, info: FieldInfo, positional: str) -> inspect.Parameter:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    if positional:
        said = f"{info.description} Needed, here or in --config."
        annotation = Annotated[str | None, typer.Argument(metavar=positional, help=said, show_default=False)]
        return inspect.Parameter(name, kind, annotation=annotation, default=None)
    option = flag(name)
    panel = next((title for title, names in PANELS.items() if name in names), None)
    options: dict[str, Any] = {"help": info.description, "rich_help_panel": panel}
    default: Any = None if info.is_required() else info.default
    type_: Any = info.annotation
    if name.endswith("_args"):
        flags, type_, default = [option.removesuffix("s")], list[str], []
        options |= {"metavar": "KEY=VALUE", "help": f"{info.description} May be repeated."}
    elif name == "trust_code":
        flags, type_, default = [option], list[str], []
        options |= {"metavar": "NAME", "help": f"{info.description} May be repeated."}
    elif name == "labels":
        flags, type_, default = [option], str | None, None
    elif name == "protect":
        flags, type_, default = [option], str | None, None
        options |= {"metavar": "FILE", "help": f"{info.description} One per line."}
    elif type_ is bool:
        off = "--one-time" if name == "online" else f"--no-{option[2:]}"
        flags = [f"{option}/{off}"] if info.default else [option]
    else:
        flags = [option]
    if name == "output":
        flags, type_ = [option, "-o"], str | None
        options |= {"metavar": "DIR", "help": f"{info.description} Needed, here or in --config."}
    return inspect.Parameter(name, kind, annotation=Annotated[type_, typer.Option(*flags, **options)], default=default)


def _values(given: dict[str, Any], config: str | None, metavar: str) -> dict[str, Any]:
    """Options from --config, overridden by those of the command line, in the form the config takes."""
    values = dict(given)
    if isinstance(values.get("labels"), str):
        values["labels"] = tuple(label.strip() for label in values["labels"].split(",") if label.strip())
    for name in [n for n in values if n.endswith("_args")]:
        values[name] = dict(_key_value(pair) for pair in values[name])
    values = _file_values(config, metavar) | values
    if isinstance(values.get("protect"), str):
        try:
            lines = Path(values["protect"]).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise RequestError(f"--protect {values['protect']}: {error}") from error
        values["protect"] = tuple(line.strip() for line in lines if line.strip())
    if isinstance(values.get("labels"), list):
        values["labels"] = tuple(str(label) for label in values["labels"])
    if not values.get("input"):
        raise RequestError(f"{metavar} is missing: a file, a directory or a pattern with labelled texts")
    if not values.get("output"):
        raise RequestError("--output DIR is missing: where should the results go?")
    return values


def _file_values(config: str | None, metavar: str) -> dict[str, Any]:
    """Of a file, by the names that the command line has; `generator-arg` may be a list of KEY=VALUE or a mapping."""
    values = read_config(config) if config else {}
    for name in ("generator_arg", "classifier_arg"):
        if name in values:
            values[f"{name}s"] = values.pop(name)
        given = values.get(f"{name}s")
        if isinstance(given, list):
            values[f"{name}s"] = dict(_key_value(str(pair)) for pair in given)
    if "one_time" in values:
        values["online"] = not values.pop("one_time")
    if metavar == "TRAIN" and "train" in values:
        values["input"] = values.pop("train")
    return values


def _key_value(pair: str) -> tuple[str, Any]:
    key, equals, value = pair.partition("=")
    if not equals:
        raise RequestError(f"{pair!r} is not KEY=VALUE")
    try:
        return key.strip(), yaml.safe_load(value)
    except (yaml.YAMLError, ValueError) as error:  # the second for a date such as 2020-13-45
        raise RequestError(f"the value of {pair!r} cannot be read as YAML: {error}") from error


@app.command(cls=Grouped)
@_with_options(AugmentConfig, "INPUT")
def augment(
    values: dict[str, Any],
    config: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="YAML file with options by these names; those given here go before."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")] = False,
) -> None:
    """Make a larger and better training set from a labelled corpus of any size.

    Each text of INPUT is rewritten K·m ways, the classifier judges every rewrite, the best m are written to
    DIR/augmented. Killed at any moment, the same command goes on where it was.
    """
    asked = make_config(AugmentConfig, values)
    from epida_ray.stream.augment import augment as run_augment
    from epida_ray.stream.augment import summary

    reporter = Reporter(quiet)
    result = run_augment(asked, reporter)
    for line in summary(result.manifest):
        reporter.say(line)
    reporter.say(f"results: {result.augmented}")


@app.command(cls=Grouped)
@_with_options(TrainConfig, "TRAIN")
def train(
    values: dict[str, Any],
    config: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="YAML file with options by these names; those given here go before."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")] = False,
) -> None:
    """Train a classifier that chooses its own training data while it learns.

    After pre-training on the originals, every round makes fresh candidates, has the newest weights judge them, and
    trains on the originals and the best m. DIR/model is the best round's; the same command resumes a killed run.
    """
    asked = make_config(TrainConfig, values)
    from epida_ray.stream.driver import train as run_train

    reporter = Reporter(quiet)
    result = run_train(asked, reporter)
    reporter.say(f"model: {result.model_dir}")


@app.command()
def evaluate(
    model: Annotated[str, typer.Argument(metavar="MODEL_DIR", help="Directory of a saved model, such as DIR/model.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="Labelled Parquet, CSV, TSV or JSONL.")],
    text_column: Annotated[str, typer.Option(help="Column with the text.")] = "text",
    label_column: Annotated[str, typer.Option(help="Column with the label.")] = "label",
    encoding: Annotated[str, typer.Option(help="Encoding of CSV, TSV and JSONL files.")] = "utf-8",
    trust_code: TrustCode = None,
    max_rejected: Annotated[
        float,
        typer.Option(min=0, max=1, help="Share of rows that may be left out: unreadable, or of an unknown label."),
    ] = 0.2,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Accuracy, macro-F1 and the scores of each class of a model on a labelled file."""
    from epida_ray.method.evaluate import evaluate_model

    result = evaluate_model(model, file, text_column, label_column, encoding, trust_code or (), max_rejected)
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


@app.command()
def predict(
    model: Annotated[str, typer.Argument(metavar="MODEL_DIR", help="Directory of a saved model, such as DIR/model.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="Parquet, CSV, TSV or JSONL; labels are not needed.")],
    output: Annotated[str, typer.Option("--output", "-o", metavar="OUT", help="A file of the same format.")],
    text_column: Annotated[str, typer.Option(help="Column with the text.")] = "text",
    encoding: Annotated[str, typer.Option(help="Encoding of CSV, TSV and JSONL files.")] = "utf-8",
    trust_code: TrustCode = None,
) -> None:
    """What a model says of each text: the rows of FILE with the columns `predicted` and `confidence`."""
    from epida_ray.method.predict import predict as predict_file

    found = predict_file(model, file, output, text_column, encoding, trust_code or (), Reporter())
    missing = f"; {found.without:,} without a text have no prediction" if found.without else ""
    typer.echo(f"{found.rows:,} rows: {output}{missing}")


@app.command()
def preview(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text to rewrite.")],
    generator: Annotated[str, typer.Option(help="What rewrites it; see `epida list generators`.")] = "eda",
    generator_arg: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Argument of the generator. May be repeated.")
    ] = None,
    language: Annotated[str | None, typer.Option(help="Language of the text; by default the generator's.")] = None,
    classifier: Annotated[str | None, typer.Option(metavar="DIR", help="Saved model that judges the rewrites.")] = None,
    trust_code: TrustCode = None,
    label: Annotated[str | None, typer.Option(help="The text's label, needed with --classifier.")] = None,
    m: Annotated[int, typer.Option("-m", min=1, help="Rewrites to keep.")] = 3,
    k: Annotated[int, typer.Option("-k", min=1, help="Amplification: K·m rewrites are made.")] = 3,
    select: Annotated[str, typer.Option(help="How candidates are judged; see `epida list selectors`.")] = "rem+cem",
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same rewrites.")] = 0,
) -> None:
    """What a generator does to a sentence, before anyone starts a large job.

    With a classifier and the label also the scores and the picks.
    """
    from rich.table import Table

    from epida_ray.method.preview import preview as make_preview

    shown = make_preview(
        text, generator=generator, generator_args=dict(_key_value(pair) for pair in generator_arg or ()),
        language=language, classifier=classifier, label=label, m=m, k=k, select=select, seed=seed,
        trust_code=tuple(trust_code or ()),
    )  # fmt: skip
    scored = shown.scores is not None
    table = Table(
        *(["kept"] if scored else []), "candidate", "made by", *(["s_div", "s_qua", "s_tot"] if scored else [])
    )
    for number, (candidate, operation) in enumerate(zip(shown.texts, shown.operations, strict=True)):
        cells = [printable(candidate, 200), printable(operation)]
        if shown.scores is not None:
            cells = ["✓" if number in shown.kept else "", *cells, *(f"{s:.2f}" for s in shown.scores[number])]
        table.add_row(*cells)
    plain_console().print(table)


@app.command("list")
def list_plugins(
    kind: Annotated[str, typer.Argument(metavar="generators|classifiers|selectors", help="What to list.")],
) -> None:
    """What can be named with --generator, --classifier and --select, and what is missing for it."""
    from rich.table import Table

    from epida_ray.classify import CLASSIFIERS
    from epida_ray.generate import GENERATORS
    from epida_ray.select import SELECTORS

    registries = {"generators": GENERATORS, "classifiers": CLASSIFIERS, "selectors": SELECTORS}
    if kind not in registries:
        raise RequestError(f"epida list takes {', '.join(registries)}, not {kind!r}")
    table = Table("name", "what it is", "")
    for row in registries[kind].listing():
        table.add_row(*(printable(cell, 200) for cell in (row.name, row.summary, row.missing or "ready")))
    plain_console().print(table)


@app.command()
def doctor(
    address: Annotated[
        str | None,
        typer.Option(help="Ray to look at: local, auto or HOST:PORT; by default $RAY_ADDRESS, else a local one."),
    ] = None,
) -> None:
    """What is installed, what can be scheduled, what is missing and how to get it."""
    from epida_ray.stream.doctor import examine

    if not examine(address):
        raise typer.Exit(1)


@app.command()
def status(directory: Annotated[str, typer.Argument(metavar="DIR", help="Directory of a run.")]) -> None:
    """How far a run is, while it runs and after."""
    from epida_ray.data.storage import Storage
    from epida_ray.runs.run import read_manifest, status_of
    from epida_ray.stream.augment import summary

    manifest = read_manifest(Storage(directory))
    status = status_of(manifest)
    gone = " (its process is gone; run its command again to resume)" if status != manifest["status"] else ""
    lines = [f"{manifest['kind']}: {status}{gone}, started {manifest['started']}"]
    if problem := manifest.get("problem"):
        lines.append(f"refused: {problem}")
    if manifest["kind"] == "train":
        rounds = max(0, manifest.get("rounds_done", 0) - 1)  # the first is the pre-training
        lines.append(f"{rounds:,} of {manifest['asked']['rounds']:,} rounds")
        if best := manifest.get("best"):
            lines.append(best_round(best["round"], best["macro_f1"]))
        if test := manifest.get("test"):
            lines.append(
                f"test: accuracy {test['accuracy']:.4f}, macro-F1 {test['macro_f1']:.4f} on {test['rows']:,} rows"
            )
    elif "done" in manifest:
        lines.append(f"{manifest['done']['shards']:,} of {manifest['shards']:,} shards")
    if manifest.get("done", {}).get("rows"):
        lines += summary(manifest)
    for line in lines:
        typer.echo(printable(line, MESSAGE))


@app.command()
def export(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Directory of a finished run.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="Ends in .csv, .tsv or .jsonl.")],
    neutralize_formulas: Annotated[
        bool, typer.Option("--neutralize-formulas", help="Put ' before texts that a spreadsheet would calculate.")
    ] = False,
) -> None:
    """Write the rows that a run kept to one file."""
    from epida_ray.runs.export import export as write_export

    rows = write_export(directory, file, neutralize_formulas)
    typer.echo(f"{rows:,} rows: {file}")


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An experiment, or `list` for their names.")],
    data_dir: Annotated[str | None, typer.Option(metavar="D", help="Has DATASET/train.* and test.* in it.")] = None,
    output: Annotated[str | None, typer.Option("--output", "-o", metavar="DIR", help="Tables go to DIR/NAME.")] = None,
    quick: Annotated[bool, typer.Option(help="The shape of the answer in minutes: 2 seeds, little training.")] = False,
    full: Annotated[bool, typer.Option(help="More generators and sizes, in experiments that have them.")] = False,
    seeds: Annotated[int, typer.Option(help="How many seeds, from 0 on.")] = 5,
    protocol: Annotated[str, typer.Option(help="dev, or paper: the best test score, as the authors select.")] = "dev",
    classifier: Annotated[str, typer.Option(help="See `epida list classifiers`.")] = "cnn",
    classifier_arg: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Arguments of the classifier. May be repeated.")
    ] = None,
    generator: Annotated[list[str] | None, typer.Option(help="See `epida list generators`. May be repeated.")] = None,
    generator_arg: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Arguments of the generators. May be repeated.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(metavar="DATASET:SIZE", help="Such as trec:1%, mine:60 or hub:ag_news:60. May be repeated."),
    ] = None,
    text_column: Annotated[str, typer.Option(help="Column with the text.")] = "text",
    label_column: Annotated[str | None, typer.Option(help="Column with the label; else label_name or label.")] = None,
    clean: Annotated[bool, typer.Option(help="Clean the texts as the paper does.")] = False,
    steps: Annotated[int | None, typer.Option(help="Steps of training; by default the classifier's.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="By default the classifier's.")] = None,
    address: Annotated[
        str | None,
        typer.Option(help="Ray to run on: local, auto or HOST:PORT; by default $RAY_ADDRESS, else a local one."),
    ] = None,
    stall_timeout: Annotated[
        float, typer.Option(min=1, help="Longest wait, in seconds, for a trial to end before the command gives up.")
    ] = 7200,
) -> None:
    """One table or figure of the paper, on its data or on your own, with the paper's numbers beside it."""
    from epida_ray.experiments.catalogue import EXPERIMENTS, make_options

    if name == "list":
        for experiment in EXPERIMENTS.values():
            typer.echo(f"{experiment.name:15} {experiment.title}")
        return
    from_hub = bool(setting) and all(one.startswith("hub:") for one in setting or ())
    if output is None or (data_dir is None and not from_hub):
        raise RequestError("--output DIR is needed, and --data-dir D unless every --setting is hub:NAME:SIZE")
    options = make_options(
        seeds=seeds, quick=quick, full=full, protocol=protocol, classifier=classifier, generators=generator or (),
        settings=setting or (), clean=clean, steps=steps, learning_rate=learning_rate,
        text_column=text_column, label_column=label_column,
        classifier_args=dict(_key_value(pair) for pair in classifier_arg or ()),
        generator_args=dict(_key_value(pair) for pair in generator_arg or ()),
    )  # fmt: skip
    from epida_ray.data.storage import Storage
    from epida_ray.experiments.reproduce import reproduce as run_experiment

    folder = run_experiment(
        name, data_dir or "", output, options, address=address, reporter=Reporter(), stall_timeout=stall_timeout
    )
    typer.echo(Storage(folder).read("table.md").decode())
    typer.echo(f"results: {folder}; `epida report {folder}` shows them in a browser")


@app.command()
def report(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Directory of a run.")],
    trust_code: TrustCode = None,
) -> None:
    """Write DIR/report.html, which shows a run of augment, train or reproduce without a network."""
    from epida_ray.experiments.report import write_report

    typer.echo(write_report(directory, trust_code or ()))


@app.command()
def demo(
    output: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="Where the files go.")] = "epida-demo",
) -> None:
    """The whole story in a minute or two on a bundled corpus of support requests."""
    from epida_ray.experiments.demo import run_demo

    run_demo(output)


INTERRUPTED = 130
"""What Typer answers when Ctrl-C ends a command."""
_USAGE_ERRORS = typer.BadParameter.__mro__[1:3]
"""UsageError and ClickException of whichever click Typer was built with."""


def fail(message: str, status: int) -> NoReturn:
    print(printable(f"epida: {message}", MESSAGE), file=sys.stderr)
    if any(thread.name.startswith(("StreamingExecutor", "epida-train")) for thread in threading.enumerate()):
        # A thread of Ray Data that outlives its Ray, or one that is in the middle of a step of torch's, may crash the
        # interpreter while it ends.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    raise SystemExit(status)


def main() -> None:
    """Entry point: a wrong request is one line and status 2, a failed run one line and status 1."""
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")  # else a thread that outlives its Ray would start another
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    try:
        status = app(standalone_mode=False)
    except EpidaError as error:
        fail(str(error), error.exit_status)
    except (KeyboardInterrupt, typer.Abort):
        fail("interrupted", 1)
    except BrokenPipeError:
        status = 1
    except Exception as error:
        usage: Any = error
        if not isinstance(error, _USAGE_ERRORS):
            raise
        command = usage.ctx.command_path if getattr(usage, "ctx", None) else "epida"
        fail(f"{usage.format_message().rstrip('.')}; `{command} --help` shows how", 2)
    if status == INTERRUPTED:
        fail("interrupted", 1)
    raise SystemExit(status)


if __name__ == "__main__":
    main()
