"""The one Ray Train run of a training run."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from typing import Any

import ray.train
import ray.train.torch
import ray.tune  # here, because Ray Train would import it in our thread, where an interrupt can leave locks behind

from epida_ray.core.errors import RunError
from epida_ray.method.round_worker import Task
from epida_ray.runs import layout
from epida_ray.stream.cluster import Pools
from epida_ray.stream.pipeline import failure
from epida_ray.stream.worker import train_rounds

MAX_FAILURES = 8
"""Train workers may die this often in one run before it gives up."""


class Fit:
    """Ray Train in a thread of its own, because `fit()` blocks."""

    def __init__(self, task: Task, workers: int, pools: Pools) -> None:
        os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.5")
        self._folder = tempfile.TemporaryDirectory(prefix="epida-train-")
        self._error: BaseException | None = None
        self._storage, self._driver = task.storage, task.driver
        gpu = pools.scorer_gpus > 0
        trainer = ray.train.torch.TorchTrainer(
            _loop,
            train_loop_config={"task": task},
            scaling_config=ray.train.ScalingConfig(
                num_workers=workers,
                use_gpu=gpu,
                resources_per_worker={"CPU": 1, "GPU": pools.scorer_gpus} if gpu else {"CPU": 1},
            ),
            run_config=ray.train.RunConfig(
                name=f"epida-{task.driver}",
                storage_path=self._folder.name,
                failure_config=ray.train.FailureConfig(max_failures=MAX_FAILURES),
            ),
        )
        self._thread = threading.Thread(target=self._fit, args=(trainer,), daemon=True, name="epida-train")
        self._thread.start()

    def _fit(self, trainer: ray.train.torch.TorchTrainer) -> None:
        try:
            trainer.fit()
        except BaseException as error:
            self._error = error

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def check(self) -> None:
        """Raise what ended training, if anything did."""
        if self._storage.exists(layout.FAILURE):
            told = json.loads(self._storage.read(layout.FAILURE))
            if told["driver"] == self._driver:
                self._storage.remove(layout.FAILURE)
                raise RunError(told["reason"])
        if self._error is not None:
            raise failure("training", self._error)

    def wait_briefly(self) -> None:
        self._thread.join(0.2)

    def leave(self) -> None:
        self._thread.join(0.1)
        self._folder.cleanup()


def _loop(settings: dict[str, Any]) -> None:
    train_rounds(settings["task"])
