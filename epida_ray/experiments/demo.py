"""`epida demo`: augment a bundled corpus, train with and without the rewrites, and compare."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from epida_ray.classify import CLASSIFIERS
from epida_ray.core.errors import RequestError, RunError
from epida_ray.core.progress import Reporter, plain_console, printable
from epida_ray.data.writer import csv_text
from epida_ray.experiments.datasets import Dataset, load_files, subset
from epida_ray.experiments.statistics import paired_difference
from epida_ray.experiments.trials import NONE, Method, Trial, run_trial
from epida_ray.method.requests import AugmentRequest
from epida_ray.method.results import summary
from epida_ray.method.trainer import LabelledRows
from epida_ray.stream.augment import augment
from epida_ray.stream.cluster import connected
from epida_ray.stream.tasks import run_tasks, share

SEEDS = 5
SIZE = "10%"
TRIAL_LIMIT = 600.0
UNLABELLED = 600
BASELINE = "CNN, the labelled requests only"
"""What the others are compared with."""


def methods() -> list[Method]:
    """Return what the demo compares; the encoder only where it is installed."""
    frozen = replace(NONE, name="sentence encoder", classifier="encoder")
    without = [
        replace(NONE, name=BASELINE),
        Method("CNN + random EDA rewrites", select="random"),
        Method("CNN + EDA rewrites chosen by EPiDA"),
    ]
    if any(row.name == "encoder" and row.missing for row in CLASSIFIERS.listing()):
        return without
    return [
        *without,
        replace(
            NONE, name=f"CNN + {UNLABELLED} unlabelled requests, labelled by the encoder", teacher=frozen,
            unlabelled=UNLABELLED,
        ),
        frozen,
        replace(frozen, name=f"sentence encoder + {UNLABELLED} unlabelled requests", unlabelled=UNLABELLED),
    ]  # fmt: skip


def run_demo(output: str) -> None:
    """Run the demo, print its story and leave its files in the directory `output`."""
    console, reporter, target = plain_console(), Reporter(), Path(output)
    folder = Path(__file__).parent / "support_desk"
    data = load_files("support", {split: folder / f"{split}.csv" for split in ("train", "test")})
    rows = data.train.take(np.sort(subset(data.train.y, SIZE, 0)))
    if (target / "run" / "manifest.json").exists():
        raise RequestError(f"{output} holds an earlier demo; delete it or choose another --output")
    if target.is_dir() and any(target.iterdir()):
        raise RequestError(f"{output} is not empty; choose another --output")
    target.mkdir(parents=True, exist_ok=True)
    _write_csv(target / "labelled.csv", rows, data.labels)
    (target / "test.csv").write_bytes((folder / "test.csv").read_bytes())

    console.print(
        f"\nA support desk has {len(rows)} labelled requests ({', '.join(data.labels)}), {UNLABELLED} unlabelled ones, "
        "and wants a classifier.\n"
        f"Step 1: rewrite each request 9 ways, let a classifier judge the rewrites, and keep the best 3.\n"
    )
    request = AugmentRequest(
        input=str(target / "labelled.csv"), output=str(target / "run"), candidates=True, with_originals=True
    )
    with connected(None, reporter):
        result = augment(request, reporter)
        for line in summary(result.manifest):
            reporter.say(line)
        _show_examples(console, target / "run")
        console.print(
            f"Step 2: what helps? Train with {SEEDS} seeds, each with other {len(rows)} labelled requests, and "
            f"test on {len(data.test)} others.\n"
        )
        scores = _compare(data, reporter)
    _show_scores(console, scores)
    console.print(
        f"Files: {target}/labelled.csv (the input), {target}/run/augmented (the kept rewrites),\n"
        f"{target}/run/candidates (all rewrites with their scores), {target}/run/model (the classifier).\n\n"
        "Next, with your own file that has the columns text and label:\n"
        "  epida train my.csv --unlabelled my-pool.csv --output my-model\n"
        "  epida augment my.csv --output my-run\n"
        f"  epida report {target}/run"
    )


def _write_csv(path: Path, rows: LabelledRows, labels: tuple[str, ...]) -> None:
    body = ((text, labels[y]) for text, y in zip(rows.texts, rows.y.tolist(), strict=True))
    path.write_text(csv_text([("text", "label"), *body]), encoding="utf-8", newline="")


def _compare(data: Dataset, reporter: Reporter) -> dict[str, list[float]]:
    """Return macro-F1 on the test set by method, seed after seed."""
    compared = methods()
    trials = [Trial(data.name, SIZE, seed, method) for seed in range(SEEDS) for method in compared]
    shared = share(data)
    tasks = {f"{t.method.name}, seed {t.seed}": (t, shared) for t in trials}
    scores: dict[str, float] = {}
    with reporter.track("train and test", len(trials), unit="trials") as tracker:
        for key, result, failure in run_tasks(run_trial, tasks, what="trial", stall_timeout=TRIAL_LIMIT):
            if failure is not None:
                raise RunError(f"the trial of {key} failed: {failure}")
            scores[key] = result["macro_f1"]
            tracker.update(len(scores))
    return {method.name: [scores[f"{method.name}, seed {seed}"] for seed in range(SEEDS)] for method in compared}


def _show_scores(console: Console, scores: dict[str, list[float]]) -> None:
    table = Table("what it learns from", "macro-F1 (mean ± sd)", "compared with the first row")
    for name, values in scores.items():
        compared = "" if name == BASELINE else _difference(values, scores[BASELINE])
        table.add_row(name, f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}", compared)
    console.print(table)
    console.print(
        "Differences are paired by seed and have a 95% confidence interval. An interval that contains 0 shows no clear "
        "difference.\n"
    )


def _difference(values: list[float], baseline: list[float]) -> str:
    found = paired_difference(values, baseline)
    return f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]\n{found.verdict}"


def _show_examples(console: Console, run: Path, samples: int = 2) -> None:
    """Print all candidates of a few samples, best first, as in the paper's example tables."""
    by_sample: dict[str, list[dict[str, Any]]] = {}
    for row in pq.read_table(run / "candidates").to_pylist():
        by_sample.setdefault(row["sample_id"], []).append(row)
    for candidates in list(by_sample.values())[:samples]:
        first = candidates[0]
        table = Table("", "candidate", "made by", "s_div", "s_qua", "s_tot", title_justify="left")
        table.title = f"{printable(first['source_text'])}  [{first['label']}]"
        for row in sorted(candidates, key=lambda r: -r["s_tot"]):
            numbers = (f"{row[name]:.2f}" for name in ("s_div", "s_qua", "s_tot"))
            table.add_row("✓" if row["kept"] else "", printable(row["text"]), printable(row["operation"]), *numbers)
        console.print(table)
    console.print("s_div: how much it surprises the classifier. s_qua: how sure the classifier is. ✓: kept.\n")
