"""The scores of SEAS, one number per candidate. Larger is more diverse, or better.

`p` [N, C] are the candidates' probabilities, `o` [S, C] those of the originals, `owner` [N] the row of `o` that a
candidate was made from (left out: row n of `o` belongs to row n of `p`), `y` [N] the labels as class numbers.
Everything is float64 inside and every row is computed by itself, so a score does not depend on the batch.

Where numbers fall below EPS = 1e-10 these are the rules of the paper's listing: p is raised to EPS in REM and H, and
each element of P is raised to EPS before its rows are summed. With more than PAIRED_CLASSES classes P is left as it
is, which changes I by less than 25·C²·EPS and makes it cost C instead of C², and I is computed to 1e-6 (else 1e-9).
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
MOMENTS = 130

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
    return 1.0 + _weighted(p, o, owner, 1.0, 1.0)


def cem_agreement(p: ArrayLike, o: ArrayLike, owner: ArrayLike | None = None) -> Floats:
    # 1 − I(p, o) − H(p)
    return 1.0 + _weighted(p, o, owner, -1.0, 1.0)


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
    return _weighted(p, o, owner, 1.0, 0.0)


def _weighted(p: ArrayLike, o: ArrayLike, owner: ArrayLike | None, information: float, entropy: float) -> Floats:
    candidates, originals = _rows(p), _rows(o)
    owners = np.arange(len(candidates)) if owner is None else np.asarray(owner, np.int64)
    out: Floats = _information_and_entropy(candidates, originals, owners, information, entropy)
    return out


def _rows(p: ArrayLike) -> NDArray[np.floating]:
    rows = np.ascontiguousarray(p)
    return rows if rows.dtype in (np.float32, np.float64) else rows.astype(np.float64)


def _of_label(p: ArrayLike, y: ArrayLike) -> Floats:
    labels = np.asarray(y, np.int64)
    return np.asarray(p)[np.arange(len(labels)), labels].astype(np.float64)


kernel = njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract", "arcp"})


def _bitcast(source: Any, target: Any, kind: ir.Type) -> Any:
    def declare(_context, _value):  # type: ignore[no-untyped-def]
        return target(source), lambda _c, builder, _s, arguments: builder.bitcast(arguments[0], kind)

    return intrinsic(declare)


_bits = _bitcast(types.float64, types.uint64, ir.IntType(64))
_float = _bitcast(types.uint64, types.float64, ir.DoubleType())


_BIAS, _ROOT_HALF, _TWO_52 = np.uint64(1024 << 52), np.uint64(0x3FE6A09E667F3BCD), np.uint64(0x4330000000000000)
_EXPONENT, _SHIFT = np.uint64(0x7FF0000000000000), np.uint64(52)


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def _log(x):  # type: ignore[no-untyped-def]
    # Of a positive normal number, to 1e-13, in operations that processors have for vectors, unlike a call of libm:
    # x = m·2^e with m in [√½, √2), log m = 2 artanh(s) with s = (m − 1)/(m + 1)
    bits = _bits(x)
    shifted = bits - _ROOT_HALF + _BIAS
    exponent = _float(_TWO_52 | (shifted >> _SHIFT)) - (4503599627370496.0 + 1024.0)
    m = _float(bits - ((shifted & _EXPONENT) - _BIAS))
    s = (m - 1.0) / (m + 1.0)
    r = s * s
    high = 1 / 9 + r * (1 / 11 + r * (1 / 13 + r * (1 / 15)))
    return 2.0 * s * (1.0 + r * (1 / 3 + r * (1 / 5 + r * (1 / 7 + r * high)))) + exponent * 0.6931471805599453


@kernel
def _neg_entropy(p):  # type: ignore[no-untyped-def]
    out = np.empty(p.shape[0])
    for n in range(p.shape[0]):
        total = 0.0
        for i in range(p.shape[1]):
            x = max(np.float64(p[n, i]), EPS)
            total += x * _log(x)
        out[n] = total
    return out


@kernel
def _information_and_entropy(p, o, owner, information, entropy):  # type: ignore[no-untyped-def]
    """information · I(p, o) − entropy · H(p) of every row."""
    classes = p.shape[1]
    out = np.empty(p.shape[0])
    x, z, a, b, c = np.empty(classes), np.empty(classes), np.empty(classes), np.empty(classes), np.empty(classes)
    values, weights = _pair_buffers(min(classes, PAIRED_CLASSES), information, entropy)
    tolerance = 1e-10 if classes <= PAIRED_CLASSES else 1e-6
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
            total = information * _information_by_moments(x, z, a, b, c, tolerance)
            if entropy != 0.0:
                for i in range(classes):
                    value = max(np.float64(p[n, i]), EPS)
                    total += entropy * value * _log(value)
            out[n] = total
        else:
            for i in range(classes):
                values[i] = max(np.float64(p[n, i]), EPS)
            out[n] = _sum_of_pairs(x, z, a, values, weights)
    return out


@kernel
def _pair_buffers(classes, information, entropy):  # type: ignore[no-untyped-def]
    """Room for p, the rows' sums, the diagonal and the pairs below it, and what each weighs in the sum of v log v."""
    used = 3 * classes + classes * (classes - 1) // 2
    size = (used + 3) // 4 * 4
    weights = np.zeros(size)
    weights[:classes] = entropy
    weights[classes : 2 * classes] = -2.0 * information
    weights[2 * classes : 3 * classes] = information
    weights[3 * classes : used] = 2.0 * information
    return np.ones(size), weights


@kernel
def _sum_of_pairs(p, o, raised, values, weights):  # type: ignore[no-untyped-def]
    # P is symmetric and its rows sum to (p + o)/2: I = 2 Σ_{i>j} P log P + Σ_i P_ii log P_ii − 2 Σ_i P_i log P_i;
    # `raised` is what the floor of EPS adds to the rows
    classes = p.shape[0]
    pair = 3 * classes
    for i in range(classes):
        row = 0.0
        for j in range(i):
            value = 0.5 * (p[i] * o[j] + o[i] * p[j])
            missing = max(EPS - value, 0.0)
            values[pair + j] = value + missing
            raised[j] += missing
            row += missing
        raised[i] = row
        pair += i
    for i in range(classes):
        square = p[i] * o[i]
        missing = max(EPS - square, 0.0)
        values[2 * classes + i] = square + missing
        values[classes + i] = 0.5 * (p[i] + o[i]) + raised[i] + missing
    total = 0.0
    for n in range(values.shape[0]):
        total += weights[n] * values[n] * _log(values[n])
    return total


@kernel
def _information_by_moments(p, o, mass, lean, term, tolerance):  # type: ignore[no-untyped-def]
    # P_ij = q_i q_j (1 − a_i a_j) with q = (p + o)/2, a = (o − p)/(o + p). As (1 − x) log(1 − x) + x = Σ x^k/(k(k−1)),
    # I = Σ_{k≥2} M_k²/(k(k−1)) with M_k = Σ q_i a_i^k (and M_1 = 0). What is left after an even k is at most M_k²/k.
    classes = p.shape[0]
    for i in range(classes):
        mass[i] = 0.5 * (p[i] + o[i])
        term[i] = 0.5 * (o[i] - p[i])
        lean[i] = term[i] / max(mass[i], 1e-300)
    total, last = _sum_of_moments(classes, lean, term, tolerance)
    if last * last < tolerance * MOMENTS:
        return total
    # Classes that one of the two predictions all but rules out converge slowly: their pairs are summed directly.
    least = tolerance * MOMENTS / (2.0 * classes * abs(last))
    slow = 0
    for i in range(classes):
        mass[slow], lean[slow] = mass[i], lean[i]
        slow += abs(term[i]) > least
    first = 0.0
    for i in range(slow):
        term[i] = mass[i] * lean[i]
        first += term[i]
    counted, _ = _sum_of_moments(slow, lean, term, 0.0)
    total += first * first - counted
    for i in range(slow):
        row = 0.0
        for j in range(i):
            rest = max(1.0 - lean[i] * lean[j], 1e-300)
            row += mass[j] * rest * _log(rest)
        rest = max(1.0 - lean[i] * lean[i], 1e-300)
        total += mass[i] * (2.0 * row + mass[i] * rest * _log(rest))
    return total


@kernel
def _sum_of_moments(classes, lean, term, tolerance):  # type: ignore[no-untyped-def]
    """Σ M_k²/(k(k−1)) from k = 2 until `tolerance` or MOMENTS are reached, and the last even M_k."""
    total, third = 0.0, 0.0
    for k in range(2, MOMENTS, 4):
        first, second, third, fourth = 0.0, 0.0, 0.0, 0.0
        for i in range(classes):
            a = lean[i]
            t1 = term[i] * a
            t2 = t1 * a
            t3 = t2 * a
            term[i] = t3 * a
            first += t1
            second += t2
            third += t3
            fourth += term[i]
        total += first * first / (k * (k - 1)) + second * second / (k * (k + 1))
        total += third * third / ((k + 1) * (k + 2)) + fourth * fourth / ((k + 2) * (k + 3))
        if third * third < tolerance * k:
            break
    return total, third
