"""`epida check`: what is wrong with labelled files, before anything is trained on them."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import regex

from epida_ray.core.errors import RequestError
from epida_ray.core.labels import label_set
from epida_ray.core.progress import Reporter
from epida_ray.data.plan import Columns, Plan, plan_inputs
from epida_ray.data.storage import Storage
from epida_ray.data.writer import csv_table
from epida_ray.method.checks import UNEVEN, check_classes, multi_label_hint
from epida_ray.method.denied_labels import denied, judge_of, out_of_fold
from epida_ray.method.near_duplicates import near_duplicates
from epida_ray.method.output import RejectedRow
from epida_ray.method.pool import text_hash
from epida_ray.method.prepare import NO_ROWS, Row, labelled, read_labelled
from epida_ray.method.scripts import script_of
from epida_ray.runs.manifest import versions

CHECKED = "check.json"
Level = Literal["problem", "warning", "note"]
"""`problem`: scores or the model will be wrong. `warning`: look at it. `note`: good to know."""
SMALL_CLASS = 5
"""With fewer rows, cross-validation cannot test a class in each of its five folds."""
LONG_WORDS = 200
"""Sentence encoders read about so many words of a text."""
DRIFT = 0.1
"""Share of rows that would need another label for two files to have the same shares of the classes."""
MIXED_SCRIPTS = 0.01
CHANCE = 0.001
"""A difference in class shares that would be rarer than this by chance is called drift."""
_ENTITY = regex.compile(r"&(?:amp|lt|gt|quot|nbsp|#\d{2,5});")
_CONTROL = regex.compile(r"[\p{Cc}--[\t\n\r]]|\ufffd", flags=regex.V1)


@dataclass(frozen=True)
class Finding:
    """One kind of fault: how many rows have it, some of them, and what to do."""

    name: str
    level: Level
    what: str
    count: int
    advice: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    """Every affected row or pair of rows, the most important first."""


@dataclass(frozen=True)
class Checked:
    train: int
    test: int
    classes: dict[str, int]
    findings: list[Finding]

    def plain(self) -> dict[str, Any]:
        """Return plain JSON."""
        return asdict(self)


def check(
    train: str,
    test: str | None = None,
    *,
    text_column: str = "text",
    label_column: str = "label",
    encoding: str = "auto",
    delimiter: str | None = None,
    classifier: str | None = None,
    seed: int = 0,
    exclude: str | None = None,
    reporter: Reporter | None = None,
) -> Checked:
    """Read the files and look for faults; `classifier` judges the labels, by default a frozen sentence encoder.

    Files below `exclude`, where the findings are written, are not read.
    """
    columns = Columns(text=text_column, label=label_column)
    plans = {"TRAIN": plan_inputs(train, columns, encoding, exclude, delimiter)}
    if test is not None:
        plans["TEST"] = plan_inputs(test, columns, encoding, exclude, delimiter)
    read = {name: read_labelled(plan) for name, plan in plans.items()}
    for name, (good, _) in read.items():
        if not good:
            raise RequestError(f"{name}: {NO_ROWS}")
    findings = [f for name, plan in plans.items() for f in _of_file(name, plan, read[name][1])]
    learned, tested = read["TRAIN"][0], read["TEST"][0] if test is not None else []
    names = [row.label for row in learned]
    if len(classes := label_set(names)) > 1:
        check_classes(classes, names, label_column)
    findings += check_rows(learned, tested, classifier=classifier, seed=seed, reporter=reporter)
    order: dict[str, int] = {"problem": 0, "warning": 1, "note": 2}
    counts = Counter(row.label for row in learned)
    return Checked(
        len(learned), len(tested), {label: counts[label] for label in label_set(list(counts))},
        sorted(findings, key=lambda f: order[f.level]),
    )  # fmt: skip


def write(found: Checked, storage: Storage) -> None:
    """Write check.json, and NAME.csv with all rows of each finding."""
    plain = found.plain() | {"command": sys.argv, "versions": versions()}
    storage.write(CHECKED, json.dumps(plain, ensure_ascii=False, indent=1).encode("utf-8", "replace"))
    for finding in found.findings:
        if finding.rows:
            storage.write(f"{finding.name}.csv", _csv(finding.rows).encode("utf-8", "replace"))


def _csv(rows: list[dict[str, Any]]) -> str:
    flat = ({k: "; ".join(v) if isinstance(v, list) else v for k, v in row.items()} for row in rows)
    return csv_table(list(rows[0]), flat)


def check_rows(
    train: Sequence[Row],
    test: Sequence[Row],
    *,
    classifier: str | None = None,
    seed: int = 0,
    reporter: Reporter | None = None,
) -> list[Finding]:
    """Return what is wrong with rows that were read."""
    reporter = reporter or Reporter(quiet=True)
    findings = [*_classes(train), *_copies(train)]
    if test:
        findings += [*_leaks(train, test), *_drift(train, test)]
    findings += [*_contents("TRAIN", train), *(_contents("TEST", test) if test else ())]
    if len({row.label for row in train}) > 1:
        findings += _denied(train, classifier, seed, reporter)
    return [f for f in findings if f.count]


def _example(row: Row, **more: Any) -> dict[str, Any]:
    return {"id": row.id, "text": row.text, "label": row.label, **more}


def _of_file(name: str, plan: Plan, rejected: list[RejectedRow]) -> Iterator[Finding]:
    if plan.notes:
        yield Finding(
            "format", "note", f"{name}: {'; '.join(plan.notes)}", len(plan.notes),
            "if that is wrong, name it with --encoding or --delimiter",
        )  # fmt: skip
    if rejected:
        rows = [{"id": r.sample_id, "text": r.text, "reason": r.reason} for r in rejected]
        yield Finding(
            "unusable", "warning", f"rows of {name} that cannot be used: no text, no label, or unreadable",
            len(rejected), "fix or remove them; training leaves them out", rows,
        )  # fmt: skip


def _classes(train: Sequence[Row]) -> Iterator[Finding]:
    counts = Counter(row.label for row in train)
    by_size = sorted(counts.items(), key=lambda item: (item[1], item[0]))
    small = [{"label": label, "rows": n} for label, n in by_size if n < SMALL_CLASS]
    if len(counts) < 2:
        yield Finding("one-class", "problem", "TRAIN has one class only", 1, "at least two classes are required")
    yield Finding(
        "small-classes", "problem" if small and small[0]["rows"] == 1 else "warning",
        f"classes with fewer than {SMALL_CLASS} rows: too few to learn from, hold out and test on", len(small),
        "label more rows of them, or merge them with another class", small,
    )  # fmt: skip
    if by_size[-1][1] >= UNEVEN * by_size[0][1] and len(counts) > 1:
        yield Finding(
            "uneven-classes", "note",
            f"the largest class, {by_size[-1][0]}, has {by_size[-1][1]:,} rows and the smallest, {by_size[0][0]}, has "
            f"{by_size[0][1]:,}", len(counts), "look at macro-F1, not at accuracy; --balance may help",
        )  # fmt: skip
    if hint := multi_label_hint(counts):
        yield Finding(
            "several-classes", "warning", hint, len(counts),
            "choose one class per text, or train a model for each class with a yes/no column",
        )  # fmt: skip
    spellings: dict[str, list[str]] = defaultdict(list)
    for label in counts:
        spellings[" ".join(label.lower().split())].append(label)
    same = [{"labels": sorted(names)} for names in spellings.values() if len(names) > 1]
    yield Finding(
        "label-spellings", "problem", "labels that differ only in case or white space", len(same),
        "write them the same way, or they are different classes", same,
    )  # fmt: skip


def _copies(train: Sequence[Row]) -> Iterator[Finding]:
    groups: dict[bytes, list[Row]] = defaultdict(list)
    for row in train:
        groups[text_hash(row.text)].append(row)
    copies = [group for group in groups.values() if len(group) > 1]
    two = [group for group in copies if len({row.label for row in group}) > 1]
    yield Finding(
        "two-labels", "problem", "texts of TRAIN that have two or more labels", len(two),
        "decide on one label for each text",
        [
            {"text": g[0].text, "labels": sorted({r.label for r in g}), "ids": [r.id for r in g]}
            for g in sorted(two, key=len, reverse=True)
        ],
    )  # fmt: skip
    yield Finding(
        "duplicates", "warning", "rows of TRAIN that repeat the text of another row", sum(len(g) - 1 for g in copies),
        "keep one row of each text: copies weigh more, and one may be used to test what learned from the other",
        [{"text": g[0].text, "ids": [r.id for r in g]} for g in sorted(copies, key=len, reverse=True)],
    )  # fmt: skip
    distinct = [group[0] for group in groups.values()]
    near = sorted(near_duplicates([row.text for row in distinct]), key=lambda pair: -pair.similarity)
    yield Finding(
        "near-duplicates", "note", "texts of TRAIN that are nearly the same as another one", len(near),
        "if they come from one source, such as a thread or a template, split TRAIN and TEST by source",
        [_pair(distinct[p.a], distinct[p.b], p.similarity) for p in near],
    )  # fmt: skip


def _pair(a: Row, b: Row, similarity: float) -> dict[str, Any]:
    return {
        "id": b.id, "text": b.text, "label": b.label, "other_id": a.id, "other_text": a.text, "other_label": a.label,
        "similarity": round(similarity, 3),
    }  # fmt: skip


def _leaks(train: Sequence[Row], test: Sequence[Row]) -> Iterator[Finding]:
    known: dict[bytes, Row] = {}
    for row in train:
        known.setdefault(text_hash(row.text), row)
    leaked = [(known[key], row) for row in test if (key := text_hash(row.text)) in known]
    yield Finding(
        "leaked", "problem", "rows of TEST whose text is in TRAIN, too", len(leaked),
        "remove them from TRAIN: the score on TEST is too high as long as the model has learned from them",
        [_pair(a, b, 1.0) for a, b in leaked],
    )  # fmt: skip
    others = [row for row in test if text_hash(row.text) not in known]
    near = near_duplicates([row.text for row in train], [row.text for row in others])
    yield Finding(
        "nearly-leaked", "warning", "rows of TEST that are nearly the same as a text of TRAIN", len(near),
        "look at them; remove from TRAIN those that are the same text",
        [_pair(train[p.a], others[p.b], p.similarity) for p in sorted(near, key=lambda p: -p.similarity)],
    )  # fmt: skip


def _drift(train: Sequence[Row], test: Sequence[Row]) -> Iterator[Finding]:
    a, b = Counter(r.label for r in train), Counter(r.label for r in test)
    for name, unknown, advice in (
        ("unknown-labels", sorted(set(b) - set(a)), "add rows with these labels to TRAIN; no model can predict them"),
        ("untested-labels", sorted(set(a) - set(b)), "add rows with these labels to TEST; their score is unknown"),
    ):
        where = "TEST that TRAIN" if name == "unknown-labels" else "TRAIN that TEST"
        yield Finding(
            name, "problem" if name == "unknown-labels" else "warning", f"labels of {where} does not have",
            len(unknown), advice, [{"label": label, "rows": (a | b)[label]} for label in unknown],
        )  # fmt: skip
    labels = sorted(set(a) | set(b))
    p, q = (np.array([c[label] for label in labels]) / c.total() for c in (a, b))
    moved = float(np.abs(p - q).sum() / 2)
    if moved >= DRIFT and _rarer_than_chance(np.array([[c[label] for label in labels] for c in (a, b)])):
        shares = [
            {"label": label, "train": round(x, 4), "test": round(z, 4)}
            for label, x, z in sorted(zip(labels, p.tolist(), q.tolist(), strict=True), key=lambda t: -abs(t[1] - t[2]))
        ]
        yield Finding(
            "label-drift", "warning", f"classes have other shares in TEST than in TRAIN; {moved:.0%} of the rows "
            "would need another label", len(labels),
            "find out which shares are those of the texts that the model will see; --balance makes it depend less "
            "on them", shares,
        )  # fmt: skip


def _rarer_than_chance(counts: np.ndarray, draws: int = 2000) -> bool:
    """Return whether two files of the same source would rarely differ so much: a permutation test of chi-square."""
    pooled = np.repeat(np.arange(counts.shape[1]), counts.sum(axis=0))
    if len(pooled) > 200_000:
        return True  # with so many rows, a difference as large as DRIFT is never chance
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0) / counts.sum()

    def statistic(first: np.ndarray) -> float:
        both = np.stack([first, counts.sum(axis=0) - first])
        return float(((both - expected) ** 2 / np.maximum(expected, 1e-12)).sum())

    random = np.random.default_rng(0)
    drawn = random.multivariate_hypergeometric(counts.sum(axis=0), int(counts[0].sum()), size=draws)
    seen = statistic(counts[0])
    return bool((1 + sum(statistic(one) >= seen for one in drawn)) / (1 + draws) <= CHANCE)


def _contents(name: str, rows: Sequence[Row]) -> Iterator[Finding]:
    checks: tuple[tuple[str, Level, str, str, Callable[[str], bool]], ...] = (
        ("mojibake", "warning", "texts that were decoded with the wrong encoding (such as Ã© for é)",
         "read the source again with its own encoding (--encoding)", _mojibake),
        ("characters", "warning", "texts with control or replacement characters",
         "find out where they come from; what they stood for is lost", lambda t: bool(_CONTROL.search(t))),
        ("entities", "note", "texts with HTML entities such as &amp;", "decode them (Python: html.unescape)",
         lambda t: bool(_ENTITY.search(t))),
        ("long-texts", "note", f"texts of more than {LONG_WORDS} words: a sentence encoder reads their beginning only",
         "put what matters first, cut texts into parts, or use --classifier linear or cnn",
         lambda t: len(t.split()) > LONG_WORDS),
        ("one-word", "note", "texts of one word", "check that they say enough to be labelled",
         lambda t: len(t.split()) == 1),
    )  # fmt: skip
    for kind, level, what, advice, test in checks:
        found = [row for row in rows if test(row.text)]
        yield Finding(kind, level, f"{name}: {what}", len(found), advice, [_example(row) for row in found])
    scripts: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if script := script_of(row.text):
            scripts[script].append(row)
    main = max(scripts, key=lambda s: len(scripts[s]), default="")
    others = [row for script, some in scripts.items() if script != main for row in some]
    if len(others) > MIXED_SCRIPTS * len(rows):
        shown = ", ".join(f"{s} {len(some):,}" for s, some in sorted(scripts.items(), key=lambda i: -len(i[1])))
        yield Finding(
            "scripts", "note", f"{name}: texts in another script than most ({shown})", len(others),
            "use a classifier and a generator for all these languages (--classifier encoder:MODEL, --language)",
            [_example(row) for row in others],
        )  # fmt: skip


def _mojibake(text: str) -> bool:
    """Return whether the text is UTF-8 that was read as Windows-1252: it can be undone."""
    if text.isascii():
        return False
    try:
        return text.encode("windows-1252").decode("utf-8") != text
    except UnicodeError:
        return False


def _denied(train: Sequence[Row], classifier: str | None, seed: int, reporter: Reporter) -> Iterator[Finding]:
    labels = label_set([row.label for row in train])
    name = classifier or judge_of(len(train))
    reporter.say(f"checking the labels of {len(train):,} rows with {name}: each row by a model trained on the others")
    rows = labelled(train, labels)
    p = out_of_fold(rows, labels, name, seed)
    found = denied(p, rows.y)
    correct = float((p.argmax(axis=1) == rows.y).mean())
    yield Finding(
        "denied-labels", "warning" if len(found) <= 0.3 * len(train) else "note",
        f"labels that a classifier trained on the other rows contradicts (it agrees with {correct:.0%} of all labels), "
        "the most suspicious first", len(found),
        "look at the first ones and correct those that are wrong; hard or rare cases are among the others",
        [
            _example(train[d.row], probability=round(d.probability, 4), instead=labels[d.instead],
                     confidence=round(d.confidence, 4))
            for d in found
        ],
    )  # fmt: skip
