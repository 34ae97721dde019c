"""Experiment trackers: options, metrics and the model of a run, sent to MLflow, Weights & Biases or TensorBoard.

A tracker never makes a run fail: it is checked before the work begins, and what it refuses later is a warning.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from epida_ray.core.errors import RequestError
from epida_ray.core.progress import Reporter
from epida_ray.data.storage import Storage
from epida_ray.runs import layout
from epida_ray.runs.manifest import Manifest

PROJECT = "epida"
"""The experiment or project, unless the tracker's own variable names another."""
EXTRA = "pip install 'epida-ray[track]'"


class Tracker(Protocol):
    id: str
    """The id by which the tracker finds its run again."""

    def log(self, values: Mapping[str, float], step: int) -> None: ...

    def finish(self, values: Mapping[str, float], folder: Path | None, files: Sequence[Path]) -> None:
        """Send the last figures, the folder of the model and other files, and close the run."""
        ...


class MLflow:
    def __init__(self, name: str, parameters: Mapping[str, Any], known: str | None, storage: Storage) -> None:
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        if not uri:
            raise RequestError("--track mlflow needs a server: set MLFLOW_TRACKING_URI, such as http://localhost:5000")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # its default waits for minutes
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        logging.getLogger("mlflow").setLevel(logging.ERROR)
        self._client = MlflowClient(uri)
        if known is None:
            project = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
            found = self._client.get_experiment_by_name(project)
            experiment = found.experiment_id if found else self._client.create_experiment(project)
            known = self._client.create_run(experiment, run_name=name).info.run_id
            params = [Param(key, str(value)[:500]) for key, value in parameters.items()]
            self._client.log_batch(known, params=params)
        self.id = known

    def log(self, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._client.log_batch(self.id, metrics=[Metric(key, value, now, step) for key, value in values.items()])

    def finish(self, values: Mapping[str, float], folder: Path | None, files: Sequence[Path]) -> None:
        if values:
            self.log(values, 0)
        if folder is not None:
            self._client.log_artifacts(self.id, str(folder), folder.name)
        for file in files:
            self._client.log_artifact(self.id, str(file))
        self._client.set_terminated(self.id)


class WandB:
    def __init__(self, name: str, parameters: Mapping[str, Any], known: str | None, storage: Storage) -> None:
        import wandb

        self._wandb = wandb
        own_place = storage.root if storage.is_local and "WANDB_DIR" not in os.environ else None
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT), id=known, resume="allow", config=dict(parameters),
            settings=wandb.Settings(silent=True, console="off"), dir=own_place,
        )  # fmt: skip
        self.id = str(self._run.id)

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def finish(self, values: Mapping[str, float], folder: Path | None, files: Sequence[Path]) -> None:
        self._run.summary.update(dict(values))
        artifact = self._wandb.Artifact(f"epida-{self.id}", type="model")
        if folder is not None:
            artifact.add_dir(str(folder), folder.name)
        for file in files:
            artifact.add_file(str(file))
        self._run.log_artifact(artifact)
        self._run.finish()


class TensorBoard:
    id = layout.TENSORBOARD

    def __init__(self, name: str, parameters: Mapping[str, Any], known: str | None, storage: Storage) -> None:
        from torch.utils.tensorboard import SummaryWriter

        if not storage.is_local:
            raise RequestError("--track tensorboard needs a local --output")
        self._open = lambda: SummaryWriter(storage.path(layout.TENSORBOARD))
        if known is None:
            with self._open() as writer:
                writer.add_text("request", json.dumps(dict(parameters), indent=1))

    def log(self, values: Mapping[str, float], step: int) -> None:
        with self._open() as writer:
            for key, value in values.items():
                writer.add_scalar(key, value, step)

    def finish(self, values: Mapping[str, float], folder: Path | None, files: Sequence[Path]) -> None:
        self.log(values, 0)


TRACKERS: dict[str, type] = {"mlflow": MLflow, "wandb": WandB, "tensorboard": TensorBoard}


class Trackers:
    """The trackers of one command's output directory. `request` becomes the parameters."""

    def __init__(
        self, names: Iterable[str], storage: Storage, command: str, request: Mapping[str, Any], reporter: Reporter
    ) -> None:
        self._storage, self._reporter, self._open = storage, reporter, dict[str, Tracker]()
        known = json.loads(storage.read(layout.TRACKING)) if storage.exists(layout.TRACKING) else {}
        name = f"{command} {storage.location}"
        parameters = {"command": command} | {
            key: value if isinstance(value, str | int | float) else json.dumps(value)
            for key, value in request.items()
            if value not in (None, [], (), {}, "")
        }
        for kind in dict.fromkeys(names):
            if kind not in TRACKERS:
                raise RequestError(f"--track takes {', '.join(TRACKERS)}, not {kind!r}")
            try:
                self._open[kind] = TRACKERS[kind](name, parameters, known.get(kind), storage)
            except ImportError as error:
                raise RequestError(f"--track {kind} needs the package {error.name}: {EXTRA}") from error
            except RequestError:
                raise
            except Exception as error:
                raise RequestError(f"--track {kind}: {' '.join(str(error).split())[:300]}") from error
        if self._open:
            storage.write(layout.TRACKING, json.dumps({kind: one.id for kind, one in self._open.items()}).encode())

    def rounds(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Send the metrics of rounds."""
        for line in lines:
            self._each("log", numbers(line), line["round"])

    def finish_run(self, manifest: Manifest) -> None:
        """Send the last figures of a run, its model and its manifest."""
        values = {f"test_{k}": v for k, v in numbers(manifest.test or {}).items()}
        values |= {f"best_{k}": v for k, v in numbers(manifest.best.model_dump() if manifest.best else {}).items()}
        self.finish(values | numbers(manifest.done.model_dump()), (layout.MANIFEST, layout.METRICS))

    def finish(self, values: Mapping[str, float], names: Iterable[str]) -> None:
        """Send the last figures, the model if there is one, and of these files and the report those that are there."""
        if not self._open:
            return
        model = self._storage.local_copy(layout.MODEL) if self._storage.exists(layout.MODEL) else None
        present = [n for n in (*names, layout.REPORT) if self._storage.exists(n)]
        files = [Path(self._storage.path(n)) for n in present] if self._storage.is_local else []
        self._each("finish", values, model, files)

    def _each(self, method: str, *arguments: Any) -> None:
        for kind, tracker in list(self._open.items()):
            try:
                getattr(tracker, method)(*arguments)
            except Exception as error:  # a tracker that fails must not cost the run
                del self._open[kind]
                self._reporter.warn(f"{kind} receives nothing more of this run: {' '.join(str(error).split())[:300]}")


def numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the values that are numbers."""
    return {
        key: float(value)
        for key, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and key != "round"
    }
