"""Imports point in one direction, and Ray stays where it belongs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "epida_ray"
LAYERS = [
    {"core"}, {"data"}, {"generate", "classify", "select"}, {"runs"}, {"method"}, {"stream"}, {"experiments"},
    {"api", "__init__", "estimator"}, {"cli"},
]  # fmt: skip
"""A folder imports from the layers before its own, never from its neighbours in the same layer."""
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".")


def folder_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[0]


def layer_of(folder: str) -> int:
    return next(number for number, folders in enumerate(LAYERS) if folder in folders)


def imported(path: Path) -> set[str]:
    """Return every module that a file imports, at any place in it, TYPE_CHECKING included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return found


def test_every_folder_has_a_layer() -> None:
    assert {folder_of(path) for path in MODULES} == set().union(*LAYERS)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_upwards(path: Path) -> None:
    own = folder_of(path)
    for module in imported(path):
        package, _, rest = module.partition(".")
        if package != "epida_ray" or not rest:
            continue
        other = rest.partition(".")[0]
        if (PACKAGE / other).is_dir() and other != own:
            assert layer_of(other) < layer_of(own), f"{name_of(path)} imports {module}"


@pytest.mark.parametrize("path", [p for p in MODULES if folder_of(p) != "stream"], ids=name_of)
def test_only_stream_imports_ray(path: Path) -> None:
    assert not [module for module in imported(path) if module.partition(".")[0] == "ray"]


@pytest.mark.parametrize("path", [p for p in MODULES if name_of(p) != "stream.compat"], ids=name_of)
def test_private_parts_of_ray_are_used_in_one_module(path: Path) -> None:
    """Neither imported nor reached through an attribute of `ray`."""
    for module in imported(path):
        if module.partition(".")[0] == "ray":
            assert not any(part.startswith("_") for part in module.split("."))
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            root = node.value
            while isinstance(root, ast.Attribute):
                root = root.value
            assert not (isinstance(root, ast.Name) and root.id == "ray"), f"line {node.lineno}: {node.attr}"
