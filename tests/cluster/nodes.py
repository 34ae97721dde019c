"""Ray nodes with addresses of their own on one machine, and ways to end them.

Each node is in a network namespace and sees its own processes alone where that is allowed (root), else it has a
loopback address of its own.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cluster.processes import TALLY, children

ROOT = Path(__file__).parents[2]
LIMIT = 600.0


class Node:
    """A machine with `ray start --block` and all that it started."""

    process: subprocess.Popen[bytes]

    def __init__(self, address: str, cpus: int, network: Network, namespace: str | None) -> None:
        self.address = address
        self.cpus = cpus
        self.namespace = namespace
        self._network = network

    @property
    def inside(self) -> list[str]:
        """What to put before a command that is to run on this node."""
        if self.namespace is None:
            return []
        deadline = time.monotonic() + LIMIT
        while not (first := psutil.Process(self.process.pid).children()) or not first[0].children():
            assert time.monotonic() < deadline, f"the node {self.address} does not start"
            time.sleep(0.1)
        return ["nsenter", "--target", str(first[0].pid), "--net", "--mount", "--pid"]

    @property
    def up(self) -> bool:
        return self.process.poll() is None

    def runs(self, title: str) -> bool:
        """Whether a process whose title has these words is on it."""
        return self.up and bool(children(self.process.pid, title))

    def cut_off(self) -> None:
        """From now on it reaches no other node and none reaches it; its disks stay."""
        assert self.namespace is not None
        TALLY.kills["partition"] += 1
        self._network.unplug(self.namespace)

    def heal(self) -> None:
        assert self.namespace is not None
        self._network.plug_in(self.namespace)

    @contextmanager
    def full_disk(self, folder: Path) -> Iterator[None]:
        """For the length of the block nothing fits into this folder on this node, and what is there is hidden."""
        if self.namespace is None:
            pytest.skip("nodes that share their disks cannot have a full one of their own")
        subprocess.run([*self.inside, "mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(folder)], check=True)
        try:
            yield
        finally:
            subprocess.run([*self.inside, "umount", "--lazy", str(folder)], check=True)

    def lose(self) -> None:
        """End it as losing the machine would."""
        TALLY.kills["node"] += 1
        self.kill()

    def kill(self) -> None:
        """End all of it at once and without notice."""
        try:
            parent = psutil.Process(self.process.pid)
            doomed = [*parent.children(recursive=True), parent]
        except psutil.NoSuchProcess:
            doomed = []
        for process in doomed:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self.process.wait(LIMIT)


class Network:
    """A bridge, and namespaces on it that each have an address. Use as a context manager, if `possible()`."""

    def __init__(self) -> None:
        self.name = f"e{os.getpid() % 10_000}{secrets.token_hex(1)}"
        self.subnet = f"10.{20 + os.getpid() % 200}.{secrets.randbelow(250)}"
        self.namespaces: list[str] = []

    @staticmethod
    def possible() -> bool:
        """It needs root and the tools."""
        tools = all(map(shutil.which, ("ip", "unshare", "nsenter")))
        return os.geteuid() == 0 and tools and _run("ip", "netns").returncode == 0

    def __enter__(self) -> Network:
        # With an address of its own. Else it has the lowest of its ports', and when that one is unplugged, the others
        # go on sending to the old one: for 54 s in a trial.
        mac = secrets.token_bytes(5).hex(":")
        _run("ip", "link", "add", self.name, "address", f"02:{mac}", "type", "bridge", check=True)
        _run("ip", "addr", "add", f"{self.subnet}.254/24", "dev", self.name, check=True)
        _run("ip", "link", "set", self.name, "up", check=True)
        return self

    def __exit__(self, *_: object) -> None:
        for namespace in self.namespaces:
            for pid in map(int, _run("ip", "netns", "pids", namespace).stdout.split()):
                if psutil.pid_exists(pid):
                    psutil.Process(pid).kill()
            _run("ip", "netns", "del", namespace)
            _run("ip", "link", "del", _link(namespace))
        _run("ip", "link", "del", self.name)

    def add(self) -> tuple[str, str]:
        """One more namespace, and its address."""
        number = len(self.namespaces) + 1
        namespace = f"{self.name}n{number}"
        outer = _link(namespace)
        address = f"{self.subnet}.{number}"
        _run("ip", "netns", "add", namespace, check=True)
        self.namespaces.append(namespace)
        _run("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", namespace, check=True)
        self.plug_in(namespace)
        _run("ip", "link", "set", outer, "up", check=True)
        _run("ip", "-n", namespace, "addr", "add", f"{address}/24", "dev", "eth0", check=True)
        for device in ("lo", "eth0"):
            _run("ip", "-n", namespace, "link", "set", device, "up", check=True)
        # It leads nowhere, but a driver learns its own address from it.
        _run("ip", "-n", namespace, "route", "add", "default", "via", f"{self.subnet}.254", check=True)
        return namespace, address

    def plug_in(self, namespace: str) -> None:
        _run("ip", "link", "set", _link(namespace), "master", self.name, check=True)

    def unplug(self, namespace: str) -> None:
        _run("ip", "link", "set", _link(namespace), "nomaster", check=True)


class Nodes:
    """A head and workers, with token authentication as in cluster.yaml. Use as a context manager."""

    def __init__(self, cpus: Sequence[int], **environment: str) -> None:
        """`cpus` of the head and of each worker, and what to set for all of them."""
        self.network = Network()
        self.isolated = Network.possible()
        self.temporary = Path("/tmp") / self.network.name
        self.nodes: list[Node] = []
        self._cpus = list(cpus)
        self.environment = (
            {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
            | {
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT),
                "OMP_NUM_THREADS": "1",
                "RAY_USAGE_STATS_ENABLED": "0",
                "RAY_AUTH_MODE": "token",
                "RAY_AUTH_TOKEN": secrets.token_hex(32),
                "RAY_JOB_STOP_WAIT_TIME_S": "60",
                "RAY_worker_niceness": "0",
            }
            | environment
        )

    def __enter__(self) -> Nodes:
        try:
            if self.isolated:
                self.network.__enter__()
            for cpus in self._cpus:
                self.add(cpus)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in reversed(self.nodes):
            node.kill()
        if self.isolated:
            self.network.__exit__()
        for folder in (self.temporary, *map(self.temporary.with_name, self.network.namespaces)):
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def workers(self) -> list[Node]:
        return [node for node in self.nodes[1:] if node.up]

    def worker_with(self, title: str) -> Node:
        """The first worker that a process with these words in its title is on."""
        return next(node for node in self.workers if node.runs(title))

    def add(self, cpus: int) -> Node:
        """One more node, ready for work; the first is the head."""
        if self.isolated:
            namespace, address = self.network.add()
            node = Node(address, cpus, self.network, namespace)
        else:
            node = Node(f"127.0.0.{len(self.nodes) + 1}", cpus, self.network, None)
        self.nodes.append(node)
        self.start_ray(node)
        return node

    def start_ray(self, node: Node) -> None:
        """On a new node, or on one that was lost."""
        prefix: list[str] = []
        if node.namespace is not None:
            # A driver takes the first node whose processes it sees to be its own, and finds it through the temporary
            # directory: so each node must see its own of both, and no others. The shell buries orphans, as init would.
            private = self.temporary.with_name(node.namespace)
            for folder in (private, self.temporary):
                folder.mkdir(exist_ok=True)
            script = f'mount --bind {private} {self.temporary} && "$@"; exit $?'
            apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, "sh"]
            prefix = ["ip", "netns", "exec", node.namespace, *apart]
        if node is self.nodes[0]:
            how = ["--head", "--port", "6379", "--temp-dir", str(self.temporary), "--dashboard-host", node.address]
        else:
            how = ["--address", f"{self.nodes[0].address}:6379"]
        node.process = subprocess.Popen(
            [
                *prefix, "ray", "start", *how, "--node-ip-address", node.address, "--num-cpus", str(node.cpus),
                "--object-store-memory", "200000000", "--block",
            ],
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.wait_for(1 + len(self.workers))

    def wait_for(self, count: int) -> None:
        """Until `count` nodes are alive and jobs are taken."""
        script = f"""
import ray, time, urllib.request, os
while True:
    try:
        ray.init("{self.nodes[0].address}:6379", log_to_driver=False)
        break
    except Exception:
        time.sleep(1)
while sum(node["Alive"] for node in ray.nodes()) != {count}:
    time.sleep(0.2)
request = urllib.request.Request("{self.dashboard}/api/jobs/")
request.add_header("Authorization", "Bearer " + os.environ["RAY_AUTH_TOKEN"])
while True:
    try:
        urllib.request.urlopen(request).read()
        break
    except OSError:
        time.sleep(0.5)
"""
        head = self.nodes[0]
        done = subprocess.run(
            [*head.inside, sys.executable, "-c", script],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    @property
    def dashboard(self) -> str:
        return f"http://{self.nodes[0].address}:8265"

    def stop_job(self, submission_id: str) -> None:
        """What `ray job stop` asks for, without the time that it takes to start."""
        self._ask(f"{submission_id}/stop", "POST")

    def job(self, submission_id: str) -> dict[str, Any]:
        return json.loads(self._ask(submission_id, "GET"))

    def _ask(self, path: str, method: str) -> bytes:
        request = urllib.request.Request(f"{self.dashboard}/api/jobs/{path}", method=method)
        request.add_header("Authorization", f"Bearer {self.environment['RAY_AUTH_TOKEN']}")
        return urllib.request.urlopen(request, timeout=LIMIT).read()

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A `ray job` command."""
        return subprocess.Popen(
            ["ray", "job", arguments[0], "--address", self.dashboard, *arguments[1:]],
            env=self.environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def _link(namespace: str) -> str:
    """The end of a namespace's cable that is at the bridge."""
    return namespace.replace("n", "v")


def _run(*command: str, check: bool = False) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=check)
