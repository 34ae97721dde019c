"""The commands of the README, run one after the other in one folder, as somebody would who tries them all."""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import epida_ray
from epida_ray.cli.main import app

ROOT = Path(__file__).parents[1]
CORPUS = Path(epida_ray.__file__).parent / "experiments" / "support_desk"
ELSEWHERE = {
    "compare": "tests/experiments/test_compare.py: it takes minutes",
    "reproduce": "tests/experiments/test_reproduce.py: it needs the paper's data",
    "serve": "tests/stream/test_serve.py: it does not end",
}
"""Commands that other tests run."""


def commands() -> Iterator[str]:
    """Yield the commands under "Two commands" and of the table of common tasks."""
    text = (ROOT / "README.md").read_text()
    for block in re.findall(r"```sh\n(.*?)```", text, re.S):
        yield from re.findall(r"^(epida [^#\n]+?) *(?:#.*)?$", block, re.M)
    table = text.partition("## Common tasks")[2].partition("\n## ")[0]
    yield from re.findall(r"`(epida [^`]+)`", table)


COMMANDS = [
    line for line in commands() if line.split()[1] not in {*ELSEWHERE, "COMMAND"} and "path/" not in line
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the README speaks of, small."""
    folder = tmp_path_factory.mktemp("readme")
    train, test = (list(csv.reader((CORPUS / f"{name}.csv").open())) for name in ("train", "test"))
    files = {"tickets": train[:71], "train": train[:71], "in": train[:71], "test": test[:61], "dev": test[61:121]}
    files |= {"pool": [row[:1] for row in train[:1] + train[71:171]]}
    files |= {"new": files["pool"][:21]}
    files["dev"] = [train[0], *files["dev"]]
    for name, rows in files.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)
    (folder / "names.txt").write_text("Tallybox\n")
    return folder


def marks(number: int) -> list[pytest.MarkDecorator]:
    """Commands that tune an encoder are slow: half a minute each."""
    return [pytest.mark.slow] if re.match("epida train (?!.*--classifier)", COMMANDS[number]) else []


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=marks(n), id=" ".join(line.split()[1:3])) for n, line in enumerate(COMMANDS)]
)
def test_a_command_of_the_readme_does_what_it_says(
    number: int, folder: Path, local_ray: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two first commands make `model` and `run`; later ones with another request for `run` get their own folder."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("BROWSER", "true")
    words = shlex.split(COMMANDS[number])[1:]
    if number > 1:
        words = [f"out-{number}" if word == "run" and words[i - 1] == "-o" else word for i, word in enumerate(words)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, f"{' '.join(words)}\n{result.output}{result.exception!r}"


def test_most_commands_are_run() -> None:
    assert len(COMMANDS) > 20
    for told in ELSEWHERE.values():
        assert (ROOT / told.partition(":")[0]).exists()
