"""The parts of a server that need none: which files are the newest model, batches, tokens."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from epida_ray.classify.cnn import CNN
from epida_ray.classify.model import CARD
from epida_ray.core.errors import RequestError
from epida_ray.method.serving import (
    LONGEST_TEXT,
    MOST_TEXTS,
    NewestModel,
    PredictRequest,
    first_problem,
    hashed,
    is_token,
    read_token,
)
from epida_ray.runs.run import directory_digest

LABELS = ("ask", "tell", "buy")


def model(folder: Path, seed: int = 0, labels: tuple[str, ...] = LABELS) -> CNN:
    made = CNN(labels, vectors="hashed", channels=4, seed=seed)
    made.save(folder)
    return made


def test_several_requests_are_one_batch_and_each_gets_its_own(tmp_path: Path) -> None:
    made = model(tmp_path)
    served = NewestModel(str(tmp_path)).current
    texts = [["one text"], ["two", "texts"], ["a fourth text here"]]
    answers = served.answer([PredictRequest(texts=t, probabilities=len(t) > 1) for t in texts])
    for given, answer in zip(texts, answers, strict=True):
        p = made.predict_proba(given)
        assert answer.model_version == directory_digest(tmp_path)[:16]
        assert [one.label for one in answer.predictions] == [LABELS[i] for i in p.argmax(axis=1)]
        assert np.allclose([one.confidence for one in answer.predictions], p.max(axis=1), atol=1e-6)
        for one, row in zip(answer.predictions, p, strict=True):
            assert (one.probabilities is not None) == (len(given) > 1)
            if one.probabilities:
                assert np.allclose(list(one.probabilities.values()), row, atol=1e-6)


@pytest.mark.parametrize("folder", ["model", ".hidden/model"])
def test_a_new_model_is_taken_once_its_files_have_settled(tmp_path: Path, folder: str) -> None:
    tmp_path = tmp_path / folder
    tmp_path.mkdir(parents=True)
    model(tmp_path)
    newest = NewestModel(str(tmp_path))
    before = newest.current.version
    assert not newest.look()
    model(tmp_path, seed=1)
    assert not newest.look(), "the files changed a moment ago"
    assert newest.look() and newest.current.version != before
    assert not newest.look()
    (tmp_path / CARD).write_text("a card is no part of the model")
    assert not newest.look() and not newest.look()


def test_the_same_model_written_again_is_the_same_version(tmp_path: Path) -> None:
    model(tmp_path)
    newest = NewestModel(str(tmp_path))
    served = newest.current
    model(tmp_path)
    assert not newest.look() and not newest.look()
    assert newest.current is served and newest.problem is None


@pytest.mark.parametrize("how", ["cut short", "no configuration", "deleted", "not JSON"])
def test_a_model_that_cannot_be_loaded_leaves_the_old_one_in_place(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "model"
    model(folder)
    newest = NewestModel(str(folder))
    before = newest.current
    if how == "cut short":
        (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:100])
    elif how == "no configuration":
        (folder / "config.json").unlink()
    elif how == "deleted":
        shutil.rmtree(folder)
    else:
        (folder / "config.json").write_text("{")
    for _ in range(3):
        assert not newest.look()
    assert newest.current is before and newest.problem
    model(folder, seed=2, labels=("other", "labels"))
    assert not newest.look()
    assert newest.look() and newest.problem is None and newest.current.labels == ("other", "labels")


def test_a_directory_that_is_no_model_is_refused(tmp_path: Path) -> None:
    model(tmp_path / "run" / "model")
    with pytest.raises(RequestError, match="did you mean"):
        NewestModel(str(tmp_path / "run"))
    with pytest.raises(RequestError, match="no directory"):
        NewestModel(str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"texts": []},
        {"texts": "one text"},
        {"texts": [1]},
        {"texts": [None]},
        {"texts": ["x"] * (MOST_TEXTS + 1)},
        {"texts": ["x" * (LONGEST_TEXT + 1)]},
        {"texts": ["x"], "more": 1},
        {"texts": ["x"], "probabilities": "perhaps"},
    ],
)
def test_a_wrong_request_is_one_line_that_does_not_repeat_the_texts(body: dict) -> None:
    with pytest.raises(ValidationError) as caught:
        PredictRequest.model_validate(body)
    said = first_problem(caught.value.errors())
    assert 10 < len(said) < 200 and "\n" not in said and "xxx" not in said


def test_tokens(tmp_path: Path) -> None:
    assert read_token(None, None) is None and read_token(None, "") is None
    file = tmp_path / "token"
    file.write_text("0123456789abcdef\n")
    assert read_token(str(file), "of the environment, which the file overrides") == "0123456789abcdef"
    for wrong in ("short", "has spaces in it, so", "ünïcode-ünïcode-ünïcode"):
        with pytest.raises(RequestError, match="at least 16 characters"):
            read_token(None, wrong)
    with pytest.raises(RequestError, match="cannot be read"):
        read_token(str(tmp_path / "nowhere"), None)
    assert is_token("0123456789abcdef", hashed("0123456789abcdef")) and not is_token(
        "other", hashed("0123456789abcdef")
    )
