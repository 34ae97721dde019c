"""A search over a space of options with Ray Tune: Optuna suggests, ASHA stops what is behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ray import tune

from epida_ray.core.errors import RequestError, RunError

NAME = "ray"
"""The folder with Ray Tune's own files."""
METRIC = "score"
REDUCTION = 2
"""Of the trials at a rung, ASHA lets one in so many go on."""


class Range(NamedTuple):
    """Numbers from `low` to `high`; whole ones where both are."""

    low: float
    high: float
    log: bool = False


class Tried(NamedTuple):
    """A point of the space, and the last report of its trial."""

    config: dict[str, Any]
    metrics: dict[str, Any]
    steps: int


def search(
    evaluate: Callable[..., Iterator[dict[str, Any]]],
    arguments: tuple[Any, ...],
    space: Mapping[str, Any],
    *,
    trials: int,
    steps: int,
    output: Path,
    seed: int,
    quiet: bool,
) -> list[Tried]:
    """Try `trials` points of the space and return them; `evaluate(config, *arguments)` yields a report per step.

    A report has a `score`, larger is better. Values of the space are constants, lists of choices or ranges. Files of
    Ray Tune are in OUTPUT/ray; a search that was interrupted goes on from there.
    """
    try:
        import optuna  # noqa: F401  # Ray imports it only when it searches
        from ray.tune.search.optuna import OptunaSearch
    except ImportError as error:
        raise RequestError("epida tune needs Optuna; pip install 'epida-ray[tune]'") from error
    trainable = tune.with_resources(tune.with_parameters(_trial, evaluate=evaluate, arguments=arguments), {"cpu": 1})
    place = output / NAME
    if tune.Tuner.can_restore(str(place)):
        tuner = tune.Tuner.restore(str(place), trainable, resume_unfinished=True, restart_errored=True)
    else:
        tuner = tune.Tuner(
            trainable,
            param_space={name: _domain(value) for name, value in space.items()},
            tune_config=tune.TuneConfig(
                metric=METRIC,
                mode="max",
                num_samples=trials,
                search_alg=OptunaSearch(seed=seed),
                scheduler=tune.schedulers.ASHAScheduler(max_t=steps, grace_period=1, reduction_factor=REDUCTION),
            ),
            run_config=tune.RunConfig(name=NAME, storage_path=str(output), verbose=0 if quiet else 1),
        )
    grid = tuner.fit()
    results = [grid[i] for i in range(len(grid))]
    good = [result for result in results if result.error is None and METRIC in (result.metrics or {})]
    if not good:
        reason = f"; the first: {' '.join(str(grid[0].error).split())[-300:]}" if len(grid) else ""
        raise RunError(f"every trial of the search failed{reason}")
    return [Tried(r.config or {}, r.metrics or {}, int((r.metrics or {}).get("training_iteration", 0))) for r in good]


def _trial(
    config: dict[str, Any], evaluate: Callable[..., Iterator[dict[str, Any]]], arguments: tuple[Any, ...]
) -> None:
    for report in evaluate(config, *arguments):
        tune.report(report)


def _domain(value: Any) -> Any:
    if isinstance(value, list):
        return tune.choice(value)
    if not isinstance(value, Range):
        return value
    if isinstance(value.low, int) and isinstance(value.high, int):
        make = tune.lograndint if value.log else tune.randint
        return make(value.low, value.high + 1)
    return (tune.loguniform if value.log else tune.uniform)(value.low, value.high)
