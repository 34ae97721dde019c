"""Where the records of a CSV or JSONL file end, byte by byte; compiled, for it reads whole corpora."""

from __future__ import annotations

import numba

FIELD_START, PLAIN, QUOTED, QUOTE_IN_QUOTED = range(4)


@numba.njit(cache=True)
def record_ends(data, state, content, delimiter, quotes, ends):  # type: ignore[no-untyped-def]
    """Find where records end; `state` and `content` carry over from chunk to chunk.

    With `quotes` by the csv module's rules, for which a lone carriage return ends a record too; without them a record
    is a line with more than blanks in it.
    """
    count = 0
    for i in range(data.size):
        byte = data[i]
        if state == QUOTED:
            if byte == 34:
                state = QUOTE_IN_QUOTED
        elif byte == 10 or (byte == 13 and quotes):
            if content:
                ends[count] = i + 1
                count += 1
            elif count > 0:
                ends[count - 1] = i + 1
            state = FIELD_START
            content = False
        elif quotes or (byte != 32 and byte != 9 and byte != 13):
            content = True
            opens = byte == 34 and quotes and state != PLAIN
            state = QUOTED if opens else FIELD_START if byte == delimiter else PLAIN
    return count, state, content
