"""Prometheus metrics of a run, through the exporter that every Ray node has.

They are counted in the driver, from what each finished shard reports; Ray puts `ray_` before the names. Retried tasks
and queues inside Ray Data are among Ray's own metrics: `ray_tasks{IsRetry="1"}`, `ray_data_*`.
"""

from __future__ import annotations

from ray.util.metrics import Counter, Gauge

from epida_ray.runs.counts import COUNTED, ShardCounts


class RunMetrics:
    """The metrics of one run, told apart by its id."""

    def __init__(self, run_id: str) -> None:
        self._tags = {"run": run_id}
        keys = ("run",)
        self._counters = {n: Counter(f"epida_{n}", f"Of all finished shards: {n}.", keys) for n in COUNTED}
        self._shards = Counter("epida_shards", "Finished shards.", keys)
        self._seconds = Counter("epida_stage_seconds", "CPU seconds of a stage.", ("run", "stage"))
        self._waiting = Gauge("epida_shards_waiting", "Shards that are not finished.", keys)
        self._version = Gauge("epida_weights_version", "Version of the newest weights.", keys)
        self._staleness = Gauge("epida_staleness", "Rounds that the judging weights are behind the newest.", keys)

    def shard(self, counts: ShardCounts, waiting: int) -> None:
        """Count one more finished shard; `waiting` are left."""
        for name, counter in self._counters.items():
            if value := getattr(counts, name):
                counter.inc(value, self._tags)
        self._shards.inc(1, self._tags)
        for stage, spent in counts.seconds.items():
            if spent > 0:
                self._seconds.inc(spent, self._tags | {"stage": stage})
        self._waiting.set(waiting, self._tags)

    def weights(self, newest: int, judging: int) -> None:
        self._version.set(newest, self._tags)
        self._staleness.set(newest - judging, self._tags)
