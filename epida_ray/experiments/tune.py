"""`epida tune`: search for options by cross-validation, then measure what was found on rows that it never saw."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from epida_ray.core.errors import RequestError, RunError
from epida_ray.core.labels import dev_split
from epida_ray.core.progress import Reporter
from epida_ray.data.plan import Columns, plan_inputs
from epida_ray.data.storage import Storage
from epida_ray.data.writer import csv_table
from epida_ray.experiments.compare import CompareOptions, read_data
from epida_ray.experiments.compare_folds import Data, Fold, fold_key, run_fold, train_recipe
from epida_ray.experiments.compare_recipes import Recipe
from epida_ray.experiments.compare_statistics import Interval, difference, score
from epida_ray.experiments.layout import trial_file
from epida_ray.experiments.tune_space import baseline, read_space, tuned, without_rewrites
from epida_ray.method.folds import first_of_text
from epida_ray.method.pool import text_hash
from epida_ray.method.prepare import labelled, read_labelled, split_known
from epida_ray.method.track import Trackers, numbers
from epida_ray.method.trainer import LabelledRows
from epida_ray.runs.manifest import versions
from epida_ray.stream.cluster import connected
from epida_ray.stream.search import METRIC, Tried, search
from epida_ray.stream.tasks import run_tasks, share

FOUND = "tune.json"
REQUEST = "request.json"
POLICY = "policy.yaml"
BEST = "best.yaml"
TRIALS = "trials.csv"
OUTER_SHARE = 0.25
OUTER_SEEDS = 5
STALL_TIMEOUT = 3600.0


@dataclass(frozen=True)
class TuneOptions:
    """The options of `epida tune`."""

    input: str
    output: str
    test: str | None = None
    space: str | None = None
    trials: int = 60
    folds: int = 3
    text_column: str = "text"
    label_column: str = "label"
    encoding: str = "auto"
    delimiter: str | None = None
    seed: int = 0
    address: str | None = None
    track: tuple[str, ...] = ()


@dataclass
class Tuned:
    """The outcome; plain data, as in tune.json."""

    trials: int
    rows: int
    outer_rows: int
    baseline: float
    validated: float
    """Cross-validated macro-F1 of the best point; of the many that were tried, so it is too high."""
    outer_baseline: float
    outer: float
    """Of the best point. The difference is that to the baseline."""
    difference: float
    low: float
    high: float
    options: dict[str, Any]
    summary: str
    outer_plain: float | None = None
    """Of the best point's other options, without its rewrites. The differences are what the rewrites add to it."""
    rewrites: float = 0.0
    rewrites_low: float = 0.0
    rewrites_high: float = 0.0
    input: str = ""
    command: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)


def tune(options: TuneOptions, reporter: Reporter | None = None, quiet: bool = True) -> Tuned:
    """Search, then compare the best point with the baseline on the outer rows. A second call resumes."""
    reporter = reporter or Reporter(quiet=True)
    storage = Storage(options.output)
    if not storage.is_local:
        raise RequestError("--output of `epida tune` is a local directory, where Ray Tune keeps its files")
    space = read_space(options.space)
    inner, outer = _split(options, reporter)
    identity = _identity(options, space, inner, outer)
    if storage.exists(REQUEST) and json.loads(storage.read(REQUEST)) != identity:
        raise RequestError(f"{options.output} has a search with other options or data; choose another --output")
    if storage.exists(FOUND):
        reporter.say(f"{options.output} is finished already")
        return Tuned(**json.loads(storage.read(FOUND)))
    storage.write(REQUEST, json.dumps(identity).encode())
    reference = baseline(space)
    reference.request()
    from epida_ray.experiments.report import write_report  # here, because it imports this module

    report = partial(write_report, storage.location)
    with Trackers(options.track, storage, "tune", asdict(options), reporter, report) as trackers:
        with connected(options.address, reporter):
            place = Path(storage.root).absolute()
            first = list(cross_validate(reference, inner, str(place)))[-1][METRIC]
            reporter.say(f"without rewrites: macro-F1 {first:.3f}, {inner.folds} folds of {len(inner.rows):,} rows")
            tried = search(
                evaluate, (inner, str(place)), space, trials=options.trials, steps=inner.folds, output=place,
                seed=options.seed, quiet=quiet,
            )  # fmt: skip
            whole = [one for one in tried if one.steps >= inner.folds] or tried
            best = max(whole, key=lambda one: one.metrics[METRIC])
            recipe = tuned(best.config)
            reporter.say(f"measuring the best of {len(tried)} points on {len(outer):,} rows that the search never saw")
            arms = {"baseline": reference, "plain": without_rewrites(recipe.options), "tuned": recipe}
            votes = _outer_votes(arms, inner, outer)
        apart = difference(votes["tuned"], votes["baseline"], outer.y, 1.0, options.seed)
        rewrites = difference(votes["tuned"], votes["plain"], outer.y, 1.0, options.seed)
        outer_scores = {name: score(one.sum(axis=0), outer.y) for name, one in votes.items()}
        result = Tuned(
            trials=len(tried), rows=len(inner.rows), outer_rows=len(outer), baseline=first,
            validated=best.metrics[METRIC], outer_baseline=outer_scores["baseline"],
            outer=outer_scores["tuned"], difference=apart.mean, low=apart.low, high=apart.high,
            options=recipe.options, summary=summary(best.metrics[METRIC] - first, apart, rewrites),
            outer_plain=outer_scores["plain"], rewrites=rewrites.mean, rewrites_low=rewrites.low,
            rewrites_high=rewrites.high,
            input=options.input, command=sys.argv, versions=versions(),
        )  # fmt: skip
        _write(storage, result, tried)
        trackers.rounds({"round": number, "macro_f1": one.metrics[METRIC]} for number, one in enumerate(tried))
        trackers.finish(numbers(asdict(result)), (FOUND, POLICY, BEST, TRIALS))
    return result


def summary(validated: float, apart: Interval, rewrites: Interval) -> str:
    """Say how much of the gain is real, and how much of it the rewrites give."""
    verdict = {
        "better": "established",
        "worse": "worse than without rewrites",
        "no clear difference": "not established",
    }
    return (
        f"cross-validated {validated:+.3f}, on data the search never saw {apart}: {verdict[apart.verdict]}; of that by "
        f"rewrites {rewrites}: {verdict[rewrites.verdict]}"
    )


def evaluate(config: dict[str, Any], data: Data, output: str) -> Iterator[dict[str, Any]]:
    """Yield the score of a point of the space after each fold."""
    yield from cross_validate(tuned(config), data, output)


def cross_validate(recipe: Recipe, data: Data, output: str) -> Iterator[dict[str, Any]]:
    """Yield the macro-F1 over the folds so far; folds that an earlier attempt has done are read."""
    storage = Storage(output)
    digest = data.digest()
    votes = np.zeros((len(data.rows), len(data.labels)))
    for number in range(data.folds):
        fold = Fold(0, number)
        file = trial_file(fold_key(recipe, digest, fold))
        if storage.exists(file):
            result = json.loads(storage.read(file))
        else:
            result = run_fold(recipe, data, fold)
            storage.write(file, json.dumps(result).encode())
        tested = data.split(fold)[1]
        votes[tested, result["predicted"]] += 1
        known = votes.sum(axis=1) > 0
        yield {METRIC: score(votes[known], data.rows.y[known]), "folds": number + 1}


def _split(options: TuneOptions, reporter: Reporter) -> tuple[Data, LabelledRows]:
    """Return the rows to search with, and the outer rows: those of TEST, or else a part of TRAIN."""
    names = ("text_column", "label_column", "encoding", "delimiter", "seed", "folds")
    shared = {name: getattr(options, name) for name in names}
    data = read_data(CompareOptions(options.input, options.output, allow_rare=True, **shared), reporter)
    if options.test is None:
        inner, outer = _outer_split(data.rows, options.seed)
    else:
        columns = Columns(text=options.text_column, label=options.label_column)
        plan = plan_inputs(options.test, columns, options.encoding, options.output, options.delimiter)
        good, unknown = split_known(read_labelled(plan)[0], data.labels)
        if not good:
            raise RequestError("no row of TEST can be used")
        if unknown:
            reporter.warn(f"{len(unknown):,} rows of TEST are left out: {unknown[0].reason}")
        known = {text_hash(text) for text in data.rows.texts}
        fresh = [row for row in good if text_hash(row.text) not in known]
        if len(fresh) < len(good):
            reporter.warn(f"{len(good) - len(fresh):,} rows of TEST are left out: their texts are in TRAIN, too")
        if not fresh:
            raise RequestError("TEST has no text that is not in TRAIN")
        inner, outer = data.rows, labelled(fresh, data.labels)
    counts = np.bincount(inner.y, minlength=len(data.labels))
    rare = frozenset(np.flatnonzero(np.isin(inner.y, np.flatnonzero(counts == 1))).tolist())
    if len(inner) < 2 * options.folds:
        raise RequestError(f"{len(inner)} rows are too few for {options.folds} folds; label more")
    return Data(inner, data.labels, (), options.folds, options.seed, rare), outer


def _outer_split(rows: LabelledRows, seed: int) -> tuple[LabelledRows, LabelledRows]:
    """Return the rows to search with and the outer ones; equal texts stay together, so that none is on both sides."""
    first = first_of_text(rows.texts)
    distinct = np.flatnonzero(first == np.arange(len(rows)))
    outer = np.zeros(len(rows), np.bool_)
    outer[distinct] = dev_split(rows.y[distinct], OUTER_SHARE, seed)
    outer = outer[first]
    return rows.take(np.flatnonzero(~outer)), rows.take(np.flatnonzero(outer))


def _identity(options: TuneOptions, space: dict[str, Any], inner: Data, outer: LabelledRows) -> dict[str, Any]:
    same = {k: v for k, v in asdict(options).items() if k in ("trials", "folds", "seed")}
    held_out = Data(outer, inner.labels, (), 2, 0).digest()
    return json.loads(json.dumps(same | {"space": space, "data": inner.digest(), "outer": held_out}))


def _outer_votes(recipes: dict[str, Recipe], inner: Data, outer: LabelledRows) -> dict[str, np.ndarray]:
    """Train each recipe on all inner rows with several seeds; return its votes [S, N, C] for the outer rows."""
    votes = {name: np.zeros((OUTER_SEEDS, len(outer), len(inner.labels))) for name in recipes}
    data, texts = share(inner), share(outer.texts)
    tasks = {
        f"{name} {seed}": (recipe, data, texts, inner.seed + seed)
        for seed in range(OUTER_SEEDS)
        for name, recipe in recipes.items()
    }
    for key, predicted, failure in run_tasks(_predict_outer, tasks, what="trial", stall_timeout=STALL_TIMEOUT):
        if failure is not None:
            raise RunError(f"training on all inner rows failed: {failure}")
        name, number = key.split()
        votes[name][int(number), np.arange(len(outer)), predicted] = 1
    return votes


def _predict_outer(recipe: Recipe, data: Data, texts: list[str], seed: int) -> list[int]:
    classifier = train_recipe(recipe, data, np.arange(len(data.rows)), seed)
    return classifier.predict_proba(texts).argmax(axis=1).tolist()


def _write(storage: Storage, result: Tuned, tried: list[Tried]) -> None:
    """Write the policy, the options, the points that were tried, and tune.json last."""
    options = dict(result.options)
    if options.get("generator") == "policy":
        operations = {"operations": options.pop("generator_args")["operations"]}
        storage.write(POLICY, yaml.safe_dump(operations, sort_keys=False).encode())
        options["generator"] = f"policy:{storage.root}/{POLICY}"
    storage.write(BEST, yaml.safe_dump(options, sort_keys=True).encode())
    names = sorted({name for one in tried for name in one.config})
    best_first = sorted(tried, key=lambda one: -one.metrics[METRIC])
    rows = ({METRIC: one.metrics[METRIC], "folds": one.steps} | one.config for one in best_first)
    storage.write(TRIALS, csv_table([METRIC, "folds", *names], rows).encode())
    storage.write(FOUND, json.dumps(asdict(result), indent=1).encode())
