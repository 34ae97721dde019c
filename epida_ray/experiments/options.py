"""How much of an experiment to run, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast, get_args

from epida_ray.core.errors import RequestError
from epida_ray.experiments.trials import Protocol

Setting = tuple[str, str]
"""(data set, size)"""


@dataclass(frozen=True)
class Options:
    """The options of `epida reproduce`."""

    seeds: tuple[int, ...] = ()
    """Without any, those of the experiment."""
    quick: bool = False
    full: bool = False
    protocol: Protocol = "dev"
    classifier: str = "cnn"
    classifier_args: dict[str, Any] = field(default_factory=dict)
    generators: tuple[str, ...] = ()
    generator_args: dict[str, Any] = field(default_factory=dict)
    """For each of `generators`."""
    settings: tuple[Setting, ...] = ()
    """Replace the experiment's own."""
    methods: tuple[str, ...] = ()
    """Names of the methods to run. Without any, all of the experiment."""
    clean: bool = False
    steps: int | None = None
    learning_rate: float | None = None
    text_column: str = "text"
    label_column: str | None = None


def make_options(
    *,
    seeds: int | None = None,
    quick: bool = False,
    full: bool = False,
    protocol: str = "dev",
    generators: Sequence[str] = (),
    generator_args: dict[str, Any] | None = None,
    settings: Sequence[str] = (),
    methods: Sequence[str] = (),
    steps: int | None = None,
    learning_rate: float | None = None,
    **more: Any,
) -> Options:
    """Check what a command line gives: `settings` are DATASET:SIZE such as trec:1%, agnews:60 or hub:ag_news:60."""
    if protocol not in get_args(Protocol):
        raise RequestError(f"--protocol is {' or '.join(get_args(Protocol))}, not {protocol!r}")
    if seeds is not None and seeds < 1:
        raise RequestError(f"--seeds is a number of seeds and at least 1, not {seeds}")
    if steps is not None and steps < 10:
        raise RequestError(f"--steps is at least 10, not {steps}")
    if learning_rate is not None and not learning_rate > 0:
        raise RequestError(f"--learning-rate is above 0, not {learning_rate:g}")
    if quick and full:
        raise RequestError("--quick and --full exclude each other; choose one")
    if generator_args and not generators:
        raise RequestError("--generator-arg needs --generator, which says whose argument it is")
    return Options(
        seeds=tuple(range(seeds or 0)), quick=quick, full=full, protocol=cast(Protocol, protocol),
        generators=tuple(generators), generator_args=generator_args or {}, settings=tuple(map(_setting, settings)),
        methods=tuple(methods), steps=steps, learning_rate=learning_rate, **more,
    )  # fmt: skip


def _setting(text: str) -> Setting:
    dataset, _, size = text.rpartition(":")
    if not dataset:
        raise RequestError(f"--setting is DATASET:SIZE, such as trec:1% or agnews:60, not {text!r}")
    return dataset, size
