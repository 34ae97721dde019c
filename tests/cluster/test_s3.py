"""Runs whose input, output, model and training file are on an S3-compatible server."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer

from epida_ray.api import _location
from epida_ray.data.plan import Columns, plan_inputs
from tests.cluster.flaky import FAULTS, flaky
from tests.cluster.processes import TALLY, content, epida, finish, running, wait_until

LOCAL = ("--address", "local")
ROWS = 12_000
VERBS = ["order", "send back", "pay for", "return", "open", "describe", "repair", "buy"]
THINGS = ["the blue kettle", "my new phone", "a broken lamp", "two wooden chairs", "this heavy parcel"]


def corpus(path: Path, rows: int) -> None:
    texts: list[str | None] = [
        f"{'Please help me' if i % 2 else 'I would like'} to {VERBS[i % 8]} {THINGS[i % 5]} number {i} before Friday!"
        for i in range(rows)
    ]
    texts[3] = None
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"text": texts, "label": ["help" if i % 2 else "wish" for i in range(rows)]}), path)


class Server:
    """The server, and what is in its one bucket."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://{address}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        self.client = boto3.client(
            "s3", endpoint_url=f"http://{address}", region_name="us-east-1", aws_access_key_id="test",
            aws_secret_access_key="test",
        )  # fmt: skip
        self.client.create_bucket(Bucket="bucket")

    def keys(self, prefix: str) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", ())]

    def content(self, run: str) -> dict[str, str]:
        """Name and hash of every object of a run but its manifest, its owners and its model's card."""
        found = {}
        for key in self.keys(f"{run}/"):
            name = key.removeprefix(f"{run}/")
            if name not in ("manifest.json", "model/README.md") and not name.startswith("owner/"):
                body = self.client.get_object(Bucket="bucket", Key=key)["Body"].read()
                found[name] = sha256(body).hexdigest()
        return found


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    running = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    yield Server(f"{host}:{port}")
    running.stop()


def output_of(server: Server, *arguments: str, status: int = 0, **environment: str) -> str:
    with running(epida(*arguments), **server.environment | environment) as process:
        return finish(process, status)


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_a_run_on_s3_killed_and_resumed_holds_what_a_run_on_disk_holds(server: Server, tmp_path: Path) -> None:
    corpus(tmp_path / "corpus" / "one.parquet", ROWS)
    corpus(tmp_path / "corpus" / "more" / "two.parquet", 300)
    corpus(tmp_path / "train.parquet", 200)
    for path in tmp_path.rglob("*.parquet"):
        server.client.upload_file(str(path), "bucket", path.relative_to(tmp_path).as_posix())

    def command(base: str) -> list[str]:
        return ["augment", f"{base}/corpus", "--output", f"{base}/run", "--train", f"{base}/train.parquet", *LOCAL]

    output_of(server, *command(str(tmp_path)))
    expected = content(tmp_path / "run")
    shards = sum(name.startswith("augmented/") for name in expected)
    assert any(name.startswith("rejected/") for name in expected) and shards > 20

    with running(epida(*command("s3://bucket")), **server.environment) as process:
        wait_until(process, "first shard", lambda: bool(server.keys("run/augmented/")))
    assert 0 < len(server.keys("run/augmented/")) < shards
    assert "resuming" in output_of(server, *command("s3://bucket"))
    assert server.content("run") == expected

    assert f"shards: {shards} of {shards} done" in output_of(server, "status", "s3://bucket/run")
    assert "finished already" in output_of(server, *command("s3://bucket"))
    refused = output_of(server, *command("s3://bucket"), "--seed", "1", status=2)
    assert "--seed was 0, now 1" in refused and "Traceback" not in refused


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_a_run_on_a_flaky_s3_killed_and_resumed_holds_what_a_run_on_disk_holds(server: Server, tmp_path: Path) -> None:
    corpus(tmp_path / "flaky" / "in.parquet", ROWS)
    server.client.upload_file(str(tmp_path / "flaky" / "in.parquet"), "bucket", "flaky/in.parquet")

    def command(base: str) -> list[str]:
        places = (f"{base}/flaky/in.parquet", "--output", f"{base}/flaky-run")
        return epida("augment", *places, "--train-rows", "200", *LOCAL)

    with running(command(str(tmp_path))) as process:
        finish(process)
    expected = content(tmp_path / "flaky-run")
    shards = sum(name.startswith("augmented/") for name in expected)
    with flaky(server.address) as (address, faults):
        environment = server.environment | {"AWS_ENDPOINT_URL": f"http://{address}"}
        with running(command("s3://bucket"), **environment) as process:
            wait_until(process, "a third of the shards", lambda: len(server.keys("flaky-run/augmented/")) > shards // 3)
        assert len(server.keys("flaky-run/augmented/")) < shards
        with running(command("s3://bucket"), **environment) as process:
            assert "resuming" in finish(process)
    assert server.content("flaky-run") == expected
    assert faults.keys() == {"outage", *FAULTS, "none"}, faults
    TALLY.faults += faults.total() - faults["none"]


@pytest.mark.slow
def test_the_server_may_be_named_in_the_url_and_the_model_be_on_it(server: Server, tmp_path: Path) -> None:
    corpus(tmp_path / "in put.parquet", 200)
    output_of(server, "augment", str(tmp_path / "in put.parquet"), "--output", str(tmp_path / "first"), *LOCAL)
    for path in (tmp_path / "first" / "model").iterdir():
        server.client.upload_file(str(path), "bucket", f"my models/a/{path.name}")
    server.client.upload_file(str(tmp_path / "in put.parquet"), "bucket", "in put.parquet")
    options = f"?endpoint_override={server.address}&scheme=http&region=us-east-1"
    output = output_of(
        server, "augment", f"s3://bucket/in%20put.parquet{options}", "--output", f"s3://bucket/second{options}",
        "--classifier", f"s3://bucket/my%20models/a{options}", *LOCAL, AWS_ENDPOINT_URL="http://127.0.0.1:9",
    )  # fmt: skip
    assert "results: s3://bucket/second/augmented?endpoint" in output and server.keys("second/augmented/")
    copied = {name: value for name, value in server.content("second").items() if name.startswith("model/")}
    assert copied == content(tmp_path / "first", "model")
    output = output_of(
        server, "train", "--classifier", "cnn", f"s3://bucket/in%20put.parquet{options}", "--output", f"s3://bucket/third{options}",
        "--eval", f"s3://bucket/in%20put.parquet{options}", "--loss", "original", "--rounds", "1", *LOCAL,
        AWS_ENDPOINT_URL="http://127.0.0.1:9",
    )  # fmt: skip
    assert "model: s3://bucket/third/model?endpoint" in output and server.keys("third/model/")


def test_tables_in_memory_are_stored_where_the_url_says(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    options = f"?endpoint_override={server.address}&scheme=http&region=us-east-1"
    table = pa.table({"text": ["one lamp", "two lamps"], "label": ["a", "b"]})
    location = _location(table, f"s3://bucket/tables{options}", "input")
    assert [f.path for f in plan_inputs(location, Columns()).files] == ["part-00000.parquet"]


def test_wrong_places_are_one_line(server: Server, tmp_path: Path) -> None:
    corpus(tmp_path / "in.parquet", 100)
    server.client.upload_file(str(tmp_path / "in.parquet"), "bucket", "full/deep/in.parquet")
    where = ("--output", "s3://bucket/full")
    for arguments, message in (
        (("s3://bucket/nowhere", "--output", "s3://bucket/third"), "no such file or directory: s3://bucket/nowhere"),
        (("s3://key:secret@bucket/in", *where), "keep credentials out of URLs"),
        (("s3://bucket/full", *where), "s3://bucket/full is the output directory as well"),
        (("s3://bucket/full", "--output", "s3://none/run"), "s3://none/run"),
        (
            ("s3://bucket/full", "--output", "s3://bucket/third", "--classifier", "s3://bucket/full"),
            "neither a directory with a saved model",
        ),
    ):
        output = output_of(server, "augment", *arguments, *LOCAL, status=2)
        assert message in output and len(output.splitlines()) == 1, output
