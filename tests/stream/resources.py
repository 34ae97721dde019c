"""What a run has to give back to a Ray that goes on after it."""

from __future__ import annotations

import time

import ray


def wait_for_all_cpus(limit: float = 60.0) -> None:
    """Return when no actor or task holds a CPU of the session's Ray."""
    deadline = time.monotonic() + limit
    while (free := ray.available_resources().get("CPU", 0)) < (total := ray.cluster_resources()["CPU"]):
        assert time.monotonic() < deadline, f"{total - free:g} CPUs are still held after {limit:g} s"
        time.sleep(0.1)
