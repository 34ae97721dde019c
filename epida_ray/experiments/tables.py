"""What an experiment found: results.csv, a Markdown table beside the paper's numbers, a plot."""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from epida_ray.data.storage import Storage
from epida_ray.experiments.catalogue import Column, Experiment, Options
from epida_ray.experiments.trials import Trial

BASELINES = ("none", "random ", "1: none", "2: DA", "3: DA, online")
"""How the names of methods begin that others are compared with."""
RESAMPLES = 10_000
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Two-sided 95% points of Student's t for 1, 2, … degrees of freedom."""
FEW = 5
"""With fewer seeds than this an interval says nothing."""
PROTOCOLS = {
    "dev": "the epoch is chosen on a dev split of the subset; the test set is used once",
    "paper": "PAPER PROTOCOL: the best test score of all epochs (by macro-F1), as the authors' code selects; not an "
    "estimate of what a user will see",
}
OWN_DEV = "the epoch is chosen on the data set's own dev split, cut to the same size; the test set is used once"
COVERAGE = (
    "The intervals are of the seeds, not of the test set. In simulations with normal differences they miss the truth "
    "in about 9% of cases with 5 seeds, 7% with 8 and 5% from 10 on. Nothing is corrected for many comparisons."
)
COLORS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f", "#ff9da7", "#bab0ac")


DEFAULTS = Options()


class Row(NamedTuple):
    trial: Trial
    result: dict[str, Any]


class Difference(NamedTuple):
    """Of two methods over paired seeds, with a 95% bootstrap interval."""

    mean: float
    low: float
    high: float
    seeds: int

    @property
    def verdict(self) -> str:
        if self.seeds < FEW:
            return "too few seeds to tell"
        if self.low <= 0.0 <= self.high:
            return "inside the noise"
        return "better" if self.mean > 0 else "worse"

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}] {self.verdict}"


def paired_difference(a: Sequence[float], b: Sequence[float]) -> Difference:
    """a − b, resampled over the seeds.

    The plain percentile interval of five numbers covers the truth too rarely, so its quantiles are moved outward until,
    for normal differences, it is as wide as Student's (the expanded percentile interval of Hesterberg 2015).
    """
    differences = np.asarray(a, float) - np.asarray(b, float)
    n = len(differences)
    draws = np.random.default_rng(0).integers(n, size=(RESAMPLES, n))
    reach = math.sqrt(n / (n - 1)) * STUDENT[min(n - 1, len(STUDENT)) - 1]
    tail = 0.5 * math.erfc(reach / math.sqrt(2))
    low, high = np.quantile(differences[draws].mean(axis=1), [tail, 1 - tail])
    return Difference(float(differences.mean()), float(low), float(high), n)


class Results:
    """Trials by method and column."""

    def __init__(self, experiment: Experiment, rows: Sequence[Row]) -> None:
        self.experiment = experiment
        self.methods = list(dict.fromkeys(r.trial.method.name for r in rows))
        self.columns: list[Column] = list(dict.fromkeys((r.trial.dataset, r.trial.size) for r in rows))
        self._generator = {r.trial.method.name: r.trial.method.generator for r in rows}
        self._cells: dict[tuple[str, Column], dict[int, dict[str, Any]]] = defaultdict(dict)
        for trial, result in rows:
            self._cells[trial.method.name, (trial.dataset, trial.size)][trial.seed] = result
        self.seeds = len({r.trial.seed for r in rows})
        self.protocol = rows[0].trial.protocol

    def values(self, method: str, column: Column, metric: str) -> dict[int, float]:
        """By seed."""
        return {s: r[metric] for s, r in self._cells[method, column].items() if metric in r}

    def difference(self, method: str, baseline: str, column: Column, metric: str) -> Difference | None:
        a, b = self.values(method, column, metric), self.values(baseline, column, metric)
        seeds = sorted(a.keys() & b.keys())
        return paired_difference([a[s] for s in seeds], [b[s] for s in seeds]) if len(seeds) > 1 else None

    def mean_difference(self, method: str, baseline: str, metric: str) -> str:
        """Over the columns, each of which counts as one observation."""
        found = [self.difference(method, baseline, column, metric) for column in self.columns]
        means = [d.mean for d in found if d is not None]
        if len(means) < 2:
            return ""
        return f"{np.mean(means):+.3f} ± {np.std(means, ddof=1) / math.sqrt(len(means)):.3f}"

    def comparisons(self) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """What is compared with what: a name, and pairs of a method and its baseline.

        All with no augmentation and with chance; where several generators were used, also each with its own chance.
        """
        baselines = [m for m in self.methods if m.startswith(BASELINES)]
        chance = {self._generator[m]: m for m in baselines if m.startswith("random ")}
        common = [m for m in baselines if m not in list(chance.values())[1:]]
        for baseline in common:
            yield baseline, [(m, baseline) for m in self.methods if m not in (baseline, "none", "1: none")]
        if len(chance) > 1:
            own = {m: chance.get(self._generator[m], m) for m in self.methods}
            yield "rewrites by chance of the same generator", [(m, b) for m, b in own.items() if m != b]


def write_results(
    experiment: Experiment, rows: Sequence[Row], storage: Storage, left_out: dict[str, str],
    options: Options = DEFAULTS, classifier: str = "", data_notes: Sequence[str] = (),
) -> None:  # fmt: skip
    """Into the folder named after the experiment."""
    results = Results(experiment, rows)
    text = markdown(results, rows[0].trial, left_out, options, classifier, data_notes)
    storage.write(f"{experiment.name}/results.csv", csv_text(rows).encode())
    storage.write(f"{experiment.name}/table.md", text.encode())
    one_set = len({dataset for dataset, _ in results.columns}) == 1
    percents = all(size.endswith("%") for _, size in results.columns)
    draw = line_plot if experiment.lines and percents and one_set else dot_plot
    storage.write(f"{experiment.name}/plot.svg", draw(results).encode())


def csv_text(rows: Sequence[Row]) -> str:
    columns = [
        "dataset",
        "size",
        "method",
        "classifier",
        "protocol",
        "seed",
        "rows",
        "dev_rows",
        "macro_f1",
        "accuracy",
    ]
    columns += [
        "selected_on",
        "epoch",
        "kept",
        "flips",
        "mirror",
        "extreme",
        "ppl",
        "error",
        "distance",
        "kept_per_second",
        "seconds",
    ]
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for trial, result in rows:
        named = {c: getattr(trial, c) for c in ("dataset", "size", "classifier", "protocol", "seed")}
        writer.writerow(result | named | {"method": trial.method.name})
    return out.getvalue()


def markdown(
    results: Results, example: Trial, left_out: dict[str, str], options: Options = DEFAULTS, classifier: str = "",
    data_notes: Sequence[str] = (),
) -> str:  # fmt: skip
    e = results.experiment
    seeds = sorted({s for m in results.methods for c in results.columns for s in results.values(m, c, e.metric)})
    lines = [f"# {e.name}: {e.title}", ""]
    own_dev = e.use_dev_split and example.protocol == "dev"
    lines += [
        f"Classifier: {classifier or example.classifier}. Seeds {', '.join(map(str, seeds))}: "
        f"{OWN_DEV if own_dev else PROTOCOLS[example.protocol]}.",
        "",
        _how(example, options),
        "",
    ]
    lines += _means(results, e.metric, e.paper)
    for metric in ("accuracy" if e.metric == "macro_f1" else "macro_f1", *e.extra):
        lines += ["", *_means(results, metric, {})]
    for name, pairs in results.comparisons():
        if pairs:
            lines += [
                "",
                f"## {_shown(e.metric)}: difference to {name}, paired by seed, with 95% bootstrap interval",
                "",
            ]
            lines += _table(
                ["method", *map(_title, results.columns), "mean of the settings ± standard error"],
                [
                    [
                        m,
                        *(str(results.difference(m, baseline, c, e.metric) or "") for c in results.columns),
                        results.mean_difference(m, baseline, e.metric),
                    ]
                    for m, baseline in pairs
                ],
            )
    others_paper = [f"The paper's numbers are of {e.paper_of}."] if e.paper and example.classifier != e.paper_of else []
    notes = [COVERAGE, *others_paper, *e.notes, *data_notes]
    notes += [f"{method} was left out: {reason}" for method, reason in left_out.items()]
    lines += ["", "## Notes", "", *(f"- {note}" for note in notes)]
    return "\n".join(lines) + "\n"


def _how(example: Trial, options: Options) -> str:
    """The budget, and each option that is not the default."""
    budget = example.budget
    rate = "" if budget.learning_rate is None else f", learning rate {budget.learning_rate:g}"
    length = (
        f"About {budget.steps:,} steps of {budget.batch_size} originals, {budget.least} to {budget.most} epochs, "
        f"{budget.rounds} rounds{rate}."
    )
    said = ["--quick: the shape of the answer only, with little training"] * options.quick
    said += ["--clean"] * options.clean
    said += [f"--classifier-arg {k}={v}" for k, v in options.classifier_args.items()]
    said += [f"--generator-arg {k}={v}" for k, v in options.generator_args.items()]
    return length + (f" Options: {'; '.join(said)}." if said else "")


def _shown(metric: str) -> str:
    names = {"macro_f1": "macro-F1", "ppl": "perplexity", "kept_per_second": "kept samples a second"}
    return names.get(metric, metric)


def _title(column: Column) -> str:
    return " ".join(column)


def _means(results: Results, metric: str, paper: dict[tuple[str, Column], float]) -> list[str]:
    body = []
    for method in results.methods:
        cells = [method]
        for column in results.columns:
            values = list(results.values(method, column, metric).values())
            cell = f"{np.mean(values):.3f}" if values else ""
            cell += f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
            cell += f" ({len(values)} of {results.seeds} seeds)" if 0 < len(values) < results.seeds else ""
            kind = method.partition(":")[0]  # the paper names TextAttack, not its recipes
            if (said := paper.get((method, column), paper.get((kind, column)))) is not None:
                cell += f" (paper {said:.3f})"
            cells.append(cell)
        body.append(cells)
    return [
        f"## {_shown(metric)}, mean ± standard deviation",
        "",
        *_table(["method", *map(_title, results.columns)], body),
    ]


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *body)]


def dot_plot(results: Results) -> str:
    """A panel per column: each method's mean and seeds."""
    metric = results.experiment.plotted or results.experiment.metric
    left, width, line = 250, 320, 20
    height = 34 + line * len(results.methods)
    panels = []
    for n, column in enumerate(results.columns):
        cells = {m: list(results.values(m, column, metric).values()) for m in results.methods}
        points = [v for values in cells.values() for v in values]
        if not points:
            continue
        low, high = min(points), max(points)
        span = (high - low) or 1.0
        top = n * height
        panels.append(f'<text x="{left}" y="{top + 18}" font-weight="bold">{escape(_title(column))}</text>')
        for i, (method, values) in enumerate(cells.items()):
            y = top + 38 + line * i
            color = COLORS[i % len(COLORS)]
            panels.append(f'<text x="{left - 10}" y="{y + 4}" text-anchor="end">{escape(method)}</text>')
            if not values:
                continue
            x = [left + (v - low) / span * width for v in values]
            panels += [f'<circle cx="{v:.1f}" cy="{y}" r="2.5" fill="{color}" fill-opacity=".5"/>' for v in x]
            panels.append(f'<path d="M{np.mean(x):.1f} {y - 7}v14" stroke="{color}" stroke-width="3"/>')
            panels.append(f'<text x="{left + width + 12}" y="{y + 4}">{np.mean(values):.3f}</text>')
    return _svg(
        left + width + 80, height * len(results.columns) + 10, f"{_plot_title(results)}: {_shown(metric)}", panels
    )


def line_plot(results: Results) -> str:
    """The metric over the columns, a line per method; the paper's in dashes."""
    e, width, height, left, top = results.experiment, 520, 320, 60, 30
    xs = [float(size.rstrip("%")) for _, size in results.columns]
    largest = max(xs)
    points = [v for m in results.methods for c in results.columns for v in results.values(m, c, e.metric).values()]
    low = min([0.3, *(np.floor(v * 10) / 10 for v in points)])
    marks = [f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#bbb"/>']

    def at(x: float, y: float) -> str:
        return f"{left + x / largest * width:.1f} {top + (1 - (y - low) / (1 - low)) * height:.1f}"

    for tick in (0.4, 0.6, 0.8, 1.0):
        marks.append(f'<path d="M{at(0, tick)}h{width}" stroke="#ddd"/>')
        marks.append(f'<text x="{left - 8}" y="{at(0, tick).split()[1]}" text-anchor="end">{tick}</text>')
    for tick in xs:
        marks.append(
            f'<text x="{at(tick, low).split()[0]}" y="{top + height + 16}" text-anchor="middle">{tick:g}</text>'
        )
    for i, method in enumerate(results.methods):
        color = COLORS[i % len(COLORS)]
        found = [
            (x, list(results.values(method, c, e.metric).values())) for x, c in zip(xs, results.columns, strict=True)
        ]
        ours = [at(x, float(np.mean(v))) for x, v in found if v]
        said = [at(x, e.paper[method, c]) for x, c in zip(xs, results.columns, strict=True) if (method, c) in e.paper]
        marks.append(f'<path d="M{"L".join(ours)}" fill="none" stroke="{color}" stroke-width="2"/>')
        if said:
            marks.append(f'<path d="M{"L".join(said)}" fill="none" stroke="{color}" stroke-dasharray="4 3"/>')
        y = top + height - 16 * (len(results.methods) - i)
        marks.append(f'<text x="{left + width - 10}" y="{y}" text-anchor="end" fill="{color}">{escape(method)}</text>')
    return _svg(left + width + 20, top + height + 30, f"{_plot_title(results)} (dashed: the paper)", marks)


def _plot_title(results: Results) -> str:
    return ("PAPER PROTOCOL: " if results.protocol == "paper" else "") + results.experiment.title


def _svg(width: int, height: int, title: str, marks: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -24 {width} {height + 24}" width="{width}" '
    head += 'font-family="sans-serif" font-size="12">'
    return "\n".join([head, f'<text x="10" y="-8" font-size="14">{escape(title)}</text>', *marks, "</svg>\n"])
