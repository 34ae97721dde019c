"""What is measured is what users run: a trial and `epida train` end in the same weights, bit by bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from epida_ray.experiments.datasets import Dataset, load_files
from epida_ray.experiments.trials import (
    NONE,
    Method,
    TrainedTrial,
    Trial,
    split_trial,
    train_trial,
    unlabelled_texts,
)
from epida_ray.method.results import TrainResult
from epida_ray.stream.driver import train
from tests.experiments.corpora import LABELS, toy_dataset, toy_rows, write_rows

pytestmark = pytest.mark.usefixtures("local_ray")

SMALL = {"channels": 8, "vectors": "hashed"}
LOCAL = {"workers": 0, "generator_actors": 1, "scorer_actors": 1, "stall_timeout": 240.0}
OF_ROUND = (
    "round",
    "loss",
    "loss_original",
    "loss_augmented",
    "dev_macro_f1",
    "dev_accuracy",
    "dev_loss",
    "best_round",
)
METHODS = [
    Method("EPiDA"),
    Method("one-time", online=False, select="rem+cem-agreement"),
    Method("random", select="random", pretrain=False),
    Method("raw scores", loss="augmented", m=2, k=4, combine="multiply", normalize=False),
    Method("balanced", balance=True),
    Method("substructure", generator="substructure"),
    Method("span-mix", generator="span-mix"),
    Method(
        "multi-task",
        loss="multi-task",
        curriculum=True,
        mixup=0.2,
        mixup_layer="input",
        generator="spelling",
        generator_args={"alpha": 0.5},
    ),
    NONE,
]


@pytest.fixture(scope="module")
def data() -> Dataset:
    return toy_dataset(train=420)


def assert_same(trial: TrainedTrial, run: TrainResult) -> None:
    """Compare every round, the rewrites of the last one and the weights."""
    ours = [{name: line[name] for name in OF_ROUND} for line in trial.progress.metrics]
    assert [{name: line[name] for name in OF_ROUND} for line in run.metrics] == ours
    if trial.rewrites is not None:
        newest = sorted((Path(run.output) / "augmented").iterdir())[-1]
        rows = pq.read_table(newest).to_pylist()
        kept = {i: texts for i, texts in zip(trial.train.ids, trial.rewrites.kept, strict=True) if texts}
        theirs: dict[str, list[str]] = {}
        for row in sorted(rows, key=lambda row: row["rank"]):
            theirs.setdefault(row["sample_id"], []).append(row["text"])
        assert theirs == kept
    expected, found = trial.classifier.state(), run.model().classifier.state()
    assert found.keys() == expected.keys()
    for name, weights in expected.items():
        np.testing.assert_array_equal(found[name], weights, err_msg=name)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_trial_and_a_run_on_its_rows(data: Dataset, method: Method, tmp_path: Path) -> None:
    trial = Trial("toy", "90%", 3, method, classifier_args=SMALL, rounds=2)
    rows, dev = split_trial(trial, data)
    assert len(rows) > 256  # more than one block
    files = {"input": write_rows(tmp_path / "rows.csv", rows), "dev": write_rows(tmp_path / "held-out.csv", dev)}
    request = trial.request(**files, output=str(tmp_path / "run"), id_column="id", labels=LABELS, **LOCAL)
    assert_same(train_trial(trial, data), train(request))


@pytest.mark.parametrize(
    "method",
    [
        replace(NONE, name="unlabelled", unlabelled=80),
        Method("rewrites of unlabelled texts", unlabelled=80, pool_rewrites=True),
        Method("teacher", unlabelled=80, pool_rewrites=True, teacher=NONE),
    ],
    ids=lambda method: method.name,
)
def test_a_trial_and_a_run_with_unlabelled_texts(data: Dataset, method: Method, tmp_path: Path) -> None:
    trial = Trial("toy", "50%", 4, method, classifier_args=SMALL, rounds=2)
    rows, dev = split_trial(trial, data)
    files = {"input": write_rows(tmp_path / "rows.csv", rows), "dev": write_rows(tmp_path / "held-out.csv", dev)}
    texts = unlabelled_texts(trial, data)
    pq.write_table(pa.table({"text": texts}), tmp_path / "pool.parquet")
    options: dict[str, Any] = {"unlabelled": str(tmp_path / "pool.parquet"), "pool_rewrites": method.pool_rewrites}
    if method.teacher is not None:
        train_trial(replace(trial, method=method.teacher), data).classifier.save(tmp_path / "teacher")
        options["teacher"] = str(tmp_path / "teacher")
    request = trial.request(**files, output=str(tmp_path / "run"), id_column="id", labels=LABELS, **options, **LOCAL)
    assert_same(train_trial(trial, data), train(request))


@pytest.mark.parametrize(("classifier", "arguments"), [("cnn", SMALL), ("linear", {})])
def test_a_trial_on_a_whole_file_and_a_run_on_it(tmp_path: Path, classifier: str, arguments: dict[str, Any]) -> None:
    """The ids of the rows come from the file, and the dev rows from the data set's own dev split."""
    files = {
        split: Path(write_rows(tmp_path / f"{split}.csv", toy_rows(count, "", seed)))
        for seed, (split, count) in enumerate({"train": 96, "dev": 40, "test": 20}.items())
    }
    trial = Trial("mine", "100%", 1, Method("EPiDA"), classifier, arguments, rounds=2, use_dev_split=True)
    request = trial.request(str(files["train"]), str(tmp_path / "run"), dev=str(files["dev"]), **LOCAL)
    assert_same(train_trial(trial, load_files("mine", files)), train(request))


@pytest.mark.parametrize(("classifier", "arguments"), [("cnn", SMALL), ("linear", {})])
def test_a_trial_and_a_run_split_off_the_same_dev_rows(
    data: Dataset, tmp_path: Path, classifier: str, arguments: dict[str, Any]
) -> None:
    trial = Trial("toy", "100%", 5, Method("EPiDA"), classifier, arguments, rounds=1)
    request = trial.request(
        write_rows(tmp_path / "rows.csv", data.train), str(tmp_path / "run"), id_column="id", **LOCAL
    )
    assert_same(train_trial(trial, data), train(request))
