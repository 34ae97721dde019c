"""Kills of random kinds come last, as many as are missing; the account of kills and pauses ends the session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.jobs import write_folder
from tests.cluster.processes import TALLY


@pytest.fixture(scope="session")
def job_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The inputs of all jobs and the undisturbed runs, which are the same on every cluster."""
    folder = tmp_path_factory.mktemp("jobs")
    write_folder(folder)
    return folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: "test_random_kills" in item.nodeid)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if TALLY.kills or TALLY.pauses:
        failed = terminalreporter.stats.get("failed", ())
        TALLY.hangs += sum("Timeout" in str(report.longrepr)[-200:] for report in failed)
        terminalreporter.write_sep("=", "kills and pauses")
        terminalreporter.write_line(str(TALLY))
