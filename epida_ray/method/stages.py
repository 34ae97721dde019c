"""The stages read → generate → score → select, each a function from block to block. `output.py` has the fifth, write.

They know nothing of Ray: `stream/` runs them in actors, everything else calls them directly.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from epida_ray.core.errors import EpidaError
from epida_ray.core.labels import hard, unknown_label
from epida_ray.core.sample import Rejected, Sample, SoftLabel, sample_seeds
from epida_ray.data.retry import one_line
from epida_ray.generate import GENERATORS, propose, protect
from epida_ray.generate.strength import set_strength, strength
from epida_ray.method.schema import ROWS, SOFT_LABELS, Block, column, lists
from epida_ray.select import ScoredBatch, Selector, parse

if TYPE_CHECKING:
    from epida_ray.classify import Classifier

STAGES = ("read", "generate", "score", "select", "write")


@dataclass(frozen=True)
class RoundOptions:
    """What one round depends on, beside its rows and the judge. The names are those of the command line."""

    labels: tuple[str, ...]
    generator: str = "eda"
    generator_args: dict[str, Any] = field(default_factory=dict)
    generator_timeout: float | None = None
    protect: tuple[str, ...] = ()
    m: int = 3
    class_m: tuple[int, ...] = ()
    """How many rewrites to keep of a text of each class; without it, m of all."""
    k: int = 3
    select: str = "rem+cem"
    combine: str = "add"
    alpha: float = 0.5
    normalize: bool = True
    pool_original: bool = True
    curriculum: bool = False
    rounds: int = 1
    """How many rounds there are: the strength of a curriculum grows until the last one."""
    seed: int = 0

    @classmethod
    def of(cls, request: Any, labels: Sequence[str], y: np.ndarray | None = None) -> RoundOptions:
        """Return the options of a request that has them as attributes; `y` are the classes of its rows."""
        names = cls.__dataclass_fields__.keys() - {"labels"}
        options = {name: getattr(request, name) for name in names if hasattr(request, name)}
        if y is not None and getattr(request, "balance", False):
            options["class_m"] = tuple(
                kept_per_class(request.m, request.k, np.bincount(hard(y), minlength=len(labels)))
            )
        return cls(tuple(labels), **options)

    def wanted(self, y: np.ndarray) -> np.ndarray:
        """Return how many rewrites to keep of texts of these classes; -1 is a text without a label."""
        if not self.class_m:
            return np.full(len(y), self.m)
        return np.where(y >= 0, np.array(self.class_m)[y], self.m)

    def make_generator(self) -> Any:
        """Return the generator; raise RequestError when it cannot be made, or cannot do what the options ask of it."""
        made = GENERATORS.create(self.generator, **self.generator_args)
        self.set_strength(made, 1)
        return made

    def set_strength(self, generator: Any, round_: int) -> None:
        """Set how strongly the generator rewrites in this round, if there is a curriculum."""
        if self.curriculum:
            set_strength(self.generator, generator, strength(round_, self.rounds))

    def make_selector(self, perplexity: Any = None) -> Selector:
        return parse(
            self.select, combine=self.combine, alpha=self.alpha, normalize=self.normalize,
            pool_original=self.pool_original, perplexity=perplexity,
        )  # fmt: skip


def kept_per_class(m: int, k: int, rows: np.ndarray) -> list[int]:
    """Return how many rewrites to keep of a text of each class: more of rarer classes, and about m in the mean.

    The number is proportional to 1 / √(rows of the class), from 1 to all K·m.
    """
    more = 1 / np.sqrt(np.maximum(rows, 1))
    scale = m * rows.sum() / (more * rows).sum()
    return [int(n) for n in np.clip(np.rint(scale * more), 1, k * m)]


OF_ALL_ROWS = (EpidaError, OSError, MemoryError)
"""Errors of a classifier that no row is guilty of."""


def needs_classifier(generator: Any) -> bool:
    """Return whether the generator attacks a classifier, which `bind_generator` must give it first."""
    return bool(getattr(generator, "needs_classifier", False))


def gives_soft_labels(generator: Any) -> bool:
    """Return whether candidates of the generator may have soft labels."""
    return bool(getattr(generator, "soft_labels", False))


def bind_generator(generator: Any, classifier: Classifier) -> None:
    generator.bind(classifier.predict_proba, classifier.labels)


def read(rows: pa.Table, labels: Sequence[str]) -> Block:
    """Turn rows as the reader gives them into a block: labels become class numbers, unknown ones a rejection."""
    number = {label: i for i, label in enumerate(labels)}
    names, reasons = rows["label"].to_pylist(), rows["reason"].to_pylist()
    for i, name in enumerate(names):
        if reasons[i] is None and name not in number:
            reasons[i] = unknown_label(name, labels)
    return pa.table(
        {
            "sample_id": rows["sample_id"],
            "text": rows["text"],
            "label": np.array([number.get(name, -1) for name in names], dtype=np.int32),
            "stage": pa.array(["read" if reason else None for reason in reasons], pa.string()),
            "reason": pa.array(reasons, pa.string()),
        }
    )


def read_unlabelled(rows: pa.Table) -> Block:
    """Turn rows of a pool into a block; their class number is -1."""
    reasons = rows["reason"].to_pylist()
    columns = [
        rows["sample_id"], rows["text"], np.full(len(rows), -1, np.int32),
        pa.array(["read" if reason else None for reason in reasons], pa.string()), pa.array(reasons, pa.string()),
    ]  # fmt: skip
    return pa.table(dict(zip(ROWS.names, columns, strict=True)))


def without_candidates(block: Block) -> Block:
    """Add empty lists of candidates: unlabelled texts that are to be scored but not rewritten."""
    offsets = pa.array(np.zeros(len(block) + 1, np.int64))
    block = block.append_column("candidates", lists(offsets, [], pa.large_string()))
    return block.append_column("operations", lists(offsets, [], pa.string()))


def block_of(ids: Sequence[str], texts: Sequence[str], y: np.ndarray) -> Block:
    """Return a block of good rows from memory."""
    none = [None] * len(texts)
    columns = [pa.array(ids, pa.string()), pa.array(texts, pa.string()), pa.array(y.astype(np.int32)), none, none]
    return pa.table(dict(zip(ROWS.names, columns, strict=True)), schema=ROWS)


def generate(block: Block, generator: Any, options: RoundOptions, round_: int) -> Block:
    """Add K·m candidates of every good row, and the operation that made each."""
    ids, texts, classes = (block[name].to_pylist() for name in ("sample_id", "text", "label"))
    stages, reasons = block["stage"].to_pylist(), block["reason"].to_pylist()
    good = [i for i, reason in enumerate(reasons) if reason is None]
    nothing: tuple[tuple[int, int], ...] = ()
    spans = protect([texts[i] for i in good], options.protect) if options.protect else [nothing] * len(good)
    samples = [
        Sample(ids[i], texts[i], options.labels[classes[i]] if classes[i] >= 0 else "", span)
        for i, span in zip(good, spans, strict=True)
    ]
    options.set_strength(generator, round_)
    proposals = propose(
        generator, samples, options.k * options.m, run_seed=options.seed, round_=round_, name=options.generator,
        classes=options.labels if gives_soft_labels(generator) else (), time_limit=options.generator_timeout,
    )  # fmt: skip
    counts = np.zeros(len(ids), dtype=np.int64)
    candidates: list[str] = []
    operations: list[str] = []
    soft: list[SoftLabel | None] = []
    for i, proposal in zip(good, proposals, strict=True):
        if isinstance(proposal, Rejected):
            if classes[i] >= 0:  # an unlabelled text is of use without rewrites
                stages[i], reasons[i] = "generate", proposal.reason
        else:
            counts[i] = len(proposal.texts)
            candidates += proposal.texts
            operations += proposal.operations
            soft += proposal.soft or [None] * len(proposal.texts)
    offsets = pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int64())
    block = with_rejections(block, stages, reasons)
    block = block.append_column("candidates", lists(offsets, candidates, pa.large_string()))
    block = block.append_column("operations", lists(offsets, operations, pa.string()))
    if not gives_soft_labels(generator):
        return block
    owners = np.repeat(np.array(classes, np.int64), counts)
    return _with_soft_labels(block, _soft_rows(soft, owners, options.labels))


def _soft_rows(soft: Sequence[SoftLabel | None], owners: np.ndarray, labels: Sequence[str]) -> np.ndarray:
    """Return soft labels as an array [N, C]; without one, a candidate has the class of its owner, if that has one."""
    number = {label: i for i, label in enumerate(labels)}
    rows = np.zeros((len(soft), len(labels)), np.float32)
    for row, label, owner in zip(rows, soft, owners.tolist(), strict=True):
        if label is not None:
            for name, share in label.items():
                row[number[name]] = share
        elif owner >= 0:
            row[owner] = 1.0
    return rows


def _with_soft_labels(block: Block, rows: np.ndarray) -> Block:
    """Return the block with these soft labels [N, C] of its candidates."""
    flat = pa.array(np.ascontiguousarray(rows, np.float32).reshape(-1))
    each = pa.ListArray.from_arrays(pa.array(np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]), flat)
    values = pa.LargeListArray.from_arrays(column(block, "candidates").offsets, each)
    if SOFT_LABELS.name in block.column_names:
        block = block.drop_columns(SOFT_LABELS.name)
    return block.append_column(SOFT_LABELS, values)


def score(block: Block, classifier: Classifier, name: str = "probabilities") -> Block:
    """Add the judge's probabilities of every original and of its candidates, in one call for the whole block."""
    counts, scored = _scored_rows(block)
    flat = column(block, "candidates").flatten().to_pylist()
    texts: list[str] = []
    position = 0
    for text, count, included in zip(block["text"].to_pylist(), counts.tolist(), scored.tolist(), strict=True):
        if included:
            texts.append(text)
            texts += flat[position : position + count]
            position += count
    judged: Any = classifier.predict_proba(texts) if texts else []
    probabilities = np.ascontiguousarray(judged, dtype=np.float32)
    sizes = np.where(scored, counts + 1, 0) * len(classifier.labels)
    offsets = pa.array(np.concatenate(([0], np.cumsum(sizes))), pa.int64())
    return block.append_column(name, lists(offsets, probabilities.reshape(-1), pa.float32()))


def score_rows(block: Block, classifier: Classifier, name: str = "probabilities") -> Block:
    """Score a block as `score` does, but reject the rows with which the classifier raises an error."""
    try:
        return score(block, classifier, name)
    except OF_ALL_ROWS:
        raise
    except Exception:
        guilty = _guilty_rows(block, classifier)
        if not guilty:
            raise
    for reason in sorted(set(guilty.values())):
        block = reject(block, [row for row, why in guilty.items() if why == reason], "score", reason)
    return score(block, classifier, name)


def _guilty_rows(block: Block, classifier: Classifier) -> dict[int, str]:
    """Return the rows with which a classifier raises an error even alone, found by halving, and what it raises."""
    found: dict[int, str] = {}
    parts = [np.flatnonzero(_scored_rows(block)[1]).tolist()]
    while parts:
        part = parts.pop()
        try:
            score(block.take(part), classifier)
        except OF_ALL_ROWS:
            raise
        except Exception as error:
            if len(part) == 1:
                reason = f"the classifier raised {type(error).__name__}: {one_line(error)}"
                found[part[0]] = reason.encode("utf-8", "backslashreplace").decode()
            elif part:
                parts += [part[len(part) // 2 :], part[: len(part) // 2]]
    return found


def _scored_rows(block: Block) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of candidates of every row, and which rows are scored: those with any, and unlabelled ones."""
    counts = np.diff(column(block, "candidates").offsets.to_numpy())
    unlabelled = (column(block, "label").to_numpy() < 0) & column(block, "reason").is_null().to_numpy(False)
    return counts, (counts > 0) | unlabelled


class _Probabilities:
    """The probabilities of one judge, separately for the originals and the candidates."""

    def __init__(self, block: Block, name: str, classes: int) -> None:
        p = column(block, name).flatten().to_numpy(zero_copy_only=False).reshape(-1, classes)
        counts, scored = _scored_rows(block)
        starts = np.concatenate(([0], np.cumsum(counts[scored] + 1)))[:-1]
        is_original = np.zeros(len(p), dtype=bool)
        is_original[starts] = True
        self.candidates = p[~is_original]
        self.originals = p[starts][counts[scored] > 0]
        """Of the samples that have candidates."""


def original_probabilities(block: Block, name: str, classes: int) -> np.ndarray:
    """Return the judge's probabilities [rows, C] of the texts of a block; NaN where a row was not scored."""
    counts, scored = _scored_rows(block)
    p = column(block, name).flatten().to_numpy(zero_copy_only=False).reshape(-1, classes)
    found = np.full((len(block), classes), np.nan, np.float32)
    found[scored] = p[np.concatenate(([0], np.cumsum(counts[scored] + 1)))[:-1]]
    return found


def select(block: Block, selector: Selector, options: RoundOptions, round_: int) -> Block:
    """Replace the probabilities by the scores of every candidate and the rank of the kept ones."""
    candidates = column(block, "candidates")
    counts = np.diff(candidates.offsets.to_numpy())
    scored = np.flatnonzero(counts)  # samples that have candidates
    batch = _scored_batch(block, candidates, counts, scored, options, round_)
    labels = column(block, "label").to_numpy()
    wanted = options.wanted(labels)
    selection = selector.select(batch, int(wanted.max(initial=1)))
    rank = np.zeros(len(batch.probabilities), np.int32)
    rank[selection.kept] = selection.rank
    owner = np.repeat(scored, counts[scored])
    rank[rank > wanted[owner]] = 0
    kept = np.flatnonzero(rank)
    kept_of = owner[kept]
    wrong = batch.probabilities[kept].argmax(axis=1) != labels[kept_of]
    stages, reasons = block["stage"].to_pylist(), block["reason"].to_pylist()
    for i in np.flatnonzero(np.bincount(kept_of, minlength=len(block)) == 0).tolist():
        if reasons[i] is None and labels[i] >= 0:
            if counts[i]:
                stages[i], reasons[i] = "score", "the classifier's probabilities are not finite"
            else:
                stages[i], reasons[i] = "generate", "no candidate that differs from the text could be made"
    block = with_rejections(block.drop_columns("probabilities"), stages, reasons)
    for name in ("s_div", "s_qua", "s_tot"):
        block = block.append_column(name, lists(candidates.offsets, getattr(selection, name), pa.float64()))
    block = block.append_column("rank", lists(candidates.offsets, rank, pa.int32()))
    block = block.append_column("flips", pa.array(np.bincount(kept_of[wrong], minlength=len(block)).astype(np.int32)))
    if batch.teacher is None:
        return block
    return _with_soft_labels(block.drop_columns("teacher"), batch.teacher)


def _scored_batch(
    block: Block, candidates: Any, counts: np.ndarray, scored: np.ndarray, options: RoundOptions, round_: int
) -> ScoredBatch:
    classes = len(options.labels)
    learner = _Probabilities(block, "probabilities", classes)
    teacher = _Probabilities(block, "teacher", classes) if "teacher" in block.column_names else None
    labels = column(block, "label").to_numpy()[scored]
    # z_t is the prediction of the original where there is no label: the reading of the paper's listing
    unlabelled = len(labels) > 0 and bool((labels < 0).all())
    soft = None
    if SOFT_LABELS.name in block.column_names and not unlabelled:
        flat = column(block, SOFT_LABELS.name).flatten().flatten()
        soft = flat.to_numpy(zero_copy_only=False).reshape(-1, classes)
    where = pa.array(scored)
    ids = column(block, "sample_id").take(where).to_pylist()
    return ScoredBatch(
        probabilities=learner.candidates,
        offsets=np.concatenate(([0], np.cumsum(counts[scored]))),
        originals=learner.originals,
        labels=None if unlabelled else labels,
        targets=(teacher or learner).originals if unlabelled else None,
        candidate_targets=soft,
        teacher=teacher.candidates if teacher else None,
        teacher_originals=teacher.originals if teacher else None,
        texts=LazyTexts(candidates.flatten()),
        original_texts=LazyTexts(column(block, "text").take(where)),
        seeds=np.array(sample_seeds(options.seed, round_, ids, "select", 0), dtype=np.uint64),
    )


class LazyTexts(Sequence[str]):
    """Texts of an Arrow array that become Python strings only for a score that reads them."""

    def __init__(self, array: pa.Array) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index: Any) -> Any:
        return self._array[index].as_py()

    def __iter__(self) -> Iterator[str]:
        return iter(self._array.to_pylist())


def with_rejections(block: Block, stages: Sequence[str | None], reasons: Sequence[str | None]) -> Block:
    """Return the block with these stages and reasons of rejection."""
    for name, values in (("stage", stages), ("reason", reasons)):
        block = block.set_column(block.column_names.index(name), name, pa.array(values, pa.string()))
    return block


def reject(block: Block, rows: Sequence[int], stage: str, reason: str) -> Block:
    """Return the block with these rows rejected, without their candidates and a teacher's view of them."""
    if not rows:
        return block
    bad = set(rows)
    stages, reasons = block["stage"].to_pylist(), block["reason"].to_pylist()
    for i in bad:
        stages[i], reasons[i] = stage, reason
    block = with_rejections(block, stages, reasons)
    for name in {"candidates", "operations", SOFT_LABELS.name, "teacher"} & set(block.column_names):
        values = [[] if i in bad else value for i, value in enumerate(block[name].to_pylist())]
        where = block.column_names.index(name)
        block = block.set_column(where, name, pa.array(values, block.schema.field(name).type))
    return block


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Pause the collector: a shard is a hundred thousand small objects without cycles, and looking costs a tenth."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
