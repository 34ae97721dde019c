"""A proxy in front of an S3 server that is as bad as real ones are on their worst days."""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SLOW_DOWN = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code>'
    b"<Message>Please reduce your request rate.</Message></Error>"
)
EVERY, OUTAGE = 10.0, 1.5
"""Seconds from one outage to the next, and how long nothing but SlowDown is answered in each."""
FAULTS = {"slow down": 0.05, "lost request": 0.03, "lost answer": 0.03, "delay": 0.1}
"""How often a request meets which fault besides; a lost answer is one to a request that was carried out."""
LIMIT = 60.0


@contextmanager
def flaky(target: str, seed: int = 0) -> Iterator[tuple[str, Counter[str]]]:
    """Give the address of a proxy in front of `target`, a host and port, and the count of its faults so far."""
    faults: Counter[str] = Counter()
    choose, lock, began = random.Random(seed), threading.Lock(), time.monotonic()

    def fault() -> str | None:
        with lock:
            if (time.monotonic() - began) % EVERY < OUTAGE:
                chosen = "outage"
            else:
                chosen = choose.choices([*FAULTS, ""], [*FAULTS.values(), 1.0 - sum(FAULTS.values())])[0]
            faults[chosen or "none"] += 1
            return chosen or None

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            body = self._body()
            met = fault()
            if met in ("outage", "slow down"):
                self._answer(503, "Slow Down", [("Content-Type", "application/xml")], SLOW_DOWN)
                return
            if met == "delay":
                time.sleep(choose.uniform(0.2, 2.0))
            self.close_connection = met in ("lost request", "lost answer")
            if met == "lost request":
                return
            there = http.client.HTTPConnection(target, timeout=LIMIT)
            try:
                there.request(self.command, self.path, body, dict(self.headers.items()))
                answer = there.getresponse()
                content = answer.read()
            finally:
                there.close()
            if met != "lost answer":
                self._answer(answer.status, answer.reason, answer.getheaders(), content)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            del self.headers["Transfer-Encoding"]
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return b"".join(parts)

        def _answer(self, status: int, reason: str, headers: list[tuple[str, str]], content: bytes) -> None:
            self.send_response_only(status, reason)
            length = str(len(content))
            for name, value in headers:
                if name.lower() == "content-length" and self.command == "HEAD":
                    length = value
                elif name.lower() not in ("content-length", "connection", "transfer-encoding"):
                    self.send_header(name, value)
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}", faults
    finally:
        server.shutdown()
        server.server_close()
