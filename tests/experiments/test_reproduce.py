import csv
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from epida_ray.core.errors import RequestError, RunError
from epida_ray.core.progress import Reporter
from epida_ray.data.storage import Storage
from epida_ray.experiments import reproduce as experiments
from epida_ray.experiments.catalogue import EXPERIMENTS, Options
from epida_ray.experiments.reproduce import reproduce

FAST = ("normalization", "replacement")


def check(location, name):
    folder = Path(location)
    assert {"results.csv", "table.md", "plot.svg", "manifest.json"} <= {p.name for p in folder.iterdir()}
    rows = list(csv.DictReader((folder / "results.csv").open()))
    assert len(rows) == len(EXPERIMENTS[name].trials(Options(quick=True)))
    assert all(0 <= float(row["macro_f1"]) <= 1 for row in rows)
    for extra in EXPERIMENTS[name].extra:
        assert any(row[extra] for row in rows)


@pytest.mark.parametrize("name", FAST)
def test_quick(name, data_dir, tmp_path, local_ray):
    folder = reproduce(name, str(data_dir), str(tmp_path), Options(quick=True))
    check(folder, name)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [n for n in EXPERIMENTS if n not in FAST])
def test_every_experiment_quickly(name, data_dir, tmp_path, local_ray):
    check(reproduce(name, str(data_dir), str(tmp_path), Options(quick=True)), name)


def write_corpus(folder):
    (folder / "toy").mkdir(parents=True)
    for split, n in (("train", 40), ("test", 12)):
        lines = [f"the {('bread', 'ball')[i % 2]} is {('eaten', 'thrown')[i % 2]} number {i},{i % 2}" for i in range(n)]
        (folder / "toy" / f"{split}.csv").write_text("text,label\n" + "\n".join(lines) + "\n")
    return str(folder)


TOY = Options(quick=True, columns=(("toy", "100%"),))


def test_trials_are_kept_and_shared_between_experiments(tmp_path, local_ray):
    data = write_corpus(tmp_path / "data")
    out = tmp_path / "out"
    reproduce("combine", data, str(out), TOY)
    trials = {p.name: p.stat().st_mtime_ns for p in (out / "trials").iterdir()}
    table = (out / "combine" / "table.md").read_text()
    lost = sorted(trials)[0]
    (out / "trials" / lost).unlink()
    reproduce("combine", data, str(out), TOY)
    again = {p.name: p.stat().st_mtime_ns for p in (out / "trials").iterdir()}
    assert again.keys() == trials.keys()
    assert {n for n in trials if again[n] != trials[n]} == {lost}
    assert (out / "combine" / "table.md").read_text() == table
    reproduce("normalization", data, str(out), TOY)
    fresh = {p.name for p in (out / "trials").iterdir()} - trials.keys()
    assert len(fresh) == 2  # raw scores with two seeds; the rest is what combine ran


def test_a_method_that_cannot_run_is_left_out_and_named(tmp_path, local_ray):
    options = Options(quick=True, columns=(("toy", "100%"),), generators=("eda", "masked-lm"))
    folder = Path(reproduce("generality", write_corpus(tmp_path / "data"), str(tmp_path / "out"), options))
    text = (folder / "table.md").read_text()
    assert "random masked-lm was left out: " in text and "| EPiDA with EDA |" in text
    failed = json.loads((folder / "manifest.json").read_text())["failed"]
    assert set(failed) == {"random masked-lm", "EPiDA with masked-lm"}


def test_a_table_of_other_options_is_replaced_aloud_and_comes_back(tmp_path, local_ray, capsys):
    data, out = write_corpus(tmp_path / "data"), str(tmp_path / "out")
    folder = Path(reproduce("normalization", data, out, TOY))
    table = (folder / "table.md").read_text()
    (folder / "report.html").write_text("of the first")
    assert "Classifier: CNN" in table and "--quick" in table
    trial = json.loads(next((tmp_path / "out" / "trials").iterdir()).read_text())
    assert trial["of"]["trial"]["dataset"] == "toy" and "torch" in trial["of"]["surroundings"]["versions"]
    other = replace(TOY, classifier_args={"vectors": "hashed"})
    reproduce("normalization", data, out, other, reporter=Reporter())
    assert "was made with other options (classifier_args)" in " ".join(capsys.readouterr().err.split())
    assert "hashed" in (folder / "table.md").read_text() and not (folder / "report.html").exists()
    reproduce("normalization", data, out, TOY)
    assert (folder / "table.md").read_text() == table


class Broken:
    def __init__(self):
        raise ZeroDivisionError("of\nits own")


class Killed:
    def __init__(self):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_trial_that_fails_in_any_way_is_left_out_and_named(tmp_path, local_ray, monkeypatch):
    monkeypatch.setattr(experiments, "_trial", experiments._trial.options(max_retries=0))
    own = (f"{__name__}:Broken", f"{__name__}:Killed")
    options = Options(quick=True, columns=(("toy", "100%"),), generators=("eda", *own), seeds=(0,))
    folder = reproduce("generality", write_corpus(tmp_path / "data"), str(tmp_path / "out"), options)
    failed = json.loads((Path(folder) / "manifest.json").read_text())["failed"]
    assert failed[f"random {own[0]}"] == "ZeroDivisionError: of its own"
    assert "WorkerCrashedError" in failed[f"random {own[1]}"] and len(failed) == 4


def test_trials_that_never_end_are_given_up(tmp_path, local_ray):
    with pytest.raises(RunError, match=r"no trial ended .* 0 of \d+ trials ended; .* to resume"):
        reproduce("combine", write_corpus(tmp_path / "data"), str(tmp_path / "out"), TOY, stall_timeout=0.01)


def test_the_place_of_the_results_is_a_url_where_the_output_is_one(tmp_path, local_ray):
    out = f"file://{tmp_path}/out"
    folder = reproduce("normalization", write_corpus(tmp_path / "data"), out, TOY)
    assert folder == f"{out}/normalization" and Storage(folder).read("table.md").startswith(b"# normalization")


def test_what_cannot_start_is_said(tmp_path, local_ray):
    with pytest.raises(RequestError, match="there is no experiment"):
        reproduce("nothing", str(tmp_path), str(tmp_path))
    with pytest.raises(RequestError, match="no train and test file"):
        reproduce("k", str(tmp_path), str(tmp_path))
    options = Options(quick=True, columns=(("toy", "100%"),), classifier="nothing")
    data, out = write_corpus(tmp_path / "data"), str(tmp_path / "out")
    with pytest.raises(RequestError, match="there is no classifier"):
        reproduce("k", data, out, options)
    with pytest.raises(RequestError, match="there is no generator 'nothing'"):
        reproduce("generality", data, out, replace(TOY, generators=("nothing",)))
    for size, reason in (("0%", "a subset is"), ("1 per class", "none is left to choose the epoch by")):
        with pytest.raises(RequestError, match=reason):
            reproduce("k", data, out, replace(TOY, columns=(("toy", size),)))
