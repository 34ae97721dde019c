"""A text that is there twice: in TRAIN, or in TRAIN and among the unlabelled texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epida_ray.core.errors import RequestError
from epida_ray.core.labels import dev_split
from epida_ray.core.options import make_request
from epida_ray.core.progress import Reporter
from epida_ray.method.local import train
from epida_ray.method.requests import TrainRequest
from epida_ray.method.trainer import LabelledRows

TEXTS = {
    f"please {verb} the {noun} {i}": verb for i in range(6) for verb in ("send", "keep") for noun in ("box", "bag")
}
POOL = [f"would you {verb} my {noun} {i}" for i in range(9) for verb in ("send", "keep") for noun in ("case", "tin")]


class Listens(Reporter):
    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        self.warnings.append(message)


def trained(folder: Path, pool: list[str], reporter: Reporter | None = None, **options: Any) -> dict[str, np.ndarray]:
    folder.mkdir()
    (folder / "in.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in TEXTS.items()))
    (folder / "pool.csv").write_text("text\n" + "".join(f"{text}\n" for text in pool))
    asked = {
        "input": str(folder / "in.csv"), "unlabelled": str(folder / "pool.csv"), "output": str(folder / "run"),
        "classifier": "linear", "generator": "none", "rounds": 2,
    }  # fmt: skip
    state: dict[str, np.ndarray] = train(make_request(TrainRequest, asked | options), reporter).classifier.state()
    return state


def test_texts_of_train_are_left_out_of_the_pool(tmp_path: Path) -> None:
    """Whether they are rows to learn from or dev rows, and however they are written."""
    reporter = Listens()
    alone = trained(tmp_path / "alone", POOL)
    mixed = trained(tmp_path / "mixed", [*POOL, *map(str.upper, TEXTS)], reporter)
    nothing = trained(tmp_path / "nothing", POOL[:1])
    assert any(f"{len(TEXTS)} texts of --unlabelled are in TRAIN too and are left out" in w for w in reporter.warnings)
    assert all(np.array_equal(alone[k], mixed[k]) for k in alone)
    assert not all(np.array_equal(alone[k], nothing[k]) for k in alone)
    with pytest.raises(RequestError, match=f"no text that can be used but {len(TEXTS)} of the labelled texts"):
        trained(tmp_path / "same", list(TEXTS))


@pytest.mark.parametrize("seed", range(8))
def test_rows_of_one_text_are_on_the_same_side_of_the_split(seed: int) -> None:
    texts = [f"text {i % 20}".replace("t", "T" if i % 3 else "t") for i in range(60)] + [
        f"other {i}" for i in range(20)
    ]
    rows = LabelledRows([str(i) for i in range(80)], texts, np.repeat([0, 1], [60, 20]))
    learn, dev = rows.split(0.2, seed)
    assert len(learn) + len(dev) == 80 and not {t.lower() for t in learn.texts} & {t.lower() for t in dev.texts}
    assert (dev.y == 0).sum() == 12 and (dev.y == 1).sum() == 4, "a fifth of the texts of each class"


@pytest.mark.parametrize("seed", range(8))
def test_no_class_is_left_without_a_row_to_learn_from(seed: int) -> None:
    texts = [f"text {i}" for i in range(5)] + ["text 0", "text 1", "one", "one"]
    rows = LabelledRows([str(i) for i in range(9)], texts, np.array([0] * 5 + [1, 1, 2, 2]))
    learn, dev = rows.split(0.5, seed)
    assert set(learn.y.tolist()) == {0, 1, 2} and not set(learn.texts) & set(dev.texts) and len(dev)


def test_without_equal_texts_the_split_is_what_it_was() -> None:
    y = np.arange(50) % 3
    rows = LabelledRows([str(i) for i in range(50)], [f"text {i}" for i in range(50)], y)
    assert rows.split(0.2, 4)[1].ids == [str(i) for i in np.flatnonzero(dev_split(y, 0.2, 4)).tolist()]
    taken = np.random.default_rng([4, 2]).permutation(np.flatnonzero(y == 0))[:3]
    assert set(taken.tolist()) == {int(i) for i in rows.split(0.2, 4)[1].ids if int(i) % 3 == 0}


def test_too_few_different_texts_still_give_a_dev_split() -> None:
    y = np.array([0, 1] * 10)
    same = np.zeros(20, np.int64)
    assert np.array_equal(dev_split(y, 0.2, 0, same), dev_split(y, 0.2, 0)) and dev_split(y, 0.2, 0, same).sum() == 4
