"""Training with unlabelled texts and with a teacher."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from epida_ray.core.errors import RequestError
from epida_ray.core.options import make_request
from epida_ray.data.plan import Columns, plan_inputs
from epida_ray.method.pool import class_prior, pool_plan, pool_shards, soft_labels
from epida_ray.method.requests import TrainRequest
from epida_ray.method.schema import PSEUDO, check
from epida_ray.stream.driver import train
from tests.stream.test_driver import NOUNS, OPENINGS, Listens, corpus

LABELS = tuple(sorted(OPENINGS))


def pool(path: Path, rows: int = 192, **more: list) -> Path:
    openings = list(OPENINGS.values())
    texts = [f"{openings[i % 3]} {NOUNS[i % 7]} in box {i}" for i in range(rows)]
    pq.write_table(pa.table({"text": texts} | more), path)
    return path


def request(folder: Path, name: str, **changes: object) -> TrainRequest:
    values = {
        "input": str(folder / "in.parquet"), "unlabelled": str(folder / "pool.parquet"), "output": str(folder / name),
        "classifier": "linear", "generator": "none", "rounds": 2, "stall_timeout": 240.0, "generator_actors": 1,
        "scorer_actors": 1,
    }  # fmt: skip
    return make_request(TrainRequest, values | changes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    corpus(tmp_path / "in.parquet", 36)
    pool(tmp_path / "pool.parquet")
    return tmp_path


@pytest.mark.usefixtures("local_ray")
def test_unlabelled_texts_get_soft_labels_in_every_round_and_a_run_cut_short_ends_in_the_same_bytes(
    folder: Path,
) -> None:
    asked = request(folder, "run", pool_rows=64, keep_checkpoints=True)
    result = train(asked)
    assert [line["loss_unlabelled"] > 0 for line in result.metrics] == [False, True, True]
    files = sorted((folder / "run" / "pseudo").iterdir())
    assert [file.name for file in files] == ["round=001.parquet", "round=002.parquet"]
    rounds = [check(pq.ParquetFile(file).read(), PSEUDO) for file in files]
    assert [table.num_rows for table in rounds] == [64, 64]
    assert not set(rounds[0]["sample_id"].to_pylist()) & set(rounds[1]["sample_id"].to_pylist()), "slices take turns"
    for number, table in enumerate(rounds, start=1):
        soft = np.array(table["soft_label"].to_pylist())
        np.testing.assert_allclose(soft.sum(axis=1), 1, atol=1e-4)
        assert [LABELS[c] for c in soft.argmax(axis=1)] == table["label"].to_pylist()
        assert set(table["weights_version"].to_pylist()) == {number} and set(table["round"].to_pylist()) == {number}
    before = {p.relative_to(folder / "run"): p.read_bytes() for p in (folder / "run").rglob("*.parquet")}
    model = (folder / "run" / "model" / "model.safetensors").read_bytes()
    manifest = json.loads((folder / "run" / "manifest.json").read_text())
    (folder / "run" / "manifest.json").write_text(json.dumps(manifest | {"status": "running"}))
    sorted((folder / "run" / "checkpoint").glob("*.safetensors"))[-1].unlink()
    damaged = next((folder / "run" / "pool" / "round=002").iterdir())
    damaged.write_bytes(damaged.read_bytes()[:100])
    reporter = Listens()
    train(asked, reporter)  # type: ignore[arg-type]
    assert any("a file of round 2 is damaged" in line for line in reporter.warnings)
    assert {p.relative_to(folder / "run"): p.read_bytes() for p in (folder / "run").rglob("*.parquet")} == before
    assert (folder / "run" / "model" / "model.safetensors").read_bytes() == model


@pytest.mark.usefixtures("local_ray")
def test_a_teacher_labels_rewrites_and_unlabelled_texts_and_judges_quality(folder: Path) -> None:
    teacher = train(request(folder, "teacher", unlabelled=None))
    asked = request(
        folder, "student", classifier="cnn", generator="eda", teacher=teacher.model_dir, pool_rewrites=True, m=2,
        epochs_per_round=1, pretrain_epochs=1, select="divergence+cem-agreement", pool_rows=64,
    )  # fmt: skip
    result = train(asked)
    last = result.metrics[-1]
    assert last["loss_unlabelled"] > 0 < last["loss_augmented"]
    kept = pq.read_table(folder / "student" / "augmented" / "round=002")
    judge = teacher.model()
    np.testing.assert_allclose(
        np.array(kept["soft_label"].to_pylist()), judge.predict_proba(kept["text"].to_pylist()), atol=1e-6
    )
    scored = pq.read_table(folder / "student" / "pool" / "round=002", partitioning=None)
    np.testing.assert_allclose(
        np.array(scored["probabilities"].to_pylist()), judge.predict_proba(scored["text"].to_pylist()), atol=1e-6
    )
    assert {len(rewrites) for rewrites in scored["rewrites"].to_pylist()} == {2}
    pseudo = pq.ParquetFile(folder / "student" / "pseudo" / "round=002.parquet").read()
    assert sum(pseudo["rewritten"].to_pylist()) == 2 * 64 and len(pseudo) == 3 * 64


@pytest.mark.usefixtures("local_ray")
def test_scorers_take_a_teacher_whose_classes_are_in_another_order(folder: Path) -> None:
    other = ("order", "complain", "ask")
    teacher = train(request(folder, "teacher", unlabelled=None, labels=other))
    assert tuple(teacher.model().labels) == other
    train(request(folder, "student", teacher=teacher.model_dir, rounds=1, pool_rows=64))
    scored = pq.read_table(folder / "student" / "pool" / "round=001", partitioning=None)
    expected = teacher.model().predict_proba(scored["text"].to_pylist())[:, [other.index(label) for label in LABELS]]
    np.testing.assert_allclose(np.array(scored["probabilities"].to_pylist()), expected, atol=1e-6)


@pytest.mark.usefixtures("local_ray")
def test_bad_pools_priors_and_teachers_are_refused_or_said(folder: Path) -> None:
    with pytest.raises(RequestError, match="sum to 1, not 1.5"):
        train(request(folder, "a", prior={"ask": 0.5, "order": 0.5, "complain": 0.5}))
    with pytest.raises(RequestError, match="--prior must have a share for each of the classes ask, complain, order"):
        train(request(folder, "b", prior={"ask": 1.0}))
    with pytest.raises(RequestError, match="--prior needs --unlabelled"):
        request(folder, "c", unlabelled=None, prior={"ask": 1.0})
    with pytest.raises(RequestError, match="--teacher labels rewrites and unlabelled texts"):
        request(folder, "c", unlabelled=None, teacher="x")
    with pytest.raises(RequestError, match="--select divergence needs a --teacher"):
        request(folder, "c", generator="eda", select="divergence+cem")
    with pytest.raises(RequestError, match="--teacher: there is no directory"):
        train(request(folder, "d", teacher=str(folder / "nowhere")))
    corpus(folder / "other.parquet", 30)
    table = pq.read_table(folder / "other.parquet")
    table = table.set_column(1, "label", pa.array([label.upper() for label in table["label"].to_pylist()]))
    pq.write_table(table, folder / "other.parquet")
    other = train(request(folder, "other", input=str(folder / "other.parquet"), unlabelled=None))
    with pytest.raises(RequestError, match="has the classes ASK, COMPLAIN, ORDER, not those of TRAIN"):
        train(request(folder, "e", teacher=other.model_dir))
    pq.write_table(pa.table({"text": ["", " "]}), folder / "empty.parquet")
    with pytest.raises(RequestError, match="--unlabelled: .* has no text that can be used"):
        train(request(folder, "f", unlabelled=str(folder / "empty.parquet")))
    reporter = Listens()
    others = [f"an other text {i} of the pool" for i in range(6)]
    texts = [*pq.read_table(folder / "in.parquet")["text"].to_pylist()[:3], "", *others]
    pq.write_table(pa.table({"text": texts, "label": ["x"] * 10}), folder / "small.parquet")
    pq.write_table(pa.table({"text": others[:5], "label": [LABELS[i % 3] for i in range(5)]}), folder / "test.parquet")
    small = request(folder, "g", unlabelled=str(folder / "small.parquet"), eval=str(folder / "test.parquet"), rounds=1)
    train(small, reporter)  # type: ignore[arg-type]
    said = " ".join(reporter.warnings)
    assert "3 texts of --unlabelled are in TRAIN too and are left out" in said
    assert "5 texts of --unlabelled are in --eval too" in said and "only 6 texts" in said and "script" not in said
    learned = pq.ParquetFile(folder / "g" / "pseudo" / "round=001.parquet").read()
    assert learned["text"].to_pylist() == others
    cyrillic = pa.table({"text": [f"где моя посылка номер {i}" for i in range(9)]})
    pq.write_table(cyrillic, folder / "cyrillic.parquet")
    reporter = Listens()
    train(request(folder, "h", unlabelled=str(folder / "cyrillic.parquet"), rounds=1), reporter)  # type: ignore[arg-type]
    assert any("are in Cyrillic script, those of TRAIN in Latin" in line for line in reporter.warnings)
    rejected = [r for p in (folder / "g" / "rejected").rglob("*.parquet") for r in pq.ParquetFile(p).read().to_pylist()]
    assert [r["reason"] for r in rejected] == ["the text is empty"]


def test_slices_of_the_pool_cover_it_and_come_round(tmp_path: Path) -> None:
    plan = plan_inputs(str(pool(tmp_path / "pool.parquet", 1000)), Columns(label=None))
    shards = list(plan.shards())
    taken = [pool_shards(plan, r, 128, seed=3) for r in range(1, 9)]
    assert all(len(part) == 2 for part in taken)
    assert {shard for part in taken for shard in part} == set(shards)
    assert pool_shards(plan, 9, 128, seed=3) == taken[0] != pool_shards(plan, 1, 128, seed=4)
    assert pool_shards(plan, 5, 10**6, seed=3) == shards


def test_a_round_uses_about_as_many_texts_of_a_large_pool_as_are_asked_for(tmp_path: Path) -> None:
    plan = plan_inputs(str(pool(tmp_path / "pool.parquet", 70_000)), Columns(label=None))
    assert plan.shard_rows == 4096
    for rows in (100, 1000, 5000):
        wanted = TrainRequest(input="in", output="out", unlabelled="pool", pool_rows=rows)
        cut = pool_plan(plan, wanted, 2)
        shards = pool_shards(cut, 1, rows, seed=3)
        assert rows <= sum(s.stop - s.start for s in shards) <= 1.3 * rows
        assert sum(s.stop - s.start for s in cut.shards()) == 70_000


@pytest.mark.parametrize("share", ["1/3", "30%", "nan", "inf"])
def test_a_share_of_the_prior_that_is_no_number(share: str) -> None:
    with pytest.raises(RequestError, match=r"--prior"):
        class_prior({"a": share, "b": 0.5}, ["a", "b"], np.array([0, 1]))


def test_soft_labels_have_the_shares_of_the_prior() -> None:
    random = np.random.default_rng(0)
    p = random.dirichlet([4, 1, 1], 3000).astype(np.float32)
    prior = np.array([0.2, 0.5, 0.3])
    q, weights = soft_labels(p, prior)
    np.testing.assert_allclose(q.sum(axis=1), 1, atol=1e-5)
    assert np.abs(q.mean(axis=0) - prior).max() < 0.1 < np.abs(p.mean(axis=0) - prior).max()
    assert weights.min() >= 0 and weights.max() <= 1
    certain = q.max(axis=1)
    assert np.corrcoef(certain, weights)[0, 1] > 0.9
    certain, _ = soft_labels(np.eye(3)[[0, 0, 1]], np.array([0.0, 0.5, 0.5]))
    assert certain.tolist() == np.eye(3)[[0, 0, 1]].tolist(), "a class without a share is not impossible"
    assert class_prior({}, LABELS, np.array([0, 0, 1, 2])).tolist() == [0.5, 0.25, 0.25]
