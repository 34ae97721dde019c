"""Bytes that must not change unnoticed: rewrites, scores, kept rows and weights on the bundled corpus.

If one of these fails on purpose, say so in CHANGELOG.md under "Changed" and put the new digest here.
"""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
import torch

import epida_ray
from epida_ray.core.sample import Rejected, Sample
from epida_ray.generate import GENERATORS, propose
from epida_ray.method.local import train
from epida_ray.method.requests import TrainRequest, make_request
from epida_ray.select import scores

CORPUS = Path(epida_ray.__file__).parent / "experiments" / "support_desk"
MADE_WITH = ("torch 2.13.0", "numpy 2.4.6", "AVX512", "x86_64")
"""Training has the same bits only with the same libraries on the same kind of processor."""
HERE = (
    f"torch {torch.__version__.partition('+')[0]}",
    f"numpy {np.__version__}",
    torch.backends.cpu.get_cpu_capability(),
    platform.machine(),
)


def digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def corpus(rows: int) -> pa.Table:
    return pyarrow.csv.read_csv(CORPUS / "train.csv").slice(0, rows)


@pytest.mark.parametrize(
    ("generator", "arguments", "expected"),
    [
        ("eda", {}, "52299de1f6340423"),
        ("eda", {"alpha_sr": 0.5, "alpha_ri": 0.5, "alpha_rs": 0.5, "p_rd": 0.5}, "dc46c71a8a5884bb"),
        ("mix", {"eda": 2, "aeda": 1, "spelling": 1}, "cc82c96ba4378a92"),
    ],
)
def test_rewrites(generator: str, arguments: dict[str, Any], expected: str) -> None:
    samples = [
        Sample(str(i), text, "x") for i, text in enumerate([*corpus(200)["text"].to_pylist(), "hi you", "我爱北京"])
    ]
    made = propose(GENERATORS.create(generator, **arguments), samples, 9, run_seed=0, round_=0, name=generator)
    lines = [one.reason if isinstance(one, Rejected) else "\n".join([*one.texts, *one.operations]) for one in made]
    assert digest("\n".join(lines).encode()) == expected


@pytest.mark.parametrize(
    ("classes", "expected"),
    [(2, "73096118ad9a3c8f"), (6, "d7c3b3155cfcbbb4"), (20, "106b6a05803a0da9"), (150, "ff9f5bdccc3f6d96")],
)
def test_scores(classes: int, expected: str) -> None:
    # Fractions of small integers, so that no library function has a part in the input.
    counts = np.arange(1, 90 * classes + 1).reshape(90, classes) ** 3 % 1009 + 1.0
    counts[:, 0] *= 50
    p = counts / counts.sum(axis=1, keepdims=True)
    o, owner, y = p[::9], np.repeat(np.arange(10), 9), np.arange(90) % classes
    found = [
        scores.rem(p, y), scores.rem(p, p), scores.cem(p, o, owner), scores.cem_agreement(p, o, owner),
        scores.neg_entropy(p), scores.cosine(p, y), scores.divergence(p, p[::-1]),
    ]  # fmt: skip
    assert digest(*(values.tobytes() for values in found)) == expected


def test_kept_rows() -> None:
    rows = corpus(100)
    kept = epida_ray.augment_texts(
        rows["text"].to_pylist(), rows["label"].to_pylist(), classifier="linear", select="rem+cem"
    )
    columns = [str(kept[name].to_pylist()) for name in ("sample_id", "text", "label", "operation", "rank")]
    assert digest("\n".join(columns).encode()) == "7586d334c0ea9d47"


@pytest.mark.skipif(HERE != MADE_WITH, reason=f"the digests were made with {', '.join(MADE_WITH)}")
@pytest.mark.parametrize(
    ("classifier", "arguments", "expected"),
    [
        ("linear", {}, {"6dd590a5ae7f3f18"}),
        ("cnn", {"vectors": "hashed"}, {"fc11d3c18711e872", "d7e7577e14be3b43"}),  # without and with AMX
    ],
)
def test_weights(classifier: str, arguments: dict[str, Any], expected: set[str], tmp_path: Path) -> None:
    for name in ("train", "test"):
        pyarrow.csv.write_csv(pyarrow.csv.read_csv(CORPUS / f"{name}.csv").slice(0, 80), tmp_path / f"{name}.csv")
    given = {"input": str(tmp_path / "train.csv"), "dev": str(tmp_path / "test.csv"), "output": str(tmp_path / "run")}
    schedule = {"rounds": 2, "pretrain_epochs": 2, "epochs_per_round": 1, "workers": 0, "threads": 1}
    options = {"classifier": classifier, "classifier_args": arguments}
    if classifier == "cnn":
        options |= {"batch_size": 16, "learning_rate": 0.001}
    trained = train(make_request(TrainRequest, given | schedule | options)).classifier
    state = trained.state()
    found = digest(*(name.encode() + np.ascontiguousarray(state[name]).tobytes() for name in sorted(state)))
    assert found in expected
