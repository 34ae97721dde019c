"""Rows and files that nobody would write on purpose: each row is kept or rejected, each bad file is one line."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from epida_ray.classify import create
from epida_ray.core.errors import EpidaError
from epida_ray.data.plan import Columns, plan_inputs
from epida_ray.data.reader import ShardReader
from epida_ray.data.storage import Storage
from epida_ray.data.writer import open_writer
from epida_ray.method import check, prepare, stages
from epida_ray.method.evaluate import evaluate_model
from epida_ray.method.output import Origin, rejected_of, write
from epida_ray.method.predict import predict
from epida_ray.method.requests import AugmentRequest
from epida_ray.method.round import one_round
from epida_ray.method.stages import RoundOptions
from epida_ray.runs import layout
from epida_ray.stream.augment import augment

LABELS = ("a", "b")
NASTY = [
    "", " ", "\t", "\n", "\r", "\r\n", "\0", "\x1b[31m", '"', '""', "'", ",", ";", "\\", "\u202e", "\ufeff",
    "\ufffe", "🙂",
    "e\u0301", "ß", "İ", "中文字", "=1+1", "NaN", "null", "None", "{}", "[1]", "</script>", "%s%n", "a" * 5000,
    "x " * 300,
    "\U0010ffff", "\u2028", "word", "two words here", "Please ship the kettle to my house today!", "1e999", "-0",
    "true",
]  # fmt: skip
FULL_ROWS = int(os.environ.get("EPIDA_FUZZ_ROWS", "10000"))
"""Rows in each format, in the slow tests."""
FULL_FILES = int(os.environ.get("EPIDA_FUZZ_FILES", "2000"))
"""Damaged files of all formats together, in the slow tests."""
FORMATS = ["csv", "tsv", "jsonl", "json", "parquet", "arrow", "xlsx", "csv.gz"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    classifier = create("linear", LABELS)
    classifier.fit(["word one", "two words"], np.array([0, 1]), np.ones(2, np.float32), 0)
    classifier.save(folder)
    return str(folder)


def nasty_text(choose: random.Random) -> Any:
    return "".join(choose.choices(NASTY, k=choose.choice([1, 1, 2, 5]))) if choose.random() > 0.03 else None


def write_rows(path: Path, rows: int, seed: int) -> None:
    choose = random.Random(seed)
    texts = [nasty_text(choose) for _ in range(rows)]
    labels = [choose.choice(["a", "b", "a", "b", "c", "", None]) for _ in range(rows)]
    if path.name.endswith((".csv", ".tsv")) and "gz" not in path.name:
        lines = io.StringIO()
        writer = csv.writer(lines, delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writerow(["text", "label"])
        for pair in zip(texts, labels, strict=True):
            extra = ["more"] * choose.choice([0, 0, 0, 0, 1, 3])
            writer.writerow([*pair[: choose.choice([1, 2, 2, 2, 2, 2])], *extra])
        data = lines.getvalue().encode("utf-8", "surrogatepass")
        path.write_bytes(data)
    elif path.suffix == ".jsonl":
        odd = [
            "",
            "{",
            "null",
            "[]",
            '{"text": 5}',
            '{"text": ["x"], "label": "a"}',
            '{"text": "\\ud800", "label": "a"}',
        ]
        with path.open("w", encoding="utf-8") as file:
            for text, label in zip(texts, labels, strict=True):
                whole = json.dumps({"text": text, "label": label})
                file.write((choose.choice(odd) if choose.random() < 0.05 else whole) + "\n")
    else:
        if path.suffix == ".xlsx":  # a cell takes no control characters and at most 32,767 characters
            texts = [None if t is None else "".join(c for c in t if c >= " ")[:32_000] for t in texts]
        with open_writer(str(path)) as writer_of_rows:
            writer_of_rows.table(
                pa.table({"text": pa.array(texts, pa.string()), "label": pa.array(labels, pa.string())})
            )


def augmented(path: Path, classifier: Any) -> tuple[int, set[str], set[str]]:
    """What `epida augment` does with a file, in this process: (planned rows, ids that are kept, ids rejected)."""
    plan = plan_inputs(str(path), Columns())
    prepare.check_files(plan, max_rejected=1)
    storage = Storage(str(path.with_name("shards")))
    options = RoundOptions(LABELS, generator="aeda", m=1, k=2)
    origin = Origin(LABELS, "string", "aeda", 0, 0, "")
    generator, selector, reader = options.make_generator(), options.make_selector(), ShardReader(plan)
    kept: set[str] = set()
    rejected: set[str] = set()
    for shard in plan.shards():
        block = one_round(stages.read(reader.read(shard), LABELS), generator, classifier, selector, options, 0)
        name = plan.file_name(shard, "0" * 32)

        def file(folder: str, name: str = name) -> str:
            return layout.shard_file(folder, name)

        counts = write(block, origin, options.m, storage, file)
        found = set(pq.read_table(storage.path(file(layout.AUGMENTED)))["sample_id"].to_pylist())
        bad = rejected_of(block)
        assert all(row.reason for row in bad)
        assert (counts.rows, counts.rejected) == (len(block), len(bad))
        kept |= found
        rejected |= {row.sample_id for row in bad}
    return plan.rows, kept, rejected


def augmented_on_ray(path: Path, model: str) -> tuple[int, list[str], list[str]]:
    """The same by `epida augment` itself, from the files that it writes."""
    output = path.with_name(f"run-{path.name}")
    shutil.rmtree(output, ignore_errors=True)
    request = AugmentRequest(
        input=str(path), output=str(output), generator="aeda", classifier=model, m=1, k=2, max_rejected=1,
        stall_timeout=120,
    )  # fmt: skip
    result = augment(request)

    def ids(folder: str) -> list[str]:
        return [i for f in (output / folder).rglob("*.parquet") for i in pq.read_table(f)["sample_id"].to_pylist()]

    rows = sum(file["rows"] for file in result.manifest.plan["files"])
    return rows, ids("augmented"), ids("rejected")


def checked(path: Path) -> check.Checked:
    """What `epida check` finds, and writes without a traceback."""
    found = check.check(str(path), classifier="linear")
    check.write(found, Storage(str(path.with_name("checked"))))
    return found


def check_rows(path: Path, model: str) -> None:
    from epida_ray.classify import load

    rows, kept, rejected = augmented(path, load(model))
    assert len(kept) + len(rejected) == rows and not kept & rejected
    written = predict(model, str(path), str(path.with_name(f"out.{path.name}")))
    assert written.rows == rows
    found = evaluate_model(model, str(path), "text", "label")
    assert found["rows"] + sum(found["reasons"].values()) == rows
    by_check = checked(path)
    assert by_check.train + sum(f.count for f in by_check.findings if f.name == "unusable") == rows


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_row_is_kept_or_rejected(tmp_path: Path, model: str, suffix: str) -> None:
    write_rows(tmp_path / f"in.{suffix}", 300, 1)
    check_rows(tmp_path / f"in.{suffix}", model)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("suffix", FORMATS)
def test_many_rows(tmp_path: Path, model: str, suffix: str) -> None:
    write_rows(tmp_path / f"in.{suffix}", FULL_ROWS, 2)
    check_rows(tmp_path / f"in.{suffix}", model)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize("suffix", FORMATS)
def test_many_rows_and_some_damaged_files_through_augment_on_ray(tmp_path: Path, model: str, suffix: str) -> None:
    write_rows(tmp_path / f"in.{suffix}", FULL_ROWS, 2)
    rows, kept, rejected = augmented_on_ray(tmp_path / f"in.{suffix}", model)
    assert len(set(kept)) == len(kept) and len(kept) + len(rejected) == rows
    write_rows(tmp_path / f"good.{suffix}", 40, 3)
    good = (tmp_path / f"good.{suffix}").read_bytes()
    for seed in range(15):
        path = tmp_path / f"bad.{suffix}"
        path.write_bytes(damaged(good, random.Random(seed)))
        try:
            rows, kept, rejected = augmented_on_ray(path, model)
        except EpidaError as error:
            assert str(error) and "\n" not in str(error)
        else:
            assert len(kept) + len(rejected) >= rows  # files that cannot be read are rejected, too


def damaged(data: bytes, choose: random.Random) -> bytes:
    """Cut, flip bits, insert, double, or mix encodings."""
    kind = choose.choice(["cut", "flip", "insert", "double", "latin", "utf-16", "zeros"])
    where = choose.randrange(len(data))
    if kind == "cut":
        return data[:where]
    if kind == "flip":
        changed = bytearray(data)
        for _ in range(choose.choice([1, 8, 100])):
            changed[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
        return bytes(changed)
    if kind == "insert":
        return data[:where] + choose.randbytes(choose.choice([1, 10, 1000])) + data[where:]
    if kind == "double":
        return data + data[where:]
    if kind == "zeros":
        return data[:where] + bytes(50) + data[where + 50 :]
    return data[:where] + "Grüße, schön\r\n".encode("latin-1" if kind == "latin" else kind) + data[where:]


def check_file(path: Path, model: str) -> None:
    from epida_ray.classify import load

    for action in (
        lambda: augmented(path, load(model)),
        lambda: predict(model, str(path), str(path.with_name(f"out.{path.name}"))),
        lambda: evaluate_model(model, str(path), "text", "label"),
        lambda: checked(path),
    ):
        path.with_name(f"out.{path.name}").unlink(missing_ok=True)
        try:
            action()
        except EpidaError as error:
            assert str(error) and "\n" not in str(error)


def check_files(tmp_path: Path, model: str, suffix: str, files: int) -> None:
    write_rows(tmp_path / f"good.{suffix}", 40, 3)
    good = (tmp_path / f"good.{suffix}").read_bytes()
    for seed in range(files):
        path = tmp_path / f"bad.{suffix}"
        path.write_bytes(damaged(good, random.Random(seed)))
        try:
            check_file(path, model)
        except Exception as error:
            raise AssertionError(f"{suffix}, seed {seed}: {error!r}") from error


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_damaged_file_is_one_line(tmp_path: Path, model: str, suffix: str) -> None:
    check_files(tmp_path, model, suffix, 15)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("suffix", FORMATS)
def test_many_damaged_files(tmp_path: Path, model: str, suffix: str) -> None:
    check_files(tmp_path, model, suffix, -(-FULL_FILES // len(FORMATS)))
