"""Plug-ins by name: built in, from Python entry points, or as `module:Class`.

A name whose package is missing stays listed with the reason, so that the error can say what to install.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any, NamedTuple

from epida_ray.core.errors import RequestError


class Builtin(NamedTuple):
    """A plug-in of this package.

    The factory of a family takes the part of the name after the colon as its first argument: `nlpaug:SynonymAug`. A
    family with a `default` can also be used by its bare name; only then are the packages it `requires` needed.
    """

    target: str
    summary: str
    requires: tuple[str, ...] = ()
    extra: str = ""
    family: bool = False
    default: bool = False


class Listing(NamedTuple):
    name: str
    summary: str
    missing: str
    """Why the plug-in cannot be used and what to do about it; empty when it can."""


@dataclass(frozen=True)
class Registry:
    """All plug-ins of one kind."""

    kind: str
    """`generator`, `classifier` or `selector`; the entry-point group is `epida_ray.<kind>s`."""
    builtins: Mapping[str, Builtin]

    def create(self, name: str, /, **arguments: Any) -> Any:
        """Create the plug-in `name` with these arguments; raise a RequestError that says what to do if that fails."""
        factory, first = self.find(name)
        if problem := _mismatch(factory, first, arguments):
            wrong = "does not take these arguments" if arguments else "requires arguments"
            known = ", ".join(n for n in _arguments(factory)[len(first) :] if not n.startswith("_"))
            takes = f"; it takes {known}; give one as --{self.kind}-arg NAME=VALUE" if known else ""
            raise RequestError(f"{self.kind} {name!r} {wrong}: {problem}{takes}")
        try:
            return factory(*first, **arguments)
        except TypeError as error:  # an argument of the wrong type, or one that the factory passes on to its library
            if not arguments:
                raise
            raise RequestError(f"{self.kind} {name!r} cannot be created with these arguments: {error}") from error

    def listing(self) -> list[Listing]:
        """Return every plug-in, those that cannot be used included."""
        rows = []
        for name, b in self.builtins.items():
            if not b.family or b.default:
                rows.append(Listing(name, b.summary, _missing(b)))
            if b.family:
                rows.append(Listing(f"{name}:NAME", b.summary, "" if b.default else _missing(b)))
        for name, point in sorted(self._entry_points().items()):
            try:
                loaded = point.load()
            except Exception as error:  # other people's code can fail in any way
                rows.append(Listing(name, point.value, f"cannot be imported: {error}"))
            else:
                rows.append(Listing(name, (loaded.__doc__ or point.value).strip().splitlines()[0], ""))
        return rows

    def still_needed(self, name: str) -> str:
        """Return the options with the arguments that `name` cannot be created without; empty if there are none."""
        factory, first = self.find(name)
        try:
            parameters = list(inspect.signature(factory).parameters.values())[len(first) :]
        except (TypeError, ValueError):  # some classes written in C
            return ""
        named = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        return " ".join(f"--{self.kind}-arg {p.name}=…" for p in named)

    def _entry_points(self) -> dict[str, EntryPoint]:
        return {p.name: p for p in entry_points(group=f"epida_ray.{self.kind}s") if p.name not in self.builtins}

    def installed(self, name: str) -> bool:
        """Return whether `name` is an entry point of an installed package."""
        return name in self._entry_points()

    def find(self, name: str) -> tuple[Any, tuple[str, ...]]:
        """Return the factory behind `name` and the arguments that the name itself contains."""
        head, colon, rest = name.partition(":")
        builtin = self.builtins.get(name) or self.builtins.get(head)
        if builtin is not None and (builtin.family == bool(colon) or (builtin.default and not colon)):
            if (missing := _missing(builtin)) and not (builtin.default and colon):
                raise RequestError(f"{self.kind} {name!r} cannot be used: {missing}")
            return load_target(builtin.target), ((rest,) if colon else ())
        point = self._entry_points().get(name)
        if point is not None:
            try:
                return point.load(), ()
            except Exception as error:
                raise RequestError(f"{self.kind} {name!r} ({point.value}) cannot be imported: {error}") from error
        if colon and builtin is None:
            try:
                return load_target(name), ()
            except Exception as error:  # importing runs other people's code
                raise RequestError(f"{self.kind} {name!r} cannot be imported: {error}") from error
        known = ", ".join(row.name for row in self.listing())
        raise RequestError(f"there is no {self.kind} {name!r}; there are: {known}, or your own MODULE:CLASS")


def _missing(builtin: Builtin) -> str:
    return missing_packages(builtin.requires, builtin.extra)


def missing_packages(packages: Sequence[str], extra: str) -> str:
    """Return which packages are not installed and which extra has them; empty when all are there."""
    absent = [package for package in packages if find_spec(package) is None]
    return f"{', '.join(absent)} not installed; pip install 'epida-ray[{extra}]'" if absent else ""


def _mismatch(factory: Any, first: tuple[str, ...], arguments: dict[str, Any]) -> str:
    """Return why the factory's signature does not fit the arguments; empty if it fits or has no signature."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # some classes written in C
        return ""
    try:
        signature.bind(*first, **arguments)
    except TypeError as error:
        return str(error)
    return ""


def _arguments(factory: Any) -> list[str]:
    """Return the names that a user may give; the program itself gives the labels."""
    parameters = inspect.signature(factory).parameters.values()
    return [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name != "labels"]


def load_target(target: str) -> Any:
    """Import and return what `module:attribute` names."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)
