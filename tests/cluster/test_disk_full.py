"""A disk that is full in the middle of a run: said clearly, nothing lost, and the run goes on when there is room."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cluster.processes import WORDS, content, epida, finish, running

ROWS = 12_000


@pytest.mark.chaos
def test_a_full_disk_fails_the_run_with_one_line_and_it_resumes_when_there_is_room(tmp_path: Path) -> None:
    texts = [" ".join(WORDS[(i * 7 + j * (i % 97 + 1)) % 11] for j in range(9 + i % 9)) + f" {i}" for i in range(ROWS)]
    table = pa.table({"text": texts, "label": ["ask" if i % 2 else "tell" for i in range(ROWS)]})
    pq.write_table(table, tmp_path / "in.parquet")
    (tmp_path / "small").mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path / "small")]
    if os.geteuid() != 0 or subprocess.run(mounted, capture_output=True).returncode:
        pytest.skip("a small disk cannot be mounted here")

    def command(name: str) -> list[str]:
        output = str(tmp_path / name / "run")
        return epida(
            "augment", str(tmp_path / "in.parquet"), "--output", output, "--train-rows", "300", "--address", "local"
        )

    try:
        with running(command("small")) as process:
            output = finish(process, status=1)
        assert "No space left on device" in output and "run the same command again to resume" in output
        assert "Traceback" not in output
        kept = content(tmp_path / "small" / "run", "augmented")
        assert not [name for name in kept if Path(name).name.startswith(".")]
        subprocess.run(["mount", "-o", "remount,size=64m", str(tmp_path / "small")], check=True)
        with running(command("small")) as process:
            finish(process)
        with running(command("large")) as process:
            finish(process)
        whole = content(tmp_path / "large" / "run", "augmented")
        assert content(tmp_path / "small" / "run", "augmented") == whole and kept.items() <= whole.items()
    finally:
        subprocess.run(["umount", str(tmp_path / "small")], check=True)
