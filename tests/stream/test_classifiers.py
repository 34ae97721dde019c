"""`epida train` and `epida augment` from end to end with each classifier, the first handing its model to the second."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from epida_ray.classify import load
from epida_ray.core.errors import RequestError
from epida_ray.core.options import make_request
from epida_ray.method.local import train as train_here
from epida_ray.method.requests import AugmentRequest, TrainRequest
from epida_ray.stream.augment import augment
from epida_ray.stream.driver import train
from tests.classify import tiny

FRUIT = ["apple", "pear", "plum", "cherry", "melon", "grape"]
TOOLS = ["hammer", "saw", "drill", "pliers", "wrench", "chisel"]


def corpus(path: Path) -> str:
    texts = [f"I want the {(FRUIT, TOOLS)[i % 2][i // 2 % 6]} number {i} today, please" for i in range(60)]
    pq.write_table(pa.table({"text": texts, "label": [("fruit", "tool")[i % 2] for i in range(60)]}), path)
    return str(path)


def slow(name: str) -> object:
    return pytest.param(name, marks=pytest.mark.slow)


@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize(
    "name", ["linear", *map(slow, ("bert", "cnn", "bilstm", "sklearn", "xlnet", "xlm-roberta", "minilm"))]
)
def test_train_then_augment(name: str, tmp_path: Path) -> None:
    source = corpus(tmp_path / "in.parquet")
    classifier = {"sklearn": "sklearn:tests.classify.tiny:pipeline"}.get(name, name)
    options = {}
    if name in ("bert", "xlnet", "xlm-roberta"):
        classifier = f"transformer:{tiny.transformer(name, tmp_path / 'tiny')}"
        options = {"learning_rate": 3e-3}
    trained = train(
        TrainRequest(
            input=source, output=str(tmp_path / "trained"), classifier=classifier, rounds=2, pretrain_epochs=3,
            epochs_per_round=2, generator_actors=1, scorer_actors=1, stall_timeout=300, eval=source, **options,
        )
    )  # fmt: skip
    assert [line["round"] for line in trained.metrics] == [0, 1, 2]
    assert trained.test is not None and trained.test["macro_f1"] > 0.9
    result = augment(
        AugmentRequest(
            input=source,
            output=str(tmp_path / "augmented"),
            classifier=trained.model_dir,
            generator_actors=1,
            scorer_actors=1,
        )
    )
    rows = pq.read_table(Path(result.augmented))
    assert len(rows) == 180 and set(rows["label"].to_pylist()) == {"fruit", "tool"}
    assert load(tmp_path / "augmented" / "model").labels == ("fruit", "tool")
    assert 0 < max(rows["s_tot"].to_pylist()) <= 2


@pytest.mark.usefixtures("local_ray")
def test_an_encoder_that_is_tuned_on_noisy_texts_ends_in_the_same_weights_with_any_worker(tmp_path: Path) -> None:
    source, network = corpus(tmp_path / "in.parquet"), tiny.transformer("bert", tmp_path / "tiny")
    asked = {
        "input": source, "classifier": f"encoder:{network}", "classifier_args": {"tune": "full", "steps": 3},
        "robust": "spelling", "generator_args": {"alpha": 0.3}, "rounds": 2, "stall_timeout": 300,
        "generator_actors": 1, "scorer_actors": 1,
    }  # fmt: skip
    here = train_here(make_request(TrainRequest, asked | {"output": str(tmp_path / "here")}))
    expected = here.classifier.state()
    assert here.classifier.retune and expected["tuned"] == here.progress.best_round + 1  # type: ignore[operator]
    for workers in (0, 1):
        request = make_request(TrainRequest, asked | {"output": str(tmp_path / str(workers)), "workers": workers})
        found = train(request).model().classifier.state()
        assert found.keys() == expected.keys()
        for name, weights in expected.items():
            np.testing.assert_array_equal(found[name], weights, err_msg=f"{name} with {workers} workers")


@pytest.mark.usefixtures("local_ray")
def test_a_class_of_ones_own_is_run_where_the_request_names_it(tmp_path: Path) -> None:
    source, name = corpus(tmp_path / "in.parquet"), "tests.classify.tiny:Lengths"
    options = {"input": source, "generator_actors": 1, "scorer_actors": 1, "stall_timeout": 300, "m": 1}
    trained = train(TrainRequest(output=str(tmp_path / "trained"), classifier=name, rounds=1, eval=source, **options))
    assert trained.test is not None and trained.model().labels == ("fruit", "tool")
    options |= {"output": str(tmp_path / "augmented"), "classifier": trained.model_dir}
    with pytest.raises(RequestError, match=f"--trust-code {name}"):
        augment(AugmentRequest(**options))
    assert augment(AugmentRequest(**options, trust_code=(name,))).kept == 60


@pytest.mark.slow
def test_scorers_take_the_gpus_they_are_given_and_say_where_they_run(tmp_path: Path) -> None:
    """Logical GPUs: each scorer holds a whole one, the stages are apart, and the bytes are those of a CPU run."""
    source = corpus(tmp_path / "in.parquet")
    model = tiny.transformer("bert", tmp_path / "tiny", ("fruit", "tool"))
    script = f"""
import json, ray
from epida_ray.method.requests import AugmentRequest
from epida_ray.stream.augment import augment
pools = []
for gpus in (0, 2):
    ray.init(address="local", num_cpus=2, num_gpus=gpus, include_dashboard=False, log_to_driver=False)
    result = augment(AugmentRequest(
        input={source!r}, output={str(tmp_path)!r} + f"/gpus{{gpus}}", classifier={str(model)!r}, generator_actors=1
    ))
    pools.append(result.manifest.pools | {{"classifier": result.manifest.classifier}})
    ray.shutdown()
print(json.dumps(pools))
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, timeout=400, capture_output=True, text=True)
    without, with_gpus = json.loads(done.stdout.splitlines()[-1])
    assert without["scorer_gpus"] == 0 and with_gpus["scorer_gpus"] == 1 and with_gpus["scorers"] == 2
    assert "on cpu" in with_gpus["classifier"]
    one, two = (pq.read_table(tmp_path / f"gpus{n}" / "augmented") for n in (0, 2))
    assert one.equals(two)
