"""`epida augment`: one pass over a corpus of any size, resumable, with the same bytes every time."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import ray

from epida_ray.classify import CLASSIFIERS, create
from epida_ray.classify import load as load_classifier
from epida_ray.classify.training import TrainingOptions, fit
from epida_ray.core.errors import EpidaError, RequestError, RunError
from epida_ray.core.progress import Reporter
from epida_ray.data.inputs import EMPTY, Columns, Plan, ShardReader, plan_inputs
from epida_ray.data.storage import Storage, below
from epida_ray.generate import GENERATORS
from epida_ray.method.evaluate import no_model
from epida_ray.method.requests import AugmentConfig, MethodConfig
from epida_ray.runs.run import Run, digest, directory_digest
from epida_ray.select import needs_perplexity
from epida_ray.stream.cluster import connected, size_pools
from epida_ray.stream.metrics import RunMetrics
from epida_ray.stream.pipeline import STAGES, Job, prepare_language_model, run_shards, write_rejected

SAVE_EVERY = 10.0
"""Seconds between two saves of the manifest while shards are being finished."""
NO_ROWS = "no row has both a text and a label; see --text-column and --label-column"
FEW = 30
FEW_DEV_ROWS = "so few tell epochs and rounds apart poorly, and their score says little"
Row = tuple[str, str, str]
"""Sample id, text, label."""
Aside = tuple[str, str, str, str]
"""Sample id, stage, reason, text of a row that was set aside."""


@dataclass(frozen=True)
class AugmentResult:
    """Where the results are, and the manifest's account of them."""

    output: str
    manifest: dict[str, Any] = field(repr=False)

    @property
    def augmented(self) -> str:
        return below(self.output, "augmented")

    @property
    def kept(self) -> int:
        return self.manifest["done"]["kept"]


def augment(config: AugmentConfig, reporter: Reporter | None = None) -> AugmentResult:
    """Run, or resume, what `config` asks for."""
    reporter = reporter or Reporter(quiet=True)
    GENERATORS.create(config.generator, **config.generator_args)
    plan = plan_inputs(config.input, columns_of(config), config.encoding)
    given = given_classifier(config)
    asked = config.result_options() | {"input": digest(plan.identity())}
    if given is not None:
        asked["classifier"] = directory_digest(given)
    if config.train is not None:
        train_plan = plan_inputs(config.train, columns_of(config), config.encoding)
        asked["train"] = digest(train_plan.identity())
    else:
        train_plan = plan
    run = Run(config.output)
    execution = {k: v for k, v in config.model_dump(mode="json").items() if k not in asked or k in ("input", "train")}
    if run.open("augment", asked, execution):
        reporter.say(f"{config.output} is finished already: {run.manifest['done']['kept']:,} rows kept")
        return AugmentResult(config.output, run.manifest)
    with interruptible(run):
        check_files(plan, config.max_rejected)
        labels, model_digest = _prepare_classifier(config, given, train_plan, run, reporter)
        fingerprint = digest([asked, model_digest])
        if needs_perplexity(config.select):
            rows, _ = read_labelled(train_plan, config.train_rows)
            if not rows:
                raise RequestError(NO_ROWS)
            prepare_language_model(run.storage, [text for _, text, _ in rows])
        left = run.start(plan, fingerprint)
        if broken := [f for f in plan.files if f.error]:
            reporter.warn(
                f"{len(broken)} of {len(plan.files)} files cannot be read, see rejected/; "
                f"{broken[0].path}: {broken[0].error}"
            )
            aside = [(f.path, "read", f.error, "") for f in broken]
            write_rejected(run.storage, f"rejected/unreadable-files-{fingerprint[:12]}.parquet", aside)
        if left:
            _work(config, plan, run, labels, left, reporter)
        run.check_budget(config.max_rejected)
        run.finish()
    return AugmentResult(config.output, run.manifest)


def check_files(plan: Plan, max_rejected: float) -> None:
    """Too many unreadable files are a failure, as too many rejected rows are; empty ones had no rows to lose."""
    lost = [f for f in plan.files if f.error not in ("", EMPTY)]
    if len(lost) > max_rejected * len(plan.files):
        raise RunError(
            f"{len(lost):,} of {len(plan.files):,} files cannot be read, more than --max-rejected {max_rejected:g} "
            f"allows; {lost[0].path}: {lost[0].error}. Mend the input, or go on with a larger --max-rejected"
        )


def columns_of(config: MethodConfig) -> Columns:
    return Columns(text=config.text_column, label=config.label_column, id=config.id_column)


def _work(
    config: AugmentConfig, plan: Plan, run: Run, labels: tuple[str, ...], left: list[Any], reporter: Reporter
) -> None:
    if run.counts.shards:
        reporter.say(f"resuming: {run.counts.shards:,} of {run.counts.shards + len(left):,} shards are done")
    options = {n: getattr(config, n) for n in Job.__dataclass_fields__.keys() & AugmentConfig.model_fields.keys()}
    job = Job(
        **options
        | {
            "plan": plan, "storage": run.storage, "fingerprint": run.fingerprint, "labels": labels,
            "trust": config.trusted(),
        }
    )  # fmt: skip
    saved = time.monotonic()
    with (
        connected(config.address, reporter),
        interruptible(run, reporter),
        reporter.track("augment", plan.rows, run.counts.rows) as tracker,
    ):
        pools = size_pools(config.generators, config.scorers, config.generator_gpus)
        run.save(pools=pools._asdict(), driver=ray.util.get_node_ip_address())
        metrics = RunMetrics(run.run_id)
        try:
            for counts in run_shards(job, left, pools, config.stall_timeout):
                run.counts.add(counts)
                metrics.shard(counts, run.manifest["shards"] - run.counts.shards)
                tracker.update(run.counts.rows, f"{run.counts.kept:,} kept")
                run.check_budget(config.max_rejected)
                if time.monotonic() - saved > SAVE_EVERY:
                    run.save_progress()
                    saved = time.monotonic()
        except RunError as error:
            with suppress(EpidaError):  # the manifest may be on the disk that is full
                run.save(status="failed", failure=str(error))
            kept = f"{run.counts.shards:,} of {run.manifest['shards']:,} shards are kept in {config.output}"
            if "--max-rejected" in str(error):
                raise
            raise RunError(f"{error}. {kept}; run the same command again to resume") from error


@contextmanager
def interruptible(run: Run, reporter: Reporter | None = None) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the run in order: what is done is kept, and the message says how to go on.

    With a reporter it is said at once. That is for use inside `connected`: `ray job stop` leaves a driver a second or
    two, and leaving Ray can take longer.
    """
    try:
        yield
    except RequestError as error:
        if run.manifest["status"] == "preparing":
            run.save(problem=str(error))  # which `epida status` shows; a mended request may use the directory
        raise
    except KeyboardInterrupt:
        run.save(status="interrupted", **(run.progress() if run.counts.shards else {}))
        kept = f"what is done is kept in {run.storage.location}; run the same command again to resume"
        if reporter is not None:
            reporter.say(f"stopping: {kept}")
        raise RunError(f"interrupted; {kept}") from None


def given_classifier(config: MethodConfig) -> Path | None:
    """The directory that --classifier names, or None when it names a classifier to be trained."""
    names = {row.name for row in CLASSIFIERS.listing()}
    if config.classifier in names:
        return None
    family = ":" in config.classifier and "://" not in config.classifier
    if family and not Path(config.classifier).is_dir():
        return None
    where = Storage(config.classifier)
    if not where.exists("config.json"):
        if where.exists("model/config.json"):
            raise RequestError(f"--classifier: {no_model(config.classifier, where)}")
        known = ", ".join(sorted(names))
        raise RequestError(
            f"--classifier {config.classifier} is neither a directory with a saved model nor one of {known}"
        )
    return where.local_copy("")


def _prepare_classifier(
    config: AugmentConfig, given: Path | None, train_plan: Plan, run: Run, reporter: Reporter
) -> tuple[tuple[str, ...], str]:
    """Make sure that DIR/model holds the classifier; returns its labels and the digest of its files."""
    if run.manifest.get("model_digest") and run.storage.exists("model/config.json"):
        path = run.storage.local_copy("model")
        if directory_digest(path) != run.manifest["model_digest"]:
            raise RequestError(f"{run.storage.location}/model was changed since the run began; use another --output")
        return load_classifier(path, trust=config.trusted()).labels, run.manifest["model_digest"]
    if given is None:
        classifier = _train(config, train_plan, run, reporter)
    else:
        classifier = load_classifier(given, labels=config.labels or None, trust=config.trusted())
    reporter.say(f"classifier: {classifier.describe()}")
    with tempfile.TemporaryDirectory(prefix="epida-") as folder:
        classifier.save(folder)
        run.storage.upload(Path(folder), "model")
        model_digest = directory_digest(Path(folder))
    run.save(model_digest=model_digest, labels=list(classifier.labels), classifier=classifier.describe())
    return classifier.labels, model_digest


def _train(config: AugmentConfig, plan: Plan, run: Run, reporter: Reporter) -> Any:
    """The paper's pre-training: a fresh classifier on --train, or on rows of INPUT chosen by a hash of their ids."""
    rows, rejected = read_labelled(plan, config.train_rows)
    labels = config.labels or label_set([label for _, _, label in rows])
    known, unknown = known_labels(rows, labels)
    if config.train is not None:  # those of INPUT are set aside with their shards
        set_aside(run.storage, "train", rejected + unknown, reporter)
    if not rows:
        raise RequestError(NO_ROWS)
    if len(labels) < 2:
        raise RequestError(
            f"column {config.label_column!r} has one class only ({', '.join(labels)}); two are the least"
        )
    if not known:
        raise RequestError(f"no row has one of --labels {','.join(labels)}")
    classifier = create(config.classifier, labels, seed=config.seed, **config.classifier_options())
    reporter.say(f"training {config.classifier} on {len(known):,} rows, {len(labels)} classes")
    _, texts, names = map(list, zip(*known, strict=True))
    history = fit(classifier, texts, names, options=TrainingOptions(seed=config.seed))
    if history.best:
        reporter.say(
            f"best epoch {history.best.epoch}: macro-F1 {history.best.macro_f1:.3f} on {history.dev_rows} dev rows"
            + (f"; {FEW_DEV_ROWS}" if history.dev_rows < FEW else "")
        )
    return classifier


def label_set(names: list[str]) -> tuple[str, ...]:
    """The distinct labels: numbers in numeric order, anything else sorted as text."""
    distinct = sorted(set(names))
    numbers = all(re.fullmatch(r"-?[0-9]{1,400}", name) for name in distinct)
    return tuple(sorted(distinct, key=int) if numbers else distinct)


def read_labelled(plan: Plan, limit: int | None = None) -> tuple[list[Row], list[Aside]]:
    """The good rows, and the rows and files that cannot be used.

    With a limit at most so many, those with the smallest hash of their id; of a very large input, from 256 shards.
    """
    shards = list(plan.shards())
    if limit is not None and len(shards) > 256:
        shards = sorted(sorted(shards, key=lambda s: _hash(plan.shard_name(s)))[:256])
    reader = ShardReader(plan)
    rows: list[Row] = []
    rejected: list[Aside] = [(f.path, "read", f.error, "") for f in plan.files if f.error]
    for shard in shards:
        table = reader.read(shard)
        columns = (table[n].to_pylist() for n in ("sample_id", "text", "label", "reason"))
        for sample_id, text, label, reason in zip(*columns, strict=True):
            if reason is None:
                rows.append((sample_id, text, label))
            else:
                rejected.append((sample_id, "read", reason, text or ""))
        if limit is not None and len(rows) > 4 * limit:
            rows = _smallest(rows, limit)
    return (rows if limit is None or len(rows) <= limit else _smallest(rows, limit)), rejected


def _smallest(rows: list[Row], limit: int) -> list[Row]:
    hashes = np.array([_hash(sample_id) for sample_id, _, _ in rows], dtype=np.uint64)
    return [rows[i] for i in np.sort(np.argsort(hashes, kind="stable")[:limit]).tolist()]


def known_labels(rows: list[Row], labels: tuple[str, ...]) -> tuple[list[Row], list[Aside]]:
    """The rows with one of the labels, and the others with the reason."""
    known = set(labels)
    bad = [
        (i, "read", f"the label {label[:40]!r} is not one of {', '.join(labels[:10])}", text)
        for i, text, label in rows
        if label not in known
    ]
    return [row for row in rows if row[2] in known], bad


def set_aside(storage: Storage, name: str, rows: list[Aside], reporter: Reporter) -> None:
    """Write these rows to rejected/NAME.parquet, if there are any, and say so."""
    if rows:
        write_rejected(storage, f"rejected/{name}.parquet", rows)
        reporter.warn(
            f"{len(rows):,} rows of {name} are set aside, see rejected/{name}.parquet; the first: {rows[0][2]}"
        )


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def summary(manifest: dict[str, Any]) -> list[str]:
    """The end of a run in a few lines."""
    done, seconds = manifest["done"], manifest["seconds"]
    lines = [
        f"{done['rows']:,} rows {'judged in all rounds' if manifest['kind'] == 'train' else 'in'}, "
        f"{done['candidates']:,} candidates, {done['kept']:,} kept, "
        f"{done['rejected']:,} set aside, {done['short']:,} with fewer than m"
    ]
    total = sum(seconds.values()) or 1.0
    stages = dict.fromkeys((*STAGES, *seconds))
    shares = ", ".join(f"{stage} {100 * seconds.get(stage, 0) / total:.0f}%" for stage in stages)
    lines.append(f"CPU time: {shares}; {total:.1f} s in all")
    for reason, count in list(manifest["reasons"].items())[:3]:
        lines.append(f"set aside ({count:,}): {reason}")
    return lines
