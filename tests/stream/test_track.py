"""Trackers: a real MLflow server, Weights & Biases in its offline mode, TensorBoard's files."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from epida_ray.core.errors import RequestError, RunError
from epida_ray.core.options import make_request
from epida_ray.core.progress import Reporter
from epida_ray.data.storage import Storage
from epida_ray.experiments.compare import CompareOptions, compare
from epida_ray.experiments.report import write_report
from epida_ray.experiments.tune import TuneOptions, tune
from epida_ray.method.requests import AugmentRequest, TrainRequest
from epida_ray.method.track import Trackers
from epida_ray.runs.manifest import Manifest
from epida_ray.runs.run import Run
from epida_ray.stream.augment import augment
from epida_ray.stream.driver import train
from epida_ray.stream.offline import interruptible
from tests.experiments.corpora import toy_rows, write_rows

LOCAL = {"generator_actors": 1, "scorer_actors": 1, "stall_timeout": 240.0, "classifier": "linear"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--backend-store-uri", f"sqlite:///{folder}/runs.db", "--artifacts-destination", str(folder / "files")]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, *options], stdout=log, stderr=log, cwd=folder, start_new_session=True)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            if process.poll() is not None:
                break
            try:
                urllib.request.urlopen(f"{address}/health", timeout=5).close()
                break
            except OSError:
                time.sleep(0.5)
        else:
            pytest.fail((folder / "log").read_text())
        assert process.poll() is None, (folder / "log").read_text()
        yield address
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.slow
@pytest.mark.usefixtures("local_ray")
def test_a_training_run_in_three_trackers(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.tracking import MlflowClient
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    monkeypatch.setenv("WANDB_MODE", "offline")
    file = write_rows(tmp_path / "in.csv", toy_rows(60, "in.csv"))
    out = tmp_path / "run"
    request = TrainRequest(
        input=file, output=str(out), rounds=2, workers=0, track=("mlflow", "wandb", "tensorboard"), **LOCAL
    )
    result = train(request, write_report=write_report)
    client = MlflowClient(server)
    experiment = client.get_experiment_by_name("epida")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED" and run.data.params["classifier"] == "linear"
    assert run.data.params["input"] == file and run.data.params["stall_timeout"] == "240.0"
    history = client.get_metric_history(run.info.run_id, "dev_macro_f1")
    assert {m.step: m.value for m in history} == {line["round"]: line["dev_macro_f1"] for line in result.metrics}
    assert run.data.metrics["best_macro_f1"] == result.metrics[result.best_round]["dev_macro_f1"]
    artifacts = {a.path for a in client.list_artifacts(run.info.run_id)}
    assert artifacts == {"model", "manifest.json", "metrics.jsonl", "report.html"}
    assert {a.path for a in client.list_artifacts(run.info.run_id, "model")} >= {"model/config.json"}
    (offline,) = (out / "wandb").glob("offline-run-*/run-*.wandb")
    assert b"dev_macro_f1" in offline.read_bytes()
    events = EventAccumulator(str(out / "tensorboard")).Reload()
    assert [e.step for e in events.Scalars("dev_macro_f1")] == [0, 1, 2]
    assert train(request).metrics == result.metrics  # finished: nothing is sent again
    assert len(client.search_runs([experiment.experiment_id])) == 1
    # a run that goes on continues in the same run of the tracker
    again = Trackers(("mlflow",), Storage(str(out)), "train", {}, Reporter())
    again.rounds([{"round": 3, "dev_macro_f1": 0.5}])
    assert len(client.get_metric_history(run.info.run_id, "dev_macro_f1")) == 4


def test_a_refused_run_is_failed_and_a_corrected_one_is_another(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "refused")
    client, file = MlflowClient(server), write_rows(tmp_path / "in.csv", toy_rows(60, "in.csv"))
    request = TrainRequest(input=file, output=str(tmp_path / "run"), track=("mlflow", "tensorboard"), **LOCAL)

    def statuses() -> list[str]:
        experiment = client.get_experiment_by_name("refused")
        assert experiment is not None
        return [run.info.status for run in client.search_runs([experiment.experiment_id], order_by=["start_time"])]

    (tmp_path / "dev.csv").write_text("text,label\nrain,weather\n")
    with pytest.raises(RequestError, match="weather"):
        train(request.model_copy(update={"dev": str(tmp_path / "dev.csv")}))
    assert statuses() == ["FAILED"]

    def interrupt(request: TrainRequest, run: Run, reporter: Reporter) -> None:
        with interruptible(run):
            raise KeyboardInterrupt

    monkeypatch.setattr("epida_ray.stream.driver._plan_rounds", interrupt)
    for _ in range(2):  # the second goes on with the same run
        with pytest.raises(RunError, match="interrupted"):
            train(request)
        assert statuses() == ["FAILED", "KILLED"]


@pytest.mark.slow
@pytest.mark.usefixtures("local_ray")
def test_augment_is_tracked_too(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "rewrites")
    file = write_rows(tmp_path / "in.csv", toy_rows(60, "in.csv"))
    done = augment(AugmentRequest(input=file, output=str(tmp_path / "run"), m=1, track=("mlflow",), **LOCAL))
    client = MlflowClient(server)
    experiment = client.get_experiment_by_name("rewrites")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.metrics["kept"] == done.kept == 60


@pytest.mark.slow
@pytest.mark.usefixtures("local_ray")
def test_compare_and_tune_are_tracked_too(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "searches")
    file = write_rows(tmp_path / "in.csv", toy_rows(120, "in.csv"))
    (tmp_path / "space.yaml").write_text("classifier: linear\nrounds: 1\nm: [1, 2]\n")
    compared = compare(
        CompareOptions(file, str(tmp_path / "compared"), time=120, recipes=("cnn",), folds=2, track=("mlflow",))
    )
    tuned = tune(
        TuneOptions(
            file, str(tmp_path / "tuned"), space=str(tmp_path / "space.yaml"), trials=2, folds=2, track=("mlflow",)
        )
    )
    client = MlflowClient(server)
    experiment = client.get_experiment_by_name("searches")
    assert experiment is not None
    runs = {run.data.params["command"]: run for run in client.search_runs([experiment.experiment_id])}
    assert {kind: run.info.status for kind, run in runs.items()} == {"compare": "FINISHED", "tune": "FINISHED"}
    assert runs["compare"].data.metrics["macro_f1_linear"] == compared.recipes[0]["macro_f1"]
    assert runs["tune"].data.metrics["outer"] == tuned.outer
    assert len(client.get_metric_history(runs["tune"].info.run_id, "macro_f1")) == tuned.trials
    files = {kind: {a.path for a in client.list_artifacts(run.info.run_id)} for kind, run in runs.items()}
    assert files["compare"] >= {"compare.json", "recipes.csv", "report.html"}
    assert files["tune"] >= {"tune.json", "best.yaml", "report.html"}


def test_a_tracker_that_is_not_there_is_said_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage(str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(RequestError, match="set MLFLOW_TRACKING_URI"):
        Trackers(("mlflow",), storage, "train", {}, Reporter())
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(RequestError, match="--track mlflow: .*127.0.0.1"):
        Trackers(("mlflow",), storage, "train", {}, Reporter())
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(RequestError, match=r"--track wandb needs the package wandb: pip install 'epida-ray\[track\]'"):
        Trackers(("wandb",), storage, "train", {}, Reporter())
    with pytest.raises(RequestError, match="--track takes mlflow, wandb, tensorboard, not 'neptune'"):
        Trackers(("neptune",), storage, "compare", {}, Reporter())
    with pytest.raises(RequestError, match="--track: Input should be 'mlflow', 'wandb' or 'tensorboard'"):
        make_request(TrainRequest, {"input": "a", "output": "b", "track": ["neptune"]})


def test_a_tracker_that_fails_later_does_not_cost_the_run(tmp_path: Path) -> None:
    class Heard(Reporter):
        said = ""

        def warn(self, message: str) -> None:
            Heard.said = message

    storage, manifest = Storage(str(tmp_path)), Manifest(kind="train", status="running", request={})
    trackers = Trackers(("tensorboard",), storage, "train", {}, Heard())
    trackers._open["tensorboard"].log = None  # type: ignore[method-assign, assignment]
    trackers.rounds([{"round": 0, "loss": 1.0}])
    trackers.finish_run(manifest)
    assert Heard.said.startswith("tensorboard receives nothing more of this run: ")
