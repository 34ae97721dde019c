"""Accessibility of a page in the browser, judged by axe-core, and what a keyboard reaches on it."""

from __future__ import annotations

from importlib.resources import files
from importlib.util import find_spec
from typing import Any

import pytest

RUN = """
const done = arguments[arguments.length - 1];
axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]})
   .then((found) => done(found.violations), (error) => done([{impact: "critical", id: String(error), nodes: []}]));
"""


def violations(browser: Any, scheme: str) -> list[str]:
    """Return the serious and critical violations of the page that is open, in light or dark mode."""
    if find_spec("selenium_axe_python") is None:
        pytest.skip("axe-core is not installed: pip install selenium-axe-python")
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    url = browser.current_url
    browser.get("about:blank")  # so that nothing writes any more
    if url.startswith("http"):  # a site keeps the mode of the last visit
        stored = {"origin": "/".join(url.split("/")[:3]), "storageTypes": "local_storage"}
        browser.execute_cdp_cmd("Storage.clearDataForOrigin", stored)
    browser.get(url)
    browser.set_script_timeout(120)
    script = files("selenium_axe_python").joinpath("axe-core/axe.min.js").read_text(encoding="utf-8")
    browser.execute_script(script)
    found = browser.execute_async_script(RUN)
    return [
        f"{one['impact']}: {one['id']}: {node['html'][:120]} {node.get('failureSummary', '')[:200]}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"] or [{"html": ""}]
    ]


def console_errors(browser: Any) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
