"""`epida demo`: the whole story on a bundled corpus, in a minute or two."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import ray
from ray.exceptions import RayError
from rich.console import Console
from rich.table import Table

from epida_ray.core.errors import RequestError, RunError
from epida_ray.core.progress import Reporter, plain_console, printable
from epida_ray.experiments.datasets import Dataset, load_files, subset
from epida_ray.experiments.tables import Difference, paired_difference
from epida_ray.experiments.trials import NONE, Budget, Method, Trial, run_trial
from epida_ray.method.requests import AugmentConfig
from epida_ray.stream.augment import augment, summary
from epida_ray.stream.cluster import connected
from epida_ray.stream.pipeline import cause

SEEDS = 5
SIZE = "10%"
TRIAL_LIMIT = 600.0
METHODS = (
    NONE,
    Method("random EDA", select="random"),
    Method("EPiDA with EDA"),
)


def run_demo(output: str) -> None:
    console = plain_console()
    reporter = Reporter()
    folder = Path(__file__).parent / "support_desk"
    data = load_files("support", {s: folder / f"{s}.csv" for s in ("train", "test")})
    rows = subset(data.train.labels, SIZE, 0)
    target = Path(output)
    if (target / "run" / "manifest.json").exists():
        raise RequestError(f"{output} holds an earlier demo; delete it or choose another --output")
    if target.is_dir() and any(target.iterdir()):
        raise RequestError(f"{output} is not empty; choose another --output")
    target.mkdir(parents=True, exist_ok=True)
    _write_csv(target / "labelled.csv", data, rows)
    (target / "test.csv").write_bytes((folder / "test.csv").read_bytes())

    console.print(
        f"\nA support desk has {len(rows)} labelled requests ({', '.join(data.labels)}) and wants a classifier.\n"
        f"Step 1: rewrite each request 9 ways, let a classifier judge the rewrites, keep the best 3.\n"
    )
    config = AugmentConfig(
        input=str(target / "labelled.csv"), output=str(target / "run"), candidates=True, with_originals=True
    )
    with connected(None, reporter):
        result = augment(config, reporter)
        for line in summary(result.manifest):
            reporter.say(line)
        _show_examples(console, target / "run")
        console.print(
            f"Step 2: does it help? {SEEDS} seeds, each with other {len(rows)} requests; tested on {len(data.test)}.\n"
        )
        scores = _compare(data, reporter)
    _show_scores(console, scores)
    console.print(
        f"The files: {target}/labelled.csv (what was put in), {target}/run/augmented (what came out),\n"
        f"{target}/run/candidates (everything that was judged), {target}/run/model (the classifier that judged).\n\n"
        "Next, on a file of your own with the columns text and label:\n"
        "  epida augment my.csv --output my-run\n"
        "  epida train my.csv --output my-model\n"
        f"  epida report {target}/run"
    )


def _write_csv(path: Path, data: Dataset, rows: np.ndarray) -> None:
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["text", "label"])
    part = data.train.take(rows)
    writer.writerows((text, data.labels[y]) for text, y in zip(part.texts, part.labels.tolist(), strict=True))
    path.write_text(out.getvalue(), encoding="utf-8")


def _compare(data: Dataset, reporter: Reporter) -> dict[str, list[float]]:
    """Macro-F1 on the test set by method, seed after seed; trials run side by side as Ray tasks."""
    budget = Budget()
    trials = [Trial(data.name, SIZE, seed, method, budget=budget) for seed in range(SEEDS) for method in METHODS]
    remote = ray.remote(num_cpus=1, max_retries=2)(_trial)
    shared = ray.put(data)
    pending = {remote.remote(trial, shared): trial for trial in trials}
    scores: dict[tuple[str, int], float] = {}
    with reporter.track("train and test", len(trials), unit="trials") as tracker:
        while pending:
            ready, _ = ray.wait(list(pending), timeout=TRIAL_LIMIT)
            if not ready:
                raise RunError(f"no trial ended within {TRIAL_LIMIT:.0f} s; {len(pending)} are left")
            for reference in ready:
                trial = pending.pop(reference)
                try:
                    scores[trial.method.name, trial.seed] = ray.get(reference, timeout=60)
                except RayError as error:
                    raise RunError(f"a trial failed: {cause(error)}") from error
                tracker.update(len(scores))
    return {method.name: [scores[method.name, seed] for seed in range(SEEDS)] for method in METHODS}


def _trial(trial: Trial, data: Dataset) -> float:
    return float(run_trial(trial, data)["macro_f1"])


def _show_scores(console: Console, scores: dict[str, list[float]]) -> None:
    table = Table("training data", "macro-F1 (mean ± sd)", "against none", "against random EDA", title=None)
    for name, values in scores.items():
        cells = [f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"]
        for baseline in ("none", "random EDA"):
            cells.append("" if name in ("none", baseline) else _difference(paired_difference(values, scores[baseline])))
        table.add_row(f"originals + {name}" if name != "none" else "originals only", *cells)
    console.print(table)
    console.print(
        "Differences are paired over the seeds, with a 95% bootstrap interval; one that contains 0 is noise.\n"
    )


def _difference(difference: Difference) -> str:
    return f"{difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]\n{difference.verdict}"


def _show_examples(console: Console, run: Path, samples: int = 2) -> None:
    """All candidates of a few samples, best first, as in the paper's example tables."""
    rows = pq.read_table(run / "candidates").to_pylist()
    by_sample: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
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
