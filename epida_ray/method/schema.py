"""The columns of a block: what each stage needs, what it adds, and the columns of every output file.

A block is an Arrow table with one row per sample. Candidates and their scores are list columns, so a sample stays one
row until its results are written.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Block: TypeAlias = pa.Table

ROWS = pa.schema(
    [
        ("sample_id", pa.string()),
        ("text", pa.string()),
        ("label", pa.int32()),  # class number; -1 where there is none
        ("stage", pa.string()),  # of a rejected row: where it was rejected
        ("reason", pa.string()),  # and why
    ]
)
"""After `read`."""

GENERATED = pa.schema(
    [
        *ROWS,
        ("candidates", pa.large_list(pa.large_string())),
        ("operations", pa.large_list(pa.string())),
    ]
)
"""After `generate`."""

SCORED = pa.schema([*GENERATED, ("probabilities", pa.large_list(pa.float32()))])
"""After `score`. A sample with n candidates has (n + 1) x C probabilities: those of the original come first."""

TEACHER = pa.field("teacher", pa.large_list(pa.float32()))
"""With a teacher, `score` adds its probabilities too, in the same form."""

SELECTED = pa.schema(
    [
        *GENERATED,
        ("s_div", pa.large_list(pa.float64())),
        ("s_qua", pa.large_list(pa.float64())),
        ("s_tot", pa.large_list(pa.float64())),
        ("rank", pa.large_list(pa.int32())),  # 1 is the best of the kept candidates; 0 is not kept
        ("flips", pa.int32()),  # kept candidates that the judge takes for another class
    ]
)
"""After `select`."""

SOFT_LABELS = pa.field("soft_labels", pa.large_list(pa.list_(pa.float32())))
"""The soft label of every candidate. `generate` adds it if the generator says that it gives any, one-hot where a
candidate has none; with a teacher, `select` puts the teacher's probabilities in its place."""


_SCORES = tuple((name, pa.float64()) for name in ("s_div", "s_qua", "s_tot"))


def _rewrite(label: pa.DataType) -> list[tuple[str, pa.DataType]]:
    names = ("sample_id", "text", "label", "source_text", "generator", "operation")
    return [(name, label if name == "label" else pa.string()) for name in names]


def kept_schema(label: pa.DataType) -> pa.Schema:
    """Return the columns of augmented/: where every kept row came from. `label` is the type that labels have there."""
    return pa.schema(
        [
            *_rewrite(label),
            ("round", pa.int32()),
            ("rank", pa.int32()),
            *_SCORES,
            ("weights_version", pa.int32()),
            ("run_id", pa.string()),
        ]
    )


def candidate_schema(label: pa.DataType) -> pa.Schema:
    """Return the columns of candidates/."""
    return pa.schema([*_rewrite(label), *_SCORES, ("kept", pa.bool_()), ("weights_version", pa.int32())])


SOFT_LABEL = "soft_label"
"""A further column of augmented/ and candidates/ where candidates have soft labels: a share of each class, in the order
of the labels in manifest.json. `label` stays that of the sample, which has the largest share unless a teacher sees it
otherwise."""

REJECTED = pa.schema([(name, pa.string()) for name in ("sample_id", "stage", "reason", "text")])
"""Columns of rejected/; `text` has the first characters."""

SHORT = pa.schema(
    [("sample_id", pa.string()), ("candidates", pa.int64()), ("kept", pa.int64()), ("requested", pa.int32())]
)
"""Columns of short/: samples with fewer than m kept rewrites."""


POOL = pa.schema(
    [
        ("sample_id", pa.string()),
        ("text", pa.string()),
        ("probabilities", pa.list_(pa.float32())),
        ("rewrites", pa.list_(pa.string())),
    ]
)
"""Columns of pool/: unlabelled texts of a round as the judge sees them, with the rewrites that were kept."""

LABELLED = pa.schema(
    [
        ("sample_id", pa.string()),
        ("text", pa.string()),
        ("label", pa.string()),  # the likeliest class
        ("confidence", pa.float32()),
        ("soft_label", pa.list_(pa.float32())),
    ]
)
"""Columns of labelled/: texts with a model's labels."""

PSEUDO = pa.schema(
    [
        ("sample_id", pa.string()),
        ("text", pa.string()),
        ("label", pa.string()),  # the likeliest class
        ("soft_label", pa.list_(pa.float32())),
        ("weight", pa.float32()),
        ("rewritten", pa.bool_()),
        ("round", pa.int32()),
        ("weights_version", pa.int32()),
    ]
)
"""Columns of pseudo/: what a round learned from unlabelled texts."""


def check(block: Block, schema: pa.Schema) -> Block:
    """Return the block; raise ValueError when a column of the schema is missing or of another type."""
    for field in schema:
        if field.name not in block.column_names:
            raise ValueError(f"the block has no column {field.name!r}")
        if block.schema.field(field.name).type != field.type:
            raise ValueError(f"column {field.name!r} is {block.schema.field(field.name).type}, not {field.type}")
    return block


def column(block: Block, name: str) -> Any:
    """Return a column as one array."""
    merged = block[name].combine_chunks()
    return merged.chunk(0) if isinstance(merged, pa.ChunkedArray) else merged


def lists(offsets: pa.Array, values: Any, kind: pa.DataType) -> pa.LargeListArray:
    """Return a list column from flat values; `offsets` are those of the candidates."""
    return pa.LargeListArray.from_arrays(offsets, pa.array(values, kind))


def constant(value: int, n: int) -> pa.Array:
    return pa.array(np.full(n, value, dtype=np.int32))
