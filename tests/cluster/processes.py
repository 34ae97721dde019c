"""Runs of the command line as real processes, to be killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest

LIMIT = 300.0


def epida(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "epida_ray.cli", *arguments]


@contextmanager
def running(arguments: list[str], **environment: str) -> Iterator[subprocess.Popen[str]]:
    """The process, which does not outlive the block."""
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | environment
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(LIMIT)


def finish(process: subprocess.Popen[str], status: int = 0) -> str:
    try:
        output, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail(f"not done after {LIMIT} s: {process.communicate()[0]}")
    assert process.returncode == status, output
    return output


def wait_until(process: subprocess.Popen[str], what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert process.poll() is None, f"ended before {what}: {process.communicate()[0]}"
        assert time.monotonic() < deadline, f"not within {LIMIT} s: {what}"
        time.sleep(0.005)


def kill_child(process: subprocess.Popen[str], title: str) -> bool:
    """kill -9 one of the Ray processes below `process` whose title has these words; False when there is none."""
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            if title in " ".join(child.cmdline()):
                child.kill()
                return True
        except psutil.NoSuchProcess:
            continue
    return False
