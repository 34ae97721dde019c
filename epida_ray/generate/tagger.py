"""Parts of speech of English words, from the averaged perceptron that ships with the package."""

from __future__ import annotations

import json
import lzma
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any


def tag(tokens: Sequence[str]) -> list[str]:
    """Return the Penn Treebank tag of every token of a text, punctuation included."""
    return [tag for _, tag in _tagger().tag(list(tokens))]


def model() -> dict[str, Any]:
    """Return the weights, the words with one tag only and the tags (built by scripts/build_tagger.py)."""
    packed = (files("epida_ray.generate") / "data" / "tagger.json.xz").read_bytes()
    parts: dict[str, Any] = json.loads(lzma.decompress(packed))
    return parts


@cache
def _tagger() -> Any:
    from nltk.tag.perceptron import PerceptronTagger

    parts = model()
    tagger = PerceptronTagger(load=False)
    tagger.model.weights, tagger.tagdict = parts["weights"], parts["tagdict"]
    tagger.classes = tagger.model.classes = set(parts["classes"])
    return tagger
