"""The report of comparisons, searches and checks, and whether everybody can use the pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from epida_ray.core.errors import RequestError
from epida_ray.data.storage import Storage
from epida_ray.experiments.compare_results import Comparison
from epida_ray.experiments.report import report_data, write_report
from epida_ray.experiments.tune import Tuned, _write
from epida_ray.method.check import Checked, Finding, write
from epida_ray.stream.search import Tried
from tests.axe import console_errors, violations
from tests.experiments.test_report import HOSTILE, cells, trained, write_run

DENIED = [
    {"id": f"in.csv:{i}", "text": HOSTILE if not i else f"text {i}", "label": ("bug", "billing")[i % 2],
     "probability": 0.01 * i, "instead": "login", "confidence": 0.9}
    for i in range(30)
]  # fmt: skip
CHECK = Checked(
    150, 300, {"bug": 80, "billing": 70},
    [
        Finding("leaked", "problem", "rows of TEST whose text is in TRAIN, too", 3, "remove them from TRAIN", [
            {"id": f"t:{i}", "text": "a", "label": "bug", "other_id": f"r:{i}", "other_text": "a", "other_label": "bug",
             "similarity": 1.0} for i in range(3)
        ]),
        Finding("denied-labels", "warning", "rows whose label a classifier denies", 30, "look at them", DENIED),
        Finding("format", "note", "TRAIN: read as UTF-8", 1, "name another --encoding"),
    ],
)  # fmt: skip


def recipe(name: str, folds: int, difference: float | None, **more: Any) -> dict[str, Any]:
    return {
        "recipe": name, "effort": 0, "folds": folds, "macro_f1": 0.8 + (difference or 0), "difference": difference,
        "low": None if difference is None else difference - 0.03,
        "high": None if difference is None else difference + 0.03,
        "verdict": "no clear difference", "chance": 0.001, "train_seconds": 75.0, "texts_per_second": 1200.4,
        "dropped_after": None, "failure": None, "paused": False,
    } | more  # fmt: skip


def compared(folder: Path) -> Path:
    """A directory as `epida compare` leaves it."""
    events = [
        {"folds": 2, "recipe": name, "leader": "encoder", "mean": -0.2, "low": -0.3, "high": high, "error": 0.05}
        for name, high in (("linear", 0.1), ("cnn", -0.1))
    ]
    Comparison(
        identity={"seed": 0, "data": "x"}, rows=150, classes=2, folds=5,
        recipes=[
            recipe("linear", 5, None), recipe("cnn", 2, -0.1, dropped_after=2), recipe("encoder", 5, 0.08),
            recipe("encoder, tuned", 1, 0.01, paused=True),
            recipe("cnn, balanced", 0, None, macro_f1=None, failure=HOSTILE),
        ],
        recommended="encoder", reason="use 'encoder': macro-F1 0.880", commands=["epida train in.csv --output model"],
        stopped="time", seconds=60.0, events=events, test={"macro_f1": 0.87, "accuracy": 0.9}, input="in.csv",
        check=[{"name": "leaked", "level": "problem", "what": "leaked", "count": 3}],
        curve=[
            {"labels": n, "macro_f1": f1, "gain": gain, "low": gain and gain - 0.01, "high": gain and gain + 0.01,
             "folds": 5}
            for n, f1, gain in ((30, 0.7, None), (60, 0.8, 0.1), (120, 0.88, 0.08))
        ],
        command=["epida", "compare", "in.csv"],
    ).write(Storage(str(folder)))  # fmt: skip
    write(CHECK, Storage(str(folder / "check")))
    return folder


def searched(folder: Path) -> Path:
    """A directory as `epida tune` leaves it."""
    found = Tuned(
        8, 110, 40, 0.7, 0.75, 0.71, 0.72, 0.01, -0.02, 0.04, {"classifier": "cnn", "m": 3}, "not established"
    )
    tried = [Tried({"m": i % 3, "alpha": i / 10}, {"score": 0.6 + i / 100}, 1 + i % 3) for i in range(8)]
    _write(Storage(str(folder)), found, tried)
    return folder


def checked(folder: Path) -> Path:
    write(CHECK, Storage(str(folder)))
    return folder


def test_the_data_of_a_comparison(tmp_path):
    data = report_data(Storage(str(compared(tmp_path))))
    done, outcome, next_ = data["verdict"]
    assert "5 ways to train were compared on 150 rows of in.csv" in done
    assert outcome == (
        "Recommendation: use 'encoder': macro-F1 0.880. On TEST, which was used once, its macro-F1 is 0.870."
    )
    assert "3 problems" in next_
    assert [row["outcome"] for row in data["recipes"]["rows"]] == [
        "the simplest", "stopped after 2 folds: clearly behind", "recommended", "stopped: no time for more folds",
        f"failed: {HOSTILE}",
    ]  # fmt: skip
    assert data["curve"]["says"].startswith("From 60 to 120 labels macro-F1 changed by +0.080")
    assert [one["name"] for one in data["findings"]] == ["leaked", "denied-labels", "format"]


def test_the_data_of_a_search_and_of_a_check(tmp_path):
    data = report_data(Storage(str(searched(tmp_path / "search"))))
    assert "may be chance" in data["verdict"][2] and len(data["search"]["body"]) == 8
    data = report_data(Storage(str(checked(tmp_path / "check"))))
    assert data["verdict"][1] == "Found: 1 problem, 1 warning, 1 note."
    assert data["findings"][1]["table"]["head"][0] == "text" and data["findings"][1]["total"] == 30


def test_a_damaged_comparison_is_refused_in_one_line(tmp_path):
    (tmp_path / "compare.json").write_text(json.dumps({"rows": 3}))
    with pytest.raises(RequestError, match="compare.json cannot be read"):
        write_report(str(tmp_path))


def opened(browser: Any, folder: Path) -> None:
    write_report(str(folder))
    browser.get((folder / "report.html").as_uri())
    assert browser.execute_script("return document.body.dataset.ready") == "yes"


def test_a_comparison_in_a_browser(browser, tmp_path):
    opened(browser, compared(tmp_path))
    verdict = browser.find_elements("css selector", "#verdict p")
    assert verdict[0].text.startswith("Recommendation")
    assert len(browser.find_elements("css selector", "#forest .interval")) == 3
    assert [row.text for row in browser.find_elements("css selector", "#forest tr.marked th")] == ["encoder"]
    stops = browser.find_elements("css selector", "#halving-table .stop")
    assert len(stops) == 3
    assert len(browser.find_elements("css selector", "#curve polyline")) == 1
    assert HOSTILE in cells(browser, "rows-1", 0) and len(cells(browser, "rows-1", 0)) == 10
    # Where a bar crosses 0 it must do so on the page, too.
    low, zero, high = browser.execute_script(
        "const bar = document.querySelectorAll('#forest .interval')[2].getBoundingClientRect();"
        "const zero = document.querySelector('#forest .strip line[stroke-width=\"2\"]').getBoundingClientRect();"
        "return [bar.left, zero.left, bar.right]"
    )
    assert low < zero < high
    assert browser.execute_script("return window.hacked") is None and console_errors(browser) == []


def test_a_search_in_a_browser(browser, tmp_path):
    opened(browser, searched(tmp_path))
    assert len(cells(browser, "points-table", 0)) == 8
    assert browser.find_element("css selector", "#search-plot").get_attribute("data-points") == "8"
    assert console_errors(browser) == []


MAKERS = {
    "augment": lambda folder: write_run(folder, 30),
    "train": trained,
    "compare": compared,
    "tune": searched,
    "check": checked,
}


@pytest.mark.parametrize("kind", MAKERS)
def test_no_page_has_serious_barriers(browser, tmp_path, kind):
    opened(browser, MAKERS[kind](tmp_path / "run"))
    for scheme in ("light", "dark"):
        assert violations(browser, scheme) == [], scheme
    assert console_errors(browser) == []


@pytest.mark.parametrize("kind", MAKERS)
def test_no_page_is_wider_than_a_telephone(browser, tmp_path, kind):
    size = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        opened(browser, MAKERS[kind](tmp_path / "run"))
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 400
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_keyboard_reaches_filters_and_tables(browser, tmp_path):
    from selenium.webdriver import ActionChains, Keys

    opened(browser, trained(tmp_path / "run"))
    wanted = browser.execute_script(
        "const nodes = [...document.querySelectorAll('select, input, button:not([disabled]), .scroll')];"
        "nodes.forEach((node, i) => { node.dataset.stop = i; });"
        "return nodes.filter((node) => node.tabIndex >= 0).length"
    )
    reached = set()
    for _ in range(wanted + 10):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        reached.add(browser.execute_script("return document.activeElement.dataset.stop ?? ''"))
    assert len(reached - {""}) == wanted > 10
    head = "document.querySelectorAll('#kept-table th button')[8]"
    browser.execute_script(f"{head}.focus()")
    ActionChains(browser).send_keys(Keys.ENTER).perform()
    falling = [float(v) for v in cells(browser, "kept-table", 8)]
    assert falling == sorted(falling, reverse=True)
    assert browser.execute_script(f"return {head}.parentNode.getAttribute('aria-sort')") == "descending"
