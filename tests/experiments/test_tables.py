import csv
import io
from xml.etree import ElementTree

import numpy as np
import pytest

from epida_ray.data.storage import Storage
from epida_ray.experiments.catalogue import EXPERIMENTS
from epida_ray.experiments.options import Options
from epida_ray.experiments.plots import dot_plot, line_plot
from epida_ray.experiments.reproduce import write_results
from epida_ray.experiments.results import Results, Row
from epida_ray.experiments.statistics import paired_difference
from epida_ray.experiments.tables import markdown


def rows_of(name, score=lambda trial: 0.5, **options):
    trials = EXPERIMENTS[name].trials(Options(**options))
    return [Row(t, {"macro_f1": score(t), "accuracy": score(t), "best_round": 3, "seconds": 1.0}) for t in trials]


def test_verdicts_on_differences():
    noise = np.random.default_rng(0).normal(size=5)
    assert paired_difference(noise, -noise).verdict == "no clear difference"
    steady = paired_difference([0.6, 0.7, 0.65, 0.72, 0.61], [0.5, 0.61, 0.56, 0.6, 0.5])
    assert steady.verdict == "better" and steady.low < steady.mean < steady.high
    assert paired_difference([0.1, 0.2, 0.1, 0.2, 0.1], [0.5] * 5).verdict == "worse"
    assert paired_difference([0.9] * 4, [0.1] * 4).verdict == "too few seeds"


def test_pairs_are_by_seed_whatever_the_order():
    rows = rows_of("combine", lambda t: t.seed / 10 + (0.05 if t.method.name == "add" else 0))
    found = Results(EXPERIMENTS["combine"], rows[::-1])
    difference = found.difference("add", "none", ("trec", "1%"), "macro_f1")
    assert difference.mean == pytest.approx(0.05) and difference.low == pytest.approx(0.05)


def test_the_table_stands_beside_the_papers_numbers():
    rows = rows_of("ablation", settings=(("trec", "1%"),))
    text = markdown(Results(EXPERIMENTS["ablation"], rows), Options(), failures={"x": "no model"})
    assert "| 9: REM+CEM, online, pre-trained | 0.500 ± 0.000 (paper 0.745) |" in text
    assert "difference to 1: none" in text and "contradict each other" in text and "x failed: no model" in text
    assert "PAPER PROTOCOL" not in text
    rows = rows_of("ablation", settings=(("trec", "1%"),), protocol="paper")
    assert "PAPER PROTOCOL" in markdown(Results(EXPERIMENTS["ablation"], rows), Options())


def test_what_is_about_the_paper_is_left_out_for_data_of_ones_own():
    for dataset, shown in (("mine", False), ("trec", True)):
        rows = rows_of("generality", settings=((dataset, "1%"),), classifier="linear")
        rows = [Row(t, result | {"flips": 0.1, "mirror": -0.9, "extreme": 0.5}) for t, result in rows]
        results = Results(EXPERIMENTS["generality"], rows)
        text, head = markdown(results, Options()), results.csv().splitlines()[0].split(",")
        assert "flips: share" in text and "flips" in head
        for word in ("The paper", "mirror", "extreme"):
            assert (word in text) == shown, word
        assert ({"mirror", "extreme"} <= set(head)) == shown == bool({"mirror", "extreme"} & set(head))


def test_an_experiment_without_rewrites_compares_with_its_own_baselines():
    rows = rows_of("few-labels", lambda t: 0.5 + 0.1 * (t.method.name != "cnn"), settings=(("trec", "1%"),))
    text = markdown(Results(EXPERIMENTS["few-labels"], rows), Options())
    assert "difference to cnn" in text and "difference to encoder" in text
    assert "| encoder | +0.100 [+0.100, +0.100] better |" in text


def test_the_table_says_how_it_was_made():
    settings = (("trec", "1%"),)
    options = Options(quick=True, clean=True, classifier_args={"vectors": "hashed"}, settings=settings, seeds=(0,))
    rows = rows_of("k", quick=True, clean=True, settings=settings, seeds=(0,))
    results = Results(EXPERIMENTS["k"], rows)
    text = markdown(results, options, classifier="CNN over hashed vectors", data_notes=["a note"])
    assert "Classifier: CNN over hashed vectors. Seeds 0:" in text and "3 rounds, at most 60 steps" in text
    assert "--quick" in text and "--clean; --classifier-arg vectors=hashed" in text and "- a note" in text
    assert "| none | 0.500 |" in text  # one seed has no spread
    rows = rows_of("sst")
    assert "own dev split" in markdown(Results(EXPERIMENTS["sst"], rows[:-1]), Options())
    assert "(4 of 5 seeds)" in markdown(Results(EXPERIMENTS["sst"], rows[:-1]), Options())


def test_plots_say_which_protocol(tmp_path):
    for name in ("k", "saturation"):
        rows = rows_of(name, protocol="paper")
        write_results(Results(EXPERIMENTS[name], rows), Storage(str(tmp_path)), Options())
        assert "PAPER PROTOCOL" in (tmp_path / name / "plot.svg").read_text()
    assert "dashed" in (tmp_path / "saturation" / "plot.svg").read_text()
    rows = rows_of("saturation", settings=(("trec", "1%"), ("irony", "10%")))
    write_results(Results(EXPERIMENTS["saturation"], rows), Storage(str(tmp_path)), Options())
    assert "dashed" not in (tmp_path / "saturation" / "plot.svg").read_text()  # no line from one data set to another


def test_each_generator_is_compared_with_its_own_random_rewrites():
    rows = rows_of("generality", generators=("eda", "aeda"), settings=(("trec", "1%"),))
    compared = dict(Results(EXPERIMENTS["generality"], rows).comparisons())
    assert list(compared) == ["none", "random EDA", "random rewrites of the same generator"]
    assert compared["random rewrites of the same generator"] == [
        ("EPiDA with EDA", "random EDA"),
        ("EPiDA with aeda", "random aeda"),
    ]
    assert len(compared["none"]) == 4 and ("random aeda", "random EDA") in compared["random EDA"]


def test_one_line_per_trial():
    rows = rows_of("k")
    read = list(csv.DictReader(io.StringIO(Results(EXPERIMENTS["k"], rows).csv())))
    assert len(read) == len(rows) == 7 * 5
    assert read[0]["dataset"] == "irony" and read[0]["macro_f1"] == "0.5"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_plots_are_well_formed(name):
    rows = rows_of(name, lambda t: 0.4 + t.seed / 100)
    for plot in (dot_plot, *([line_plot] if EXPERIMENTS[name].lines else [])):
        drawn = ElementTree.fromstring(plot(Results(EXPERIMENTS[name], rows)))
        assert drawn.tag.endswith("svg") and EXPERIMENTS[name].title in "".join(drawn.itertext())


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    found = [paired_difference(rng.normal(size=5), rng.normal(size=5)) for _ in range(400)]
    missed = np.mean([not d.low <= 0 <= d.high for d in found])
    assert missed < 0.12  # the plain percentile interval misses about 0.17


def test_rewrites_are_compared_with_random_ones_of_the_same_strength_and_care():
    compared = dict(Results(EXPERIMENTS["map"], rows_of("map", quick=True)).comparisons())
    own = dict(compared.pop("random rewrites of the same generator"))
    assert list(compared) == ["none", "random EDA"]
    assert own["EPiDA with EDA"] == own["multi-task"] == "random EDA"
    assert own["EPiDA with careful EDA"] == "random careful EDA"
    assert own["EPiDA with strong EDA"] == own["curriculum"] == "random strong EDA"
    assert own["EPiDA with morph"] == "random morph"


def test_the_paper_s_numbers_belong_to_methods_that_are_run():
    for name, method in (("sst", "random substructure"), ("sota", "random guided language-model")):
        experiment = EXPERIMENTS[name]
        ran = {trial.method.name for trial in experiment.trials(Options(full=True))}
        assert method in ran and method in {own for own, _ in experiment.paper}
        assert method in markdown(Results(experiment, rows_of(name, full=True)), Options(full=True))
