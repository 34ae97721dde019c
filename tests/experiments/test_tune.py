"""`epida tune`: the space, and a small search with Ray Tune that is interrupted and resumed."""

import json
from dataclasses import replace

import numpy as np
import pytest
import yaml

from epida_ray.core.errors import RequestError, RunError
from epida_ray.core.progress import Reporter
from epida_ray.data.storage import Storage
from epida_ray.experiments.compare_folds import Data
from epida_ray.experiments.compare_statistics import Interval, difference
from epida_ray.experiments.report import report_data
from epida_ray.experiments.tune import TuneOptions, _outer_votes, _split, summary, tune
from epida_ray.experiments.tune_space import baseline, read_space, tuned, without_rewrites
from epida_ray.generate import GENERATORS
from epida_ray.method.pool import text_hash
from epida_ray.method.requests import TrainRequest, make_request
from epida_ray.method.trainer import LabelledRows
from epida_ray.stream.search import Range
from tests.experiments.test_compare import corpus

SPACE = {
    "classifier": "linear",
    "rounds": 2,
    "m": [1, 2],
    "alpha": {"from": 0.2, "to": 0.8},
    "classifier-arg": {"strength": {"from": 1.0, "to": 100.0, "log": True}},
    "policy": {"swap": {"probability": {"from": 0.2, "to": 1.0}, "magnitude": 0.2}},
}


def test_the_default_space_gives_requests():
    space = read_space(None)
    assert space["policy.swap.magnitude"] == Range(0.05, 0.5) and space["m"] == [1, 3, 5]
    point = {n: v[0] if isinstance(v, list) else v.low if isinstance(v, Range) else v for n, v in space.items()}
    assert tuned(point).request().generator == "none"  # all probabilities are 0
    point |= {"policy.swap.probability": 0.5}
    request = tuned(point).request()
    assert request.generator_args == {"operations": [{"operation": "swap", "probability": 0.5, "magnitude": 0.05}]}
    assert request.combine == "weighted" and request.alpha == 0.1 and request.learning_rate == 0.001
    assert tuned(point | {"select": "random"}).request().combine == "add"
    reference = baseline(space).request()
    assert reference.classifier == "cnn" and reference.generator == "none"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "must map options"),
        ("rounds: 3", "nothing to search"),
        ("m: []", "m has an empty list"),
        ("alpha: {from: 1, to: 0}", "alpha is a range such as"),
        ("learning-rate: {from: 0, to: 1, log: true}", "learning_rate is a range such as"),
        ("speed: [1, 2]", "has no option 'speed'"),
        ("policy: {magic: 1}", "there is no operation 'magic'"),
        ("policy: {swap: {magnitude: [.1, .2]}}\ngenerator: eda", "both a generator and a policy"),
        ("a: [", "--space"),
        ("teacher: model\nm: [1, 2]", "the search does not use --teacher"),
        ("unlabelled: pool.csv\nm: [1, 2]", "the search does not use --unlabelled"),
        ("soft-labels: true\nm: [1, 2]", "the search does not use --soft-labels"),
        ("seed: [1, 2]", "the search does not use --seed"),
    ],
)
def test_wrong_spaces(text, message, tmp_path):
    (tmp_path / "space.yaml").write_text(text)
    with pytest.raises(RequestError, match=message):
        read_space(str(tmp_path / "space.yaml"))


@pytest.mark.parametrize(
    ("given", "expected"), [({}, "cnn"), ({"classifier": ["linear", "cnn"]}, "linear"), ({"curriculum": True}, "cnn")]
)
def test_the_baseline_has_a_classifier_and_no_rewrites(given, expected, tmp_path):
    (tmp_path / "space.yaml").write_text(yaml.safe_dump({"m": [1, 2], **given}))
    space = read_space(str(tmp_path / "space.yaml"))
    request = baseline(space).request()
    assert request.classifier == expected and not request.augmenting


def test_what_was_found_without_its_rewrites():
    found = tuned({"classifier": "cnn", "learning_rate": 0.002, "alpha": 0.3, "m": 5, "policy.swap.probability": 0.5})
    request = without_rewrites(found.options).request()
    assert request.learning_rate == 0.002 and not request.augmenting and request.generator_args == {}


def test_the_summary_says_how_much_is_real():
    rewrites = Interval(0.004, -0.01, 0.02, 0.01)
    assert summary(0.031, Interval(0.012, -0.004, 0.027, 0.01), rewrites) == (
        "cross-validated +0.031, on data the search never saw +0.012 [-0.004, +0.027]: not established; "
        "of that by rewrites +0.004 [-0.010, +0.020]: not established"
    )
    assert "+0.030]: established; " in summary(0.031, Interval(0.02, 0.01, 0.03, 0.01), rewrites)


def test_the_interval_says_what_other_seeds_may_give():
    """One of five seeds is far better and the others are equal: their sum is better by its rows alone."""
    random = np.random.default_rng(0)
    y = random.integers(2, size=2000)
    plain = np.where(random.random(2000) < 0.6, y, 1 - y)
    found, without = (np.stack([np.eye(2)[one] for one in (first, *[plain] * 4)]) for first in (y, plain))
    assert difference(found.sum(axis=0), without.sum(axis=0), y).verdict == "better"
    assert difference(found, without, y).verdict == "no clear difference"
    assert difference(found[:1], without[:1], y) == difference(found[0], without[0], y)


def test_equal_texts_are_on_one_side(tmp_path):
    header, *lines = corpus(60).splitlines()
    both = [line.rsplit(",", 1) for line in lines[:30]]
    copies = [f"{text.upper()},{label}" for text, label in both]
    (tmp_path / "train.csv").write_text("\n".join([header, *lines, *copies]))
    (tmp_path / "test.csv").write_text("\n".join([header, *lines[:5], *corpus(20, seed=9).splitlines()[1:]]))
    options = TuneOptions(str(tmp_path / "train.csv"), str(tmp_path / "out"))
    inner, outer = _split(options, Reporter(quiet=True))
    assert len(inner.rows) + len(outer) == 90
    assert not {text_hash(t) for t in inner.rows.texts} & {text_hash(t) for t in outer.texts}
    _, outer = _split(replace(options, test=str(tmp_path / "test.csv")), Reporter(quiet=True))
    assert len(outer) == 20


def test_a_search_is_resumed_and_its_policy_can_be_used(tmp_path, local_ray, monkeypatch):
    pytest.importorskip("optuna")
    (tmp_path / "train.csv").write_text(corpus(60))
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(SPACE))
    out = tmp_path / "out"
    options = TuneOptions(str(tmp_path / "train.csv"), str(out), space=str(tmp_path / "space.yaml"), trials=3, folds=2)
    monkeypatch.setattr("epida_ray.experiments.tune._outer_votes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tune(options)
    monkeypatch.undo()
    before = {p.name: p.stat().st_mtime_ns for p in (out / "trials").iterdir()}
    found = tune(options)
    assert found.trials == 3 and found.rows + found.outer_rows == 60
    assert found.summary.startswith("cross-validated ")
    assert found.rewrites == pytest.approx(found.outer - found.outer_plain)
    assert {p.name: p.stat().st_mtime_ns for p in (out / "trials").iterdir()} == before  # nothing was done twice
    assert json.loads((out / "tune.json").read_text())["summary"] == found.summary
    assert len(report_data(Storage(str(out)))["search"]["body"]) == 3
    best = yaml.safe_load((out / "best.yaml").read_text())
    assert best["generator"] == f"policy:{out}/policy.yaml"
    GENERATORS.create(best["generator"])
    make_request(TrainRequest, {"input": "a", "output": "b"} | best)
    assert tune(options) == found
    with pytest.raises(RequestError, match="other options or data"):
        tune(TuneOptions(options.input, options.output, space=options.space, trials=4, folds=2))


def interrupted(*_):
    raise KeyboardInterrupt


@pytest.mark.usefixtures("local_ray")
def test_training_that_fails_is_no_fault_of_the_request():
    rows = LabelledRows(["1", "2"], ["one text", "another"], np.array([0, 1]))  # no row is left for dev
    reference = baseline({"classifier": "linear"})
    with pytest.raises(RunError, match="training on all inner rows failed: in one fold"):
        _outer_votes({"baseline": reference}, Data(rows, ("a", "b"), (), 2, 0), rows)
