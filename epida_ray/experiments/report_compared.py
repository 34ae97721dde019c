"""What the report shows of `epida compare`, `epida tune` and `epida check`, whose directories have no manifest."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from epida_ray.core.errors import RequestError
from epida_ray.core.progress import duration
from epida_ray.data.storage import Storage
from epida_ray.experiments.compare import COMPARISON
from epida_ray.experiments.compare_results import Comparison, more_labels
from epida_ray.experiments.tune import BEST, FOUND, TRIALS, Tuned
from epida_ray.method.check import CHECKED

MAX_FINDING = 1_000
"""Rows of a finding in the page; its CSV file has all."""
DIGESTS = ("data", "rows", "all", "files", "contents")
"""Parts of a comparison's identity that are no options."""
LONGEST = 1_000
"""Characters of a text in the page."""
NAMES = {
    "probability": "how likely the classifier finds it",
    "instead": "the classifier says",
    "confidence": "how likely it finds that",
    "other_id": "id of the other",
    "other_text": "the other text",
    "other_label": "label of the other",
}
"""Names of columns in files that need explaining on a page."""


def compared_data(storage: Storage) -> dict[str, Any] | None:
    """Return what the page shows of a comparison, a search or a check; None when the directory has none of them."""
    readers: dict[str, Callable[[Storage, dict[str, Any]], dict[str, Any]]] = {
        COMPARISON: _comparison, FOUND: _search, CHECKED: _check,
    }  # fmt: skip
    for name, read in readers.items():
        if not storage.exists(name):
            continue
        try:
            found = json.loads(storage.read(name))
            return {
                "command": shlex.join(found.get("command", [])), "versions": found.get("versions", {}), "request": {},
            } | read(storage, found)  # fmt: skip
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise RequestError(f"{storage.location}/{name} cannot be read: {error!r}; make it anew") from error
    return None


def _comparison(storage: Storage, plain: dict[str, Any]) -> dict[str, Any]:
    found = Comparison(**plain)
    simplest = found.recipes[0]["recipe"]
    chosen = next((row for row in found.recipes if row["recipe"] == found.recommended), None)
    facts = [["rows", f"{found.rows:,}"], ["classes", str(found.classes)], ["recipes", str(len(found.recipes))]]
    if chosen is not None:
        facts.append(["recommended", chosen["recipe"]])
        facts.append(["macro-F1, cross-validated", f"{chosen['macro_f1']:.3f}"])
    if found.test is not None:
        facts.append(["macro-F1 on TEST", f"{found.test['macro_f1']:.3f}"])
    facts += [["time", duration(found.seconds)], *_input(found.input)]
    rows = [row | {"outcome": _outcome(row, found.recommended, simplest)} for row in found.recipes]
    checked = storage.exists(f"check/{CHECKED}")
    return {
        "title": "epida compare",
        "verdict": _comparison_verdict(found, chosen),
        "facts": facts,
        "recipes": {"simplest": simplest, "recommended": found.recommended, "rows": rows, "commands": found.commands},
        "halving": {"events": found.events, "stopped": found.stopped},
        "curve": {"rows": found.curve, "says": more_labels(found.curve, found.rows) if chosen else ""},
        "findings": _findings(json.loads(storage.read(f"check/{CHECKED}"))) if checked else [],
        "request": {k: v for k, v in found.identity.items() if v not in (None, [], ()) and k not in DIGESTS},
    }


def _input(name: str) -> list[list[str]]:
    return [["input", name]] if name else []


def _outcome(row: dict[str, Any], recommended: str | None, simplest: str) -> str:
    """Say in words how far a recipe came; the simplest goes on when it is behind, as all are compared with it."""
    if row["recipe"] == recommended:
        return "recommended"
    if row["recipe"] == simplest and not row["failure"]:
        return "the simplest" + (", clearly behind" if row["dropped_after"] is not None else "")
    if row["failure"]:
        return f"failed: {row['failure']}"
    if row["dropped_after"] is not None:
        return f"stopped after {row['dropped_after']} folds: clearly behind"
    if row["paused"] or not row["folds"]:
        return "stopped: no time for more folds"
    return str(row["verdict"])


def _comparison_verdict(found: Comparison, chosen: dict[str, Any] | None) -> list[str]:
    of = f" of {found.input}" if found.input else ""
    done = (
        f"{len(found.recipes)} ways to train were compared on {found.rows:,} rows{of} with {found.classes} classes: "
        f"each was trained on all rows but one of {found.folds} parts and tested on that part, in turn."
    )
    if chosen is None:
        return [done, f"Nothing is recommended: {found.reason}.", "Next: look at the data problems below."]
    outcome = f"Recommendation{' (a first guess)' if found.missing_time else ''}: {found.reason}."
    if found.test is not None:
        outcome += f" On TEST, which was used once, its macro-F1 is {found.test['macro_f1']:.3f}."
    problems = sum(one["count"] for one in found.check if one["level"] == "problem")
    if problems:
        next_ = f"Next: look at the {problems:,} problems of the data below; then train with the command below."
    elif found.missing_time:
        next_ = (
            "Next: run the same command with a longer --time; to test every recipe in every fold takes about "
            f"{duration(found.missing_time)} more."
        )
    elif found.model is not None:
        next_ = f"Next: use the model: `epida predict {found.model} FILE -o OUT`, or `epida serve {found.model}`."
    else:
        next_ = "Next: train it with the command below, or again with `--train-best`."
    return [done, outcome, next_]


def _search(storage: Storage, plain: dict[str, Any]) -> dict[str, Any]:
    found = Tuned(**plain)
    head, *body = csv.reader(io.StringIO(storage.read(TRIALS).decode()))
    if found.low > 0:
        best = f"{storage.location}/{BEST}"
        next_ = f"Next: `epida train {found.input or 'TRAIN'} --config {best} --output model` uses what was found."
    else:
        next_ = "Next: train without what was found, or search with more rows: its gain may be chance."
    return {
        "title": "epida tune",
        "verdict": [
            f"{found.trials:,} sets of options were tried on {found.rows:,} rows"
            + (f" of {found.input}" if found.input else "")
            + f"; the best was then measured on {found.outer_rows:,} rows that the search never saw.",
            f"The gain in macro-F1 over training without rewrites: {found.summary}.",
            next_,
        ],
        "facts": [
            ["points tried", f"{found.trials:,}"],
            ["macro-F1 on rows the search never saw", f"{found.outer:.3f}"],
            ["without rewrites", f"{found.outer_baseline:.3f}"],
            *_input(found.input),
        ],
        "search": {
            "gains": [
                {"name": "in the search: the best of many, so too high", "mean": found.validated - found.baseline},
                {"name": "on rows that it never saw", "mean": found.difference, "low": found.low, "high": found.high},
                *_by_rewrites(found),
            ],
            "options": found.options,
            "head": head,
            "body": body,
        },
    }  # fmt: skip


def _by_rewrites(found: Tuned) -> list[dict[str, Any]]:
    if found.outer_plain is None:
        return []
    interval = {"mean": found.rewrites, "low": found.rewrites_low, "high": found.rewrites_high}
    return [{"name": "of that, by rewrites", **interval}]


def _check(storage: Storage, plain: dict[str, Any]) -> dict[str, Any]:
    levels = Counter(one["level"] for one in plain["findings"])
    test = f" and {plain['test']:,} of TEST" if plain["test"] else ""
    worst = plain["findings"][0] if plain["findings"] else None
    kinds = ", ".join(f"{n} {level}{'s' if n > 1 else ''}" for level, n in levels.items())
    next_ = "`epida compare TRAIN` finds out which way to train is best"
    return {
        "title": "epida check",
        "verdict": [
            f"{plain['train']:,} rows of TRAIN{test} were checked; there are {len(plain['classes']):,} classes.",
            f"Found: {kinds}." if kinds else "Nothing is wrong.",
            f"Next, {worst['what']}: {worst['advice']}." if worst else f"Next: {next_}.",
        ],
        "facts": [["rows of TRAIN", f"{plain['train']:,}"], ["rows of TEST", f"{plain['test']:,}"]]
        + [[f"rows of {label}", f"{rows:,}"] for label, rows in list(plain["classes"].items())[:12]],
        "findings": _findings(plain),
    }  # fmt: skip


def _findings(checked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the findings, each with a table of its first rows."""
    return [
        {key: one[key] for key in ("name", "level", "what", "count", "advice")}
        | {"total": len(one["rows"]), "table": _table(one["rows"][:MAX_FINDING])}
        for one in checked["findings"]
    ]


def _table(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return rows as a head and a body; texts come first, ids last."""
    keys = list(rows[0]) if rows else []
    keys.sort(key=lambda key: ("text" not in key, key.endswith(("id", "ids"))))
    return {
        "head": [NAMES.get(key, key) for key in keys],
        "texts": ["text" in key for key in keys],
        "body": [[_cell(row[key]) for key in keys] for row in rows],
    }


def _cell(value: Any) -> str | float | int:
    if isinstance(value, list):
        return ", ".join(map(str, value))[:LONGEST]
    return value if isinstance(value, int | float) else str(value)[:LONGEST]
