"""Plug-ins found by name: built in, from Python entry points, or as `module:Class`.

A name whose package is missing stays listed with the reason, so that the error says what to install.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any, NamedTuple

from epida_ray.core.errors import RequestError


class Builtin(NamedTuple):
    """A plug-in of this package. A family's factory takes the part after the colon first: `nlpaug:SynonymAug`."""

    target: str
    summary: str
    requires: tuple[str, ...] = ()
    extra: str = ""
    family: bool = False


class Listing(NamedTuple):
    name: str
    summary: str
    missing: str
    """Empty when the plug-in can be used, else why not and what to do about it."""


@dataclass(frozen=True)
class Registry:
    kind: str
    """`generator`, `classifier` or `selector`; its entry-point group is `epida_ray.<kind>s`."""
    builtins: Mapping[str, Builtin]

    def create(self, name: str, /, **arguments: Any) -> Any:
        """Make the plug-in `name` with these arguments, or raise a RequestError that says what to do."""
        factory, first = self.find(name)
        try:
            return factory(*first, **arguments)
        except TypeError as error:
            if "argument" not in str(error):
                raise
            wrong = "does not take these arguments" if arguments else "needs arguments"
            known = ", ".join(_arguments(factory)[len(first) :])
            takes = f"; it takes: {known}" if known else ""
            raise RequestError(f"{self.kind} {name!r} {wrong}: {error}{takes}") from error

    def listing(self) -> list[Listing]:
        rows = [
            Listing(f"{name}:NAME" if b.family else name, b.summary, _missing(b)) for name, b in self.builtins.items()
        ]
        for name, point in sorted(self._entry_points().items()):
            try:
                loaded = point.load()
            except Exception as error:  # a plug-in of somebody else's may fail in any way
                rows.append(Listing(name, point.value, f"cannot be imported: {error}"))
            else:
                rows.append(Listing(name, (loaded.__doc__ or point.value).strip().splitlines()[0], ""))
        return rows

    def _entry_points(self) -> dict[str, EntryPoint]:
        return {p.name: p for p in entry_points(group=f"epida_ray.{self.kind}s") if p.name not in self.builtins}

    def installed(self, name: str) -> bool:
        """Whether `name` is an entry point of an installed package."""
        return name in self._entry_points()

    def find(self, name: str) -> tuple[Any, tuple[str, ...]]:
        """The factory behind `name`, and the arguments that the name itself carries."""
        head, colon, rest = name.partition(":")
        builtin = self.builtins.get(name) or self.builtins.get(head)
        if builtin is not None and builtin.family == bool(colon):
            if missing := _missing(builtin):
                raise RequestError(f"{self.kind} {name!r} cannot be used: {missing}")
            return load_target(builtin.target), ((rest,) if builtin.family else ())
        point = self._entry_points().get(name)
        if point is not None:
            try:
                return point.load(), ()
            except Exception as error:
                raise RequestError(f"{self.kind} {name!r} ({point.value}) cannot be imported: {error}") from error
        if colon and builtin is None:
            try:
                return load_target(name), ()
            except Exception as error:  # as above: importing it runs code of somebody else's
                raise RequestError(f"{self.kind} {name!r} cannot be imported: {error}") from error
        known = ", ".join(row.name for row in self.listing())
        raise RequestError(f"there is no {self.kind} {name!r}; there are: {known}, or MODULE:CLASS of your own")


def _missing(builtin: Builtin) -> str:
    absent = [package for package in builtin.requires if find_spec(package) is None]
    if not absent:
        return ""
    return f"{', '.join(absent)} not installed; pip install 'epida-ray[{builtin.extra}]'"


def _arguments(factory: Any) -> list[str]:
    """Names that a user may give; labels are the program's to give."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name != "labels"]


def load_target(target: str) -> Any:
    """What `module:attribute` names."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)
