"""The driver's part of the rounds of `epida train`: it has round after round judged, and reports them."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from epida_ray.core.errors import RunError
from epida_ray.core.progress import Reporter, Tracker
from epida_ray.core.steps import Patience
from epida_ray.data.plan import Plan
from epida_ray.method import prepare
from epida_ray.method.pool import pool_shards
from epida_ray.method.requests import TrainRequest
from epida_ray.method.round_plan import check_rejected
from epida_ray.method.stages import STAGES, RoundOptions
from epida_ray.method.transport import RoundClock, WeightTransport, version_for
from epida_ray.runs import checkpoint, layout
from epida_ray.runs.counts import COUNTED, Totals
from epida_ray.runs.run import Run
from epida_ray.stream.cluster import Pools
from epida_ray.stream.fit import Fit
from epida_ray.stream.metrics import RunMetrics
from epida_ray.stream.pipeline import Job, Work
from epida_ray.stream.rounds import Candidates, Judged, Scorers


class Loop:
    """The driver's loop: judge round after round as training publishes weights, then wait for training to end."""

    def __init__(
        self,
        request: TrainRequest,
        run: Run,
        pool: Plan | None,
        pools: Pools,
        transport: WeightTransport,
        clock: RoundClock,
        done: int,
        versions: list[int],
        reporter: Reporter,
    ) -> None:
        self.pool = pool
        self.request, self.run_, self.pools = request, run, pools
        self.transport, self.clock, self.reporter = transport, clock, reporter
        self.done, self.versions = done, versions
        self.metrics = RunMetrics(run.run_id)
        self.y = prepare.read_prepared(run.storage, "train", run.manifest.labels, soft=False).y

    def run(self, left: list[int], fit: Fit) -> None:
        self.fit = fit
        with (
            self._judges(left) as (candidates, scorers),
            self.reporter.track("train", self.request.rounds, max(0, self.done), unit="rounds") as tracker,
        ):
            for round_ in left:
                version = version_for(round_, self.request.max_staleness)
                if not self._wait_for(version):
                    break
                newest = report(self.run_, tracker)
                if newest is not None and newest["stopped"]:  # saved before the weights of that round are published
                    break
                self.clock.start(round_)
                self.metrics.weights(version_for(round_, 0), version)
                self._judge(round_, version, candidates, scorers)
            self._wait_for_training(tracker)
        newest = report(self.run_, None, final=True)  # the newest round's line has its times only now
        if newest is not None:
            self._check_complete(newest["round"])

    def rounds_to_judge(self) -> list[int]:
        request = self.request
        if not request.augmenting and self.pool is None:
            return []
        last = request.rounds if request.online or self.pool is not None else 1
        needed = set(range(max(0, self.done) + 1, last + 1))
        if request.augmenting and not request.online and self.done < request.rounds:
            needed.add(1)  # every round learns from its rewrites
        judged = {layout.judged_round(name) for name in self.run_.storage.names(layout.ROUNDS)}
        damaged = [round_ for round_ in sorted(judged & needed) if not self._intact(round_)]
        left = sorted((needed - judged) | set(damaged))
        if left and left[0] <= self.done and version_for(left[0], request.max_staleness) not in self.versions:
            raise RunError(
                f"a file of round {left[0]} is damaged or missing, and the weights that judged it are gone; "
                "train again with another --output"
            )
        for round_ in damaged:
            self.reporter.warn(f"a file of round {round_} is damaged or missing; its candidates are judged again")
            self.run_.storage.remove(layout.judged_file(round_))
        return left

    def _intact(self, round_: int) -> bool:
        """Return whether every shard of a judged round is there and can be opened."""
        storage, job = self.run_.storage, self._job()
        for work in self._work(round_):
            name = job.file(layout.POOL if work.pool else layout.AUGMENTED, work)
            try:
                storage.footer(name)
            except (FileNotFoundError, ValueError):
                return False
        return True

    def _check_complete(self, last: int) -> None:
        """Fail the run when a planned shard of a round that was trained on is missing from the output."""
        job, storage = self._job(), self.run_.storage
        planned = {
            job.file(layout.POOL if work.pool else layout.AUGMENTED, work)
            for round_ in range(1, last + 1)
            for work in self._work(round_)
        }
        folders = {name.rpartition("/")[0] for name in planned}
        missing = planned - {f"{folder}/{name}" for folder in folders for name in storage.names(folder)}
        if missing:
            raise RunError(
                f"{len(missing):,} of {len(planned):,} planned shards are missing, such as {min(missing)}; "
                "training used them, so train again with another --output"
            )

    def _job(self) -> Job:
        run = self.run_
        return Job(
            run.plan,
            run.storage,
            run.fingerprint,
            RoundOptions.of(self.request, run.manifest.labels, self.y),
            candidates=self.request.candidates,
            online=True,
            model=layout.INITIAL,
            trust=self.request.trusted(),
            pool=self.pool,
            pool_rewrites=self.request.pool_rewrites,
            teacher=self.request.teacher is not None,
            owner=run.manifest.owner,
            steps=self.transport,
        )

    def _work(self, round_: int) -> list[Work]:
        """Return the shards of a round: all labelled rows, if they are rewritten, and a slice of the pool."""
        rewritten = self.request.augmenting and (self.request.online or round_ == 1)
        work = [Work(round_, *shard) for shard in self.run_.plan.shards()] if rewritten else []
        if self.pool is not None:
            slice_ = pool_shards(self.pool, round_, self.request.pool_rows, self.request.seed)
            work += [Work(round_, *shard, pool=1) for shard in slice_]
        return work

    @contextmanager
    def _judges(self, left: list[int]) -> Iterator[tuple[Any, Any]]:
        """Start generation and the scorers, if any round is left to judge."""
        if not left:
            yield None, None
            return
        job, limit = self._job(), self.request.stall_timeout
        self.clock.start(left[0])
        work = [one for round_ in left for one in self._work(round_)]
        candidates = Candidates(job, self.transport, self.clock, self.pools, work, limit)
        with Scorers(job, self.transport, self.pools, limit) as scorers:
            yield candidates, scorers

    def _wait_for(self, version: int) -> bool:
        """Wait for these weights; return False when training ended without them, as early stopping does."""
        limit = self.request.stall_timeout
        patience = Patience(limit, self.transport.steps)
        while True:
            self.fit.check()
            if self.transport.is_published(version):
                return True
            if not self.fit.running:
                self.fit.check()
                return False
            if patience.over():
                raise RunError(
                    f"training did not publish version {version} of the weights and made no step for {limit:.0f} s; "
                    "--stall-timeout sets the limit"
                )

    def _judge(self, round_: int, version: int, candidates: Candidates, scorers: Scorers) -> None:
        """Have a round's candidates judged, and write the file that says so."""
        began = time.perf_counter()
        totals, answers = Totals(), []
        of_pool = {False: Totals(), True: Totals()}
        shards = len(self._work(round_))
        for answer in scorers.judge(candidates.of_round(round_, shards), version):
            answer.counts.check()
            totals.add(answer.counts)
            self.run_.digests.update(answer.counts.files)
            of_pool[answer.pool].add(answer.counts)
            answers.append(answer)
            self.metrics.shard(answer.counts, shards - totals.shards)
            self.transport.step()
        for pool, some in of_pool.items():
            reason = some.commonest_reason() if some.rejected else ""
            check_rejected(round_, some.rejected, some.rows, self.request.max_rejected, reason, pool)
        facts = _judged_facts(totals, answers) | {"judged_by_version": version}
        facts["seconds"] |= {"generate_wait": candidates.waited, "judge_wall": time.perf_counter() - began}
        run = self.run_
        run.totals.nodes.update(totals.nodes)
        run.save(nodes=dict(run.totals.nodes))
        run.storage.write(layout.judged_file(round_), json.dumps(facts).encode())

    def _wait_for_training(self, tracker: Tracker) -> None:
        limit = self.request.stall_timeout
        patience = Patience(limit, self.transport.steps)
        while self.fit.running:
            if patience.over():
                raise RunError(f"training made no step for {limit:.0f} s; --stall-timeout sets the limit")
            self.fit.wait_briefly()
            report(self.run_, tracker)
        self.fit.check()


def _judged_facts(totals: Totals, answers: list[Judged]) -> dict[str, Any]:
    """Return a judged round's line: counts, mean scores of what is kept, who did it, and the time it took."""
    kept = max(1, totals.kept)
    busy: Counter[int] = Counter()
    load: Counter[int] = Counter()
    for answer in answers:
        busy[answer.scorer_pid] += answer.busy_seconds  # type: ignore[assignment]
        load[answer.scorer_pid] += answer.load_seconds  # type: ignore[assignment]
    return totals.counted() | {
        "s_div": totals.s_div / kept,
        "s_qua": totals.s_qua / kept,
        "flip_rate": totals.flips / kept,
        "scorer_pids": sorted(busy),
        "generator_pids": sorted({answer.generator_pid for answer in answers}),
        "seconds": {k: round(v, 4) for k, v in totals.seconds.items()}
        | {"judge": max(busy.values()), "load_weights": max(load.values())},
    }


def report(run: Run, tracker: Tracker | None, final: bool = False) -> dict[str, Any] | None:
    """Bring metrics.jsonl, the manifest and the progress line up to the newest checkpoint; return its facts."""
    facts = checkpoint.newest_facts(run.storage)
    if facts is None:
        return None
    metrics = facts["metrics"]
    before = run.manifest.rounds_done
    totals = run.totals = Totals(shards=len(metrics), nodes=run.totals.nodes)
    for line in metrics:
        for name in COUNTED:
            setattr(totals, name, getattr(totals, name) + line.get(name, 0))
        totals.seconds.update({k: v for k, v in line["seconds"].items() if k in (*STAGES, "train")})
    if len(metrics) != before or final:
        totals.nodes[facts["node"]] += max(0, len(metrics) - before)
        run.storage.write(layout.METRICS, "".join(json.dumps(line) + "\n" for line in metrics).encode())
        run.trackers.rounds(metrics[before:])
        run.save(rounds_done=len(metrics), best_round=facts["best_round"], **run.progress())
        if tracker is not None:
            newest = metrics[-1]
            tracker.update(
                newest["round"],
                f"round {newest['round']}: loss {newest['loss']:.3f}, dev macro-F1 {newest['dev_macro_f1']:.3f} "
                f"(chosen so far: {facts['best']['macro_f1']:.3f} in round {facts['best_round']})",
            )
    return facts
