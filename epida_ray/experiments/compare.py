"""`epida compare`: cross-validate recipes on TRAIN, stop those that are clearly behind, and recommend one."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from epida_ray.core.errors import RequestError, TooManyRejected
from epida_ray.core.labels import label_set
from epida_ray.core.progress import Reporter
from epida_ray.data.plan import Columns, Plan, plan_inputs
from epida_ray.data.reader import ShardReader
from epida_ray.data.storage import Storage, below
from epida_ray.experiments.compare_folds import Data
from epida_ray.experiments.compare_recipes import Recipe, chosen_recipes, command_lines, default_recipes
from epida_ray.experiments.compare_results import TABLES, Comparison, recommend, summarise
from epida_ray.experiments.compare_work import Work
from epida_ray.generate import GENERATORS
from epida_ray.method.check import Checked, check, write
from epida_ray.method.checks import check_classes
from epida_ray.method.contents import contents
from epida_ray.method.pool import text_hash
from epida_ray.method.prepare import NO_ROWS, labelled, plan_request, read_labelled
from epida_ray.method.requests import TrainRequest
from epida_ray.method.track import Trackers
from epida_ray.runs.manifest import versions
from epida_ray.runs.run import digest
from epida_ray.stream.cluster import check_reachable, cluster_cpus, connected

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
    for name in options.generators:
        GENERATORS.find(name)
    if storage.is_local and Path(storage.root).resolve().is_relative_to(Path(options.input).resolve()):
        raise RequestError("--output is inside TRAIN, and `epida train` would learn from its tables; choose another")
    data = read_data(options, reporter)
    recipes = chosen_recipes(
        default_recipes(data.rows.y, options.unlabelled is not None, options.generators), options.recipes
    )
    identity = _identity(options, data, recipes)
    result = _stored(storage, identity)
    if result is not None and not result.untrained:
        reporter.say(f"{options.output} is finished already")
        return result
    check_reachable(options.address)
    from epida_ray.experiments.report import write_report  # here, because it imports this module

    report = partial(write_report, storage.location)
    with Trackers(options.track, storage, "compare", asdict(options), reporter, report) as trackers:
        if result is None:
            checked = _check(options, storage, reporter)
        with connected(options.address, reporter):
            if result is None:
                work = Work(data, recipes, storage, reporter, options.time, pace=1 / cluster_cpus())
                work.compare()
                result = _result(options, identity, work, checked)
                if result.recommended is not None:
                    result.curve = work.curve(next(r for r in recipes if r.name == result.recommended))
                    result.untrained = options.train_best or options.test is not None
                result.write(storage)  # before the training, which may fail
            if result.untrained:
                _train_best(options, next(r for r in recipes if r.name == result.recommended), result, reporter)
                result.untrained = False
                result.write(storage)
        trackers.finish(result.figures(), (COMPARISON, *TABLES))
    return result


def _identity(options: CompareOptions, data: Data, recipes: Sequence[Recipe]) -> dict[str, Any]:
    """Return what makes two comparisons the same one; of files and of own code the content counts."""
    files = {}
    for name, label in (("test", options.label_column), ("unlabelled", None)):
        if (location := getattr(options, name)) is not None:
            files[name] = digest(_plan(options, location, label).identity())
    same = options.identity(data.digest()) | {
        "rows": data.rows_digest(), "all": [r.name for r in recipes], "files": files,
        "contents": contents(options.generators, {}),
    }  # fmt: skip
    return dict(json.loads(json.dumps(same)))


def _stored(storage: Storage, identity: dict[str, Any]) -> Comparison | None:
    """Return the same comparison if OUTPUT has it; raise RequestError when OUTPUT has one of other rows."""
    if not storage.exists(COMPARISON):
        return None
    stored = Comparison(**json.loads(storage.read(COMPARISON)))
    if stored.identity.get("rows", identity["rows"]) != identity["rows"]:
        raise RequestError(f"{storage.location} holds a comparison of other data; choose another --output")
    return stored if stored.identity == identity else None


def _plan(options: CompareOptions, location: str, label: str | None) -> Plan:
    columns = Columns(text=options.text_column, label=label)
    return plan_inputs(location, columns, options.encoding, options.output, options.delimiter)


def read_data(options: CompareOptions, reporter: Reporter) -> Data:
    """Read TRAIN and the pool; raise RequestError when they cannot be cross-validated."""
    rows, rejected = read_labelled(_plan(options, options.input, options.label_column))
    if not rows:
        raise RequestError(NO_ROWS)
    allowed: float = TrainRequest.model_fields["max_rejected"].default
    if len(rejected) > allowed * (len(rows) + len(rejected)):
        raise TooManyRejected(
            f"{len(rejected):,} of {len(rows) + len(rejected):,} rows of TRAIN cannot be used, and `epida train` "
            f"accepts a share of {allowed:g}; the first: {rejected[0].reason}. Fix or remove them"
        )
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
    return Data(made, labels, _pool(options, made.texts, reporter), options.folds, options.seed, rare)


def _pool(options: CompareOptions, train: Sequence[str], reporter: Reporter) -> tuple[str, ...]:
    """Return a sample of the unlabelled texts, in their order, without those of TRAIN, which folds test."""
    if options.unlabelled is None:
        return ()
    plan = _plan(options, options.unlabelled, None)
    reader = ShardReader(plan)
    known = {text_hash(text) for text in train}
    random = np.random.default_rng([options.seed, 12])
    total, in_train = 0, 0
    kept: list[tuple[float, int, str]] = []
    for shard in plan.shards():
        table = reader.read(shard)
        both = zip(table["text"].to_pylist(), table["reason"].to_pylist(), strict=True)
        good = [text for text, reason in both if reason is None]
        fresh = [text for text in good if text_hash(text) not in known]
        in_train += len(good) - len(fresh)
        kept += zip(random.random(len(fresh)).tolist(), range(total, total + len(fresh)), fresh, strict=True)
        kept = sorted(kept)[:POOL_TEXTS]
        total += len(fresh)
    if in_train:
        reporter.warn(f"{in_train:,} texts of --unlabelled are in TRAIN, too; recipes are compared without them")
    if not kept:
        only = "no text that is not in TRAIN" if in_train else "no text that can be used"
        raise RequestError(f"--unlabelled: {options.unlabelled} has {only}")
    if total > POOL_TEXTS:
        reporter.say(f"recipes are compared with {POOL_TEXTS:,} of the {total:,} unlabelled texts")
    return tuple(text for _, _, text in sorted(kept, key=lambda one: one[1]))


def _check(options: CompareOptions, storage: Storage, reporter: Reporter) -> Checked:
    """Look for faults in the data first, and say what matters."""
    checked = check(
        options.input, options.test, seed=options.seed, exclude=options.output, reporter=reporter, **options.reading()
    )
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
        teacher = train(_placed(recipe.teacher.request(options.input, options.output, **plain), "teacher"), reporter)
        more["teacher"] = teacher.model_dir
    if options.test is not None:
        more["eval"] = options.test
    best = train(_placed(recipe.request(options.input, options.output, **more), "best"), reporter)
    if best.test is not None:
        result.test = {k: best.test[k] for k in ("macro_f1", "accuracy")}
    if options.train_best:
        storage = Storage(options.output)
        if storage.names("model"):
            storage.remove_folder("model")
        storage.upload(Storage(best.output).local_copy("model"), "model")
        result.model = below(options.output, "model")


def _placed(request: TrainRequest, folder: str) -> TrainRequest:
    """Return the request with a directory of its own, in which another request has never run."""
    _, identity = plan_request(request, ("eval", "unlabelled"))
    output = below(request.output, f"{folder}/{digest(identity)[:12]}")
    return request.model_copy(update={"output": output})
