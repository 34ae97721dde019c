import json
import shutil
import threading
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from epida_ray.classify.cnn import CNN
from epida_ray.core.errors import RequestError
from epida_ray.data.storage import Storage
from epida_ray.experiments.catalogue import EXPERIMENTS
from epida_ray.experiments.layout import PLOT, RESULTS, TABLE
from epida_ray.experiments.options import Options
from epida_ray.experiments.report import render, report_data, write_report
from epida_ray.experiments.report_rows import even_share
from epida_ray.experiments.reproduce import write_results
from epida_ray.experiments.results import Results, Row
from epida_ray.experiments.trials import NONE
from epida_ray.experiments.watch import REFRESH, watcher
from epida_ray.generate.word_marks import mark_words
from epida_ray.method.prepare import Row as InputRow
from epida_ray.method.prepare import write_prepared
from epida_ray.method.results import round_summary
from epida_ray.runs.manifest import Done, Manifest, read_manifest, this_process

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
    manifest = Manifest(
        kind="augment", status="finished", request={"m": 3, "k": 3, "select": "rem+cem"},
        command=["epida", "augment", "in.csv", "--output", "a dir"], versions={"python": "3.11"},
        seconds={"generate": 2.0, "score": 5.5}, reasons={"the text is empty <b>": 1},
        done=Done(rows=samples, candidates=9 * samples, kept=3 * samples, rejected=1),
    )  # fmt: skip
    manifest.write(Storage(str(folder)))
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


def test_only_files_of_the_run_are_shown(tmp_path):
    run = write_run(tmp_path / "run", 4)
    names = [f"{folder}/{name}.parquet" for folder in ("augmented", "candidates") for name in "ab"]
    files = {name: (run / name).stat().st_size for name in names}
    (run / "committed.json").write_text(json.dumps(files))
    storage = Storage(str(run))
    (run / "rejected" / "a.parquet").rename(run / "rejected" / "input.parquet")  # of no shard
    before = report_data(storage)
    assert len(before["kept"]["text"]) == 12 and len(before["rejected"]["rows"]) == 1
    storage.write_table("augmented/notes.parquet", pa.table({"mine": [1]}))
    storage.write_table("rejected/notes.parquet", pa.table({"mine": [1]}))
    storage.write_table("candidates/old.parquet", pq.read_table(run / "candidates" / "a.parquet"))
    assert report_data(storage) == before


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


def requested(run: Path, **options: object) -> dict:
    storage = Storage(str(run))
    manifest = read_manifest(storage)
    manifest.request |= options
    manifest.write(storage)
    return report_data(storage)


def test_panels_have_the_names_of_the_requested_scores(tmp_path):
    pytest.importorskip("sklearn", reason="pip install 'epida-ray[report]'")
    run = write_run(tmp_path / "run", 12)
    CNN(("billing", "bug"), vectors="hashed", channels=4).save(run / "model")
    for select, names in (("ppl+cosine", ["kept", "PPL only", "COSINE only"]), ("random", ["kept"]), ("rem", ["kept"])):
        assert [name for name, _ in requested(run, select=select)["map"]["panels"]] == names
    assert requested(run)["scatter"]["normalized"] and not requested(run, normalize=False)["scatter"]["normalized"]


def test_without_a_usable_model_only_the_map_is_missing(tmp_path):
    pytest.importorskip("sklearn", reason="pip install 'epida-ray[report]'")
    run = write_run(tmp_path / "run", 12)
    same = CNN(("billing", "bug"), vectors="hashed", channels=4)
    same.load_state({name: np.zeros_like(value) for name, value in same.state().items()} | {"temperature": np.ones(())})
    same.save(run / "model")
    assert "all equal" in report_data(Storage(str(run)))["map"]["missing"]
    (run / "model" / "config.json").write_text('{"classifier": "nothing"}')
    data = report_data(Storage(str(run)))
    assert "cannot be loaded here" in data["map"]["missing"] and data["kept"]["text"]


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


def test_a_directory_without_a_run_is_refused(tmp_path):
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
    assert even_share([10, 1000, 1000], 210) == [10, 100, 100]
    assert even_share([5, 5], 100) == [5, 5]


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
    Manifest(kind="augment", status="running", request={}).write(Storage(str(run)))
    write_report(str(run))
    browser.get((run / "report.html").as_uri())
    assert browser.execute_script("return document.body.dataset.ready") == "yes"
    assert browser.find_element("css selector", "h1").text == "epida augment"


def test_an_experiment_in_a_browser(browser, tmp_path):
    folder = tmp_path / "combine"
    rows = [
        Row(t, {"macro_f1": 0.5 + t.seed / 100, "accuracy": 0.5} | ({"flips": 0.1} if t.method != NONE else {}))
        for t in EXPERIMENTS["combine"].trials(Options())
    ]
    results = Results(EXPERIMENTS["combine"], rows)
    write_results(results, Storage(str(tmp_path)), Options(), failures={"<b>x</b>": "no model"})
    experiment = {"title": "Adding", "trials": len(rows)}
    manifest = Manifest(kind="reproduce", status="finished", request={}, experiment=experiment)
    manifest.write(Storage(str(folder)))
    write_report(str(folder))
    browser.get((folder / "report.html").as_uri())
    assert browser.execute_script("return document.body.dataset.ready") == "yes"
    assert browser.execute_script("return document.querySelector('#result img').naturalWidth") > 100
    assert "(paper 0.740)" in browser.find_element("css selector", "#result").text
    assert "<b>x</b> failed" in browser.find_element("css selector", "#result").text
    assert len(cells(browser, "trials-table", 0)) == len(rows)
    heads = [b.text for b in browser.find_elements("css selector", "#trials-table th button")]
    flips = heads.index("flips")
    for _ in range(2):  # in both directions, blank cells come last
        browser.find_elements("css selector", "#trials-table th button")[flips].click()
        shown = cells(browser, "trials-table", flips)
        assert shown[-10:] == [""] * 10 and all(shown[:-10])
    assert [e for e in browser.get_log("browser") if e["level"] == "SEVERE"] == []


def test_a_hostile_plot_runs_no_script(browser, tmp_path):
    """The directory comes from someone else: whatever plot.svg is, it stays a picture."""
    folder = tmp_path / "run"
    folder.mkdir()
    experiment = {"title": "Adding", "trials": 1}
    Manifest(kind="reproduce", status="finished", request={}, experiment=experiment).write(Storage(str(folder)))
    (folder / RESULTS).write_text("trial\n1\n")
    (folder / TABLE).write_text("nothing")
    (folder / PLOT).write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" onload="parent.hacked = window.hacked = 1">'
        "<script>parent.hacked = window.hacked = 1</script></svg>"
    )
    write_report(str(folder))
    browser.get((folder / "report.html").as_uri())
    assert browser.execute_script("return document.body.dataset.ready") == "yes"
    assert browser.execute_script("return document.querySelector('#result img').complete")
    assert browser.execute_script("return window.hacked") is None
    assert not browser.find_elements("css selector", "#result svg, #result script")
    inline = "const s = document.createElement('script'); s.textContent = 'window.hacked = 1'; document.body.append(s)"
    browser.execute_script(inline)
    assert browser.execute_script("return window.hacked") is None, "the policy must refuse a script that is added"
    assert "Content Security Policy" in str(browser.get_log("browser"))  # reading the log empties it for the next test


def trained(folder: Path, *, test: bool = True, dev: int = 40) -> Path:
    """A finished training run, with the files that its report reads."""
    write_run(folder, 6, candidates=False)
    storage = Storage(str(folder))
    per_class = {
        "bug": {"precision": 0.9, "recall": 0.8, "f1": 0.85, "support": 60},
        "billing": {"precision": 0.2, "recall": 0.3, "f1": 0.24, "support": 20},
    }
    result = {
        "macro_f1": 0.545, "accuracy": 0.7, "rows": 80, "rejected": 0, "reasons": {}, "per_class": per_class,
        "confusion": [[48, 12], [14, 6]],
        "reliability": [
            {"rows": 30, "confidence": 0.55, "accuracy": 0.5}, {"rows": 50, "confidence": 0.95, "accuracy": 0.8},
        ],
        "noise": {"spelling:0.3": {"macro_f1": 0.411, "accuracy": 0.6}},
    }  # fmt: skip
    Manifest(
        kind="train", status="finished", request={"generator": "eda", "rounds": 3, "m": 3}, labels=["bug", "billing"],
        execution={"input": "tickets.csv"}, prepared={"train": 70, "dev": dev, "rejected": 0}, rounds_done=4,
        best={"round": 2, "macro_f1": 0.66, "accuracy": 0.7, "loss": 0.5}, test=result if test else None,
        done=Done(rows=70, kept=200),
    ).write(storage)  # fmt: skip
    rounds = [
        {"round": i, "loss": 1 / (i + 1), "loss_augmented": 0.5 if i else 0.0, "dev_macro_f1": 0.6 + 0.03 * min(i, 2),
         "seconds": {"train": i}}
        for i in range(4)
    ]  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rounds))
    rows = [
        {"sample_id": f"p:{i}", "text": HOSTILE if not i else f"pool text {i}", "label": ("bug", "billing")[i % 2],
         "soft_label": [0.75, 0.25] if i % 2 == 0 else [0.1, 0.9], "weight": 0.5, "rewritten": False, "round": 1,
         "weights_version": 1}
        for i in range(60)
    ]  # fmt: skip
    (folder / "pseudo").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), folder / "pseudo" / "round=001.parquet")
    return folder


def test_the_verdict_says_what_was_done_what_came_out_and_what_is_next(tmp_path):
    done, outcome, next_ = report_data(Storage(str(trained(tmp_path / "a"))))["verdict"]
    assert done == (
        "A classifier for 2 classes was trained on 70 texts of tickets.csv, with eda rewrites, in 3 rounds."
    )
    assert (
        "Test macro-F1 is 0.545 (accuracy 0.700, 80 rows; 0.411 with noise spelling:0.3)" in outcome
        and "+0.060 over round 0" in outcome
        and "40 dev rows cannot tell this from chance" in outcome
    )
    assert "weakest class is billing (F1 0.24, 20 test rows)" in next_
    _, outcome, next_ = report_data(Storage(str(trained(tmp_path / "b", test=False, dev=40_000))))["verdict"]
    assert (
        "Dev macro-F1 is 0.660; round 2 was the best on dev, +0.060" in outcome
        and "more than chance explains" in outcome
    )
    assert "epida evaluate" in next_
    verdict = report_data(Storage(str(write_run(tmp_path / "c", 5))))["verdict"]
    assert verdict[1] == "15 rewrites were kept, 3.0 for each text; 1 rows were rejected."
    assert "rejected, below" in verdict[2]


def test_a_chosen_round_is_called_the_best_only_where_it_is(tmp_path):
    """With unlabelled texts a round is kept unless it is clearly worse; the report and the last line say the same."""
    storage = Storage(str(trained(tmp_path)))
    lines = [{"round": i, "loss": 1.0, "loss_unlabelled": 0.5 * (i > 0), "dev_macro_f1": f1} for i, f1 in
             enumerate((0.7, 0.72, 0.66))]  # fmt: skip
    storage.write("metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode())
    data = report_data(storage)
    assert "round 2 was chosen; it is not clearly worse than the best, -0.040 over round 0" in data["verdict"][1]
    assert "the best on the dev rows" not in data["rounds_note"]
    assert round_summary(lines, 2, 40).startswith("chosen round 2 of 2: dev macro-F1 0.6600; without unlabelled texts")
    assert round_summary(lines, 1, 40).startswith("best round 1 of 2: ")


def test_rounds_that_all_learned_from_the_originals_are_not_compared_with_round_0(tmp_path):
    storage = Storage(str(trained(tmp_path)))
    lines = [{"round": i, "loss_augmented": 0.0, "dev_macro_f1": f1} for i, f1 in enumerate((0.6, 0.63, 0.66))]
    storage.write("metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode())
    data = report_data(storage)
    assert data["verdict"][1].endswith("round 2 was the best on dev.")
    assert data["rounds_note"].startswith("Every round learned from the originals alone.")


def test_a_run_without_rewrites_has_a_map_of_its_originals(browser, tmp_path):
    """The points are reached by keyboard too."""
    from selenium.webdriver.common.keys import Keys

    run = trained(tmp_path / "run")
    shutil.rmtree(run / "augmented")
    CNN(("bug", "billing"), vectors="hashed", channels=4).save(run / "model")
    texts = [f"number {i} of the rows" for i in range(20)]
    write_prepared(Storage(str(run)), "train", [InputRow(str(i), text, "bug") for i, text in enumerate(texts)])
    found = report_data(Storage(str(run)))["map"]
    assert found["text"] == texts and found["panels"] == [["kept", []]] and found["originals"] == list(range(20))
    write_report(str(run))
    browser.get((run / "report.html").as_uri())
    canvas = browser.find_element("css selector", "#map-0")
    browser.execute_script("arguments[0].focus()", canvas)
    said = []
    for key in (Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT, Keys.END):
        canvas.send_keys(key)
        said.append(browser.find_element("css selector", ".tip[aria-live=polite]").text)
    order = sorted(range(20), key=lambda i: (found["x"][i], found["y"][i]))
    assert said == [f"bug: {texts[order[i]]}" for i in (0, 1, 0, 19)]
    canvas.send_keys(Keys.ESCAPE)
    assert not browser.find_element("css selector", ".tip").is_displayed()
    assert "triangles" not in browser.find_element("css selector", "#map").text
    assert [e for e in browser.get_log("browser") if e["level"] == "SEVERE"] == []


def test_a_labelled_corpus_in_a_browser(browser, tmp_path):
    storage = Storage(str(tmp_path))
    Manifest(kind="label", status="finished", request={}, labels=["bug", "billing"], done=Done(rows=9, kept=9)).write(
        storage
    )
    rows = {"sample_id": ["p:0", "p:1"], "text": [HOSTILE, "it is dear"], "label": ["bug", "billing"],
            "confidence": [0.9, 0.6], "soft_label": [[0.9, 0.1], [0.4, 0.6]]}  # fmt: skip
    storage.write_table("labelled/a.parquet", pa.table(rows))
    storage.write("review.csv", b'sample_id,text,label,confidence,entropy\np:1,"it is\ndear",billing,0.6000,0.6730\n')
    write_report(str(tmp_path))
    browser.get((tmp_path / "report.html").as_uri())
    assert browser.execute_script("return document.body.dataset.ready") == "yes"
    assert cells(browser, "labelled-table", 1) == [HOSTILE, "it is dear"]
    assert cells(browser, "labelled-table", 3) == ["bug 0.90, billing 0.10", "billing 0.60, bug 0.40"]
    assert cells(browser, "review-table", 1) == ["it is\ndear"] and cells(browser, "review-table", 4) == ["0.673"]
    assert browser.execute_script("return window.hacked") is None


def test_a_training_run_in_a_browser(browser, tmp_path):
    run = trained(tmp_path / "run")
    write_report(str(run))
    browser.get((run / "report.html").as_uri())
    assert browser.execute_script("return document.body.dataset.ready") == "yes"
    assert len(browser.find_elements("css selector", "#verdict p")) == 3
    assert [c.text for c in browser.find_elements("css selector", "#confusion tbody td")] == ["48", "12", "14", "6"]
    assert len(browser.find_elements("css selector", "#reliability circle")) == 2
    assert cells(browser, "noise", 1) == ["0.545", "0.411"]
    assert cells(browser, "classes-table", 0) == ["bug", "billing"]
    assert browser.find_elements("css selector", "#rounds line.chosen")
    assert HOSTILE in cells(browser, "pool-table", 1) and cells(browser, "pool-table", 2)[1] == "billing 0.90, bug 0.10"
    choose = (
        "const s = document.querySelector(arguments[0]); s.value = arguments[1]; s.dispatchEvent(new Event('change'))"
    )
    browser.execute_script(choose, "#pool-table select", "bug")
    assert set(cells(browser, "pool-table", 0)) == {"bug"} and len(cells(browser, "pool-table", 0)) == 25
    browser.execute_script(choose, "#examples select", "bug")
    shown = browser.execute_script(
        "return [...document.querySelectorAll('#examples [data-class]')].filter(n => !n.hidden)"
        ".map(n => n.dataset.class)"
    )
    assert shown and set(shown) == {"bug"}
    assert [e for e in browser.get_log("browser") if e["level"] == "SEVERE"] == []


def test_watching_shows_the_newest_state_and_stops_when_the_run_ends(tmp_path):
    run = write_run(tmp_path / "run", 5)
    storage = Storage(str(run))
    manifest = read_manifest(storage)
    manifest.model_copy(update={"status": "running"}).write(storage)
    with watcher(str(run), 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        with urllib.request.urlopen(url, timeout=60) as page:
            assert page.headers["Refresh"] == str(REFRESH) and b"The run is running" in page.read()
        manifest.write(storage)
        with urllib.request.urlopen(url, timeout=60) as page:
            assert page.headers["Refresh"] is None and b"The run is running" not in page.read()
        for wrong, headers, status in ((url + "manifest.json", {}, 404), (url, {"Host": "evil.example"}, 403)):
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(urllib.request.Request(wrong, headers=headers), timeout=60)
            assert caught.value.code == status
        server.shutdown()
    with pytest.raises(RequestError, match="not a run directory"):
        watcher(str(tmp_path), 0)


def test_watching_draws_the_map_of_a_model_once(tmp_path, monkeypatch):
    run = write_run(tmp_path / "run", 5)
    storage, drawn, maps = Storage(str(run)), [], {}
    monkeypatch.setattr("epida_ray.experiments.report.draw_map", lambda *_: drawn.append(1) or {"x": len(drawn)})
    manifest = read_manifest(storage)
    for status in ("running", "running", "finished", "finished"):
        manifest.model_copy(update={"status": status, "model_digest": "a"}).write(storage)
        report_data(storage, (), maps)
    manifest.model_copy(update={"model_digest": "b"}).write(storage)
    assert report_data(storage, (), maps)["map"] == {"x": 3} and report_data(storage)["map"] == {"x": 4}


def test_an_experiment_and_a_check_can_be_watched(tmp_path):
    running = Manifest(
        kind="reproduce", status="running", request={}, experiment={"title": "Adding", "trials": 4},
        process=this_process(),
    )  # fmt: skip
    running.write(Storage(str(tmp_path / "combine")))
    checked = {"train": 5, "test": 0, "classes": {"a": 5}, "findings": []}
    Storage(str(tmp_path / "checked")).write("check.json", json.dumps(checked).encode())
    for name, shown, refresh in (
        ("combine", b"4 trials are to be run", str(REFRESH)),
        ("checked", b"Nothing is", None),
    ):
        with watcher(str(tmp_path / name), 0) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/", timeout=60) as page:
                assert page.headers["Refresh"] == refresh and shown in page.read()
            server.shutdown()
