"""Exported graphs against the models they come from, and the script beside them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from epida_ray.classify.cnn import CNN
from epida_ray.classify.encoder import Encoder
from epida_ray.classify.transformer import Transformer
from epida_ray.core.errors import RequestError, RunError
from epida_ray.method.export_model import TOLERANCE, export_model
from epida_ray.method.serving import NewestModel, PredictRequest
from tests.classify import tiny

pytest.importorskip("onnxruntime", reason="pip install 'epida-ray[onnx]'")
LABELS = ("fruit", "tool")
TEXTS = ["i want a pear", "the saw is good", "", "a plum , please " * 9, "is it a wrench ?"]


def saved(folder: Path, kind: str, what: str = "transformer") -> object:
    network = tiny.transformer(kind, folder / "network", LABELS)
    if what == "transformer":
        made = Transformer(network, LABELS)
        made.temperature = 1.7
    else:
        made = Encoder(network, LABELS, cache=False)
        made.fit(TEXTS[:2] * 3, np.array([0, 1] * 3), np.ones(6), 0)
    made.save(folder / "model")
    return made


@pytest.mark.parametrize(
    ("kind", "what"),
    [("bert", "encoder"), ("distilbert", "transformer"), ("xlm-roberta", "transformer"), ("xlnet", "encoder")],
)
def test_the_graph_gives_the_models_probabilities_and_so_does_the_script(tmp_path: Path, kind: str, what: str) -> None:
    made = saved(tmp_path, kind, what)
    found = export_model(str(tmp_path / "model"), str(tmp_path / "out"))
    assert found.largest_difference <= TOLERANCE and found.same_class == 1
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "model.onnx",
        "tokenizer.json",
        "labels.json",
        "predict.py",
    }
    code = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path; from predict import Model\n"
        "print(json.dumps(Model(Path(sys.argv[1])).predict_proba(json.loads(sys.argv[2])).tolist()))\n"
        "assert not {'torch', 'ray', 'epida_ray', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "out"), json.dumps(TEXTS)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert np.abs(np.array(json.loads(done.stdout)) - made.predict_proba(TEXTS)).max() <= TOLERANCE


def test_int8_is_measured_on_a_labelled_file(tmp_path: Path) -> None:
    saved(tmp_path, "bert", "encoder")
    (tmp_path / "test.csv").write_text("text,label\ni want a pear,fruit\nthe saw is good,tool\nother,unknown\n")
    found = export_model(str(tmp_path / "model"), str(tmp_path / "out"), int8=True, eval=str(tmp_path / "test.csv"))
    assert found.scores["original"]["rows"] == found.scores["exported"]["rows"] == 2
    assert 0 < found.largest_difference < 0.2
    assert json.loads((tmp_path / "out" / "labels.json").read_text())["precision"] == "int8"
    plain = export_model(str(tmp_path / "model"), str(tmp_path / "plain"))
    sizes = [(tmp_path / name / "model.onnx").stat().st_size for name in ("out", "plain")]
    assert sizes[0] < sizes[1] and plain.largest_difference < found.largest_difference


def test_what_cannot_be_exported_is_one_line(tmp_path: Path) -> None:
    CNN(LABELS, vectors="hashed", channels=4).save(tmp_path / "model")
    with pytest.raises(RequestError, match="a CNN has no ONNX graph"):
        export_model(str(tmp_path / "model"), str(tmp_path / "out"))
    with pytest.raises(RequestError, match="no directory"):
        export_model(str(tmp_path / "nowhere"), str(tmp_path / "out"))
    for wrong in (tmp_path / "model" / "config.json", "s3://bucket/out"):
        with pytest.raises(RequestError, match="--output is a folder on this machine"):
            export_model(str(tmp_path / "model"), str(wrong))
    with pytest.raises(RequestError, match="not empty"):
        export_model(str(tmp_path / "model"), str(tmp_path))


def test_an_export_that_fails_leaves_its_directory_free_for_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path, "bert", "encoder")
    out = tmp_path / "exports" / "out"
    (tmp_path / "test.csv").write_text("text,label\ni want a pear,unknown\n")
    with pytest.raises(RequestError, match="none of the model's labels: fruit, tool"):
        export_model(str(tmp_path / "model"), str(out), eval=str(tmp_path / "test.csv"))
    with monkeypatch.context() as patch:
        patch.setattr("epida_ray.method.export_model.TOLERANCE", -1.0)
        with pytest.raises(RunError, match="differ from the original's"):
            export_model(str(tmp_path / "model"), str(out))
    (tmp_path / "test.csv").write_text("text,label\ni want a pear,fruit\n")
    assert export_model(str(tmp_path / "model"), str(out), eval=str(tmp_path / "test.csv")).scores
    assert [p.name for p in out.parent.iterdir()] == ["out"]


@pytest.mark.parametrize("int8", [False, True])
def test_a_server_answers_through_onnx_runtime_and_says_so(tmp_path: Path, int8: bool) -> None:
    made = saved(tmp_path, "bert", "encoder")
    served = NewestModel(str(tmp_path / "model"), threads=2, int8=int8).current
    assert f"by ONNX Runtime in {'int8' if int8 else 'float32'}" in served.describe()
    (answer,) = served.answer([PredictRequest(texts=TEXTS, probabilities=True)])
    found = np.array([list(one.probabilities.values()) for one in answer.predictions])
    assert np.abs(found - made.predict_proba(TEXTS)).max() <= (0.1 if int8 else TOLERANCE)


@pytest.mark.parametrize("kind", ["bart", "t5"])
def test_an_encoder_decoder_is_served_by_torch_which_is_said_and_is_not_exported(tmp_path: Path, kind: str) -> None:
    made = saved(tmp_path, kind)
    served = NewestModel(str(tmp_path / "model"), threads=2).current
    assert f", by torch: {kind} is an encoder–decoder" in served.describe()
    (answer,) = served.answer([PredictRequest(texts=TEXTS, probabilities=True)])
    found = np.array([list(one.probabilities.values()) for one in answer.predictions])
    assert np.abs(found - made.predict_proba(TEXTS)).max() <= 1e-6
    assert made.embed(TEXTS).shape == (len(TEXTS), 32)
    with pytest.raises(RequestError, match=f"--int8 cannot be used: {kind} is an encoder–decoder"):
        NewestModel(str(tmp_path / "model"), int8=True)
    with pytest.raises(RequestError, match=f"{kind} is an encoder–decoder, which has no ONNX graph"):
        export_model(str(tmp_path / "model"), str(tmp_path / "out"))
    assert not any((tmp_path / "out").iterdir())


def test_a_network_that_the_exporter_does_not_know_is_served_by_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    saved(tmp_path, "bert")

    def unknown(*_: object, **__: object) -> None:
        raise RuntimeError("an operator\nthat is unknown")

    monkeypatch.setattr(torch.onnx, "export", unknown)
    served = NewestModel(str(tmp_path / "model")).current
    assert "by torch: this network cannot be written as an ONNX graph: an operator that is unknown" in served.describe()
