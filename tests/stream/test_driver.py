from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from epida_ray.core.errors import RequestError, RunError
from epida_ray.core.progress import Reporter
from epida_ray.core.sample import Candidates, Rejected
from epida_ray.core.steps import made_step
from epida_ray.experiments.arms import ablation_rows
from epida_ray.experiments.trials import Method
from epida_ray.method.evaluate import evaluate_model
from epida_ray.method.requests import TrainRequest
from epida_ray.select.perplexity import LanguageModel
from epida_ray.stream import driver
from epida_ray.stream.driver import train
from tests.stream.resources import wait_for_all_cpus

pytestmark = pytest.mark.usefixtures("local_ray")

NOUNS = ["kettle", "phone", "lamp", "chair", "parcel", "invoice", "ticket", "window"]
OPENINGS = {
    "ask": "Could you tell me about the",
    "order": "I want to buy another",
    "complain": "I am unhappy with this",
}


def corpus(path: Path, rows: int = 96) -> Path:
    labels = [list(OPENINGS)[i % 3] for i in range(rows)]
    texts = [f"{OPENINGS[label]} {NOUNS[i % 8]} from shelf {i}" for i, label in enumerate(labels)]
    pq.write_table(pa.table({"text": texts, "label": labels}), path)
    return path


def make_request(folder: Path, name: str = "run", **changes: object) -> TrainRequest:
    values = {
        "input": str(folder / "in.parquet"),
        "output": str(folder / name),
        "rounds": 3,
        "stall_timeout": 240.0,
        "classifier": "cnn",
    }
    return TrainRequest(
        **values | {"generator_actors": 1, "scorer_actors": 1, "epochs_per_round": 2, "pretrain_epochs": 2} | changes
    )  # type: ignore[arg-type]


class Refuses:
    """A generator for which nothing can be done."""

    def generate(self, samples, n, seeds):  # type: ignore[no-untyped-def]
        return [Rejected("no rewriting today") for _ in samples]


class Marks:
    """A generator that puts numbers behind the text, for runs that are not about generation."""

    def generate(self, samples, n, seeds):  # type: ignore[no-untyped-def]
        return [
            Candidates([f"{s.text} {(seed + i) % 9973}" for i in range(n)], ["mark"] * n)
            for s, seed in zip(samples, seeds, strict=True)
        ]


class Sleeps:
    """A classifier that falls silent when it is shown a shouted rewrite."""

    def __init__(self, labels):  # type: ignore[no-untyped-def]
        self.labels = tuple(labels)

    def predict_proba(self, texts):  # type: ignore[no-untyped-def]
        if any(text.endswith("!") for text in texts):
            time.sleep(600)
        return np.full((len(texts), len(self.labels)), 1 / len(self.labels), np.float32)

    def fit(self, texts, y, weights, seed):  # type: ignore[no-untyped-def]
        pass

    def state(self):  # type: ignore[no-untyped-def]
        return {"nothing": np.zeros(1, np.float32)}

    def load_state(self, state):  # type: ignore[no-untyped-def]
        pass


class Shouts:
    def generate(self, samples, n, seeds):  # type: ignore[no-untyped-def]
        return [Candidates([f"{s.text} {i}!" for i in range(n)], ["shout"] * n) for s in samples]


def test_rounds_versions_metrics_and_the_best_model(tmp_path: Path) -> None:
    corpus(tmp_path / "in.parquet")
    request = make_request(tmp_path, eval=str(tmp_path / "in.parquet"), max_staleness=1, track=("tensorboard",))
    result = train(request)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [0, 1, 2, 3] and lines == json.loads(json.dumps(result.metrics))
    assert [line.get("judged_by_version") for line in lines] == [None, 1, 1, 2]
    for round_ in (1, 2, 3):
        table = pq.read_table(tmp_path / "run" / "augmented" / f"round={round_:03d}", partitioning=None)
        assert set(table["weights_version"].to_pylist()) == {max(1, round_ - 1)}
        assert set(table["round"].to_pylist()) == {round_}
        assert lines[round_]["kept"] == table.num_rows == 3 * lines[round_]["rows"]
        assert 0 <= lines[round_]["flip_rate"] <= 1 and lines[round_]["loss_augmented"] > 0
        assert {"generate", "score", "select", "train", "broadcast", "wait"} <= lines[round_]["seconds"].keys()
    assert len({tuple(line["scorer_pids"] + line["generator_pids"]) for line in lines[1:]}) == 1
    first, second = (
        set(pq.read_table(tmp_path / "run" / "augmented" / f"round={r:03d}", partitioning=None)["text"].to_pylist())
        for r in (1, 2)
    )
    assert first != second
    best = max(line["dev_macro_f1"] for line in lines)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["best"]["macro_f1"] == best and manifest["status"] == "finished"
    assert manifest["done"]["shards"] == manifest["shards"] == 4
    assert manifest["done"]["kept"] == sum(line.get("kept", 0) for line in lines)
    assert manifest["driver"] in manifest["nodes"]
    test = evaluate_model(result.model_dir, str(tmp_path / "in.parquet"), "text", "label")
    assert result.test is not None and test["macro_f1"] == result.test["macro_f1"] > 0.9
    assert list((tmp_path / "run" / "tensorboard").iterdir())

    assert not list((tmp_path / "run" / "checkpoint").glob("*.safetensors")), "a finished run needs none"
    left = tmp_path / "run" / "checkpoint" / "round-00003.safetensors"
    left.write_bytes(b"of a run that was killed when it had just finished")
    assert train(request.model_copy(update={"keep_checkpoints": True})).metrics == result.metrics
    assert left.exists()
    assert train(request).metrics == result.metrics
    assert not left.exists()
    with pytest.raises(RequestError, match="--rounds was 3, now 4"):
        train(request.model_copy(update={"rounds": 4}))


def test_a_run_cut_short_ends_in_the_same_bits(tmp_path: Path) -> None:
    """Back to the checkpoint of round 1, as if everything after it had been lost."""
    corpus(tmp_path / "in.parquet")
    request = make_request(tmp_path, generator="tests.stream.test_driver:Marks", keep_checkpoints=True)
    train(request)
    undisturbed = (tmp_path / "run" / "model" / "model.safetensors").read_bytes()
    newest = sorted((tmp_path / "run" / "checkpoint").glob("*.safetensors"))
    assert [p.name for p in newest] == ["round-00002.safetensors", "round-00003.safetensors"]
    data = newest[1].read_bytes()
    newest[1].write_bytes(data[: len(data) // 2])
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(manifest | {"status": "running"}))
    (tmp_path / "run" / "model" / "model.safetensors").unlink()
    for file in (tmp_path / "run" / "augmented" / "round=003").iterdir():
        file.unlink()
    (tmp_path / "run" / "rounds" / "00003.json").unlink()
    assert [line["round"] for line in train(request).metrics] == [0, 1, 2, 3]
    assert (tmp_path / "run" / "model" / "model.safetensors").read_bytes() == undisturbed
    for file in (tmp_path / "run" / "checkpoint").glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:1000])
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(manifest | {"status": "running"}))
    with pytest.raises(RunError, match="damaged and there is no other checkpoint"):
        train(request)


def test_one_time_and_the_originals_alone(tmp_path: Path) -> None:
    corpus(tmp_path / "in.parquet")
    once = train(
        make_request(tmp_path, "once", online=False, pretrain_epochs=0, generator="tests.stream.test_driver:Marks")
    )
    assert [p.name for p in (tmp_path / "once" / "augmented").iterdir()] == ["round=001"]
    assert [line.get("judged_by_version") for line in once.metrics] == [None, 1, 1, 1]
    alone = train(make_request(tmp_path, "alone", loss="original"))
    assert not (tmp_path / "alone" / "augmented").exists() and len(alone.metrics) == 4
    assert alone.metrics[-1]["loss_augmented"] == 0


def test_a_model_for_noisy_texts_is_tested_on_clean_and_noisy_ones(tmp_path: Path) -> None:
    corpus(tmp_path / "in.parquet")
    request = make_request(
        tmp_path, robust="spelling", generator_args={"alpha": 0.3}, rounds=1,
        classifier="linear", eval=str(tmp_path / "in.parquet"),
    )  # fmt: skip
    test = train(request).test
    assert test is not None and set(test["noise"]) == {"spelling:0.3"}
    assert "with noise `spelling:0.3`" in (tmp_path / "run" / "model" / "README.md").read_text()


@pytest.mark.parametrize("staleness", [0, 1])
def test_the_only_rewrites_of_a_run_are_whole_or_made_again(tmp_path: Path, staleness: int) -> None:
    """Back to the checkpoint of round 1, with a file of round 1 lost."""
    corpus(tmp_path / "in.parquet")
    request = make_request(
        tmp_path, online=False, rounds=2, max_staleness=staleness, keep_checkpoints=True,
        generator="tests.stream.test_driver:Marks",
    )  # fmt: skip
    train(request)
    run = tmp_path / "run"
    files = [run / "model" / "model.safetensors", *(run / "augmented" / "round=001").iterdir()]
    undisturbed = [file.read_bytes() for file in files]
    for file in (*files, run / "checkpoint" / "round-00002.safetensors"):
        file.unlink()
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | {"status": "running"}))
    if staleness:
        train(request)
        assert [file.read_bytes() for file in files] == undisturbed
    else:
        with pytest.raises(RunError, match="a file of round 1 is damaged or missing, and the weights .* are gone"):
            train(request)


def test_what_goes_wrong_is_said_clearly_and_nothing_finished_is_lost(tmp_path: Path) -> None:
    corpus(tmp_path / "in.parquet")
    with pytest.raises(RunError, match=r"not finite at step \d+ .*lower learning rate"):
        train(make_request(tmp_path, "nan", loss="original", learning_rate=1e30))
    with pytest.raises(RunError, match="round 1: .* samples were rejected.*no rewriting today"):
        train(make_request(tmp_path, "refused", generator="tests.stream.test_driver:Refuses"))
    assert (tmp_path / "refused" / "checkpoint" / "round-00000.safetensors").exists()
    manifest = json.loads((tmp_path / "refused" / "manifest.json").read_text())
    assert (manifest["status"], manifest["done"]["shards"], manifest["shards"]) == ("failed", 1, 4)
    assert manifest["driver"] in manifest["nodes"]
    with pytest.raises(RequestError, match="too few labelled rows|one class only"):
        pq.write_table(pa.table({"text": ["a b", "c d"], "label": ["x", "x"]}), tmp_path / "tiny.parquet")
        train(make_request(tmp_path, "tiny", input=str(tmp_path / "tiny.parquet")))
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "config.json").write_text("{}")
    with pytest.raises(RequestError, match="wrong"):
        train(make_request(tmp_path, "model", classifier=str(tmp_path / "wrong")))


def test_a_run_that_fails_leaves_no_train_worker_behind(tmp_path: Path) -> None:
    corpus(tmp_path / "in.parquet")
    with pytest.raises(RunError, match="samples were rejected"):
        train(make_request(tmp_path, "refused", generator="tests.stream.test_driver:Refuses", workers=1))
    wait_for_all_cpus()  # far less than the stall timeout


class Constant(Sleeps):
    """A classifier that never gets better."""

    def predict_proba(self, texts):  # type: ignore[no-untyped-def]
        return np.full((len(texts), len(self.labels)), 1 / len(self.labels), np.float32)


class TakesItsTime(Constant):
    """A classifier whose fit takes longer than --stall-timeout, and which says that it goes on."""

    def fit(self, texts, y, weights, seed):  # type: ignore[no-untyped-def]
        for _ in range(10):
            time.sleep(6)
            made_step()


@pytest.mark.slow
def test_training_longer_than_the_stall_timeout_is_waited_for(tmp_path: Path) -> None:
    corpus(tmp_path / "in.parquet")
    result = train(
        make_request(
            tmp_path, classifier="tests.stream.test_driver:TakesItsTime", generator="tests.stream.test_driver:Marks",
            rounds=1, stall_timeout=45.0,
        )
    )  # fmt: skip
    assert [line["round"] for line in result.metrics] == [0, 1]
    assert all(line["seconds"]["train"] > 55 for line in result.metrics)


@pytest.mark.parametrize("staleness", [0, 1])
def test_a_run_that_stops_early_holds_the_rounds_it_was_trained_on(tmp_path: Path, staleness: int) -> None:
    corpus(tmp_path / "in.parquet")
    result = train(
        make_request(
            tmp_path, classifier="tests.stream.test_driver:Constant", generator="tests.stream.test_driver:Marks",
            patience=1, max_staleness=staleness, rounds=6, candidates=True,
        )
    )  # fmt: skip
    assert [line["round"] for line in result.metrics] == [0, 1]
    for folder in ("augmented", "candidates"):
        assert [p.name for p in (tmp_path / "run" / folder).iterdir()] == ["round=001"]
    assert [p.name for p in (tmp_path / "run" / "rounds").iterdir()] == ["00001.json"]


@pytest.mark.parametrize(("bad", "outcome"), [(19, None), (21, "21 of 100 rows of TRAIN were rejected")])
def test_rows_that_cannot_be_used_are_all_in_rejected(tmp_path: Path, bad: int, outcome: str | None) -> None:
    table = pq.read_table(corpus(tmp_path / "in.parquet", 100))
    texts: list[Any] = table["text"].to_pylist()
    texts[:bad] = [None] * bad
    pq.write_table(table.set_column(0, "text", pa.array(texts)), tmp_path / "in.parquet")
    labels = ["unheard-of", *table["label"].to_pylist()[1:]]
    pq.write_table(table.set_column(1, "label", pa.array(labels)), tmp_path / "other.parquet")
    request = make_request(tmp_path, eval=str(tmp_path / "other.parquet"), dev=str(tmp_path / "other.parquet"))
    reporter = Listens()
    if outcome:
        with pytest.raises(RunError, match=outcome):
            prepare(request, reporter)
    else:
        prepare(request, reporter)
        assert any("1 rows of dev are rejected" in line for line in reporter.warnings)
        for name in ("dev", "eval"):
            (row,) = pq.read_table(tmp_path / "run" / "rejected" / f"{name}.parquet").to_pylist()
            assert row["sample_id"] == "other.parquet:0" and "'unheard-of' is not one of" in row["reason"]
    rejected = pq.read_table(tmp_path / "run" / "rejected" / "input.parquet")
    assert rejected["sample_id"].to_pylist() == [f"in.parquet:{i}" for i in range(bad)]


def test_a_file_to_test_on_that_cannot_be_used_is_refused_before_training(tmp_path: Path) -> None:
    table = pq.read_table(corpus(tmp_path / "in.parquet"))
    wrong = table.set_column(1, "label", pa.array(["unheard-of"] * len(table)))
    pq.write_table(wrong, tmp_path / "wrong.parquet")
    request = make_request(tmp_path, eval=str(tmp_path / "wrong.parquet"))
    with pytest.raises(RequestError, match="--eval: no row can be used; .*'unheard-of' is not one of"):
        prepare(request)
    prepare(request.model_copy(update={"eval": str(tmp_path / "in.parquet")}))
    assert not list((tmp_path / "run" / "rejected").iterdir())


def prepare(request: TrainRequest, reporter: Any = None) -> None:
    """What `train` does before its rounds."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Prepared):
        patch.setattr(driver, "_rounds", _stop)
        train(request, reporter)


class Prepared(Exception):
    pass


def _stop(*arguments: object) -> None:
    raise Prepared


class Listens:
    """A reporter that only remembers its warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.quiet = Reporter(quiet=True)

    def warn(self, message: str) -> None:
        self.warnings.append(message)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.quiet, name)


def test_a_scorer_that_never_answers_is_named(tmp_path: Path) -> None:
    corpus(tmp_path / "in.parquet")
    silent = make_request(
        tmp_path, "silent", classifier="tests.stream.test_driver:Sleeps", generator="tests.stream.test_driver:Shouts",
        stall_timeout=20.0,
    )  # fmt: skip
    with pytest.raises(RunError, match="scorer 1 of 1 did not answer, and no progress was reported for 20 s"):
        train(silent)
    assert (tmp_path / "silent" / "checkpoint" / "round-00000.safetensors").exists()


def test_a_label_missing_from_dev_is_said_and_perplexity_can_judge(tmp_path: Path) -> None:
    corpus(tmp_path / "in.parquet")
    table = pq.read_table(tmp_path / "in.parquet")
    pq.write_table(table.filter(pc.field("label") != "complain"), tmp_path / "dev.parquet")
    reporter = Listens()
    request = make_request(
        tmp_path, "ppl", dev=str(tmp_path / "dev.parquet"), select="ppl+cosine", rounds=1, classifier="linear"
    )
    train(request, reporter)  # type: ignore[arg-type]
    assert any("no dev row has the label complain" in line for line in reporter.warnings)
    kept = pq.read_table(tmp_path / "ppl" / "augmented", partitioning=None)
    model = LanguageModel(tmp_path / "ppl" / "language-model" / "model.arpa")
    assert len(kept) and (tmp_path / "ppl" / "model" / "config.json").exists()
    sample = kept.filter(pc.field("sample_id") == kept["sample_id"][0].as_py())
    values = model(sample["text"].to_pylist())
    order = np.argsort(sample["s_div"].to_numpy())
    assert (np.diff(values[order]) >= 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("method", ablation_rows(), ids=lambda method: method.name.partition(":")[0])
def test_the_rows_of_the_ablation_by_options_alone(tmp_path: Path, method: Method) -> None:
    corpus(tmp_path / "in.parquet")
    options: dict[str, Any] = {"online": method.online, "pretrain_epochs": 2 if method.pretrain else 0}
    options |= {"loss": "original"} if method.name == "1: none" else {"select": method.select}
    result = train(make_request(tmp_path, rounds=2, **options))
    assert [line["round"] for line in result.metrics] == [0, 1, 2]
    assert [line.get("kept", 0) > 0 for line in result.metrics] == [False] + 2 * [method.name != "1: none"]


def test_a_resumed_run_keeps_its_train_workers_whatever_the_cluster_has_now() -> None:
    """Their number changes the bytes, and by default it follows the cluster."""
    request = TrainRequest(input="in.csv", output="run")
    assert [driver._resources(request, before)[0] for before in (None, 0, 1)] == [0, 0, 1]


@pytest.mark.slow
def test_two_workers_learn_what_one_learns(tmp_path: Path) -> None:
    """Without dropout, on a Ray of their own with CPUs enough: gradients differ by rounding only."""
    corpus(tmp_path / "in.parquet", 97)
    script = f"""
import ray
from epida_ray.method.requests import TrainRequest
from epida_ray.stream.driver import train
ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
for workers in (0, 2):
    train(TrainRequest(
        input={str(tmp_path / "in.parquet")!r}, output={str(tmp_path)!r} + f"/workers{{workers}}", workers=workers,
        rounds=2, k=1, generator_actors=1, scorer_actors=1, epochs_per_round=2, pretrain_epochs=2, stall_timeout=240,
        classifier="cnn", classifier_args={{"dropout": 0.0}},
    ))
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=500)
    one, two = (load_file(tmp_path / f"workers{n}" / "model" / "model.safetensors") for n in (0, 2))
    for name, weights in one.items():
        np.testing.assert_allclose(two[name], weights, atol=2e-4)
    lines = [json.loads((tmp_path / f"workers{n}" / "metrics.jsonl").read_text().splitlines()[1]) for n in (0, 2)]
    assert lines[0]["loss"] == pytest.approx(lines[1]["loss"], abs=1e-3)
