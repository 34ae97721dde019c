"""EDA's inner loop, compiled: choices and text assembly on UTF-8 bytes. A sample's candidates depend on its seed alone.

Compiled once per machine and kept in numba's cache (beside the source, or in the user's cache directory when that is
not writable).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

SYNONYM, INSERT, SWAP, DELETE = range(4)
DONE, NO_WORD, NO_OPERATION, NOTHING_NEW = range(4)

# Columns of the table of units.
PIECE, LEAD, CORE, TAIL, STUB, STUB_SIZE, SYNONYMS, COUNT, INSERTIONS, SPACE = range(10)

_SEARCH = 400_000
"""About how many bytes the search for the last distinct candidates may build for one sample."""


@njit(cache=True, nogil=True, inline="always")
def _draw(state, size):  # type: ignore[no-untyped-def]
    """Splitmix64, reduced to a number below `size`."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return np.int64((z >> np.uint64(32)) * np.uint64(size) >> np.uint64(32))


@njit(cache=True, nogil=True)
def _pick(size, count, state, chosen, marked):  # type: ignore[no-untyped-def]
    """`count` different numbers below `size`, in `chosen`. `marked` is all zero before and after."""
    if 4 * count <= size or count < 3:
        n = 0
        while n < count:
            k = _draw(state, size)
            if not marked[k]:
                marked[k] = 1
                chosen[n] = k
                n += 1
        for n in range(count):
            marked[chosen[n]] = 0
        return
    for k in range(size):
        chosen[k] = k
    for n in range(count):
        k = n + _draw(state, size - n)
        chosen[n], chosen[k] = chosen[k], chosen[n]


@njit(cache=True, nogil=True, inline="always")
def _copy(pool, start, size, out, at):  # type: ignore[no-untyped-def]
    for k in range(size):
        out[at + k] = pool[start + k]
    return at + size


@njit(cache=True, nogil=True, inline="always")
def _blank(out, at, end):  # type: ignore[no-untyped-def]
    """How many bytes of white space there are at `at`: 0, or the size of that one character in UTF-8."""
    c = out[at]
    if c == 32 or 9 <= c <= 13 or 28 <= c <= 31:
        return 1
    if c == 0xC2 and at + 1 < end and (out[at + 1] == 0x85 or out[at + 1] == 0xA0):
        return 2
    if at + 2 < end and 0xE1 <= c <= 0xE3:
        d, e = out[at + 1], out[at + 2]
        if c == 0xE1:
            return 3 if d == 0x9A and e == 0x80 else 0
        if c == 0xE3:
            return 3 if d == 0x80 and e == 0x80 else 0
        if (d == 0x80 and (e <= 0x8A or 0xA8 <= e <= 0xA9 or e == 0xAF)) or (d == 0x81 and e == 0x9F):
            return 3
    return 0


@njit(cache=True, nogil=True)
def _folded_hash(out, start, end):  # type: ignore[no-untyped-def]
    """A hash of the text with its white space folded; 0 for an empty text."""
    h = np.uint64(0)
    gap = False
    at = start
    while at < end:
        c = out[at]
        size = 0 if 32 < c < 0xC2 else _blank(out, at, end)
        if size:
            gap = True
            at += size
            continue
        if gap:
            if h:
                h = (h ^ np.uint64(32)) * np.uint64(0x100000001B3)
            gap = False
        if not h:
            h = np.uint64(0xCBF29CE484222325)
        h = (h ^ np.uint64(c)) * np.uint64(0x100000001B3)
        at += 1
    return h


@njit(cache=True, nogil=True)
def _emit(ids, units, pool, word_at, word_size, mode, source, added, last, end_word, out, at):  # type: ignore[no-untyped-def]
    """Write the candidate that `mode`, `source`, `added` and `end_word` describe; returns where it ends."""
    for i in range(ids.size):
        u = ids[i]
        start = units[u, PIECE]
        lead, core, tail = units[u, LEAD], units[u, CORE], units[u, TAIL]
        if mode[i] == -1 and added[i] < 0 and (i != last or end_word < 0):
            at = _copy(pool, start, lead + core + tail, out, at)
            continue
        if mode[i] == DELETE:
            at = _copy(pool, units[u, STUB], units[u, STUB_SIZE], out, at)
            continue
        at = _copy(pool, start, lead, out, at)
        if added[i] >= 0:
            at = _copy(pool, word_at[added[i]], word_size[added[i]], out, at)
            if units[u, SPACE]:
                out[at] = 32
                at += 1
        if mode[i] == SYNONYM:
            at = _copy(pool, word_at[source[i]], word_size[source[i]], out, at)
        elif mode[i] == SWAP:
            other = ids[source[i]]
            at = _copy(pool, units[other, PIECE] + units[other, LEAD], units[other, CORE], out, at)
        else:
            at = _copy(pool, start + lead, core, out, at)
        if i == last and end_word >= 0:
            if units[u, SPACE]:
                out[at] = 32
                at += 1
            at = _copy(pool, word_at[end_word], word_size[end_word], out, at)
        at = _copy(pool, start + lead + core, tail, out, at)
    return at


@njit(cache=True, nogil=True)
def rewrite(  # type: ignore[no-untyped-def]
    first, seeds, offsets, flat, strip, n, shares, units, pool, word_at, word_size, longest_word,
    out, starts, ends, operations, made, status,
):  # fmt: skip
    """Candidates of the samples from `first` on, until all are done or `out` is full.

    `shares` are the α of synonym replacement, insertion and swap, and the p of deletion. Returns the first sample that
    was not done and how many bytes were written. starts and ends count characters, not bytes.
    """
    widest = 1
    for s in range(first, seeds.size):
        widest = max(widest, offsets[s + 1] - offsets[s])
    mode = np.full(widest, -1, np.int8)
    source = np.zeros(widest, np.int32)
    added = np.full(widest, -1, np.int32)
    cores = np.empty(widest, np.int64)
    rich = np.empty(widest, np.int64)
    chosen = np.empty(widest + 1, np.int64)
    marked = np.zeros(widest + 1, np.uint8)
    allowed = np.empty(4, np.int64)
    state = np.zeros(1, np.uint64)
    seen = np.zeros(n + 1, np.uint64)
    at = 0
    characters = 0
    for s in range(first, seeds.size):
        ids = flat[offsets[s] : offsets[s + 1]]
        words, richer, size = 0, 0, 0
        for i in range(ids.size):
            u = ids[i]
            size += units[u, LEAD] + units[u, CORE] + units[u, TAIL]
            if units[u, CORE]:
                cores[words] = i
                words += 1
                if units[u, COUNT]:
                    rich[richer] = i
                    richer += 1
        made[s] = 0
        status[s] = DONE
        if not words:
            status[s] = NO_WORD
            continue
        kinds = 0
        for operation in range(4):
            if shares[operation] > 0 and (richer if operation < SWAP else words > 1):
                allowed[kinds] = operation
                kinds += 1
        if not kinds:
            status[s] = NO_OPERATION
            continue
        replaced = min(max(1, int(shares[SYNONYM] * words)), richer)
        inserted = min(max(1, int(shares[INSERT] * words)), words + 1)
        swapped = max(1, int(shares[SWAP] * words))
        room = size + ids.size + (max(replaced, inserted) + 1) * (longest_word + 1) + 8
        if at + n * room > out.size:
            return s, at
        cost = size + ids.size + 64  # not `room`, which grows with the words of samples met before
        last = cores[words - 1]
        state[0] = seeds[s]
        at_original = at
        for i in range(ids.size):
            u = ids[i]
            at = _copy(pool, units[u, PIECE], units[u, LEAD] + units[u, CORE] + units[u, TAIL], out, at)
        seen[0] = _folded_hash(out, at_original, at)
        at = at_original
        turn = _draw(state, kinds)
        misses = 0
        # Chance first; then, if it keeps missing, every single edit in turn. `step` numbers those.
        step = -1
        spent = 0
        while made[s] < n:
            end_word = -1
            edits = 0
            if step < 0:
                operation = allowed[turn % kinds]
                turn += 1
                if operation == SYNONYM:
                    edits = replaced
                    _pick(richer, edits, state, chosen, marked)
                    for k in range(edits):
                        i = rich[chosen[k]]
                        chosen[k] = i
                        u = ids[i]
                        mode[i] = SYNONYM
                        source[i] = units[u, SYNONYMS] + _draw(state, units[u, COUNT])
                elif operation == INSERT:
                    _pick(words + 1, inserted, state, chosen, marked)
                    for k in range(inserted):
                        u = ids[rich[_draw(state, richer)]]
                        word = units[u, INSERTIONS] + _draw(state, units[u, COUNT])
                        if chosen[k] == words:
                            end_word = word
                        else:
                            added[cores[chosen[k]]] = word
                            chosen[edits] = cores[chosen[k]]
                            edits += 1
                elif operation == SWAP:
                    for _ in range(swapped):
                        a = _draw(state, words)
                        b = _draw(state, words - 1)
                        b += b >= a
                        a, b = cores[a], cores[b]
                        if mode[a] != SWAP:
                            mode[a] = SWAP
                            source[a] = a
                            chosen[edits] = a
                            edits += 1
                        if mode[b] != SWAP:
                            mode[b] = SWAP
                            source[b] = b
                            chosen[edits] = b
                            edits += 1
                        source[a], source[b] = source[b], source[a]
                else:
                    p = shares[DELETE]
                    if p < 1:
                        scale = 1.0 / math.log1p(-p)
                        k = -1
                        while True:
                            k += 1 + int(min(math.log((_draw(state, 1 << 30) + 1) / float(1 << 30)) * scale, 1e9))
                            if k >= words:
                                break
                            mode[cores[k]] = DELETE
                            chosen[edits] = cores[k]
                            edits += 1
                    else:
                        for k in range(words):
                            mode[cores[k]] = DELETE
                            chosen[k] = cores[k]
                        edits = words
                    if edits == 0:
                        chosen[0] = cores[_draw(state, words)]
                        mode[chosen[0]] = DELETE
                        edits = 1
                    if edits == words:
                        mode[cores[_draw(state, words)]] = -1
            else:
                spent += cost
                if spent > _SEARCH:
                    break
                # Synonyms, swaps and insertions one by one, then runs of deletions, then any set of them.
                rest = step
                step += 1
                operation = -1
                if shares[SYNONYM] > 0 and operation < 0:
                    for k in range(richer):
                        u = ids[rich[k]]
                        if rest < units[u, COUNT]:
                            operation = SYNONYM
                            i = rich[k]
                            mode[i] = SYNONYM
                            source[i] = units[u, SYNONYMS] + rest
                            chosen[0] = i
                            edits = 1
                            break
                        rest -= units[u, COUNT]
                if shares[SWAP] > 0 and operation < 0:
                    if rest < words * words:
                        a, b = rest // words, rest % words
                        operation = SWAP
                        if a < b:
                            mode[cores[a]] = SWAP
                            mode[cores[b]] = SWAP
                            source[cores[a]] = cores[b]
                            source[cores[b]] = cores[a]
                            chosen[0] = cores[a]
                            chosen[1] = cores[b]
                            edits = 2
                        else:
                            spent -= cost
                    else:
                        rest -= words * words
                if shares[INSERT] > 0 and operation < 0 and richer:
                    for k in range(richer):
                        u = ids[rich[k]]
                        if rest < units[u, COUNT] * (words + 1):
                            operation = INSERT
                            word = units[u, INSERTIONS] + rest // (words + 1)
                            place = rest % (words + 1)
                            if place == words:
                                end_word = word
                            else:
                                chosen[0] = cores[place]
                                added[chosen[0]] = word
                                edits = 1
                            break
                        rest -= units[u, COUNT] * (words + 1)
                if shares[DELETE] > 0 and operation < 0 and words > 1:
                    if rest < words * (words - 1):
                        length, a = 1 + rest // words, rest % words
                        operation = DELETE
                        if a + length <= words:
                            for k in range(length):
                                chosen[k] = cores[a + k]
                                mode[chosen[k]] = DELETE
                            edits = length
                        else:
                            spent -= cost
                    else:
                        rest -= words * (words - 1)
                        if words < 20 and rest < (1 << words) - 2:
                            operation = DELETE
                            for k in range(words):
                                if (rest + 1) >> k & 1:
                                    chosen[edits] = cores[k]
                                    mode[chosen[edits]] = DELETE
                                    edits += 1
                if operation < 0:
                    break
            end = _emit(ids, units, pool, word_at, word_size, mode, source, added, last, end_word, out, at)
            for k in range(edits):
                mode[chosen[k]] = -1
                added[chosen[k]] = -1
            begin = at
            if strip[s]:
                while begin < end:
                    gap = _blank(out, begin, end)
                    if not gap:
                        break
                    begin += gap
            h = _folded_hash(out, begin, end)
            new = h != 0
            for k in range(made[s] + 1):
                if seen[k] == h:
                    new = False
                    break
            if new:
                slot = s * n + made[s]
                made[s] += 1
                seen[made[s]] = h
                for k in range(at, begin):
                    characters += (out[k] & 0xC0) != 0x80
                starts[slot] = characters
                for k in range(begin, end):
                    characters += (out[k] & 0xC0) != 0x80
                ends[slot] = characters
                operations[slot] = operation
                at = end
            elif step < 0:
                misses += 1
                if misses > n + 8:
                    step = 0
        if not made[s]:
            status[s] = NOTHING_NEW
    return seeds.size, at
