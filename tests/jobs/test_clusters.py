"""The cluster descriptions, as Ray's own `ray up` and the RayJob resource of KubeRay 1.5 take them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).parents[2]


def read(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / name).read_text())


def prepared(name: str) -> dict[str, Any]:
    """What `ray up` makes of a file before it talks to a cloud; it raises what `ray up` would."""
    config = prepare_config(read(name))
    validate_config(config)
    return config


@pytest.mark.parametrize("name", ["cluster.yaml", "jobs/cluster-local.yaml"])
def test_ray_up_accepts_it(name: str) -> None:
    config = prepared(name)
    for commands in (config["head_start_ray_commands"], config["worker_start_ray_commands"]):
        words = shlex.split(commands[-1])
        assert "RAY_AUTH_MODE=token" in words and "RAY_USAGE_STATS_ENABLED=0" in words
    assert "--dashboard-host=127.0.0.1" in config["head_start_ray_commands"][-1]
    assert config["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"


def test_the_options_of_ray_start_exist() -> None:
    from ray.scripts.scripts import start

    known = {option for parameter in start.params for option in parameter.opts}
    for name in ("cluster.yaml", "jobs/cluster-local.yaml"):
        config = read(name)
        for command in (config["head_start_ray_commands"][-1], config["worker_start_ray_commands"][-1]):
            used = {word.partition("=")[0] for word in shlex.split(command) if word.startswith("--")}
            assert used and used <= known


def test_generators_and_scorers_are_spot_workers_within_limits_and_the_head_does_no_work() -> None:
    config = prepared("cluster.yaml")
    types = config["available_node_types"]
    assert types[config["head_node_type"]]["resources"] == {"CPU": 0}
    assert "InstanceMarketOptions" not in types["head"]["node_config"]
    for name, gpus in (("generators", 0), ("scorers", 1)):
        one = types[name]
        assert one["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
        assert 0 < one["min_workers"] <= one["max_workers"] and one["resources"].get("GPU", 0) == gpus
    assert config["max_workers"] >= types["generators"]["max_workers"] + types["scorers"]["max_workers"]


def test_a_wrong_field_would_be_noticed() -> None:
    config = prepare_config(read("cluster.yaml") | {"max_worker": 3})
    with pytest.raises(jsonschema.ValidationError, match="max_worker"):
        validate_config(config)


def test_all_of_them_run_the_ray_that_is_pinned() -> None:
    pinned = re.search(r"^ray(?:\[.*\])?==(\S+)", (ROOT / "constraints.txt").read_text(), re.M)
    assert pinned is not None
    for name in ("cluster.yaml", "jobs/rayjob.yaml", "jobs/Dockerfile"):
        text = (ROOT / name).read_text()
        assert set(re.findall(r"rayproject/ray:([\d.]+)|rayVersion: \"([\d.]+)\"", text)) <= {
            (pinned[1], ""),
            ("", pinned[1]),
        }
        assert pinned[1] in text


def _object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


STRING, WHOLE, FLAG = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
STRINGS = {"type": "object", "additionalProperties": STRING}
QUANTITIES = {"type": "object", "additionalProperties": {"type": "string", "pattern": r"^\d+(\.\d+)?(m|[KMGT]i?)?$"}}
CONTAINER = _object(
    ("name", "image"),
    name=STRING,
    image=STRING,
    resources=_object(requests=QUANTITIES, limits=QUANTITIES),
    env={"type": "array", "items": _object(("name",), name=STRING, value=STRING)},
    envFrom={"type": "array", "items": _object(secretRef=_object(("name",), name=STRING))},
)
POD = _object(
    ("spec",),
    spec=_object(
        ("containers",), containers={"type": "array", "items": CONTAINER, "minItems": 1}, nodeSelector=STRINGS
    ),
)
RAY_JOB = _object(
    ("apiVersion", "kind", "metadata", "spec"),
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayJob"},
    metadata=_object(("name",), name={"type": "string", "maxLength": 47}),
    spec=_object(
        ("entrypoint", "rayClusterSpec"),
        entrypoint=STRING,
        backoffLimit=WHOLE,
        submissionMode={"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"]},
        shutdownAfterJobFinishes=FLAG,
        ttlSecondsAfterFinished=WHOLE,
        rayClusterSpec=_object(
            ("headGroupSpec",),
            rayVersion=STRING,
            enableInTreeAutoscaling=FLAG,
            authOptions=_object(mode={"enum": ["disabled", "token"]}),
            headGroupSpec=_object(("template",), rayStartParams=STRINGS, template=POD),
            workerGroupSpecs={
                "type": "array",
                "items": _object(
                    ("groupName", "minReplicas", "maxReplicas", "template"),
                    groupName=STRING,
                    replicas=WHOLE,
                    minReplicas=WHOLE,
                    maxReplicas=WHOLE,
                    rayStartParams=STRINGS,
                    template=POD,
                ),
            },
        ),
    ),
)
"""The fields of the resource that the manifest uses, with the types that the resource's definition gives them."""


def test_the_rayjob_has_fields_that_kuberay_knows() -> None:
    manifest = read("jobs/rayjob.yaml")
    jsonschema.validate(manifest, RAY_JOB)
    cluster = manifest["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    for group in cluster["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
        (container,) = group["template"]["spec"]["containers"]
        assert container["resources"]["requests"] == container["resources"]["limits"]
    assert (ROOT / "jobs" / Path(shlex.split(manifest["spec"]["entrypoint"])[1]).name).is_file()
