"""The stage write: a selected block becomes the rows of the output files, and the files of a shard."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from epida_ray.data.storage import Storage
from epida_ray.method.round import kept_texts
from epida_ray.method.schema import (
    LABELLED,
    POOL,
    REJECTED,
    SHORT,
    SOFT_LABEL,
    SOFT_LABELS,
    Block,
    candidate_schema,
    column,
    constant,
    kept_schema,
)  # fmt: skip
from epida_ray.runs import layout
from epida_ray.runs.counts import ShardCounts

SHOWN = 200
"""Characters of a rejected text that are kept."""


class RejectedRow(NamedTuple):
    sample_id: str
    stage: str
    reason: str
    text: str


class Origin(NamedTuple):
    """Where the rows of one block come from: the columns that are the same for all of them."""

    labels: tuple[str, ...]
    label_type: str
    generator: str
    round: int
    weights_version: int
    run_id: str


def kept_rows(block: Block, origin: Origin) -> pa.Table:
    """Return the kept rewrites, sample after sample, best first, with the columns of `kept_schema`."""
    rank = column(block, "rank").flatten().to_numpy()
    owner = _owner(block)
    chosen = np.flatnonzero(rank)
    chosen = chosen[np.lexsort((rank[chosen], owner[chosen]))]
    n = len(chosen)
    columns = _candidate_columns(block, origin, chosen, owner) | _constants(origin, n)
    return _table(columns, kept_schema)


def pool_rows(block: Block, p: np.ndarray) -> pa.Table:
    """Return the scored texts of a pool with the columns POOL; `p` has their probabilities, or NaN for none."""
    good = pa.array(np.flatnonzero(np.isfinite(p).all(axis=1)))
    rewrites = [[]] * len(block) if "rank" not in block.column_names else kept_texts(block)
    columns = [
        column(block, "sample_id").take(good), column(block, "text").take(good),
        pa.array(list(p[good.to_numpy()]), POOL.field("probabilities").type),
        pa.array(rewrites, POOL.field("rewrites").type).take(good),
    ]  # fmt: skip
    return pa.table(columns, schema=POOL)


def candidate_rows(block: Block, origin: Origin) -> pa.Table:
    """Return every scored candidate with the columns of `candidate_schema`."""
    owner = _owner(block)
    everything = np.arange(len(owner))
    columns = _candidate_columns(block, origin, everything, owner) | _constants(origin, len(owner))
    columns["kept"] = pa.array(column(block, "rank").flatten().to_numpy() > 0)
    return _table(columns, candidate_schema)


def original_rows(block: Block, origin: Origin) -> pa.Table:
    """Return the originals that could be read, with the columns of `kept_schema`: rank 0, no scores."""
    good = np.array([i for i, stage in enumerate(block["stage"].to_pylist()) if stage != "read"], np.int64)
    n, where = len(good), pa.array(good)
    texts = column(block, "text").take(where)
    columns = {
        "sample_id": column(block, "sample_id").take(where),
        "text": texts,
        "label": _labels(block, origin, good),
        "source_text": texts,
        "operation": pa.repeat("original", n),
        "rank": constant(0, n),
        **{name: pa.nulls(n, pa.float64()) for name in ("s_div", "s_qua", "s_tot")},
        **_constants(origin, n),
        "generator": pa.repeat("original", n),
        "weights_version": constant(0, n),
    }
    if SOFT_LABELS.name in block.column_names:
        one_hot = np.eye(len(origin.labels), dtype=np.float32)[column(block, "label").to_numpy()[good]]
        columns[SOFT_LABEL] = pa.array(list(one_hot), SOFT_LABELS.type.value_type)
    return _table(columns, kept_schema)


def rejected_table(rows: Sequence[RejectedRow]) -> pa.Table:
    values = [(r.sample_id, r.stage, r.reason, r.text[:SHOWN]) for r in rows]
    return pa.table([pa.array(v, pa.string()) for v in zip(*values, strict=True)], schema=REJECTED)


def rejected_of(block: Block) -> list[RejectedRow]:
    """Return the rows of the block that were rejected, at whatever stage."""
    columns = (block[name].to_pylist() for name in ("sample_id", "stage", "reason", "text"))
    return [
        RejectedRow(i, stage, reason, text or "") for i, stage, reason, text in zip(*columns, strict=True) if reason
    ]


def short_table(block: Block, kept: np.ndarray, m: int | np.ndarray) -> pa.Table:
    """Return the samples of which something, but fewer than m, was kept."""
    wanted = np.broadcast_to(np.asarray(m, np.int32), len(block))
    short = np.flatnonzero((kept > 0) & (kept < wanted))
    made = np.diff(column(block, "candidates").offsets.to_numpy())
    ids = column(block, "sample_id").take(pa.array(short))
    return pa.table([ids, pa.array(made[short]), pa.array(kept[short]), pa.array(wanted[short])], schema=SHORT)


class _Written:
    """Writes tables, and knows the digests of the files."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.files: dict[str, str] = {}

    def table(self, name: str, table: pa.Table) -> None:
        self.files[name] = self._storage.write_table(name, table)


def write(
    block: Block,
    origin: Origin,
    m: int | np.ndarray,
    storage: Storage,
    file: Callable[[str], str],
    *,
    candidates: bool = False,
    originals: bool = False,
) -> ShardCounts:
    """Write the files of one shard and return its counts. `file` gives the path of the shard's file in a folder.

    `m` is how many rewrites are wanted, of all samples or of each. The file in augmented/ is written last: it says
    that the shard is done.
    """
    written = _Written(storage)
    owner, rank = _owner(block), column(block, "rank").flatten().to_numpy()
    kept = np.bincount(owner[rank > 0], minlength=len(block))
    rejected, short = rejected_of(block), short_table(block, kept, m)
    if candidates:
        written.table(file(layout.CANDIDATES), candidate_rows(block, origin))
    if len(short):
        written.table(file(layout.SHORT), short)
    if rejected:
        written.table(file(layout.REJECTED), rejected_table(rejected))
    rows = kept_rows(block, origin)
    counts = ShardCounts(
        rows=len(block),
        candidates=len(owner),
        kept=len(rows),
        rejected=len(rejected),
        short=len(short),
        flips=int(column(block, "flips").to_numpy().sum()),
        s_div=float(rows["s_div"].to_numpy().sum()),
        s_qua=float(rows["s_qua"].to_numpy().sum()),
        reasons=dict(Counter(general_reason(row.reason) for row in rejected)),
    )
    if originals:
        rows = pa.concat_tables([original_rows(block, origin), rows])
    written.table(file(layout.AUGMENTED), rows.replace_schema_metadata(counts.to_metadata()))
    return replace(counts, files=written.files)


def write_pool(block: Block, p: np.ndarray, storage: Storage, file: Callable[[str], str]) -> ShardCounts:
    """Write the files of one shard of the pool and return its counts; `p` as in `pool_rows`."""
    written = _Written(storage)
    rows, rejected = pool_rows(block, p), rejected_of(block)
    if rejected:
        written.table(file(layout.REJECTED), rejected_table(rejected))
    written.table(file(layout.POOL), rows)
    reasons = dict(Counter(general_reason(row.reason) for row in rejected))
    return ShardCounts(rows=len(block), rejected=len(rejected), reasons=reasons, files=written.files)


def write_labelled(
    block: Block, p: np.ndarray, labels: Sequence[str], storage: Storage, file: Callable[[str], str]
) -> ShardCounts:
    """Write a shard's texts with the labels of a model; `p` as in `pool_rows`."""
    written = _Written(storage)
    good = np.flatnonzero(np.isfinite(p).all(axis=1))
    where, found, rejected = pa.array(good), p[good], rejected_of(block)
    columns = [
        column(block, "sample_id").take(where), column(block, "text").take(where),
        pa.array(labels, pa.string()).take(pa.array(found.argmax(axis=1))), pa.array(found.max(axis=1)),
        pa.array(list(found), LABELLED.field("soft_label").type),
    ]  # fmt: skip
    if rejected:
        written.table(file(layout.REJECTED), rejected_table(rejected))
    reasons = dict(Counter(general_reason(row.reason) for row in rejected))
    counts = ShardCounts(rows=len(block), kept=len(good), rejected=len(rejected), reasons=reasons)
    table = pa.table(columns, schema=LABELLED)
    written.table(file(layout.LABELLED), table.replace_schema_metadata(counts.to_metadata()))
    return replace(counts, files=written.files)


def _owner(block: Block) -> np.ndarray:
    """Return the row of every candidate."""
    return np.repeat(np.arange(len(block)), np.diff(column(block, "candidates").offsets.to_numpy()))


def _candidate_columns(block: Block, origin: Origin, chosen: np.ndarray, owner: np.ndarray) -> dict[str, Any]:
    index, where = pa.array(chosen), pa.array(owner[chosen])

    def of_candidate(name: str) -> pa.Array:
        return column(block, name).flatten().take(index)

    soft = {SOFT_LABEL: of_candidate(SOFT_LABELS.name)} if SOFT_LABELS.name in block.column_names else {}
    return soft | {
        "sample_id": column(block, "sample_id").take(where),
        "text": of_candidate("candidates").cast(pa.string()),
        "label": _labels(block, origin, owner[chosen]),
        "source_text": column(block, "text").take(where),
        "operation": of_candidate("operations"),
        **{name: of_candidate(name) for name in ("rank", "s_div", "s_qua", "s_tot")},
    }


def _table(columns: dict[str, Any], schema_of: Callable[[pa.DataType], pa.Schema]) -> pa.Table:
    """Return these columns with the schema for their labels, and soft labels where there are any."""
    schema = schema_of(columns["label"].type)
    if SOFT_LABEL in columns:
        schema = schema.append(pa.field(SOFT_LABEL, SOFT_LABELS.type.value_type))
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _constants(origin: Origin, n: int) -> dict[str, Any]:
    return {
        "generator": pa.repeat(origin.generator, n),
        "round": constant(origin.round, n),
        "weights_version": constant(origin.weights_version, n),
        "run_id": pa.repeat(origin.run_id, n),
    }


def _labels(block: Block, origin: Origin, rows: np.ndarray) -> pa.Array:
    values = label_values(origin.labels, origin.label_type)
    return values.take(pa.array(column(block, "label").to_numpy()[rows]))


def label_values(labels: Sequence[str], label_type: str) -> pa.Array:
    """Return the labels with the type that they have in the input, or as strings where one has another type."""
    values = pa.array(labels, pa.string())
    try:
        typed = values.cast(label_type)
    except pa.ArrowInvalid:
        return values
    return typed if typed.cast(pa.string()).equals(values) else values


def general_reason(reason: str) -> str:
    """Return the reason without quotations and numbers, which differ from row to row, for counting."""
    unquoted = re.sub(r"""(?<!\w)(['"])(?:\\.|[^\\])*?\1(?!\w)""", "…", reason)
    return re.sub(r"(?<![\w.])\d[\d,.]*\d|(?<![\w.])\d+(?!\w)", "N", unquoted)
