"""`epida tune`: the space, and a small search with Ray Tune that is interrupted and resumed."""

import json

import numpy as np
import pytest
import yaml

from epida_ray.core.errors import RequestError, RunError
from epida_ray.data.storage import Storage
from epida_ray.experiments.compare_folds import Data
from epida_ray.experiments.compare_statistics import Interval
from epida_ray.experiments.report import report_data
from epida_ray.experiments.tune import TuneOptions, _outer_votes, summary, tune
from epida_ray.experiments.tune_space import baseline, read_space, tuned
from epida_ray.generate import GENERATORS
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
    ],
)
def test_wrong_spaces(text, message, tmp_path):
    (tmp_path / "space.yaml").write_text(text)
    with pytest.raises(RequestError, match=message):
        read_space(str(tmp_path / "space.yaml"))


def test_the_summary_says_how_much_is_real():
    assert summary(0.031, Interval(0.012, -0.004, 0.027, 0.01)) == (
        "cross-validated +0.031, on data the search never saw +0.012 [-0.004, +0.027]: not established"
    )
    assert summary(0.031, Interval(0.02, 0.01, 0.03, 0.01)).endswith(": established")


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
