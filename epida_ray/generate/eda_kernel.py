"""The operations of EDA, compiled: they choose the edits and write the candidates as UTF-8 bytes.

The candidates of a sample depend on its seed alone. numba compiles this once per machine and keeps the result beside
the source, or in the user's cache directory if that is not writable. It compiles again when this file changes, but not
when an imported one does, so everything compiled is here.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

SYNONYM, INSERT, SWAP, DELETE = range(4)
KEEP = -1
NONE = -1
DONE, NO_WORD, NO_OPERATION, NOTHING_NEW = range(4)

# Columns of the table of units.
PIECE, LEAD, CORE, TAIL, STUB, STUB_SIZE, SYNONYMS, COUNT, INSERTIONS, SPACE = range(10)
# Columns of a draft, which says by place what one candidate changes: KEEP, SYNONYM, SWAP or DELETE; the word of a
# SYNONYM, or the place whose word a SWAP puts here; and the word to insert before this place, or NONE. The row behind
# the last place has the word to insert after the last word.
MODE, SOURCE, INSERTED = range(3)

_SEARCH = 400_000
"""About how many bytes the search for the last distinct candidates may write for one sample."""

kernel = njit(cache=True, nogil=True, error_model="numpy")
# For what every candidate needs: a call counts references of all its arrays, which takes longer than the work. Rarer
# functions are not inlined, because that doubles the time to compile.
inlined = njit(cache=True, nogil=True, inline="always")


class Batch(NamedTuple):
    """Samples to rewrite; sample s has the units flat[offsets[s]] to flat[offsets[s + 1]]."""

    seeds: np.ndarray
    offsets: np.ndarray
    flat: np.ndarray


class Output(NamedTuple):
    """Candidates; number k of sample s has the entry s·n + k of `starts`, `ends` and `operations`."""

    text: np.ndarray
    """Bytes of all candidates, with room for all."""
    starts: np.ndarray
    ends: np.ndarray
    operations: np.ndarray
    made: np.ndarray
    """How many candidates each sample got."""
    status: np.ndarray
    """DONE, or why a sample got none."""


class _Text(NamedTuple):
    """One sample: its units, and the places among them that hold a word, or a word with synonyms."""

    units: np.ndarray
    words: np.ndarray
    rich: np.ndarray


@kernel
def rewrite(n, shares, batch, tables, output):  # type: ignore[no-untyped-def]
    """Write n candidates of each sample.

    `shares` are the α of synonym replacement, insertion and swap, and the p of deletion.
    """
    widest = max(1, np.diff(batch.offsets).max())
    words, rich, allowed = np.empty(widest, np.int64), np.empty(widest, np.int64), np.empty(4, np.int64)
    draft = np.empty((widest + 1, 3), np.int32)
    state, scratch = np.zeros(1, np.uint64), np.zeros((2, widest + 1), np.int64)
    seen = np.zeros(n + 1, np.uint64)
    end = 0
    for s in range(batch.seeds.size):
        text = _read(batch, s, tables, words, rich)
        kinds = _allowed(text, shares, allowed)
        if kinds:
            state[0] = batch.seeds[s]
            end = _make(s, n, end, text, shares, allowed[:kinds], tables, draft, state, scratch, seen, output)
            output.status[s] = DONE if output.made[s] else NOTHING_NEW
        else:
            output.status[s] = NO_OPERATION if text.words.size else NO_WORD


@inlined
def _make(s, n, end, text, shares, allowed, tables, draft, state, scratch, seen, output):  # type: ignore[no-untyped-def]
    """Write the n candidates of sample s: random edits, and if those repeat too often, every single edit in turn.

    `end` is where the candidates written before end; return where they end now.
    """
    draft[: text.units.size + 1] = NONE
    size = _write(text, tables, draft, output.text, end) - end
    seen[0] = _folded_hash(output.text, end, end + size)
    turn = _draw(state, allowed.size)
    misses = 0
    while output.made[s] < n and misses <= n + 8:
        operation = allowed[turn % allowed.size]
        turn += 1
        _edit(operation, text, shares, tables, draft, state, scratch)
        before = end
        end = _add(s, n, end, operation, text, tables, draft, seen, output)
        misses += end == before
    if output.made[s] < n:
        left = _SEARCH
        for operation in _single_edits(text, shares, tables, draft):
            left -= size + text.units.size + 64
            if left < 0:
                break
            end = _add(s, n, end, operation, text, tables, draft, seen, output)
            if output.made[s] == n:
                break
    return end


# Reading a sample


@kernel
def _read(batch, s, tables, words, rich):  # type: ignore[no-untyped-def]
    units = batch.flat[batch.offsets[s] : batch.offsets[s + 1]]
    word_count, rich_count = 0, 0
    for i in range(units.size):
        if tables.units[units[i], CORE]:
            words[word_count] = i
            word_count += 1
            if tables.units[units[i], COUNT]:
                rich[rich_count] = i
                rich_count += 1
    return _Text(units, words[:word_count], rich[:rich_count])


@inlined
def _allowed(text, shares, allowed):  # type: ignore[no-untyped-def]
    """Write the operations that are turned on and possible, and return how many there are."""
    count = 0
    for operation in range(4):
        if shares[operation] > 0 and (text.rich.size > 0 if operation < SWAP else text.words.size > 1):
            allowed[count] = operation
            count += 1
    return count


@inlined
def _edits(share, text):  # type: ignore[no-untyped-def]
    return max(1, int(share * text.words.size))


# Random numbers


@inlined
def _draw(state, size):  # type: ignore[no-untyped-def]
    """Draw a number below `size` (splitmix64)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return np.int64((z >> np.uint64(32)) * np.uint64(size) >> np.uint64(32))


@kernel
def _choose(state, size, count, scratch):  # type: ignore[no-untyped-def]
    """Return `count` different numbers below `size`."""
    chosen, marked = scratch  # marked is all zero between calls
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
    else:
        for k in range(size):
            chosen[k] = k
        for n in range(count):
            k = n + _draw(state, size - n)
            chosen[n], chosen[k] = chosen[k], chosen[n]
    return chosen[:count]


# Random edits, one function per operation


@inlined
def _edit(operation, text, shares, tables, draft, state, scratch):  # type: ignore[no-untyped-def]
    if operation == SYNONYM:
        _replace(text, shares[SYNONYM], tables, draft, state, scratch)
    elif operation == INSERT:
        _insert(text, shares[INSERT], tables, draft, state, scratch)
    elif operation == SWAP:
        _swap(text, shares[SWAP], draft, state)
    else:
        _delete(text, shares[DELETE], draft, state)


@inlined
def _replace(text, alpha, tables, draft, state, scratch):  # type: ignore[no-untyped-def]
    """Replace words with synonyms."""
    for k in _choose(state, text.rich.size, min(_edits(alpha, text), text.rich.size), scratch):
        place = text.rich[k]
        u = text.units[place]
        _change(draft, place, SYNONYM, tables.units[u, SYNONYMS] + _draw(state, tables.units[u, COUNT]))


@inlined
def _insert(text, alpha, tables, draft, state, scratch):  # type: ignore[no-untyped-def]
    """Insert synonyms of words of the text at different places."""
    places = text.words.size + 1
    for k in _choose(state, places, min(_edits(alpha, text), places), scratch):
        u = text.units[text.rich[_draw(state, text.rich.size)]]
        _insert_at(draft, text, k, tables.units[u, INSERTIONS] + _draw(state, tables.units[u, COUNT]))


@inlined
def _swap(text, alpha, draft, state):  # type: ignore[no-untyped-def]
    """Swap two words, several times."""
    for _ in range(_edits(alpha, text)):
        a = _draw(state, text.words.size)
        b = _draw(state, text.words.size - 1)
        _swap_places(draft, text.words[a], text.words[b + (b >= a)])


@inlined
def _delete(text, p, draft, state):  # type: ignore[no-untyped-def]
    """Delete each word with probability p, but at least one and not all."""
    words = text.words
    # The gap between two deletions has a geometric distribution: one logarithm each, not one draw per word.
    scale = 1.0 / math.log1p(-p) if p < 1 else 0.0
    deleted = 0
    k = -1
    while True:
        k += 1 + (int(min(math.log((_draw(state, 1 << 30) + 1) / float(1 << 30)) * scale, 1e9)) if p < 1 else 0)
        if k >= words.size:
            break
        _change(draft, words[k], DELETE, 0)
        deleted += 1
    if deleted == 0:
        _change(draft, words[_draw(state, words.size)], DELETE, 0)
    elif deleted == words.size:
        draft[words[_draw(state, words.size)], MODE] = KEEP


# Single edits


@kernel
def _single_edits(text, shares, tables, draft):  # type: ignore[no-untyped-def]
    """Make every edit of one word, and every deletion, one after the other, and yield its operation."""
    words, rich = text.words, text.rich
    if shares[SYNONYM] > 0:
        for place in rich:
            u = text.units[place]
            for k in range(tables.units[u, COUNT]):
                _change(draft, place, SYNONYM, tables.units[u, SYNONYMS] + k)
                yield SYNONYM
    if shares[SWAP] > 0:
        for a in range(words.size):
            for b in range(a + 1, words.size):
                _swap_places(draft, words[a], words[b])
                yield SWAP
    if shares[INSERT] > 0:
        for place in rich:
            u = text.units[place]
            for k in range(tables.units[u, COUNT]):
                for before in range(words.size + 1):
                    _insert_at(draft, text, before, tables.units[u, INSERTIONS] + k)
                    yield INSERT
    if shares[DELETE] > 0:
        for length in range(1, words.size):
            for start in range(words.size - length + 1):
                for k in range(start, start + length):
                    _change(draft, words[k], DELETE, 0)
                yield DELETE
        if words.size < 20:  # every set of words, not only runs of them
            for chosen in range(1, (1 << words.size) - 1):
                for k in range(words.size):
                    if chosen >> k & 1:
                        _change(draft, words[k], DELETE, 0)
                yield DELETE


# A draft of one candidate


@inlined
def _change(draft, place, mode, source):  # type: ignore[no-untyped-def]
    draft[place, MODE] = mode
    draft[place, SOURCE] = source


@inlined
def _swap_places(draft, a, b):  # type: ignore[no-untyped-def]
    for place in (a, b):
        if draft[place, MODE] != SWAP:
            _change(draft, place, SWAP, place)
    draft[a, SOURCE], draft[b, SOURCE] = draft[b, SOURCE], draft[a, SOURCE]


@inlined
def _insert_at(draft, text, k, word):  # type: ignore[no-untyped-def]
    """Insert before word k, or after the last."""
    draft[text.words[k] if k < text.words.size else text.units.size, INSERTED] = word


# Writing


@inlined
def _add(s, n, at, operation, text, tables, draft, seen, output):  # type: ignore[no-untyped-def]
    """Write the candidate of the draft at `at` and clear the draft; return its end, or `at` if it is not new."""
    end = _write(text, tables, draft, output.text, at)
    draft[: text.units.size + 1] = NONE
    made = output.made[s]
    h = _folded_hash(output.text, at, end)
    if h == 0:
        return at
    for k in range(made + 1):
        if seen[k] == h:
            return at
    output.starts[s * n + made], output.ends[s * n + made] = at, end
    output.operations[s * n + made] = operation
    output.made[s] += 1
    seen[made + 1] = h
    return end


@inlined
def _write(text, tables, draft, out, at):  # type: ignore[no-untyped-def]
    """Write the candidate of the draft from `at` on, and return where it ends."""
    units, pool, ids = tables.units, tables.pool, text.units
    last, end_word = text.words[-1], draft[ids.size, INSERTED]
    for place in range(ids.size):
        u = ids[place]
        mode, inserted = draft[place, MODE], draft[place, INSERTED]
        appended = end_word if place == last else NONE
        start, lead, core, tail = units[u, PIECE], units[u, LEAD], units[u, CORE], units[u, TAIL]
        if mode == KEEP and inserted == NONE and appended == NONE:
            at = _copy(pool, start, lead + core + tail, out, at)
            continue
        if mode == DELETE:
            at = _copy(pool, units[u, STUB], units[u, STUB_SIZE], out, at)
            continue
        at = _copy(pool, start, lead, out, at)
        if inserted != NONE:
            at = _copy_word(inserted, tables, out, at)
            at = _space(units[u, SPACE], out, at)
        if mode == SYNONYM:
            at = _copy_word(draft[place, SOURCE], tables, out, at)
        elif mode == SWAP:
            v = ids[draft[place, SOURCE]]
            at = _copy(pool, units[v, PIECE] + units[v, LEAD], units[v, CORE], out, at)
        else:
            at = _copy(pool, start + lead, core, out, at)
        if appended != NONE:
            at = _space(units[u, SPACE], out, at)
            at = _copy_word(appended, tables, out, at)
        at = _copy(pool, start + lead + core, tail, out, at)
    return at


@inlined
def _copy(pool, start, size, out, at):  # type: ignore[no-untyped-def]
    for k in range(size):
        out[at + k] = pool[start + k]
    return at + size


@inlined
def _copy_word(word, tables, out, at):  # type: ignore[no-untyped-def]
    return _copy(tables.pool, tables.word_at[word], tables.word_size[word], out, at)


@inlined
def _space(size, out, at):  # type: ignore[no-untyped-def]
    """Write a blank if `size` is 1; it is 0 for words of a script that has no blanks between words."""
    if size:
        out[at] = 32
    return at + size


@inlined
def _blank(out, at, end):  # type: ignore[no-untyped-def]
    """Return the size in UTF-8 of the white space character at `at`, or 0 if there is none."""
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


@kernel
def _folded_hash(out, start, end):  # type: ignore[no-untyped-def]
    """Return a hash of the text with its white space folded; 0 for an empty text."""
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
