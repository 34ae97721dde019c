"""What could let somebody in: ports, pickles, paths from data, and calls home."""

from __future__ import annotations

import ast
import ipaddress
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import epida_ray
from epida_ray.core.errors import RequestError
from epida_ray.data.plan import Columns, plan_inputs
from epida_ray.data.reader import ShardReader
from epida_ray.method.evaluate import evaluate_model
from epida_ray.method.preview import preview
from epida_ray.method.requests import AugmentRequest

PACKAGE = Path(epida_ray.__file__).parent

LISTENERS = """
import json, psutil
from epida_ray.stream.cluster import connected
with connected("local"):
    import os, ray
    ray.get(ray.remote(lambda: 1).remote())
    found = []
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        for one in process.net_connections(kind="inet"):
            if one.status == psutil.CONN_LISTEN:
                found.append([process.name(), one.laddr.ip, one.laddr.port])
    usage = ray._common.usage.usage_lib.usage_stats_enabled()
print(json.dumps([found, usage]))
"""


def test_a_local_ray_listens_on_loopback_only_and_calls_nobody() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LISTENERS], capture_output=True, text=True, timeout=240,
        env={k: v for k, v in os.environ.items() if not k.startswith("RAY_")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    listeners, usage = json.loads(done.stdout.splitlines()[-1])
    assert listeners and usage is False
    addresses = [ipaddress.ip_address(one[1]) for one in listeners]
    open_doors = [
        one
        for one, address in zip(listeners, addresses, strict=True)
        if not (getattr(address, "ipv4_mapped", None) or address).is_loopback
    ]
    assert not open_doors


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("column", ["text", "label", "id"])
def test_pickled_objects_in_a_parquet_file_stay_pickled(tmp_path: Path, column: str) -> None:
    from ray.data._internal.object_extensions.arrow import ArrowPythonObjectType

    exploded = tmp_path / "exploded"
    storage = pa.array([pickle.dumps(Bomb(exploded))] * 8, pa.large_binary())
    plain = {"text": [f"a text {i}" for i in range(8)], "label": ["a", "b"] * 4, "id": [str(i) for i in range(8)]}
    good = pa.table(plain)
    bad = pa.table(plain | {column: pa.ExtensionArray.from_storage(ArrowPythonObjectType(), storage)})
    pq.write_table(bad, tmp_path / "in.parquet")
    columns = Columns(id="id")
    with pytest.raises(RequestError, match="arrow_pickled_object; store it as plain strings"):
        plan_inputs(str(tmp_path / "in.parquet"), columns)
    pq.write_table(good, tmp_path / "in.parquet")
    plan = plan_inputs(str(tmp_path / "in.parquet"), columns)
    pq.write_table(bad, tmp_path / "in.parquet")
    file = plan.files[0].model_copy(update={"bytes": (tmp_path / "in.parquet").stat().st_size})
    plan = plan.model_copy(update={"files": (file,)})  # a file of another size would be refused before it is opened
    rows = ShardReader(plan).read(next(plan.shards()))
    assert all("arrow_pickled_object" in reason for reason in rows["reason"].to_pylist())
    assert not exploded.exists()
    pickle.loads(storage[0].as_py())
    assert exploded.exists(), "the bomb is a dud"


EVIL = {
    "a command": {"classifier": "subprocess:Popen", "keeps": False, "arguments": {"args": ["touch", "EXPLODED"]}},
    "a pickle": {"classifier": "sklearn.utils.parallel:joblib", "keeps": True, "arguments": {}},
    "a factory": {"classifier": "sklearn:x", "keeps": False, "arguments": {"source": "own", "trust_pickle": True}},
}


@pytest.mark.parametrize("evil", EVIL)
@pytest.mark.parametrize("named", [False, True])
def test_a_model_directory_runs_no_code(tmp_path: Path, evil: str, named: bool, monkeypatch) -> None:
    """Neither unasked nor when the user was talked into naming something that is no classifier."""
    monkeypatch.chdir(tmp_path)
    exploded = tmp_path / "EXPLODED"
    config = EVIL[evil] | {"labels": ["a", "b"], "temperature": 1.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "own").write_bytes(pickle.dumps(Bomb(exploded)))
    (tmp_path / "in.csv").write_text("text,label\nx,a\ny,b\n")
    trust = [config["classifier"]] if named else []
    with pytest.raises(RequestError, match="no predict_proba|not a class with|would run"):
        evaluate_model(str(tmp_path), str(tmp_path / "in.csv"), "text", "label", trust_code=trust)
    with pytest.raises(RequestError, match="no predict_proba|not a class with|would run"):
        preview("some words to rewrite", classifier=str(tmp_path), label="a", trust_code=tuple(trust))
    assert not exploded.exists()


def test_a_run_trusts_the_code_that_its_request_names(tmp_path: Path) -> None:
    def trusted(**options: object) -> tuple[str, ...]:
        return AugmentRequest(input="in.csv", output="out", **options).trusted()

    assert trusted(classifier="my:Class", trust_code=["my.Type"]) == ("my:Class", "my.Type")
    assert "my.Type" in trusted(classifier="sklearn:p.skops", classifier_args={"trust": ["my.Type"]})
    (tmp_path / "my:Class").mkdir()
    assert trusted(classifier=str(tmp_path / "my:Class")) == ()


LOADERS = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def test_no_module_loads_pickles() -> None:
    """Neither by name nor through torch and numpy, whose loaders are safe only when told so.

    The one exception is a scikit-learn pipeline that the user says to trust.
    """
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(alias.name for alias in node.names)]
            if {part for name in names for part in name.split(".")} & LOADERS:
                found.append(f"{path.name} imports a pickle module")
            if isinstance(node, ast.Call):
                call, options = ast.unparse(node.func), {k.arg: ast.unparse(k.value) for k in node.keywords}
                if call in ("torch.load", "skops.io.load") and options.get("weights_only") != "True":
                    found.append(f"{path.name}:{node.lineno} {call}")
                if options.get("allow_pickle") == "True" or options.get("trust_remote_code") == "True":
                    found.append(f"{path.name}:{node.lineno} {call}")
    assert found == ["sklearn.py imports a pickle module"]


@pytest.mark.parametrize("name", ["%2f..%2fevil", "a\\..\\b", "x" * 200, "ünïcode 🙂", "-rf", "a'b\"c;d"])
def test_names_of_outputs_stay_inside_whatever_the_input_is_called(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "in" / ".." / "in" / "deep"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"text": ["one two"], "label": ["a"]}), folder / f"{name}.parquet")
    plan = plan_inputs(str(tmp_path / "in"), Columns())
    for shard in plan.shards():
        made = plan.shard_name(shard)
        assert "/" not in made and "\\" not in made and not made.startswith(".") and len(made.encode()) < 200


def test_ids_and_labels_that_look_like_paths_name_no_file(tmp_path: Path) -> None:
    table = pa.table({"text": ["one two"], "label": ["../../x"], "id": ["/etc/passwd"]})
    pq.write_table(table, tmp_path / "in.parquet")
    plan = plan_inputs(str(tmp_path / "in.parquet"), Columns(id="id"))
    (shard,) = plan.shards()
    assert plan.shard_name(shard).startswith("in.parquet-0000")
