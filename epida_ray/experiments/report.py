"""`epida report DIR`: one HTML file about a run that needs neither a network nor a server.

Texts reach the page as JSON and are put into it as text nodes only, so a text that is HTML is shown, never run.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from importlib.resources import files
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import regex
from numpy.typing import NDArray

from epida_ray.core.errors import EpidaError, RequestError
from epida_ray.data.storage import Storage
from epida_ray.generate.words import NO_SPACES
from epida_ray.runs.run import read_manifest, status_of

MAX_ROWS = 100_000
"""Kept rows in the page; of larger runs an even share of every file."""
MAX_POINTS = 20_000
MAX_REJECTED = 2_000
EXAMPLES = 12
LONGEST = 1_000
"""Characters of a text in an example."""
MAP_ORIGINALS = 100
"""Originals in the map of hidden states; what was kept of them comes on top."""


def write_report(directory: str, trust_code: Sequence[str] = ()) -> str:
    """Write DIR/report.html and return where it is."""
    storage = Storage(directory)
    page = render(report_data(storage, trust_code))
    storage.write("report.html", page.encode("utf-8", "replace"))
    return f"{storage.location}/report.html"


def render(data: dict[str, Any]) -> str:
    folder = files("epida_ray.experiments")
    page = folder.joinpath("report.html").read_text(encoding="utf-8")
    parts = {
        "STYLE": folder.joinpath("report.css").read_text(encoding="utf-8"),
        "SCRIPT": folder.joinpath("report.js").read_text(encoding="utf-8"),
        "DATA": json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
    }
    return re.sub(r"\{\{(STYLE|SCRIPT|DATA)\}\}", lambda match: parts[match[1]], page)


def report_data(storage: Storage, trust_code: Sequence[str] = ()) -> dict[str, Any]:
    """All that the page shows, as plain JSON."""
    manifest = read_manifest(storage)
    kept = _read(storage, "augmented", MAX_ROWS, kept_only=True)
    candidates = _read(storage, "candidates", MAX_POINTS, whole_samples=True)
    asked = manifest.get("asked", {})
    rejected = _rejected(storage, manifest)
    data: dict[str, Any] = {
        "title": f"epida {manifest['kind']}" + (f": {manifest['title']}" if "title" in manifest else ""),
        "facts": _facts(manifest, rejected["total"]),
        "command": shlex.join(map(str, manifest.get("command", ()))),
        "asked": {k: v for k, v in asked.items() if not isinstance(v, dict | list) or v},
        "versions": manifest.get("versions", {}),
        "stages": []
        if manifest["kind"] == "reproduce"  # which has the time that passed, not work
        else [[name, seconds] for name, seconds in manifest.get("seconds", {}).items()],
        "rounds": _rounds(storage),
        "rejected": rejected,
    }
    if kept is not None:
        total = manifest.get("done", {}).get("kept", len(kept))
        data["kept"] = _columns(kept) | {"total": max(total, len(kept))}
        source = (
            candidates if candidates is not None else kept.append_column("kept", pa.array(np.ones(len(kept), bool)))
        )
        data["scatter"] = _scatter(source, candidates is not None) | {"normalized": asked.get("normalize", True)}
        data["examples"] = _examples(source)
        axes = str(asked.get("select", "")).split("+") if candidates is not None else []
        data["map"] = _map(storage, source, axes if len(axes) == 2 else [], int(asked.get("m", 3)), trust_code)
    if manifest["kind"] == "reproduce":
        data |= _experiment(storage)
    return data


def _facts(manifest: dict[str, Any], rejected: int) -> list[list[str]]:
    done = manifest.get("done", {})
    facts = [["status", status_of(manifest)]]
    if manifest.get("asked", {}).get("protocol") == "paper":
        facts.append(["protocol", "PAPER: the best test score"])
    facts += [[name, f"{done[name]:,}"] for name in ("rows", "candidates", "kept", "short") if name in done]
    facts += [["rejected", f"{rejected:,}"]] if done else []
    if best := manifest.get("best"):
        facts.append([f"dev macro-F1 of the best round, {best['round']}", f"{best['macro_f1']:.3f}"])
    if test := manifest.get("test"):
        facts.append([f"test macro-F1 ({test['rows']:,} rows)", f"{test['macro_f1']:.3f}"])
        facts.append(["test accuracy", f"{test['accuracy']:.3f}"])
    facts += [
        [name, str(manifest[name])]
        for name in ("trials", "run_id", "classifier", "started", "finished")
        if name in manifest
    ]
    if manifest.get("resumed"):
        facts.append(["resumed", f"{manifest['resumed']} times"])
    if manifest.get("nodes"):
        facts.append(["nodes", str(len(manifest["nodes"]))])
    return facts


def _files(storage: Storage, folder: str) -> list[str]:
    selector = pafs.FileSelector(storage.path(folder), recursive=True, allow_not_found=True)
    infos = storage.filesystem.get_file_info(selector)
    return sorted(i.path for i in infos if i.path.endswith(".parquet") and not i.base_name.startswith("."))


def _read(
    storage: Storage, folder: str, limit: int, *, whole_samples: bool = False, kept_only: bool = False
) -> pa.Table | None:
    """Up to `limit` rows of the folder's files, from the start of each and as evenly as their sizes allow.

    `whole_samples`: without the last sample of a file that is not read to its end, some of whose rows are missing.
    `kept_only`: without originals, which have no rank and stand before the others.
    """
    paths = _files(storage, folder)
    if not paths:
        return None
    with_rows = [(path, _row_count(storage, path)) for path in paths]
    share = _even_share([n for _, n in with_rows], limit)
    tables = []
    for (path, rows), take in zip(with_rows, share, strict=True):
        if not take:
            continue
        with storage.filesystem.open_input_file(path) as file:
            parts, got = [], 0
            for batch in pq.ParquetFile(file).iter_batches(batch_size=min(rows, take, 16_384)):
                if kept_only:
                    batch = batch.filter(pa.array(batch["rank"].to_numpy() > 0))
                parts.append(batch)
                got += len(batch)
                if got >= take:
                    break
            table = pa.Table.from_batches(parts).slice(0, take)
            if whole_samples and take < rows:
                *_, (cut, _) = _groups(table)
                table = table.slice(0, cut or take)  # of a share that is smaller than one sample, what there is
        tables.append(table.replace_schema_metadata(None))
    return pa.concat_tables(tables, promote_options="permissive") if tables else None


def _row_count(storage: Storage, path: str) -> int:
    with storage.filesystem.open_input_file(path) as file:
        return int(pq.ParquetFile(file).metadata.num_rows)


def _even_share(sizes: Sequence[int], limit: int) -> list[int]:
    share, left = [0] * len(sizes), limit
    for waiting, i in enumerate(sorted(range(len(sizes)), key=lambda i: sizes[i])):
        share[i] = min(sizes[i], left // (len(sizes) - waiting))
        left -= share[i]
    return share


def _codes(column: pa.ChunkedArray) -> tuple[list[str], list[int]]:
    """The distinct values, and for every row which of them it has."""
    found: dict[str, int] = {}
    codes = [found.setdefault("" if v is None else str(v), len(found)) for v in column.to_pylist()]
    return list(found), codes


def _rounded(column: pa.ChunkedArray) -> list[float]:
    return np.nan_to_num(column.cast(pa.float64()).to_numpy(), posinf=0.0, neginf=0.0).round(4).tolist()


def _columns(table: pa.Table) -> dict[str, Any]:
    out: dict[str, Any] = {"text": table["text"].to_pylist()}
    for name in ("source_text", "label", "generator", "operation", "sample_id"):
        out[f"{name}_names"], out[name] = _codes(table[name])
    for name in ("round", "rank"):
        out[name] = table[name].to_pylist()
    for name in ("s_div", "s_qua", "s_tot"):
        out[name] = _rounded(table[name])
    return out


def _scatter(table: pa.Table, with_dropped: bool) -> dict[str, Any]:
    part = table.take(pa.array(_spread(len(table), MAX_POINTS), pa.int64()))
    return {
        "s_div": _rounded(part["s_div"]),
        "s_qua": _rounded(part["s_qua"]),
        "kept": part["kept"].to_numpy().astype(int).tolist(),
        "text": [str(t)[:160] for t in part["text"].to_pylist()],
        "with_dropped": with_dropped,
    }


def _spread(size: int, count: int) -> list[int]:
    """At most `count` of the numbers below `size`, evenly."""
    step = max(1.0, size / count)
    return [int(i * step) for i in range(min(size, count))]


def _groups(table: pa.Table) -> Iterator[tuple[int, int]]:
    """Rows [start, end) of each sample; a sample's rows stand together."""
    _, codes = _codes(table["sample_id"])
    start = 0
    for i in range(1, len(codes) + 1):
        if i == len(codes) or codes[i] != codes[start]:
            yield start, i
            start = i


def _examples(table: pa.Table) -> list[dict[str, Any]]:
    groups = list(_groups(table))
    chosen = _spread(len(groups), EXAMPLES)
    examples = []
    for number in chosen:
        start, end = groups[number]
        rows = table.slice(start, end - start).to_pylist()
        source = rows[0]["source_text"][:LONGEST]
        candidates = [
            {
                "text": mark_words(source, row["text"][:LONGEST]),
                "scores": [round(row[s] or 0.0, 2) for s in ("s_div", "s_qua", "s_tot")],
                "kept": bool(row["kept"]),
                "operation": row["operation"],
            }
            for row in rows
        ]
        examples.append({"label": str(rows[0]["label"]), "source": source, "candidates": candidates})
    return examples


_PIECE = regex.compile(rf"(?V1)\s+|{NO_SPACES}\p{{M}}*|(?:(?!{NO_SPACES})\S)+")
"""White space, a word, or a character of a script without spaces."""


def mark_words(source: str, text: str) -> list[tuple[str, int]]:
    """Pieces with 0 where they are as in `source`, word by word, 1 where new and 2 where left out.

    Those with 0 and 1, joined, are `text`.
    """
    old, new = (_PIECE.findall(t) for t in (source, text))
    before = [piece for piece in old if not piece.isspace()]
    words = [i for i, piece in enumerate(new) if not piece.isspace()]
    flags = [0] * len(new)
    left_out: dict[int, str] = {}
    matcher = SequenceMatcher(None, before, [new[i] for i in words], autojunk=False)
    for what, start, end, first, last in matcher.get_opcodes():
        if what == "delete":
            left_out[words[first] if first < len(words) else len(new)] = " ".join(before[start:end])
        elif what != "equal":
            for i in words[first:last]:
                flags[i] = 1
    pieces: list[tuple[str, int]] = []
    for i, piece in enumerate([*new, ""]):
        if i in left_out:
            pieces.append((left_out[i], 2))
        if i < len(new):
            if pieces and pieces[-1][1] == flags[i]:
                pieces[-1] = (pieces[-1][0] + piece, flags[i])
            else:
                pieces.append((piece, flags[i]))
    return pieces


def _map(storage: Storage, table: pa.Table, axes: Sequence[str], m: int, trust_code: Sequence[str]) -> dict[str, Any]:
    """Hidden states of originals and of what was kept, on a plane; beside it what each score alone would keep."""
    if not storage.exists("model/config.json"):
        return {"missing": "The run has no model whose hidden states could be shown."}
    try:
        from sklearn.manifold import TSNE
    except ImportError:
        return {"missing": "The map of hidden states needs scikit-learn: pip install 'epida-ray[report]'."}
    from epida_ray.classify import load

    try:
        classifier = load(storage.local_copy("model"), trust=trust_code)
    except EpidaError as error:
        return {"missing": f"The run's model cannot be used here: {error}"}
    if not hasattr(classifier, "embed"):
        return {"missing": "The run's classifier does not give hidden states."}
    groups = list(_groups(table))
    chosen = _spread(len(groups), MAP_ORIGINALS)
    texts: list[str] = []
    classes: list[int] = []
    names, codes = _codes(table["label"])
    alone = [f"{axis.upper()} only" for axis in axes]
    panels: dict[str, list[int]] = {"kept": [], **{name: [] for name in alone}}
    all_texts, sources = ([str(t) for t in table[c].to_pylist()] for c in ("text", "source_text"))
    kept, *scores = (table[c].to_numpy() for c in ("kept", "s_div", "s_qua"))
    originals: list[int] = []
    for number in chosen:
        start, end = groups[number]
        originals.append(len(texts))
        texts.append(sources[start])
        classes.append(codes[start])
        picks = {"kept": np.flatnonzero(kept[start:end])}
        picks |= {name: _top(score[start:end], m) for name, score in zip(alone, scores, strict=False)}
        place: dict[int, int] = {}
        for panel, rows in picks.items():
            for row in rows.tolist():
                if row not in place:
                    place[row] = len(texts)
                    texts.append(all_texts[start + row])
                    classes.append(codes[start])
                panels[panel].append(place[row])
    if len(texts) < 8:
        return {"missing": "There are too few rows for a map of hidden states."}
    hidden = np.asarray(classifier.embed(texts))
    if hidden.ndim != 2 or hidden.shape[1] < 2 or not np.isfinite(hidden).all() or not np.ptp(hidden, axis=0).any():
        return {"missing": "The classifier's hidden states are all alike; there is nothing to draw."}
    near = min(30.0, (len(texts) - 1) / 3)
    plane = TSNE(2, perplexity=near, init="pca", max_iter=600, random_state=0).fit_transform(hidden)
    return {
        "labels": names,
        "x": plane[:, 0].round(2).tolist(),
        "y": plane[:, 1].round(2).tolist(),
        "class": classes,
        "text": [t[:160] for t in texts],
        "originals": originals,
        "panels": [[name, rows] for name, rows in panels.items()],
    }


def _top(scores: NDArray[np.float64], m: int) -> NDArray[np.int64]:
    return np.argsort(-scores, kind="stable")[:m]


def _rounds(storage: Storage) -> list[dict[str, float]]:
    if not storage.exists("metrics.jsonl"):
        return []
    lines = storage.read("metrics.jsonl").decode().splitlines()
    return [dict(_numbers(json.loads(line))) for line in lines if line.strip()]


def _numbers(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for key, item in value.items():
        if isinstance(item, dict):
            yield from _numbers(item, f"{prefix}{key} ")
        elif isinstance(item, int | float) and not isinstance(item, bool) and np.isfinite(item):
            yield f"{prefix}{key}", item


def _rejected(storage: Storage, manifest: dict[str, Any]) -> dict[str, Any]:
    table = _read(storage, "rejected", MAX_REJECTED)
    rows = table.to_pylist() if table is not None else []
    reasons = manifest.get("reasons") or dict(Counter(row["reason"] for row in rows).most_common(50))
    return {
        "reasons": [[reason, count] for reason, count in reasons.items()],
        "rows": [[str(row.get(c) or "") for c in ("sample_id", "stage", "reason", "text")] for row in rows],
        "total": max(manifest.get("done", {}).get("rejected", 0), len(rows)),
    }


def _experiment(storage: Storage) -> dict[str, Any]:
    """The trials of `epida reproduce`, with its table and plot."""
    if not storage.exists("results.csv"):
        raise RequestError(f"{storage.location} has no results.csv; run `epida reproduce` to the end first")
    head, *body = csv.reader(io.StringIO(storage.read("results.csv").decode()))
    return {
        "results": {"head": head, "body": body},
        "summary": storage.read("table.md").decode(),
        "plot": storage.read("plot.svg").decode(),
    }
