"""What one shard gave, as a typed record, and the sums over shards."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

import pyarrow as pa

from epida_ray.core.errors import RunError, TakenOver

COUNTED = ("rows", "candidates", "kept", "rejected", "short")
COUNTS_KEY = b"epida_ray.counts"
"""Parquet metadata of a shard in augmented/: its counts, so that a resumed run knows them."""

SCHEMA = pa.schema(
    [
        *((name, pa.int64()) for name in COUNTED),
        ("flips", pa.int64()),
        ("s_div", pa.float64()),
        ("s_qua", pa.float64()),
        ("reasons", pa.map_(pa.string(), pa.int64())),
        ("seconds", pa.map_(pa.string(), pa.float64())),
        ("node", pa.string()),
        ("error", pa.string()),
        ("taken_over", pa.bool_()),
        ("files", pa.map_(pa.string(), pa.string())),
    ]
)


@dataclass(frozen=True)
class ShardCounts:
    """The account of one shard. `s_div` and `s_qua` are sums over the kept rows; `flips` counts kept rows that the
    judge takes for another class. A shard that could not be written has an `error` and counts nothing."""

    rows: int = 0
    candidates: int = 0
    kept: int = 0
    rejected: int = 0
    short: int = 0
    flips: int = 0
    s_div: float = 0.0
    s_qua: float = 0.0
    reasons: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    """CPU seconds by stage."""
    node: str = ""
    error: str = ""
    taken_over: bool = False
    """Whether the error is that another driver owns the run by now."""
    files: dict[str, str] = field(default_factory=dict)
    """The SHA-256 of each file that was written."""

    def check(self) -> None:
        """Raise the error, if there is one."""
        if self.taken_over:
            raise TakenOver(self.error)
        if self.error:
            raise RunError(self.error)

    def to_block(self) -> pa.Table:
        """Return the record as a table of one row, which is how Ray Data carries it."""
        return pa.Table.from_pylist([asdict(self)], SCHEMA)

    @classmethod
    def from_block(cls, block: pa.Table) -> Self:
        (row,) = block.to_pylist(maps_as_pydicts="strict")
        return cls(**row)

    def to_metadata(self) -> dict[bytes, str]:
        """Return Parquet metadata with what is the same in every attempt at the shard: no times, no node."""
        others = ("seconds", "node", "error", "taken_over", "files")
        facts = {k: v for k, v in asdict(self).items() if k not in others}
        return {COUNTS_KEY: json.dumps(facts)}

    @classmethod
    def from_metadata(cls, metadata: dict[bytes, bytes]) -> Self:
        known = {f.name for f in fields(cls)}
        return cls(**{k: v for k, v in json.loads(metadata[COUNTS_KEY]).items() if k in known})


@dataclass
class Totals:
    """Sums over finished shards."""

    shards: int = 0
    rows: int = 0
    candidates: int = 0
    kept: int = 0
    rejected: int = 0
    short: int = 0
    flips: int = 0
    s_div: float = 0.0
    s_qua: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    nodes: Counter[str] = field(default_factory=Counter)

    def add(self, one: ShardCounts) -> None:
        self.shards += 1
        for name in (*COUNTED, "flips", "s_div", "s_qua"):
            setattr(self, name, getattr(self, name) + getattr(one, name))
        self.reasons.update(one.reasons)
        self.seconds.update(one.seconds)
        if one.node:
            self.nodes[one.node] += 1

    def commonest_reason(self) -> str:
        """Return the commonest reason for a rejection, with its count."""
        reason, count = self.reasons.most_common(1)[0]
        return f"the most common reason ({count:,} rows): {reason}"

    def counted(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in COUNTED}
