"""Metrics of a run, read where Prometheus would read them."""

from __future__ import annotations

import re
import time
import urllib.request

import pytest
import ray

from epida_ray.runs.counts import ShardCounts
from epida_ray.stream.metrics import RunMetrics


def scraped() -> dict[str, float]:
    """Name and tags → value of our metrics, on the only node."""
    (node,) = ray.nodes()
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    text = urllib.request.urlopen(url, timeout=30).read().decode()
    found = {}
    for name, tags, value in re.findall(r"^(ray_epida_\w+)\{(.*)\} (\S+)$", text, re.M):
        pairs = dict(re.findall(r'(\w+)="([^"]*)"', tags))
        if pairs.get("run") == "a-run":
            found[f"{name}/{pairs['stage']}" if "stage" in pairs else name] = float(value)
    return found


@pytest.mark.usefixtures("local_ray")
def test_prometheus_finds_what_the_shards_reported() -> None:
    metrics = RunMetrics("a-run")
    for left in (1, 0):
        seconds = {"score": 0.5, "write": 0.25}
        metrics.shard(ShardCounts(rows=100, candidates=900, kept=290, rejected=3, seconds=seconds), left)
    metrics.weights(newest=4, judging=3)
    deadline = time.monotonic() + 120
    while len(found := scraped()) < 10:
        assert time.monotonic() < deadline, f"only {found}"
        time.sleep(1)
    totals = {name.replace("_total", ""): value for name, value in found.items()}
    assert totals == {
        "ray_epida_rows": 200,
        "ray_epida_candidates": 1800,
        "ray_epida_kept": 580,
        "ray_epida_rejected": 6,
        "ray_epida_shards": 2,
        "ray_epida_shards_waiting": 0,
        "ray_epida_stage_seconds/score": 1.0,
        "ray_epida_stage_seconds/write": 0.5,
        "ray_epida_weights_version": 4,
        "ray_epida_staleness": 1,
    }
