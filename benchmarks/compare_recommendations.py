"""How good are the recommendations of `epida compare`? Against the best recipe by hindsight, on public settings.

    python benchmarks/compare_recommendations.py --data-dir DATA --output DIR --time 600

For each setting: the rows of the subset are TRAIN, 1,500 other rows of the training split are the pool. `epida compare`
recommends; then every recipe is trained on all rows and tested. Both are kept in DIR, so the same command resumes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from epida_ray.core.metrics import macro_f1
from epida_ray.core.progress import Reporter
from epida_ray.experiments.compare import CompareOptions, compare, read_data
from epida_ray.experiments.compare_folds import Data, train_recipe
from epida_ray.experiments.compare_recipes import Recipe, default_recipes
from epida_ray.experiments.datasets import load_dataset, subset
from epida_ray.method.trainer import LabelledRows
from epida_ray.stream.cluster import connected
from epida_ray.stream.tasks import run_tasks, share

SETTINGS = (
    "trec:1%", "cr:5%", "sst2:1%", "subj:1%", "trec:10%", "irony:1%", "irony:10%", "agnews:60", "agnews:120",
    "sentiment:1%",
)  # fmt: skip
POOL = 1500
WORSE = 0.01
"""A recommendation that is behind the simplest recipe by more is a bad one."""


def write_files(setting: str, data_dir: str, folder: Path) -> LabelledRows:
    """Write train and pool files of a setting; return its test rows."""
    name, size = setting.split(":")
    data = load_dataset(name, data_dir)
    chosen = np.sort(subset(data.train.y, size, 0))
    others = np.setdiff1d(np.arange(len(data.train)), chosen)
    train, pool = data.train.take(chosen), data.train.take(np.sort(np.random.default_rng(0).permutation(others)[:POOL]))
    folder.mkdir(parents=True, exist_ok=True)
    labels = [data.labels[c] for c in train.y]
    pq.write_table(pa.table({"text": train.texts, "label": labels}), folder / "train.parquet")
    pq.write_table(pa.table({"text": pool.texts}), folder / "pool.parquet")
    return data.test


def tested(recipe: Recipe, data: Data, test: LabelledRows, seed: int) -> float:
    model = train_recipe(recipe, data, np.arange(len(data.rows)), seed)
    return macro_f1(len(data.labels), test.y, model.predict_proba(test.texts).argmax(axis=1))


def hindsight(data: Data, test: LabelledRows, seeds: int, file: Path) -> dict[str, float]:
    """Return the mean test macro-F1 of every recipe."""
    if not file.exists():
        rows, tests = share(data), share(test)
        recipes = default_recipes(data.rows.y, pool=True)
        tasks = {f"{r.name}\0{seed}": (r, rows, tests, seed) for seed in range(seeds) for r in recipes}
        found: dict[str, list[float]] = {}
        for key, value, failure in run_tasks(tested, tasks, what="trial", stall_timeout=7200):
            if failure is not None:
                raise SystemExit(f"{key}: {failure}")
            found.setdefault(key.split("\0")[0], []).append(value)
        file.write_text(json.dumps({name: float(np.mean(values)) for name, values in found.items()}, indent=1))
    return json.loads(file.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--time", type=float, default=600.0, help="seconds for each comparison")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each recipe on the test set")
    parser.add_argument("--setting", action="append", help="DATASET:SIZE; may be repeated")
    given = parser.parse_args()
    behind, above, worse = [], [], []
    print(f"{'setting':12} {'recommended':42} {'its F1':>7} {'best':>7} {'linear':>7} {'cnn':>7}  best recipe")
    with connected(None):
        for setting in given.setting or SETTINGS:
            folder = given.output / setting.replace(":", "-").rstrip("%")
            test = write_files(setting, given.data_dir, folder)
            options = CompareOptions(
                str(folder / "train.parquet"), str(folder / "compared"), unlabelled=str(folder / "pool.parquet"),
                time=given.time, allow_rare=True,
            )  # fmt: skip
            recommended = compare(options, Reporter()).recommended
            scores = hindsight(read_data(options, Reporter()), test, given.seeds, folder / "hindsight.json")
            best = max(scores, key=lambda name: scores[name])
            got = scores[recommended or "linear"]  # who is told that nothing can be learned has the simplest
            behind.append(scores[best] - got)
            above.append(got - scores["cnn"])
            if got < scores["linear"] - WORSE:
                worse.append(setting)
            print(
                f"{setting:12} {recommended or 'nothing':42} {got:7.3f} {scores[best]:7.3f} {scores['linear']:7.3f} "
                f"{scores['cnn']:7.3f}  {best}",
                flush=True,
            )
    print(f"behind the best by hindsight: {np.mean(behind):.3f}; above the CNN: {np.mean(above):+.3f}")
    print(f"worse than the simplest by more than {WORSE}: {len(worse)} of {len(behind)} {' '.join(worse)}")


if __name__ == "__main__":
    main()
