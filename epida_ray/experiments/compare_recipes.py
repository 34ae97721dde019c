"""The recipes that `epida compare` compares: each one a request of `epida train`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from epida_ray.classify import CLASSIFIERS
from epida_ray.classify.cnn import CNN
from epida_ray.core.errors import RequestError
from epida_ray.core.labels import dev_split
from epida_ray.core.options import flag, option_of
from epida_ray.method.checks import UNEVEN
from epida_ray.method.requests import NO_GENERATOR, TrainRequest, make_request
from epida_ray.method.schedule import make_schedule
from epida_ray.method.trainer import DEV_SHARE

LONGER = 3
"""How many times as many epochs the recipe with longer training has."""


@dataclass(frozen=True)
class Recipe:
    """A way to train a classifier."""

    name: str
    effort: int
    """What it asks of its user, from 0: a larger model to serve, rewrites to make, a pool to collect, a teacher to
    train. Between recipes of the same effort, the score alone decides."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of `epida train`."""
    pool: bool = False
    """Whether it learns from the unlabelled texts."""
    teacher: Recipe | None = None
    """Trained first; labels the unlabelled texts."""

    def request(self, input: str = "", output: str = "", **more: Any) -> TrainRequest:
        return make_request(TrainRequest, {"input": input, "output": output} | self.options | more)


def default_recipes(y: np.ndarray, pool: bool, generators: Sequence[str] = ("eda",)) -> list[Recipe]:
    """Return the recipes for labelled rows with these classes, the simplest first."""
    none = {"generator": NO_GENERATOR}
    cnn, encoder = {"classifier": "cnn"}, {"classifier": "encoder"}
    tuned = {**encoder, "classifier_args": {"tune": "contrastive"}}
    frozen, adapted = Recipe("encoder", 2, none | encoder), Recipe("encoder, tuned", 2, none | tuned)
    recipes = [
        Recipe("linear", 0, none | {"classifier": "linear"}),
        Recipe("cnn", 1, none | cnn),
        Recipe("cnn, trained longer", 1, none | cnn | _longer(y)),
    ]
    with_encoder = not any(row.name == "encoder" and row.missing for row in CLASSIFIERS.listing())
    if with_encoder:
        recipes += [frozen, adapted]
    counts = np.bincount(y)
    if counts.max() >= UNEVEN * max(1, counts.min()):
        recipes.append(Recipe("cnn, balanced", 1, none | cnn | {"balance": True}))
        if with_encoder:
            recipes.append(Recipe("encoder, balanced", 2, none | encoder | {"balance": True}))
    for name in generators:
        recipes += [
            Recipe(f"cnn, random {name} rewrites", 3, cnn | {"generator": name, "select": "random"}),
            Recipe(f"cnn, chosen {name} rewrites", 3, cnn | {"generator": name}),
        ]
        if with_encoder:
            chosen = Recipe(f"encoder, chosen {name} rewrites", 3, encoder | {"generator": name, "online": False})
            recipes.append(chosen)
    if pool and with_encoder:
        recipes += [
            Recipe("encoder, unlabelled texts", 4, none | encoder, pool=True),
            Recipe("encoder, tuned, unlabelled texts", 4, none | tuned, pool=True),
            Recipe("cnn, unlabelled texts, encoder as teacher", 5, none | cnn, pool=True, teacher=frozen),
            Recipe("cnn, unlabelled texts, tuned encoder as teacher", 5, none | cnn, pool=True, teacher=adapted),
        ]
    elif pool:
        recipes.append(Recipe("cnn, unlabelled texts", 4, none | cnn, pool=True))
    return sorted(recipes, key=lambda recipe: recipe.effort)


def _longer(y: np.ndarray) -> dict[str, int]:
    """Return the epochs of a CNN that learns about LONGER times as long from all rows as it does by default."""
    rows = len(y) - int(dev_split(y, DEV_SHARE, 0).sum())
    plain = make_schedule(rows, TrainRequest.model_fields["rounds"].default, CNN.defaults)
    return {
        "pretrain_epochs": LONGER * plain.pretrain,
        "epochs_per_round": max(1, round(LONGER * sum(plain.rounds) / len(plain.rounds))),
    }


def chosen_recipes(recipes: Sequence[Recipe], names: Sequence[str]) -> list[Recipe]:
    """Return the recipes with these names, or all; the simplest one is always among them."""
    known = {recipe.name: recipe for recipe in recipes}
    if unknown := [name for name in names if name not in known]:
        raise RequestError(f"there is no recipe {unknown[0]!r}; there are: {'; '.join(known)}")
    return [recipe for recipe in recipes if not names or recipe.name in names or recipe is recipes[0]]


def command_lines(recipe: Recipe, input: str, output: str, **more: Any) -> list[str]:
    """Return the commands that train a recipe; a teacher is trained by the first of two."""
    lines = []
    if recipe.teacher is not None:
        plain = {k: v for k, v in more.items() if k not in ("unlabelled", "eval")}
        lines += command_lines(recipe.teacher, input, f"{output}-teacher", **plain)
        more = more | {"teacher": f"{output}-teacher/model"}
    return [*lines, _command_line(recipe.request(input, output, **more))]


def _command_line(request: TrainRequest) -> str:
    """Return `epida train` with the options that differ from their defaults."""
    words = ["epida", "train", request.input]
    fresh = TrainRequest(input="", output="")
    for name, info in type(request).model_fields.items():
        value = getattr(request, name)
        if option_of(info).positional or value == getattr(fresh, name):
            continue
        on = flag(name, type(request))
        if isinstance(value, bool):
            words.append(on if value else option_of(info).off or f"--no-{on[2:]}")
        elif isinstance(value, dict):
            words += [word for key, one in value.items() for word in (on, f"{key}={one}")]
        else:
            words += [on, ",".join(value) if isinstance(value, tuple) else str(value)]
    return shlex.join(words)
