"""What `epida augment` and `epida label` share: shards through the pipeline."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

import ray

from epida_ray.core.errors import EpidaError, RequestError, RunError, TakenOver, TooManyRejected
from epida_ray.core.progress import Reporter
from epida_ray.data.plan import Shard
from epida_ray.method.requests import RunRequest
from epida_ray.runs.run import Run, interruptible
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
                    run.digests.update(counts.files)
                    metrics.shard(counts, run.manifest.shards - run.totals.shards)
                    tracker.update(run.totals.rows, f"{run.totals.kept:,} {done}")
                    run.check_rejected(request.max_rejected)
                    if time.monotonic() - saved > SAVE_EVERY:
                        run.save_progress()
                        saved = time.monotonic()
        except (TooManyRejected, TakenOver):
            raise
        except (RunError, RequestError) as error:
            if isinstance(error, RequestError) and not run.totals.shards:
                raise  # nothing is done, so the directory is free for a corrected request
            with suppress(EpidaError):  # the manifest may be on the disk that is full
                run.save(status="failed", failure=str(error), **run.progress())
            kept = f"{run.totals.shards:,} of {run.manifest.shards:,} shards are kept in {request.output}"
            raise RunError(f"{error}. {kept}; run the same command again to resume") from error
