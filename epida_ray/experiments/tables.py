"""The Markdown page of an experiment: measured means beside the paper's numbers, and differences to the baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from epida_ray.experiments.options import Options
from epida_ray.experiments.paper import Numbers
from epida_ray.experiments.results import OF_PAPER, Results, shown, title
from epida_ray.experiments.statistics import COVERAGE

PROTOCOLS = {
    "dev": "the best round is chosen on a dev split of the subset; the test set is used once",
    "paper": "PAPER PROTOCOL: the best round is chosen on the test set, as the authors' code does; this is not an "
    "estimate of what a user will see",
}
OWN_DEV = "the best round is chosen on the data set's own dev split, cut to the same size; the test set is used once"


def markdown(
    results: Results, options: Options, *, classifier: str = "", failures: Mapping[str, str] | None = None,
    data_notes: Sequence[str] = (),
) -> str:  # fmt: skip
    """Return the page. `failures` has the methods that could not run, with the reasons."""
    experiment, example = results.experiment, results.example
    protocol = OWN_DEV if experiment.use_dev_split and example.protocol == "dev" else PROTOCOLS[example.protocol]
    lines = [
        f"# {experiment.name}: {experiment.title}",
        "",
        f"Classifier: {classifier or example.classifier}. Seeds {', '.join(map(str, results.seeds))}: {protocol}.",
        "",
        _training(results, options),
        "",
        *_means(results, experiment.metric, experiment.paper),
    ]
    extra = [name for name in experiment.extra if results.own_settings or name not in OF_PAPER]
    for metric in ("accuracy" if experiment.metric == "macro_f1" else "macro_f1", *extra):
        lines += ["", *_means(results, metric, {})]
    for baseline, pairs in results.comparisons():
        if pairs:
            lines += ["", *_differences(results, baseline, pairs)]
    notes = [COVERAGE]
    if results.own_settings:
        if experiment.paper and example.classifier != experiment.paper_of:
            notes.append(f"The paper's numbers are for {experiment.paper_of}.")
        notes += experiment.paper_notes
    notes += [*experiment.notes, *data_notes]
    notes += [f"{method} failed: {reason}" for method, reason in (failures or {}).items()]
    return "\n".join([*lines, "", "## Notes", "", *(f"- {note}" for note in notes)]) + "\n"


def _training(results: Results, options: Options) -> str:
    """Say how long the trials train, and which options are not the default."""
    example = results.example
    steps = "the classifier's default number of steps" if example.steps is None else f"at most {example.steps:,} steps"
    rate = "" if example.learning_rate is None else f", learning rate {example.learning_rate:g}"
    changed = ["--quick: short training, which shows the shape of the result only"] * options.quick
    changed += ["--clean"] * options.clean
    changed += [f"--classifier-arg {k}={v}" for k, v in options.classifier_args.items()]
    changed += [f"--generator-arg {k}={v}" for k, v in options.generator_args.items()]
    named = f" Options: {'; '.join(changed)}." if changed else ""
    return f"Training: pre-training and {example.rounds} rounds, {steps}{rate}; as `epida train` does it.{named}"


def _means(results: Results, metric: str, paper: Numbers) -> list[str]:
    body = []
    for method in results.methods:
        cells = [method]
        for setting in results.settings:
            values = results.values(method, setting, metric)
            cell = f"{np.mean(values):.3f}" if values else ""
            cell += f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
            cell += f" ({len(values)} of {len(results.seeds)} seeds)" if 0 < len(values) < len(results.seeds) else ""
            family = method.partition(":")[0]  # the paper names TextAttack, not its recipes
            if (number := paper.get((method, setting), paper.get((family, setting)))) is not None:
                cell += f" (paper {number:.3f})"
            cells.append(cell)
        body.append(cells)
    head = ["method", *map(title, results.settings)]
    return [f"## {shown(metric)}, mean ± standard deviation", "", *_table(head, body)]


def _differences(results: Results, baseline: str, pairs: Sequence[tuple[str, str]]) -> list[str]:
    metric = results.experiment.metric
    head = ["method", *map(title, results.settings), "mean over the settings ± standard error"]
    body = [
        [
            method,
            *(str(results.difference(method, other, setting, metric) or "") for setting in results.settings),
            results.mean_difference(method, other, metric),
        ]
        for method, other in pairs
    ]
    heading = f"## {shown(metric)}: difference to {baseline}, paired by seed, with 95% confidence interval"
    return [heading, "", *_table(head, body)]


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *body)]
