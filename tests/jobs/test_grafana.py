"""The dashboard asks for metrics that a run exports, under the names that Ray gives them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import epida_ray

ROOT = Path(__file__).parents[2]


def test_every_panel_asks_for_a_metric_that_exists() -> None:
    source = (Path(epida_ray.__file__).parent / "stream" / "metrics.py").read_text()
    counters = {"rows", "candidates", "kept", "rejected", "short"}
    counters |= set(re.findall(r'Counter\("epida_(\w+)"', source))
    gauges = set(re.findall(r'Gauge\("epida_(\w+)"', source))
    known = {f"ray_epida_{n}_total" for n in counters} | {f"ray_epida_{n}" for n in gauges} | {"ray_tasks"}
    dashboard = json.loads((ROOT / "docs" / "grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [v["query"] for v in dashboard["templating"]["list"] if v["type"] == "query"]
    used = {name for query in queries for name in re.findall(r"\bray_\w+", query)}
    assert used <= known and len(used) >= 8
