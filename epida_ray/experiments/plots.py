"""Plots of an experiment's results as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from epida_ray.experiments.results import Results, shown, title

COLORS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f", "#ff9da7", "#bab0ac")


def plot(results: Results) -> str:
    """Return a line plot over shares of one data set where the experiment wants one, else a dot plot."""
    one_dataset = len({dataset for dataset, _ in results.settings}) == 1
    percents = all(size.endswith("%") for _, size in results.settings)
    return line_plot(results) if results.experiment.lines and percents and one_dataset else dot_plot(results)


def dot_plot(results: Results) -> str:
    """Return a panel for each setting, with the mean and the seeds of every method."""
    metric = results.experiment.plotted or results.experiment.metric
    left, width, line = 250, 320, 20
    height = 34 + line * len(results.methods)
    panels = []
    for n, setting in enumerate(results.settings):
        cells = {m: results.values(m, setting, metric) for m in results.methods}
        points = [v for values in cells.values() for v in values]
        if not points:
            continue
        low, high = min(points), max(points)
        span = (high - low) or 1.0
        top = n * height
        panels.append(f'<text x="{left}" y="{top + 18}" font-weight="bold">{escape(title(setting))}</text>')
        for i, (method, values) in enumerate(cells.items()):
            y = top + 38 + line * i
            color = COLORS[i % len(COLORS)]
            panels.append(f'<text x="{left - 10}" y="{y + 4}" text-anchor="end">{escape(method)}</text>')
            if not values:
                continue
            x = [left + (v - low) / span * width for v in values]
            panels += [f'<circle cx="{v:.1f}" cy="{y}" r="2.5" fill="{color}" fill-opacity=".5"/>' for v in x]
            panels.append(f'<path d="M{np.mean(x):.1f} {y - 7}v14" stroke="{color}" stroke-width="3"/>')
            panels.append(f'<text x="{left + width + 12}" y="{y + 4}">{np.mean(values):.3f}</text>')
    return _svg(
        left + width + 80, height * len(results.settings) + 10, f"{_plot_title(results)}: {shown(metric)}", panels
    )


def line_plot(results: Results) -> str:
    """Return a line for each method over the sizes of the training set; dashed lines are the paper's."""
    e, width, height, left, top = results.experiment, 520, 320, 60, 30
    xs = [float(size.rstrip("%")) for _, size in results.settings]
    largest = max(xs)
    points = [v for m in results.methods for c in results.settings for v in results.values(m, c, e.metric)]
    low = min([0.3, *(np.floor(v * 10) / 10 for v in points)])
    marks = [f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#bbb"/>']

    def at(x: float, y: float) -> str:
        return f"{left + x / largest * width:.1f} {top + (1 - (y - low) / (1 - low)) * height:.1f}"

    for tick in (0.4, 0.6, 0.8, 1.0):
        marks.append(f'<path d="M{at(0, tick)}h{width}" stroke="#ddd"/>')
        marks.append(f'<text x="{left - 8}" y="{at(0, tick).split()[1]}" text-anchor="end">{tick}</text>')
    for tick in xs:
        marks.append(
            f'<text x="{at(tick, low).split()[0]}" y="{top + height + 16}" text-anchor="middle">{tick:g}</text>'
        )
    for i, method in enumerate(results.methods):
        color = COLORS[i % len(COLORS)]
        found = [(x, results.values(method, c, e.metric)) for x, c in zip(xs, results.settings, strict=True)]
        ours = [at(x, float(np.mean(v))) for x, v in found if v]
        said = [at(x, e.paper[method, c]) for x, c in zip(xs, results.settings, strict=True) if (method, c) in e.paper]
        marks.append(f'<path d="M{"L".join(ours)}" fill="none" stroke="{color}" stroke-width="2"/>')
        if said:
            marks.append(f'<path d="M{"L".join(said)}" fill="none" stroke="{color}" stroke-dasharray="4 3"/>')
        y = top + height - 16 * (len(results.methods) - i)
        marks.append(f'<text x="{left + width - 10}" y="{y}" text-anchor="end" fill="{color}">{escape(method)}</text>')
    return _svg(left + width + 20, top + height + 30, f"{_plot_title(results)} (dashed: the paper)", marks)


def _plot_title(results: Results) -> str:
    return ("PAPER PROTOCOL: " if results.example.protocol == "paper" else "") + results.experiment.title


def _svg(width: int, height: int, heading: str, marks: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -24 {width} {height + 24}" width="{width}" '
    head += 'font-family="sans-serif" font-size="12">'
    return "\n".join([head, f'<text x="10" y="-8" font-size="14">{escape(heading)}</text>', *marks, "</svg>\n"])
