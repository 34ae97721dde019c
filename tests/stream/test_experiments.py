import csv
import json

import pytest

from epida_ray.errors import RequestError, RunError
from epida_ray.evaluate.experiments import EXPERIMENTS, Options
from epida_ray.stream.experiments import reproduce

FAST = ("normalization", "replacement")


def check(folder, name):
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
    options = Options(quick=True, columns=(("toy", "100%"),), generators=("eda", "nothing"))
    folder = reproduce("generality", write_corpus(tmp_path / "data"), str(tmp_path / "out"), options)
    text = (folder / "table.md").read_text()
    assert "random nothing was left out: there is no generator 'nothing'" in text and "| EPiDA with EDA |" in text
    assert set(json.loads((folder / "manifest.json").read_text())["failed"]) == {"random nothing", "EPiDA with nothing"}


def test_what_cannot_start_is_said(tmp_path, local_ray):
    with pytest.raises(RequestError, match="there is no experiment"):
        reproduce("nothing", str(tmp_path), str(tmp_path))
    with pytest.raises(RequestError, match="no train and test file"):
        reproduce("k", str(tmp_path), str(tmp_path))
    options = Options(quick=True, columns=(("toy", "100%"),), classifier="nothing")
    with pytest.raises(RunError, match="there is no classifier"):
        reproduce("k", write_corpus(tmp_path / "data"), str(tmp_path / "out"), options)
