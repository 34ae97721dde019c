"""Candidates per second on one core: our EDA, nlpaug's SynonymAug and TextAttack's EasyDataAugmenter, same texts, warm.

    python benchmarks/generate.py [--texts 300] [--seconds 2]

Texts have 20 to 28 words: real ones when EPIDA_DATA names a folder with data sets, else sentences made of the bundled
corpus. The libraries are called as their README shows. The sides take turns, so that a busy machine slows all of them;
each one's best turn counts. The last line is EDA ÷ nlpaug.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path

from epida_ray.core.sample import Sample, sample_seeds
from epida_ray.generate import GENERATORS, resources

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

N = 9
TURNS = 5


def texts(count: int) -> list[str]:
    found = list(dict.fromkeys(_real() if os.environ.get("EPIDA_DATA") else _bundled()))
    if not found:
        raise SystemExit("no texts of 20 to 28 words were found")
    return (found * (-(-count // len(found))))[:count]


def _real() -> Iterator[str]:
    import pyarrow.parquet as pq

    for path in sorted(Path(os.environ["EPIDA_DATA"]).glob("*/train.parquet")):
        for text in pq.read_table(path)["text"].to_pylist():
            if text and 20 <= len(text.split()) <= 28:
                yield text


def _bundled() -> Iterator[str]:
    corpus = files("epida_ray") / "experiments" / "support_desk" / "train.csv"
    with corpus.open(encoding="utf-8", newline="") as file:
        sentences = [row["text"] for row in csv.DictReader(file)]
    for first, second, third in zip(sentences, sentences[7:], sentences[19:], strict=False):
        words = f"{first} {second} {third}".split()
        if len(words) >= 20:
            yield " ".join(words[:24])


def rate(work: Callable[[list[str]], int], corpus: list[str], seconds: float, size: int = 8) -> float:
    """Candidates per second of processor time over about `seconds`; the first batch has `size` texts."""
    made, start = 0, 0
    begin = time.process_time()
    while (spent := time.process_time() - begin) < seconds:
        batch = [corpus[(start + i) % len(corpus)] for i in range(size)]
        made += work(batch)
        start += size
        if spent < seconds / 10:
            size = min(2 * size, 1024)
    return made / (time.process_time() - begin)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--texts", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    corpus = texts(options.texts)
    print(f"{len(corpus)} texts of {sum(len(t.split()) for t in corpus) / len(corpus):.1f} words, {N} candidates each")

    resources.nltk_data()
    resources.import_textattack()
    import nlpaug.augmenter.word as naw
    from textattack.augmentation import EasyDataAugmenter

    eda = GENERATORS.create("eda")
    with resources.no_nltk_downloads():
        synonym_aug = naw.SynonymAug(aug_src="wordnet")
        easy = EasyDataAugmenter(pct_words_to_swap=0.1, transformations_per_example=N)

    def ours(batch: list[str]) -> int:
        samples = [Sample(str(i), text) for i, text in enumerate(batch)]
        answers = eda.generate(samples, N, sample_seeds(0, 0, [s.id for s in samples], "eda", 0))
        return sum(len(answer.texts) for answer in answers)

    sides: dict[str, Callable[[list[str]], int]] = {
        "epida_ray eda": ours,
        "nlpaug SynonymAug": lambda batch: sum(len(synonym_aug.augment(text, n=N)) for text in batch),
        "TextAttack EasyDataAugmenter": lambda batch: sum(len(easy.augment(text)) for text in batch),
    }
    for work in sides.values():
        work(corpus)
    best = dict.fromkeys(sides, 0.0)
    for _ in range(TURNS):
        for name, work in sides.items():
            best[name] = max(best[name], rate(work, corpus, options.seconds / TURNS))
    for name, value in best.items():
        print(f"{name:30} {value:12,.0f} candidates/s")
    own, nlpaug, textattack = best.values()
    print(f"EDA ÷ TextAttack EasyDataAugmenter {own / textattack:.1f}")
    print(f"ratio {own / nlpaug:.1f}")


if __name__ == "__main__":
    main()
