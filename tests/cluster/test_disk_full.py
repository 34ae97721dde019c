"""A disk that is full in the middle of a run: said clearly, nothing lost, and the run goes on when there is room."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cluster.processes import WORDS, content, epida, finish, running

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]
TRAIN = (
    "--classifier",
    "cnn",
    "--rounds",
    "5",
    "--pretrain-epochs",
    "1",
    "--epochs-per-round",
    "2",
    "--generator-actors",
    "1",
    "--scorer-actors",
    "1",
)


@pytest.mark.parametrize(
    ("kind", "rows", "room", "options"),
    [
        ("augment", 12_000, "1m", ("--train-rows", "300")),
        ("train", 400, "2500k", (*TRAIN, "--workers", "0")),
        ("train", 400, "2500k", (*TRAIN, "--workers", "1")),
    ],
)
def test_a_full_disk_fails_the_run_with_one_line_and_it_resumes_when_there_is_room(
    tmp_path: Path, kind: str, rows: int, room: str, options: tuple[str, ...]
) -> None:
    texts = [" ".join(WORDS[(i * 7 + j * (i % 97 + 1)) % 11] for j in range(9 + i % 9)) + f" {i}" for i in range(rows)]
    table = pa.table({"text": texts, "label": ["ask" if i % 2 else "tell" for i in range(rows)]})
    pq.write_table(table, tmp_path / "in.parquet")
    (tmp_path / "small").mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", f"size={room}", "tmpfs", str(tmp_path / "small")]
    if os.geteuid() != 0 or subprocess.run(mounted, capture_output=True).returncode:
        pytest.skip("a small disk cannot be mounted here")

    def command(name: str) -> list[str]:
        output = str(tmp_path / name / "run")
        return epida(kind, str(tmp_path / "in.parquet"), "--output", output, *options, "--address", "local")

    def made(name: str) -> dict[str, str]:
        return content(tmp_path / name / "run", "augmented", "model")

    try:
        with running(command("small")) as process:
            output = finish(process, status=1)
        assert "No space left on device" in output and "run the same command again to resume" in output
        assert "Traceback" not in output
        kept = made("small")
        assert kept and not [name for name in kept if Path(name).name.startswith(".")]
        subprocess.run(["mount", "-o", "remount,size=64m", str(tmp_path / "small")], check=True)
        with running(command("small")) as process:
            assert "resuming" in finish(process)
        with running(command("large")) as process:
            finish(process)
        assert made("small") == made("large") and kept.items() <= made("large").items()
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path / "small")], check=True)
