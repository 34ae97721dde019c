"""A node cut off from the others and connected again: the job goes on by itself, and leaves what it always leaves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.jobs import SLOWLY, Jobs
from tests.cluster.nodes import LIMIT, Network, Node, Nodes
from tests.cluster.processes import children, finish, wait_until

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not Network.possible(), reason="nodes cannot be cut off without root and network namespaces"),
]
SHORT = 4.0
"""Seconds; a node is given up after five checks of a second or more."""
SETTINGS = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "5",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "600",
}
"""A node is soon given up, but does not give itself up: what runs on it goes on until it is connected again."""


@pytest.fixture(scope="module")
def jobs(job_folder: Path) -> Iterator[Jobs]:
    with Nodes(cpus=[0, 2, 2], **SETTINGS) as cluster:
        yield Jobs(cluster, job_folder)


def cut_shortly(node: Node) -> None:
    node.cut_off()
    time.sleep(SHORT)
    node.heal()


def end_of_long_cut(jobs: Jobs, node: Node) -> None:
    """The node finds itself given up and ends what it runs; it then comes back as a new one."""
    node.heal()
    node.process.wait(LIMIT)
    jobs.nodes.start_ray(node)


def test_augmenting_with_a_short_cut(jobs: Jobs) -> None:
    process = jobs.augment_half("short", *SLOWLY)
    node = jobs.nodes.worker_with("Score")
    cut_shortly(node)
    assert "succeeded" in finish(process)
    assert node.up
    jobs.check("short")


def test_augmenting_with_a_long_cut(jobs: Jobs) -> None:
    process = jobs.augment_half("long", *SLOWLY)
    node = jobs.nodes.worker_with("Score")
    node.cut_off()
    jobs.nodes.wait_for(2)
    assert process.poll() is None and node.up
    end_of_long_cut(jobs, node)
    assert "succeeded" in finish(process)
    jobs.check("long")


def test_training_with_a_short_cut(jobs: Jobs) -> None:
    process = jobs.train_half("trained-short")
    cut_shortly(jobs.nodes.worker_with("RayTrainWorker"))
    assert "succeeded" in finish(process)
    jobs.check_trained("trained-short")


@pytest.mark.parametrize("part", ["RayTrainWorker", "Scorer"])
def test_training_with_a_long_cut(jobs: Jobs, part: str) -> None:
    name = f"trained-long-{part}"
    process = jobs.train_half(name)
    node = jobs.nodes.worker_with(part)
    node.cut_off()
    jobs.nodes.wait_for(2)
    assert process.poll() is None and node.up
    end_of_long_cut(jobs, node)
    assert "succeeded" in finish(process)
    jobs.check_trained(name)


def test_a_train_worker_that_was_replaced_stops_without_a_trace(jobs: Jobs) -> None:
    """Stopped in the middle of a round, cut off, and woken when another does its work on the same disk."""
    run = jobs.folder / "replaced"
    process = jobs.train_half("replaced")
    node = jobs.nodes.worker_with("RayTrainWorker")
    (worker,) = children(node.process.pid, "RayTrainWorker")
    wait_until(process, "round 3 in work", (run / "rounds" / "00003.json").exists)
    worker.suspend()
    node.cut_off()
    wait_until(process, "another train worker", (run / "checkpoint" / "attempts" / "000002.json").exists)
    worker.resume()
    assert "succeeded" in finish(process)
    end_of_long_cut(jobs, node)
    jobs.check_trained("replaced")
