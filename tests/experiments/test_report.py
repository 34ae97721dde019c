import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from epida_ray.classify.cnn import CNN
from epida_ray.core.errors import RequestError
from epida_ray.data.storage import Storage
from epida_ray.experiments.catalogue import EXPERIMENTS, Options
from epida_ray.experiments.report import _even_share, mark_words, render, report_data, write_report
from epida_ray.experiments.tables import Row, write_results

HOSTILE = '<script>window.hacked = 1</script><img src=x onerror="window.hacked = 1"></script>{{DATA}}'


def write_run(folder: Path, samples: int, *, candidates: bool = True, metrics: bool = False) -> Path:
    """A run directory as `epida augment` leaves it, with three of nine candidates kept; the first text is hostile."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(samples):
        scores = rng.random((9, 2))
        best = np.argsort(-scores.sum(axis=1))[:3].tolist()
        source = HOSTILE if i == 0 else f"sample number {i} has a source text"
        for j, (div, qua) in enumerate(scores):
            rows.append(
                {
                    "sample_id": f"in.csv:{i}",
                    "text": source.replace("has", f"owns{j}") if i else f"{HOSTILE} {j}",
                    "label": ("bug", "billing")[i % 2],
                    "source_text": source,
                    "generator": "eda",
                    "operation": "synonym",
                    "round": 0,
                    "rank": best.index(j) + 1 if j in best else 0,
                    "s_div": div,
                    "s_qua": qua,
                    "s_tot": div + qua,
                    "kept": j in best,
                }
            )
    table = pa.Table.from_pylist(rows)
    kept = table.filter(table["kept"])
    for name, part in (("augmented", kept.drop(["kept"])), *([("candidates", table)] if candidates else [])):
        (folder / name).mkdir(parents=True, exist_ok=True)
        half = len(part) // 2
        pq.write_table(part.slice(0, half), folder / name / "a.parquet")
        pq.write_table(part.slice(half), folder / name / "b.parquet")
    (folder / "rejected").mkdir()
    rejected = [{"sample_id": "in.csv:9", "stage": "read", "reason": "the text is empty <b>", "text": HOSTILE}]
    pq.write_table(pa.Table.from_pylist(rejected), folder / "rejected" / "a.parquet")
    manifest = {
        "format": 1,
        "kind": "augment",
        "status": "finished",
        "asked": {"m": 3, "k": 3, "select": "rem+cem"},
        "command": ["epida", "augment", "in.csv", "--output", "a dir"],
        "versions": {"python": "3.11"},
        "seconds": {"generate": 2.0, "score": 5.5},
        "done": {"rows": samples, "candidates": 9 * samples, "kept": 3 * samples, "short": 0, "rejected": 1},
        "reasons": {"the text is empty <b>": 1},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    if metrics:
        lines = [{"round": i, "loss": 1 / (i + 1), "dev": {"macro_f1": 0.5 + i / 10}, "note": "x"} for i in range(4)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_the_data_of_a_run(tmp_path):
    data = report_data(Storage(str(write_run(tmp_path / "run", 40, metrics=True))))
    assert len(data["kept"]["text"]) == 120 == data["kept"]["total"]
    assert len(data["scatter"]["kept"]) == 360 and sum(data["scatter"]["kept"]) == 120
    assert [len(e["candidates"]) for e in data["examples"]] == [9] * 12
    assert sum(c["kept"] for c in data["examples"][3]["candidates"]) == 3
    assert data["rejected"]["reasons"] == [["the text is empty <b>", 1]]
    assert data["rounds"][3] == {"round": 3, "loss": 0.25, "dev macro_f1": 0.8}
    assert data["command"] == "epida augment in.csv --output 'a dir'"
    assert "model" in data["map"]["missing"]


@pytest.mark.parametrize("candidates", [True, False])
def test_hidden_states_of_the_runs_own_model(tmp_path, candidates):
    pytest.importorskip("sklearn", reason="pip install 'epida-ray[report]'")
    run = write_run(tmp_path / "run", 12, candidates=candidates)
    CNN(("billing", "bug"), vectors="hashed", channels=4).save(run / "model")
    found = report_data(Storage(str(run)))["map"]
    panels = dict(found["panels"])
    assert list(panels) == (["kept", "REM only", "CEM only"] if candidates else ["kept"])
    assert all(len(rows) == 36 for rows in panels.values()) and len(found["originals"]) == 12
    assert len(found["x"]) == len(found["y"]) == len(found["class"]) == len(found["text"])
    assert {found["text"][i] for i in found["originals"]} == {HOSTILE[:160]} | {
        f"sample number {i} has a source text" for i in range(1, 12)
    }


def asked(run: Path, **options: object) -> dict:
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["asked"] |= options
    (run / "manifest.json").write_text(json.dumps(manifest))
    return report_data(Storage(str(run)))


def test_panels_bear_the_names_of_the_scores_that_were_asked_for(tmp_path):
    pytest.importorskip("sklearn", reason="pip install 'epida-ray[report]'")
    run = write_run(tmp_path / "run", 12)
    CNN(("billing", "bug"), vectors="hashed", channels=4).save(run / "model")
    for select, names in (("ppl+cosine", ["kept", "PPL only", "COSINE only"]), ("random", ["kept"]), ("rem", ["kept"])):
        assert [name for name, _ in asked(run, select=select)["map"]["panels"]] == names
    assert asked(run)["scatter"]["normalized"] and not asked(run, normalize=False)["scatter"]["normalized"]


def test_a_model_that_cannot_be_used_costs_the_map_alone(tmp_path):
    pytest.importorskip("sklearn", reason="pip install 'epida-ray[report]'")
    run = write_run(tmp_path / "run", 12)
    same = CNN(("billing", "bug"), vectors="hashed", channels=4)
    same.load_state({name: np.zeros_like(value) for name, value in same.state().items()} | {"temperature": np.ones(())})
    same.save(run / "model")
    assert "all alike" in report_data(Storage(str(run)))["map"]["missing"]
    (run / "model" / "config.json").write_text('{"classifier": "nothing"}')
    data = report_data(Storage(str(run)))
    assert "cannot be used here" in data["map"]["missing"] and data["kept"]["text"]


def test_examples_are_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("epida_ray.experiments.report.MAX_POINTS", 40)
    data = report_data(Storage(str(write_run(tmp_path / "run", 12))))
    assert [len(e["candidates"]) for e in data["examples"]] == [9, 9, 9, 9]
    monkeypatch.setattr("epida_ray.experiments.report.MAX_POINTS", 5)
    assert len(report_data(Storage(str(tmp_path / "run")))["scatter"]["kept"]) == 5


def test_without_candidates_the_kept_are_shown(tmp_path):
    data = report_data(Storage(str(write_run(tmp_path / "run", 5, candidates=False))))
    assert data["scatter"]["kept"] == [1] * 15 and not data["scatter"]["with_dropped"]
    assert all(c["kept"] for e in data["examples"] for c in e["candidates"])


def test_originals_are_not_among_the_kept(tmp_path, monkeypatch):
    """With --with-originals they stand before them in each file; a page of few rows must not be all originals."""
    run = write_run(tmp_path, 200, candidates=False)
    paths = sorted((run / "augmented").iterdir())
    kept = [pq.read_table(path) for path in paths]
    place = kept[0].column_names.index("rank")
    originals = [table.set_column(place, "rank", pa.array([0] * len(table))) for table in kept]
    for path, *both in zip(paths, originals, kept, strict=True):
        pq.write_table(pa.concat_tables(both), path)
    monkeypatch.setattr("epida_ray.experiments.report.MAX_ROWS", 100)
    data = report_data(Storage(str(run)))
    assert len(data["kept"]["text"]) == 100 and len(data["scatter"]["s_div"]) == 100
    for path, table in zip(paths, originals, strict=True):
        pq.write_table(table, path)
    assert report_data(Storage(str(run)))["scatter"]["s_div"] == []


def test_nothing_of_a_text_can_end_the_script_element(tmp_path):
    write_report(str(write_run(tmp_path / "run", 3)))
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.count("<script") == 2 and page.count("</script>") == 2
    assert "http://" not in page.replace("http://www.w3.org", "") and "https://" not in page


def test_placeholders_in_the_data_stay_as_they_are():
    assert '"title":"{{STYLE}}"' in render({"title": "{{STYLE}}"})


def test_a_directory_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(RequestError, match="run directory"):
        write_report(str(tmp_path))


@pytest.mark.parametrize(
    ("source", "text", "changed", "left_out"),
    [
        ("I really love it", "I truly love it", ["truly"], []),
        ("I really love it", "I love it", [], ["really"]),
        ("I love it so much", "I love", [], ["it", "so", "much"]),
        ("a b", "a new b", ["new"], []),
        ("a b c", "c b a", ["c", "b"], ["b", "c"]),
        ("", "word", ["word"], []),
        ("我爱北京天安门", "我爱上海天安门", ["上海"], []),
    ],
)
def test_marked_words(source, text, changed, left_out):
    pieces = mark_words(source, text)
    assert "".join(piece for piece, flag in pieces if flag < 2) == text
    assert " ".join(piece for piece, flag in pieces if flag == 1).split() == changed
    assert " ".join(piece for piece, flag in pieces if flag == 2).split() == left_out


def test_shares_are_even_and_within_sizes():
    assert _even_share([10, 1000, 1000], 210) == [10, 100, 100]
    assert _even_share([5, 5], 100) == [5, 5]


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium; Debian has it as chromium and chromium-driver."""
    if not shutil.which("chromium") or not shutil.which("chromedriver"):
        pytest.skip("no Chromium here: apt-get install chromium chromium-driver")
    webdriver = pytest.importorskip("selenium.webdriver", reason="pip install selenium")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1300,1000",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    yield driver
    driver.quit()


def cells(driver, table, column):
    return driver.execute_script(
        "return [...document.querySelectorAll(arguments[0] + ' tbody tr')].map(r => r.cells[arguments[1]].textContent)",
        f"#{table}",
        column,
    )


def type_into(driver, table, query):
    driver.execute_script(
        "const s = document.querySelector(arguments[0] + ' input'); s.value = arguments[1];"
        "s.dispatchEvent(new Event('input'))",
        f"#{table}",
        query,
    )


def test_in_a_browser(browser, tmp_path):
    run = write_run(tmp_path / "run", 2000, metrics=True)
    write_report(str(run))
    browser.get((run / "report.html").as_uri())
    assert browser.execute_script("return document.body.dataset.ready") == "yes"
    assert browser.execute_script("return window.hacked") is None
    assert HOSTILE in cells(browser, "kept-table", 2)
    assert not browser.find_elements("css selector", "main img, main script")

    assert browser.execute_script("return document.querySelectorAll('#rounds polyline').length") >= 2
    drawn = """
        const c = document.getElementById('scatter-plot');
        const pixels = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        return pixels.filter((v, i) => i % 4 == 3 && v > 0).length"""
    assert browser.execute_script(drawn) > 10_000

    heads = browser.find_elements("css selector", "#kept-table th button")
    heads[8].click()
    falling = [float(v) for v in cells(browser, "kept-table", 8)]
    assert falling == sorted(falling, reverse=True) and len(falling) == 50
    browser.find_elements("css selector", "#kept-table th button")[8].click()
    rising = [float(v) for v in cells(browser, "kept-table", 8)]
    assert rising == sorted(rising) and rising[-1] < falling[-1]

    type_into(browser, "kept-table", "NUMBER 1234 ")
    assert len(cells(browser, "kept-table", 1)) == 3
    assert all("number 1234 " in text for text in cells(browser, "kept-table", 1))
    type_into(browser, "kept-table", "no such words")
    assert cells(browser, "kept-table", 1) == []

    errors = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert errors == []


def test_a_hundred_thousand_rows(browser, tmp_path):
    run = write_run(tmp_path / "run", 33_400, candidates=False)
    write_report(str(run))
    browser.set_script_timeout(60)
    browser.get((run / "report.html").as_uri())
    assert browser.execute_script("return document.body.dataset.ready") == "yes"
    browser.find_elements("css selector", "#kept-table th button")[8].click()
    assert len(cells(browser, "kept-table", 8)) == 50
    status = browser.execute_script("return document.querySelector('#kept-table .status').textContent")
    assert status == "1 to 50 of 100,000"
    assert browser.execute_script("return document.querySelectorAll('tr').length") < 500


def test_the_page_is_valid_without_any_data_section(browser, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "manifest.json").write_text(json.dumps({"format": 1, "kind": "augment", "status": "running"}))
    write_report(str(run))
    browser.get((run / "report.html").as_uri())
    assert browser.execute_script("return document.body.dataset.ready") == "yes"
    assert browser.find_element("css selector", "h1").text == "epida augment"


def test_an_experiment_in_a_browser(browser, tmp_path):
    folder = tmp_path / "combine"
    rows = [
        Row(t, {"macro_f1": 0.5 + t.seed / 100, "accuracy": 0.5} | ({"flips": 0.1} if t.method.generator else {}))
        for t in EXPERIMENTS["combine"].trials(Options())
    ]
    write_results(EXPERIMENTS["combine"], rows, Storage(str(tmp_path)), {"<b>x</b>": "no model"})
    manifest = {"format": 1, "kind": "reproduce", "status": "finished", "title": "Adding", "trials": len(rows)}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    write_report(str(folder))
    browser.get((folder / "report.html").as_uri())
    assert browser.execute_script("return document.body.dataset.ready") == "yes"
    assert browser.execute_script("return document.querySelectorAll('#result svg circle').length") == len(rows)
    assert "(paper 0.740)" in browser.find_element("css selector", "#result").text
    assert "<b>x</b> was left out" in browser.find_element("css selector", "#result").text
    assert len(cells(browser, "trials-table", 0)) == len(rows)
    heads = [b.text for b in browser.find_elements("css selector", "#trials-table th button")]
    flips = heads.index("flips")
    for _ in range(2):  # up or down, what was not measured is blank and comes last
        browser.find_elements("css selector", "#trials-table th button")[flips].click()
        shown = cells(browser, "trials-table", flips)
        assert shown[-10:] == [""] * 10 and all(shown[:-10])
    assert [e for e in browser.get_log("browser") if e["level"] == "SEVERE"] == []
