"""`epida compare`: cross-validate recipes on TRAIN, stop those that are clearly behind, and recommend one."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from epida_ray.core.errors import RequestError
from epida_ray.core.labels import label_set
from epida_ray.core.progress import Reporter
from epida_ray.data.plan import Columns, plan_inputs
from epida_ray.data.reader import ShardReader
from epida_ray.data.storage import Storage, below
from epida_ray.experiments.compare_folds import Data
from epida_ray.experiments.compare_recipes import Recipe, chosen_recipes, command_lines, default_recipes
from epida_ray.experiments.compare_results import TABLES, Comparison, recommend, summarise
from epida_ray.experiments.compare_work import Work
from epida_ray.method.check import Checked, check, write
from epida_ray.method.checks import check_classes
from epida_ray.method.prepare import NO_ROWS, labelled, read_labelled
from epida_ray.method.track import Trackers
from epida_ray.runs.manifest import versions
from epida_ray.stream.cluster import connected

COMPARISON = "compare.json"
FOLDS = 5
POOL_TEXTS = 1500
"""Unlabelled texts that recipes are compared with; the final model learns from all."""


@dataclass(frozen=True)
class CompareOptions:
    """The options of `epida compare`."""

    input: str
    output: str
    test: str | None = None
    unlabelled: str | None = None
    time: float = 1800.0
    train_best: bool = False
    recipes: tuple[str, ...] = ()
    generators: tuple[str, ...] = ("eda",)
    folds: int = FOLDS
    allow_rare: bool = False
    text_column: str = "text"
    label_column: str = "label"
    encoding: str = "auto"
    delimiter: str | None = None
    seed: int = 0
    address: str | None = None
    track: tuple[str, ...] = ()

    def reading(self) -> dict[str, Any]:
        return {k: getattr(self, k) for k in ("text_column", "label_column", "encoding", "delimiter")}

    def identity(self, data_digest: str) -> dict[str, Any]:
        """Return what makes two comparisons the same one."""
        return {k: v for k, v in asdict(self).items() if k not in ("output", "address", "input", "track")} | {
            "data": data_digest
        }


def compare(options: CompareOptions, reporter: Reporter | None = None) -> Comparison:
    """Compare, recommend, and with `test` or `train_best` train the recommended recipe on all rows.

    Results of folds are kept in OUTPUT/trials; the same command resumes, and prints what is there once it has finished.
    """
    reporter = reporter or Reporter(quiet=True)
    storage = Storage(options.output)
    data = read_data(options, reporter)
    recipes = chosen_recipes(
        default_recipes(data.rows.y, options.unlabelled is not None, options.generators), options.recipes
    )
    identity = json.loads(json.dumps(options.identity(data.digest()) | {"all": [r.name for r in recipes]}))
    if storage.exists(COMPARISON):
        stored = Comparison(**json.loads(storage.read(COMPARISON)))
        if stored.identity == identity:
            reporter.say(f"{options.output} is finished already")
            return stored
    from epida_ray.experiments.report import write_report  # here, because it imports this module

    report = partial(write_report, storage.location)
    with Trackers(options.track, storage, "compare", asdict(options), reporter, report) as trackers:
        checked = _check(options, storage, reporter)
        with connected(options.address, reporter):
            work = Work(data, recipes, storage, reporter, options.time)
            work.compare()
            result = _result(options, identity, work, checked)
            if result.recommended is not None:
                recipe = next(r for r in recipes if r.name == result.recommended)
                result.curve = work.curve(recipe)
                if options.train_best or options.test is not None:
                    _train_best(options, recipe, result, reporter)
        result.write(storage)
        trackers.finish(result.figures(), (COMPARISON, *TABLES))
    return result


def read_data(options: CompareOptions, reporter: Reporter) -> Data:
    """Read TRAIN and the pool; raise RequestError when they cannot be cross-validated."""
    columns = Columns(text=options.text_column, label=options.label_column)
    plan = plan_inputs(options.input, columns, options.encoding, options.output, options.delimiter)
    rows, rejected = read_labelled(plan)
    if not rows:
        raise RequestError(NO_ROWS)
    if rejected:
        reporter.warn(f"{len(rejected):,} rows of TRAIN cannot be used; the first: {rejected[0].reason}")
    labels = label_set([row.label for row in rows])
    check_classes(labels, [row.label for row in rows], options.label_column)
    if options.folds < 2:
        raise RequestError(f"--folds must be at least 2, not {options.folds}")
    if len(rows) < 2 * options.folds:
        raise RequestError(
            f"TRAIN has {len(rows)} rows, too few for {options.folds} folds; label at least {2 * options.folds}"
        )
    made = labelled(rows, labels)
    counts = np.bincount(made.y, minlength=len(labels))
    single = np.flatnonzero(counts == 1)
    if len(single) and not options.allow_rare:
        raise RequestError(
            f"the class {labels[single[0]]!r} has one row, which cannot be both learned from and tested; label more, "
            "or give --allow-rare, with which it is learned from and never tested"
        )
    rare = frozenset(np.flatnonzero(np.isin(made.y, single)).tolist())
    return Data(made, labels, _pool(options, reporter), options.folds, options.seed, rare)


def _pool(options: CompareOptions, reporter: Reporter) -> tuple[str, ...]:
    if options.unlabelled is None:
        return ()
    columns = Columns(text=options.text_column, label=None)
    plan = plan_inputs(options.unlabelled, columns, options.encoding, options.output, options.delimiter)
    reader = ShardReader(plan)
    texts: list[str] = []
    for shard in plan.shards():
        table = reader.read(shard)
        both = zip(table["text"].to_pylist(), table["reason"].to_pylist(), strict=True)
        texts += [text for text, reason in both if reason is None]
    if not texts:
        raise RequestError(f"--unlabelled: {options.unlabelled} has no text that can be used")
    if len(texts) > POOL_TEXTS:
        reporter.say(f"recipes are compared with {POOL_TEXTS:,} of the {len(texts):,} unlabelled texts")
        taken = np.sort(np.random.default_rng([options.seed, 12]).permutation(len(texts))[:POOL_TEXTS])
        texts = [texts[i] for i in taken.tolist()]
    return tuple(texts)


def _check(options: CompareOptions, storage: Storage, reporter: Reporter) -> Checked:
    """Look for faults in the data first, and say what matters."""
    checked = check(options.input, options.test, seed=options.seed, reporter=reporter, **options.reading())
    write(checked, Storage(below(storage.location, "check")))
    for finding in checked.findings:
        if finding.level != "note":
            reporter.warn(f"{finding.what}: {finding.count:,}; {finding.advice}")
    return checked


def _result(options: CompareOptions, identity: dict[str, Any], work: Work, checked: Checked) -> Comparison:
    rows = summarise(work)
    name, reason = recommend(work, rows)
    recipe = next((r for r in work.recipes if r.name == name), None)
    found = [{"name": f.name, "level": f.level, "what": f.what, "count": f.count} for f in checked.findings]
    return Comparison(
        identity=identity, rows=len(work.data.rows), classes=len(work.data.labels), folds=work.data.folds,
        recipes=rows, recommended=name, reason=reason,
        commands=_commands(options, recipe) if recipe else [],
        stopped=work.stopped, seconds=round(time.monotonic() - work.started, 1),
        missing_time=round(work.missing_time(), 1), events=work.events, check=found,
        input=options.input, command=sys.argv, versions=versions(),
    )  # fmt: skip


def _more(options: CompareOptions, recipe: Recipe) -> dict[str, Any]:
    more = options.reading() | {"seed": options.seed}
    return more | ({"unlabelled": options.unlabelled} if recipe.pool else {})


def _commands(options: CompareOptions, recipe: Recipe) -> list[str]:
    more = _more(options, recipe) | ({"eval": options.test} if options.test is not None else {})
    return command_lines(recipe, options.input, "model", **more)


def _train_best(options: CompareOptions, recipe: Recipe, result: Comparison, reporter: Reporter) -> None:
    """Train the recommended recipe on all rows as `epida train` does, and test it once."""
    from epida_ray.stream.driver import train

    reporter.say(f"training {recipe.name} on all {result.rows:,} rows")
    more = _more(options, recipe) | {"address": options.address}
    if recipe.teacher is not None:
        plain = _more(options, recipe.teacher) | {"address": options.address}
        teacher = train(recipe.teacher.request(options.input, below(options.output, "teacher"), **plain), reporter)
        more["teacher"] = teacher.model_dir
    if options.test is not None:
        more["eval"] = options.test
    best = train(recipe.request(options.input, below(options.output, "best"), **more), reporter)
    if best.test is not None:
        result.test = {k: best.test[k] for k in ("macro_f1", "accuracy")}
    if options.train_best:
        Storage(options.output).upload(Storage(best.output).local_copy("model"), "model")
        result.model = below(options.output, "model")
