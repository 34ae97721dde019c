"""The script that a text is written in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import regex

_SCRIPTS = {
    name: regex.compile(rf"\p{{Script={name}}}")
    for name in ("Latin", "Cyrillic", "Greek", "Arabic", "Hebrew", "Devanagari", "Han", "Hiragana", "Hangul", "Thai")
}


def script_of(text: str) -> str:
    """Return the script of most letters at the beginning of a text; empty if it has none that is known."""
    counts = {name: len(pattern.findall(text[:1000])) for name, pattern in _SCRIPTS.items()}
    best = max(counts, key=lambda name: counts[name])
    return ("Japanese" if best == "Hiragana" else best) if counts[best] else ""


def main_script(texts: Iterable[str]) -> str:
    """Return the script of most texts; empty if none has a known one."""
    found = Counter(script for text in texts if (script := script_of(text)))
    return found.most_common(1)[0][0] if found else ""
