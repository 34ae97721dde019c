"""The card of a saved model, README.md beside its files: what it learned from, how good it is, how it was made."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from epida_ray.classify.model import CARD, saved_card
from epida_ray.core.metrics import scores
from epida_ray.data.storage import Storage
from epida_ray.runs.manifest import Manifest

RESAMPLES = 1000
MOST_LABELS = 100
LICENCES = {
    "GloVe 6B word vectors": "GloVe 6B word vectors: Public Domain Dedication and License 1.0 (Stanford)",
    "MiniLM-L6": "all-MiniLM-L6-v2: Apache License 2.0 (sentence-transformers)",
}
"""Of parts that come with epida-ray, by their names in the classifier's description."""


def interval(confusion: list[list[int]], metric: str) -> tuple[float, float]:
    """Return the 95% bootstrap interval of accuracy or macro_f1, from rows drawn again out of a confusion matrix."""
    table = np.array(confusion)
    classes, total = len(table), int(table.sum())
    names = [str(i) for i in range(classes)]
    truth, predicted = (axis.ravel() for axis in np.indices(table.shape))
    drawn = np.random.default_rng(0).multinomial(total, table.ravel() / total, RESAMPLES)
    found = [scores(names, np.repeat(truth, n), np.repeat(predicted, n))[metric] for n in drawn]
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)


def write_card(storage: Storage, folder: str, manifest: Manifest, given: Path | None = None) -> None:
    """Write the card of a model, or that of the saved model that it is a copy of, if there is one."""
    if given is not None and (own := saved_card(given)):
        storage.write(f"{folder}/{CARD}", own.encode("utf-8", "replace"))
        return
    storage.write(f"{folder}/{CARD}", card(manifest).encode("utf-8", "replace"))


def card(manifest: Manifest) -> str:
    """Return the card as Markdown, with the header that model hubs read."""
    labels = [_code(label) for label in manifest.labels[:MOST_LABELS]]
    more = f" and {len(manifest.labels) - MOST_LABELS:,} more" if len(manifest.labels) > MOST_LABELS else ""
    described = manifest.classifier or "a classifier"
    lines = [
        "---",
        "library_name: epida-ray",
        "pipeline_tag: text-classification",
        "---",
        "",
        "# Model card",
        "",
        f"{described[:1].upper()}{described[1:]} for {len(manifest.labels)} classes: {', '.join(labels)}{more}.",
        "",
        "## Learned from",
        "",
        *_learned_from(manifest),
        "",
        "## Scores",
        "",
        *_scores(manifest),
        "",
        "## Limits",
        "",
        "The scores hold for texts like those it was tested on. A text that fits none of the classes still gets one.",
        "",
        "## Made with",
        "",
        *(["```sh", shlex.join(manifest.command), "```", ""] if manifest.command else []),
        ", ".join(f"{name} {version}" for name, version in manifest.versions.items()) + ".",
        "",
        "## Licences of its parts",
        "",
        *(f"- {text}" for text in _parts(described)),
        "- the code that runs it: epida-ray, MIT",
        "- the texts it learned from: yours to state",
    ]
    return "\n".join(lines) + "\n"


def _parts(described: str) -> list[str]:
    """Return the licences of what the classifier was built on, as far as they are known."""
    names = dict.fromkeys(re.findall(r"(?:sentence encoder|transformer|over) (.+?) \(", described))
    return [
        LICENCES.get(name, f"{_code(name)}: see its own licence") for name in names if not name.startswith("hashed")
    ]


def _learned_from(manifest: Manifest) -> list[str]:
    request, where = manifest.request, manifest.execution
    given = where.get("classifier")
    saved = given if given != request.get("classifier") else None  # a saved model has a digest there
    if manifest.kind == "augment" and saved:
        return [f"- a copy of the saved model {_code(str(saved))}, which says nothing of what it learned from"]
    source = _code(str(where.get("input") or "tables in memory"))
    if manifest.kind == "augment":  # the judge learned, and not from all rows that were rewritten
        source = _code(str(where["train"])) if where.get("train") else source
        source = f"up to {request['train_rows']:,} rows of {source}" if "train_rows" in request else source
    lines = [f"- texts: {source}"]
    if saved:
        lines.insert(0, f"- trained further from the saved model {_code(str(saved))}")
    if manifest.prepared:
        lines.append(
            f"- {manifest.prepared.train:,} rows to learn from and {manifest.prepared.dev:,} to choose the best round"
        )
    if manifest.kind == "train":
        generator = request.get("generator")
        lines.append(
            "- no rewrites" if generator == "none" else f"- rewrites: {generator}, chosen by {request.get('select')}"
        )
        for name in ("unlabelled", "teacher"):
            if where.get(name):
                lines.append(f"- {name}: {_code(str(where[name]))}")
    if "seed" in request:
        lines.append(f"- seed {request['seed']}")
    return lines


def _scores(manifest: Manifest) -> list[str]:
    lines, test = [], manifest.test
    if test is None:
        lines.append("It was not tested: `epida evaluate MODEL_DIR FILE` does that.")
    else:
        lines += [f"On {test['rows']:,} rows of {_code(str(manifest.execution.get('eval') or 'a test set'))}:", ""]
        for name, metric in (("macro-F1", "macro_f1"), ("accuracy", "accuracy")):
            within = ""
            if confusion := test.get("confusion"):
                low, high = interval(confusion, metric)
                within = f", 95% confidence interval {low:.3f} to {high:.3f}"
            lines.append(f"- {name} {test[metric]:.4f}{within}")
        for spec, noisy in test.get("noise", {}).items():
            lines.append(
                f"- with noise {_code(spec)} (`--noise` of `epida evaluate`): macro-F1 {noisy['macro_f1']:.4f}, "
                f"accuracy {noisy['accuracy']:.4f}"
            )
        lines += ["", "| class | precision | recall | F1 | rows |", "|---|---|---|---|---|"]
        for label, one in list(test["per_class"].items())[:MOST_LABELS]:
            values = " | ".join(f"{one[name]:.3f}" for name in ("precision", "recall", "f1"))
            lines.append(f"| {_code(label)} | {values} | {one['support']:,} |")
    if best := manifest.best:
        lines += ["", f"On dev, where round {best.round} was chosen: macro-F1 {best.macro_f1:.4f}."]
    return lines


def _code(value: Any) -> str:
    """Return a value of the data as Markdown code, whatever characters it has."""
    text = json.dumps(str(value)[:200], ensure_ascii=False)[1:-1].replace("|", "\\|")
    fence = "`" * (1 + max((len(run) for run in text.replace("`", " ` ").split() if set(run) == {"`"}), default=0))
    return f"{fence} {text} {fence}" if "`" in text else f"`{text}`"
