"""`epida reproduce`: the trials of an experiment as Ray tasks, each result kept by its fingerprint."""

from __future__ import annotations

import ctypes
import gc
import json
import sys
import time
from dataclasses import asdict
from typing import Any

import ray
from ray.exceptions import RayError

from epida_ray.core.errors import EpidaError, RequestError, RunError
from epida_ray.core.progress import Reporter, printable
from epida_ray.data.storage import Storage, below
from epida_ray.experiments.catalogue import Options, find
from epida_ray.experiments.datasets import Dataset, load_dataset
from epida_ray.experiments.tables import Row, write_results
from epida_ray.experiments.trials import (
    Trial,
    describe_classifier,
    run_trial,
    split_trial,
    surroundings,
    train_oracle,
)
from epida_ray.generate import GENERATORS
from epida_ray.runs.run import versions
from epida_ray.stream.cluster import connected
from epida_ray.stream.pipeline import cause

STALL_TIMEOUT = 7200.0
"""Seconds without the end of any trial after which an experiment gives up; with a large model one can take an hour."""
FETCH_LIMIT = 60.0
"""Seconds that the few numbers of a finished trial may take to arrive."""


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
    """Run an experiment, or what is left of it, and write its table; returns the path or URL of the directory it is in.

    Results of trials are in OUTPUT/trials, which all experiments with that output share, so a trial that two of them
    have in common runs once.
    """
    options = options or Options()
    reporter = reporter or Reporter(quiet=True)
    experiment = find(name)
    for generator in options.generators:
        GENERATORS.find(generator)
    trials = experiment.trials(options)
    started = time.time()
    columns = options.text_column, options.label_column
    data = {n: load_dataset(n, data_dir, *columns) for n in dict.fromkeys(t.dataset for t in trials)}
    notes = [note for d in data.values() for note in d.notes]
    for note in notes:
        reporter.say(note)
    for trial in {(t.dataset, t.size, t.seed): t for t in trials}.values():
        split_trial(trial, data[trial.dataset])
    digests = {n: d.digest() for n, d in data.items()}
    storage = Storage(output)
    about = describe_classifier(trials[0], data[trials[0].dataset].labels)
    around = [surroundings(t, about) for t in trials]
    keys = [t.fingerprint(digests[t.dataset], a) for t, a in zip(trials, around, strict=True)]
    provenance = {
        k: {"trial": asdict(t), "data": digests[t.dataset], "surroundings": a}
        for k, t, a in zip(keys, trials, around, strict=True)
    }
    have = storage.names("trials")
    missing = {k: t for k, t in zip(keys, trials, strict=True) if f"{k}.json" not in have}
    reporter.say(f"{name}: {len(trials)} trials, {len(missing)} to run")
    failures: dict[str, str] = {}
    if missing:
        with connected(address, reporter):
            _run(name, missing, provenance, data, storage, reporter, failures, stall_timeout)
    rows = [
        Row(trial, json.loads(storage.read(f"trials/{key}.json")))
        for key, trial in zip(keys, trials, strict=True)
        if key not in failures
    ]
    if not rows:
        raise RunError(f"every trial of {name} failed; the first: {next(iter(failures.values()))}")
    shown = {row.trial.method.name for row in rows}
    left_out = {
        t.method.name + (f" on {t.dataset} {t.size} with seed {t.seed}" if t.method.name in shown else ""): failures[k]
        for k, t in zip(keys, trials, strict=True)
        if k in failures
    }
    asked = json.loads(json.dumps(asdict(options) | {"data_dir": str(data_dir)}, default=str))
    _make_room(storage, name, asked, reporter)
    write_results(experiment, rows, storage, left_out, options, about, notes)
    manifest = {
        "format": 1, "kind": "reproduce", "status": "finished", "experiment": name, "title": experiment.title,
        "asked": asked, "command": sys.argv, "versions": versions(), "classifier": about,
        "data": digests, "trials": len(trials), "failed": left_out,
        "seconds": {"wall": round(time.time() - started, 1)},
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
    }  # fmt: skip
    storage.write(f"{name}/manifest.json", json.dumps(manifest, indent=1).encode())
    return below(output, name)


def _make_room(storage: Storage, name: str, asked: dict[str, Any], reporter: Reporter) -> None:
    """Say so when a table of other options is there, and take away the report of what is replaced."""
    if storage.exists(f"{name}/manifest.json"):
        before = json.loads(storage.read(f"{name}/manifest.json")).get("asked", {})
        if other := sorted(key for key in before.keys() | asked.keys() if before.get(key) != asked.get(key)):
            reporter.warn(
                f"replaces the table in {below(storage.location, name)}, which was made with other options "
                f"({', '.join(other)}); its trials are kept, so its command gives it back in a moment"
            )
    if storage.exists(f"{name}/report.html"):
        storage.remove(f"{name}/report.html")


def _run(
    name: str, missing: dict[str, Trial], provenance: dict[str, dict[str, Any]], data: dict[str, Dataset],
    storage: Storage, reporter: Reporter, failures: dict[str, str], stall_timeout: float,
) -> None:  # fmt: skip
    cpus = int(ray.cluster_resources().get("CPU", 0))  # type: ignore[no-untyped-call]
    if cpus < 1:
        raise RequestError("this Ray has no CPU; one is the least that a trial needs")
    shared = {dataset: ray.put(d) for dataset, d in data.items()}
    oracles: dict[str, Any] = {}
    for trial in missing.values():
        if "error-distance" in trial.measure and trial.dataset not in oracles:
            oracles[trial.dataset] = _oracle.remote(shared[trial.dataset], trial)
    waiting = list(missing.items())
    running: dict[Any, str] = {}
    done = 0
    with reporter.track(name, len(missing), unit="trials") as tracker:
        while waiting or running:
            while waiting and len(running) < 2 * cpus:
                key, trial = waiting.pop(0)
                oracle = oracles.get(trial.dataset) if "error-distance" in trial.measure else None
                running[_trial.remote(trial, shared[trial.dataset], oracle)] = key
            finished, _ = ray.wait(list(running), num_returns=1, timeout=stall_timeout)
            if not finished:
                for task in running:
                    ray.cancel(task, force=True)
                raise RunError(
                    f"no trial ended for {stall_timeout:.0f} s; `ray status` shows what waits. --stall-timeout sets "
                    f"the limit. {done} of {len(missing)} trials ended; what is done is kept in {storage.location}; "
                    "run the same command again to resume"
                )
            for task in finished:
                key = running.pop(task)
                try:
                    result = ray.get(task, timeout=FETCH_LIMIT)
                except RayError as error:  # its worker died as often as Ray tries again, or its oracle failed
                    result = {"failed": cause(error)}
                if "failed" in result:
                    failures[key] = printable(result["failed"], 300)
                    reporter.warn(f"{missing[key].method.name}: {failures[key]}")
                else:
                    kept = result | {"of": provenance[key]}
                    storage.write(f"trials/{key}.json", json.dumps(kept, default=str).encode())
                done += 1
                tracker.update(done)


@ray.remote(num_cpus=1)
def _trial(trial: Trial, data: Dataset, oracle: dict[str, Any] | None) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    try:
        return run_trial(trial, data, oracle)
    except EpidaError as error:
        return {"failed": str(error)}
    except Exception as error:  # generators and classifiers of others fail in any way
        return {"failed": f"{type(error).__name__}: {error}"}
    finally:
        _trim_heap()


def _trim_heap() -> None:
    """Give freed memory back: glibc keeps what training freed in pieces, gigabytes after a few transformers."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        gc.collect()
        libc.malloc_trim(0)


@ray.remote(num_cpus=1)
def _oracle(data: Dataset, trial: Trial) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    return train_oracle(data, trial)
