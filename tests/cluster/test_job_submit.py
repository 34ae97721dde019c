"""`ray job submit` on three nodes: undisturbed, wrong, stopped, with nodes killed or a full disk."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.jobs import ROUNDS, SLOWLY, Jobs
from tests.cluster.nodes import Node, Nodes
from tests.cluster.processes import LIMIT, TALLY, committed, finish, wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def jobs(job_folder: Path) -> Iterator[Jobs]:
    with Nodes(cpus=[0, 2, 2]) as cluster:
        yield Jobs(cluster, job_folder)


def test_all_shards_are_made_on_the_workers(jobs: Jobs) -> None:
    assert jobs.shards > 3
    made = jobs.manifest("undisturbed")
    assert sum(made["nodes"].values()) == made["shards"]
    assert set(made["nodes"]) <= {node.address for node in jobs.nodes.workers}


def test_the_node_of_the_scorer_killed_half_way(jobs: Jobs) -> None:
    process = jobs.augment_half("killed", *SLOWLY)
    jobs.nodes.worker_with("Score").lose()
    assert committed(jobs.folder / "killed") < jobs.shards
    assert "succeeded" in finish(process)
    jobs.check("killed")
    jobs.nodes.add(2)


def test_all_workers_killed_half_way_come_back(jobs: Jobs) -> None:
    """At the same addresses. Until then the run has nowhere to go on."""
    process = jobs.augment_half("back")
    lost = jobs.nodes.workers
    for node in lost:
        node.lose()
    assert committed(jobs.folder / "back") < jobs.shards
    for node in lost:
        jobs.nodes.start_ray(node)
    assert "succeeded" in finish(process)
    jobs.check("back")


def test_a_wrong_request_is_a_failed_job_with_one_line(jobs: Jobs) -> None:
    """Submitted with the checkout as the working directory."""
    process = jobs.nodes.start(
        "submit", "--working-dir", ".", "--", "python", "jobs/augment.py", str(jobs.folder / "in.parquet"),
        "--output", str(jobs.folder / "wrong"), "--generator", "magic",
    )  # fmt: skip
    output = finish(process, status=1)
    assert "epida: there is no generator 'magic'" in output and "exit code 2" in output


def test_a_stopped_job_ends_in_order_and_the_next_goes_on(jobs: Jobs) -> None:
    run, shards = jobs.folder / "stopped", jobs.shards
    process = jobs.augment("stopped", *SLOWLY, job=("--submission-id", "to-stop"))
    wait_until(process, "second shard", lambda: committed(run) >= 2)
    jobs.nodes.stop_job("to-stop")
    process.communicate(timeout=LIMIT)
    assert jobs.manifest("stopped")["status"] == "interrupted"
    assert 2 <= committed(run) < shards
    assert jobs.nodes.job("to-stop")["status"] == "STOPPED"
    assert "run the same command again to resume" in finish(jobs.nodes.start("logs", "to-stop"))
    assert "resuming" in finish(jobs.augment("stopped"))
    jobs.check("stopped")


def test_a_driver_lost_with_its_node_and_the_job_submitted_again(jobs: Jobs) -> None:
    nodes, run, shards = jobs.nodes, jobs.folder / "driver", jobs.shards
    if not nodes.isolated:
        pytest.skip("nodes that share a network and a temporary directory cannot have drivers of their own")
    name = ("--submission-id", "lost", "--no-wait")
    finish(jobs.augment("driver", *SLOWLY, job=("--entrypoint-num-cpus", "0.1", *name)))
    deadline = time.monotonic() + LIMIT
    while committed(run) < 2:
        assert nodes.job("lost")["status"] in ("PENDING", "RUNNING") and time.monotonic() < deadline
        time.sleep(0.1)
    home = jobs.manifest("driver")["driver"]
    (node,) = (node for node in nodes.workers if node.address == home)
    node.lose()
    assert committed(run) < shards
    deadline = time.monotonic() + LIMIT
    while nodes.job("lost")["status"] == "RUNNING":
        if time.monotonic() > deadline:
            TALLY.hangs += 1
            pytest.fail(f"the job of a lost driver runs on: {nodes.job('lost')}")
        time.sleep(1)
    assert nodes.job("lost")["status"] == "FAILED"
    nodes.add(2)
    assert "resuming" in finish(jobs.augment("driver"))
    jobs.check("driver")


@pytest.mark.parametrize("part", ["RayTrainWorker", "Scorer"])
def test_training_with_the_node_of_a_part_killed_half_way(jobs: Jobs, part: str) -> None:
    name = f"trained-without-{part}"
    process = jobs.train_half(name)
    jobs.nodes.worker_with(part).lose()
    assert "succeeded" in finish(process)
    jobs.check_trained(name)
    jobs.nodes.add(2)


def fail_for_want_of_room(process: subprocess.Popen[str], node: Node, folder: Path) -> None:
    with node.full_disk(folder):
        output = finish(process, status=1)
    assert f"on the node {node.address}: No space left on device" in output
    assert "run the same command again to resume" in output and "Traceback" not in output


def test_a_disk_full_on_the_node_of_the_scorer(jobs: Jobs) -> None:
    process = jobs.augment_half("full", *SLOWLY)
    fail_for_want_of_room(process, jobs.nodes.worker_with("Score"), jobs.folder / "full" / "augmented")
    assert jobs.manifest("full")["status"] == "failed"
    assert "resuming" in finish(jobs.augment("full"))
    jobs.check("full")


def test_training_with_a_disk_full_on_the_node_of_the_scorer(jobs: Jobs) -> None:
    process = jobs.train_half("trained-full", round_=0)
    last = jobs.folder / "trained-full" / "augmented" / f"round={ROUNDS:03d}"
    last.mkdir(parents=True)
    fail_for_want_of_room(process, jobs.nodes.worker_with("Scorer"), last)
    assert jobs.manifest("trained-full")["status"] == "failed"
    assert "resuming after round" in finish(jobs.train("trained-full"))
    jobs.check_trained("trained-full")
