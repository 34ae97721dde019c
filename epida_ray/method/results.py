"""What `augment` and `train` return to Python code; a notebook shows it as counts, examples and a curve."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import chain, islice
from typing import Any, NamedTuple

import pyarrow as pa

from epida_ray.classify import load as load_classifier
from epida_ray.classify.model import Model, saved_card
from epida_ray.data.storage import Storage, below
from epida_ray.generate.word_marks import NEW, REMOVED, mark_words
from epida_ray.method.stages import STAGES
from epida_ray.runs import layout
from epida_ray.runs.export import kept_tables, read
from epida_ray.runs.manifest import Manifest

EXAMPLES = 6
"""Rows that a notebook shows."""
POINTS = 300
"""Rewrites in the plot of a notebook."""
SHOWN = 300
"""Characters of a text that a notebook shows."""


@dataclass(frozen=True)
class AugmentResult:
    """Where the results are, and the manifest's account of them."""

    output: str
    manifest: Manifest = field(repr=False)

    @property
    def augmented(self) -> str:
        return below(self.output, layout.AUGMENTED)

    @property
    def kept(self) -> int:
        return self.manifest.done.kept

    def table(self) -> pa.Table:
        """Read the kept rows into memory."""
        return read(self.output)

    def __repr__(self) -> str:
        done = self.manifest.done
        return (
            f"AugmentResult({self.output!r}: {done.kept:,} rewrites of {done.rows:,} texts kept, "
            f"{done.rejected:,} texts rejected)"
        )

    def _repr_html_(self) -> str:
        done = self.manifest.done
        counts = {"texts": done.rows, "candidates": done.candidates, "kept": done.kept, "rejected": done.rejected}
        read = chain.from_iterable(table.slice(0, POINTS * 2).to_pylist() for table in kept_tables(self.output))
        rows = [row for row in islice(read, POINTS * 2) if row["rank"]][:POINTS]
        shown = (rows[i * len(rows) // EXAMPLES] for i in range(min(EXAMPLES, len(rows))))
        examples = [[_marked(r["source_text"], r["text"]), str(r["label"]), f"{r['s_tot']:.2f}"] for r in shown]
        return "".join(
            [
                f"<p><b>Rewrites</b> in <code>{escape(self.augmented)}</code></p>",
                _html_table(list(counts), [[f"{value:,}" for value in counts.values()]]),
                _html_table(["rewrite: <ins>new</ins> and <del>removed</del> words", "label", "score"], examples),
                "<p>Each dot is a kept rewrite; the score is the sum of both axes.</p>",
                _scatter([(row["s_div"] or 0.0, row["s_qua"] or 0.0) for row in rows]),
            ]
        )


@dataclass(frozen=True)
class TrainResult:
    """The trained model, where it is, and its metrics round by round."""

    output: str
    metrics: list[dict[str, Any]]
    test: dict[str, Any] | None
    trust: tuple[str, ...] = ()
    dev_rows: int = 1
    """Rows that chose the round."""

    @property
    def model_dir(self) -> str:
        return below(self.output, layout.MODEL)

    def model(self) -> Model:
        path = Storage(self.output).local_copy(layout.MODEL)
        return Model(load_classifier(path, trust=self.trust), saved_card(path))

    @property
    def best_round(self) -> int:
        return int(self.metrics[-1]["best_round"])

    def __repr__(self) -> str:
        return f"TrainResult({self.model_dir!r}: {'; '.join(self._lines())})"

    def _lines(self) -> list[str]:
        lines = [round_summary(self.metrics, self.best_round, self.dev_rows)]
        if self.test is not None:
            lines.append(f"test macro-F1 {self.test['macro_f1']:.4f} on {self.test['rows']:,} rows")
        return lines

    def _repr_html_(self) -> str:
        rows = [
            [str(line["round"]) + (" ★" if line["round"] == self.best_round else "")]
            + [f"{line[name]:.3f}" for name in ("loss", "dev_macro_f1", "dev_accuracy")]
            for line in self.metrics
        ]
        return "".join(
            [
                f"<p><b>Model</b> in <code>{escape(self.model_dir)}</code></p>",
                *(f"<p>{escape(line)}</p>" for line in self._lines()),
                _curve([line["dev_macro_f1"] for line in self.metrics], self.best_round),
                _html_table(["round", "loss", "dev macro-F1", "dev accuracy"], rows),
            ]
        )


def summary(manifest: Manifest) -> list[str]:
    """Return the outcome of a run in a few lines."""
    done, seconds = manifest.done, manifest.seconds
    what = "judged in all rounds" if manifest.kind == "train" else "read"
    lines = [
        f"{done.rows:,} rows {what}, {done.candidates:,} candidates, {done.kept:,} kept, {done.rejected:,} rejected, "
        f"{done.short:,} with fewer than m"
    ]
    total = sum(seconds.values()) or 1.0
    stages = dict.fromkeys((*STAGES, *seconds))
    shares = ", ".join(f"{stage} {100 * seconds.get(stage, 0) / total:.0f}%" for stage in stages)
    lines.append(f"CPU time: {shares}; {total:.1f} s in all")
    for reason, count in list(manifest.reasons.items())[:3]:
        lines.append(f"rejected ({count:,}): {reason}")
    return lines


class Choice(NamedTuple):
    """The chosen round beside the others."""

    best: bool
    """Whether no round has a larger dev score; with unlabelled texts, a round is kept unless it is clearly worse."""
    used: str
    """What rounds learned from beside the labelled texts; round 0 never does."""
    gain: float
    """How far its dev score is ahead of round 0."""
    unsure: bool
    """Whether so many dev rows cannot tell the two apart."""


def choice(metrics: Sequence[Mapping[str, Any]], chosen: int, dev_rows: int) -> Choice:
    score = {line["round"]: line["dev_macro_f1"] for line in metrics}
    sources = {"loss_augmented": "rewrites", "loss_unlabelled": "unlabelled texts"}
    used = " and ".join(what for name, what in sources.items() if any(line.get(name) for line in metrics))
    f1 = score[chosen]
    gain = f1 - score[0]
    # as in the choice of the round: two standard errors of the score
    limit = 2 * math.sqrt(f1 * (1 - f1) / max(1, dev_rows))
    return Choice(f1 >= max(score.values()), used, gain, abs(gain) <= limit)


def round_summary(metrics: Sequence[Mapping[str, Any]], chosen: int, dev_rows: int) -> str:
    """Say which round was chosen, and whether it is better than round 0, which saw the labelled texts alone."""
    score = {line["round"]: line["dev_macro_f1"] for line in metrics}
    found = choice(metrics, chosen, dev_rows)
    said = f"{'best' if found.best else 'chosen'} round {chosen} of {len(score) - 1}: dev macro-F1 {score[chosen]:.4f}"
    if not found.used:
        return said
    if chosen == 0:
        most = max(value for round_, value in score.items() if round_)
        return f"{said}, without {found.used}; no round with them scored above {most:.4f}"
    unsure = f"; {dev_rows:,} dev rows cannot tell these apart" if found.unsure else ""
    return f"{said}; without {found.used} (round 0) {score[0]:.4f}, a difference of {found.gain:+.4f}{unsure}"


def _marked(source: str, text: str) -> str:
    tags = {NEW: "ins", REMOVED: "del"}
    pieces = mark_words(source[:SHOWN], text[:SHOWN])
    return " ".join(
        f"<{tags[mark]}>{escape(piece)}</{tags[mark]}>" if mark in tags else escape(piece) for piece, mark in pieces
    )


def _html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; cells are HTML already."""
    style = ' style="text-align:left"'
    names = "".join(f"<th{style}>{name}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td{style}>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


def _curve(values: Sequence[float], chosen: int, width: int = 360, height: int = 140) -> str:
    """Return a line over the rounds, from 0 to 1, with a dot at the chosen one."""
    if len(values) < 2:
        return ""
    left, right, top, bottom = 30, width - 10, 10, height - 30
    x = [left + i * (right - left) / (len(values) - 1) for i in range(len(values))]
    y = [bottom - value * (bottom - top) for value in values]
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    marks = (
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="2"/>'
        f'<circle cx="{x[chosen]:.1f}" cy="{y[chosen]:.1f}" r="4" fill="currentColor"/>'
    )
    return _plot(
        "dev macro-F1 by round; the dot is the chosen one", marks, width, height, left, f"rounds 0 to {len(x) - 1}"
    )


def _scatter(points: Sequence[tuple[float, float]], size: int = 240) -> str:
    """Return a dot for each rewrite; scores that are not normalized are drawn at the edge."""
    if not points:
        return ""
    left, right, top, bottom = 30, size - 10, 10, size - 30
    dots = "".join(
        f'<circle cx="{left + min(1.0, max(0.0, a)) * (right - left):.0f}" '
        f'cy="{bottom - min(1.0, max(0.0, b)) * (bottom - top):.0f}" r="3" fill="currentColor" fill-opacity="0.4"/>'
        for a, b in points
    )
    said = "diversity (across) and quality (up)"
    return _plot(said, dots, size, size, left, said)


def _plot(label: str, marks: str, width: int, height: int, left: int, below: str) -> str:
    """Return the axes of a plot from 0 to 1 with these marks."""
    bottom, text = height - 30, 'font-size="11" fill="currentColor"'
    return (
        f'<svg width="{width}" height="{height}" role="img" aria-label="{label}">'
        f'<line x1="{left}" y1="{bottom}" x2="{width - 10}" y2="{bottom}" stroke="gray"/>'
        f'<line x1="{left}" y1="10" x2="{left}" y2="{bottom}" stroke="gray"/>'
        f'<text x="{left - 6}" y="{bottom}" text-anchor="end" {text}>0</text>'
        f'<text x="{left - 6}" y="16" text-anchor="end" {text}>1</text>'
        f'<text x="{left}" y="{height - 10}" {text}>{below}</text>{marks}</svg>'
    )
