"""Jobs over one corpus on a cluster, which leave what an undisturbed run leaves."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pyarrow.parquet as pq

from tests.cluster.nodes import ROOT, Nodes
from tests.cluster.processes import committed, content, count_rows, finish, trained, wait_until, write_corpus

ROWS = 20_000
ROUNDS = 5
SLOWLY = ("--generator-actors", "1", "--scorer-actors", "1")


def write_folder(folder: Path) -> None:
    """The inputs, and a working directory with the jobs alone: epida_ray is installed on the nodes."""
    write_corpus(folder / "in.parquet", ROWS)
    pq.write_table(pq.read_table(folder / "in.parquet").slice(0, 400), folder / "train.parquet")
    shutil.copytree(ROOT / "jobs", folder / "work" / "jobs", ignore=shutil.ignore_patterns("__pycache__"))


class Jobs:
    """The first run of each kind is undisturbed, and the others are compared with it."""

    def __init__(self, nodes: Nodes, folder: Path) -> None:
        self.nodes, self.folder = nodes, folder

    def _submit(self, script: str, source: str, name: str, *options: str, job: tuple[str, ...]) -> subprocess.Popen:
        return self.nodes.start(
            "submit", "--working-dir", str(self.folder / "work"), *job, "--", "python", f"jobs/{script}.py",
            str(self.folder / source), "--output", str(self.folder / name), *options,
        )  # fmt: skip

    def augment(self, name: str, *options: str, job: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        how = options or ("--generator-actors", "2", "--scorer-actors", "2")
        return self._submit("augment", "in.parquet", name, "--train-rows", "300", *how, job=job)

    def train(self, name: str) -> subprocess.Popen[str]:
        return self._submit(
            "train", "train.parquet", name, "--classifier", "cnn",
            "--rounds", str(ROUNDS), "--pretrain-epochs", "1", "--epochs-per-round",
            "2", "--workers", "1", *SLOWLY, job=(),
        )  # fmt: skip

    def manifest(self, name: str) -> dict:
        return json.loads((self.folder / name / "manifest.json").read_text())

    @property
    def shards(self) -> int:
        """How many an augmenting run has."""
        if not (self.folder / "undisturbed").exists():
            output = finish(self.augment("undisturbed"))
            assert "succeeded" in output and f"{ROWS:,} rows read" in output
            self.check("undisturbed")
        return self.manifest("undisturbed")["shards"]

    def augment_half(self, name: str, *options: str) -> subprocess.Popen[str]:
        """A run with half of its shards done."""
        half = self.shards // 2
        process = self.augment(name, *options)
        wait_until(process, "half of the shards", lambda: committed(self.folder / name) >= half)
        return process

    def check(self, name: str) -> dict:
        """An augmenting run has lost nothing, has nothing twice, and has the bytes of an undisturbed one."""
        assert content(self.folder / name) == content(self.folder / "undisturbed")
        count_rows(self.folder / name, ROWS)
        made = self.manifest(name)
        assert made["status"] == "finished" and made["done"]["rows"] == ROWS
        return made

    def train_half(self, name: str, round_: int = 2) -> subprocess.Popen[str]:
        """A training run after its second round, or another."""
        if not (self.folder / "trained").exists():
            assert "succeeded" in finish(self.train("trained"))
        process = self.train(name)
        last = self.folder / name / "checkpoint" / f"round-{round_:05d}.safetensors"
        wait_until(process, f"round {round_}", last.exists)
        return process

    def check_trained(self, name: str) -> None:
        count_rows(self.folder / name)
        assert trained(self.folder / name, ROUNDS) == trained(self.folder / "trained", ROUNDS)
