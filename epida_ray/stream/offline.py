"""What `epida augment` and `epida label` share: shards through the pipeline, and an orderly end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import ray

from epida_ray.core.errors import EpidaError, RequestError, RunError, TakenOver, TooManyRejected
from epida_ray.core.progress import Reporter
from epida_ray.data.plan import Shard
from epida_ray.method.requests import RunRequest
from epida_ray.runs.run import Run
from epida_ray.stream.cluster import connected, size_pools
from epida_ray.stream.metrics import RunMetrics
from epida_ray.stream.pipeline import Job, run_shards
from epida_ray.stream.steps import counted_steps

SAVE_EVERY = 10.0
"""Seconds between two saves of the manifest while shards are being finished."""


def work_through(
    left: list[Shard],
    job: Job,
    run: Run,
    request: RunRequest,
    reporter: Reporter,
    *,
    command: str,
    done: str,
    generators: int | None,
    generator_gpus: float = 0.0,
) -> None:
    """Put the shards that are left through the pipeline, and count them. `done` is what happens to a row."""
    if run.totals.shards:
        reporter.say(f"resuming: {run.totals.shards:,} of {run.totals.shards + len(left):,} shards are done")
    saved = time.monotonic()
    with (
        connected(request.address, reporter),
        interruptible(run, reporter),
        reporter.track(command, job.plan.rows, run.totals.rows) as tracker,
    ):
        pools = size_pools(generators, request.scorer_actors, generator_gpus)
        run.save(pools=pools._asdict(), driver=ray.util.get_node_ip_address())
        metrics = RunMetrics(run.run_id)
        try:
            with counted_steps() as steps:
                for counts in run_shards(replace(job, steps=steps), left, pools, request.stall_timeout):
                    run.totals.add(counts)
                    metrics.shard(counts, run.manifest.shards - run.totals.shards)
                    tracker.update(run.totals.rows, f"{run.totals.kept:,} {done}")
                    run.check_rejected(request.max_rejected)
                    if time.monotonic() - saved > SAVE_EVERY:
                        run.save_progress()
                        saved = time.monotonic()
        except (TooManyRejected, TakenOver):
            raise
        except RunError as error:
            with suppress(EpidaError):  # the manifest may be on the disk that is full
                run.save(status="failed", failure=str(error))
            kept = f"{run.totals.shards:,} of {run.manifest.shards:,} shards are kept in {request.output}"
            raise RunError(f"{error}. {kept}; run the same command again to resume") from error


@contextmanager
def interruptible(run: Run, reporter: Reporter | None = None) -> Iterator[None]:
    """End the run in order on Ctrl-C and SIGTERM: what is done is kept, and the message says how to resume.

    With a reporter the message comes at once. Use that inside `connected`: `ray job stop` gives a driver a second or
    two, and leaving Ray can take longer.
    """
    try:
        yield
    except RequestError as error:
        if run.manifest.status != "finished" and not run.manifest.done.shards and run.manifest.best is None:
            # nothing is done, so a corrected request may use the directory; `epida status` shows the problem
            run.save(status="preparing", problem=str(error))
        raise
    except KeyboardInterrupt:
        run.save(status="interrupted", **(run.progress() if run.totals.shards else {}))
        kept = f"what is done is kept in {run.storage.location}; run the same command again to resume"
        if reporter is not None:
            reporter.say(f"stopping: {kept}")
        raise RunError(f"interrupted; {kept}") from None
