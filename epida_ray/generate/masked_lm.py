"""Mask and fill with any masked language model: many sentences per forward pass, its head only where a mask is."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import exp
from typing import Any, NamedTuple

from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.core.steps import made_step
from epida_ray.generate import draws, languages
from epida_ray.generate.draws import Draw, pick
from epida_ray.generate.library import ROUNDS, Collector, unusable
from epida_ray.generate.models import load
from epida_ray.generate.stopwords import STOP_WORDS
from epida_ray.generate.words import is_spaced, split

SUBSTITUTE, INSERT, RECONSTRUCT = "substitute", "insert", "reconstruct"


class _Masked(NamedTuple):
    """A sample with some words masked: what goes between the masks, and the words that stood there."""

    sample: int
    parts: list[str]
    gone: list[str]
    operation: str
    places: list[int]
    """Which words they were."""

    def text(self, fills: Sequence[str]) -> str:
        out = [self.parts[0]]
        for fill, part in zip(fills, self.parts[1:], strict=True):
            out += (fill, part)
        return "".join(out)


class MaskedLM:
    """`model` is a folder or a hub name of a masked language model.

    max(1, int(share · l)) of a text's l words are replaced (`action=substitute`) or added (`insert`), or now one and
    now the other (`both`), each drawn from the model's `top_k` whole words. One masked text serves `draws_per_mask`
    candidates. `reconstruct` (SSMBA) masks, fills and masks again, `times` times, and a word may come back. Numbers are
    drawn from the sample's seed; probabilities are floating point, so another batch size or machine may, rarely, change
    a draw.
    """

    longest = 20_000

    def __init__(
        self,
        model: str,
        action: str = SUBSTITUTE,
        share: float = 0.15,
        top_k: int = 50,
        temperature: float = 1.0,
        draws_per_mask: int = 3,
        times: int = 3,
        batch_size: int = 64,
        language: str = "en",
    ) -> None:
        if action not in (SUBSTITUTE, INSERT, "both", RECONSTRUCT):
            raise RequestError(f"action is substitute, insert, both or reconstruct, not {action!r}")
        if not 0 < share <= 1:
            raise RequestError(f"share is a share of a text's words, above 0 and up to 1, not {share!r}")
        if min(top_k, draws_per_mask, times, batch_size) < 1 or not temperature > 0:
            raise RequestError("top_k, draws_per_mask, times and batch_size are 1 or more, and temperature is above 0")
        self._actions = (SUBSTITUTE, INSERT) if action == "both" else (action,)
        self.times = times if action == RECONSTRUCT else 0
        self.share, self.top_k, self.temperature = share, top_k, temperature
        self._strength = 1.0
        self.draws_per_mask, self.batch_size = draws_per_mask, batch_size
        self._stop_words = STOP_WORDS.get(languages.base(language), frozenset())
        self._model, self._tokenizer = load(model, "AutoModelForMaskedLM")
        if self._tokenizer.mask_token is None:
            raise RequestError(f"the model {model!r} has no mask token; masked-lm needs a masked language model")
        self._words = _whole_words(self._tokenizer)
        if len(self._words) < 2:
            raise RequestError(f"the vocabulary of {model!r} has no whole words")
        import torch

        size = self._model.get_output_embeddings().weight.shape[0]
        allowed = torch.full((size,), float("-inf"))
        allowed[sorted(self._words)] = 0.0
        self._bias = allowed.to(self._model.device)
        limit = getattr(self._model.config, "max_position_embeddings", 512)
        self._window = max(8, (min(512, limit) - 2) // 8 * 8)

    def set_strength(self, share: float) -> None:
        self._strength = share

    def generate(self, samples: Sequence[Sample], n: int, seeds: Sequence[int]) -> list[Candidates | Rejected]:
        answers: list[Candidates | Rejected | None] = [None] * len(samples)
        collectors = [Collector(sample, n) for sample in samples]
        draw = draws.streams(seeds, 4 * n + 8)
        open_: list[int] = []
        parsed: dict[int, tuple[list[str], list[str]]] = {}
        for i, sample in enumerate(samples):
            if problem := unusable(sample.text, self.longest, encoded=True):
                answers[i] = Rejected(problem)
                continue
            parsed[i] = split(sample.text, sample.protected)
            if parsed[i][1]:
                open_.append(i)
            else:
                answers[i] = Rejected("there is no word in the text that may be changed")
        for _ in range(ROUNDS):
            if self.times:
                self._reconstruct(open_, parsed, collectors, draw, n)
                open_ = [i for i in open_ if not collectors[i].full]
                continue
            masked = [
                self._mask(i, *parsed[i], draw[i])
                for i in open_
                for _ in range(-(-(n - len(collectors[i].texts)) // self.draws_per_mask))
            ]
            for item, slots in zip(masked, self._predict(masked), strict=True):
                for _ in range(self.draws_per_mask):
                    fills = [
                        self._fill(slot, old, draw[item.sample]) for slot, old in zip(slots, item.gone, strict=True)
                    ]
                    collectors[item.sample].add(item.text(fills), item.operation)
            open_ = [i for i in open_ if not collectors[i].full]
            if not open_:
                break
        return [answer or collector.answer() for answer, collector in zip(answers, collectors, strict=True)]

    def _reconstruct(
        self,
        open_: Sequence[int],
        parsed: dict[int, tuple[list[str], list[str]]],
        collectors: Sequence[Collector],
        draw: Sequence[Draw],
        n: int,
    ) -> None:
        """Corrupt and rebuild every text as often as it lacks candidates, all of them in the same batches."""
        states = [(i, list(parsed[i][1])) for i in open_ for _ in range(n - len(collectors[i].texts))]
        for _ in range(self.times):
            masked = [self._mask(i, parsed[i][0], cores, draw[i]) for i, cores in states]
            for (i, cores), item, slots in zip(states, masked, self._predict(masked), strict=True):
                for place, slot, old in zip(item.places, slots, item.gone, strict=True):
                    cores[place] = self._fill(slot, old, draw[i], again=True)
        for i, cores in states:
            glue = parsed[i][0]
            text = "".join(g + c for g, c in zip(glue, [*cores, ""], strict=True))
            collectors[i].add(text, RECONSTRUCT)

    def _mask(self, i: int, glue: list[str], cores: list[str], draw: Draw) -> _Masked:
        operation = self._actions[draw() % len(self._actions)]
        good = [k for k, core in enumerate(cores) if core.lower() not in self._stop_words and not core.isnumeric()]
        usable = good or list(range(len(cores)))
        count = min(max(1, int(self.share * self._strength * len(cores))), len(usable))
        chosen = {usable[k] for k in pick(len(usable), count, draw)}
        parts, gone = [""], []
        for k, core in enumerate(cores):
            parts[-1] += glue[k]
            if k not in chosen:
                parts[-1] += core
            elif operation != INSERT:
                parts.append("")
                gone.append(core)
            else:
                parts.append((" " if is_spaced(core) else "") + core)
                gone.append("")
        parts[-1] += glue[-1]
        return _Masked(i, parts, gone, operation, sorted(chosen))

    def _predict(self, masked: Sequence[_Masked]) -> list[list[list[tuple[str, float]]]]:
        """Return for each masked text and each of its masks the words with their logits, the likeliest first."""
        import torch

        mask = self._tokenizer.mask_token
        texts = [item.text([mask] * len(item.gone)) for item in masked]
        results: list[list[list[tuple[str, float]]]] = [[] for _ in masked]
        order = sorted(range(len(texts)), key=lambda k: len(texts[k]))
        for start in range(0, len(order), self.batch_size):
            made_step()
            batch = order[start : start + self.batch_size]
            inputs = self._tokenizer(
                [texts[k] for k in batch],
                return_tensors="pt",
                padding=True,
                pad_to_multiple_of=8,
                truncation=True,
                max_length=self._window,
            ).to(self._model.device)
            rows, columns = torch.nonzero(inputs["input_ids"] == self._tokenizer.mask_token_id, as_tuple=True)
            with torch.inference_mode():
                logits = _masked_logits(self._model, inputs, rows, columns).float() + self._bias
                best = logits.topk(min(self.top_k + 1, len(self._words)), dim=1)
            values = best.values.round(decimals=3).tolist()
            for row, scores, ids in zip(rows.tolist(), values, best.indices.tolist(), strict=True):
                ranked = sorted(zip(ids, scores, strict=True), key=lambda pair: (-pair[1], pair[0]))
                results[batch[row]].append([(self._words[token], score) for token, score in ranked])
        for slots, item in zip(results, masked, strict=True):
            slots += [[] for _ in range(len(item.gone) - len(slots))]  # masks beyond the model's window
            del slots[len(item.gone) :]
        return results

    def _fill(self, slot: list[tuple[str, float]], old: str, draw: Draw, again: bool = False) -> str:
        """Draw a word for a mask; the word that stood there only with `again`."""
        choices = [pair for pair in slot if again or pair[0].lower() != old.lower()][: self.top_k]
        if not choices:
            return old
        top = choices[0][1]
        weights = [exp((score - top) / self.temperature) for _, score in choices]
        bounds = list(accumulate(weights))
        place = bisect_right(bounds, draw() / (1 << draws.BITS) * bounds[-1])
        word = choices[min(place, len(choices) - 1)][0]
        if len(old) > 1 and old.isupper():
            return word.upper()
        return word[0].upper() + word[1:] if old[:1].isupper() else word


def _masked_logits(model: Any, inputs: Any, rows: Any, columns: Any) -> Any:
    """Return the logits of the masked places alone: the head is the most expensive layer of a small model."""
    head = next((getattr(model, name) for name in ("cls", "lm_head", "predictions") if hasattr(model, name)), None)
    if head is None or not hasattr(model, "base_model") or model.base_model is model:
        return model(**inputs).logits[rows, columns]
    return head(model.base_model(**inputs)[0][rows, columns])


def _whole_words(tokenizer: Any) -> dict[int, str]:
    """Return the word of each token that is a word by itself, by token id."""
    vocabulary = tokenizer.get_vocab()
    special = set(tokenizer.all_special_tokens)
    prefix = next((mark for mark in ("Ġ", "▁") if any(token.startswith(mark) for token in vocabulary)), "")
    words = {}
    for token, number in vocabulary.items():
        word = token.removeprefix(prefix)
        if token in special or not word.isalpha() or token.startswith("##"):
            continue
        if token.startswith(prefix) or not is_spaced(word):
            words[number] = word
    return words
