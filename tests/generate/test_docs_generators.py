"""The table of docs/generators.md has every generator, with the examples that the code gives now."""

from __future__ import annotations

from typing import Any

import pytest

from epida_ray.core.errors import RequestError
from epida_ray.generate import GENERATORS
from scripts import docs_generators as table

CELLS = table.cells(table.PAGE.read_text())


def test_every_generator_is_in_the_table() -> None:
    assert {row.name.partition(":")[0] for row in table.ROWS} == set(GENERATORS.builtins)
    assert list(CELLS) == [row.title for row in table.ROWS]


@pytest.mark.parametrize("row", [row for row in table.ROWS if row.cheap and row.runs], ids=lambda row: row.title)
def test_the_example_is_what_comes_out_now(row: Any) -> None:
    try:
        generator = table.made(row)
    except RequestError as missing:  # an extra that is not installed
        pytest.skip(str(missing))
    title, summary, shown, _, use = CELLS[row.title]
    assert (title, summary, use) == (row.title, GENERATORS.builtins[row.name.partition(":")[0]].summary, row.use)
    assert shown == table.example(row, generator)
