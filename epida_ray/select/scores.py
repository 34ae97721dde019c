"""The scores of SEAS, one number per candidate. Larger is more diverse, or better.

`p` [N, C] are the candidates' probabilities, `o` [S, C] those of the originals, `owner` [N] the row of `o` that a
candidate was made from (left out: row n of `o` belongs to row n of `p`), `y` [N] the labels as class numbers.
Everything is float64 inside and every row is computed by itself, so a score does not depend on the batch.

Where numbers fall below EPS = 1e-10 these are the rules of the paper's listing: p is raised to EPS in REM and H, and
each element of P is raised to EPS before its rows are summed. With more than PAIRED_CLASSES classes P is left as it
is, which changes I by less than 25·C²·EPS and makes it cost C instead of C².
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import ArrayLike, NDArray

EPS = 1e-10
PAIRED_CLASSES = 64

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def rem(p: ArrayLike, y: ArrayLike) -> Floats:
    # Eq. 7: D(p, onehot(y)) = −log p_y
    return -np.log(np.maximum(_of_label(p, y), EPS))


def rem_linear(p: ArrayLike, y: ArrayLike) -> Floats:
    # 1 − p_y
    return 1.0 - _of_label(p, y)


def cem(p: ArrayLike, o: ArrayLike, owner: ArrayLike | None = None) -> Floats:
    # Eq. 10 as the paper's listing has it: 1 + I(p, o) − H(p)
    return 1.0 + mutual_information(p, o, owner) + neg_entropy(p)


def cem_agreement(p: ArrayLike, o: ArrayLike, owner: ArrayLike | None = None) -> Floats:
    # 1 − I(p, o) − H(p)
    return 1.0 - mutual_information(p, o, owner) + neg_entropy(p)


def neg_entropy(p: ArrayLike) -> Floats:
    # −H(p) = Σ p log p
    out: Floats = _neg_entropy(_rows(p))
    return out


def cosine(p: ArrayLike, y: ArrayLike) -> Floats:
    # cos(p, onehot(y)) = p_y / |p|
    rows = _rows(p)
    lengths: Floats = np.maximum(np.sqrt((rows * rows).sum(axis=1)), EPS)
    return _of_label(rows, y) / lengths


def mutual_information(p: ArrayLike, o: ArrayLike, owner: ArrayLike | None = None) -> Floats:
    """I = Σ P log(P / (P_i P_j)) with P = (p oᵀ + o pᵀ) / 2: 0 where p = o, log 2 where they share no class."""
    candidates, originals = _rows(p), _rows(o)
    owners = np.arange(len(candidates)) if owner is None else np.asarray(owner, np.int64)
    out: Floats = _mutual_information(candidates, originals, owners)
    return out


def _rows(p: ArrayLike) -> Floats:
    return np.ascontiguousarray(p, np.float64)


def _of_label(p: ArrayLike, y: ArrayLike) -> Floats:
    labels = np.asarray(y, np.int64)
    return np.asarray(p)[np.arange(len(labels)), labels].astype(np.float64)


kernel = njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract", "arcp"})


def _bitcast(source: Any, target: Any, kind: ir.Type) -> Any:
    def declare(_context, _value):  # type: ignore[no-untyped-def]
        return target(source), lambda _c, builder, _s, arguments: builder.bitcast(arguments[0], kind)

    return intrinsic(declare)


_bits = _bitcast(types.float64, types.int64, ir.IntType(64))
_float = _bitcast(types.int64, types.float64, ir.DoubleType())


@kernel
def _log(x):  # type: ignore[no-untyped-def]
    # Of a positive normal number, to 1e-15, in a form that the compiler turns into vector code, unlike a call of libm:
    # x = m·2^e with m in [√½, √2), log m = 2 artanh(s) with s = (m − 1)/(m + 1)
    bits = _bits(x)
    exponent = (bits - 0x3FE6A09E667F3BCD) >> 52
    m = _float(bits - (exponent << 52))
    s = (m - 1.0) / (m + 1.0)
    r = s * s
    high = 1 / 15 + r * (1 / 17 + r * (1 / 19 + r * (1 / 21)))
    middle = 1 / 7 + r * (1 / 9 + r * (1 / 11 + r * (1 / 13 + r * high)))
    return 2.0 * s * (1.0 + r * (1 / 3 + r * (1 / 5 + r * middle))) + exponent * 0.6931471805599453


@kernel
def _neg_entropy(p):  # type: ignore[no-untyped-def]
    out = np.empty(p.shape[0])
    for n in range(p.shape[0]):
        total = 0.0
        for i in range(p.shape[1]):
            x = max(p[n, i], EPS)
            total += x * _log(x)
        out[n] = total
    return out


@kernel
def _mutual_information(p, o, owner):  # type: ignore[no-untyped-def]
    classes = p.shape[1]
    out = np.empty(p.shape[0])
    x, z, a, b, c = np.empty(classes), np.empty(classes), np.empty(classes), np.empty(classes), np.empty(classes)
    values, weights = _pair_buffers(min(classes, PAIRED_CLASSES))
    for n in range(p.shape[0]):
        s = owner[n]
        p_sum, o_sum = 0.0, 0.0
        for i in range(classes):
            p_sum += p[n, i]
            o_sum += o[s, i]
        p_scale, o_scale = 1.0 / p_sum, 1.0 / o_sum
        p_low, o_low = 1.0, 1.0
        for i in range(classes):
            x[i], z[i] = p[n, i] * p_scale, o[s, i] * o_scale
            p_low, o_low = min(p_low, x[i]), min(o_low, z[i])
        if classes > PAIRED_CLASSES or (classes > 8 and p_low * o_low >= EPS):
            out[n] = _information_by_moments(x, z, a, b, c)
        else:
            out[n] = _information_by_pairs(x, z, a, values, weights)
    return out


@kernel
def _pair_buffers(classes):  # type: ignore[no-untyped-def]
    pairs = classes * (classes - 1) // 2
    size = (pairs + 2 * classes + 15) // 16 * 16
    weights = np.zeros(size)
    weights[:pairs] = 2.0
    weights[pairs : pairs + classes] = 1.0
    weights[pairs + classes : pairs + 2 * classes] = -2.0
    return np.ones(size), weights


@kernel
def _information_by_pairs(p, o, sums, values, weights):  # type: ignore[no-untyped-def]
    # P is symmetric: I = 2 Σ_{i>j} P log P + Σ_i P_ii log P_ii − 2 Σ_i P_i log P_i; `values` holds the three in turn
    classes = p.shape[0]
    count = 0
    for i in range(classes):
        row = 0.0
        for j in range(i):
            value = max((p[i] * o[j] + o[i] * p[j]) * 0.5, EPS)
            values[count + j] = value
            sums[j] += value
            row += value
        sums[i] = row
        count += i
    for i in range(classes):
        value = max(p[i] * o[i], EPS)
        values[count + i] = value
        values[count + classes + i] = sums[i] + value
    total = 0.0
    for n in range(values.shape[0]):
        total += weights[n] * values[n] * _log(values[n])
    return total


@kernel
def _information_by_moments(p, o, mass, lean, term):  # type: ignore[no-untyped-def]
    # P_ij = q_i q_j (1 − a_i a_j) with q = (p + o)/2, a = (o − p)/(o + p). As (1 − x) log(1 − x) + x = Σ x^k/(k(k−1)),
    # I = Σ_{k≥2} M_k²/(k(k−1)) with M_k = Σ q_i a_i^k (and M_1 = 0). What is left after an even k is at most M_k²/k.
    active = p.shape[0]
    for i in range(active):
        mass[i] = 0.5 * (p[i] + o[i])
        term[i] = 0.5 * (o[i] - p[i])
        lean[i] = term[i] / max(mass[i], 1e-300)
    total = 0.0
    for k in range(2, 65, 2):
        odd, even = 0.0, 0.0
        for i in range(active):
            even += term[i] * lean[i]
            term[i] *= lean[i] * lean[i]
            odd += term[i]
        total += even * even / (k * (k - 1)) + odd * odd / (k * (k + 1))
        if even * even < 1e-10 * k:
            return total
        if k & 7 == 0:
            active = _drop_small(active, mass, lean, term)
    # Classes that one of the two predictions all but rules out converge slowly: their pairs are summed directly.
    first = 0.0
    for i in range(active):
        term[i] = mass[i] * lean[i]
        first += term[i]
    total += first * first
    for k in range(2, 65, 2):
        odd, even = 0.0, 0.0
        for i in range(active):
            even += term[i] * lean[i]
            term[i] *= lean[i] * lean[i]
            odd += term[i]
        total -= even * even / (k * (k - 1)) + odd * odd / (k * (k + 1))
    for i in range(active):
        row = 0.0
        for j in range(i):
            rest = max(1.0 - lean[i] * lean[j], 1e-300)
            row += mass[j] * rest * _log(rest)
        rest = max(1.0 - lean[i] * lean[i], 1e-300)
        total += mass[i] * (2.0 * row + mass[i] * rest * _log(rest))
    return total


@kernel
def _drop_small(active, mass, lean, term):  # type: ignore[no-untyped-def]
    kept = 0
    for i in range(active):
        if abs(term[i]) > 1e-11:
            mass[kept], lean[kept], term[kept] = mass[i], lean[i], term[i]
            kept += 1
    return kept
