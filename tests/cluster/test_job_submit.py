"""`ray job submit` on three nodes: undisturbed, wrong, stopped, with a node killed, with its driver's node killed."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cluster.nodes import ROOT, Nodes
from tests.cluster.processes import LIMIT, TALLY, committed, content, count_rows, finish, wait_until, write_corpus

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]
ROWS = 20_000
ROUNDS = 5
SLOWLY = ("--generators", "1", "--scorers", "1")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The input, and a working directory with the jobs alone: epida_ray is installed on the nodes."""
    folder = tmp_path_factory.mktemp("jobs")
    write_corpus(folder / "in.parquet", ROWS)
    pq.write_table(pq.read_table(folder / "in.parquet").slice(0, 400), folder / "train.parquet")
    shutil.copytree(ROOT / "jobs", folder / "work" / "jobs", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with Nodes(cpus=[0, 2, 2]) as cluster:
        yield cluster


def submit(nodes: Nodes, folder: Path, name: str, *options: str, job: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    return nodes.start(
        "submit", "--working-dir", str(folder / "work"), *job, "--", "python", "jobs/augment.py",
        str(folder / "in.parquet"), "--output", str(folder / name), "--train-rows", "300",
        *(options or ("--generators", "2", "--scorers", "2")),
    )  # fmt: skip


def check(folder: Path, name: str) -> dict:
    assert content(folder / name) == content(folder / "undisturbed")
    count_rows(folder / name, ROWS)
    return manifest(folder, name)


def manifest(folder: Path, name: str) -> dict:
    return json.loads((folder / name / "manifest.json").read_text())


@pytest.fixture(scope="module")
def shards(corpus: Path, nodes: Nodes) -> int:
    """How many an undisturbed run has, which is there to compare with."""
    output = finish(submit(nodes, corpus, "undisturbed"))
    assert "succeeded" in output and f"{ROWS:,} rows in" in output
    made = check(corpus, "undisturbed")
    assert made["status"] == "finished" and sum(made["nodes"].values()) == made["shards"]
    assert set(made["nodes"]) <= {node.address for node in nodes.nodes[1:]}
    return made["shards"]


def test_a_worker_node_killed_half_way(corpus: Path, nodes: Nodes, shards: int) -> None:
    process = submit(nodes, corpus, "killed")
    wait_until(process, "half of the shards", lambda: committed(corpus / "killed") >= shards // 2)
    nodes.nodes[-1].lose()
    assert committed(corpus / "killed") < shards
    assert "succeeded" in finish(process)
    check(corpus, "killed")
    nodes.add(2)


def test_a_wrong_request_is_a_failed_job_with_one_line(corpus: Path, nodes: Nodes) -> None:
    """Submitted with the checkout as the working directory."""
    process = nodes.start(
        "submit", "--working-dir", ".", "--", "python", "jobs/augment.py", str(corpus / "in.parquet"),
        "--output", str(corpus / "wrong"), "--generator", "magic",
    )  # fmt: skip
    output = finish(process, status=1)
    assert "epida: there is no generator 'magic'" in output and "exit code 2" in output


def test_a_stopped_job_ends_in_order_and_the_next_goes_on(corpus: Path, nodes: Nodes, shards: int) -> None:
    process = submit(nodes, corpus, "stopped", *SLOWLY, job=("--submission-id", "to-stop"))
    wait_until(process, "second shard", lambda: committed(corpus / "stopped") >= 2)
    nodes.stop_job("to-stop")
    process.communicate(timeout=LIMIT)
    assert manifest(corpus, "stopped")["status"] == "interrupted"
    assert 2 <= committed(corpus / "stopped") < shards
    assert nodes.job("to-stop")["status"] == "STOPPED"
    assert "run the same command again to resume" in finish(nodes.start("logs", "to-stop"))
    assert "resuming" in finish(submit(nodes, corpus, "stopped"))
    check(corpus, "stopped")


def test_a_driver_lost_with_its_node_and_the_job_submitted_again(corpus: Path, nodes: Nodes, shards: int) -> None:
    if not nodes.isolated:
        pytest.skip("nodes that share a network and a temporary directory cannot have drivers of their own")
    name = ("--submission-id", "lost", "--no-wait")
    finish(submit(nodes, corpus, "driver", *SLOWLY, job=("--entrypoint-num-cpus", "0.1", *name)))
    deadline = time.monotonic() + LIMIT
    while committed(corpus / "driver") < 2:
        assert nodes.job("lost")["status"] in ("PENDING", "RUNNING") and time.monotonic() < deadline
        time.sleep(0.1)
    home = manifest(corpus, "driver")["driver"]
    (node,) = (node for node in nodes.nodes[1:] if node.address == home)
    node.lose()
    assert committed(corpus / "driver") < shards
    deadline = time.monotonic() + LIMIT
    while nodes.job("lost")["status"] == "RUNNING":
        if time.monotonic() > deadline:
            TALLY.hangs += 1
            pytest.fail(f"the job of a lost driver runs on: {nodes.job('lost')}")
        time.sleep(1)
    assert nodes.job("lost")["status"] == "FAILED"
    nodes.add(2)
    assert "resuming" in finish(submit(nodes, corpus, "driver"))
    check(corpus, "driver")


def submit_training(nodes: Nodes, folder: Path, name: str) -> subprocess.Popen[str]:
    return nodes.start(
        "submit", "--working-dir", str(folder / "work"), "--", "python", "jobs/train.py", str(folder / "train.parquet"),
        "--output", str(folder / name), "--rounds", str(ROUNDS), "--pretrain-epochs", "1", "--epochs-per-round", "2",
        "--workers", "1", "--generators", "1", "--scorers", "1",
    )  # fmt: skip


def trained(folder: Path, name: str) -> dict[str, str]:
    lines = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == list(range(ROUNDS + 1))
    return content(folder / name, "model", "augmented")


@pytest.mark.parametrize("victim", [1, 2])
def test_training_with_a_worker_node_killed_half_way(corpus: Path, nodes: Nodes, victim: int) -> None:
    """Whichever of the two is killed, the train worker or the scorer is on it, or both are."""
    if not (corpus / "trained" / "metrics.jsonl").exists():
        assert "succeeded" in finish(submit_training(nodes, corpus, "trained"))
    name = f"trained-without-{victim}"
    process = submit_training(nodes, corpus, name)
    checkpoints = corpus / name / "checkpoint"
    wait_until(process, "second round", lambda: any(checkpoints.glob("round-*2.safetensors")))
    alive = [node for node in nodes.nodes if node.process.poll() is None]
    alive[victim].lose()
    assert "succeeded" in finish(process)
    count_rows(corpus / name)
    assert trained(corpus, name) == trained(corpus, "trained")
    nodes.add(2)
