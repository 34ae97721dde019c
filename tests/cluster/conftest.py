"""Kills of random kinds come last, as many as are missing; the account of all of them ends the session."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.processes import TALLY


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: "test_random_kills" in item.nodeid)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if TALLY.kills:
        failed = terminalreporter.stats.get("failed", ())
        TALLY.hangs += sum("Timeout" in str(report.longrepr)[-200:] for report in failed)
        terminalreporter.write_sep("=", "kills")
        terminalreporter.write_line(str(TALLY))
