"""`epida reproduce`: run the trials of an experiment side by side, keep every result, and write the tables."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from epida_ray.core.errors import RunError
from epida_ray.core.progress import Reporter, printable
from epida_ray.data.storage import Storage, below
from epida_ray.experiments.cache import ClassifierFacts, classifier_facts, environment, trial_key
from epida_ray.experiments.catalogue import find
from epida_ray.experiments.datasets import Dataset, load_dataset
from epida_ray.experiments.experiment import Experiment
from epida_ray.experiments.layout import PLOT, RESULTS, TABLE, TRIALS, trial_file
from epida_ray.experiments.options import Options
from epida_ray.experiments.plots import plot
from epida_ray.experiments.results import Results, Row
from epida_ray.experiments.tables import markdown
from epida_ray.experiments.trials import Trial, oracle_weights, run_trial, split_trial
from epida_ray.generate import GENERATORS
from epida_ray.runs import layout
from epida_ray.runs.manifest import Manifest, now, read_manifest, this_process, versions
from epida_ray.stream.cluster import connected
from epida_ray.stream.tasks import run_tasks, share

STALL_TIMEOUT = 7200.0
HINT = "--stall-timeout sets the limit"
"""Seconds without a finished trial after which an experiment gives up; with a large model one can take an hour."""


def reproduce(
    name: str,
    data_dir: str,
    output: str,
    options: Options | None = None,
    *,
    address: str | None = None,
    reporter: Reporter | None = None,
    stall_timeout: float = STALL_TIMEOUT,
) -> str:
    """Run the trials of an experiment that are not done yet, and write its tables into OUTPUT/NAME; return that path.

    Results of trials are in OUTPUT/trials, which all experiments with this output share, so that a trial that two of
    them need runs once.
    """
    options = options or Options()
    reporter = reporter or Reporter(quiet=True)
    started = now(), time.monotonic()
    request = json.loads(json.dumps(asdict(options) | {"data_dir": str(data_dir)}, default=str))
    storage = Storage(output)
    before = _earlier_request(storage, name)
    work = _plan(find(name), data_dir, options, storage)
    for note in work.data_notes:
        reporter.say(note)
    reporter.say(f"{name}: {len(work.trials)} trials, {len(work.missing)} to run")
    if before is not None and (changed := _changed({"methods": []} | before, request)):
        reporter.warn(
            f"this replaces the table in {below(storage.location, name)}, which has other options "
            f"({', '.join(changed)}); its trials are kept, so the same command restores it in a moment"
        )
        for file in (RESULTS, TABLE, PLOT):
            if storage.exists(f"{name}/{file}"):
                storage.remove(f"{name}/{file}")
    manifest = Manifest(
        kind="reproduce", status="running", request=request, command=sys.argv, versions=versions(),
        classifier=work.classifier.description, started=started[0], process=this_process(),
        experiment={"name": name, "title": work.experiment.title, "data": work.digests, "trials": len(work.trials)},
    )  # fmt: skip
    manifest.write(storage, name)
    failures: dict[str, str] = {}
    try:
        if work.missing:
            with connected(address, reporter):
                failures = _run(work, storage, reporter, stall_timeout)
        named = _name_failures(work, failures)
        _write(work, storage, options, failures, named)
    except BaseException as error:
        interrupted = any(isinstance(one, KeyboardInterrupt) for one in (error, error.__cause__))
        ended = {"status": "interrupted"} if interrupted else {"status": "failed", "failure": str(error)}
        manifest.model_copy(update=ended).write(storage, name)
        raise
    done = {
        "status": "finished", "finished": now(), "seconds": {"wall": round(time.monotonic() - started[1], 1)},
        "experiment": (manifest.experiment or {}) | {"failures": named},
    }  # fmt: skip
    manifest.model_copy(update=done).write(storage, name)
    return below(output, name)


@dataclass(frozen=True)
class Work:
    """The trials of an experiment with the keys of their results; two trials that must agree have the same key."""

    experiment: Experiment
    trials: list[tuple[str, Trial]]
    missing: dict[str, Trial]
    data: dict[str, Dataset]
    digests: dict[str, str]
    environments: dict[str, dict[str, Any]]
    classifier: ClassifierFacts

    @property
    def data_notes(self) -> list[str]:
        return [note for data in self.data.values() for note in data.notes]


def _earlier_request(storage: Storage, name: str) -> dict[str, Any] | None:
    """Return the request of the table that is there already; raise RequestError when it is of another version."""
    if not storage.exists(f"{name}/{layout.MANIFEST}"):
        return None
    return read_manifest(Storage(below(storage.location, name))).request


def _changed(before: Mapping[str, Any], request: Mapping[str, Any]) -> list[str]:
    return sorted(k for k in {**before, **request} if before.get(k) != request.get(k))


def _plan(experiment: Experiment, data_dir: str, options: Options, storage: Storage) -> Work:
    """Load the data and check everything that can be checked before the first trial runs."""
    for generator in options.generators:
        GENERATORS.find(generator)
    trials = experiment.trials(options)
    every = experiment.trials(replace(options, methods=()))
    columns = options.text_column, options.label_column
    data = {name: load_dataset(name, data_dir, *columns) for name in dict.fromkeys(t.dataset for t in trials)}
    for trial in {(t.dataset, t.size, t.seed): t for t in trials}.values():
        split_trial(trial, data[trial.dataset])
    digests = {name: d.digest() for name, d in data.items()}
    classifier = classifier_facts(every[0], data[every[0].dataset].labels)  # a part of all keys, whatever --method says
    keyed, environments = [], {}
    for trial in trials:
        found = environment(trial, classifier)
        key = trial_key(trial, digests[trial.dataset], found)
        keyed.append((key, trial))
        environments[key] = found
    present = storage.names(TRIALS)
    missing = {key: trial for key, trial in keyed if f"{key}.json" not in present}
    return Work(experiment, keyed, missing, data, digests, environments, classifier)


def _run(work: Work, storage: Storage, reporter: Reporter, stall_timeout: float) -> dict[str, str]:
    """Run the missing trials and store their results; return the reasons of those that failed."""
    shared = {name: share(data) for name, data in work.data.items()}
    cpus = work.classifier.threads
    failures: dict[str, str] = {}
    needy = {t.dataset: t for t in work.missing.values() if "error-distance" in t.measure}
    try:
        oracles = {
            o.key: o
            for o in run_tasks(
                oracle_weights, {name: (t, shared[name]) for name, t in needy.items()}, what="trial", cpus=cpus,
                stall_timeout=stall_timeout, hint=HINT,
            )
        }  # fmt: skip
        weights = {name: share(oracle.value) for name, oracle in oracles.items() if oracle.failure is None}
        for key, trial in work.missing.items():
            if trial.dataset in oracles and trial.dataset not in weights:
                failures[key] = f"the judge of labels cannot be trained: {oracles[trial.dataset].failure}"
        tasks = {
            key: (trial, shared[trial.dataset], weights.get(trial.dataset))
            for key, trial in work.missing.items()
            if key not in failures
        }
        with reporter.track(work.experiment.name, len(tasks), unit="trials") as tracker:
            outcomes = run_tasks(
                run_trial, tasks, what="trial", cpus=cpus, stall_timeout=stall_timeout, hint=HINT
            )  # fmt: skip
            for done, (key, result, failure) in enumerate(outcomes, 1):
                if failure is not None:
                    failures[key] = printable(failure, 300)
                    reporter.warn(f"{work.missing[key].method.name}: {failures[key]}")
                else:
                    stored = result | {"of": _provenance(work, key)}
                    storage.write(trial_file(key), json.dumps(stored, default=str).encode())
                tracker.update(done)
    except (RunError, KeyboardInterrupt) as error:
        raise RunError(
            f"{str(error) or 'interrupted'}. Finished trials are kept in {storage.location}; run the same command "
            "again to resume"
        ) from error
    return failures


def _provenance(work: Work, key: str) -> dict[str, Any]:
    trial = work.missing[key]
    return {"trial": asdict(trial), "data": work.digests[trial.dataset], "environment": work.environments[key]}


def _name_failures(work: Work, failures: Mapping[str, str]) -> dict[str, str]:
    """Return the reasons by method; a method that worked elsewhere is named with the setting and the seed."""
    worked = {trial.method.name for key, trial in work.trials if key not in failures}
    named = {}
    for key, t in work.trials:
        if key in failures:
            where = f" on {t.dataset} {t.size} with seed {t.seed}" if t.method.name in worked else ""
            named[t.method.name + where] = failures[key]
    return named


def _write(
    work: Work, storage: Storage, options: Options, failures: Mapping[str, str], named: Mapping[str, str]
) -> None:
    """Write the results of all trials, with a table and a plot, and remove the report of what they replace."""
    name = work.experiment.name
    rows = [Row(trial, json.loads(storage.read(trial_file(key)))) for key, trial in work.trials if key not in failures]
    if not rows:
        raise RunError(f"every trial of {name} failed; the first: {next(iter(failures.values()))}")
    write_results(
        Results(work.experiment, rows), storage, options, classifier=work.classifier.description, failures=named,
        data_notes=work.data_notes,
    )  # fmt: skip
    if storage.exists(f"{name}/{layout.REPORT}"):
        storage.remove(f"{name}/{layout.REPORT}")


def write_results(results: Results, storage: Storage, options: Options, **more: Any) -> None:
    """Write the files of an experiment into the folder of its name."""
    folder = results.experiment.name
    storage.write(f"{folder}/{RESULTS}", results.csv().encode())
    storage.write(f"{folder}/{TABLE}", markdown(results, options, **more).encode())
    storage.write(f"{folder}/{PLOT}", plot(results).encode())
