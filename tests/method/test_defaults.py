"""What `epida train` chooses when the user leaves the choice to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from epida_ray.core.progress import Reporter
from epida_ray.method import prepare
from epida_ray.method.requests import TrainRequest


def resolved(folder: Path, **options: object) -> TrainRequest:
    file = folder / "in.csv"
    file.write_text("text,label\n" + "".join(f"text {i},{'ab'[i % 2]}\n" for i in range(40)))
    request = TrainRequest(input=str(file), output=str(folder / "out"), **options)  # type: ignore[arg-type]
    return prepare.with_defaults(request, Reporter(quiet=True))


def test_few_rows_get_a_tuned_encoder_without_rewrites(tmp_path: Path) -> None:
    chosen = resolved(tmp_path)
    assert (chosen.classifier, chosen.classifier_args, chosen.generator) == (
        "encoder", {"tune": "contrastive"}, "none",
    )  # fmt: skip
    assert resolved(tmp_path, generator="aeda").generator == "aeda"
    assert resolved(tmp_path, classifier_args={"tune": "none"}).classifier_args == {"tune": "none"}


def test_a_teacher_without_other_texts_labels_rewrites(tmp_path: Path) -> None:
    assert resolved(tmp_path, teacher="model").generator == "eda"
    assert resolved(tmp_path, teacher="model", unlabelled="pool").generator == "none"
    assert resolved(tmp_path, teacher="model", soft_labels=True).generator == "none"


def test_what_the_user_names_is_left_alone(tmp_path: Path) -> None:
    chosen = resolved(tmp_path, classifier="cnn")
    assert (chosen.classifier, chosen.generator) == ("cnn", "eda")


def test_many_rows_or_no_encoder_get_the_cnn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "TUNED_ROWS", 10)
    assert resolved(tmp_path).classifier == "cnn"
    monkeypatch.setattr(prepare, "TUNED_ROWS", 1000)
    monkeypatch.setattr("epida_ray.core.registry.find_spec", lambda name: None)
    assert resolved(tmp_path).classifier == "cnn"
