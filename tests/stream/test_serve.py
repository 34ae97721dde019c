"""A real server, started as a user starts it, and real HTTP clients."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
import psutil
import pytest

from epida_ray.classify import load
from epida_ray.classify.cnn import CNN
from epida_ray.core.errors import RequestError
from epida_ray.core.progress import Reporter
from epida_ray.method.serving import LARGEST_BODY, ServeRequest
from epida_ray.runs.run import directory_digest

pytest.importorskip("fastapi_offline", reason="pip install 'epida-ray[serve]'")

TOKEN = "a-token-of-the-tests-0123456789"
LABELS = ("ask", "tell", "buy")


def save(folder: Path, seed: int) -> None:
    CNN(LABELS, vectors="hashed", channels=8, seed=seed).save(folder)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Server(NamedTuple):
    process: subprocess.Popen
    model: Path
    port: int

    @property
    def client(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=60)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("served")
    save(folder / "model", 0)
    (folder / "token").write_text(TOKEN)
    port = free_port()
    command = [sys.executable, "-m", "epida_ray.cli", "serve", str(folder / "model"), "--port", str(port)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--token-file", str(folder / "token"), "--check-every", "0.2"],
            stderr=log, stdout=log, env=environment,
        )  # fmt: skip
    started = Server(process, folder / "model", port)
    deadline = time.monotonic() + 240
    while "serving version" not in (said := (folder / "log").read_text()):
        assert process.poll() is None and time.monotonic() < deadline, said
        time.sleep(0.2)
    family = psutil.Process(process.pid).children(recursive=True)
    yield started
    process.send_signal(signal.SIGTERM)
    assert process.wait(90) == 0, (folder / "log").read_text()
    _, alive = psutil.wait_procs(family, 30)
    assert not alive, f"left behind: {alive}"
    assert "rror" not in (folder / "log").read_text()


def test_predictions_are_the_models_own(server: Server) -> None:
    texts = ["where is my parcel?", "", "buy ünïcode 🙂", "x " * 1000]
    with server.client as client:
        answer = client.post("/predict", json={"texts": texts, "probabilities": True})
        plain = client.post("/predict", json={"texts": texts}).json()
    assert answer.status_code == 200
    said = answer.json()
    expected = load(server.model).predict_proba(texts)
    assert said["model_version"] == directory_digest(server.model)[:16]
    found = np.array([list(one["probabilities"].values()) for one in said["predictions"]])
    assert np.abs(found - expected).max() <= 1e-6
    assert [one["label"] for one in plain["predictions"]] == [LABELS[i] for i in expected.argmax(axis=1)]
    assert "probabilities" not in plain["predictions"][0]


def test_without_the_token_only_the_health_is_shown(server: Server) -> None:
    url = f"http://127.0.0.1:{server.port}"
    for token in ({}, {"Authorization": "Bearer wrong-token-0123456789"}, {"Authorization": f"Basic {TOKEN}"}):
        assert httpx.post(f"{url}/predict", json={"texts": ["x"]}, headers=token).status_code == 401
        assert httpx.get(f"{url}/metrics", headers=token).status_code == 401
    health = httpx.get(f"{url}/health").json()
    assert health["status"] == "ok" and health["labels"] == list(LABELS) and "CNN" in health["classifier"]


def test_the_token_is_checked_before_the_body_is_read(server: Server) -> None:
    for token, status in (("", b"401"), ("Authorization: Bearer wrong-token-0123456789\r\n", b"401")):
        with socket.create_connection(("127.0.0.1", server.port), 30) as raw:
            head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{token}"
            raw.sendall(f"{head}Content-Length: 1000\r\n\r\n".encode())  # and no body
            assert raw.recv(100)[9:12] == status
    with server.client as client:
        assert client.post("/predict", content=b"{").status_code == 422


def test_the_pages_describe_the_interface_and_load_nothing_from_elsewhere(server: Server) -> None:
    with server.client as client:
        schema = client.get("/openapi.json").json()
        page = client.get("/docs").text
        scripts = re.findall(r'(?:src|href)="([^"]+)"', page)
        assert scripts and all(client.get(one).status_code == 200 for one in scripts), scripts
    assert not re.findall(r"https?://(?!127\.0\.0\.1)[^\"' ]*\.(?:js|css)", page)
    operation = schema["paths"]["/predict"]["post"]
    assert "PredictRequest" in json.dumps(operation["requestBody"]) and operation["security"]
    assert {"200", "401", "413", "422", "503"} <= set(operation["responses"])


def malformed(count: int) -> Iterator[tuple[bytes, dict[str, str]]]:
    """Bodies that are no request, from a seed: damaged JSON, other types, broken encodings, odd headers."""
    rng = np.random.default_rng(0)
    good = json.dumps({"texts": ["where is my parcel?", "a second"], "probabilities": False}).encode()
    values = ["1", "null", '"text"', "[]", "{}", "[1]", "[null]", "NaN", "1e999", "[[]]", '{"a":1}', "true", "[NaN]"]
    plain = {"Content-Type": "application/json"}
    for number in range(count):
        kind = number % 10
        if kind == 0:
            body = good[: rng.integers(1, len(good))]
        elif kind == 1:
            body = rng.bytes(int(rng.integers(0, 300)))
        elif kind == 2:
            body = b'{"texts": ' + rng.choice(values).encode() + b"}"
        elif kind == 3:
            body = rng.choice(values).encode()
        elif kind == 4:
            body = b'{"texts": ["x"], "' + f"field{number}".encode() + b'": 1}'
        elif kind == 5:
            body = b"[" * int(rng.integers(1_000, 60_000))
        elif kind == 6:
            body = b'{"texts": ["' + bytes([0xFF, 0xFE, rng.integers(128, 255)]) + b'"]}'
        elif kind == 7:
            body = b'{"texts": ["\\ud800' + b"x" * int(rng.integers(0, 50)) + b'"]}'
        elif kind == 8:
            yield good, {"Content-Type": str(rng.choice(["text/plain", "image/png", "application/xml", "x"]))}
            continue
        else:
            body = b'{"texts": [' + b",".join([b'"x"'] * 1001) + b"]}"
        yield body, plain


def send_malformed(server: Server, count: int) -> None:
    wrong: list[tuple[int, str, bytes]] = []
    with server.client as client:
        before = client.get("/health").json()
        for body, headers in malformed(count):
            answer = client.post("/predict", content=body, headers=headers)
            if not 400 <= answer.status_code < 500 or "error" not in answer.json():
                wrong.append((answer.status_code, answer.text[:200], body[:80]))
        assert not wrong, wrong[:5]
        assert client.get("/health").json() == before, "the server was not the same all the time"
        assert client.post("/predict", json={"texts": ["x"]}).status_code == 200


def test_malformed_requests(server: Server) -> None:
    send_malformed(server, 300)
    with server.client as client:
        assert client.post("/predict", content=b"x" * (LARGEST_BODY + 1)).status_code == 413
        assert client.get("/predict").status_code == 405 and client.get("/nowhere").status_code == 404
    for line in (b"\x16\x03\x01\x02\x00" + b"\0" * 50, b"POST /predict\r\n\r\n", b"GET " + b"/" * 70_000 + b"\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), 30) as raw:
            raw.sendall(line)
            assert raw.recv(100)[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.0 400"), line[:20]
    with socket.create_connection(("127.0.0.1", server.port), 30) as raw:  # a client that goes away halfway
        raw.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
    with server.client as client:
        assert client.post("/predict", json={"texts": ["x"]}).status_code == 200


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_ten_thousand_malformed_requests(server: Server) -> None:
    send_malformed(server, 10_000)


def test_a_model_is_swapped_under_load_without_a_failed_request(server: Server) -> None:
    versions: list[list[str]] = [[] for _ in range(8)]
    failures: list[str] = []
    stop = threading.Event()

    def send(seen: list[str]) -> None:
        with server.client as client:
            while not stop.is_set():
                try:
                    answer = client.post("/predict", json={"texts": ["one", "two texts"]})
                    if answer.status_code == 200 and len(answer.json()["predictions"]) == 2:
                        seen.append(answer.json()["model_version"])
                    else:
                        failures.append(answer.text)
                except httpx.HTTPError as error:
                    failures.append(repr(error))

    threads = [threading.Thread(target=send, args=(seen,)) for seen in versions]
    expected = [directory_digest(server.model)[:16]]
    for thread in threads:
        thread.start()
    try:
        for seed in (0, 1, 2, 3):
            if seed:
                save(server.model, seed)
                expected.append(directory_digest(server.model)[:16])
            deadline = time.monotonic() + 60
            while any(expected[-1] not in seen for seen in versions):
                assert time.monotonic() < deadline and not failures, failures[:3]
                time.sleep(0.05)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures
    for seen in versions:
        assert list(dict.fromkeys(seen)) == expected, "each client meets the versions in order"
        assert seen == sorted(seen, key=expected.index)


def test_a_broken_model_is_reported_and_the_old_one_goes_on(server: Server) -> None:
    weights = server.model / "model.safetensors"
    whole = weights.read_bytes()
    with server.client as client:
        version = client.post("/predict", json={"texts": ["x"]}).json()["model_version"]
        weights.write_bytes(whole[:200])
        deadline = time.monotonic() + 60
        while "problem" not in (health := client.get("/health").json()):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert "damaged" in health["problem"] and health["status"] == "ok"
        assert client.post("/predict", json={"texts": ["x"]}).json()["model_version"] == version
        weights.write_bytes(whole)
        while "problem" in client.get("/health").json():
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_it_listens_on_loopback_only(server: Server) -> None:
    family = [psutil.Process(server.process.pid), *psutil.Process(server.process.pid).children(recursive=True)]
    listeners = {
        (process.name(), one.laddr.ip, one.laddr.port)
        for process in family
        for one in process.net_connections("inet")
        if one.status == psutil.CONN_LISTEN
    }
    assert server.port in {port for *_, port in listeners}
    open_doors = [one for one in listeners if not ipaddress.ip_address(one[1].removeprefix("::ffff:")).is_loopback]
    assert not open_doors


def test_prometheus_finds_the_metrics(server: Server) -> None:
    with server.client as client:
        deadline = time.monotonic() + 60
        wanted = ("epida_serve_requests", "epida_serve_texts", "epida_serve_seconds_bucket", "epida_serve_model_loaded")
        while not all(name in (text := client.get("/metrics").text) for name in wanted):
            assert client.post("/predict", json={"texts": ["x"]}).status_code == 200
            assert time.monotonic() < deadline, text[:500]
            time.sleep(1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"host": "0.0.0.0"}, "open to others and requires a token"),
        ({"host": "192.0.2.1", "token": TOKEN}, "cannot listen on 192.0.2.1"),
        ({"model": "nowhere"}, "no directory nowhere"),
        ({"token_file": "nowhere"}, "nowhere cannot be read"),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_starts(tmp_path, monkeypatch, options, message) -> None:
    from epida_ray.stream.server import serve_model

    monkeypatch.delenv("EPIDA_SERVE_TOKEN", raising=False)
    save(tmp_path / "model", 0)
    if token := options.pop("token", None):
        monkeypatch.setenv("EPIDA_SERVE_TOKEN", token)
    request = ServeRequest(**{"model": str(tmp_path / "model"), "port": free_port()} | options)
    with pytest.raises(RequestError, match=message):
        serve_model(request, Reporter(quiet=True))


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    from epida_ray.stream.server import serve_model

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(RequestError, match="choose another --port"):
            serve_model(ServeRequest(model=str(tmp_path), port=taken.getsockname()[1]), Reporter(quiet=True))
