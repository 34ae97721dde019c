"""Who owns a run directory, on a disk and on an object store."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import boto3
import pytest
from moto.server import ThreadedMotoServer

from epida_ray.core.errors import RequestError, TakenOver
from epida_ray.data.storage import Storage
from epida_ray.runs import lease
from epida_ray.runs.lease import Claim, Lease, Numbers, claim
from epida_ray.runs.run import Run


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket on an S3 server, as the beginning and the end of its URLs."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    host, port = server.get_host_and_port()
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
    with mock.patch.dict(os.environ, keys):
        client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1")
        client.create_bucket(Bucket="bucket")
        yield f"s3://bucket/NAME?endpoint_override={host}:{port}&scheme=http&region=us-east-1"
    server.stop()


@pytest.fixture(params=["disk", "memory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "s3":
        return str(request.getfixturevalue("bucket")).replace("NAME", f"{tmp_path.name}/run")
    return str(tmp_path / "run") if request.param == "disk" else f"memory://{tmp_path.name}/run"


class Clock:
    """A clock that `sleep` moves, and that calls `meanwhile` as it does."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.now, self.meanwhile = 1e9, meanwhile

    def time(self) -> float:
        return self.now

    monotonic = time

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()

    def __getattr__(self, name: str) -> Any:
        return getattr(__import__("time"), name)


def change(place: str, held: Lease, **facts: object) -> None:
    held.claim = held.claim._replace(**facts)  # type: ignore[arg-type]
    Storage(place).write(f"owner/{held.name}", json.dumps(held.claim._asdict()).encode())


def test_the_second_is_told_who_has_the_directory(place: str) -> None:
    first = claim(place)
    with pytest.raises(RequestError, match=rf"in use by process {os.getpid()} on \S+ since 2\S+Z.*--take-over"):
        claim(place)
    first.check()
    first.release()
    assert claim(place).number == 3


def test_whoever_is_taken_over_writes_nothing_more_in_any_process(place: str) -> None:
    storage = Storage(place)
    first = claim(place)
    storage.guard = first.check
    elsewhere = pickle.loads(pickle.dumps(storage))
    elsewhere.write("augmented/a", b"1")
    second = claim(place, take_over=True)
    for action in (
        lambda: elsewhere.write("augmented/b", b"2"),
        lambda: elsewhere.remove("augmented/a"),
        lambda: elsewhere.create("attempts/1.json", b""),
        first.renew,
    ):
        with pytest.raises(TakenOver, match="has taken over"):
            action()
    first.release()
    second.check()
    assert Storage(place).names("augmented") == {"a"}
    second.release()
    with pytest.raises(TakenOver, match="has ended"):
        second.check()


def test_of_many_at_once_one_gets_the_directory(place: str) -> None:
    def attempt(_: int) -> Lease | None:
        try:
            return claim(place)
        except RequestError:
            return None

    with ThreadPoolExecutor(8) as pool:
        held = [one for one in pool.map(attempt, range(8)) if one]
    assert len(held) == 1


def test_a_claim_gives_way_to_one_whose_number_looked_free(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that another process withdraws looks as if the directory were free; a third may just have taken it."""
    create = Numbers.create
    rivals: list[Lease] = []

    def late(self: Numbers, number: int, content: dict[str, Any]) -> str | None:
        if number == 2 and not rivals:
            rivals.append(Lease(place, 1, "000001-rival.json", Claim(**content)))
            Storage(place).write("owner/000001-rival.json", json.dumps(content).encode())
        return create(self, number, content)

    newest = Numbers.newest
    withdrawn = iter([(1, ["000001-withdrawn.json"])])
    monkeypatch.setattr(Numbers, "newest", lambda self: next(withdrawn, None) or newest(self))
    monkeypatch.setattr(Numbers, "create", late)
    with pytest.raises(RequestError, match="in use by process"):
        claim(place)
    rivals[0].check()


def test_processes_that_claim_a_disk_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(4) as pool:
        said = pool.map(_claimed, [str(tmp_path / "run")] * 4)
    assert said.count(True) == 1


def _claimed(place: str) -> bool:
    try:
        claim(place)
    except RequestError:
        return False
    __import__("time").sleep(3)  # the claim of a process that is gone is free
    return True


def test_a_dead_process_of_this_machine_owns_nothing(place: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    change(place, claim(place), pid=process.pid)
    assert claim(place).number == 2
    change(place, claim(place, take_over=True), started="1")  # its pid belongs to another process now
    assert claim(place).number == 4


@pytest.mark.parametrize("alive", [True, False])
def test_an_owner_elsewhere_lives_as_long_as_it_renews_its_claim(
    place: str, alive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = claim(place)
    clock = Clock(lambda: change(place, held, beats=held.claim.beats + alive))
    clock.now = held.claim.renewed - 100  # and its clock differs
    monkeypatch.setattr(lease, "time", clock)
    change(place, held, machine="elsewhere", host="elsewhere", pid=77)
    if alive:
        with pytest.raises(RequestError, match="in use by process 77 on elsewhere"):
            claim(place)
    else:
        assert claim(place).number == 2
        with pytest.raises(TakenOver):
            held.check()


def test_a_claim_of_long_ago_is_not_watched(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change(place, claim(place), machine="elsewhere", renewed=1.0)
    monkeypatch.setattr(lease, "time", Clock(lambda: pytest.fail("waited")))
    assert claim(place).number == 2


def test_two_requests_never_work_in_one_directory(tmp_path: Path) -> None:
    """The second was started while the first was being prepared: both used to finish."""
    first, second = Run(str(tmp_path / "run")), Run(str(tmp_path / "run"))
    assert not first.open("augment", {"m": 3}, {})
    for request in ({"m": 2}, {"m": 3}):
        with pytest.raises(RequestError, match="in use by process"):
            second.open("augment", request, {})
    writing = tmp_path / "run" / ".0.part"
    writing.write_bytes(b"a file that the first writes")
    with pytest.raises(RequestError):
        second.open("augment", {"m": 3}, {})
    assert writing.exists()
    assert not second.open("augment", {"m": 2}, {}, take_over=True)
    with pytest.raises(TakenOver):
        first.save(status="running")
    first.close()
    second.save(status="running")
    second.close()
    assert not Run(str(tmp_path / "run")).open("augment", {"m": 2}, {})


def test_a_request_that_is_refused_leaves_the_directory_free(tmp_path: Path) -> None:
    with Run(str(tmp_path / "run")) as run:
        run.open("augment", {"m": 3}, {})
        run.save(status="running")
    for _ in range(2):
        with pytest.raises(RequestError, match=re.escape("-m was 3, now 2")):
            Run(str(tmp_path / "run")).open("augment", {"m": 2}, {})
    with Run(str(tmp_path / "run")) as run:
        assert not run.open("augment", {"m": 3}, {}) and run.manifest.resumed == 1
