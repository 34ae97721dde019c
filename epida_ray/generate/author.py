"""New texts of a class by a language model, which sees examples of it and what it has written already."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from threading import Lock

import numpy as np
import pyarrow as pa

from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.generate import draws
from epida_ray.generate.answers import EXECUTION_ARGUMENTS, client_of
from epida_ray.generate.corpus import checked_rows
from epida_ray.generate.draws import Draw
from epida_ray.generate.endpoint import Refused
from epida_ray.generate.language_model import check_sampling, local_writer, runs
from epida_ray.generate.library import Collector, one_by_one, unusable
from epida_ray.generate.written import texts_of

ATTRIBUTES = {"length": ("short", "about as long as the examples", "a little longer than the examples"),
              "tone": ("plain", "informal", "formal")}  # fmt: skip
NEAR = 0.8
"""Two texts that share so many of their words are near-duplicates."""
REQUESTS = 3
"""Requests for one sample before a shortfall is accepted."""
_SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "texts",
        "schema": {
            "type": "object",
            "properties": {"texts": {"type": "array", "items": {"type": "string"}}},
            "required": ["texts"],
        },
    },
}


class Author:
    """Write new texts of the sample's class.

    The prompt has the class, its description (`descriptions`, a mapping), the sample and other samples of the class
    (`examples` in all), one value of each of `attributes` (a mapping to lists), and what was written for the sample
    already. With `hard`, the other samples are those that the classifier gets wrong, if there are any. With `checked`,
    texts that the classifier takes for another class are dropped. `model`, `temperature`, `top_p` and `endpoint` are as
    in `language-model`. Of an endpoint, `cache`, `budget`, `rate`, `parallel` and `timeout` say what it may cost, and
    `structured` asks it for JSON by a schema.
    """

    needs_corpus = True
    attempts = 1
    execution_arguments = EXECUTION_ARGUMENTS
    longest = 4_000

    def __init__(
        self,
        model: str = "smollm2",
        examples: int = 4,
        descriptions: Mapping[str, str] | None = None,
        attributes: Mapping[str, Sequence[str]] | None = None,
        hard: bool = False,
        checked: bool = True,
        temperature: float = 0.9,
        top_p: float = 0.95,
        rows: int = 2_000,
        endpoint: str = "",
        structured: bool = False,
        cache: str = "",
        budget: int | None = None,
        rate: float | None = None,
        parallel: int | None = None,
        timeout: float | None = None,
    ) -> None:
        check_sampling(temperature, top_p)
        if isinstance(examples, bool) or not isinstance(examples, int) or examples < 1:
            raise RequestError(f"examples is the number of samples in a prompt, 1 or more, not {examples!r}")
        for name, value in (("descriptions", descriptions), ("attributes", attributes)):
            if value is not None and not isinstance(value, Mapping):
                raise RequestError(f"{name} is a mapping such as {{name: value}}, not {value!r}")
        if not all(isinstance(v, list | tuple) and v for v in (attributes or {}).values()):
            raise RequestError("attributes maps a name to a list of values, such as {tone: [formal, angry]}")
        self._examples, self._descriptions = examples, {str(k): str(v) for k, v in (descriptions or {}).items()}
        self._attributes = ATTRIBUTES if attributes is None else attributes
        self.corpus_rows = checked_rows(rows)
        self._hard, self._checked = bool(hard), bool(checked)
        self.needs_classifier = self._hard or self._checked
        self._lock = Lock()  # an endpoint is asked by several threads, which share the classifier
        self._predict: Callable[[Sequence[str]], np.ndarray] | None = None
        self._labels: tuple[str, ...] = ()
        self._known: dict[str, list[str]] = {}
        self._words: dict[str, list[set[str]]] = {}
        self._client = client_of(
            endpoint, cache=cache, budget=budget, rate=rate, parallel=parallel, timeout=timeout, structured=structured
        )
        self._body = {"model": model, "temperature": temperature, "top_p": top_p}
        self._body |= {"response_format": _SCHEMA} if structured else {}
        self._write = None if endpoint else local_writer(model, temperature, top_p)

    def index(self, samples: Sequence[Sample]) -> pa.Table:
        good = [s for s in samples if s.label and not unusable(s.text, self.longest, encoded=True)]
        return pa.table({"label": pa.array([s.label for s in good], pa.string()),
                         "text": pa.array([s.text for s in good], pa.string())})  # fmt: skip

    def bind_corpus(self, index: pa.Table) -> None:
        self._known = {}
        for label, text in zip(index["label"].to_pylist(), index["text"].to_pylist(), strict=True):
            self._known.setdefault(label, []).append(text)
        self._words = {label: [_words(text) for text in texts] for label, texts in self._known.items()}

    def bind(self, predict_proba: Callable[[Sequence[str]], np.ndarray], labels: Sequence[str]) -> None:
        self._predict, self._labels = predict_proba, tuple(labels)

    def generate(self, samples: Sequence[Sample], n: int, seeds: Sequence[int]) -> list[Candidates | Rejected]:
        shown = self._misjudged() if self._hard else self._known
        work = list(zip(samples, seeds, draws.streams(seeds, 64), strict=True))

        def one(item: tuple[Sample, int, Draw]) -> Candidates | Rejected:
            return self._one(*item, n, shown.get(item[0].label, []))

        return self._client.map(one, work) if self._client else one_by_one(one, work)

    def _misjudged(self) -> dict[str, list[str]]:
        """Return the samples that the classifier gets wrong, of a class without any all samples."""
        assert self._predict is not None
        found = {}
        for label, texts in self._known.items():
            wrong = self._predict(texts).argmax(axis=1) != self._labels.index(label)
            found[label] = [text for text, bad in zip(texts, wrong.tolist(), strict=True) if bad] or texts
        return found

    def _one(self, sample: Sample, seed: int, draw: Draw, n: int, others: Sequence[str]) -> Candidates | Rejected:
        if problem := unusable(sample.text, self.longest, encoded=True):
            return Rejected(problem)
        if not sample.label:
            return Rejected("author writes for a class, and the text has no label")
        if self.needs_classifier and sample.label not in self._labels:
            return Rejected(f"the label {sample.label!r} is not one of the labels of the classifier that checks texts")
        examples = self._drawn_examples(sample.text, others, draw)
        collector = Collector(sample, n)
        seen = [_words(sample.text), *self._words.get(sample.label, ())]
        for number in range(REQUESTS):
            missing = n - len(collector.texts)
            prompt = self._prompt(sample, examples, collector.texts, missing if self._client else 1, draw)
            told = runs(prompt) - runs("\n".join((*examples, *collector.texts)))
            try:
                answers = self._answers(prompt, examples, missing, seed + number)
            except (Refused, ValueError) as error:
                if not collector.texts:
                    return Rejected(f"the language model gave no answer: {str(error)[:200]}")
                break
            for text, fits in zip(answers, self._fit(answers, sample.label), strict=True):
                words = _words(text)
                if (
                    fits
                    and text.casefold() != sample.label.casefold()
                    and not told & runs(text)
                    and all(_shared(words, other) < NEAR for other in seen)
                ):
                    seen.append(words)
                    collector.add(text, "write")
            if collector.full:
                break
        return collector.answer()

    def _fit(self, texts: Sequence[str], label: str) -> list[bool]:
        """Return which texts the classifier takes for the label; all of them unless it is asked to check."""
        if not self._checked or not texts:
            return [True] * len(texts)
        assert self._predict is not None
        with self._lock:
            found: list[int] = np.asarray(self._predict(texts)).argmax(axis=1).tolist()
        return [self._labels[i] == label for i in found]

    def _drawn_examples(self, text: str, others: Sequence[str], draw: Draw) -> list[str]:
        rest = [other for other in others if other != text]
        count = min(self._examples - 1, len(rest))
        return [text, *(rest[i] for i in draws.pick(len(rest), count, draw))] if count else [text]

    def _prompt(self, sample: Sample, examples: list[str], written: list[str], count: int, draw: Draw) -> str:
        described = self._descriptions.get(sample.label)
        lines = [f'These are texts of the class "{sample.label}"{f" ({described})" if described else ""}:', ""]
        lines += [f"- {' '.join(text.split())}" for text in examples]
        wanted = ", ".join(f"{name}: {values[draw() % len(values)]}" for name, values in self._attributes.items())
        what = "one more text" if count == 1 else f"{count} more texts"
        lines += ["", f'Write {what} of the class "{sample.label}", about other things than these.']
        lines += [f"{wanted[0].upper()}{wanted[1:]}."] if wanted else []
        if sample.protected:
            kept = ", ".join(f'"{sample.text[a:b]}"' for a, b in sample.protected)
            lines.append(f"Each must have {kept} in it, unchanged.")
        if written:
            lines += ["Do not repeat:", *(f"- {text}" for text in written)]
        lines.append("Answer with the text only, on one line." if count == 1 else "Answer with one text on each line.")
        return "\n".join(lines)

    def _answers(self, prompt: str, examples: Sequence[str], count: int, seed: int) -> list[str]:
        longest = max(examples, key=len)
        if self._client is None:
            assert self._write is not None
            return [text for answer in self._write(prompt, longest, count, seed) for text in texts_of(answer)[:1]]
        body = self._body | {
            "messages": [{"role": "user", "content": prompt}],
            "seed": seed & 0x7FFFFFFF,
            "max_tokens": 64 + count * (24 + len(longest) // 2),
        }
        return [text for answer in self._client.ask(body) for text in texts_of(answer)]


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


def _shared(a: set[str], b: set[str]) -> float:
    """Return the Jaccard similarity |a ∩ b| / |a ∪ b|."""
    return len(a & b) / max(1, len(a | b))
