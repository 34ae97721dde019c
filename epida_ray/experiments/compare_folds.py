"""One fold of one recipe: train on the other folds, predict this one; and the key of its stored result."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from epida_ray.classify.threads import torch_threads
from epida_ray.core.errors import RequestError
from epida_ray.experiments.cache import code_digest, plugin_contents
from epida_ray.experiments.compare_recipes import Recipe
from epida_ray.experiments.datasets import order_stratified
from epida_ray.experiments.trials import train_request
from epida_ray.generate import identifying
from epida_ray.method.folds import stratified_folds
from epida_ray.method.trainer import LabelledRows
from epida_ray.runs.manifest import versions

SPEED_TEXTS = 32


class Fold(NamedTuple):
    """The fold `number` of the repetition `repeat`, with a share of the rows that are learned from."""

    repeat: int
    number: int
    share: float = 1.0


@dataclass(frozen=True, eq=False)
class Data:
    """What is cross-validated."""

    rows: LabelledRows
    labels: tuple[str, ...]
    pool: tuple[str, ...]
    folds: int
    seed: int
    rare: frozenset[int] = frozenset()
    """Rows of classes with one row: always learned from, never tested."""
    _places: dict[int, np.ndarray] = field(default_factory=dict)
    """The fold of each row, by repetition: made once."""

    def digest(self) -> str:
        total = blake2b(json.dumps([self.labels, self.folds, self.seed, sorted(self.rare)]).encode(), digest_size=16)
        for texts in (self.rows.ids, self.rows.texts, self.pool):
            total.update("\0".join(texts).encode("utf-8", "surrogatepass") + b"\1")
        total.update(self.rows.y.tobytes())
        return total.hexdigest()

    def rows_digest(self) -> str:
        """Return a digest of the labelled rows alone."""
        return replace(self, pool=(), folds=0, seed=0, rare=frozenset()).digest()

    def split(self, fold: Fold) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows to learn from and the rows to test, both ascending."""
        if fold.repeat not in self._places:
            made = stratified_folds(self.rows.texts, self.rows.y, self.folds, self.seed + fold.repeat)
            self._places[fold.repeat] = made
        tested = self._places[fold.repeat] == fold.number
        tested[list(self.rare)] = False
        learned = np.flatnonzero(~tested)
        if fold.share < 1:
            order = order_stratified(self.rows.y[learned], self.seed + fold.repeat)
            learned = np.sort(learned[order[: max(2, round(fold.share * len(learned)))]])
        return learned, np.flatnonzero(tested)


def run_fold(recipe: Recipe, data: Data, fold: Fold) -> dict[str, Any]:
    """Train the recipe on what is not in the fold; return its predictions of the fold, and what they cost."""
    with torch_threads(1):  # the same bits on any machine
        learned, tested = data.split(fold)
        began = time.perf_counter()
        classifier = train_recipe(recipe, data, learned, data.seed + fold.repeat)
        seconds = time.perf_counter() - began
        texts = [data.rows.texts[i] for i in tested.tolist()]
        predicted = classifier.predict_proba(texts).argmax(axis=1)
        return {
            "predicted": predicted.tolist(),
            "learned": len(learned),
            "seconds": round(seconds, 3),
            "texts_per_second": round(_speed(classifier, texts), 1),
        }


def train_recipe(recipe: Recipe, data: Data, learned: np.ndarray, seed: int) -> Any:
    """Return the recipe's classifier, trained on these rows."""
    teacher = train_recipe(recipe.teacher, data, learned, seed) if recipe.teacher is not None else None
    texts = data.pool if recipe.pool else ()
    request = recipe.request(seed=seed, unlabelled="pool.parquet" if texts else None)
    train, dev = data.rows.take(learned).split(request.dev_share, seed)
    if not len(dev):
        raise RequestError("in one fold every class has one row, so no row is left to choose the round with; add rows")
    return train_request(request, train, dev, data.labels, texts=texts, teacher=teacher).classifier


def _speed(classifier: Any, texts: Sequence[str]) -> float:
    """Return how many texts a second are classified; each gets a number, so that no cache knows it."""
    now = time.time_ns()
    fresh = [f"{text} {now + i}" for i, text in enumerate(texts[:SPEED_TEXTS])]
    classifier.predict_proba(fresh[:1])  # the first call may compile something
    began = time.perf_counter()
    classifier.predict_proba(fresh[1:])
    return max(1, len(fresh) - 1) / max(1e-9, time.perf_counter() - began)


def fold_key(recipe: Recipe, data_digest: str, fold: Fold) -> str:
    """Return the key of a fold's result: whatever can change its predictions."""
    requests, one = [], recipe
    while True:
        request = one.request()
        arguments = identifying(request.generator, request.generator_args) if request.generator_args else {}
        own = plugin_contents(
            (request.classifier, request.generator), json.dumps([request.classifier_args, arguments], default=str)
        )
        requests.append([request.result_options(), one.pool, own])
        if one.teacher is None:
            break
        one = one.teacher
    text = json.dumps([code_digest(), data_digest, versions(), requests, fold], sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=12).hexdigest()
