"""The space that `epida tune` searches: options of `epida train` with the values that they may have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from epida_ray.core.errors import RequestError
from epida_ray.core.options import by_field, flag, option_of
from epida_ray.experiments.compare_recipes import Recipe
from epida_ray.generate.policy import OPERATIONS
from epida_ray.method.defaults import REWRITING
from epida_ray.method.requests import METHOD, NO_GENERATOR, TRAINING, TrainRequest
from epida_ray.stream.search import Range

DEFAULT: dict[str, Any] = {
    "classifier": "cnn",
    "m": [1, 3, 5],
    "k": [2, 3, 5],
    "select": ["rem+cem", "rem", "cem", "random"],
    "alpha": {"from": 0.1, "to": 0.9},
    "learning-rate": {"from": 0.001, "to": 0.01, "log": True},
    "policy": {
        name: {"probability": {"from": 0.0, "to": 1.0}, "magnitude": {"from": 0.05, "to": 0.5}} for name in OPERATIONS
    },
}
SEARCHED = {name for name, info in TrainRequest.model_fields.items() if option_of(info).group in (METHOD, TRAINING)} - {
    "seed",
    "dev",
    "eval",
    "max_staleness",
    "workers",
    "threads",
}
"""Options that change how a point of the space is trained."""
RARE = 0.05
"""An operation that is less probable than this is left out of a policy."""
BETWEEN = "."


def read_space(path: str | None) -> dict[str, Any]:
    """Return the space of a YAML file, or the default, as values by path: `m`, `policy.swap.magnitude`.

    A value is a constant, a list of choices, or a range: {from: 0.1, to: 0.9}, with `log: true` if need be.
    """
    if path is None:
        given: Any = DEFAULT
    else:
        try:
            given = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError, ValueError) as error:
            raise RequestError(
                f"--space {path}: {getattr(error, 'strerror', None) or ' '.join(str(error).split())}"
            ) from error
    if not isinstance(given, Mapping):
        raise RequestError(f"--space {path}: must map options of `epida train` to values, such as `m: [1, 3, 5]`")
    policy = given.get("policy", {})
    if not isinstance(policy, Mapping) or (unknown := sorted(set(policy) - set(OPERATIONS))):
        wrong = f"there is no operation {unknown[0]!r}; " if isinstance(policy, Mapping) else ""
        raise RequestError(f"--space: {wrong}policy has operations: {', '.join(OPERATIONS)}")
    plain = by_field(TrainRequest, {name: value for name, value in given.items() if name != "policy"})
    if unknown_options := sorted(set(plain) - set(TrainRequest.model_fields)):
        raise RequestError(f"--space: `epida train` has no option {unknown_options[0]!r}")
    if ignored := sorted(set(plain) - SEARCHED):
        raise RequestError(f"--space: the search does not use {flag(ignored[0], TrainRequest)}; leave it out")
    plain.setdefault("classifier", DEFAULT["classifier"])
    if policy and "generator" in plain:
        raise RequestError("--space has both a generator and a policy; leave one of them out")
    space = dict(_flat("", plain | ({"policy": dict(policy)} if policy else {})))
    if not any(isinstance(value, list | Range) for value in space.values()):
        raise RequestError("--space has nothing to search: no option has a list or a range of values")
    return space


def _flat(path: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping) and not {"from", "to"} & value.keys():
        return [pair for name, one in value.items() for pair in _flat(f"{path}{BETWEEN}{name}" if path else name, one)]
    if isinstance(value, Mapping):
        low, high, log = value.get("from"), value.get("to"), value.get("log", False)
        numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in (low, high))
        if not numbers or value.keys() - {"from", "to", "log"} or not low < high or (log and low <= 0):  # type: ignore[operator]
            raise RequestError(f"--space: {path} is a range such as {{from: 0.1, to: 0.9}}, not {dict(value)}")
        return [(path, Range(low, high, bool(log)))]  # type: ignore[arg-type]
    if isinstance(value, list) and not value:
        raise RequestError(f"--space: {path} has an empty list of choices")
    return [(path, value)]


def baseline(space: Mapping[str, Any]) -> Recipe:
    """Return the recipe that the search must beat: its constants, and of classifiers the first, without rewrites."""
    constants = {name: value for name, value in space.items() if not isinstance(value, list | Range)}
    if isinstance(classifiers := space["classifier"], list):
        constants["classifier"] = classifiers[0]
    return without_rewrites(_nested(constants))


def without_rewrites(options: Mapping[str, Any]) -> Recipe:
    """Return the recipe with these options, except those of rewrites."""
    plain = {name: value for name, value in options.items() if name not in REWRITING | {"policy"}}
    return Recipe("without rewrites", 0, plain | {"generator": NO_GENERATOR})


def tuned(config: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a point of the space."""
    options = _nested(config)
    operations = [
        {"operation": name} | {k: round(float(v), 4) for k, v in one.items()}
        for name, one in options.pop("policy", {}).items()
        if float(one.get("probability", 0.5)) >= RARE
    ]
    if operations:
        options |= {"generator": "policy", "generator_args": {"operations": operations}}
    elif "policy" in {name.partition(BETWEEN)[0] for name in config}:
        options |= {"generator": NO_GENERATOR}
    alpha = options.pop("alpha", None)
    if alpha is not None and "+" in options.get("select", "rem+cem") and options.get("generator") != NO_GENERATOR:
        options |= {"combine": "weighted", "alpha": round(float(alpha), 4)}
    return Recipe("tuned", 1, options)


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for path, value in flat.items():
        *folders, name = path.split(BETWEEN)
        inner = out
        for folder in folders:
            inner = inner.setdefault(folder, {})
        inner[name] = value
    return out
