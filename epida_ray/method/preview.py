"""`epida preview`: how a generator rewrites one text, and what a classifier thinks of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from epida_ray.classify import load
from epida_ray.core.errors import RequestError
from epida_ray.data.plan import Columns, plan_inputs
from epida_ray.data.storage import Storage
from epida_ray.generate import with_language
from epida_ray.generate.corpus import bind_samples, needs_corpus
from epida_ray.method import stages
from epida_ray.method.corpus import corpus_samples
from epida_ray.method.prepare import read_labelled, split_known
from epida_ray.method.round import judge
from epida_ray.method.schema import SOFT_LABELS
from epida_ray.method.stages import RoundOptions, block_of

NEEDS_A_RUN = {
    "ppl": "a preview has no training texts to make the language model of ppl from; use another score",
    "divergence": "a preview has no teacher to compare with; use another score than divergence",
}
"""Scores that one text and one classifier do not suffice for."""


class Preview(NamedTuple):
    """Candidates in the order they were made, with scores and picks where there was a classifier."""

    texts: list[str]
    operations: list[str]
    scores: np.ndarray | None = None
    """[n, 3]: s_div, s_qua, s_tot."""
    kept: frozenset[int] = frozenset()
    soft: list[dict[str, float]] | None = None
    """Shares of the classes that each candidate has, from a generator that gives soft labels."""


def preview(
    text: str,
    *,
    generator: str = "eda",
    generator_args: dict[str, Any] | None = None,
    language: str | None = None,
    classifier: str | None = None,
    label: str | None = None,
    corpus: str | None = None,
    m: int = 3,
    k: int = 3,
    select: str = "rem+cem",
    seed: int = 0,
    protected: tuple[str, ...] = (),
    trust_code: tuple[str, ...] = (),
) -> Preview:
    """Return K·m candidates of one text; with a saved classifier and the text's label also their scores and picks."""
    if classifier and (missing := NEEDS_A_RUN.keys() & set(select.split("+"))):
        raise RequestError(f"--select {select}: {NEEDS_A_RUN[min(missing)]}, such as --select rem+cem")
    model = load(Storage(classifier).local_copy(""), trust=trust_code) if classifier else None
    if model is not None and label not in model.labels:
        raise RequestError(f"--label must be one of the model's: {', '.join(model.labels)}")
    arguments = with_language(generator, generator_args or {}, language)
    options = RoundOptions(
        tuple(model.labels) if model else (label or "",),
        generator,
        arguments,
        protect=protected,
        m=m,
        k=k,
        select=select,
        seed=seed,
    )
    made_by = options.make_generator()
    if stages.needs_classifier(made_by):
        if model is None:
            raise RequestError(f"{generator} needs a classifier; name one with --classifier DIR and --label")
        stages.bind_generator(made_by, model)
    if needs_corpus(made_by):
        if corpus is None:
            raise RequestError(
                f"{generator} takes parts of other samples; name a file with text and label: --corpus FILE"
            )
        found = read_labelled(plan_inputs(corpus, Columns()), made_by.corpus_rows)[0]
        if model is None:
            options = replace(options, labels=tuple(dict.fromkeys([label or "", *(row.label for row in found)])))
        bind_samples(made_by, corpus_samples(made_by, split_known(found, options.labels)[0]))
    block = block_of(["preview"], [text], np.array([options.labels.index(label or "")]))
    block = stages.generate(block, made_by, options, 0)
    if reason := block["reason"][0].as_py():
        raise RequestError(f"{generator} made no rewrite of this text: {reason}")
    texts, operations = block["candidates"][0].as_py(), block["operations"][0].as_py()
    soft = None
    if SOFT_LABELS.name in block.column_names:
        rows = block[SOFT_LABELS.name][0].as_py()
        soft = [{name: s for name, s in zip(options.labels, row, strict=True) if s} for row in rows]
    if model is None:
        return Preview(texts, operations, soft=soft)
    block = judge(block, model, options.make_selector(), options, 0)
    scores = np.stack([block[name][0].as_py() for name in ("s_div", "s_qua", "s_tot")], axis=1)
    return Preview(texts, operations, scores, frozenset(np.flatnonzero(block["rank"][0].as_py()).tolist()), soft)
