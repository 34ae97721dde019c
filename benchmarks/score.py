"""The CNN's scoring against its plain convolution: from texts to probabilities, one core, the same weights.

Texts of 24 words, ten a sample (an original and nine EDA candidates). With EPIDA_DATA set they come from AG News, else
from the bundled corpus. The last line is the ratio with 50-dimensional vectors; the probabilities must agree to 1e-5.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch

from epida_ray.classify.cnn import CNN
from epida_ray.core.sample import Candidates, Sample, sample_seeds
from epida_ray.generate.eda import EDA

WORDS = 24
SAMPLES = 600
REPEATS = 5
BATCH = 128
LABELS = tuple("abcdef")


def originals() -> list[str]:
    if folder := os.environ.get("EPIDA_DATA"):
        import pyarrow.parquet as pq

        texts = pq.read_table(Path(folder) / "agnews" / "train.parquet")["text"].to_pylist()
    else:
        with files("epida_ray").joinpath("experiments/support_desk/train.csv").open(encoding="utf-8") as file:
            texts = [row["text"] for row in csv.DictReader(file)]
    words = " ".join(texts).split()
    return [" ".join(words[i : i + WORDS]) for i in range(0, len(words) - WORDS, WORDS)][:SAMPLES]


def with_candidates(texts: list[str]) -> list[str]:
    samples = [Sample(str(i), text) for i, text in enumerate(texts)]
    seeds = sample_seeds(0, 0, [s.id for s in samples], "eda", 0)
    scored = []
    for sample, made in zip(samples, EDA().generate(samples, 9, seeds), strict=True):
        assert isinstance(made, Candidates)
        scored += [sample.text, *made.texts]
    return scored


def plain(classifier: CNN, network: torch.nn.Module, texts: list[str]) -> np.ndarray:
    """Vectors looked up, padded, convolved: the same model as any torch user would run it."""
    out = []
    with torch.inference_mode():
        for start in range(0, len(texts), BATCH):
            words, offsets = classifier.encode(texts[start : start + BATCH])
            vectors = torch.from_numpy(classifier.word_vectors)
            features = torch.relu(network.convolved(torch.from_numpy(words), torch.from_numpy(offsets), vectors))
            out.append(torch.softmax(network.linear(features), dim=1).numpy())
    return np.concatenate(out)


def seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.set_num_threads(1)
    texts = with_candidates(originals())
    print(f"{len(texts):,} texts of about {WORDS} words, 10 a sample, one thread, CPU time; plain: batches of {BATCH}")
    ratios = {}
    for dimension in (300, 50):
        classifier = CNN(LABELS, vectors=f"hashed:{dimension}", seed=1)
        network = classifier.module().eval()
        apart = float(np.abs(classifier.predict_proba(texts) - plain(classifier, network, texts)).max())
        ours, theirs = [], []
        for _ in range(REPEATS):
            ours.append(seconds(lambda c=classifier: c.predict_proba(texts)))
            theirs.append(seconds(lambda c=classifier, n=network: plain(c, n, texts)))
        classifier.load_state(classifier.state())
        cold = seconds(lambda c=classifier: c.predict_proba(texts))
        ours_s, theirs_s = statistics.median(ours), statistics.median(theirs)
        ratios[dimension] = theirs_s / ours_s
        print(
            f"{dimension}-d: {len(texts) / ours_s:,.0f} texts/s ({len(texts) / cold:,.0f} right after new weights), "
            f"plain {len(texts) / theirs_s:,.0f}, ratio {ratios[dimension]:.1f}, largest difference {apart:.1e}"
        )
        if not apart <= 1e-5:
            print(f"the probabilities differ by {apart}", file=sys.stderr)
            return 1
    print(f"ratio {ratios[50]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
