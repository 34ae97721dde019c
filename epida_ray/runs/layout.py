"""Every path inside a run's directory. Nothing else spells one.

| path | written by | what |
|---|---|---|
| committed.json | driver | the files of a finished run with their sizes and digests (`runs/commit.py`) |
| manifest.json | driver | the request, the plan, what is done (`runs/manifest.py`) |
| owner/ | driver | who owns the directory (`runs/lease.py`) |
| input/ | driver | tables that were given in memory |
| prepared/ | driver of `train` | rows to learn from and dev rows |
| initial/ | driver of `train` | the classifier before training |
| model/ | driver | the classifier: the judge of `augment`, the best round of `train` |
| language-model/ | driver | the n-gram model that the score `ppl` reads |
| corpus/ | driver | what a generator may take from other samples |
| augmented/, rejected/, short/, candidates/ | scorers | rows, one file per shard; `train` has a folder per round |
| teacher/ | driver of `train` | the model of --teacher |
| pool/ | scorers | unlabelled texts of a round with the judge's probabilities |
| pseudo/ | train worker 0 | what a round learned from unlabelled texts: soft label, weight, version |
| labelled/ | scorers of `label` | texts with the model's soft labels, one file per shard |
| review.csv | driver of `label` | texts to label by hand |
| crashes/ | actors that were started again | what they are about to do (`runs/crashes.py`) |
| rounds/ | driver of `train` | one file per round whose candidates are all judged |
| checkpoint/ | train worker 0 | checkpoints, the newest attempt, why training failed |
| metrics.jsonl, tensorboard/ | driver of `train` | one line, or one step, per round |
| tracking.json | driver | which run of a tracker this is (`method/track.py`) |
| report.html | `epida report` | the run on a page |
"""

from __future__ import annotations

import re

MANIFEST = "manifest.json"
COMMITTED = "committed.json"
OWNER = "owner"
INPUT = "input"
PREPARED = "prepared"
INITIAL = "initial"
MODEL = "model"
LANGUAGE_MODEL = "language-model"
ARPA = "model.arpa"
"""The file of that folder."""
CORPUS = "corpus"
CORPUS_FILE = f"{CORPUS}/index.arrow"
TEACHER = "teacher"
LABELLED = "labelled"
REVIEW = "review.csv"
POOL = "pool"
PSEUDO = "pseudo"
AUGMENTED = "augmented"
REJECTED = "rejected"
SHORT = "short"
CANDIDATES = "candidates"
PER_SHARD = (AUGMENTED, REJECTED, SHORT, CANDIDATES, POOL)
CRASHES = "crashes"
ROUNDS = "rounds"
CHECKPOINTS = "checkpoint"
ATTEMPTS = f"{CHECKPOINTS}/attempts"
FAILURE = f"{CHECKPOINTS}/failure.json"
METRICS = "metrics.jsonl"
TENSORBOARD = "tensorboard"
REPORT = "report.html"
TRACKING = "tracking.json"
MADE = (
    COMMITTED, PREPARED, INITIAL, MODEL, LANGUAGE_MODEL, CORPUS, TEACHER, LABELLED, REVIEW, *PER_SHARD, PSEUDO, CRASHES,
    ROUNDS, CHECKPOINTS, METRICS, TENSORBOARD, REPORT, TRACKING,
)  # fmt: skip
"""All that a run makes, beside its manifest; the rest of a directory is not ours to remove."""


def round_folder(folder: str, round_: int) -> str:
    """Return the folder of one round's shards of one kind."""
    return f"{folder}/round={round_:03d}"


def shard_file(folder: str, name: str, round_: int | None = None) -> str:
    """Return the file of a shard's rows of one kind; with a round, in the folder of that round."""
    return f"{folder if round_ is None else round_folder(folder, round_)}/{name}"


def is_shard_file(name: str) -> bool:
    """Return whether a file name is that of a shard of some run, which ends with the run's fingerprint."""
    return re.search(r"-\d{12}-\d{12}-[0-9a-f]{12}\.parquet$", name) is not None


def pseudo_file(round_: int) -> str:
    return f"{PSEUDO}/round={round_:03d}.parquet"


def judged_file(round_: int) -> str:
    """Return the file that exists once all candidates of a round are judged and what is kept is in augmented/."""
    return f"{ROUNDS}/{round_:05d}.json"


def judged_round(name: str) -> int:
    """Return the round of a file name in rounds/."""
    return int(name.removesuffix(".json"))


def checkpoint_file(round_: int, epochs: int = 0) -> str:
    """Return the checkpoint after a round, or after some epochs of the next one; names sort by age."""
    name = f"round-{round_ + 1:05d}-epoch-{epochs:05d}" if epochs else f"round-{round_:05d}"
    return f"{CHECKPOINTS}/{name}.safetensors"


def prepared_file(name: str) -> str:
    return f"{PREPARED}/{name}.parquet"


def rejected_file(name: str) -> str:
    """Return the file of rows that were rejected before any shard was made."""
    return f"{REJECTED}/{name}.parquet"
