"""`ray job submit` on three nodes: undisturbed, wrong, stopped, with a node killed, with its driver's node killed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cluster.nodes import LIMIT, Nodes, wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]
ROWS = 20_000
SLOWLY = ("--generators", "1", "--scorers", "1")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jobs")
    words = ["green", "river", "quick", "stone", "letter", "yellow", "market", "window", "winter", "garden", "bright"]
    texts = [
        " ".join(words[(i * 7 + j * (i % 5 + 1)) % 11] for j in range(16 + i % 9)) + (" please" if i % 2 else " now")
        for i in range(ROWS)
    ]
    table = pa.table({"text": texts, "label": ["ask" if i % 2 else "tell" for i in range(ROWS)]})
    pq.write_table(table, folder / "in.parquet")
    return folder


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with Nodes(cpus=[0, 2, 2]) as cluster:
        yield cluster


def submit(nodes: Nodes, folder: Path, name: str, *options: str, job: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    return nodes.start(
        "submit", "--working-dir", ".", *job, "--", "python", "jobs/augment.py", str(folder / "in.parquet"),
        "--output", str(folder / name), "--train-rows", "300", *options,
    )  # fmt: skip


def finish(process: subprocess.Popen[str], status: int = 0) -> str:
    try:
        output, _ = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    assert process.returncode == status, output
    return output


def committed(folder: Path, name: str) -> int:
    return len([p for p in (folder / name / "augmented").glob("*.parquet") if not p.name.startswith(".")])


def content(folder: Path, name: str) -> dict[str, str]:
    files = sorted((folder / name).glob("[ars]*/*.parquet"))
    return {f"{p.parent.name}/{p.name}": sha256(p.read_bytes()).hexdigest() for p in files}


def check(folder: Path, name: str) -> dict:
    assert content(folder, name) == content(folder, "undisturbed")
    rows = pq.read_table(folder / name / "augmented", columns=["sample_id", "rank"])
    counts = rows.group_by("sample_id").aggregate([("rank", "count")])
    assert counts.num_rows == ROWS and set(counts["rank_count"].to_pylist()) == {3}
    return json.loads((folder / name / "manifest.json").read_text())


@pytest.fixture(scope="module")
def shards(corpus: Path, nodes: Nodes) -> int:
    """How many an undisturbed run has, which is there to compare with."""
    output = finish(submit(nodes, corpus, "undisturbed"))
    assert "succeeded" in output and f"{ROWS:,} rows in" in output
    manifest = check(corpus, "undisturbed")
    assert manifest["status"] == "finished" and sum(manifest["nodes"].values()) == manifest["shards"]
    assert set(manifest["nodes"]) <= {node.address for node in nodes.nodes[1:]}
    return manifest["shards"]


def test_a_worker_node_killed_half_way(corpus: Path, nodes: Nodes, shards: int) -> None:
    process = submit(nodes, corpus, "killed")
    wait_until(lambda: committed(corpus, "killed") >= shards // 2, process, "half of the shards")
    nodes.nodes[-1].kill()
    assert committed(corpus, "killed") < shards
    assert "succeeded" in finish(process)
    check(corpus, "killed")
    nodes.add(2)


def test_a_wrong_request_is_a_failed_job_with_one_line(corpus: Path, nodes: Nodes) -> None:
    output = finish(submit(nodes, corpus, "wrong", "--generator", "magic"), status=1)
    assert "epida: there is no generator 'magic'" in output and "exit code 2" in output


def test_a_stopped_job_ends_in_order_and_the_next_goes_on(corpus: Path, nodes: Nodes, shards: int) -> None:
    process = submit(nodes, corpus, "stopped", *SLOWLY, job=("--submission-id", "to-stop"))
    wait_until(lambda: committed(corpus, "stopped") >= 2, process, "second shard")
    nodes.stop_job("to-stop")
    process.communicate(timeout=LIMIT)
    assert json.loads((corpus / "stopped" / "manifest.json").read_text())["status"] == "interrupted"
    assert 2 <= committed(corpus, "stopped") < shards
    assert "STOPPED" in finish(nodes.start("status", "to-stop")).upper()
    assert "run the same command again to resume" in finish(nodes.start("logs", "to-stop"))
    assert "resuming" in finish(submit(nodes, corpus, "stopped"))
    check(corpus, "stopped")


def test_a_driver_lost_with_its_node_and_the_job_submitted_again(corpus: Path, nodes: Nodes, shards: int) -> None:
    if not nodes.isolated:
        pytest.skip("nodes that share a network and a temporary directory cannot have drivers of their own")
    process = submit(nodes, corpus, "driver", *SLOWLY, job=("--entrypoint-num-cpus", "0.1"))
    wait_until(lambda: committed(corpus, "driver") >= 2, process, "second shard")
    home = json.loads((corpus / "driver" / "manifest.json").read_text())["driver"]
    (node,) = (node for node in nodes.nodes[1:] if node.address == home)
    node.kill()
    process.communicate(timeout=LIMIT)
    assert process.returncode != 0 and committed(corpus, "driver") < shards
    nodes.add(2)
    assert "resuming" in finish(submit(nodes, corpus, "driver"))
    check(corpus, "driver")


ROUNDS = 5


def submit_training(nodes: Nodes, folder: Path, name: str) -> subprocess.Popen[str]:
    return nodes.start(
        "submit", "--working-dir", ".", "--", "python", "jobs/train.py", str(folder / "train.parquet"),
        "--output", str(folder / name), "--rounds", str(ROUNDS), "--pretrain-epochs", "1", "--epochs-per-round", "2",
        "--workers", "1", "--generators", "1", "--scorers", "1",
    )  # fmt: skip


def trained(folder: Path, name: str) -> dict[str, str]:
    lines = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == list(range(ROUNDS + 1))
    files = [p for part in ("model", "augmented") for p in (folder / name / part).rglob("*") if p.is_file()]
    return {p.relative_to(folder / name).as_posix(): sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.mark.parametrize("victim", [1, 2])
def test_training_with_a_worker_node_killed_half_way(corpus: Path, nodes: Nodes, victim: int) -> None:
    """Whichever of the two is killed, the train worker or the scorer is on it, or both are."""
    if not (corpus / "trained" / "metrics.jsonl").exists():
        pq.write_table(pq.read_table(corpus / "in.parquet").slice(0, 400), corpus / "train.parquet")
        assert "succeeded" in finish(submit_training(nodes, corpus, "trained"))
    name = f"trained-without-{victim}"
    process = submit_training(nodes, corpus, name)
    checkpoints = corpus / name / "checkpoint"
    wait_until(lambda: any(checkpoints.glob("round-*2.safetensors")), process, "second round")
    alive = [node for node in nodes.nodes if node.process.poll() is None]
    alive[victim].kill()
    assert "succeeded" in finish(process)
    assert trained(corpus, name) == trained(corpus, "trained")
    nodes.add(2)
