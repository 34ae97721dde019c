"""serve.yaml as `serve deploy` takes it, and the same inside KubeRay's RayService."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

pytest.importorskip("fastapi_offline", reason="pip install 'epida-ray[serve]'")
JOBS = Path(__file__).parents[2] / "jobs"


def test_ray_serve_and_our_application_accept_the_file() -> None:
    from ray.serve.schema import ServeDeploySchema

    from epida_ray.stream.serve import Application, Server, application

    config = yaml.safe_load((JOBS / "serve.yaml").read_text())
    (app,) = ServeDeploySchema.model_validate(config).applications
    assert app.import_path == f"{application.__module__}:{application.__name__}"
    assert [d.name for d in app.deployments] == [Server.name]
    assert Application(**app.args).model.startswith("s3://")


def test_the_kubernetes_file_has_the_same_application_and_a_token() -> None:
    service = yaml.safe_load((JOBS / "rayservice.yaml").read_text())
    config = yaml.safe_load((JOBS / "serve.yaml").read_text())
    assert yaml.safe_load(service["spec"]["serveConfigV2"]) == config
    cluster = service["spec"]["rayClusterConfig"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for group in groups:
        (container,) = group["template"]["spec"]["containers"]
        assert "EPIDA_SERVE_TOKEN" in [one["name"] for one in container["env"]]
