"""The CNN's inner loops, compiled. One text's numbers depend on that text alone, bit for bit, whatever the batch.

Compiled once per machine and kept in numba's cache (beside the source, or in the user's cache directory when that is
not writable). No fast-math: every sum has one fixed order.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def expand(chunks, counts, chunk_start, chunk_words, limit, words, offsets):  # type: ignore[no-untyped-def]
    """Write the word ids of each text, from the ids of its white-space chunks; return how many were written."""
    n, at = 0, 0
    offsets[0] = 0
    for i in range(counts.size):
        first = n
        for k in range(at, at + counts[i]):
            for j in range(chunk_start[chunks[k]], chunk_start[chunks[k] + 1]):
                if n - first < limit:
                    words[n] = chunk_words[j]
                    n += 1
        at += counts[i]
        offsets[i + 1] = n
    return n


@njit(cache=True, nogil=True)
def project(rows, vectors, filters, projected):  # type: ignore[no-untyped-def]
    """Compute projected[r] = vectors[r] @ filters for the words in `rows`."""
    dimension, width = filters.shape
    for i in range(rows.size):
        r = rows[i]
        out = projected[r]
        vector = vectors[r]
        for f in range(width):
            out[f] = np.float32(0.0)
        for d in range(dimension):
            x = vector[d]
            line = filters[d]
            for f in range(width):
                out[f] += x * line[f]


@njit(cache=True, nogil=True)
def pool(words, offsets, projected, widths, channels, bias, features):  # type: ignore[no-untyped-def]
    """Compute features = relu(bias + max over windows of the window's sum); row 0 of `projected` is the padding word.

    The running maximum goes to and fro between two buffers, and indices are unsigned: both let LLVM use vectors. The
    usual widths are written out, so that a window's sum stays in registers: scoring takes a quarter longer otherwise.
    """
    longest = widths.max()
    table = projected.reshape(-1)
    row = np.uint64(projected.shape[1])
    n = np.uint64(channels)
    padded = np.zeros(longest, np.int32)
    best = np.empty(2 * channels, np.float32)
    for i in range(offsets.size - 1):
        ids = words[offsets[i] : offsets[i + 1]]
        if ids.size < longest:
            padded[:] = 0
            padded[: ids.size] = ids
            ids = padded
        column = np.uint64(0)
        for k in range(widths.size):
            width = widths[k]
            best[:] = -np.inf
            old, new = np.uint64(0), n
            for t in range(ids.size - width + 1):
                a = np.uint64(ids[t]) * row + column
                if width == 2:
                    b = np.uint64(ids[t + 1]) * row + column + n
                    for c in range(n):
                        s = table[a + c] + table[b + c]
                        best[new + c] = s if s > best[old + c] else best[old + c]
                elif width == 3:
                    b = np.uint64(ids[t + 1]) * row + column + n
                    d = np.uint64(ids[t + 2]) * row + column + n + n
                    for c in range(n):
                        s = table[a + c] + table[b + c] + table[d + c]
                        best[new + c] = s if s > best[old + c] else best[old + c]
                elif width == 4:
                    b = np.uint64(ids[t + 1]) * row + column + n
                    d = np.uint64(ids[t + 2]) * row + column + n + n
                    e = np.uint64(ids[t + 3]) * row + column + n + n + n
                    for c in range(n):
                        s = table[a + c] + table[b + c] + table[d + c] + table[e + c]
                        best[new + c] = s if s > best[old + c] else best[old + c]
                else:
                    for c in range(n):
                        s = table[a + c]
                        for j in range(1, width):
                            s += table[np.uint64(ids[t + j]) * row + column + np.uint64(j) * n + c]
                        best[new + c] = s if s > best[old + c] else best[old + c]
                old, new = new, old
            first = np.uint64(k) * n
            for c in range(n):
                value = best[old + c] + bias[first + c]
                features[i, first + c] = value if value > np.float32(0.0) else np.float32(0.0)
            column += np.uint64(width) * n


@njit(cache=True, nogil=True)
def classify(features, weight, bias, temperature, probabilities):  # type: ignore[no-untyped-def]
    """Compute softmax((features @ weight + bias) / temperature); weight [features, classes], 8 or more columns wide."""
    u = np.uint64
    columns = u(weight.shape[1])
    flat = weight.reshape(-1)
    logits = np.empty(weight.shape[1], np.float32)
    size = u(features.shape[1])
    classes = probabilities.shape[1]
    for i in range(features.shape[0]):
        row = features[i]
        if columns == 8:  # in registers: a sixth less time for the whole scoring
            a, b, c, d = bias[0], bias[1], bias[2], bias[3]
            e, f, g, h = bias[4], bias[5], bias[6], bias[7]
            at = u(0)
            for k in range(size):
                x = row[k]
                a += x * flat[at]
                b += x * flat[at + u(1)]
                c += x * flat[at + u(2)]
                d += x * flat[at + u(3)]
                e += x * flat[at + u(4)]
                f += x * flat[at + u(5)]
                g += x * flat[at + u(6)]
                h += x * flat[at + u(7)]
                at += u(8)
            logits[0], logits[1], logits[2], logits[3] = a, b, c, d
            logits[4], logits[5], logits[6], logits[7] = e, f, g, h
        else:
            logits[:] = bias
            for k in range(size):
                x = row[k]
                at = k * columns
                for j in range(columns):
                    logits[j] += x * flat[at + j]
        top = logits[0]
        for j in range(1, classes):
            top = max(top, logits[j])
        total = np.float32(0.0)
        for j in range(classes):
            value = np.float32(math.exp((logits[j] - top) / temperature))
            logits[j] = value
            total += value
        for j in range(classes):
            probabilities[i, j] = logits[j] / total


@njit(cache=True, nogil=True)
def pool_where(words, offsets, projected, widths, channels, bias, features, where):  # type: ignore[no-untyped-def]
    """Do `pool` without the relu, and write into `where` the window of each maximum (the first of equals)."""
    longest = widths.max()
    table = projected.reshape(-1)
    row = np.uint64(projected.shape[1])
    n = np.uint64(channels)
    padded = np.zeros(longest, np.int32)
    best = np.empty(2 * channels, np.float32)
    place = np.empty(2 * channels, np.int32)
    total = np.empty(channels, np.float32)
    for i in range(offsets.size - 1):
        ids = words[offsets[i] : offsets[i + 1]]
        if ids.size < longest:
            padded[:] = 0
            padded[: ids.size] = ids
            ids = padded
        column = np.uint64(0)
        for k in range(widths.size):
            width = widths[k]
            best[:] = -np.inf
            place[:] = 0
            old, new = np.uint64(0), n
            for t in range(ids.size - width + 1):
                a = np.uint64(ids[t]) * row + column
                for c in range(n):
                    total[c] = table[a + c]
                for j in range(1, width):
                    b = np.uint64(ids[t + j]) * row + column + np.uint64(j) * n
                    for c in range(n):
                        total[c] += table[b + c]
                here = np.int32(t)
                for c in range(n):
                    place[new + c] = here if total[c] > best[old + c] else place[old + c]
                    best[new + c] = total[c] if total[c] > best[old + c] else best[old + c]
                old, new = new, old
            first = np.uint64(k) * n
            for c in range(n):
                features[i, first + c] = best[old + c] + bias[first + c]
                where[i, first + c] = place[old + c]
            column += np.uint64(width) * n


@njit(cache=True, nogil=True)
def pool_gradient(words, offsets, vectors, widths, channels, where, upstream, gradient):  # type: ignore[no-untyped-def]
    """Add to `gradient` [sum of widths x channels, dimension], rows ordered by (width, channel, position).

    Only the window that won the maximum passes a gradient on, so this costs a fraction of a dense convolution's.
    """
    n = np.uint64(vectors.shape[1])
    table = vectors.reshape(-1)
    out = gradient.reshape(-1)
    for i in range(offsets.size - 1):
        start = offsets[i]
        length = offsets[i + 1] - start
        first = np.uint64(0)
        for k in range(widths.size):
            width = widths[k]
            for c in range(channels):
                g = upstream[i, k * channels + c]
                t = where[i, k * channels + c]
                if g != np.float32(0.0):
                    for j in range(width):
                        if t + j < length:
                            a = np.uint64(words[start + t + j]) * n
                            b = (first + np.uint64(c * width + j)) * n
                            for d in range(n):
                                out[b + d] += g * table[a + d]
            first += np.uint64(width * channels)


@njit(cache=True, nogil=True)
def linear(columns, offsets, idf, weight, bias, temperature, probabilities):  # type: ignore[no-untyped-def]
    """Compute softmax((x @ weight + bias) / temperature); x is a text's idf-weighted columns, scaled to length one."""
    classes = bias.size
    logits = np.empty(classes, np.float32)
    for i in range(offsets.size - 1):
        logits[:] = np.float32(0.0)
        norm = 0.0
        for k in range(offsets[i], offsets[i + 1]):
            j = columns[k]
            if j >= 0:
                v = idf[j]
                norm += v * v
                for c in range(classes):
                    logits[c] += v * weight[j, c]
        scale = np.float32(1.0 / math.sqrt(norm)) if norm > 0.0 else np.float32(0.0)
        top = np.float32(-np.inf)
        for c in range(classes):
            logits[c] = (logits[c] * scale + bias[c]) / temperature
            top = max(top, logits[c])
        total = np.float32(0.0)
        for c in range(classes):
            logits[c] = np.float32(math.exp(logits[c] - top))
            total += logits[c]
        for c in range(classes):
            probabilities[i, c] = logits[c] / total


@njit(cache=True, nogil=True)
def gather_rows(into, of, values, table, out):  # type: ignore[no-untyped-def]
    """Compute out[into[k]] += values[k] * table[of[k]] for every k in turn: a sparse matrix times a dense one."""
    for k in range(into.size):
        a, b, v = into[k], of[k], values[k]
        for c in range(table.shape[1]):
            out[a, c] += v * table[b, c]
