"""Connecting to Ray, and how many actors of which size fit on it."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import ray

from epida_ray.core.errors import RequestError, RunError
from epida_ray.core.progress import Reporter
from epida_ray.stream.compat import end_map_actors, loopback_only, map_actors, stop_ray_data

SHARE = 0.45
"""CPUs of a generator and of a scorer where there is no GPU. Both pools cover all cores, so the slower stage gets them;
a tenth is left over, for an actor that comes back after a node was lost."""
FINISH_SHARE = 0.2
"""CPUs of an actor that selects and writes, where scorers are on GPUs."""


def _target(address: str | None) -> str:
    return address or os.environ.get("RAY_ADDRESS") or "local"


_lock = threading.Lock()
_runs = 0
"""Runs of this process that go on, in its threads."""
_started = False
"""Whether this package has started the Ray that they use."""
_others: set[str] = set()
"""Actors of the caller's own pools."""


@contextmanager
def connected(address: str | None, reporter: Reporter | None = None) -> Iterator[None]:
    """Use the Ray that is there, join one, or start a local one that listens on loopback.

    Of several runs in threads of one process, the last ends what the others may still need: the pools, and a Ray that
    was started or joined here.
    """
    global _runs, _started, _others
    with _lock:
        starting = not ray.is_initialized()
        if starting:
            _start(address, reporter)
        if not _runs:
            _started, _others = starting, set(map_actors())
        _runs += 1
    try:
        with _sigterm_interrupts() if starting else nullcontext():
            yield
    except BaseException:
        if starting:
            silence_ray_data(logging.CRITICAL)
        raise
    finally:
        with _lock:
            _runs -= 1
            if not _runs:
                _leave()


def _start(address: str | None, reporter: Reporter | None) -> None:
    target = _target(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    local: dict[str, Any] = {"include_dashboard": False} if target == "local" else {}
    check_reachable(address)
    if reporter is not None:
        reporter.say("starting Ray on this machine" if local else f"joining Ray at {target}")
    try:
        with _silenced(), loopback_only() if local else nullcontext():
            ray.init(address=target, log_to_driver=False, logging_level=logging.ERROR, **local)
    except (ConnectionError, ValueError, TimeoutError) as error:
        reason = " ".join(str(error).split())[:200]
        raise RequestError(f"no Ray at --address {target}: {reason}; start one with `ray start --head`") from error
    except Exception as error:  # Ray raises bare ones when a machine is too busy or too small to start it
        raise RunError(f"Ray did not start: {' '.join(str(error).split())[:300]}") from error


def _leave() -> None:
    stop_ray_data(force=not _started)
    if _started:
        ray.shutdown()
    else:
        end_map_actors(_others)


def silence_ray_data(level: int) -> None:
    """Keep Ray Data's own messages below `level` off the terminal; its log file has them all."""
    for handler in logging.getLogger("ray.data").handlers:
        if not isinstance(handler, logging.FileHandler):
            handler.setLevel(level)


def check_reachable(address: str | None) -> None:
    """Raise RequestError when nobody answers at --address; runs call it before work that would be lost otherwise.

    Ray's core would end the process.
    """
    target = _target(address)
    host, colon, port = target.rpartition("://")[2].rpartition(":")
    if not colon or not port.isdigit():
        if target not in ("local", "auto") and "://" not in target:
            raise RequestError(f"no Ray at --address {target}: it must be local, auto or HOST:PORT")
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, UnicodeError, OverflowError) as error:  # the last two for a host or a port that cannot be one
        reason = getattr(error, "strerror", None) or str(error)
        raise RequestError(f"no Ray at --address {target}: {reason}; start one with `ray start --head`") from error


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM, which Ray's own handler would turn into an abort, end the run as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _silenced() -> Iterator[None]:
    """Silence standard error, to which Ray's core prints its log level; errors are raised."""
    kept = os.dup(2)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


class Pools(NamedTuple):
    """Sizes of the actor pools and what one actor of each takes."""

    generators: int
    generator_cpus: float
    scorers: int
    scorer_cpus: float
    scorer_gpus: float
    generator_gpus: float = 0.0


def cluster_cpus() -> float:
    """Return the number of CPUs of the Ray that is connected, at least one."""
    return max(1.0, float(ray.cluster_resources().get("CPU", 0.0)))


def size_pools(generators: int | None, scorers: int | None, generator_gpus: float = 0.0) -> Pools:
    """Fit the pools to the cluster; refuse what could never be scheduled and say what would fit."""
    resources = ray.cluster_resources()
    return fit_pools(resources.get("CPU", 0.0), resources.get("GPU", 0.0), generators, scorers, generator_gpus)


def fit_pools(
    cpus: float, gpus: float, generators: int | None, scorers: int | None, generator_gpus: float = 0.0, workers: int = 0
) -> Pools:
    """Return pools that fit. `workers` train beside them; their CPUs are not in `cpus`, but they share the GPUs."""
    if cpus < 1:
        raise RequestError(f"Ray has {cpus:g} CPUs here; a run needs at least one")
    devices = int(gpus)
    if generator_gpus and not devices:
        raise RequestError(f"--generator-gpus {generator_gpus:g}: this Ray has no GPU; leave it out")
    if devices:
        # Where scorers are not alone on the GPUs, all take an equal share: unequal ones may not fit a device's rest.
        share = generator_gpus or (0.5 if workers else 0.0)
        free = devices * int(1 / share) - workers if share else 0
        default = max(1, min(devices, free - bool(generator_gpus))) if share else devices
        scorer_count = scorers or default
        scorer_gpus = share or int(10_000 / math.ceil(scorer_count / devices)) / 10_000
        scorer_cpus = min(1.0, cpus / (4 * scorer_count))
        room = cpus - scorer_count * (scorer_cpus + FINISH_SHARE)
        generator_cpus = 1.0 if room >= 1 else SHARE
        most = int(room / generator_cpus)
        generator_count = generators or max(1, min(most, free - scorer_count) if generator_gpus else most)
        pools = Pools(generator_count, generator_cpus, scorer_count, scorer_cpus, scorer_gpus, generator_gpus)
        on_gpus = scorer_count + (generator_count if generator_gpus else 0)
        if share and on_gpus > free:
            raise RequestError(
                f"{workers} train workers, {scorer_count} scorers and {generator_count if generator_gpus else 0} "
                f"generators take {share:g} GPUs each and this Ray has {devices}; use fewer of them"
                + (" or a smaller --generator-gpus" if generator_gpus else "")
            )
    else:
        pools = Pools(generators or int(cpus), SHARE, scorers or int(cpus), SHARE, 0.0)
    finish_cpus = FINISH_SHARE if pools.scorer_gpus else 0.0
    needed = pools.generators * pools.generator_cpus + pools.scorers * (pools.scorer_cpus + finish_cpus)
    if needed > cpus + 1e-9:
        # Scorers on GPUs take a quarter of the CPUs together, and FINISH_SHARE each; one generator has to fit beside.
        most = min(default, int((0.75 * cpus - SHARE) / FINISH_SHARE)) if devices else int(cpus)
        fit = fit_pools(cpus, gpus, None, most, generator_gpus, workers)
        raise RequestError(
            f"{pools.generators} generators and {pools.scorers} scorers need {needed:.1f} CPUs and this Ray has "
            f"{cpus:g}; "
            f"--generator-actors {fit.generators} --scorer-actors {fit.scorers} would fit"
        )
    return pools
