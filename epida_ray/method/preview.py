"""`epida preview`: what a generator does to a sentence, and what a classifier thinks of it. No Ray."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from epida_ray.classify import load
from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Rejected, Sample
from epida_ray.data.storage import Storage
from epida_ray.generate import GENERATORS, propose, protect, with_language
from epida_ray.select import ScoredBatch, parse


class Preview(NamedTuple):
    """Candidates in the order they were made; scores and picks where there was a classifier."""

    texts: list[str]
    operations: list[str]
    scores: np.ndarray | None = None
    """[n, 3]: s_div, s_qua, s_tot."""
    kept: frozenset[int] = frozenset()


def preview(
    text: str,
    *,
    generator: str = "eda",
    generator_args: dict[str, Any] | None = None,
    language: str | None = None,
    classifier: str | None = None,
    label: str | None = None,
    m: int = 3,
    k: int = 3,
    select: str = "rem+cem",
    seed: int = 0,
    protected: tuple[str, ...] = (),
    trust_code: tuple[str, ...] = (),
) -> Preview:
    """K·m candidates of one text; with a saved classifier and the text's label also their scores and the best m."""
    made_by = GENERATORS.create(generator, **with_language(generator, generator_args or {}, language))
    model = load(Storage(classifier).local_copy(""), trust=trust_code) if classifier else None
    if model is not None and label not in model.labels:
        raise RequestError(f"--label must be one of the model's: {', '.join(model.labels)}")
    if getattr(made_by, "needs_classifier", False):
        if model is None:
            raise RequestError(f"{generator} attacks a classifier; name one with --classifier DIR and --label")
        made_by.bind(model.predict_proba, model.labels)
    (spans,) = protect([text], protected) if protected else ((),)
    sample = Sample("preview", text, label or "", spans)
    (made,) = propose(made_by, [sample], k * m, run_seed=seed, round_=0, name=generator)
    if isinstance(made, Rejected):
        raise RequestError(f"{generator} makes nothing of this text: {made.reason}")
    if model is None:
        return Preview(made.texts, made.operations)
    p = model.predict_proba([text, *made.texts])
    batch = ScoredBatch(
        p[1:], np.array([0, len(made.texts)]), p[:1], np.array([model.labels.index(label)]),
        seeds=np.array([seed], np.uint64),
    )  # fmt: skip
    chosen = parse(select).select(batch, m)
    scores = np.stack([chosen.s_div, chosen.s_qua, chosen.s_tot], axis=1)
    return Preview(made.texts, made.operations, scores, frozenset(chosen.kept.tolist()))
