from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from epida_ray.config import TrainConfig
from epida_ray.errors import RequestError, RunError
from epida_ray.evaluate.models import evaluate_model
from epida_ray.sample import Candidates, Rejected
from epida_ray.stream.online import train

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


def config(folder: Path, name: str = "run", **changes: object) -> TrainConfig:
    values = {"input": str(folder / "in.parquet"), "output": str(folder / name), "rounds": 3, "stall_timeout": 240.0}
    return TrainConfig(
        **values | {"generators": 1, "scorers": 1, "epochs_per_round": 2, "pretrain_epochs": 2} | changes
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


def test_rounds_versions_metrics_and_the_best_model(tmp_path: Path) -> None:
    corpus(tmp_path / "in.parquet")
    asked = config(tmp_path, eval=str(tmp_path / "in.parquet"), max_staleness=1)
    result = train(asked)
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
    test = evaluate_model(result.model_dir, str(tmp_path / "in.parquet"), "text", "label")
    assert result.test is not None and test["macro_f1"] == result.test["macro_f1"] > 0.9
    assert list((tmp_path / "run" / "tensorboard").iterdir())

    assert train(asked).metrics == result.metrics
    with pytest.raises(RequestError, match="--rounds was 3, now 4"):
        train(asked.model_copy(update={"rounds": 4}))


def test_a_run_cut_short_ends_in_the_same_bits(tmp_path: Path) -> None:
    """Back to the checkpoint of round 1, as if everything after it had been lost."""
    corpus(tmp_path / "in.parquet")
    asked = config(tmp_path, generator="tests.stream.test_online:Marks")
    train(asked)
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
    assert [line["round"] for line in train(asked).metrics] == [0, 1, 2, 3]
    assert (tmp_path / "run" / "model" / "model.safetensors").read_bytes() == undisturbed
    for file in (tmp_path / "run" / "checkpoint").glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:1000])
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(manifest | {"status": "running"}))
    with pytest.raises(RunError, match="damaged and there is no other checkpoint"):
        train(asked)


def test_one_time_and_the_originals_alone(tmp_path: Path) -> None:
    corpus(tmp_path / "in.parquet")
    once = train(config(tmp_path, "once", online=False, pretrain_epochs=0, generator="tests.stream.test_online:Marks"))
    assert [p.name for p in (tmp_path / "once" / "augmented").iterdir()] == ["round=001"]
    assert [line.get("judged_by_version") for line in once.metrics] == [None, 1, 1, 1]
    alone = train(config(tmp_path, "alone", loss="original"))
    assert not (tmp_path / "alone" / "augmented").exists() and len(alone.metrics) == 4
    assert alone.metrics[-1]["loss_augmented"] == 0


def test_what_goes_wrong_is_said_clearly_and_nothing_finished_is_lost(tmp_path: Path) -> None:
    corpus(tmp_path / "in.parquet")
    with pytest.raises(RunError, match=r"not finite at step \d+ .*lower learning rate"):
        train(config(tmp_path, "nan", loss="original", learning_rate=1e30))
    with pytest.raises(RunError, match="round 1: .* samples were set aside.*no rewriting today"):
        train(config(tmp_path, "refused", generator="tests.stream.test_online:Refuses"))
    assert (tmp_path / "refused" / "checkpoint" / "round-00000.safetensors").exists()
    with pytest.raises(RequestError, match="too few labelled rows|one class only"):
        pq.write_table(pa.table({"text": ["a b", "c d"], "label": ["x", "x"]}), tmp_path / "tiny.parquet")
        train(config(tmp_path, "tiny", input=str(tmp_path / "tiny.parquet")))
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "config.json").write_text("{}")
    with pytest.raises(RequestError, match="wrong"):
        train(config(tmp_path, "model", classifier=str(tmp_path / "wrong")))
