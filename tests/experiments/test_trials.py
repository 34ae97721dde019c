import os
import time
from dataclasses import replace

import numpy as np
import pytest

from epida_ray.classify import CLASSIFIERS
from epida_ray.core.errors import RequestError, RunError
from epida_ray.experiments.catalogue import EXPERIMENTS, Options, ablation_rows, find, make_options
from epida_ray.experiments.datasets import Dataset, Split, load_directory
from epida_ray.experiments.trials import (
    NONE,
    Budget,
    Method,
    Trial,
    _halves,
    _measure,
    _mirror,
    _Source,
    describe_classifier,
    run_trial,
    surroundings,
)
from epida_ray.select import Selection

WORDS = {"food": "bread soup apple cake rice bean salt cheese", "sport": "goal team ball race match coach run score"}
QUICK = Budget(steps=12, least=3, most=6, rounds=2)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    texts, labels = [], []
    for i in range(240):
        y = i % 2
        words = (
            rng.choice(list(WORDS.values())[y].split(), 4).tolist() + rng.choice(["the", "a", "big", "old"], 3).tolist()
        )
        texts.append(" ".join(rng.permutation(words)))
        labels.append(y)
    y = np.array(labels, np.int64)
    return Dataset("toy", ("food", "sport"), Split(texts[:160], y[:160]), Split(texts[160:], y[160:]))


def test_a_trial_repeats_itself(data):
    trial = Trial("toy", "50%", 1, Method("epida"), budget=QUICK)
    first, second = run_trial(trial, data), run_trial(trial, data)
    for result in (first, second):
        result.pop("seconds")
    assert first == second
    assert first["rows"] + first["dev_rows"] == 80 and first["macro_f1"] > 0.5
    assert [r["round"] for r in first["rounds"]] == [1, 2]


def test_methods_differ_only_in_what_they_train_on(data):
    methods = {m.name: m for m in ablation_rows()}
    found = {n: run_trial(Trial("toy", "25%", 0, m, budget=QUICK), data) for n, m in methods.items()}
    assert {r["rows"] for r in found.values()} == {32}
    assert found["1: none"]["rounds"] == [] and "kept" not in found["1: none"]
    for name, method in methods.items():
        if method.generator:
            assert len(found[name]["rounds"]) == (2 if method.online else 1)
            assert 32 < found[name]["kept"] <= 96


def test_the_paper_protocol_trains_on_all_rows_and_selects_on_test(data):
    result = run_trial(Trial("toy", "25%", 0, NONE, budget=QUICK, protocol="paper"), data)
    assert result["rows"] == 40 and result["dev_rows"] == 0
    assert result["selected_on"] == result["macro_f1"]


def test_more_can_be_measured_of_what_was_kept(data):
    pytest.importorskip("kenlm", reason="pip install 'epida-ray[ppl]'")
    trial = Trial("toy", "50%", 0, Method("rem", select="rem", online=False), budget=QUICK)
    measured = run_trial(replace(trial, measure=("ppl", "error-distance", "speed")), data)
    assert measured["ppl"] > 1 and 0 <= measured["error"] <= 1 and measured["distance"] > 0
    assert measured["kept_per_second"] > 0
    assert "ppl" not in run_trial(trial, data)


def test_perplexity_as_a_score(data):
    pytest.importorskip("kenlm", reason="pip install 'epida-ray[ppl]'")
    result = run_trial(Trial("toy", "25%", 0, Method("ppl", select="ppl+cosine"), budget=QUICK), data)
    assert all(0 < line["s_div"] <= 1 for line in result["rounds"])


def test_every_step_budget_is_the_same_for_all_methods():
    for rows in (1, 10, 43, 436, 5000):
        first, rounds = Budget().epochs(rows)
        assert first >= 1 and 12 <= first + sum(rounds) <= 60 and min(rounds) >= 0 and len(rounds) == 8


def test_fingerprints_tell_trials_apart_but_not_names():
    trial = Trial("toy", "1%", 0, Method("a"))

    def key(trial, data="x", around="cnn"):
        return trial.fingerprint(data, surroundings(trial, around))

    assert key(trial) == key(replace(trial, method=Method("b")))
    others = [
        key(trial, data="y"),
        key(trial, around="cnn over other vectors"),
        key(replace(trial, seed=1)),
        key(replace(trial, method=Method("a", k=2))),
        key(replace(trial, protocol="paper")),
        key(replace(trial, budget=QUICK)),
    ]
    assert len({key(trial), *others}) == 7


def test_what_the_numbers_depend_on_is_in_the_fingerprint(data, tmp_path):
    trial = Trial("toy", "1%", 0, Method("a", generator="json:JSONDecoder"))
    plain, hashed = (
        describe_classifier(replace(trial, classifier_args=a), data.labels) for a in ({}, {"vectors": "hashed:7"})
    )
    assert plain != hashed and "7-d" in hashed
    around = surroundings(trial, plain)
    assert "torch" in around["versions"] and around["machine"] is None
    assert list(around["contents"]) == ["json:JSONDecoder"]
    assert surroundings(replace(trial, measure=("speed",)), plain)["machine"]
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("1")
    assert surroundings(replace(trial, classifier=f"transformer:{model}"), "")["contents"][f"transformer:{model}"]
    assert surroundings(replace(trial, classifier_args={"vectors": str(model)}), "")["contents"][str(model)]


@pytest.mark.parametrize("size", ["1 per class", "2"])
def test_without_rows_to_choose_on_there_is_no_trial(data, size):
    trial = Trial("toy", size, 0, NONE, budget=QUICK)
    with pytest.raises(RequestError, match="none is left to choose the epoch by"):
        run_trial(trial, data)
    assert run_trial(replace(trial, protocol="paper"), data)["rows"] == 2
    with pytest.raises(RequestError, match="too few rows for judges"):
        run_trial(replace(trial, method=Method("o", judge="others"), protocol="paper"), data)
    with pytest.raises(RequestError, match="own dev split, and toy has none"):
        run_trial(replace(trial, use_dev_split=True), data)


def test_a_generator_that_makes_nothing_fails_the_trial(data):
    empty = Dataset("toy", data.labels, Split(["!!!"] * 8, data.train.labels[:8]), data.test)
    with pytest.raises(RunError, match="no candidate for any sample"):
        run_trial(Trial("toy", "100%", 0, Method("epida"), budget=QUICK), empty)


def test_the_speed_of_rewrites_by_chance_is_the_generators(data):
    class Slow:
        labels = data.labels

        def predict_proba(self, texts):
            time.sleep(0.2)
            return np.full((len(texts), len(data.labels)), 1 / len(data.labels), np.float32)

    trial = Trial("toy", "100%", 0, Method("r", select="random"), measure=("speed",))
    source = _Source(trial.method, data.train, data, 0)
    kept = source.keep(Slow(), 1)
    found = _measure(trial, data, data.train, source, Slow(), kept, None)
    assert found["kept_per_second"] > found["kept"] / 0.2


def test_others_judge_what_they_have_not_seen(data):
    trial = Trial("toy", "100%", 0, Method("e", judge="others"), budget=QUICK)
    judges = _halves(trial, data, data.train)
    assert (judges[0][1] ^ judges[1][1]).all() and 0.4 < judges[0][1].mean() < 0.6
    own, others = (run_trial(replace(trial, size="25%", method=replace(trial.method, judge=j)), data)
                   for j in ("self", "others"))  # fmt: skip
    assert own["rounds"][0]["s_div"] != others["rounds"][0]["s_div"]


def test_every_experiment_has_trials():
    for name, experiment in EXPERIMENTS.items():
        for options in (Options(), Options(quick=True), Options(full=True)):
            trials = experiment.trials(options)
            assert trials and all((t.dataset, t.size) for t in trials)
        generators = ("eda", "cwe", "back-translation", "textattack:EasyDataAugmenter")
        trials = experiment.trials(Options(full=True, generators=generators))
        names = {t.method.name.partition(":")[0] if "textattack" in t.method.name else t.method.name for t in trials}
        assert {method for method, _ in experiment.paper} <= names, name
    with pytest.raises(RequestError, match="ablation"):
        find("nothing")


def test_options_of_the_command_line():
    options = make_options(seeds=2, settings=["trec:1%", "agnews:60"], protocol="paper")
    assert make_options(settings=["hub:ag_news:60"]).columns == (("hub:ag_news", "60"),)
    given = make_options(generators=["cwe"], generator_args={"model": "m"})
    assert {t.method.generator: t.method.generator_args for t in find("sota").trials(given)} == {
        None: {}, "cwe": {"model": "m"}, "eda": {},
    }  # fmt: skip
    assert options.seeds == (0, 1) and options.columns == (("trec", "1%"), ("agnews", "60"))
    assert {(t.dataset, t.size) for t in find("k").trials(options)} == {("trec", "1%"), ("agnews", "60")}
    wrongs = ({"protocol": "x"}, {"seeds": 0}, {"quick": True, "full": True}, {"settings": ["trec"]})
    for wrong in (*wrongs, {"generator_args": {"a": 1}}):
        with pytest.raises(RequestError):
            make_options(**wrong)


@pytest.mark.skipif("EPIDA_DATA" not in os.environ, reason="EPIDA_DATA names no directory with the real data sets")
def test_real_questions():
    trec = load_directory("trec", os.environ["EPIDA_DATA"])
    result = run_trial(Trial("trec", "5%", 0, Method("epida"), budget=QUICK), trec)
    assert result["accuracy"] > 0.3


@pytest.mark.parametrize("name", ["linear"])
def test_classifiers_that_are_fitted_in_one_go(data, name):
    if name not in CLASSIFIERS.builtins:
        pytest.skip(f"there is no classifier {name} here")
    result = run_trial(Trial("toy", "50%", 0, Method("epida"), name, budget=QUICK), data)
    assert result["macro_f1"] > 0.5
    first, rounds = QUICK.epochs(result["rows"])
    assert result["epoch"] == first + sum(rounds)  # the last fit: other methods have only one to choose from


def test_mirror_is_the_median_correlation_within_samples():
    rng = np.random.default_rng(0)
    offsets = np.array([0, 5, 5, 6, 15])
    div, qua = rng.random(15), rng.random(15)
    selection = Selection(div, qua, div + qua, *([np.empty(0, np.int64)] * 3), offsets)
    expected = np.median([np.corrcoef(div[a:b], qua[a:b])[0, 1] for a, b in ((0, 5), (6, 15))])
    assert _mirror(selection) == pytest.approx(expected)
