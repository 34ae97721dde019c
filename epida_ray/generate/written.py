"""The texts in an answer of a language model, without the markup and the remarks around them."""

from __future__ import annotations

import json
import re
from typing import Any

_LEAD = re.compile(r"^(?:(?:sure|here|certainly)\b[^:\n]{0,80}|new text|rewritten|answer|text)\s*:\s*", re.IGNORECASE)
_BULLET = re.compile(r"^\s*(?:[-*•>]|\(?\d{1,3}[.):]|\[\d{1,3}\]|\*\*\d{1,3}[.):]\*\*)(?:\s+|$)")
"""With white space behind it: not "10:30" or "-5"."""
_NUMBERED = re.compile(r"^(?:text|example|sample)\s*#?\d{1,3}\s*[:.)–-]\s*", re.IGNORECASE)
_NAMED = re.compile(r"^\*\*[^*\n]{1,40}(?::\*\*|\*\*:)\s*")
_BOLD = re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*")
_HEADING = re.compile(r"^\s*(?:#{1,6}\s|```)")
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "*": "*", "_": "_", "`": "`"}

_THOUGHT = re.compile(r"<(think|thinking|thought|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_LATE_THOUGHT = re.compile(r"\A.*</(?:think|thinking|thought|reasoning)>", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"</?(?:texts?|answer|output|item|response)>|<\|[^|<>\n]{1,40}\|>", re.IGNORECASE)
_FENCED = re.compile(r"^[ \t]*```[\w-]*[ \t]*\n(.*?)(?:^[ \t]*```|```[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_CLOSING = re.compile(
    r"(?:i hope|hope (?:this|these|that)|let me know|feel free|note\b|these (?:texts|are))", re.IGNORECASE
)

_JSON = re.compile(r"(?:^|:)[ \t]*([\[{]\s*[\"{\[])", re.MULTILINE)
_VALUE = re.compile(r'(?:"(\w+)"\s*:\s*)?("(?:[^"\\]|\\.)*")\s*(?=[,\]}])')


def texts_of(answer: str) -> list[str]:
    """Return the texts of an answer: those of a JSON list or of objects, or else one for each line."""
    answer = _TAG.sub("\n", without_thoughts(answer))
    answer = "\n".join(part for part in _FENCED.findall(answer) if part.strip()) or answer
    found = _in_json(answer)
    if found is None:
        return _in_lines(answer)
    texts = (_BULLET.sub("", " ".join(text.split())) for text in found)
    return [text for text in texts if any(c.isalnum() for c in text)]


def cleaned(answer: str) -> str:
    """Return the first line that says something, without the phrases and the marks around it."""
    lines = [
        _LEAD.sub("", line.strip()).strip()
        for line in without_thoughts(answer).strip().splitlines()
        if not line.startswith("```")
    ]
    return _unquoted(next((line for line in lines if any(c.isalnum() for c in line)), ""))


def without_thoughts(answer: str) -> str:
    """Return what a model answers behind its thoughts, which may have no end or no beginning."""
    return _LATE_THOUGHT.sub("", _THOUGHT.sub("", answer))


def _unquoted(line: str) -> str:
    while len(line) > 2 and _QUOTES.get(line[0]) == line[-1]:
        line = line[1:-1].strip()
    return line


def _in_json(answer: str) -> list[str] | None:
    """Return the strings of all JSON in an answer, or None if it has none; of JSON that is cut off, whole strings."""
    found: list[str] = []
    start = _JSON.search(answer)
    if start is None:
        return None
    while start is not None:
        try:
            value, end = json.JSONDecoder().raw_decode(answer, start.start(1))
        except (ValueError, RecursionError):  # cut off, or with a comma too many
            values = _VALUE.findall(answer, start.start(1))
            found += [text for key, value in values if key in ("", "text") for text in _decoded(value)]
            break
        found += _strings(value)
        start = _JSON.search(answer, end)
    return found


def _decoded(text: str) -> list[str]:
    try:
        return [json.loads(text, strict=False)]
    except ValueError:  # an escape that JSON does not know
        return []


def _strings(value: Any) -> list[str]:
    """Return the texts of a value: of an object what it calls its text, or its lists, or else all its strings."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        lists = [part for part in value.values() if isinstance(part, list)]
        value = [value["text"]] if "text" in value else lists or list(value.values())
    return [text for part in value for text in _strings(part)] if isinstance(value, list) else []


def _in_lines(answer: str) -> list[str]:
    """Return a text for each line; where most lines have numbers or bullets, for those lines alone."""
    lines = [line for line in answer.splitlines() if any(c.isalnum() for c in line) and not _HEADING.match(line)]
    listed = [line for line in lines if _BULLET.match(line)]
    if 2 * len(listed) >= len(lines):
        lines = listed
    else:
        if len(lines) > 1 and lines[0].rstrip(" *").endswith(":"):
            del lines[0]
        last = answer.rstrip().splitlines()[-2:]
        if len(lines) > 1 and len(last) == 2 and not last[0].strip() and _CLOSING.match(last[1].strip()):
            del lines[-1]
    texts = (_line(line) for line in lines)
    return [text for text in texts if text]


def _line(line: str) -> str:
    line = _NAMED.sub("", _BULLET.sub("", line).strip())
    line = _BOLD.sub(r"\1", line)
    if line.endswith('",') and line.startswith('"'):
        line = line[:-1]
    return cleaned(_NUMBERED.sub("", line))
