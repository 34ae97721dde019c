"""The pipeline's own overhead: the real driver, Ray Data execution and manifest around stages that only sleep.

    python benchmarks/scale.py [--scorers 32] [--seconds 1.0] [--rows 10000000] [--nodes 4] [--kill-node]

The nodes are logical: several Ray nodes on this machine whose actors sleep instead of computing, so that many more of
them fit than the machine has cores. Scorers take `--seconds` a shard, generators an eighth of that, a quarter as many.
The clock starts when all actors are up: on machines of their own they start side by side, here one after the other,
some seconds of CPU each. The ideal is what a scheduler without any cost would take: shards ÷ scorers, rounded up, times
seconds. Printed are also what each shard costs in CPU time, by kind of process, and the driver's memory beside that of
a run of 1/100 of the rows. With --kill-node the node with the most scorers is lost half way, and they must come back on
others. The last line is the ratio of the ideal to the measured time.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import ray
from ray.cluster_utils import Cluster

from epida_ray.data.plan import Columns, InputFile, Plan, rows_per_shard
from epida_ray.data.storage import Storage
from epida_ray.runs.run import Run
from epida_ray.stream.cluster import Pools
from epida_ray.stream.pipeline import Job, Work, run_shards

CPUS = 0.45


class Sleeper:
    """Waits for all other actors before its first shard."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.seconds = float(job.generator_args["seconds"])
        self.folder = Path(job.generator_args["folder"])
        self.node = ray.get_runtime_context().get_node_id()
        self.ready = time.time()
        self.waited = False
        (self.folder / f"{type(self).__name__}-{os.getpid()}").touch()

    def wait(self) -> None:
        while not self.waited:
            self.waited = sum(1 for _ in self.folder.iterdir()) >= self.job.generator_args["actors"]
            time.sleep(0 if self.waited else 0.2)


class SleepingGenerator(Sleeper):
    def __call__(self, block: pa.Table) -> pa.Table:
        time.sleep(self.seconds / 8)
        return block


class SleepingScorer(Sleeper):
    """Answers with the counts that a real one would, and with its times."""

    def __call__(self, block: pa.Table) -> dict[str, list[str]]:
        self.wait()
        begin = time.time()
        work = Work.of(block)
        time.sleep(self.seconds)
        rows = work.stop - work.start
        self.job.storage.write(f"augmented/{work.start:012d}", b"x")
        counts: dict[str, Any] = {"rows": rows, "candidates": 9 * rows, "kept": 3 * rows, "rejected": 0, "short": 0}
        counts |= {"reasons": {}, "seconds": {"score": self.seconds}, "node": self.node, "start": work.start}
        counts |= {"actor": os.getpid(), "ready": self.ready, "begin": begin}
        return {"counts": [json.dumps(counts)]}


def plan_of(rows: int) -> Plan:
    file = InputFile(path="corpus.parquet", format="parquet", bytes=100 * rows, digest="0" * 32, rows=rows)
    return Plan(root="/nowhere", files=(file,), columns=Columns(), shard_rows=rows_per_shard(rows))


def memory() -> float:
    return psutil.Process().memory_info().rss / 1e6


def cpu_seconds() -> Counter[str]:
    """So far, of this process and of all that it started."""
    found: Counter[str] = Counter()
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        try:
            title = " ".join(process.cmdline())
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        kind = "driver" if process == me else "actors" if "MapWorker" in title else "Ray's own processes"
        found[kind] += times.user + times.system
    return found


def one_run(folder: str, rows: int, scorers: int, seconds: float, cluster: Cluster | None) -> dict[str, Any]:
    """The loop of `epida augment` after planning; with a cluster, one of its nodes is lost half way."""
    plan = plan_of(rows)
    run = Run(f"{folder}/run-{rows}")
    run.open("augment", {"rows": rows}, {})
    left = run.start(plan, "0" * 32)
    scorers = min(scorers, len(left))
    generators = max(1, scorers // 4)
    up = Path(folder, f"up-{rows}")
    up.mkdir()
    job = Job(
        plan=plan, storage=Storage(run.storage.url), fingerprint=run.fingerprint, labels=("a", "b"), generator="sleep",
        generator_args={"seconds": seconds, "folder": str(up), "actors": scorers + generators}, protect=(), m=3, k=3,
        select="rem+cem", combine="add", alpha=0.5, normalize=True, seed=0, candidates=False,
    )  # fmt: skip
    began, saved, peak, began_work, lost, killed = time.time(), time.time(), 0.0, 0.0, 0, ""
    actors: dict[int, dict[str, Any]] = {}
    starts: list[int] = []
    before: Counter[str] = Counter()
    cpu: Counter[str] = Counter()
    for counts in run_shards(
        job, left, Pools(generators, CPUS, scorers, CPUS, 0.0), 600, SleepingGenerator, SleepingScorer
    ):
        if not starts:
            before, began_work = cpu_seconds(), counts["begin"]
        run.counts.add(counts)
        starts.append(counts["start"])
        actors[counts["actor"]] = counts
        peak = max(peak, memory())
        if len(starts) == len(left):
            cpu = cpu_seconds() - before
        if time.time() - saved > 10:
            run.save_progress()
            saved = time.time()
        if cluster is not None and not killed and 2 * len(starts) > len(left):
            killed = lose_node(cluster, [one["node"] for one in actors.values()])
            lost, killed_at = sum(one["node"] == killed for one in actors.values()), time.time()
    run.finish()
    wall = time.time() - began_work
    assert sorted(starts) == [shard.start for shard in left], "shards were lost or came twice"
    assert len(list(Path(folder, f"run-{rows}", "augmented").iterdir())) == len(left)
    result = {
        "rows": rows, "shards": len(left), "scorers": scorers, "start": began_work - began, "wall": wall,
        "ideal": math.ceil(len(left) / scorers) * seconds, "memory": peak,
        "cpu": {kind: 1000 * value / len(left) for kind, value in cpu.items()},
    }  # fmt: skip
    if killed:
        back = [one for one in actors.values() if one["ready"] > killed_at and one["node"] != killed]
        print(f"a node was lost half way with {lost} scorers; {len(back)} came back on other nodes, and the run ended")
        assert lost and back
    return result


def lose_node(cluster: Cluster, homes: list[str]) -> str:
    """Kill the node with the most scorers that is not the driver's."""
    others = {node.node_id: node for node in cluster.list_all_nodes() if node is not cluster.head_node}
    chosen = max(others, key=homes.count)
    cluster.remove_node(others[chosen], allow_graceful=False)
    return chosen


def planning(rows: int) -> None:
    """What a corpus of this size costs the driver before and beside the work."""
    before, began = memory(), time.time()
    plan = plan_of(rows)
    shards = list(plan.shards())
    names = [plan.shard_name(s) for s in shards]
    print(
        f"plan of {rows:,} rows: {len(shards):,} shards of {plan.shard_rows:,} rows, {time.time() - began:.2f} s, "
        f"{memory() - before:.0f} MB, manifest {len(plan.model_dump_json()):,} bytes, {len(names[0])} characters a name"
    )


def show(one: dict[str, Any], nodes: int) -> None:
    cpu = ", ".join(f"{kind} {value:.1f}" for kind, value in one["cpu"].items())
    overhead = one["wall"] * one["scorers"] / one["shards"] - one["ideal"] * one["scorers"] / one["shards"]
    print(
        f"{one['rows']:,} rows, {one['shards']} shards, {one['scorers']} scorers on {nodes} nodes: all actors up after "
        f"{one['start']:.1f} s, then {one['wall']:.1f} s where {one['ideal']:.1f} s is ideal; "
        f"{1000 * overhead:.0f} ms of a scorer's time lost a shard, "
        f"{1e6 * overhead * one['shards'] / one['rows']:.1f} µs a row; CPU ms a shard: {cpu}; "
        f"driver {one['memory']:.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scorers", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--kill-node", action="store_true")
    parser.add_argument("--plan-rows", type=int, default=1_000_000_000)
    options = parser.parse_args()
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    for rows in (1_000, 1_000_000, options.plan_rows):
        planning(rows)
    actors = options.scorers + options.scorers // 4
    each = math.ceil(actors * CPUS / max(1, options.nodes - 1)) + 1  # one node may be lost
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": each, "include_dashboard": False, "object_store_memory": 200_000_000},
    )
    try:
        for _ in range(options.nodes - 1):
            cluster.add_node(num_cpus=each, object_store_memory=200_000_000)
        ray.init(address=cluster.address, log_to_driver=False)
        with tempfile.TemporaryDirectory(prefix="epida-scale-") as folder:
            small = one_run(folder, options.rows // 100, min(8, options.scorers), options.seconds, None)
            show(small, options.nodes)
            large = one_run(
                folder, options.rows, options.scorers, options.seconds, cluster if options.kill_node else None
            )
            show(large, options.nodes)
    finally:
        ray.shutdown()
        cluster.shutdown()
    print(f"driver memory, large ÷ small run: {large['memory'] / small['memory']:.2f}")
    print(f"ratio {large['ideal'] / large['wall']:.3f}")


if __name__ == "__main__":
    main()
