import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from epida_ray.classify import CLASSIFIERS, create
from epida_ray.classify.checkpoint import MINILM_PACKAGE
from epida_ray.core.errors import RequestError, RunError
from epida_ray.experiments import cache
from epida_ray.experiments.arms import ablation_rows
from epida_ray.experiments.cache import classifier_facts, environment, trial_key
from epida_ray.experiments.catalogue import EXPERIMENTS, find
from epida_ray.experiments.datasets import Dataset, load_directory
from epida_ray.experiments.measures import kept_per_second, mirror
from epida_ray.experiments.options import Options, make_options
from epida_ray.experiments.rewrites import Judged, Rewrites
from epida_ray.experiments.trials import NONE, Method, Trial, run_trial, split_trial, train_trial
from epida_ray.method.requests import TrainRequest, make_request
from epida_ray.method.round import kept_texts
from epida_ray.method.stages import RoundOptions
from epida_ray.method.trainer import LabelledRows
from tests.experiments.corpora import toy_dataset
from tests.test_layers import imported

SHORT = {"steps": 12, "rounds": 2}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return toy_dataset()


def test_a_trial_repeats_itself(data):
    trial = Trial("toy", "50%", 1, Method("epida"), **SHORT)
    first, second = run_trial(trial, data), run_trial(trial, data)
    for result in (first, second):
        result.pop("seconds")
    assert first == second
    assert first["rows"] + first["dev_rows"] == 80 and first["macro_f1"] > 0.5
    assert [r["round"] for r in first["rounds"]] == [1, 2] and first["best_round"] in (0, 1, 2)


def test_methods_differ_only_in_what_they_train_on(data):
    methods = {m.name: m for m in ablation_rows()}
    found = {n: run_trial(Trial("toy", "25%", 0, m, **SHORT), data) for n, m in methods.items()}
    assert {r["rows"] for r in found.values()} == {32}
    assert found["1: none"]["rounds"] == [] and "kept" not in found["1: none"]
    for name, method in methods.items():
        if method.name != "1: none":
            assert len(found[name]["rounds"]) == (2 if method.online else 1)
            assert 32 < found[name]["kept"] <= 96


def test_paired_trials_learn_from_the_same_rows_by_the_same_schedule(data):
    """Methods with and without augmentation, and with random selection, differ in their rewrites alone."""
    trials = [Trial("toy", "50%", 2, m, **SHORT) for m in (NONE, Method("random", select="random"), Method("epida"))]
    trained = [train_trial(trial, data) for trial in trials]
    assert len({tuple(t.train.ids) for t in trained}) == len({tuple(t.dev.ids) for t in trained}) == 1
    firsts = [{k: v for k, v in t.progress.metrics[0].items() if k != "seconds"} for t in trained]
    assert firsts[0] == firsts[1] == firsts[2]  # round 0 is pre-training
    assert len({t.progress.metrics[1]["loss_original"] for t in trained}) == 3


def test_rows_are_in_the_order_of_the_file(data):
    train, dev = split_trial(Trial("toy", "50%", 4, NONE), data)
    place = {sample_id: i for i, sample_id in enumerate(data.train.ids)}
    for rows in (train, dev):
        numbers = [place[sample_id] for sample_id in rows.ids]
        assert numbers == sorted(numbers)


def test_the_paper_protocol_trains_on_all_rows_and_chooses_on_test(data):
    result = run_trial(Trial("toy", "25%", 0, NONE, protocol="paper", **SHORT), data)
    assert result["rows"] == 40 and result["dev_rows"] == 0
    assert result["dev_macro_f1"] == result["macro_f1"]


def test_more_can_be_measured_of_the_kept_rewrites(data):
    pytest.importorskip("kenlm", reason="pip install 'epida-ray[ppl]'")
    trial = Trial("toy", "50%", 0, Method("rem", select="rem", online=False), **SHORT)
    measured = run_trial(replace(trial, measure=("ppl", "error-distance", "speed")), data)
    assert measured["ppl"] > 1 and 0 <= measured["error"] <= 1 and measured["distance"] > 0
    assert measured["kept_per_second"] > 0
    assert "ppl" not in run_trial(trial, data)


def test_perplexity_as_a_score(data):
    pytest.importorskip("kenlm", reason="pip install 'epida-ray[ppl]'")
    result = run_trial(Trial("toy", "25%", 0, Method("ppl", select="ppl+cosine"), **SHORT), data)
    assert all(0 < line["s_div"] <= 1 for line in result["rounds"])


def test_keys_tell_trials_apart_but_not_names(data):
    trial = Trial("toy", "1%", 0, Method("a"))
    facts = classifier_facts(trial, data.labels)

    def key(trial, data="x", facts=facts):
        return trial_key(trial, data, environment(trial, facts))

    assert key(trial) == key(replace(trial, method=Method("b")))
    others = [
        key(trial, data="y"),
        key(trial, facts=facts._replace(description="cnn over other vectors")),
        key(trial, facts=facts._replace(threads=7)),
        key(replace(trial, seed=1)),
        key(replace(trial, method=Method("a", k=2))),
        key(replace(trial, protocol="paper")),
        key(replace(trial, steps=12)),
    ]
    assert len({key(trial), *others}) == 8


def test_the_key_depends_on_all_that_the_numbers_depend_on(data, tmp_path):
    trial = Trial("toy", "1%", 0, Method("a", generator="json:JSONDecoder"))
    plain, hashed = (
        classifier_facts(replace(trial, classifier_args=a), data.labels) for a in ({}, {"vectors": "hashed:7"})
    )
    assert plain != hashed and "7-d" in hashed.description
    found = environment(trial, plain)
    assert "torch" in found["versions"] and found["machine"] is None
    assert list(found["contents"]) == ["json:JSONDecoder"]
    assert environment(replace(trial, measure=("speed",)), plain)["machine"]
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("1")
    name = f"transformer:{model}"
    assert environment(replace(trial, classifier=name), plain)["contents"][name]
    assert environment(replace(trial, classifier_args={"vectors": str(model)}), plain)["contents"][str(model)]


@pytest.mark.parametrize("wrapped", [False, True])
def test_what_a_generator_costs_is_not_in_the_key(data, wrapped):
    def key(**arguments):
        arguments |= {"endpoint": "http://localhost/v1"}
        if wrapped:
            method = Method("a", generator="mix", generator_args={"eda": 1, "author": arguments})
        else:
            method = Method("a", generator="author", generator_args=arguments)
        trial = Trial("toy", "1%", 0, method)
        return trial_key(trial, "x", environment(trial, classifier_facts(trial, data.labels)))

    assert key(cache="a", budget=1) == key(cache="b", budget=2, parallel=3) != key(temperature=1)


SAYS_ONLY = {
    "experiments/cache.py",
    "experiments/compare_recipes.py",
    "method/checks.py",
    "method/contents.py",
    "method/scripts.py",
}
"""Modules that trials import and that cannot change their numbers."""
OF_RUNS = {"method/evaluate.py", "method/prepare.py"}
"""Imported for small things: the rows and the files of a run are not those of a trial."""


def test_the_code_of_a_trial_is_where_the_cache_looks_for_it():
    package = Path(cache.__file__).parents[1]
    assert all((package / name).exists() for name in cache.DEPENDS_ON)
    seen, waiting = set(), [package / "experiments" / "trials.py", package / "experiments" / "compare_folds.py"]
    while waiting:
        path = waiting.pop()
        seen.add(path.relative_to(package).as_posix())
        for module in imported(path):
            file = package.parent / (module.replace(".", "/") + ".py")
            if file.is_file() and file.relative_to(package).as_posix() not in seen:
                waiting.append(file)
    of_the_method = {name for name in seen if name.startswith(("method/", "experiments/"))}
    assert of_the_method - set(cache.DEPENDS_ON) == SAYS_ONLY | OF_RUNS


@pytest.mark.parametrize("size", ["1 per class", "2"])
def test_a_trial_needs_rows_for_the_dev_split(data, size):
    trial = Trial("toy", size, 0, NONE, **SHORT)
    with pytest.raises(RequestError, match="none is left for the dev split"):
        run_trial(trial, data)
    assert run_trial(replace(trial, protocol="paper"), data)["rows"] == 2
    with pytest.raises(RequestError, match="too few rows to train a judge on each half"):
        run_trial(replace(trial, method=Method("o", judge="others"), protocol="paper"), data)
    with pytest.raises(RequestError, match="needs a data set with a dev split, and toy has none"):
        run_trial(replace(trial, use_dev_split=True), data)


def test_a_generator_that_makes_nothing_fails_the_trial(data):
    rows = data.train.take(np.arange(8))
    empty = replace(data, train=LabelledRows(rows.ids, ["!!!"] * 8, rows.y))
    with pytest.raises(RunError, match="eda made no rewrite of any text that could be kept: "):
        run_trial(Trial("toy", "100%", 0, Method("epida"), **SHORT), empty)


class Constant:
    """A classifier that gives every class the same probability, after a delay."""

    def __init__(self, labels, delay=0.0):
        self.labels, self.delay, self.seen = labels, delay, []

    def predict_proba(self, texts):
        time.sleep(self.delay)
        self.seen += texts
        return np.full((len(texts), len(self.labels)), 1 / len(self.labels), np.float32)


def test_the_speed_of_random_rewrites_is_the_generators(data):
    rewrites = Rewrites(data.train, RoundOptions(data.labels, select="random"), Constant(data.labels, 0.2))
    rewrites.rewrite_all(1)
    kept = sum(map(len, rewrites.kept))
    assert kept_per_second(rewrites) > kept / 0.2


def test_every_sample_is_judged_by_its_own_judge(data):
    """Each judge sees its rows and their rewrites, and no others."""
    rows = data.train.take(np.arange(10))
    judges = [Judged(np.array(part), Constant(data.labels)) for part in ([0, 3, 4, 9], [1, 2, 5, 6, 7, 8])]
    rewrites = Rewrites(rows, RoundOptions(data.labels), Constant(data.labels), judges)
    kept = kept_texts(rewrites.rewrite_all(1))
    assert all(len(texts) == 3 for texts in kept)
    for part, judge in judges:
        assert [text for text in judge.seen if text in rows.texts] == [rows.texts[i] for i in part]
        assert {text for i in part for text in kept[i]} <= set(judge.seen)
    alone = Rewrites(rows, RoundOptions(data.labels), Constant(data.labels))
    assert kept_texts(alone.rewrite_all(1)) == kept  # the same judgement in other blocks


def test_other_judges_score_otherwise_than_the_classifier_itself(data):
    trial = Trial("toy", "25%", 0, Method("e", judge="others"), **SHORT)
    trained = train_trial(trial, data)
    first, second = (part.rows for part in trained.rewrites.judged)
    assert sorted([*first, *second]) == list(range(len(trained.train))) and abs(len(first) - len(second)) <= 2
    own = train_trial(replace(trial, method=Method("e")), data)
    assert own.rewrites.history[0]["s_div"] != trained.rewrites.history[0]["s_div"]


def test_every_experiment_has_trials():
    for name, experiment in EXPERIMENTS.items():
        for options in (Options(), Options(quick=True), Options(full=True)):
            trials = experiment.trials(options)
            assert trials and all((t.dataset, t.size) for t in trials)
            assert all(t.request("in.csv", "run").rounds == t.rounds for t in trials)
        generators = ("eda", "cwe", "back-translation", "textattack:EasyDataAugmenter")
        trials = experiment.trials(Options(full=True)) + experiment.trials(Options(full=True, generators=generators))
        names = {t.method.name.partition(":")[0] if "textattack" in t.method.name else t.method.name for t in trials}
        assert {method for method, _ in experiment.paper} <= names, name
    with pytest.raises(RequestError, match="ablation"):
        find("nothing")


@pytest.mark.parametrize("name", ["map", "sota", "sst"])
def test_generators_of_the_samples_have_a_random_and_a_chosen_row(name):
    rows = {(t.method.generator, t.method.select) for t in find(name).trials(make_options())}
    assert {(g, s) for g in ("substructure", "span-mix", "morph") for s in ("random", "rem+cem")} <= rows


@pytest.mark.parametrize(
    ("name", "methods"),
    [
        ("few-labels", {"transformer, fine-tuned", "encoder, tuned, balanced"}),
        ("views", {"encoder, retuned + random EDA", "encoder, retuned + EPiDA"}),
        ("typos", {"encoder, fully tuned", "encoder, fully retuned, worst spelling (REM)"}),
    ],
)
def test_methods_that_train_longer_are_left_to_full(name, methods):
    quick, full = ({t.method.name: t for t in find(name).trials(Options(full=full))} for full in (False, True))
    assert methods <= full.keys() and not methods & quick.keys()
    for trial in full.values():
        pytest.importorskip(MINILM_PACKAGE)
        request = trial.request()
        create(request.classifier, ("a", "b"), **request.classifier_options())
        assert request.threads == (1 if trial.method.classifier else None)
    robust = full.get("encoder, fully retuned, worst spelling (REM)")
    if robust is not None:  # what `epida train --robust` does with such an encoder
        given = {"classifier": "encoder", "classifier_args": {"tune": "full"}, "robust": "spelling"}
        asked = make_request(TrainRequest, given | {"input": "", "output": "", "generator_args": {"alpha": 0.3}})
        ours = robust.request()
        assert ours.classifier_options() == asked.classifier_options() == {"tune": "full", "retune": True}
        assert [ours.generator, ours.generator_args, ours.select] == ["spelling", {"alpha": 0.3}, asked.select]


def test_options_of_the_command_line():
    options = make_options(seeds=2, settings=["trec:1%", "agnews:60"], protocol="paper")
    assert make_options(settings=["hub:ag_news:60"]).settings == (("hub:ag_news", "60"),)
    given = make_options(generators=["cwe"], generator_args={"model": "m"})
    assert {t.method.generator: t.method.generator_args for t in find("sota").trials(given)} == {
        "none": {}, "cwe": {"model": "m"}, "eda": {},
    }  # fmt: skip
    assert options.seeds == (0, 1) and options.settings == (("trec", "1%"), ("agnews", "60"))
    assert {(t.dataset, t.size) for t in find("k").trials(options)} == {("trec", "1%"), ("agnews", "60")}
    wrongs = ({"protocol": "x"}, {"seeds": 0}, {"quick": True, "full": True}, {"settings": ["trec"]})
    for wrong in (*wrongs, {"generator_args": {"a": 1}}):
        with pytest.raises(RequestError):
            make_options(**wrong)


@pytest.mark.skipif("EPIDA_DATA" not in os.environ, reason="EPIDA_DATA names no directory with the real data sets")
def test_real_questions():
    trec = load_directory("trec", os.environ["EPIDA_DATA"])
    result = run_trial(Trial("trec", "5%", 0, Method("epida"), **SHORT), trec)
    assert result["accuracy"] > 0.3


@pytest.mark.parametrize("name", ["linear"])
def test_classifiers_that_are_fitted_in_one_go(data, name):
    if name not in CLASSIFIERS.builtins:
        pytest.skip(f"there is no classifier {name} here")
    result = run_trial(Trial("toy", "50%", 0, Method("epida"), name, **SHORT), data)
    assert result["macro_f1"] > 0.5 and len(result["rounds"]) == 2


def test_mirror_is_the_median_correlation_within_samples():
    rng = np.random.default_rng(0)
    div, qua = rng.random(15), rng.random(15)
    expected = np.median([np.corrcoef(div[a:b], qua[a:b])[0, 1] for a, b in ((0, 5), (6, 15))])
    assert mirror(div, qua, np.array([5, 0, 1, 9])) == pytest.approx(expected)
