"""`epida preview`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from epida_ray.cli.options import default, shared
from epida_ray.core.options import key_values, lines_of_file
from epida_ray.core.progress import plain_console, printable

EXAMPLE = 'epida preview "where is my parcel?" --generator eda'


def command(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text to rewrite.")],
    generator: Annotated[str, shared("generator", "Generator to use; `epida list generators` shows them.")] = default(
        "generator"
    ),
    generator_args: Annotated[list[str] | None, shared("generator_args")] = None,
    language: Annotated[
        str | None, shared("language", "Language of the text, such as de. Without it, the generator's default.")
    ] = None,
    protect: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PHRASE|FILE",
            help="Word or phrase to leave unchanged, or a file with one per line. May be repeated.",
        ),
    ] = None,
    classifier: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Saved model to score the rewrites with."),
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="LABEL", help="Label of the text. Required with --classifier.")
    ] = None,
    corpus: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Labelled texts, for a generator that takes parts of other samples."),
    ] = None,
    trust_code: Annotated[list[str] | None, shared("trust_code")] = None,
    m: Annotated[int, shared("m", "Rewrites to keep.")] = default("m"),
    k: Annotated[int, shared("k", "Candidates per kept rewrite: K·m are generated.")] = default("k"),
    select: Annotated[str, shared("select")] = default("select"),
    seed: Annotated[int, shared("seed")] = default("seed"),
) -> None:
    """Show how a generator rewrites one text.

    With --classifier and --label, also show the score of each rewrite and which ones would be kept.
    """
    from rich.table import Table

    from epida_ray.method.preview import preview

    shown = preview(
        text, generator=generator, generator_args=key_values(generator_args or []), language=language,
        classifier=classifier, label=label, corpus=corpus, m=m, k=k, select=select, seed=seed,
        trust_code=tuple(trust_code or ()), protected=tuple(_phrases(text, protect or [])),
    )  # fmt: skip
    scored = shown.scores is not None
    columns = [*(["kept"] if scored else []), "rewrite", "made by", *(["label"] if shown.soft else [])]
    table = Table(*columns, *(["s_div", "s_qua", "s_tot"] if scored else []))
    for number, (candidate, operation) in enumerate(zip(shown.texts, shown.operations, strict=True)):
        cells = [printable(candidate, 200), printable(operation)]
        if shown.soft:
            cells.append(printable(", ".join(f"{name} {s:.2f}" for name, s in shown.soft[number].items())))
        if shown.scores is not None:
            cells = ["✓" if number in shown.kept else "", *cells, *(f"{s:.2f}" for s in shown.scores[number])]
        table.add_row(*cells)
    plain_console().print(table)


def _phrases(text: str, given: list[str]) -> Iterator[str]:
    """Yield the phrases; one that is not in the text and names a file stands for the lines of that file."""
    for one in given:
        if one.casefold() not in text.casefold() and Path(one).is_file():
            yield from lines_of_file(one)
        else:
            yield one
