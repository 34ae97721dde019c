"""`epida list`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from epida_ray.core.progress import plain_console, printable

EXAMPLE = "epida list generators"


class Kind(StrEnum):
    generators = "generators"
    classifiers = "classifiers"
    selectors = "selectors"


def command(
    kind: Annotated[Kind, typer.Argument(metavar="KIND", help="generators, classifiers or selectors.")],
) -> None:
    """List the generators, classifiers or selectors you can use.

    These are the names for --generator, --classifier and --select. A name that cannot be used yet comes with the
    command that installs what is missing.
    """
    from rich.table import Table

    from epida_ray.classify import CLASSIFIERS
    from epida_ray.generate import GENERATORS
    from epida_ray.select import SELECTORS

    registry = {Kind.generators: GENERATORS, Kind.classifiers: CLASSIFIERS, Kind.selectors: SELECTORS}[kind]
    table = Table("name", "what it does", "can be used")
    for row in registry.listing():
        usable = f"no: {row.missing}" if row.missing else "yes"
        if registry is GENERATORS and not row.missing and (needed := registry.still_needed(row.name)):
            usable = f"yes, with {needed}"
        table.add_row(*(printable(cell, 200) for cell in (row.name, row.summary, usable)))
    plain_console().print(table)
