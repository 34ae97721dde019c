"""`epida reproduce`: the trials of an experiment as Ray tasks, each result kept by its fingerprint."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ray

from epida_ray.errors import EpidaError, RequestError, RunError
from epida_ray.evaluate.data import Dataset, load_dataset
from epida_ray.evaluate.experiments import Options, find
from epida_ray.evaluate.tables import Row, write_results
from epida_ray.evaluate.trials import Trial, run_trial, train_oracle
from epida_ray.progress import Reporter
from epida_ray.run import versions
from epida_ray.storage import Storage
from epida_ray.stream.cluster import connected


def reproduce(
    name: str,
    data_dir: str,
    output: str,
    options: Options | None = None,
    *,
    address: str | None = None,
    reporter: Reporter | None = None,
) -> Path:
    """Run an experiment, or what is left of it, and write its table; returns the directory it is in.

    Results of trials are in OUTPUT/trials, which all experiments with that output share, so a trial that two of them
    have in common runs once.
    """
    options = options or Options()
    reporter = reporter or Reporter(quiet=True)
    experiment = find(name)
    trials = experiment.trials(options)
    started = time.time()
    data = {n: load_dataset(n, data_dir) for n in dict.fromkeys(t.dataset for t in trials)}
    digests = {n: d.digest() for n, d in data.items()}
    storage = Storage(output)
    keys = [t.fingerprint(digests[t.dataset]) for t in trials]
    have = storage.names("trials")
    missing = {k: t for k, t in zip(keys, trials, strict=True) if f"{k}.json" not in have}
    reporter.say(f"{name}: {len(trials)} trials, {len(missing)} to run")
    failures: dict[str, str] = {}
    if missing:
        with connected(address):
            _run(name, missing, data, storage, reporter, failures)
    if len(failures) == len(trials):
        raise RunError(f"every trial of {name} failed; the first: {next(iter(failures.values()))}")
    rows = [
        Row(trial, json.loads(storage.read(f"trials/{key}.json")))
        for key, trial in zip(keys, trials, strict=True)
        if key not in failures
    ]
    left_out = {t.method.name: failures[k] for k, t in zip(keys, trials, strict=True) if k in failures}
    write_results(experiment, rows, storage, left_out)
    manifest = {
        "format": 1, "kind": "reproduce", "status": "finished", "experiment": name, "title": experiment.title,
        "asked": asdict(options) | {"data_dir": str(data_dir)}, "command": sys.argv, "versions": versions(),
        "data": digests, "trials": len(trials), "failed": left_out,
        "seconds": {"wall": round(time.time() - started, 1)},
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
    }  # fmt: skip
    storage.write(f"{name}/manifest.json", json.dumps(manifest, indent=1).encode())
    return Path(output) / name


def _run(
    name: str, missing: dict[str, Trial], data: dict[str, Dataset], storage: Storage, reporter: Reporter,
    failures: dict[str, str],
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
            finished, _ = ray.wait(list(running), num_returns=1)
            for task in finished:
                key = running.pop(task)
                result = ray.get(task)
                if "failed" in result:
                    failures[key] = result["failed"]
                    reporter.warn(f"{missing[key].method.name}: {result['failed']}")
                else:
                    storage.write(f"trials/{key}.json", json.dumps(result).encode())
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


@ray.remote(num_cpus=1)
def _oracle(data: Dataset, trial: Trial) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    return train_oracle(data, trial)
