"""Score candidates: one number each, the larger the more diverse or the better.

`p` [N, C] are the probabilities of the candidates and `o` [S, C] those of the originals. `owner` [N] is the row of `o`
that a candidate was made from; without it, row n of `o` belongs to row n of `p`. `t` is the target of each candidate:
class numbers [N], or soft targets [N, C]. A class number gives exactly what its one-hot row gives.

Everything is float64 inside, and every row is computed by itself in a fixed order, so a score depends neither on the
batch nor on the processor. Small numbers follow the paper's listing: REM and H raise each probability to EPS, and I
raises each element of P to EPS before it sums the rows. With more than PAIRED_CLASSES classes I leaves P as it is,
which changes it by less than 25·C²·EPS and makes it cost C instead of C², and it is exact to 1e-6 instead of 1e-9.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

EPS = 1e-10
PAIRED_CLASSES = 64
FEW_CLASSES = 8
"""With so few classes, the sum over all pairs is faster than the series of moments."""
MOMENTS = 32

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

kernel = njit(cache=True, error_model="numpy")

_ONE = np.uint64(1023 << 52)
_BELOW_ONE = np.uint64((1023 << 52) - 0x3FE6A09E667F3BCD)
"""The bits of 1 less those of √½."""
_MANTISSA = np.uint64((1 << 52) - 1)
_SHIFT = np.uint64(52)
_LOG_2 = 0.6931471805599453


def rem(p: ArrayLike, t: ArrayLike) -> Floats:
    # Eq. 7: D(p, t) = −Σ_c t_c log p_c, which is −log p_y for the label y
    return _cross_entropy(_rows(p), _target(t))


def rem_linear(p: ArrayLike, t: ArrayLike) -> Floats:
    # 1 − Σ_c t_c p_c, which is 1 − p_y
    return 1.0 - _dot(_rows(p), _target(t))


def divergence(p: ArrayLike, teacher: ArrayLike) -> Floats:
    # KL(teacher ‖ p) = Σ_c q_c (log q_c − log p_c) with q the teacher's probabilities
    return _relative_entropy(_rows(teacher), _rows(p))


def cem(p: ArrayLike, o: ArrayLike, owner: ArrayLike | None = None) -> Floats:
    # Eq. 10 as the paper's listing has it: 1 + I(p, o) − H(p)
    return 1.0 + mutual_information(p, o, owner) + neg_entropy(p)


def cem_agreement(p: ArrayLike, o: ArrayLike, owner: ArrayLike | None = None) -> Floats:
    # 1 − I(p, o) − H(p)
    return 1.0 - mutual_information(p, o, owner) + neg_entropy(p)


def neg_entropy(p: ArrayLike) -> Floats:
    # −H(p) = Σ_c p_c log p_c
    return _neg_entropy(_rows(p))


def cosine(p: ArrayLike, t: ArrayLike) -> Floats:
    # cos(p, t) = Σ_c p_c t_c / (|p| |t|), which is p_y / |p|
    rows, target = _rows(p), _target(t)
    return _dot(rows, target) / np.maximum(_length(rows) * _length(target), EPS)


def mutual_information(p: ArrayLike, o: ArrayLike, owner: ArrayLike | None = None) -> Floats:
    """Return I = Σ P log(P / (P_i P_j)) with P = (p oᵀ + o pᵀ) / 2: 0 where p = o, log 2 where they share no class."""
    candidates, originals = _rows(p), _rows(o)
    owners = np.arange(len(candidates)) if owner is None else np.asarray(owner, np.int64)
    return _information(candidates, originals, owners)


def _rows(p: ArrayLike) -> NDArray[np.floating]:
    rows = np.ascontiguousarray(p)
    return rows if rows.dtype in (np.float32, np.float64) else rows.astype(np.float64)


def _target(t: ArrayLike) -> NDArray:
    target = np.asarray(t)
    return target.astype(np.int64) if target.ndim == 1 else _rows(target)


def _length(rows: NDArray) -> Floats | float:
    return 1.0 if rows.ndim == 1 else np.sqrt(_dot(rows, rows))


@kernel
def _cross_entropy(p, t):  # type: ignore[no-untyped-def]
    """Return −Σ t log p of each row."""
    out, term = np.empty(len(p)), np.empty(p.shape[1])
    for n in range(len(p)):
        if t.ndim == 1:
            out[n] = -log(_raised(p[n, t[n]]))
        else:
            for c in range(len(term)):
                term[c] = t[n, c] * log(_raised(p[n, c]))
            out[n] = -row_sum(term)
    return out


@kernel
def _neg_entropy(p):  # type: ignore[no-untyped-def]
    """Return Σ p log p of each row."""
    out, term = np.empty(len(p)), np.empty(p.shape[1])
    for n in range(len(p)):
        for c in range(len(term)):
            x = _raised(p[n, c])
            term[c] = x * log(x)
        out[n] = row_sum(term)
    return out


@kernel
def _relative_entropy(q, p):  # type: ignore[no-untyped-def]
    """Return Σ q (log q − log p) of each row."""
    out, term = np.empty(len(p)), np.empty(p.shape[1])
    for n in range(len(p)):
        for c in range(len(term)):
            x = _raised(q[n, c])
            term[c] = x * (log(x) - log(_raised(p[n, c])))
        out[n] = row_sum(term)
    return out


@kernel
def _raised(x):  # type: ignore[no-untyped-def]
    return max(np.float64(x), EPS)


@kernel
def _dot(p, t):  # type: ignore[no-untyped-def]
    out = np.zeros(len(p))
    for n in range(len(p)):
        if t.ndim == 1:
            out[n] = p[n, t[n]]
        else:
            for c in range(p.shape[1]):
                out[n] += np.float64(p[n, c]) * t[n, c]
    return out


@kernel
def _information(p, o, owner):  # type: ignore[no-untyped-def]
    classes = p.shape[1]
    tolerance = 1e-10 if classes <= PAIRED_CLASSES else 1e-6
    out = np.empty(len(p))
    x, z, shift, term = np.empty(classes), np.empty(classes), np.empty(classes), np.empty(classes)
    room = 2 * classes + (classes * (classes - 1) // 2 if classes <= PAIRED_CLASSES else 0)
    values = np.empty(room)
    for n in range(len(p)):
        _to_sum_1(p[n], x)
        if n == 0 or owner[n] != owner[n - 1]:
            _to_sum_1(o[owner[n]], z)
        if classes <= FEW_CLASSES or (classes <= PAIRED_CLASSES and x.min() * z.min() < EPS):
            out[n] = _by_pairs(x, z, values)
        else:
            out[n] = _by_moments(x, z, shift, term, values, tolerance)
    return out


@kernel
def _to_sum_1(row, out):  # type: ignore[no-untyped-def]
    scale = 1.0 / row_sum(row)
    for c in range(len(row)):
        out[c] = row[c] * scale


@kernel
def _by_pairs(p, o, values):  # type: ignore[no-untyped-def]
    # P is symmetric, so I = 2 Σ_{i>j} P_ij log P_ij + Σ_i P_ii log P_ii − 2 Σ_i P_i log P_i, where P_i sums row i.
    # `values` holds P_i, then P_ii, then the P_ij below the diagonal row by row.
    classes = len(p)
    rows, diagonal, below = values[:classes], values[classes : 2 * classes], values[2 * classes :]
    for i in range(classes):
        diagonal[i] = max(p[i] * o[i], EPS)
        rows[i] = diagonal[i]
    at = 0
    for i in range(classes):
        for j in range(i):
            joint = max(0.5 * (p[i] * o[j] + o[i] * p[j]), EPS)
            below[at + j] = joint
            rows[j] += joint
        rows[i] += row_sum(below[at : at + i])
        at += i
    for k in range(len(values)):
        values[k] *= log(values[k])
    return 2.0 * row_sum(below) + row_sum(diagonal) - 2.0 * row_sum(rows)


@kernel
def _by_moments(p, o, shift, term, values, tolerance):  # type: ignore[no-untyped-def]
    # P_ij = q_i q_j (1 − a_i a_j) with the mass q = (p + o)/2 and the shift a = (o − p)/(o + p), and Σ q_i a_i = 0, so
    # I = Σ_ij q_i q_j f(a_i a_j) with f(x) = (1 − x) log(1 − x) + x = Σ_{k≥2} x^k / (k (k − 1))
    mass = p  # in place
    for i in range(len(p)):
        mass[i], lean = 0.5 * (p[i] + o[i]), 0.5 * (o[i] - p[i])
        shift[i] = lean / max(mass[i], 1e-300)
    total, left = _series(mass, shift, term, len(p), tolerance)
    if left < tolerance:
        return total
    # Classes that one of the two predictions all but rules out converge slowly: sum their pairs directly.
    slow = 0
    for i in range(len(p)):
        if abs(term[i]) * math.sqrt(left / MOMENTS) > tolerance / (2 * len(p)):
            mass[slow], shift[slow] = mass[i], shift[i]
            slow += 1
    total -= _series(mass, shift, term, slow, 0.0)[0]
    for i in range(slow):
        for j in range(i + 1):
            x = max(1.0 - shift[i] * shift[j], 1e-300)
            values[j] = mass[j] * (x * log(x) + 1.0 - x)
        total += mass[i] * (2.0 * row_sum(values[:i]) + values[i])
    return total


@kernel
def _series(mass, shift, term, classes, tolerance):  # type: ignore[no-untyped-def]
    """Sum M_k²/(k (k − 1)), M_k = Σ q_i a_i^k, up to MOMENTS; return the sum and a bound of what is left.

    `term` holds the q_i a_i^k of the last k, which is even: the later moments are not larger than that one.
    """
    total, left = 0.0, 0.0
    for i in range(classes):
        term[i] = mass[i] * shift[i]
    for k in range(2, MOMENTS, 4):  # four at a time, or each addition waits for the one before
        m0, m1, m2, m3 = 0.0, 0.0, 0.0, 0.0
        for i in range(classes):
            a = shift[i]
            t0 = term[i] * a
            t1 = t0 * a
            t2 = t1 * a
            t3 = t2 * a
            term[i] = t3
            m0 += t0
            m1 += t1
            m2 += t2
            m3 += t3
        total += m0 * m0 / (k * (k - 1)) + m1 * m1 / (k * (k + 1))
        total += m2 * m2 / ((k + 1) * (k + 2)) + m3 * m3 / ((k + 2) * (k + 3))
        left = m2 * m2 / k
        if left < tolerance:
            break
    return total, left


@kernel
def row_sum(row):  # type: ignore[no-untyped-def]
    """Return the sum in float64, in four parts: in one part, each addition would wait for the one before."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    whole = len(row) // 4 * 4
    for i in range(0, whole, 4):
        a += row[i]
        b += row[i + 1]
        c += row[i + 2]
        d += row[i + 3]
    for i in range(whole, len(row)):
        a += row[i]
    return (a + b) + (c + d)


@kernel
def log(x):  # type: ignore[no-untyped-def]
    """Return the logarithm of a positive, normal number, to 1e-13.

    In plain arithmetic the compiler does several at once, in half the time of libm's `log`, and the bits do not
    depend on the instructions that a processor has.
    """
    # x = m·2^e with m in [√½, √2): the exponent field of x·√2 is e + 1023
    bits = np.float64(x).view(np.uint64) + _BELOW_ONE
    m = np.uint64((bits & _MANTISSA) - _BELOW_ONE + _ONE).view(np.float64)
    e = np.int32(bits >> _SHIFT) - np.int32(1023)
    # log m = 2 artanh(s) = 2 (s + s³/3 + s⁵/5 + …) with s = (m − 1)/(m + 1), |s| < 0.172
    s = (m - 1.0) / (m + 1.0)
    r = s * s
    tail = 1 / 9 + r * (1 / 11 + r * (1 / 13 + r * (1 / 15)))
    return 2.0 * s * (1.0 + r * (1 / 3 + r * (1 / 5 + r * (1 / 7 + r * tail)))) + e * _LOG_2
