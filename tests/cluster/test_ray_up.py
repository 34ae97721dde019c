"""`ray up` with jobs/cluster-local.yaml on two machines behind SSH: a head, a worker, and a job on both.

Each machine is a network namespace with processes, a home, and temporary files of its own, and an SSH server. The file
is taken as it is but for the addresses, the user, the key, and the installation, which is that of the tests.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.nodes import ROOT, Network
from tests.cluster.processes import LIMIT, count_rows, write_corpus

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200)]
ROWS = 2_000
SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
MACHINE = """
mount --bind {shared} /mnt && mount --bind {private}/home /srv && mount --bind {private}/tmp /tmp &&
mount --bind {private}/passwd /etc/passwd && mkdir -p /run/sshd && exec {sshd} -D -f /srv/sshd_config -E /srv/sshd.log
"""
PASSWD = "sshd:x:102:65534::/run/sshd:/usr/sbin/nologin\n"
SSHD_CONFIG = """
HostKey /srv/host_key
AuthorizedKeysFile /srv/authorized_keys
PermitRootLogin prohibit-password
PidFile none
StrictModes no
UsePAM no
"""


@pytest.fixture
def base() -> Iterator[Path]:
    """Not below the temporary directory, which is hidden from the machines."""
    folder = Path("/var/tmp") / f"epida-{secrets.token_hex(4)}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def machines(base: Path) -> Iterator[list[str]]:
    """Addresses of two machines that take the key in `base`."""
    missing = [name for name in ("ssh", "ssh-keygen", "rsync", "unshare", SSHD) if shutil.which(name) is None]
    if missing or not Network.possible():
        pytest.skip(f"machines cannot be made here: {', '.join(missing) or 'no root, or no network namespaces'}")
    (base / "shared").mkdir()
    make_key(base / "key")
    running: list[subprocess.Popen[bytes]] = []
    with Network() as network:
        try:
            addresses = []
            for _ in range(2):
                namespace, address = network.add()
                private = base / namespace
                for name in ("home", "tmp"):
                    (private / name).mkdir(parents=True)
                make_key(private / "home" / "host_key")
                shutil.copy(base / "key.pub", private / "home" / "authorized_keys")
                (private / "home" / "sshd_config").write_text(SSHD_CONFIG)
                (private / "home" / ".bashrc").touch()
                (private / "passwd").write_text(f"root:x:0:0:root:/srv:/bin/bash\n{PASSWD}")
                script = MACHINE.format(shared=base / "shared", private=private, sshd=SSHD)
                command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]
                running.append(subprocess.Popen(["ip", "netns", "exec", namespace, *command]))
                addresses.append(address)
            for address in addresses:
                wait_for_port(address, 22)
            yield addresses
        finally:
            for process in running:
                process.kill()
                process.wait(LIMIT)


def make_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


def wait_for_port(host: str, port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection((host, port), timeout=5).close()
            return
        except OSError:
            assert time.monotonic() < deadline, f"nobody listens at {host}:{port}"
            time.sleep(0.2)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def described(base: Path, machines: list[str]) -> Path:
    """jobs/cluster-local.yaml with these machines."""
    config = yaml.safe_load((ROOT / "jobs" / "cluster-local.yaml").read_text())
    config["cluster_name"] = base.name
    config["provider"] |= {"head_ip": machines[0], "worker_ips": machines[1:]}
    config["auth"] = {"ssh_user": "root", "ssh_private_key": str(base / "key")}
    config["min_workers"] = config["max_workers"] = len(machines) - 1
    assert "pip install" in config["setup_commands"][-1]
    config["setup_commands"] = [f"ln -sfn {sys.prefix} ~/epida_venv", *config["setup_commands"][:-1]]
    (base / "cluster.yaml").write_text(yaml.safe_dump(config))
    return base / "cluster.yaml"


def test_a_head_and_a_worker_start_and_run_a_job(base: Path, machines: list[str]) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")} | {
        "HOME": str(base),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
    }

    def ray(*arguments: str) -> str:
        done = subprocess.run(
            ["ray", *arguments], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    ray("get-auth-token", "--generate")
    token = (base / ".ray" / "auth_token").read_text().strip()
    cluster = str(described(base, machines))
    ray("up", "--yes", "--no-config-cache", cluster)
    port = free_port()
    tunnel = subprocess.Popen(
        ["ray", "dashboard", "--no-config-cache", "--port", str(port), cluster],
        env=environment, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        wait_for_port("127.0.0.1", port)
        address = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + LIMIT
        while (alive := alive_nodes(address, token)) != set(machines):
            assert time.monotonic() < deadline, f"alive are {alive}"
            time.sleep(1)
        write_corpus(base / "shared" / "in.parquet", ROWS)
        output = ray(
            "job", "submit", "--address", address, "--working-dir", "jobs", "--", "python", "augment.py",
            "/mnt/in.parquet", "--output", "/mnt/run", "--train-rows", "300",
        )  # fmt: skip
        assert "succeeded" in output and f"{ROWS:,} rows read" in output
        count_rows(base / "shared" / "run", ROWS)
        manifest = json.loads((base / "shared" / "run" / "manifest.json").read_text())
        assert set(manifest["nodes"]) <= set(machines) and manifest["driver"] == machines[0]
    finally:
        os.killpg(tunnel.pid, signal.SIGKILL)
        tunnel.wait(LIMIT)
    ray("down", "--yes", cluster)


def alive_nodes(address: str, token: str) -> set[str]:
    request = urllib.request.Request(f"{address}/nodes?view=summary")
    request.add_header("Authorization", f"Bearer {token}")
    answer: dict[str, Any] = json.loads(urllib.request.urlopen(request, timeout=60).read())
    return {one["ip"] for one in answer["data"]["summary"] if one["raylet"].get("state") == "ALIVE"}
