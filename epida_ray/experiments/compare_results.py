"""What `epida compare` found: the table, the recommendation and its reason, the learning curve."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from epida_ray.core.metrics import macro_f1
from epida_ray.data.storage import Storage
from epida_ray.data.writer import csv_table
from epida_ray.experiments.compare_statistics import Interval, chance, difference, score, widening

if TYPE_CHECKING:
    from epida_ray.experiments.compare_recipes import Recipe
    from epida_ray.experiments.compare_work import Work

TABLES = ("recipes.csv", "curve.csv", "halving.csv")
FIRST_LOOK = 2
"""Folds from which on a recipe is judged."""
MARGIN = 0.01
"""How far a simpler recipe may be behind the best one and still be recommended."""
CLOSE = 0.5
"""The same in standard errors of the paired difference."""
SIGNIFICANT = 0.05
LITTLE = 0.02
"""A doubling of the labels that gains less is hardly worth the work."""
SMALLEST_RATIO, LARGEST_RATIO = 0.3, 0.9
"""How much smaller each doubling's gain may become, when gains to come are estimated."""


@dataclass
class Comparison:
    """The outcome; plain data, as in compare.json."""

    identity: dict[str, Any]
    rows: int
    classes: int
    folds: int
    recipes: list[dict[str, Any]]
    recommended: str | None
    reason: str
    commands: list[str]
    stopped: str
    seconds: float
    missing_time: float = 0.0
    """About how many seconds more it takes until every recipe is tested in every fold; above 0, the recommendation is
    a first guess."""
    events: list[dict[str, Any]] = field(default_factory=list)
    check: list[dict[str, Any]] = field(default_factory=list)
    curve: list[dict[str, Any]] = field(default_factory=list)
    test: dict[str, float] | None = None
    model: str | None = None
    untrained: bool = False
    """Whether the recommended recipe has yet to be trained on all rows."""
    input: str = ""
    command: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)

    def write(self, storage: Storage) -> None:
        """Write recipes.csv, curve.csv and halving.csv, and compare.json last: with it, the comparison is finished."""
        for file, rows in zip(TABLES, (self.recipes, self.curve, self.events), strict=True):
            if rows:
                storage.write(file, _csv(rows).encode())
        storage.write("compare.json", json.dumps(asdict(self), ensure_ascii=False, indent=1).encode())

    def figures(self) -> dict[str, float]:
        """Return the score of every recipe, and that on TEST, under names that trackers accept."""
        scores = {re.sub(r"\W+", "_", row["recipe"]): row["macro_f1"] for row in self.recipes}
        figures = {f"macro_f1_{name}": score for name, score in scores.items() if score is not None}
        return figures | {f"test_{name}": score for name, score in (self.test or {}).items()}


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    flat = [{k: v for k, v in row.items() if not isinstance(v, list | dict)} for row in rows]
    return csv_table(list(flat[0]), flat)


def summarise(work: Work) -> list[dict[str, Any]]:
    """Return a row of the table for each recipe, in the order of their effort."""
    simplest = work.recipes[0].name
    rows = []
    for recipe in work.recipes:
        folds = work.full_folds(recipe.name)
        row: dict[str, Any] = {
            "recipe": recipe.name, "effort": recipe.effort, "folds": len(folds), "macro_f1": None, "difference": None,
            "low": None, "high": None, "verdict": "", "chance": None, "train_seconds": None, "texts_per_second": None,
            "dropped_after": work.dropped.get(recipe.name), "failure": work.failures.get(recipe.name),
            "paused": recipe.name in work.paused,
        }  # fmt: skip
        if folds:
            votes = work.votes(recipe.name, folds)
            done = [work.results[recipe.name][fold] for fold in folds]
            row |= {
                "macro_f1": score(votes, work.data.rows.y),
                "chance": chance(votes, work.data.rows.y, work.data.seed),
                "train_seconds": _train_seconds(work, recipe, done),
                "texts_per_second": float(np.median([one["texts_per_second"] for one in done])),
                "fold_scores": [_fold_score(work, fold, one) for fold, one in zip(folds, done, strict=True)],
            }
        if (found := work.apart(recipe.name, simplest)) is not None:
            row |= {"difference": found.mean, "low": found.low, "high": found.high, "verdict": found.verdict}
        rows.append(row)
    return rows


def _train_seconds(work: Work, recipe: Recipe, done: Sequence[dict[str, Any]]) -> float:
    """Return how long the recipe trains. Folds find the texts of a frozen encoder embedded already: that is added."""
    seconds = [float(one["seconds"]) for one in done]
    if recipe.options.get("classifier") != "encoder" or recipe.options.get("classifier_args"):
        return max(seconds)
    texts = max(one["learned"] for one in done) + (len(work.data.pool) if recipe.pool else 0)
    return min(seconds) + texts / float(np.median([one["texts_per_second"] for one in done]))


def _fold_score(work: Work, fold: Any, one: dict[str, Any]) -> float:
    y = work.data.rows.y[work.data.split(fold)[1]]
    return macro_f1(len(work.data.labels), y, np.array(one["predicted"]))


def recommend(work: Work, rows: Sequence[dict[str, Any]]) -> tuple[str | None, str]:
    """Return the recipe to use, or None, and why in one sentence.

    The candidates were not dropped and have been tested in every fold, if the time sufficed for that. One that lacks
    folds is a candidate, too, if it is better, by its paired interval, than the best of those. "Not worse than the
    best" means behind it by less than a hundredth, or by less than half a standard error of the paired difference. Of
    the recipes with the least effort that are not worse, it is the one with the best score.
    """
    tested = [row for row in rows if row["macro_f1"] is not None and not row["failure"]]
    learned = [row for row in tested if row["chance"] < SIGNIFICANT / len(tested)]
    if not learned:
        return None, (
            "nothing can be learned from these labels: no recipe predicts them better than chance does; check that "
            "texts and labels belong together, or label more rows"
        )
    left = [row for row in learned if row["dropped_after"] is None and row["folds"] >= FIRST_LOOK] or learned
    least = min(work.data.folds, max(row["folds"] for row in left))
    candidates = [row for row in left if row["folds"] >= least]
    gain = {row["recipe"]: row["difference"] or 0.0 for row in candidates}
    best = max(gain, key=lambda name: gain[name])
    for row in left:
        apart = work.apart(row["recipe"], best) if row["folds"] < least else None
        if apart is not None and apart.low > 0:
            candidates.append(row)
            gain[row["recipe"]] = gain[best] + apart.mean
    best = max(gain, key=lambda name: gain[name])
    close = []
    for row in candidates:
        behind = work.apart(best, row["recipe"])
        if behind is None or behind.mean <= max(MARGIN, CLOSE * behind.error):
            close.append(row)
    effort = min(row["effort"] for row in close)
    chosen = max((row for row in close if row["effort"] == effort), key=lambda row: gain[row["recipe"]])
    return chosen["recipe"], _reason(work, rows, chosen, best)


def _reason(work: Work, rows: Sequence[dict[str, Any]], chosen: dict[str, Any], best: str) -> str:
    simplest = rows[0]["recipe"]
    name = chosen["recipe"]
    said = [f"use {name!r}: macro-F1 {chosen['macro_f1']:.3f}"]
    if name != simplest and chosen["difference"] is not None:
        shown = Interval(chosen["difference"], chosen["low"], chosen["high"], 0.0)
        said.append(f"{shown} against the simplest recipe, {simplest} ({shown.verdict})")
    if best != name and (behind := work.apart(best, name)) is not None:
        said.append(f"and {best!r}, which asks for more, scores {behind} more ({behind.verdict})")
    elif name == simplest:
        said.append(f"it is the simplest recipe, and {_others(work, [row for row in rows if row is not chosen])}")
    elif _short(work, [row for row in rows if row["effort"] < chosen["effort"]]):
        said.append("and no simpler recipe that was tested in all folds comes close")
    else:
        said.append("and no recipe that is simpler comes close")
    return ", ".join(said)


def _short(work: Work, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the recipes that the time did not suffice to judge."""
    return [r for r in rows if r["folds"] < work.data.folds and r["dropped_after"] is None and not r["failure"]]


def _others(work: Work, rows: Sequence[dict[str, Any]]) -> str:
    """Say how the other recipes compare with the simplest one, which is recommended."""
    short = _short(work, rows)
    if better := [row for row in rows if row["verdict"] == "better"]:
        folds = better[0]["folds"]
        return f"{better[0]['recipe']!r} looks better, but was tested in {folds} fold{'s' if folds > 1 else ''} only"
    if not short:
        return "no other one is clearly better"
    if len(short) == len(rows):
        return "the time did not suffice to test another one in all folds"
    return "no other one is clearly better in the folds that the time sufficed for"


def learning_curve(work: Work, recipe: Recipe, shares: Sequence[float]) -> list[dict[str, Any]]:
    """Return the scores over the number of labels, on the folds that have all sizes."""
    done = work.results[recipe.name]
    folds = [f for f in work.full_folds(recipe.name) if all(f._replace(share=s) in done for s in shares)]
    if len(folds) < 2:
        return []
    rows: list[dict[str, Any]] = []
    before = None
    for share in (*shares, 1.0):
        same = [fold._replace(share=share) for fold in folds]
        votes = work.votes(recipe.name, same)
        row: dict[str, Any] = {
            "labels": round(float(np.mean([done[f]["learned"] for f in same]))),
            "macro_f1": score(votes, work.data.rows.y),
            "gain": None, "low": None, "high": None, "folds": len(folds),
        }  # fmt: skip
        if before is not None:
            gain = difference(votes, before, work.data.rows.y, widening(work.data.folds), work.data.seed)
            row |= {"gain": gain.mean, "low": gain.low, "high": gain.high}
        rows.append(row)
        before = votes
    return rows


def more_labels(curve: Sequence[dict[str, Any]], rows: int) -> str:
    """Say whether more labels would help: what the last doubling gained, and what the next ones may."""
    if len(curve) < 3:
        return "There was no time for a learning curve; a longer --time shows whether more labels would help."
    first, last = curve[-2]["gain"], curve[-1]["gain"]
    shown = Interval(last, curve[-1]["low"], curve[-1]["high"], 0.0)
    said = f"From {curve[-2]['labels']:,} to {curve[-1]['labels']:,} labels macro-F1 changed by {shown}"
    if shown.high < LITTLE:
        return f"{said}: more labels of the same kind would hardly help."
    if shown.verdict != "better":
        return f"{said}: too few rows to say whether more labels would help."
    # Each doubling is taken to gain `ratio` times as much as the one before.
    ratio = float(np.clip(last / first if first > 0 else LARGEST_RATIO, SMALLEST_RATIO, LARGEST_RATIO))
    twice, more = last * ratio, last * (ratio + ratio**2)
    return f"{said}: {2 * rows:,} labels may gain about {twice:+.2f}, {4 * rows:,} about {more:+.2f}."
