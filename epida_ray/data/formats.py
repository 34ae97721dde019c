"""Know the formats: their suffixes, delimiters and encodings."""

from __future__ import annotations

import codecs
import csv
import io
import posixpath
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit

from epida_ray.core.errors import RequestError

FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".xlsx": "xlsx",
    ".arrow": "arrow",
    ".feather": "arrow",
}
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
TEXT_FORMATS = ("csv", "tsv", "jsonl", "json")
DELIMITERS = {"csv": ",", "tsv": "\t"}
KNOWN = "a .parquet, .csv, .tsv, .jsonl, .json, .xlsx, .arrow or .feather file"
_CONVERSIONS = {
    ".xls": "open it in Excel and save it as .xlsx",
    ".xlsb": "open it in Excel and save it as .xlsx",
    ".ods": "open it in LibreOffice and save it as .xlsx or .csv",
    ".txt": "rename it to .csv or .tsv if it has a header and columns",
    ".zip": "unpack it",
    ".tar": "unpack it",
    ".tgz": "unpack it",
    ".pkl": "in Python: pandas.read_pickle(FILE).to_parquet(NEW)",
    ".pickle": "in Python: pandas.read_pickle(FILE).to_parquet(NEW)",
    ".orc": "in Python: pandas.read_orc(FILE).to_parquet(NEW)",
    ".sav": "in Python: pandas.read_spss(FILE).to_parquet(NEW)",
    ".dta": "in Python: pandas.read_stata(FILE).to_parquet(NEW)",
    ".xml": "in Python: pandas.read_xml(FILE).to_parquet(NEW)",
    ".parquet": "unpack it; Parquet is compressed inside",
    ".arrow": "unpack it",
    ".feather": "unpack it",
    ".xlsx": "unpack it",
}

UNREADABLE_SHARE = 0.05
"""From this share of undecodable rows on, the whole file is taken to have another encoding."""

_BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_COMMON_ENCODINGS = {
    "cp1252": "windows-1252",
    "cp1250": "windows-1250",
    "cp1251": "windows-1251",
    "cp932": "shift_jis",
    "shift_jis": "shift_jis",
    "gb18030": "gb18030",
    "big5": "big5",
    "euc_kr": "euc_kr",
    "euc_jp": "euc_jp",
}
_NOT_INSIDE_A_WORD = "¿¡³²¹£¥¢¤¦¨¯¸¼½¾¬±µ¶×÷"
"""Characters of Windows-1252 that stand inside a word only where another encoding was misread."""


class Format(NamedTuple):
    kind: str
    compression: str | None


def format_of(location: str) -> Format | None:
    """Return the format that a path's or URL's suffix names; only text formats may be compressed."""
    path = urlsplit(location.partition("::")[0]).path if "://" in location else location
    stem, suffix = posixpath.splitext(path.lower())
    compression = COMPRESSIONS.get(suffix)
    if compression is not None:
        suffix = posixpath.splitext(stem)[1]
    kind = FORMATS.get(suffix)
    if kind is None or (compression is not None and kind not in TEXT_FORMATS):
        return None
    return Format(kind, compression)


def how_to_convert(name: str) -> str:
    """Return what to do with a file whose format is not known."""
    stem, suffix = posixpath.splitext(name.lower())
    if suffix in COMPRESSIONS:
        suffix = posixpath.splitext(stem)[1]
    return _CONVERSIONS.get(suffix, "convert it to one of those")


def chosen_delimiter(given: str | None) -> str | None:
    """Return the delimiter that a user named, as itself, `tab` or `\\t`; None if it is to be detected."""
    if given is None:
        return None
    delimiter = "\t" if given in ("tab", r"\t") else given
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n' or delimiter.isalnum():
        raise RequestError(f"--delimiter {given!r} should be one character, such as ';', or tab")
    return delimiter


def known_encoding(encoding: str) -> bool:
    try:
        return isinstance("a".encode(encoding), bytes)
    except (LookupError, ValueError):  # ValueError: not a name, or not an encoding of text
        return False


@lru_cache
def ascii_compatible(encoding: str) -> bool:
    """Return whether records can be found by their bytes: ASCII is itself, and no other character has such bytes."""
    plain = bytes(range(128))
    beyond = "".join(map(chr, [*range(0x80, 0xD800), *range(0xE000, 0x10000)]))
    try:
        same = plain.decode(encoding) == plain.decode("ascii")
        return same and not set(b'"\n\r\t,;') & set(beyond.encode(encoding, "ignore"))
    except UnicodeError:
        return False


def marked_encoding(beginning: bytes) -> str | None:
    """Return the encoding that a byte order mark names, if there is one."""
    return next((name for mark, name in _BYTE_ORDER_MARKS.items() if beginning.startswith(mark)), None)


def likely_encoding(sample: bytes) -> str | None:
    """Return the encoding that `sample`, which is not UTF-8, most likely has; None if there is no likely one."""
    from charset_normalizer import from_bytes

    matches = from_bytes(sample, cp_isolation=list(_COMMON_ENCODINGS))
    best = matches.best()
    if best is None:
        return None
    # Short texts fit several encodings of Europe about equally well; Windows-1252 is by far the commonest.
    western = is_plainly_western(sample)
    close = [match for match in matches if match.chaos <= best.chaos + 0.1]
    if western and not any(c.isalpha() and not c.isascii() for c in sample.decode("windows-1252")):
        return "windows-1252"  # quotation marks and dashes, which have the same bytes in all of Windows' encodings
    if western and any("cp1252" in (match.encoding, *match.could_be_from_charset) for match in close):
        return "windows-1252"
    codec = next((match.encoding for match in matches if western or match.encoding != "cp1252"), best.encoding)
    return _COMMON_ENCODINGS.get(codec, codec)


def is_plainly_western(sample: bytes) -> bool:
    """Return whether `sample` reads as Windows-1252 without signs that stand inside words."""
    try:
        text = sample.decode("windows-1252")
    except UnicodeDecodeError:
        return False
    inner = zip(text, text[1:], text[2:], strict=False)
    return not any(b in _NOT_INSIDE_A_WORD and a.isalpha() and c.isalpha() for a, b, c in inner)


def undecodable(rows: Sequence[bytes], encoding: str) -> int:
    """Return how many of these rows do not decode."""
    return sum(not _decodes(row, encoding) for row in rows)


def _decodes(row: bytes, encoding: str) -> bool:
    try:
        row.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def first_record(text: str, delimiter: str) -> list[str]:
    csv.field_size_limit(1 << 28)
    try:
        return next(filter(None, csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)), [])
    except csv.Error:
        return []


def detect_delimiter(beginning: str, usual: str, columns: Sequence[str]) -> str:
    """Return the delimiter by which the header has all the columns that are needed.

    If none does, return the one that gives the most columns, so that the error can list their names.
    """
    headers = {delimiter: first_record(beginning, delimiter) for delimiter in (usual, ",", ";", "\t", "|")}
    for delimiter, header in headers.items():
        if set(columns) <= set(header):
            return delimiter
    return max(headers, key=lambda delimiter: len(headers[delimiter]))
