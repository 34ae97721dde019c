"""Before the first round: rows, labels, the dev split, the first classifier, the language model of `ppl`."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from epida_ray.classify import CLASSIFIERS, create
from epida_ray.classify import load as load_classifier
from epida_ray.classify.aligned import aligned
from epida_ray.classify.saving import has_model
from epida_ray.classify.training import TrainingOptions
from epida_ray.core.errors import RequestError, TooManyRejected
from epida_ray.core.labels import label_numbers, label_set, unknown_label
from epida_ray.core.progress import Reporter
from epida_ray.data.arrow import open_own
from epida_ray.data.plan import EMPTY, Columns, Plan, plan_inputs
from epida_ray.data.reader import ShardReader
from epida_ray.data.storage import Storage
from epida_ray.generate import identifying, named
from epida_ray.method.checks import (
    check_classes,
    check_combinations,
    check_judge,
    long_texts,
    multi_label_hint,
    say_of_unread_labels,
    warn_of_long_texts,
    warn_of_other_script,
    warn_of_overlap,
)
from epida_ray.method.contents import contents, versions_of
from epida_ray.method.evaluate import no_model
from epida_ray.method.output import RejectedRow, rejected_table
from epida_ray.method.pool import hashes, pool_plan, pool_shards, text_hash
from epida_ray.method.requests import (
    NO_GENERATOR,
    AugmentRequest,
    MethodRequest,
    RunRequest,
)
from epida_ray.method.trainer import DEV_SHARE, LabelledRows, fit
from epida_ray.runs import layout
from epida_ray.runs.run import directory_digest

NO_ROWS = "no row has both a text and a label; see --text-column and --label-column"
FEW_DEV_ROWS = 30
FEW_DEV_ROWS_WARNING = "so few rows can hardly tell rounds apart, and their score is uncertain"
FEW_POOL_ROWS = 100
SCRIPT_ROWS = 500
"""Texts of TRAIN and of the pool whose script is looked at."""
SAMPLED_SHARDS = 256
"""How many shards of a very large input the classifier's training rows come from."""


class Row(NamedTuple):
    id: str
    text: str
    label: str


def columns_of(request: MethodRequest) -> Columns:
    return Columns(text=request.text_column, label=request.label_column, id=request.id_column)


def plan_request(
    request: MethodRequest, files: Sequence[str], reporter: Reporter | None = None
) -> tuple[dict[str, Plan], dict[str, Any]]:
    """Plan the input and the other files of a request; return the plans and the request's identity.

    The identity has every option that changes results, and a digest of each file in place of its name.
    """
    from epida_ray.runs.run import digest

    columns = columns_of(request)
    without_ids = columns.model_copy(update={"id": None})
    plans = {}
    for name in ("input", *files):
        if (location := getattr(request, name)) is not None:
            used = columns if name == "input" else without_ids
            if name == "unlabelled":
                used = without_ids.model_copy(update={"label": None})
            plans[name] = plan_inputs(location, used, request.encoding, request.output, request.delimiter)
            for line in plans[name].remarks():
                (reporter or Reporter(quiet=True)).say(line)
    identity = request.result_options() | {name: digest(plan.identity()) for name, plan in plans.items()}
    if request.generator != NO_GENERATOR:
        identity["generator_args"] = identifying(request.generator, request.generator_args)
    if (given := given_classifier(request)) is not None:
        identity["classifier"] = directory_digest(given)
    if (teacher := getattr(request, "teacher", None)) is not None:
        identity["teacher"] = directory_digest(saved_model("--teacher", teacher))
    names = [*named(request.generator, request.generator_args), *([request.classifier] if given is None else [])]
    others = {"vda": getattr(request, "vda", None)}
    trusted = [name for name in request.trust_code if ":" in name]
    identity["contents"] = contents(names + trusted, identity["generator_args"] | request.classifier_args | others)
    identity["versions"] = versions_of(names)
    return plans, identity


def execution_options(request: RunRequest, identity: dict[str, Any]) -> dict[str, Any]:
    """Return what else the manifest keeps of a request: where its files are, and where and how fast it runs."""
    files = ("input", "train", "dev", "eval", "unlabelled", "teacher", "classifier")
    return {k: v for k, v in request.model_dump(mode="json").items() if k not in identity or k in files}


def check_files(plan: Plan, max_rejected: float) -> None:
    """Fail when too many files cannot be read. Empty files do not count: they had no rows."""
    lost = [f for f in plan.files if f.error not in ("", EMPTY)]
    if len(lost) > max_rejected * len(plan.files):
        raise TooManyRejected(
            f"{len(lost):,} of {len(plan.files):,} files cannot be read, more than --max-rejected {max_rejected:g} "
            f"allows; {lost[0].path}: {lost[0].error}. Fix the input, or continue with a larger --max-rejected"
        )


def unreadable_files(plan: Plan) -> list[RejectedRow]:
    return [RejectedRow(f.path, "read", f.error, "") for f in plan.files if f.error]


def given_classifier(request: MethodRequest) -> Path | None:
    """Return the directory that --classifier names, or None when it names a classifier to be trained."""
    name = request.classifier
    names = {row.name for row in CLASSIFIERS.listing()}
    family = ":" in name and "://" not in name
    if name in names or (family and not Path(name).is_dir()):
        return None
    where = Storage(name)
    if not has_model(where):
        if has_model(where, layout.MODEL):
            raise RequestError(f"--classifier: {no_model(name, where)}")
        known = ", ".join(sorted(names))
        raise RequestError(f"--classifier {name} is neither a directory with a saved model nor one of {known}")
    return where.local_copy("")


def saved_model(option: str, location: str) -> Path:
    """Return the directory of a saved model on this machine."""
    where = Storage(location)
    if not has_model(where):
        raise RequestError(f"{option}: {no_model(location, where)}")
    return where.local_copy("")


def load_teacher(request: Any, labels: Sequence[str]) -> Any:
    """Load the model of --teacher. Its classes must be those of the run, in any order; it answers in the run's."""
    teacher = load_classifier(saved_model("--teacher", request.teacher), trust=request.trusted())
    lacking = [label for label in labels if label not in teacher.labels]
    more = [label for label in teacher.labels if label not in labels]
    if lacking or more:
        problem = f"it lacks {', '.join(lacking)}" if lacking else f"TRAIN lacks {', '.join(more)}"
        raise RequestError(
            f"--teacher {request.teacher} has the classes {', '.join(teacher.labels)}, not those of TRAIN: "
            f"{', '.join(labels)}; {problem}"
        )
    return aligned(teacher, labels)


def check_pool(request: Any, plans: dict[str, Plan], found: Prepared, reporter: Reporter) -> None:
    """Say what is unusual about the unlabelled texts; raise RequestError when none can be used."""
    plan = pool_plan(plans["unlabelled"], request, len(found.labels))
    labelled_ones = hashes(row.text for some in (found.train, found.dev) for row in some)
    tested = hashes(row.text for row in read_labelled(plans["eval"])[0]) if "eval" in plans else frozenset()
    reader = ShardReader(plan)
    say_of_unread_labels(plans["unlabelled"], request.label_column, reporter)
    good = 0
    seen: list[str] = []
    ours = theirs = 0
    used = {s for r in range(1, request.rounds + 1) for s in pool_shards(plan, r, request.pool_rows, request.seed)}
    for shard in sorted(used):
        table = reader.read(shard)
        for text, reason in zip(table["text"].to_pylist(), table["reason"].to_pylist(), strict=True):
            if reason is not None:
                continue
            if (one := text_hash(text)) in labelled_ones:
                ours += 1
                continue
            good += 1
            theirs += one in tested
            if good <= SCRIPT_ROWS:
                seen.append(text)
    if not good:
        but = f" but {ours:,} of the labelled texts" if ours else ""
        raise RequestError(f"--unlabelled: {request.unlabelled} has no text that can be used{but}")
    warn_of_other_script([row.text for row in found.train[:SCRIPT_ROWS]], seen, reporter)
    if ours:
        where = "TRAIN or --dev" if "dev" in plans else "TRAIN"
        reporter.warn(f"{ours:,} texts of --unlabelled are in {where} too and are left out: their labels are known")
    if theirs:
        reporter.warn(
            f"{theirs:,} texts of --unlabelled are in --eval too: the model learns from them without their labels, "
            "so its score may be too high; remove them for a fair figure"
        )
    if good < FEW_POOL_ROWS:
        texts = "text" if good == 1 else "texts"
        reporter.warn(f"--unlabelled has only {good} {texts}; a gain is likely from a few hundred on")


def read_labelled(plan: Plan, limit: int | None = None) -> tuple[list[Row], list[RejectedRow]]:
    """Return the good rows, and the rows and files that cannot be used.

    With a limit, at most `limit` rows: those with the smallest hash of their id.
    """
    shards = list(plan.shards())
    if limit is not None and len(shards) > SAMPLED_SHARDS:
        shards = sorted(sorted(shards, key=lambda s: _hash(plan.shard_name(s)))[:SAMPLED_SHARDS])
    reader = ShardReader(plan)
    rows: list[Row] = []
    rejected = unreadable_files(plan)
    for shard in shards:
        table = reader.read(shard)
        columns = (table[n].to_pylist() for n in ("sample_id", "text", "label", "reason"))
        for sample_id, text, label, reason in zip(*columns, strict=True):
            if reason is None:
                rows.append(Row(sample_id, text, label))
            else:
                rejected.append(RejectedRow(sample_id, "read", reason, text or ""))
        if limit is not None and len(rows) > 4 * limit:
            rows = sampled(rows, limit)
    return (rows if limit is None else sampled(rows, limit)), rejected


def sampled(rows: Sequence[Row], limit: int) -> list[Row]:
    """Return all rows, or of more than `limit` those with the smallest hash of their id."""
    if len(rows) <= limit:
        return list(rows)
    hashes = np.array([_hash(row.id) for row in rows], dtype=np.uint64)
    return [rows[i] for i in np.sort(np.argsort(hashes, kind="stable")[:limit]).tolist()]


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def split_known(rows: list[Row], labels: Sequence[str]) -> tuple[list[Row], list[RejectedRow]]:
    """Return the rows with one of the labels, and the others with the reason."""
    known = set(labels)
    bad = [RejectedRow(r.id, "read", unknown_label(r.label, labels), r.text) for r in rows if r.label not in known]
    return [row for row in rows if row.label in known], bad


def labelled(rows: Sequence[Row], labels: Sequence[str]) -> LabelledRows:
    return LabelledRows([r.id for r in rows], [r.text for r in rows], label_numbers(labels, [r.label for r in rows]))


def write_rejected(storage: Storage, name: str, rows: list[RejectedRow], reporter: Reporter) -> None:
    """Write these rows to rejected/NAME.parquet, if there are any, and say so."""
    if rows:
        file = layout.rejected_file(name)
        storage.write_table(file, rejected_table(rows))
        reporter.warn(f"{len(rows):,} rows of {name} are rejected, see {file}; the first: {rows[0].reason}")


def _check_classes(
    labels: Sequence[str], rows: list[Row], column: str, rejected: list[RejectedRow], named: bool
) -> None:
    """Refuse what `check_classes` refuses, and say first what other rows were left out for: that may be the cause."""
    try:
        check_classes(labels, [row.label for row in rows], column, named)
        if not named:
            check_combinations(labels, column)
    except RequestError as error:
        if not rejected:
            raise
        lost = f"{len(rejected):,} of {len(rows) + len(rejected):,} rows cannot be used"
        raise RequestError(
            f"{lost}, such as {rejected[0].sample_id}: {rejected[0].reason}; without them {error}"
        ) from error


def train_judge(request: AugmentRequest, plans: dict[str, Plan], storage: Storage | None, reporter: Reporter) -> Any:
    """Train the judge of `augment` on the labelled rows of --train, else of INPUT: the paper's pre-training.

    With a `storage`, rows of the file of --train that cannot be used are written to its rejected/.
    """
    rows, rejected = read_labelled(plans.get("train", plans["input"]), request.train_rows)
    labels = request.labels or label_set([row.label for row in rows])
    if rows and (request.labels or "train" in plans):
        check_judge(labels, plans["input"], request.max_rejected, trained=False)
    known, unknown = split_known(rows, labels)
    if storage is not None and request.train is not None:  # rows of INPUT are rejected with their shards
        write_rejected(storage, "train", rejected + unknown, reporter)
    if not rows:
        raise RequestError(NO_ROWS)
    _check_classes(labels, rows, request.label_column, rejected, bool(request.labels))
    if not known:
        raise RequestError(f"no row has one of --labels {','.join(labels)}")
    classifier = create(request.classifier, labels, seed=request.seed, **request.classifier_options())
    reporter.say(f"training {request.classifier} on {len(known):,} rows, {len(labels)} classes")
    learn, dev = labelled(known, labels).split(DEV_SHARE, request.seed)
    training = TrainingOptions(seed=request.seed)
    progress = fit(classifier, learn.texts, learn.y, (dev.texts, dev.y), training=training)
    assert progress.best is not None
    few = f"; {FEW_DEV_ROWS_WARNING}" if len(dev) < FEW_DEV_ROWS else ""
    reporter.say(f"best round {progress.best_round}: macro-F1 {progress.best.macro_f1:.3f} on {len(dev)} dev rows{few}")
    return classifier


def save_classifier(classifier: Any, storage: Storage, folder: str) -> str:
    """Save a classifier into the run's directory and return the digest of its files."""
    with tempfile.TemporaryDirectory(prefix="epida-") as directory:
        classifier.save(directory)
        storage.upload(Path(directory), folder)
        return directory_digest(Path(directory))


def prepare_language_model(storage: Storage, texts: Sequence[str]) -> None:
    """Estimate the n-gram model of the training texts and put it into the run's directory, once."""
    from epida_ray.select.perplexity import LanguageModel

    if not storage.exists(f"{layout.LANGUAGE_MODEL}/{layout.ARPA}"):
        with tempfile.TemporaryDirectory(prefix="epida-") as folder:
            LanguageModel.estimate(texts, keep=Path(folder) / layout.ARPA)
            storage.upload(Path(folder), layout.LANGUAGE_MODEL)


def load_language_model(storage: Storage) -> Any:
    from epida_ray.select.perplexity import LanguageModel

    with storage.local(layout.LANGUAGE_MODEL) as folder:
        return LanguageModel(folder / layout.ARPA)


class Prepared(NamedTuple):
    """What training starts from."""

    train: list[Row]
    dev: list[Row]
    labels: tuple[str, ...]
    classifier: Any
    rejected: int


def prepare_training(
    request: Any, plans: dict[str, Plan], given: Path | None, storage: Storage, reporter: Reporter
) -> Prepared:
    """Read and check all rows of a training request, split off dev and make the untrained classifier."""
    rows, rejected = read_labelled(plans["input"])
    total = len(rows) + len(rejected)
    trust = request.trusted()
    classifier = load_classifier(given, labels=request.labels or None, trust=trust) if given else None
    labels = request.labels or (classifier.labels if classifier else label_set([r.label for r in rows]))
    rows, unknown = split_known(rows, labels)
    rejected += unknown
    if total and not rows:
        raise RequestError(f"no row of TRAIN can be used; the first: {rejected[0].reason}")
    write_rejected(storage, "input", rejected, reporter)
    if len(rejected) > request.max_rejected * total:
        raise TooManyRejected(
            f"{len(rejected):,} of {total:,} rows of TRAIN were rejected, more than --max-rejected "
            f"{request.max_rejected:g} allows; the first: {rejected[0].reason}. They are in "
            f"{storage.location}/rejected; fix TRAIN, or continue with a larger --max-rejected"
        )
    named = bool(request.labels or given)
    _check_classes(labels, rows, request.label_column, rejected, named)
    if not named and (hint := multi_label_hint(labels)):
        reporter.warn(hint)
    if "eval" in plans:
        test = _usable("eval", plans["eval"], labels, storage, reporter)
        warn_of_overlap("eval", (row.text for row in test), (row.text for row in rows), reporter)
    if "dev" in plans:
        dev = _usable("dev", plans["dev"], labels, storage, reporter)
        warn_of_overlap("dev", (row.text for row in dev), (row.text for row in rows), reporter)
        if "eval" in plans:
            warn_of_overlap("eval", (row.text for row in test), (row.text for row in dev), reporter, "--dev")
    else:
        data = labelled(rows, labels)
        held_out = set(data.split(request.dev_share, request.seed)[1].ids)
        dev = [r for r in rows if r.id in held_out]
        rows = [r for r in rows if r.id not in held_out]
    if not rows or not dev:
        raise RequestError(
            "there are too few labelled rows to train on and to choose a model with; add rows with other texts or a "
            "file for --dev"
        )
    if absent := sorted(set(labels) - {r.label for r in dev}):
        reporter.warn(f"no dev row has the label {', '.join(absent)}: the dev score does not measure it")
    if len(dev) < FEW_DEV_ROWS:
        reporter.warn(f"there are {len(dev)} dev rows: {FEW_DEV_ROWS_WARNING}; give more with --dev")
    if classifier is None:
        classifier = create(request.classifier, labels, seed=request.seed, **request.classifier_options())
    long = long_texts(classifier, (row.text for some in (rows, dev) for row in some))
    warn_of_long_texts(classifier, long, reporter, trained=False)
    return Prepared(rows, dev, tuple(labels), classifier, len(rejected))


def _usable(name: str, plan: Plan, labels: Sequence[str], storage: Storage, reporter: Reporter) -> list[Row]:
    rows, rejected = read_labelled(plan)
    good, unknown = split_known(rows, labels)
    write_rejected(storage, name, rejected + unknown, reporter)
    if not good:
        raise RequestError(f"--{name}: no row can be used; the first: {(rejected + unknown)[0].reason}")
    return good


def write_prepared(storage: Storage, name: str, rows: Sequence[Row], soft: np.ndarray | None = None) -> None:
    """Write rows, and with `soft` [rows, C] soft labels that training learns in place of the labels."""
    ids, texts, names = zip(*rows, strict=True)
    table = pa.table({"sample_id": ids, "text": texts, "label": names})
    if soft is not None:
        table = table.append_column("soft_label", pa.array(list(soft), pa.list_(pa.float32())))
    storage.write_table(layout.prepared_file(name), table)


def read_prepared(storage: Storage, name: str, labels: Sequence[str], soft: bool = True) -> LabelledRows:
    """Read the rows that `write_prepared` wrote, with their soft labels if there are any and they are wanted."""
    file = layout.prepared_file(name)
    table = open_own(pa.BufferReader(storage.read(file)), file).read()
    columns = (table[n].to_pylist() for n in ("sample_id", "text", "label"))
    rows = labelled([Row(*row) for row in zip(*columns, strict=True)], labels)
    if soft and "soft_label" in table.column_names:
        return LabelledRows(rows.ids, rows.texts, np.array(table["soft_label"].to_pylist(), np.float32))
    return rows
