"""A run: a directory with a manifest that says what was asked, what is done and what was set aside."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from epida_ray.core.errors import RequestError, RunError
from epida_ray.data.inputs import Plan, Shard
from epida_ray.data.storage import Storage
from epida_ray.method.requests import flag

MANIFEST = "manifest.json"
COUNTED = ("rows", "candidates", "kept", "rejected", "short")
COUNTS_KEY = b"epida_ray.counts"
"""Parquet metadata of a shard in `augmented/`: its counts, so that a resumed run knows them."""
PACKAGES = ("epida-ray", "ray", "torch", "transformers", "numpy", "numba", "pyarrow", "nlpaug", "textattack")


def digest(value: Any) -> str:
    return blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


def directory_digest(path: Path) -> str:
    """sha256 over the names and bytes of a directory's files."""
    total = sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        total.update(file.relative_to(path).as_posix().encode() + b"\0")
        total.update(sha256(file.read_bytes()).digest())
    return total.hexdigest()


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@dataclass
class Counts:
    """What has been done so far; sums over shards."""

    shards: int = 0
    rows: int = 0
    candidates: int = 0
    kept: int = 0
    rejected: int = 0
    short: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    nodes: Counter[str] = field(default_factory=Counter)

    def add(self, one: dict[str, Any]) -> None:
        self.shards += 1
        for name in COUNTED:
            setattr(self, name, getattr(self, name) + one[name])
        self.reasons.update(one["reasons"])
        self.seconds.update(one.get("seconds", {}))
        if "node" in one:
            self.nodes[one["node"]] += 1


class Run:
    """The state of one run directory. All writes are atomic; the files of finished shards are the truth."""

    def __init__(self, output: str) -> None:
        self.storage = Storage(output)
        self.manifest: dict[str, Any] = {}
        self.counts = Counts()

    def open(self, kind: str, asked: dict[str, Any], execution: dict[str, Any]) -> bool:
        """Start a run or take up an earlier one; True when the directory holds a finished run of the same request."""
        found = read_manifest(self.storage) if self.storage.exists(MANIFEST) else None
        if found is None:
            self._check_new()
        if found is None or (found["status"] == "preparing" and found["asked"] != asked):
            self.manifest = {
                "format": 1,
                "kind": kind,
                "status": "preparing",
                "asked": asked,
                "execution": execution,
                "command": sys.argv,
                "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "versions": versions(),
                "process": self._process(),
            }
            for folder in ("rejected", "language-model"):  # of the files that were asked for before
                for name in self.storage.names(folder):
                    self.storage.remove(f"{folder}/{name}")
            self.save()
            return False
        self.manifest = found
        self.manifest.pop("problem", None)
        where = self.storage.location
        if self.manifest.get("kind") != kind:
            raise RequestError(f"{where} holds a run of `epida {self.manifest.get('kind')}`; choose another --output")
        before = self.manifest["asked"]
        changed = sorted(k for k in asked.keys() | before.keys() if asked.get(k) != before.get(k))
        if changed:
            details = "; ".join(_change(k, before.get(k), asked.get(k)) for k in changed)
            raise RequestError(f"{where} holds a run with other options ({details}); choose another --output")
        if self.manifest["status"] != "finished":
            self.manifest["execution"] = execution
            self.manifest["process"] = self._process()
            self.manifest["resumed"] = self.manifest.get("resumed", 0) + 1
            self.storage.remove_unfinished()
        return self.manifest["status"] == "finished"

    def _process(self) -> dict[str, Any]:
        return {"host": platform.node(), "pid": os.getpid()}

    def _check_new(self) -> None:
        where = self.storage.location
        if self.storage.is_local:
            path = Path(self.storage.root)
            try:
                path.mkdir(parents=True, exist_ok=True)
                if any(p.name != "input" and not p.name.startswith(".") for p in path.iterdir()):
                    raise RequestError(f"{where} is not empty and holds no run; choose another --output")
            except OSError as error:
                raise RequestError(f"cannot use {where} for output: {error.strerror}") from error
            if not os.access(path, os.W_OK):
                raise RequestError(f"cannot write to {where}; choose another --output")
        elif self.storage.names("", folders=True) - {"input"}:
            raise RequestError(f"{where} is not empty and holds no run; choose another --output")

    def save(self, **changes: Any) -> None:
        self.manifest.update(changes)
        try:
            self.storage.write(MANIFEST, json.dumps(self.manifest, indent=1).encode())
        except OSError as error:
            kind = RequestError if self.manifest.get("status") == "preparing" else RunError
            raise kind(f"cannot write to {self.storage.location}: {error.strerror or error}") from error

    def start(self, plan: Plan, fingerprint: str) -> list[Shard]:
        """Freeze the plan, count what earlier attempts finished, and return the shards that are left."""
        self.plan = plan
        self.fingerprint = fingerprint
        shards = list(plan.shards())
        present = self.storage.names("augmented")
        done = [s for s in shards if self.file_name(s) in present]
        self.counts.seconds.update(self.manifest.get("seconds", {}))
        self.counts.nodes.update(self.manifest.get("nodes", {}))
        with ThreadPoolExecutor(8) as pool:
            for counts in pool.map(self._read_counts, done):
                self.counts.add(counts)
        left = sorted(set(shards) - set(done))
        self.save(
            status="running", run_id=self.run_id, fingerprint=fingerprint, plan=plan.model_dump(mode="json"),
            shards=len(shards), **self.progress(),
        )  # fmt: skip
        return left

    @property
    def run_id(self) -> str:
        return self.fingerprint[:16]

    def file_name(self, shard: Shard) -> str:
        return self.plan.file_name(shard, self.fingerprint)

    def _read_counts(self, shard: Shard) -> dict[str, Any]:
        with self.storage.filesystem.open_input_file(self.storage.path(f"augmented/{self.file_name(shard)}")) as file:
            return json.loads(pq.ParquetFile(file).metadata.metadata[COUNTS_KEY])

    def progress(self) -> dict[str, Any]:
        c = self.counts
        counts = {n: getattr(c, n) for n in ("shards", *COUNTED)}
        return {
            "done": counts,
            "reasons": dict(c.reasons.most_common(20)),
            "seconds": {k: round(v, 3) for k, v in c.seconds.items()},
            "nodes": dict(c.nodes),
        }

    def save_progress(self) -> None:
        self.save(**self.progress())

    def check_budget(self, max_rejected: float) -> None:
        """Too many rows set aside is a failure of the run, said once and with the commonest reason."""
        limit = max_rejected * self.plan.rows
        if self.counts.rejected > limit:
            reason = self.counts.reasons.most_common(1)[0]
            self.save(status="failed", **self.progress())
            raise RunError(
                f"{self.counts.rejected:,} of {self.plan.rows:,} rows were set aside, more than --max-rejected "
                f"{max_rejected:g} allows; the commonest reason ({reason[1]:,} rows): {reason[0]}. What is done is "
                f"kept in {self.storage.location}; mend the input, or go on with a larger --max-rejected"
            )

    def finish(self, **more: Any) -> None:
        self.storage.remove_unfinished()
        self.save(
            status="finished",
            finished=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            **self.progress(),
            **more,
        )


def status_of(manifest: dict[str, Any]) -> str:
    """What a manifest says of itself, unless the process that would go on is seen to be gone."""
    process = manifest.get("process", {})
    if manifest["status"] in ("preparing", "running") and process.get("host") == platform.node():
        try:
            os.kill(process["pid"], 0)
        except ProcessLookupError:
            return "stopped"
        except OSError:
            pass
    return str(manifest["status"])


def read_manifest(storage: Storage) -> dict[str, Any]:
    try:
        manifest = json.loads(storage.read(MANIFEST))
        if manifest["format"] != 1:
            raise ValueError(f"format {manifest['format']} is not known here")
    except FileNotFoundError:
        raise RequestError(f"{storage.location} is no run directory: it has no {MANIFEST}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RequestError(
            f"{storage.location}/{MANIFEST} cannot be read ({error}); is this a run directory?"
        ) from error
    return manifest


def _change(option: str, before: Any, now: Any) -> str:
    if option in ("input", "train", "dev", "eval") and before and now:  # these are digests
        return f"{'the input' if option == 'input' else f'the file of {flag(option)}'} has changed or is another"
    return f"{flag(option)} was {_brief(before)}, now {_brief(now)}"


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
