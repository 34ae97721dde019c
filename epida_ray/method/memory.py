"""EPiDA on texts in memory, in this process and without Ray."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from epida_ray.classify import load
from epida_ray.classify.threads import torch_threads
from epida_ray.core.errors import RequestError, TooManyRejected
from epida_ray.core.progress import Reporter
from epida_ray.data.plan import Plan
from epida_ray.data.reader import ShardReader
from epida_ray.data.storage import Storage
from epida_ray.generate.corpus import bind_samples, needs_corpus
from epida_ray.method import prepare, stages
from epida_ray.method.corpus import plan_corpus
from epida_ray.method.output import Origin, kept_rows, original_rows, rejected_of
from epida_ray.method.requests import AugmentRequest, make_request
from epida_ray.method.round import one_round
from epida_ray.method.stages import RoundOptions
from epida_ray.select import needs_perplexity


def augment_texts(
    texts: Sequence[str],
    labels: Sequence[Any],
    ids: Sequence[Any] | None = None,
    *,
    generator: str = "eda",
    classifier: Any = None,
    m: int = 3,
    k: int = 3,
    seed: int = 0,
    **options: Any,
) -> pa.Table:
    """Return the kept rewrites of these texts; see `epida_ray.augment_texts`."""
    if not len(texts) == len(labels) == len(texts if ids is None else ids):
        raise RequestError("texts, labels and ids must have the same length")
    with tempfile.TemporaryDirectory(prefix="epida-") as folder:
        file = Path(folder) / "texts.parquet"
        names = [str(i) for i in (range(len(texts)) if ids is None else ids)]
        pq.write_table(pa.table({"id": names, "text": list(texts), "label": list(labels)}), file)
        given = {"generator": generator, "m": m, "k": k, "seed": seed} | options
        if isinstance(classifier, str):
            given["classifier"] = classifier
        request = make_request(AugmentRequest, {"input": str(file), "output": folder, "id_column": "id"} | given)
        if request.candidates:
            raise RequestError("augment_texts returns no candidates; leave out --candidates, or use epida_ray.augment")
        plans, _ = prepare.plan_request(request, ("train",))
        judge = classifier if hasattr(classifier, "predict_proba") else _judge(request, plans)
        return _augment(request, plans, judge, Storage(folder))


def _judge(request: AugmentRequest, plans: dict[str, Plan]) -> Any:
    """Load the classifier, or train it on the rows, as `epida augment` does."""
    given = prepare.given_classifier(request)
    if given is not None:
        return load(given, labels=request.labels or None, trust=request.trusted())
    return prepare.train_judge(request, plans, None, Reporter(quiet=True))


def _augment(request: AugmentRequest, plans: dict[str, Plan], judge: Any, storage: Storage) -> pa.Table:
    plan = plans["input"].cut(1 + request.k * request.m, len(judge.labels))
    options = RoundOptions.of(request, judge.labels)
    generator = options.make_generator()
    if stages.needs_classifier(generator):
        stages.bind_generator(generator, judge)
    if needs_corpus(generator):
        bind_samples(generator, plan_corpus(generator, plan, options.labels))
    perplexity = None
    if needs_perplexity(options.select):
        rows, _ = prepare.read_labelled(plans.get("train", plan), request.train_rows)
        prepare.prepare_language_model(storage, [row.text for row in rows])
        perplexity = prepare.load_language_model(storage)
    selector = options.make_selector(perplexity)
    origin = Origin(options.labels, plan.label_type, options.generator, 0, 0, "")
    reader = ShardReader(plan)
    tables, rejected = [], []
    with torch_threads(1):  # as in a scorer: another number can change the last bits of a score
        for shard in plan.shards():
            block = stages.read(reader.read(shard), options.labels)
            block = one_round(block, generator, judge, selector, options, 0)
            if request.with_originals:
                tables.append(original_rows(block, origin))
            tables.append(kept_rows(block, origin))
            rejected += rejected_of(block)
    if rejected:
        first = f"the first, {rejected[0].sample_id}: {rejected[0].reason}"
        were = f"{len(rejected):,} of {plan.rows:,} texts were rejected"
        if "max_rejected" in request.model_fields_set and len(rejected) > request.max_rejected * plan.rows:
            raise TooManyRejected(f"{were}, more than --max-rejected {request.max_rejected:g} allows; {first}")
        warnings.warn(f"{were}; {first}", stacklevel=4)
    return pa.concat_tables(tables)
