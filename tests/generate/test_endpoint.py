import json
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from epida_ray.core.errors import RequestError, TransientError
from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.generate import GENERATORS, answers, endpoint, propose

SAMPLES = [Sample("a", "I lost my card", "cards"), Sample("b", "My card is gone", "cards")]
Reply = tuple[int, dict[str, str], bytes]
GOOD: Reply = (200, {}, json.dumps({"choices": [{"message": {"content": f"answer {i}"}} for i in range(4)]}).encode())


def failure(status: int, **headers: str) -> Reply:
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, b"over\nloaded"


class Server(ThreadingHTTPServer):
    """Sends the replies in order, and the last one from then on; None closes the connection without a word."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies: list[Reply | None] = [GOOD]
        self.requests = 0
        self.bodies: list[dict[str, Any]] = []
        self.answers_from = threading.Event()
        """A reply waits until this is set."""
        self.answers_from.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.server.requests += 1
        reply = self.server.replies.pop(0) if len(self.server.replies) > 1 else self.server.replies[0]
        self.server.answers_from.wait(20)
        if reply is None:
            return
        status, headers, content = reply
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waits: list[float] = []
    monkeypatch.setattr(endpoint.time, "sleep", waits.append)
    return waits


def ask(server: Server, samples: list[Sample] = SAMPLES[:1], **options: Any) -> list[Candidates | Rejected]:
    generator = GENERATORS.create("language-model", endpoint=server.url, model="some-model", parallel=1, **options)
    return propose(generator, samples, 3, run_seed=0, round_=0, name="language-model")


@pytest.mark.parametrize("trouble", [failure(429), failure(500), failure(503), failure(408), None])
def test_a_server_in_trouble_is_asked_again(server: Server, slept: list[float], trouble: Reply | None) -> None:
    server.replies = [trouble, trouble, GOOD]
    assert ask(server) == [Candidates([f"answer {i}" for i in range(3)], ["rewrite"] * 3)]
    assert server.requests == 3
    assert [0.5 * w <= s <= 1.5 * w for w, s in zip(endpoint.WAITS, slept, strict=False)] == [True, True]


def test_the_server_says_how_long_to_wait(server: Server, slept: list[float]) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    server.replies = [failure(429, Retry_After="7"), failure(503, Retry_After=later), GOOD]
    ask(server)
    assert slept[0] == 7 and 30 < slept[1] <= 90


def test_a_wait_that_is_too_long_ends_the_attempts(server: Server, slept: list[float]) -> None:
    server.replies = [failure(429, Retry_After="3600")]
    with pytest.raises(TransientError, match="HTTP 429 over loaded.*run the same command again"):
        ask(server)
    assert server.requests == 1 and not slept


@pytest.mark.parametrize("trouble", [failure(502), None])
def test_a_server_that_stays_down_fails_the_shard(server: Server, slept: list[float], trouble: Reply | None) -> None:
    server.replies = [trouble]
    with pytest.raises(TransientError, match="gives no answer"):
        ask(server, SAMPLES)
    assert server.requests == len(endpoint.WAITS) + 1 and len(slept) == len(endpoint.WAITS)


def test_no_server_at_all(server: Server, slept: list[float]) -> None:
    server.shutdown()
    server.server_close()
    with pytest.raises(TransientError, match="refused"):
        ask(server)
    assert len(slept) == len(endpoint.WAITS)


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_key_address_or_model_is_a_wrong_request(server: Server, slept: list[float], status: int) -> None:
    server.replies = [failure(status)]
    with pytest.raises(RequestError, match=f"HTTP {status} over loaded; "):
        ask(server, SAMPLES)
    assert server.requests == 1 and not slept


@pytest.mark.parametrize("refusal", [failure(400), failure(413), failure(422), (200, {}, b"<html>"), (200, {}, b"[1]")])
def test_a_refused_prompt_costs_its_row(server: Server, slept: list[float], refusal: Reply) -> None:
    server.replies = [refusal, refusal, GOOD]
    refused, good = ask(server, SAMPLES)
    assert isinstance(refused, Rejected) and "no answer" in refused.reason
    assert isinstance(good, Candidates)
    assert not slept


def test_a_lone_surrogate_of_the_server_costs_its_own_candidate(server: Server) -> None:
    lone = rb'{"choices": [{"message": {"content": "half \ud800"}}, {"message": {"content": "whole \ud83d\ude00"}}]}'
    server.replies = [(200, {}, lone), GOOD]
    first, second = ask(server, SAMPLES)
    assert first == Candidates(["whole \U0001f600", "answer 0", "answer 1"], ["rewrite"] * 3)
    assert isinstance(second, Candidates) and len(second.texts) == 3


@pytest.mark.parametrize("damage", [b"", b'{"answers": ["answer 0", "ans', b"[]", b"{}", b"\xff\xfe"])
def test_a_damaged_answer_is_asked_for_again(server: Server, tmp_path: Path, damage: bytes) -> None:
    expected = ask(server, cache=str(tmp_path))
    (kept,) = tmp_path.glob("*.json")
    whole = kept.read_bytes()
    kept.write_bytes(damage)
    assert ask(server, cache=str(tmp_path)) == expected
    assert server.requests == 2 and kept.read_bytes() == whole


def test_an_answer_is_paid_for_once_while_the_disk_fails(
    server: Server, slept: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, failures = os.replace, [OSError(28, "no space left on device")] * 2

    def failing(source: Path, target: Path) -> None:
        if failures:
            raise failures.pop()
        replace(source, target)

    monkeypatch.setattr(answers.os, "replace", failing)
    assert isinstance(ask(server, cache=str(tmp_path))[0], Candidates)
    assert server.requests == 1 and len(slept) == 2
    assert (tmp_path / answers.SPENT).read_text().count("\n") == 1 and not list(tmp_path.glob("*.part"))
    failures += [OSError(28, "no space left on device")] * 100
    with pytest.raises(TransientError, match="cannot keep an answer in .*run the same command again"):
        ask(server, [SAMPLES[1]], cache=str(tmp_path))
    assert server.requests == 2


def test_a_cache_on_storage_that_fails_rejects_no_row(
    server: Server, slept: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(_: Path) -> bytes:
        raise OSError(116, "stale file handle")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", stale)
        with pytest.raises(TransientError, match="stale file handle"):
            ask(server, cache=str(tmp_path))
    assert server.requests == 0 and len(slept) == 4
    assert isinstance(ask(server, cache=str(tmp_path))[0], Candidates)


@pytest.mark.parametrize("count", [1, 2])
def test_an_answer_that_comes_when_the_time_of_its_row_is_up_is_kept_and_not_paid_for_again(
    server: Server, tmp_path: Path, count: int
) -> None:
    samples = SAMPLES[:count]
    generator = GENERATORS.create(
        "language-model", endpoint=server.url, model="some-model", parallel=2, cache=str(tmp_path)
    )

    def made(time_limit: float | None) -> list[Any]:
        return propose(generator, samples, 3, run_seed=0, round_=0, name="language-model", time_limit=time_limit)

    server.answers_from.clear()
    late = made(0.4)  # the rows are asked for together, and then one by one
    assert all(isinstance(answer, Rejected) and "time limit" in answer.reason for answer in late)
    server.answers_from.set()
    assert all(isinstance(answer, Candidates) for answer in made(None))
    assert server.requests == count and len(list(tmp_path.glob("*.json"))) == count
    assert all(isinstance(answer, Candidates) for answer in ask(server, samples, cache=str(tmp_path)))
    assert server.requests == count


def test_a_server_that_does_not_answer_in_time_is_asked_again(server: Server, slept: list[float]) -> None:
    server.answers_from.clear()
    try:
        with pytest.raises(TransientError, match="gives no answer .*time.*run the same command again"):
            ask(server, timeout=0.1)
    finally:
        server.answers_from.set()
    assert server.requests == len(endpoint.WAITS) + 1


def test_a_server_that_refuses_max_tokens_gets_max_completion_tokens(server: Server, tmp_path: Path) -> None:
    said = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    server.replies = [(400, {}, json.dumps({"error": {"message": said, "code": None}}).encode()), GOOD]
    assert all(isinstance(answer, Candidates) for answer in ask(server, SAMPLES, cache=str(tmp_path)))
    first, *later = server.bodies
    assert "max_tokens" in first and len(later) == 2
    for body in later:
        assert "max_tokens" not in body and body["max_completion_tokens"] > answers.THOUGHTS
    ask(server, SAMPLES, cache=str(tmp_path))
    assert server.requests == 3


@pytest.mark.parametrize("name", ["author", "language-model"])
@pytest.mark.parametrize("option", ["cache", "budget", "rate", "parallel", "timeout", "structured"])
def test_an_option_of_an_endpoint_without_an_endpoint_is_refused(name: str, option: str) -> None:
    given = {"cache": "folder", "structured": True}.get(option, 3)
    if (name, option) == ("language-model", "structured"):
        pytest.skip("it has no such option")
    with pytest.raises(RequestError, match=f"^{option}: only for an endpoint; give endpoint=URL"):
        GENERATORS.create(name, **{option: given})


@pytest.mark.parametrize("wrong", [0, -1, True, float("inf")])
def test_a_wrong_timeout_is_refused(wrong: object) -> None:
    with pytest.raises(RequestError, match="timeout is a number of seconds"):
        GENERATORS.create("language-model", endpoint="http://localhost/v1", timeout=wrong)
