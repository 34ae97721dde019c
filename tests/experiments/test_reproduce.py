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
from epida_ray.experiments.catalogue import EXPERIMENTS, find
from epida_ray.experiments.options import Options
from epida_ray.experiments.reproduce import _plan, reproduce
from epida_ray.runs.manifest import read_manifest
from epida_ray.stream import tasks

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


TOY = Options(quick=True, settings=(("toy", "100%"),))


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


def test_some_methods_of_an_experiment_share_the_trials_of_all(tmp_path, local_ray, capsys):
    """The first method's classifier is a part of every key, so leaving that method out must not change the others'."""
    data, out = write_corpus(tmp_path / "data"), str(tmp_path / "out")
    options = replace(TOY, classifier="linear", seeds=(0,))
    some = replace(options, methods=("REM+CEM", "none"))
    folder = Path(reproduce("replacement", data, out, some))
    rows = list(csv.DictReader((folder / "results.csv").open()))
    assert [row["method"] for row in rows] == ["none", "REM+CEM"]
    first = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "out" / "trials").iterdir()}
    reproduce("replacement", data, out, options, reporter=Reporter())
    assert "which has other options (methods)" in " ".join(capsys.readouterr().err.split())
    trials = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "out" / "trials").iterdir()}
    assert len(first) == 2 and first.items() < trials.items()


def test_a_method_has_the_same_key_with_and_without_the_others(tmp_path):
    """few-labels has methods of several classifiers."""
    data = write_corpus(tmp_path / "data")
    storage = Storage(str(tmp_path / "out"))
    experiment = find("few-labels")
    named = [m.name for m in experiment.plan(TOY)[0]]
    whole = _plan(experiment, data, TOY, storage)
    assert list(dict.fromkeys(trial.method.name for _, trial in whole.trials)) == named
    for name in ("encoder", "cnn + unlabelled texts, encoder as teacher"):
        part = _plan(experiment, data, replace(TOY, methods=(name,)), storage)
        assert part.trials == [one for one in whole.trials if one[1].method.name == name]


def failures(folder):
    return read_manifest(Storage(str(folder))).experiment["failures"]


def test_a_method_that_cannot_run_is_named_with_the_reason(tmp_path, local_ray):
    options = Options(quick=True, settings=(("toy", "100%"),), generators=("eda", "masked-lm"))
    folder = Path(reproduce("generality", write_corpus(tmp_path / "data"), str(tmp_path / "out"), options))
    text = (folder / "table.md").read_text()
    assert "random masked-lm failed: " in text and "| EPiDA with EDA |" in text
    assert set(failures(folder)) == {"random masked-lm", "EPiDA with masked-lm"}


def test_a_table_of_other_options_is_replaced_with_a_warning_and_can_be_restored(tmp_path, local_ray, capsys):
    data, out = write_corpus(tmp_path / "data"), str(tmp_path / "out")
    folder = Path(reproduce("normalization", data, out, TOY))
    table = (folder / "table.md").read_text()
    (folder / "report.html").write_text("of the first")
    assert "Classifier: CNN" in table and "--quick" in table
    trial = json.loads(next((tmp_path / "out" / "trials").iterdir()).read_text())
    assert trial["of"]["trial"]["dataset"] == "toy" and "torch" in trial["of"]["environment"]["versions"]
    other = replace(TOY, classifier_args={"vectors": "hashed"})
    reproduce("normalization", data, out, other, reporter=Reporter())
    assert "which has other options (classifier_args)" in " ".join(capsys.readouterr().err.split())
    assert "hashed" in (folder / "table.md").read_text() and not (folder / "report.html").exists()
    reproduce("normalization", data, out, TOY)
    assert (folder / "table.md").read_text() == table


class Broken:
    def __init__(self):
        raise ZeroDivisionError("of\nits own")


class Killed:
    def __init__(self):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_trial_that_fails_in_any_way_is_named_with_the_reason(tmp_path, local_ray, monkeypatch):
    monkeypatch.setattr(tasks, "RETRIES", 0)
    own = (f"{__name__}:Broken", f"{__name__}:Killed")
    options = Options(quick=True, settings=(("toy", "100%"),), generators=("eda", *own), seeds=(0,))
    folder = reproduce("generality", write_corpus(tmp_path / "data"), str(tmp_path / "out"), options)
    failed = failures(folder)
    assert failed[f"random {own[0]}"] == "ZeroDivisionError: of its own"
    assert "WorkerCrashedError" in failed[f"random {own[1]}"] and len(failed) == 4


def test_the_experiment_gives_up_on_trials_that_never_end(tmp_path, local_ray):
    with pytest.raises(
        RunError, match=r"no trial ended .* 0 of \d+ trials ended; .* Finished trials are kept in .* to resume"
    ):
        reproduce("combine", write_corpus(tmp_path / "data"), str(tmp_path / "out"), TOY, stall_timeout=0.01)


def test_a_directory_says_that_its_experiment_runs_and_how_it_ended(tmp_path, local_ray, monkeypatch):
    data, out = write_corpus(tmp_path / "data"), tmp_path / "out"
    seen, outcomes = [], [RunError("no trial ended"), KeyboardInterrupt()]

    def run(*arguments):
        seen.append(read_manifest(Storage(str(out / "combine"))))
        raise outcomes[len(seen) - 1]

    monkeypatch.setattr("epida_ray.experiments.reproduce._run", run)
    for outcome, status in zip(outcomes, ("failed", "interrupted"), strict=True):
        with pytest.raises(type(outcome)):
            reproduce("combine", data, str(out), TOY)
        assert seen[-1].status == "running" and seen[-1].process.pid == os.getpid()
        assert read_manifest(Storage(str(out / "combine"))).status == status


def test_the_place_of_the_results_is_a_url_where_the_output_is_one(tmp_path, local_ray):
    out = f"file://{tmp_path}/out"
    folder = reproduce("normalization", write_corpus(tmp_path / "data"), out, TOY)
    assert folder == f"{out}/normalization" and Storage(folder).read("table.md").startswith(b"# normalization")


def test_a_wrong_request_is_refused_before_the_first_trial(tmp_path, local_ray):
    with pytest.raises(RequestError, match="there is no experiment"):
        reproduce("nothing", str(tmp_path), str(tmp_path))
    with pytest.raises(RequestError, match="has no train and test file; each may be a .parquet"):
        reproduce("k", str(tmp_path), str(tmp_path))
    options = Options(quick=True, settings=(("toy", "100%"),), classifier="nothing")
    data, out = write_corpus(tmp_path / "data"), str(tmp_path / "out")
    with pytest.raises(RequestError, match="there is no classifier"):
        reproduce("k", data, out, options)
    with pytest.raises(RequestError, match="there is no generator 'nothing'"):
        reproduce("generality", data, out, replace(TOY, generators=("nothing",)))
    for method, reason in (
        ("nobody", "k has no method 'nobody'; choose one of: none; random EDA; K = 2; K = 10"),
        ("K = 3", "k has the method 'K = 3' only without --quick"),
    ):
        with pytest.raises(RequestError, match=reason):
            reproduce("k", data, out, replace(TOY, methods=(method,)))
    with pytest.raises(RequestError, match="few-labels has the method 'encoder, tuned' only with --full"):
        find("few-labels").trials(Options(methods=("encoder, tuned",)))
    for size, reason in (("0%", "the size of a subset is"), ("1 per class", "none is left for the dev split")):
        with pytest.raises(RequestError, match=reason):
            reproduce("k", data, out, replace(TOY, settings=(("toy", size),)))


def test_a_table_of_an_older_version_is_refused_before_the_first_trial(tmp_path, local_ray):
    data, out = write_corpus(tmp_path / "data"), tmp_path / "out"
    (out / "k").mkdir(parents=True)
    (out / "k" / "manifest.json").write_text('{"format": 1, "kind": "reproduce", "status": "finished", "asked": {}}')
    with pytest.raises(RequestError, match="older version"):
        reproduce("k", data, str(out), TOY)
    assert not (out / "trials").exists()


class NoOracle:
    """A classifier that can be scored with but not trained."""

    def __init__(self, labels):
        self.labels = tuple(labels)

    def predict_proba(self, texts):
        raise AssertionError("nobody should ask")


def test_without_a_judge_of_labels_its_trials_fail_with_the_reason(tmp_path, local_ray):
    options = replace(TOY, classifier=f"{__name__}:NoOracle", seeds=(0,))
    with pytest.raises(RunError, match="the judge of labels cannot be trained: .* cannot be trained; it only scores"):
        reproduce("error-distance", write_corpus(tmp_path / "data"), str(tmp_path / "out"), options)
