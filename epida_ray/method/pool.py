"""Unlabelled texts: which of them a round uses, and the soft labels and weights that they get."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from hashlib import blake2b

import numpy as np
import pyarrow as pa

from epida_ray.classify.examples import PoolTexts
from epida_ray.core.errors import RequestError
from epida_ray.core.labels import hard
from epida_ray.data.plan import Plan, Shard
from epida_ray.method.requests import TrainRequest
from epida_ray.method.schema import PSEUDO

SHARPNESS = 2.0
"""Soft labels are raised to this power: a temperature of 1/2."""
LEAST_SHARE = 1e-6
"""No class has a smaller share in the prior: a text that can only be of a class with none would have no soft label."""
ALIGNMENTS = 10
"""Steps of the alignment with the prior; the class shares then differ from it by less than a hundredth."""
ROWS_PER_STEP = 64
"""Unlabelled texts in a training step, about."""
SHARDS_PER_ROUND = 8
"""A round's texts come from at least so many shards, or a large pool would give it many more than were asked for."""


def pool_plan(plan: Plan, request: TrainRequest, classes: int) -> Plan:
    """Return the plan of the unlabelled texts, cut into the shards that rounds take."""
    texts = 1 + request.pool_rewrites * request.k * request.m
    return plan.cut(texts, classes, most=request.pool_rows // SHARDS_PER_ROUND)


def pool_shards(plan: Plan, round_: int, rows: int, seed: int) -> list[Shard]:
    """Return the shards of the pool that a round uses: some `rows` rows, the next ones in a seeded order."""
    shards = list(plan.shards())
    order = np.random.default_rng([seed, 11]).permutation(len(shards))
    count = min(len(shards), max(1, -(-rows // plan.shard_rows)))
    start = (round_ - 1) * count
    return sorted(shards[order[(start + i) % len(shards)]] for i in range(count))


def soft_labels(p: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return soft labels [U, C] and weights [U] of texts with the predictions `p`.

    Predictions are aligned with the class prior (q_c ∝ p_c · prior_c / mean p_c, until the shares fit), sharpened, and
    weighted by their certainty 1 − H(q) / log C. No threshold: on few labels it would leave out whole classes.
    """
    q = np.asarray(p, np.float64)
    prior = np.maximum(prior, LEAST_SHARE)
    for _ in range(ALIGNMENTS):
        q = q * (prior / np.maximum(q.mean(axis=0), 1e-12))
        q /= q.sum(axis=1, keepdims=True)
    q **= SHARPNESS
    q /= q.sum(axis=1, keepdims=True)
    entropy = -(q * np.log(np.maximum(q, 1e-12))).sum(axis=1)
    weights = np.clip(1 - entropy / np.log(q.shape[1]), 0, 1)
    return q.astype(np.float32), weights.astype(np.float32)


def class_prior(given: Mapping[str, float], labels: Sequence[str], y: np.ndarray) -> np.ndarray:
    """Return the share of each class: the given one, else that of the labelled rows."""
    if not given:
        return np.bincount(hard(y), minlength=len(labels)) / len(y)
    if set(given) != set(labels):
        raise RequestError(f"--prior must have a share for each of the classes {', '.join(labels)}")
    prior = np.array([_share(given[label]) for label in labels])
    if not (prior >= 0).all() or not abs(prior.sum() - 1) <= 0.01:
        raise RequestError(f"the shares of --prior must be at least 0 and sum to 1, not {prior.sum():g}")
    return prior / prior.sum()


def _share(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        raise RequestError(f"a share of --prior is a number such as 0.25, not {value}") from None


def pool_texts(table: pa.Table, prior: np.ndarray, share: float) -> PoolTexts:
    """Return what a round learns from a scored slice of the pool, with the columns of POOL.

    A text and its rewrites have the same soft label; the rewrites of a text weigh as much as the text.
    """
    if not len(table):
        return PoolTexts([], np.zeros((0, len(prior)), np.float32), np.zeros(0, np.float32), share)
    p = np.array(table["probabilities"].to_pylist(), np.float32).reshape(len(table), len(prior))
    soft, weights = soft_labels(p, prior)
    texts, rewrites = table["text"].to_pylist(), table["rewrites"].to_pylist()
    for some in rewrites:
        texts += some
    counts = np.array([len(some) for some in rewrites])
    owner = np.repeat(np.arange(len(table)), counts)
    return PoolTexts(
        texts,
        np.concatenate([soft, soft[owner]]),
        np.concatenate([weights, weights[owner] / np.maximum(counts[owner], 1)]).astype(np.float32),
        share,
    )


def without(table: pa.Table, known: Set[bytes]) -> pa.Table:
    """Return the rows whose text has none of these hashes: labelled texts are not unlabelled ones, too."""
    return table.filter(pa.array([text_hash(text) not in known for text in table["text"].to_pylist()], pa.bool_()))


def hashes(*texts: Iterable[str]) -> frozenset[bytes]:
    return frozenset(text_hash(text) for some in texts for text in some)


def pseudo_rows(table: pa.Table, used: PoolTexts, labels: Sequence[str], round_: int, version: int) -> pa.Table:
    """Return the rows of pseudo/: what a round learned from unlabelled texts, and whose prediction it was."""
    ids = table["sample_id"].to_pylist()
    ids += [i for i, some in zip(ids, table["rewrites"].to_pylist(), strict=True) for _ in some]
    n = len(ids)
    columns = [
        ids,
        used.texts,
        [labels[c] for c in used.soft.argmax(axis=1).tolist()],
        list(used.soft),
        used.weights,
        np.arange(n) >= len(table),
        np.full(n, round_, np.int32),
        np.full(n, version, np.int32),
    ]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, PSEUDO, strict=True)], schema=PSEUDO)


def text_hash(text: str) -> bytes:
    """Return a short digest of a text that ignores case and white space, to find the same text in two files."""
    return blake2b(" ".join(text.lower().split()).encode("utf-8", "surrogatepass"), digest_size=8).digest()
