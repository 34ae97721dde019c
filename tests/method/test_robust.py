"""Training for noisy texts with an encoder that is tuned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from epida_ray.classify import tuning
from epida_ray.core.options import make_request
from epida_ray.method.local import train
from epida_ray.method.requests import TrainRequest
from tests.classify import tiny

THINGS = {"fruit": ["apple", "pear", "plum", "cherry"], "tool": ["hammer", "saw", "drill", "pliers"]}
TEXTS = {f"i want the {name} number {i}": label for label, names in THINGS.items() for name in names for i in range(5)}


def request(folder: Path, **options: Any) -> TrainRequest:
    (folder / "in.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in TEXTS.items()))
    if not (folder / "tiny").exists():
        tiny.transformer("bert", folder / "tiny")
    asked = {
        "input": str(folder / "in.csv"), "output": str(folder / "run"), "classifier": f"encoder:{folder / 'tiny'}",
        "rounds": 2, "generator_args": {"alpha": 0.5},
    }  # fmt: skip
    return make_request(TrainRequest, asked | options)


@pytest.mark.parametrize("how", ["contrastive", "full"])
def test_an_encoder_is_tuned_on_the_noisy_texts_of_each_round(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned: list[list[str]] = []
    tune = tuning.tune

    def seen(encoder: Any, texts: Sequence[str], *given: Any, **more: Any) -> None:
        learned.append(list(texts))
        tune(encoder, texts, *given, **more)

    monkeypatch.setattr(tuning, "tune", seen)
    classifier_args = {"tune": how, "steps": 2}
    train(request(tmp_path, robust="spelling", classifier_args=classifier_args))
    noisy = [[text for text in texts if text not in TEXTS] for texts in learned]
    assert len(learned) == 3 and not noisy[0], "the first round has no rewrites, and the last fit tunes nothing"
    assert all(len(some) > len(TEXTS) for some in noisy[1:])
    learned.clear()
    train(request(tmp_path, robust="spelling", classifier_args=classifier_args | {"retune": False}))
    train(request(tmp_path, generator="spelling", classifier_args=classifier_args))
    assert len(learned) == 2 and all(set(texts) <= set(TEXTS) for texts in learned)


def test_only_an_encoder_that_is_tuned_is_tuned_again(tmp_path: Path) -> None:
    def options(**more: Any) -> dict[str, Any]:
        return request(tmp_path, **more).classifier_options()

    assert options(robust="spelling", classifier_args={"tune": "full"}) == {"tune": "full", "retune": True}
    assert options(robust="spelling", classifier_args={}) == {}
    assert options(robust="spelling", classifier="cnn", classifier_args={}) == {}
    assert options(generator="spelling", classifier_args={"tune": "full"}) == {"tune": "full"}
