"""The scoring engine inside Ray against a bare loop of sorted, batched forward passes: same model, one thread each.

Four measurements: MiniLM and the CNN (engine ÷ bare loop; the CNN's both in torch and with the engine's own compiled
passes, so that only Ray is between them), int8 ÷ fp32 with the share of samples whose picks agree,
and what SEAS costs beside the scoring. The last line is MiniLM's ratio. The two sides take turns, shard by shard, and
the figure is the median over the shards. Needs `epida-ray[minilm]`.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
os.environ |= {"RAY_worker_niceness": "0"}  # both sides with the same priority

import argparse
import csv
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch

sys.path.insert(0, str(Path(__file__).parent))
from score import originals, with_candidates

from epida_ray.classify import create, load
from epida_ray.classify.checkpoint import padded
from epida_ray.classify.transformer import Transformer
from epida_ray.method.trainer import fit
from epida_ray.select import select

LABELS = tuple("abcdef")
BATCH = 64
A_SAMPLE = 10


@ray.remote(num_cpus=1)
class Scorer:
    def __init__(self, directory: str) -> None:
        torch.set_num_threads(1)
        self.classifier = load(directory)

    def score(self, texts: Sequence[str]) -> np.ndarray:
        return self.classifier.predict_proba(texts)


def seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def bare_transformer(classifier: Transformer, texts: Sequence[str]) -> np.ndarray:
    """Tokenise, sort, cut into batches, forward: what one would write by hand."""
    tokens = classifier.tokenizer(list(texts), truncation=True, max_length=classifier.max_length)["input_ids"]
    order = sorted(range(len(texts)), key=lambda i: len(tokens[i]))
    out = np.empty((len(texts), len(classifier.labels)), np.float32)
    with torch.inference_mode():
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            inputs = padded([tokens[i] for i in rows], classifier.tokenizer.pad_token_id, left=False)
            out[rows] = torch.softmax(classifier.model(**inputs).logits, dim=1).numpy()
    return out


def bare_cnn(classifier: Any, texts: Sequence[str]) -> np.ndarray:
    """The same compiled passes without Ray, sorted by length and in batches."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    out = np.empty((len(texts), len(classifier.labels)), np.float32)
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        out[rows] = classifier.predict_proba([texts[i] for i in rows])
    return out


def torch_cnn(classifier: Any, texts: Sequence[str]) -> np.ndarray:
    """Forward passes of the network in torch, sorted by length and in batches."""
    module = classifier.module().eval()
    table = classifier.table(texts)
    order = np.argsort(np.diff(table.offsets), kind="stable")
    out = np.empty((len(texts), len(classifier.labels)), np.float32)
    with torch.inference_mode():
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            features = torch.relu(module.convolved(**table.batch(rows)))
            out[rows] = torch.softmax(module.linear(features), dim=1).numpy()
    return out


def in_ray(classifier: Any, bare: Callable[[Any, Sequence[str]], np.ndarray], shards: list[list[str]]) -> float:
    """Bare seconds ÷ seconds of a Ray actor, shard by shard."""
    with tempfile.TemporaryDirectory() as folder:
        classifier.save(folder)
        scorer = Scorer.remote(folder)
        apart = np.abs(ray.get(scorer.score.remote(shards[0])) - bare(classifier, shards[0])).max()
    if not apart <= 1e-4:
        raise SystemExit(f"the two sides differ by {apart}")
    ratios, rates = [], []
    for number, shard in enumerate(shards[1:]):
        runs: list[Callable[[], Any]] = [
            lambda shard=shard: ray.get(scorer.score.remote(shard)),
            lambda shard=shard: bare(classifier, shard),
        ]
        first = number % 2
        times = {first: seconds(runs[first])}
        times[1 - first] = seconds(runs[1 - first])
        ratios.append(times[1] / times[0])
        rates.append(len(shard) / times[0])
    ray.kill(scorer)
    ratio = statistics.median(ratios)
    print(
        f"{classifier.describe()}: {statistics.median(rates):,.0f} texts/s in Ray, engine ÷ bare loop "
        f"({bare.__name__}) {ratio:.2f}"
    )
    return ratio


def learn(classifier: Any) -> None:
    """A short fine-tuning on the bundled corpus: picks of an untrained head would say nothing."""
    with files("epida_ray").joinpath("experiments/support_desk/train.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[:240]
    names = sorted({row["label"] for row in rows})
    labels = [LABELS[names.index(row["label"])] for row in rows]
    best = fit(classifier, [row["text"] for row in rows], labels, epochs=3).best
    assert best is not None
    print(f"MiniLM after 3 epochs on {len(rows)} texts: dev accuracy {best.accuracy:.2f}")


def picks(p: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """bool [S, candidates]: which of each sample's candidates are kept."""
    grouped = p.reshape(-1, A_SAMPLE, p.shape[1])
    kept = np.zeros(grouped.shape[0] * (A_SAMPLE - 1), np.bool_)
    kept[select(grouped[:, 1:], grouped[:, 0], labels).kept] = True
    return kept.reshape(-1, A_SAMPLE - 1)


def int8(fp32: Transformer, texts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        fp32.save(folder)
        quantized = Transformer(folder, precision="int8")
    quantized.predict_proba(texts[:A_SAMPLE])
    size = 20 * A_SAMPLE
    ratios, ours, theirs = [], [], []
    for start in range(0, len(texts) - size + 1, size):
        shard = texts[start : start + size]
        slow = seconds(lambda shard=shard: theirs.append(fp32.predict_proba(shard)))
        fast = seconds(lambda shard=shard: ours.append(quantized.predict_proba(shard)))
        ratios.append(slow / fast)
    p, q = np.concatenate(theirs), np.concatenate(ours)
    labels = p[::A_SAMPLE].argmax(axis=1)
    kept = picks(p, labels)
    same = (kept == picks(q, labels)).all(axis=1).mean()
    print(f"int8 ÷ fp32 {statistics.median(ratios):.2f}, the same picks in {same:.0%} of {len(labels)} samples")
    # How exact would the scores have to be? Noise of int8's size and of fractions of it, on the fp32 log-probabilities.
    log_p = np.log(np.maximum(p, 1e-10))
    error = float(np.std(np.log(np.maximum(q, 1e-10)) - log_p))
    random = np.random.default_rng(0)
    for part in (1, 0.1, 0.01, 0.001):
        noisy = np.exp(log_p + random.normal(0, part * error, p.shape))
        agree = (kept == picks(noisy / noisy.sum(axis=1, keepdims=True), labels)).all(axis=1).mean()
        print(f"  log-probabilities off by {part * error:.1e} (sd): the same picks in {agree:.0%}")


def seas(texts: list[str]) -> None:
    """Over a shard: selecting has some costs that do not grow with it."""
    for classes in (6, 150):
        classifier = create("cnn", [str(i) for i in range(classes)], vectors="hashed", seed=1)
        classifier.predict_proba(texts)
        shares = []
        for _ in range(5):
            start = time.process_time()
            p = classifier.predict_proba(texts)
            scored = time.process_time()
            grouped = p.reshape(-1, A_SAMPLE, classes)
            select(grouped[:, 1:], grouped[:, 0], np.zeros(len(grouped), np.int64))
            shares.append((time.process_time() - scored) / (scored - start))
        print(
            f"SEAS with {classes} classes, a shard of {len(texts) // A_SAMPLE:,} samples: "
            f"{statistics.median(shares):.1%} of the CNN's scoring time"
        )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=int, default=9)
    parser.add_argument("--samples", type=int, default=30, help="samples a shard for MiniLM")
    options = parser.parse_args()
    torch.set_num_threads(1)
    texts = with_candidates(originals())
    per_shard = options.samples * A_SAMPLE
    shards = [[f"{t} {k}" for t in texts[:per_shard]] for k in range(options.shards)]
    large = [[f"{t} {k} {i}" for i in range(8) for t in texts] for k in range(options.shards)]
    seas(large[0])
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        for bare in (torch_cnn, bare_cnn):
            in_ray(create("cnn", LABELS, vectors="hashed", seed=1), bare, large)
        minilm = create("minilm", LABELS, seed=1, device="cpu")
        learn(minilm)
        int8(minilm, texts[: 2 * per_shard])
        ratio = in_ray(minilm, bare_transformer, shards)
    finally:
        ray.shutdown()
    print(f"ratio {ratio:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
