"""The documentation: every link leads somewhere, and every command in it exists with the options it is shown with."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from epida_ray.cli.main import app
from tests.axe import console_errors, violations

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAM: Any = get_command(app)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="pip install 'epida-ray[docs]'")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT, capture_output=True, text=True, timeout=280, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_builds_and_no_link_is_broken(site: Path) -> None:
    reference = (site / "reference.html").read_text()
    assert all(f"epida {name}" in reference for name in PROGRAM.commands)
    loaded = re.findall(r'(?:src|<link[^>]*rel="stylesheet"[^>]*href)="(https?://[^"]+)"', reference)
    assert not loaded, "the site loads nothing from elsewhere"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize("names", ["[ci]*.html", pytest.param("[a-z]*.html", marks=pytest.mark.slow)])
def test_no_page_of_the_site_has_serious_barriers(site: Path, browser: Any, names: str) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = {}
        for page in sorted(site.glob(names)):
            browser.get(f"http://127.0.0.1:{server.server_port}/{page.name}")
            for scheme in ("light", "dark"):
                found[page.name, scheme] = violations(browser, scheme)
                look = browser.execute_script("return document.body.dataset.mdColorScheme")
                assert look == {"light": "default", "dark": "slate"}[scheme]
        server.shutdown()
    assert {key: some for key, some in found.items() if some} == {}
    assert len(found) >= 8 and console_errors(browser) == []


def commands() -> Iterator[tuple[str, str]]:
    """Yield (page, command line) for every `epida …` in a block of shell, or alone between backticks."""
    for page in PAGES:
        text = page.read_text()
        blocks = re.findall(r"```sh\n(.*?)```", text, re.S)
        lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
        lines += re.findall(r"`(epida [^`]+)`", text)
        for line in lines:
            if line.strip().startswith("epida "):
                yield page.name, line.strip().partition("  #")[0]


@pytest.mark.parametrize(("page", "line"), sorted(set(commands())))
def test_a_command_in_the_documentation_exists(page: str, line: str) -> None:
    words = shlex.split(line.replace("…", "x"))
    if words[1] == "COMMAND" or words[1].startswith("-"):
        return
    assert words[1] in PROGRAM.commands, f"{page}: {line}"
    known = {flag for p in PROGRAM.commands[words[1]].params for flag in (*p.opts, *p.secondary_opts)} | {"--help"}
    for word in words[2:]:
        if re.match(r"--?[a-z]", word):
            assert word.partition("=")[0] in known, f"{page}: {line}: there is no {word}"


FOLDERS = {path.name for parent in (ROOT, ROOT / "epida_ray") for path in parent.iterdir() if path.is_dir()}


def named_code() -> Iterator[tuple[str, str, str]]:
    """Yield (page, path, name) for every `path` and `path: name` of the two pages on the code."""
    for page in (ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md"):
        text = page.read_text()
        for path, name in re.findall(r"`([\w./-]*/[\w.-]*)(?:: ([\w.]+))?`", text):
            if path.split("/")[0] in FOLDERS and "NAME" not in path:
                yield page.name, path, name
        for folder, row in re.findall(r"^\| `(epida_ray/\w+/)` \|(.*)", text, re.M):
            yield from ((page.name, folder + file, "") for file in re.findall(r"`(\w+\.py)`", row))


def test_every_module_is_named() -> None:
    named = {path.removeprefix("epida_ray/") for _, path, _ in named_code()}
    modules = {path.relative_to(ROOT / "epida_ray").as_posix() for path in (ROOT / "epida_ray").glob("*/*.py")}
    missing = {path for path in modules - named if not path.endswith(("__init__.py", "__main__.py"))}
    assert not missing, "docs/architecture.md lists every module"


@pytest.mark.parametrize(("page", "path", "name"), sorted(set(named_code())))
def test_code_that_the_documentation_names_exists(page: str, path: str, name: str) -> None:
    file = next((root / path for root in (ROOT, ROOT / "epida_ray") if (root / path).exists()), None)
    assert file is not None, f"{page}: there is no {path}"
    scope: ast.AST = ast.parse(file.read_text()) if name else ast.Module()
    for part in name.split(".") if name else ():
        inside = [node for node in ast.iter_child_nodes(scope) if getattr(node, "name", None) == part]
        assert inside, f"{page}: {path} does not define {name}"
        scope = inside[0]
