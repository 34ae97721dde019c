"""The other samples, for generators that take parts of them: an index in the run's directory, built once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from epida_ray.core.sample import Sample
from epida_ray.data.plan import Plan
from epida_ray.data.storage import Storage
from epida_ray.generate.corpus import from_file, needs_corpus, to_bytes
from epida_ray.method import prepare
from epida_ray.method.prepare import Row
from epida_ray.runs import layout


def plan_corpus(generator: Any, plan: Plan, labels: Sequence[str]) -> list[Sample]:
    """Return the samples of an input that the generator may use, if it uses any."""
    if not needs_corpus(generator):
        return []
    rows, _ = prepare.read_labelled(plan, generator.corpus_rows)
    return corpus_samples(generator, prepare.split_known(rows, labels)[0])


def corpus_samples(generator: Any, rows: Sequence[Row]) -> list[Sample]:
    """Return the rows that the generator may use: of many, those with the smallest hash of their id."""
    return [Sample(row.id, row.text, row.label) for row in prepare.sampled(rows, generator.corpus_rows)]


def write_corpus(storage: Storage, generator: Any, samples: Sequence[Sample]) -> None:
    """Write the generator's index of these samples into the run's directory, once."""
    if needs_corpus(generator) and not storage.exists(layout.CORPUS_FILE):
        storage.write(layout.CORPUS_FILE, to_bytes(generator.index(samples)))


def bind_corpus(storage: Storage, generator: Any) -> None:
    """Give the generator the index of the run, if it needs one; on a disk the file is memory-mapped."""
    if needs_corpus(generator):
        with storage.local(layout.CORPUS) as folder:
            generator.bind_corpus(from_file(folder / layout.CORPUS_FILE.rpartition("/")[2]))
