"""`epida report DIR`: one HTML file about a run that needs neither a network nor a server.

Texts reach the page as JSON and only ever become text nodes, so the page shows a text that is HTML and never runs it.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import Any

import numpy as np
import pyarrow as pa

from epida_ray.core.errors import RequestError
from epida_ray.data.arrow import open_own
from epida_ray.data.storage import Storage
from epida_ray.experiments.hidden_states import draw_map
from epida_ray.experiments.layout import PLOT, RESULTS, TABLE
from epida_ray.experiments.report_compared import compared_data
from epida_ray.experiments.report_rows import codes, read_rows, rounded, sample_ranges, spread
from epida_ray.experiments.report_summary import input_name, rounds_note, summary
from epida_ray.generate.word_marks import mark_words
from epida_ray.runs import layout
from epida_ray.runs.commit import listed
from epida_ray.runs.manifest import Manifest, read_manifest

MAX_ROWS = 100_000
"""Kept rows in the page; of a larger run, an even share of every file."""
MAX_POINTS = 20_000
MAX_REJECTED = 2_000
MAX_POOL = 5_000
EXAMPLES = 12
LONGEST = 1_000
"""Characters of a text in an example."""
SCRIPTS = ("report_parts.js", "report_compared.js", "report.js")
SCORES = ("s_div", "s_qua", "s_tot")


def write_report(directory: str, trust_code: Sequence[str] = ()) -> str:
    """Write DIR/report.html and return its location."""
    storage = Storage(directory)
    page = render(report_data(storage, trust_code))
    storage.write(layout.REPORT, page.encode("utf-8", "replace"))
    return f"{storage.location}/{layout.REPORT}"


def render(data: dict[str, Any]) -> str:
    """Return the page that shows this data."""
    folder = files("epida_ray.experiments")
    page = folder.joinpath("report.html").read_text(encoding="utf-8")
    script = "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS)
    parts = {
        "STYLE": folder.joinpath("report.css").read_text(encoding="utf-8"),
        "SCRIPT": script,
        "HASH": b64encode(sha256(script.encode()).digest()).decode(),  # the browser runs this script and no other
        "DATA": json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
    }
    return re.sub(r"\{\{(STYLE|SCRIPT|HASH|DATA)\}\}", lambda match: parts[match[1]], page)


def report_data(
    storage: Storage, trust_code: Sequence[str] = (), maps: dict[str, dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Return all that the page shows, as plain JSON.

    `maps` keeps the map between calls: a model's map is drawn once while its run goes on, and again when it has ended.
    """
    if not storage.exists(layout.MANIFEST) and (compared := compared_data(storage)) is not None:
        return compared
    manifest = read_manifest(storage)
    request, is_experiment = manifest.request, manifest.kind == "reproduce"
    only = listed(storage) if manifest.status == "finished" else None  # nobody else's files
    rejected, rounds = _rejected(storage, manifest, only), _rounds(storage)
    data: dict[str, Any] = {
        "title": f"epida {manifest.kind}" + (f": {manifest.experiment['title']}" if manifest.experiment else ""),
        "facts": _facts(manifest, rejected["total"]),
        "verdict": summary(manifest, rounds),
        "best_round": manifest.best.round if manifest.best else None,
        "test": manifest.test,
        "labels": manifest.labels,
        "command": shlex.join(manifest.command),
        "request": _options(manifest),
        "versions": manifest.versions,
        "stages": [] if is_experiment else [list(item) for item in manifest.seconds.items()],
        "rounds": rounds,
        "rounds_note": rounds_note(manifest, rounds),
        "rejected": rejected,
    }
    kept = read_rows(storage, layout.AUGMENTED, MAX_ROWS, kept_only=True, only=only)
    if kept is not None:
        candidates = read_rows(storage, layout.CANDIDATES, MAX_POINTS, whole_samples=True, only=only)
        judged = candidates is not None
        source = candidates if judged else kept.append_column("kept", pa.array(np.ones(len(kept), bool)))
        axes = str(request.get("select", "")).split("+") if judged else []
        data["kept"] = _columns(kept) | {"total": max(manifest.done.kept, len(kept))}
        data["scatter"] = _scatter(source, judged) | {"normalized": request.get("normalize", True)}
        data["examples"] = _examples(source)
        shown = axes if len(axes) == 2 else []
        data["map"] = _kept_map(
            manifest, maps, lambda: draw_map(storage, source, shown, int(request.get("m", 3)), trust_code)
        )
    elif manifest.prepared is not None and storage.exists(f"{layout.MODEL}/config.json"):
        data["map"] = _kept_map(manifest, maps, lambda: draw_map(storage, _originals(storage), [], 0, trust_code))
    if (pool := _pool(storage, manifest.labels)) is not None:
        data["pool"] = pool
    if manifest.kind == "label":
        data |= _labelled(storage, manifest.labels, only)
    if is_experiment:
        data |= _experiment(storage, manifest)
    return data


def _kept_map(
    manifest: Manifest, maps: dict[str, dict[str, Any]] | None, draw: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    key = f"{manifest.model_digest} {manifest.status}"
    if maps is None or "missing" in maps.get(key, {"missing": ""}):
        found = draw()
        if maps is not None:
            maps[key] = found
        return found
    return maps[key]


def _facts(manifest: Manifest, rejected: int) -> list[list[str]]:
    """Return names and values for the top of the page."""
    facts = [["status", manifest.observed_status()]]
    if manifest.request.get("protocol") == "paper":
        facts.append(["protocol", "PAPER: the round is chosen on the test set"])
    if manifest.experiment:
        facts.append(["trials", f"{manifest.experiment['trials']:,}"])
    else:
        done = manifest.done
        facts += [[name, f"{getattr(done, name):,}"] for name in ("rows", "candidates", "kept")]
        facts.append(["texts with fewer than m kept", f"{done.short:,}"])
        facts.append(["rejected", f"{rejected:,}"])
    if best := manifest.best:
        facts.append([f"dev macro-F1 of the chosen round, {best.round}", f"{best.macro_f1:.3f}"])
    if test := manifest.test:
        facts.append([f"test macro-F1 ({test['rows']:,} rows)", f"{test['macro_f1']:.3f}"])
        facts.append(["test accuracy", f"{test['accuracy']:.3f}"])
        facts += [[f"test macro-F1 with noise {n}", f"{s['macro_f1']:.3f}"] for n, s in test.get("noise", {}).items()]
    facts.append(["input", input_name(manifest)])
    named = {name: getattr(manifest, name) for name in ("run_id", "classifier", "started", "finished")}
    facts += [[name, str(value)] for name, value in named.items() if value]
    if manifest.resumed:
        facts.append(["resumed", "once" if manifest.resumed == 1 else f"{manifest.resumed} times"])
    if manifest.nodes:
        facts.append(["nodes", str(len(manifest.nodes))])
    return facts


def _options(manifest: Manifest) -> dict[str, Any]:
    """Return the options, with the names of files in place of their digests."""
    options = manifest.request | {k: v for k, v in manifest.execution.items() if k in manifest.request or k == "input"}
    return {k: v for k, v in options.items() if v is not None and (not isinstance(v, dict | list) or v)}


def _pool(storage: Storage, labels: Sequence[str]) -> dict[str, Any] | None:
    """Return unlabelled texts of the last rounds with their soft labels, the classes by falling probability."""
    table = read_rows(storage, layout.PSEUDO, MAX_POOL)
    if table is None:
        return None
    names, numbers = codes(table["label"])
    return {
        "text": [str(t)[:LONGEST] for t in table["text"].to_pylist()],
        "label": [names[i] for i in numbers],
        "soft": _soft(table, labels),
        "weight": rounded(table["weight"]),
        "round": table["round"].to_pylist(),
        "rewritten": [bool(v) for v in table["rewritten"].to_pylist()],
    }


def _soft(table: pa.Table, labels: Sequence[str]) -> list[str]:
    """Return the three likeliest classes of every text."""
    soft = []
    for row in table["soft_label"].to_pylist():
        order = sorted(range(len(row)), key=lambda i: -row[i])[:3]
        soft.append(", ".join(f"{labels[i]} {row[i]:.2f}" for i in order) if len(row) == len(labels) else "")
    return soft


def _labelled(storage: Storage, labels: Sequence[str], only: Collection[str] | None) -> dict[str, Any]:
    """Return texts that `epida label` labelled, and those that it lists to be labelled by hand."""
    data: dict[str, Any] = {}
    if (table := read_rows(storage, layout.LABELLED, MAX_POOL, only=only)) is not None:
        data["labelled"] = {
            "id": table["sample_id"].to_pylist(),
            "text": [str(t)[:LONGEST] for t in table["text"].to_pylist()],
            "label": table["label"].to_pylist(),
            "confidence": rounded(table["confidence"]),
            "soft": _soft(table, labels),
        }
    if storage.exists(layout.REVIEW):
        _, *rows = csv.reader(io.StringIO(storage.read(layout.REVIEW).decode(), newline=""))
        data["review"] = [[i, text[:LONGEST], label, float(c), float(e)] for i, text, label, c, e in rows[:MAX_POOL]]
    return data


def _originals(storage: Storage) -> pa.Table:
    """Return the rows that a run learned from, as the map takes them: none of them has a rewrite."""
    file = layout.prepared_file("train")
    table = open_own(pa.BufferReader(storage.read(file)), file).read()
    nothing = pa.array(np.zeros(len(table)))
    more = {
        "source_text": table["text"],
        "kept": pa.array(np.zeros(len(table), bool)),
        "s_div": nothing,
        "s_qua": nothing,
    }
    return pa.table({name: table[name] for name in ("sample_id", "text", "label")} | more)


def _columns(table: pa.Table) -> dict[str, Any]:
    """Return the kept rows column by column, repeated values as numbers."""
    out: dict[str, Any] = {"text": table["text"].to_pylist()}
    for name in ("source_text", "label", "generator", "operation", "sample_id"):
        out[f"{name}_names"], out[name] = codes(table[name])
    for name in ("round", "rank"):
        out[name] = table[name].to_pylist()
    return out | {name: rounded(table[name]) for name in SCORES}


def _scatter(table: pa.Table, with_dropped: bool) -> dict[str, Any]:
    part = table.take(pa.array(spread(len(table), MAX_POINTS), pa.int64()))
    return {
        "s_div": rounded(part["s_div"]),
        "s_qua": rounded(part["s_qua"]),
        "kept": part["kept"].to_numpy().astype(int).tolist(),
        "text": [str(t)[:160] for t in part["text"].to_pylist()],
        "with_dropped": with_dropped,
    }


def _examples(table: pa.Table) -> list[dict[str, Any]]:
    """Return all rows of a few samples, with the changed words marked."""
    ranges = list(sample_ranges(table))
    examples = []
    for number in spread(len(ranges), EXAMPLES):
        start, end = ranges[number]
        rows = table.slice(start, end - start).to_pylist()
        source = rows[0]["source_text"][:LONGEST]
        candidates = [
            {
                "text": mark_words(source, row["text"][:LONGEST]),
                "scores": [round(row[s] or 0.0, 2) for s in SCORES],
                "kept": bool(row["kept"]),
                "operation": row["operation"],
            }
            for row in rows
        ]
        examples.append({"label": str(rows[0]["label"]), "source": source, "candidates": candidates})
    return examples


def _rounds(storage: Storage) -> list[dict[str, float]]:
    if not storage.exists(layout.METRICS):
        return []
    lines = storage.read(layout.METRICS).decode().splitlines()
    return [dict(_numbers(json.loads(line))) for line in lines if line.strip()]


def _numbers(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of a line of metrics, nested ones by their path."""
    for key, item in value.items():
        if isinstance(item, dict):
            yield from _numbers(item, f"{prefix}{key} ")
        elif isinstance(item, int | float) and not isinstance(item, bool) and np.isfinite(item):
            yield f"{prefix}{key}", item


def _rejected(storage: Storage, manifest: Manifest, only: Collection[str] | None) -> dict[str, Any]:
    if only is not None:
        of_no_shard = ("input", "train", "dev", "eval", f"unreadable-files-{str(manifest.fingerprint)[:12]}")
        only = {*only, *map(layout.rejected_file, of_no_shard)}
    table = read_rows(storage, layout.REJECTED, MAX_REJECTED, only=only)
    rows = table.to_pylist() if table is not None else []
    reasons = manifest.reasons or dict(Counter(row["reason"] for row in rows).most_common(50))
    return {
        "reasons": [[reason, count] for reason, count in reasons.items()],
        "rows": [[str(row.get(c) or "") for c in ("sample_id", "stage", "reason", "text")] for row in rows],
        "total": max(manifest.done.rejected, len(rows)),
    }


def _experiment(storage: Storage, manifest: Manifest) -> dict[str, Any]:
    """Return the trials of `epida reproduce` with their table and plot: nothing while they are being run."""
    if not storage.exists(RESULTS) and manifest.observed_status() != "finished":
        return {}
    if not storage.exists(RESULTS):
        raise RequestError(f"{storage.location} has no {RESULTS}; let `epida reproduce` finish first")
    head, *body = csv.reader(io.StringIO(storage.read(RESULTS).decode()))
    return {
        "results": {"head": head, "body": body},
        "summary": storage.read(TABLE).decode(),
        "plot": f"data:image/svg+xml;base64,{b64encode(storage.read(PLOT)).decode()}",
    }
