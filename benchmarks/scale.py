"""The pipeline's own overhead: the real driver, Ray Data execution and manifest around stages that only sleep.

    python benchmarks/scale.py [--scorers 32] [--seconds 1.0] [--rows 10000000] [--kill-node] [--plan-rows 1000000000]

The nodes are logical: several Ray nodes on this machine whose actors sleep instead of computing, so that many more of
them fit than the machine has cores. Scorers take `--seconds` a shard, generators an eighth of that, a quarter as many.
Printed are: seconds until the first shard; efficiency, which is the scorers' working seconds ÷ the seconds from each
scorer's start to the end; overhead a shard and a row; the driver's memory beside that of a run of 1/100 of the rows.
With --kill-node a node is lost in the middle, with its scorers. The last line is the efficiency.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import ray
from ray.cluster_utils import Cluster

from epida_ray.inputs import Columns, InputFile, Plan, _shard_rows
from epida_ray.run import Run
from epida_ray.storage import Storage
from epida_ray.stream.cluster import Pools
from epida_ray.stream.shards import Job, Work, run_shards

CPUS = 0.45


class SleepingGenerator:
    def __init__(self, job: Job) -> None:
        self.seconds = float(job.generator_args["seconds"]) / 8

    def __call__(self, block: pa.Table) -> pa.Table:
        time.sleep(self.seconds)
        return block


class SleepingScorer:
    """Answers with the counts that a real one would, and with its times."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.seconds = float(job.generator_args["seconds"])
        self.ready = time.time()

    def __call__(self, block: pa.Table) -> dict[str, list[str]]:
        begin = time.time()
        work = Work.of(block)
        time.sleep(self.seconds)
        rows = work.stop - work.start
        self.job.storage.write(f"augmented/{work.start:012d}", b"x")
        counts: dict[str, Any] = {"rows": rows, "candidates": 9 * rows, "kept": 3 * rows, "rejected": 0, "short": 0}
        counts |= {"reasons": {}, "seconds": {"score": self.seconds}, "node": ray.util.get_node_ip_address()}
        counts |= {"actor": os.getpid(), "ready": self.ready, "begin": begin, "end": time.time(), "start": work.start}
        return {"counts": [json.dumps(counts)]}


def plan_of(rows: int) -> Plan:
    file = InputFile(path="corpus.parquet", format="parquet", bytes=100 * rows, digest="0" * 32, rows=rows)
    return Plan(root="/nowhere", files=(file,), columns=Columns(), shard_rows=_shard_rows(rows))


def memory() -> float:
    return psutil.Process().memory_info().rss / 1e6


def one_run(folder: str, rows: int, scorers: int, seconds: float, cluster: Cluster | None) -> dict[str, Any]:
    """The loop of `epida augment` after planning; with a cluster, one of its nodes is lost half way."""
    plan = plan_of(rows)
    run = Run(f"{folder}/run-{rows}")
    run.open("augment", {"rows": rows}, {})
    left = run.start(plan, "0" * 32)
    job = Job(
        plan=plan, storage=Storage(run.storage.url), fingerprint=run.fingerprint, labels=("a", "b"), generator="sleep",
        generator_args={"seconds": seconds}, protect=(), m=3, k=3, select="rem+cem", combine="add", alpha=0.5,
        normalize=True, seed=0, candidates=False,
    )  # fmt: skip
    pools = Pools(max(1, scorers // 4), CPUS, scorers, CPUS, 0.0)
    began, first, saved, peak = time.time(), 0.0, time.time(), 0.0
    actors: dict[int, dict[str, float]] = {}
    starts: list[int] = []
    for counts in run_shards(job, left, pools, 600, SleepingGenerator, SleepingScorer):
        first = first or time.time() - began
        run.counts.add(counts)
        starts.append(counts["start"])
        actor = actors.setdefault(counts["actor"], {"ready": counts["ready"], "busy": 0.0})
        actor["busy"] += counts["end"] - counts["begin"]
        actor["end"] = counts["end"]
        peak = max(peak, memory())
        if time.time() - saved > 10:
            run.save_progress()
            saved = time.time()
        if cluster is not None and 2 * len(starts) > len(left):
            _lose(cluster)
            cluster = None
    run.finish()
    ended = time.time()
    assert sorted(starts) == [shard.start for shard in left], "shards were lost or came twice"
    worked = sum(a["busy"] for a in actors.values())
    available = sum(ended - a["ready"] for a in actors.values())
    return {
        "rows": rows, "shards": len(left), "scorers": len(actors), "first": first, "wall": ended - began,
        "efficiency": worked / available, "memory": peak, "slept": len(left) * seconds / worked,
        "overhead": (available - worked) / len(left),
    }  # fmt: skip


def _lose(cluster: Cluster) -> None:
    node = next(n for n in cluster.list_all_nodes() if n is not cluster.head_node)
    cluster.remove_node(node, allow_graceful=False)
    print("a node was killed")


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
    each = int(actors * CPUS / options.nodes) + 2
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": each, "include_dashboard": False, "object_store_memory": 200_000_000},
    )
    try:
        for _ in range(options.nodes - 1):
            cluster.add_node(num_cpus=each, object_store_memory=200_000_000)
        ray.init(address=cluster.address, log_to_driver=False)
        with tempfile.TemporaryDirectory(prefix="epida-scale-") as folder:
            small = one_run(folder, options.rows // 100, options.scorers, options.seconds, None)
            large = one_run(
                folder, options.rows, options.scorers, options.seconds, cluster if options.kill_node else None
            )
            assert len(list(Path(folder, f"run-{options.rows}", "augmented").iterdir())) == large["shards"]
        for one in (small, large):
            print(
                f"{one['rows']:,} rows, {one['shards']} shards, {one['scorers']} scorers, {options.nodes} nodes: first "
                f"shard after {one['first']:.1f} s, all after {one['wall']:.1f} s; driver {one['memory']:.0f} MB; "
                f"overhead {1000 * one['overhead']:.0f} ms a shard of a scorer's time, "
                f"{1e6 * one['overhead'] * one['shards'] / one['rows']:.1f} µs a row"
            )
        print(f"driver memory, large ÷ small run: {large['memory'] / small['memory']:.2f}")
        print(f"sleeps were {1 / large['slept']:.2f} times as long as asked for on this machine")
        print(f"efficiency {large['efficiency']:.3f}")
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
