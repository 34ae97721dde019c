"""One run: its directory, what was requested, what is done."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any, Self

from epida_ray.classify.model import CARD
from epida_ray.core.errors import EpidaError, RequestError, RunError, TooManyRejected
from epida_ray.core.options import flag
from epida_ray.core.progress import Reporter
from epida_ray.data.plan import Plan, Shard
from epida_ray.data.retry import one_line
from epida_ray.data.storage import Storage, refusal
from epida_ray.runs import commit, layout, lease
from epida_ray.runs.counts import ShardCounts, Totals
from epida_ray.runs.manifest import Done, Kind, Manifest, now, read_manifest, this_process, versions

_BEFORE_A_RUN = {layout.INPUT, layout.OWNER}
"""What may be in a directory without a manifest."""


def digest(value: Any) -> str:
    """Return a digest of plain JSON data."""
    return blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


def directory_digest(path: Path) -> str:
    """Return sha256 over the names and bytes of a directory's files, without a model's card."""
    total = sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file() and p != path / CARD):
        total.update(file.relative_to(path).as_posix().encode() + b"\0")
        total.update(bytes.fromhex(file_digest(file)))
    return total.hexdigest()


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def command_line() -> list[str]:
    """Return the command as a user would type it again: `epida`, not the path of the program on this machine."""
    program = Path(sys.argv[0])
    typed = "epida" if program.name in ("epida", "__main__.py") else sys.argv[0]
    return [typed, *sys.argv[1:]]


class Run:
    """The state of one run directory. All writes are atomic; the files of finished shards are the truth."""

    manifest: Manifest
    plan: Plan
    fingerprint: str
    trackers: Any
    """Who is told of the run's metrics: `method/track.py`."""

    def __init__(self, output: str, committed: str = layout.AUGMENTED) -> None:
        """`committed` is the folder whose files say that a shard is done."""
        self.storage, self.committed = Storage(output), committed
        self.totals = Totals()
        self.digests: dict[str, str] = {}
        """The SHA-256 of each shard's file that this attempt wrote."""
        self._lease: lease.Lease | None = None

    def open(self, kind: Kind, request: dict[str, Any], execution: dict[str, Any], *, take_over: bool = False) -> bool:
        """Start a run or take up an earlier one; return True when the directory holds this request, finished.

        Otherwise the run owns the directory until `close`; RequestError says who does if it is another one.
        """
        try:
            return self._opened(kind, request, execution, take_over)
        except OSError as error:
            raise RequestError(f"cannot use {self.storage.location} for output: {error.strerror or error}") from error

    def _opened(self, kind: Kind, request: dict[str, Any], execution: dict[str, Any], take_over: bool) -> bool:
        if self._is_finished(self._found(kind, request)):
            return True
        self._claim(take_over)
        try:
            found = self._found(kind, request)  # again: now nobody else can change it
            if self._is_finished(found):
                self.close()
                return True
            self._begin(found, kind, request, execution)
        except BaseException:
            self.close()
            raise
        return False

    def check_place(self) -> bool:
        """Return whether a finished run is here; refuse a directory that holds something else than a run."""
        if not self.storage.given(layout.MANIFEST):
            self._check_new()
            return False
        return read_manifest(self.storage).status == "finished"

    @contextmanager
    def putting_input(self, take_over: bool = False) -> Iterator[None]:
        """Own the directory while its input is put there, before the run is opened.

        What is finished is not claimed: a claim says that somebody has changed it.
        """
        if not self.check_place():
            self._claim(take_over)
        try:
            yield
        finally:
            self.close()

    def _claim(self, take_over: bool) -> None:
        self._lease = lease.claim(self.storage.location, take_over)
        self.storage.guard = self._lease.check
        self._lease.keep()

    def close(self) -> None:
        """Release the directory."""
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _found(self, kind: Kind, request: dict[str, Any]) -> Manifest | None:
        """Return the manifest of this request; None when the directory is new or the request before was refused."""
        if not self.storage.given(layout.MANIFEST):
            self._check_new()
            return None
        found = read_manifest(self.storage)
        if found.status == "preparing" and found.request != request:
            return None
        self.manifest = found
        self._check_same(kind, request)
        return found

    def _is_finished(self, found: Manifest | None) -> bool:
        """Return whether a run is finished and all of its shards are still there, whole."""
        if found is None or found.status != "finished":
            return False
        if not lease.was_last(self.storage, found.owner):  # another one has changed the directory since
            return False
        if found.kind != "train":
            return commit.committed(self.storage) is not None
        if not self.storage.exists(layout.COMMITTED):  # an earlier version did not write one
            return True
        if changed := commit.changed(self.storage):
            raise RunError(
                f"{len(changed):,} files of the finished training in {self.storage.location} are missing or damaged, "
                f"such as {changed[0]}; put them back, or train again in another --output"
            )
        return True

    def _begin(self, found: Manifest | None, kind: Kind, request: dict[str, Any], execution: dict[str, Any]) -> None:
        if found is None:
            self.manifest = Manifest(
                kind=kind, status="preparing", request={}, execution=execution, command=command_line(),
                started=now(), versions=versions(), process=this_process(),
            )  # fmt: skip
            self._remove_of_others()
            self.save(request=request)
            return
        found.problem = None
        found.execution, found.process = execution, this_process()
        found.resumed += 1
        self.storage.remove_unfinished()

    def _remove_of_others(self) -> None:
        """Remove what an earlier request made here: this one would take it for its own."""
        files = self.storage.files_below(*layout.MADE)
        if files:
            self.save()  # of no request, so that whoever comes after a kill in the middle begins with this again
        rounds = self.manifest.kind == "train"
        for name in files:
            if rounds or not (name.count("/") == 1 and layout.is_shard_file(name)):  # those go when the plan is known
                self.storage.remove(name)

    def _check_same(self, kind: str, request: dict[str, Any]) -> None:
        where, before = self.storage.location, self.manifest.request
        if self.manifest.kind != kind:
            raise RequestError(f"{where} holds a run of `epida {self.manifest.kind}`; choose another --output")
        changed = sorted(k for k in request.keys() | before.keys() if request.get(k) != before.get(k))
        if self.manifest.status == "finished" and "versions" in changed:
            changed.remove("versions")  # nothing more will be made with the new ones
        if changed:
            details = "; ".join(_change(k, before.get(k), request.get(k)) for k in changed)
            raise RequestError(f"{where} holds a run with other options ({details}); choose another --output")

    def _check_new(self) -> None:
        where = self.storage.location
        if self.storage.is_local:
            path = Path(self.storage.root)
            try:
                path.mkdir(parents=True, exist_ok=True)
                if any(p.name not in _BEFORE_A_RUN and not p.name.startswith(".") for p in path.iterdir()):
                    raise RequestError(f"{where} is not empty and holds no run; choose another --output")
            except OSError as error:
                raise RequestError(f"cannot use {where} for output: {error.strerror}") from error
            if not os.access(path, os.W_OK):
                raise RequestError(f"cannot write to {where}; choose another --output")
        elif self.storage.names("", folders=True) - _BEFORE_A_RUN:
            raise RequestError(f"{where} is not empty and holds no run; choose another --output")

    def save(self, **changes: Any) -> None:
        """Change the manifest and write it."""
        owner = self._lease.number if self._lease is not None else 0
        self.manifest = self.manifest.model_copy(update={"owner": owner} | changes)
        try:
            self.manifest.write(self.storage)
        except OSError as error:
            kind = RequestError if self.manifest.status == "preparing" else RunError
            raise kind(f"cannot write to {self.storage.location}: {error.strerror or error}") from error

    def start(self, plan: Plan, fingerprint: str) -> list[Shard]:
        """Freeze the plan, count what earlier attempts finished, and return the shards that are left."""
        self.plan, self.fingerprint = plan, fingerprint
        self._remove_strangers()
        shards = list(plan.shards())
        present = self.storage.names(self.committed)
        done = [s for s in shards if self.file_name(s) in present]
        self.totals.seconds.update(self.manifest.seconds)
        self.totals.nodes.update(self.manifest.nodes)
        whole = []
        with ThreadPoolExecutor(8) as pool:
            for shard, counts in zip(done, pool.map(self._read_counts, done), strict=True):
                if counts is not None:
                    self.totals.add(counts)
                    whole.append(shard)
        self.save(
            status="running", run_id=self.run_id, fingerprint=fingerprint, plan=plan.model_dump(mode="json"),
            shards=len(shards), **self.progress(),
        )  # fmt: skip
        return sorted(set(shards) - set(whole))

    @property
    def run_id(self) -> str:
        return self.fingerprint[:16]

    def file_name(self, shard: Shard) -> str:
        return self.plan.file_name(shard, self.fingerprint)

    def _read_counts(self, shard: Shard) -> ShardCounts | None:
        """Return the counts of a finished shard, or None when one of its files is missing or damaged."""
        name = self.file_name(shard)
        try:
            counts = ShardCounts.from_metadata(self.storage.footer(layout.shard_file(self.committed, name)).metadata)
            beside = {layout.REJECTED: counts.rejected, layout.SHORT: counts.short}
            beside[layout.CANDIDATES] = bool(self.manifest.request.get("candidates"))
            for folder in (folder for folder, some in beside.items() if some):
                self.storage.footer(layout.shard_file(folder, name))
            return counts
        except (FileNotFoundError, KeyError, TypeError, ValueError):
            return None

    def progress(self) -> dict[str, Any]:
        totals = self.totals
        return {
            "done": Done(shards=totals.shards, **totals.counted()),
            "reasons": dict(totals.reasons.most_common(20)),
            "seconds": {k: round(v, 3) for k, v in totals.seconds.items()},
            "nodes": dict(totals.nodes),
        }

    def save_progress(self) -> None:
        self.save(**self.progress())

    def check_rejected(self, max_rejected: float) -> None:
        """Fail the run when more rows are rejected than the request allows."""
        rejected, rows = self.totals.rejected, self.plan.rows
        if rejected > max_rejected * rows:
            self.save(status="failed", **self.progress())
            raise TooManyRejected(
                f"{rejected:,} of {rows:,} rows were rejected, more than --max-rejected {max_rejected:g} allows; "
                f"{self.totals.commonest_reason()}. What is done is kept in {self.storage.location}; fix the input, "
                "or continue with a larger --max-rejected"
            )

    def check_complete(self) -> None:
        """Fail the run when a planned shard is missing from the output."""
        missing = self._missing(self.plan, self.fingerprint)
        if missing:
            raise RunError(
                f"{len(missing):,} of {self.manifest.shards:,} planned shards are missing, such as {min(missing)}; run "
                "the same command again to make them"
            )

    def _missing(self, plan: Plan, fingerprint: str) -> set[str]:
        """Return the files of planned shards that are not there."""
        return {plan.file_name(s, fingerprint) for s in plan.shards()} - self.storage.names(self.committed)

    def _remove_strangers(self) -> None:
        """Remove shards of another request: one that was refused while it was prepared may have written late."""
        ending = f"-{self.fingerprint[:12]}.parquet"
        for folder in (*layout.PER_SHARD, layout.LABELLED):
            for name in self.storage.names(folder):
                if layout.is_shard_file(name) and not name.endswith(ending):
                    self.storage.remove(f"{folder}/{name}")

    def finish(self, **more: Any) -> None:
        self.storage.remove_unfinished()
        if self.manifest.kind != "train":
            self._remove_strangers()
        try:
            commit.commit(self.storage, self.manifest.kind == "train", self.digests)
        except FileNotFoundError as error:
            if self.storage.guard is not None:
                self.storage.guard()  # whoever owns the directory by now may have removed it
            raise RunError(f"{one_line(error)}; run the same command again to make it") from error
        self.save(status="finished", finished=now(), **self.progress(), **more)


@contextmanager
def interruptible(run: Run, reporter: Reporter | None = None) -> Iterator[None]:
    """End the run in order on Ctrl-C and SIGTERM, and when a disk is full: the message says what is kept and how to
    resume.

    With a reporter the message comes at once. Use that inside `connected`: `ray job stop` gives a driver a second or
    two, and leaving Ray can take longer.
    """
    try:
        yield
    except RequestError as error:
        if run.manifest.status != "finished" and not run.totals.shards and not run.manifest.done.shards:
            # nothing is done, so a corrected request may use the directory; `epida status` shows the problem
            run.save(status="preparing", problem=str(error))
        raise
    except OSError as error:
        if run.storage.guard is not None and isinstance(error, FileNotFoundError):
            run.storage.guard()  # whoever owns the directory by now may have removed a temporary file of ours
        if (reason := refusal(error)) is None:
            raise
        failure = f"{error.filename or run.storage.location}: {reason}"
        with suppress(EpidaError):  # the manifest may be on the disk that is full
            run.save(status="failed", failure=failure)
        kept = f"What is done is kept in {run.storage.location}; run the same command again to resume"
        raise RunError(f"{failure}. {kept}") from error
    except KeyboardInterrupt:
        run.save(status="interrupted", **(run.progress() if run.totals.shards else {}))
        kept = f"what is done is kept in {run.storage.location}; run the same command again to resume"
        if reporter is not None:
            reporter.say(f"stopping: {kept}")
        raise RunError(f"interrupted; {kept}") from None


_DIGESTS = {
    "input": "file", "train": "file", "dev": "file", "eval": "file", "unlabelled": "file",
    "classifier": "saved model", "teacher": "saved model", "model": "saved model",
}  # fmt: skip
"""What those options of a request name that are kept as a digest. --classifier may also be a plain name."""


def _change(option: str, before: Any, now_: Any) -> str:
    if option in ("contents", "versions"):
        before, now_ = before or {}, now_ or {}
        names = sorted(name for name in before.keys() | now_.keys() if before.get(name) != now_.get(name))
        if option == "contents":
            return "; ".join(f"the content of {name} is different" for name in names)
        return "; ".join(f"{name} was {before.get(name)}, now {now_.get(name)}" for name in names)
    if option in _DIGESTS and _is_digest(before) and _is_digest(now_):
        what = "input" if option == "input" else f"{_DIGESTS[option]} of {flag(option)}"
        return f"the {what} is different"
    return f"{flag(option)} was {_brief(option, before)}, now {_brief(option, now_)}"


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{32}|[0-9a-f]{64}", value) is not None


def _brief(option: str, value: Any) -> str:
    if option in _DIGESTS and _is_digest(value):
        return f"a {_DIGESTS[option]}"
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
