"""The train workers of a run on Ray Train."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import ray
import ray.train
import ray.train.torch
import torch

from epida_ray.core.errors import EpidaError, TakenOver
from epida_ray.data.storage import refusal
from epida_ray.method.round_worker import Task, Worker
from epida_ray.runs import layout


def train_rounds(task: Task) -> None:
    """Run the loop of one Ray Train run. It starts from the checkpoint in the run's directory, the only truth."""
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    try:
        Worker(task, rank, world, ray.util.get_node_ip_address(), **_distributed(world)).run()
    except EpidaError as error:  # would be the same after a restart, so it is told, not raised
        _tell(task, str(error))
    except OSError as error:
        if (reason := refusal(error)) is None:
            raise
        _tell(task, f"cannot write to {task.storage.location} on the node {ray.util.get_node_ip_address()}: {reason}")


def _tell(task: Task, reason: str) -> None:
    with suppress(TakenOver):  # the driver finds that out for itself
        task.storage.write(layout.FAILURE, json.dumps({"driver": task.driver, "reason": reason}).encode())


def _distributed(world: int) -> dict[str, Any]:
    device = ray.train.torch.get_device() if torch.cuda.is_available() else torch.device("cpu")
    return {"device": str(device), "wrap": torch.nn.parallel.DistributedDataParallel if world > 1 else None}
