"""`epida augment` against a loop written straight from the paper, and against the limit of its own stages.

    python benchmarks/augment.py [--rows 200000] [--naive-rows 2000]

Both sides use our EDA and one CNN with the same weights. The loop is one process with one torch thread: a sample at a
time, its candidates and itself through the plain convolution as one batch, REM and CEM of the paper's listing for each
candidate. The limit is cores ÷ (generate + score + select, in seconds a row, each measured alone on one core over the
same rows).
The last line is kept rows per second of `epida augment` after start-up ÷ those of the loop.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from epida_ray.classify import load
from epida_ray.core.progress import Reporter
from epida_ray.core.sample import Rejected, Sample
from epida_ray.generate import propose
from epida_ray.generate.eda import EDA
from epida_ray.method.requests import AugmentRequest
from epida_ray.select import ScoredBatch, parse
from epida_ray.stream.augment import augment

M, K = 3, 3
EPS = 1e-10


def corpus(rows: int) -> pa.Table:
    """Real texts where there are some, else the bundled ones; repeated to the length asked for."""
    folder = os.environ.get("EPIDA_DATA")
    if folder:
        table = pq.read_table(Path(folder) / "sentiment" / "train.parquet", columns=["text", "label_name"])
        table = table.rename_columns(["text", "label"])
        name = "tweets of $EPIDA_DATA/sentiment"
    else:
        from pyarrow import csv

        import epida_ray

        table = csv.read_csv(Path(epida_ray.__file__).parent / "experiments" / "support_desk" / "train.csv")
        name = "the bundled support requests"
    words = np.mean([len(t.split()) for t in table["text"].to_pylist()])
    print(f"{rows:,} rows from {len(table):,} of {name}, {words:.1f} words on average")
    return table.take(pa.array(np.arange(rows) % len(table)))


def listing_scores(p: torch.Tensor, o: torch.Tensor, y: int) -> tuple[float, float]:
    """REM and CEM of one candidate, as the paper's listing computes them."""
    z = p.clamp_min(EPS)
    rem = -torch.log(z[y])
    joint = z.unsqueeze(1) * o.unsqueeze(0)
    joint = ((joint + joint.t()) / 2 / joint.sum()).clamp_min(EPS)
    rows, columns = joint.sum(1, keepdim=True), joint.sum(0, keepdim=True)
    information = 1.0 - (joint * (rows.log() + columns.log() - joint.log())).sum()
    return float(rem), float(information + (z * z.log()).sum())


def naive(classifier, samples: list[Sample]) -> float:
    """Seconds that the paper's procedure takes, one sample at a time."""
    torch.set_num_threads(1)
    generator, module = EDA(), classifier.module().eval()
    index = {label: i for i, label in enumerate(classifier.labels)}
    start = time.perf_counter()
    with torch.inference_mode():
        for sample in samples:
            (made,) = propose(generator, [sample], K * M, run_seed=0, round_=0, name="eda")
            if isinstance(made, Rejected):
                continue
            texts = [sample.text, *made.texts]
            table = classifier.table(texts)
            features = torch.relu(module.convolved(**table.batch(np.arange(len(texts)))))
            p = module.linear(features).softmax(-1)
            y = index[sample.label]
            pairs = torch.tensor([listing_scores(row, p[0], y) for row in p])
            low, high = pairs.min(0).values, pairs.max(0).values
            total = ((pairs - low) / (high - low).clamp_min(EPS)).sum(1)[1:]
            [texts[1 + i] for i in total.topk(min(M, len(total))).indices.tolist()]
    return time.perf_counter() - start


def stage_costs(classifier, samples: list[Sample]) -> dict[str, float]:
    """Seconds a row of each stage alone on one core, over the run's rows: compiled, but every word still to be met.

    A shard at a time and without garbage collection, as in the actors.
    """
    selector = parse("rem+cem")
    index = {label: i for i, label in enumerate(classifier.labels)}
    warm = [Sample(f"warm:{i}", f"Where is order {i} of mine?", classifier.labels[0]) for i in range(100)]
    costs = _stages(EDA(), classifier, selector, index, warm)
    costs = dict.fromkeys(costs, 0.0)
    generator = EDA()
    gc.disable()
    for start in range(0, len(samples), 8192):
        for stage, seconds in _stages(generator, classifier, selector, index, samples[start : start + 8192]).items():
            costs[stage] += seconds / len(samples)
    gc.enable()
    return costs


def _stages(generator, classifier, selector, index: dict[str, int], samples: list[Sample]) -> dict[str, float]:
    costs = {}
    start = time.process_time()
    made = propose(generator, samples, K * M, run_seed=0, round_=0, name="eda")
    costs["generate"] = time.process_time() - start
    rows = [(s, one) for s, one in zip(samples, made, strict=True) if not isinstance(one, Rejected)]
    texts = [t for sample, one in rows for t in (sample.text, *one.texts)]
    counts = np.array([len(one.texts) for _, one in rows])
    start = time.process_time()
    p = classifier.predict_proba(texts)
    costs["score"] = time.process_time() - start
    starts = np.concatenate(([0], np.cumsum(counts + 1)))[:-1]
    is_candidate = np.ones(len(p), bool)
    is_candidate[starts] = False
    start = time.process_time()
    batch = ScoredBatch(
        p[is_candidate],
        np.concatenate(([0], np.cumsum(counts))),
        p[starts],
        np.array([index[sample.label] for sample, _ in rows]),
    )
    selector.select(batch, M)
    costs["select"] = time.process_time() - start
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--naive-rows", type=int, default=2_000)
    parser.add_argument("--train-rows", type=int, default=5_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="epida-benchmark-") as folder:
        table = corpus(options.rows)
        path = Path(folder) / "corpus.parquet"
        pq.write_table(table, path)
        config = AugmentRequest(
            input=str(path), output=f"{folder}/run", m=M, k=K, train_rows=options.train_rows, address="local"
        )
        begin = time.time()
        result = augment(config, Reporter())
        wall = time.time() - begin
        files = [(p.stat().st_mtime, pq.ParquetFile(p).metadata.num_rows) for p in Path(result.augmented).iterdir()]
        files.sort()
        kept, span = sum(n for _, n in files[1:]), files[-1][0] - files[0][0]
        throughput = kept / span
        print(f"epida augment: {result.kept:,} kept in {wall:.1f} s with training and start-up, {span:.1f} s from the")
        print(f"  first committed shard on: {throughput:,.0f} kept/s; pools {result.manifest.pools}")
        spent = ", ".join(f"{k} {v * 1e6 / options.rows:.1f}" for k, v in result.manifest.seconds.items())
        print(f"  CPU µs a row inside the actors: {spent}")

        classifier = load(Path(folder) / "run" / "model")
        rows = zip(table["text"].to_pylist(), table["label"].to_pylist(), strict=True)
        samples = [Sample(f"corpus.parquet:{i}", t, label) for i, (t, label) in enumerate(rows)]
        costs = stage_costs(classifier, samples)
        cores = os.cpu_count() or 1
        limit = cores / sum(costs.values()) * result.kept / options.rows
        parts = ", ".join(f"{name} {seconds * 1e6:.1f}" for name, seconds in costs.items())
        print(f"alone on one core, µs a row: {parts}; limit on {cores} cores {limit:,.0f} kept/s")
        naive(classifier, samples[:50])
        seconds = naive(classifier, samples[: options.naive_rows])
        slow = M * min(options.naive_rows, len(samples)) / seconds
        print(f"paper's loop: {slow:,.0f} kept/s ({1e6 * seconds / options.naive_rows:,.0f} µs a row)")
        print(f"share of the limit {throughput / limit:.2f}")
        print(f"ratio {throughput / slow:.1f}")


if __name__ == "__main__":
    main()
