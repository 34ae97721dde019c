"""`epida label` and `epida distil`."""

from __future__ import annotations

import codecs
import csv
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from epida_ray.classify import create, load
from epida_ray.cli import distil
from epida_ray.core.errors import RequestError, RunError
from epida_ray.core.progress import Reporter
from epida_ray.method.evaluate import evaluate_model
from epida_ray.method.requests import LabelRequest
from epida_ray.method.review import spread
from epida_ray.method.schema import LABELLED, check
from epida_ray.stream.label import label
from tests.stream.test_driver import NOUNS, OPENINGS, corpus

pytestmark = pytest.mark.usefixtures("local_ray")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    table = pq.read_table(corpus(folder / "in.parquet", 60))
    labels = tuple(sorted(OPENINGS))
    classifier = create("linear", labels)
    y = np.array([labels.index(name) for name in table["label"].to_pylist()])
    classifier.fit(table["text"].to_pylist(), y, np.ones(60, np.float32), 0)
    classifier.save(folder / "model")
    return str(folder / "model")


class Hears(Reporter):
    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.lines: list[str] = []

    def say(self, message: str) -> None:
        self.lines.append(message)


def texts(rows: int) -> list[str]:
    openings = list(OPENINGS.values())
    return [f"{openings[i % 3]} {NOUNS[i % 7]} in box {i}" for i in range(rows)]


def request(folder: Path, model: str, **changes: object) -> LabelRequest:
    values = {"input": str(folder / "pool.parquet"), "output": str(folder / "run"), "model": model, "scorer_actors": 1}
    return LabelRequest(**values | changes)  # type: ignore[arg-type]


def test_every_text_is_labelled_and_a_run_cut_short_ends_in_the_same_bytes(tmp_path: Path, model: str) -> None:
    pq.write_table(pa.table({"text": [*texts(150), "", None]}), tmp_path / "pool.parquet")
    whole = request(tmp_path, model, for_review=10)
    result = label(request(tmp_path, model))
    assert not (tmp_path / "run" / "review.csv").exists()
    label(whole)
    assert result.manifest.done.kept == 150 and result.manifest.done.rejected == 2
    files = {p: p.read_bytes() for p in (tmp_path / "run" / "labelled").iterdir()}
    tables = [check(pq.ParquetFile(p).read(), LABELLED) for p in sorted(files)]
    table = pa.concat_tables([t.replace_schema_metadata(None) for t in tables])
    expected = load(Path(model)).predict_proba(table["text"].to_pylist())
    np.testing.assert_allclose(np.array(table["soft_label"].to_pylist()), expected, atol=1e-6)
    np.testing.assert_allclose(table["confidence"].to_numpy(), expected.max(axis=1), atol=1e-6)
    review = list(csv.DictReader((tmp_path / "run" / "review.csv").open(newline="", encoding="utf-8-sig")))
    assert (tmp_path / "run" / "review.csv").read_bytes().startswith(codecs.BOM_UTF8)
    assert len({row["text"] for row in review}) == 10 and set(review[0]) >= {"sample_id", "entropy"}
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(manifest | {"status": "running"}))
    next(iter(files)).unlink()
    reporter = Hears()
    label(whole, reporter)
    shards = len(files)
    assert f"resuming: {shards - 1} of {shards} shards are done" in reporter.lines
    assert {p: p.read_bytes() for p in (tmp_path / "run" / "labelled").iterdir()} == files


def test_wrong_requests_and_too_many_bad_rows(tmp_path: Path, model: str) -> None:
    pq.write_table(pa.table({"text": ["a text", None, None]}), tmp_path / "pool.parquet")
    with pytest.raises(RequestError, match="--model: there is no directory"):
        label(request(tmp_path, str(tmp_path / "nowhere")))
    with pytest.raises(RequestError, match="no Ray at --address 127.0.0.1:9"):
        label(request(tmp_path, model, address="127.0.0.1:9"))
    with pytest.raises(RunError, match="2 of 3 rows were rejected"):
        label(request(tmp_path, model))


def test_texts_for_review_are_unlike_one_another() -> None:
    random = np.random.default_rng(0)
    groups = np.repeat(np.eye(5), 40, axis=0) + random.normal(0, 0.01, (200, 5))
    for seed in range(5):
        chosen = spread(groups, np.ones(200), 5, seed)
        assert len({int(i) // 40 for i in chosen}) == 5
    assert sorted(spread(groups[:3], np.zeros(3), 10, 0)) == [0, 1, 2]


def test_a_student_learns_what_the_teacher_says(tmp_path: Path, model: str) -> None:
    pq.write_table(pa.table({"text": texts(200)}), tmp_path / "pool.parquet")
    output = tmp_path / "fast"
    distil.command(str(tmp_path / "pool.parquet"), model, str(output), classifier="linear", quiet=True)
    prepared = pq.read_table(output / "student" / "prepared" / "train.parquet")
    teacher = load(Path(model)).predict_proba(prepared["text"].to_pylist())
    np.testing.assert_allclose(np.array(prepared["soft_label"].to_pylist()), teacher, atol=1e-6)
    corpus(tmp_path / "test.parquet", 60)
    result = evaluate_model(str(output / "student" / "model"), str(tmp_path / "test.parquet"), "text", "label")
    assert result["macro_f1"] > 0.95


def test_a_teacher_may_know_classes_that_the_pool_does_not_have(tmp_path: Path, model: str) -> None:
    openings = list(OPENINGS.values())[:2]
    pool = [f"{openings[i % 2]} {NOUNS[i % 7]} in box {i}" for i in range(96)]
    pq.write_table(pa.table({"text": pool}), tmp_path / "pool.parquet")
    distil.command(str(tmp_path / "pool.parquet"), model, str(tmp_path / "fast"), classifier="linear", quiet=True)
    assert load(tmp_path / "fast" / "student" / "model").labels == tuple(sorted(OPENINGS))


def test_the_test_of_a_student_is_checked_first_and_read_with_the_columns_of_the_pool(
    tmp_path: Path, model: str
) -> None:
    pq.write_table(pa.table({"Anfrage": texts(96)}), tmp_path / "pool.parquet")
    rows = pq.read_table(corpus(tmp_path / "rows.parquet", 30))
    test = "Anfrage;Thema\n" + "".join(
        f"{r['text']};{r['label']}\n" for r in rows.select(["text", "label"]).to_pylist()
    )
    (tmp_path / "test.csv").write_text(test)
    (tmp_path / "other.csv").write_text("Anfrage;Thema\na text;nobody knows\n")

    def run(file: str, label_column: str = "Thema") -> None:
        distil.command(
            str(tmp_path / "pool.parquet"), model, str(tmp_path / "fast"), classifier="linear", quiet=True,
            text_column="Anfrage", label_column=label_column, eval=str(tmp_path / file),
        )  # fmt: skip

    for file, column, reason in (
        ("nowhere.csv", "Thema", "nowhere.csv"),
        ("test.csv", "Topic", "no column 'Topic'"),
        ("other.csv", "Thema", "--eval: no row can be used; the first: the label 'nobody knows'"),
    ):
        with pytest.raises(RequestError, match=reason):
            run(file, column)
    assert not (tmp_path / "fast").exists()
    run("test.csv")
    manifest = json.loads((tmp_path / "fast" / "student" / "manifest.json").read_text())
    assert manifest["test"]["rows"] == 30 and manifest["test"]["macro_f1"] > 0.9
