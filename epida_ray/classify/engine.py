"""The scoring engine of the torch classifiers: texts in, one row of numbers per text out, in the order asked.

Equal texts are computed once. Texts are turned into token ids on a second thread while the forward pass runs, and
packed by length so that a batch holds at most `token_budget` tokens with padding. The packing depends on the texts of
the call alone, so the same call gives the same bits. When memory runs out the budget is halved and the work goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import numpy as np
import torch

from epida_ray.core.errors import RunError
from epida_ray.core.steps import made_step

SLICE = 4096
"""Texts that are tokenised, then packed, together."""


class Engine:
    def __init__(
        self,
        tokenize: Callable[[Sequence[str]], Sequence[Any]],
        forward: Callable[[list[Any]], torch.Tensor],
        token_budget: int,
        equal_lengths: bool = False,
    ) -> None:
        self.equal_lengths = equal_lengths
        """Whether only texts of one length share a batch, so that nothing is padded."""
        self.tokenize = tokenize
        self.forward = forward
        self.token_budget = token_budget
        """Tokens of a batch; less than at first when memory ran out."""

    def run(self, texts: Sequence[str], width: int) -> np.ndarray:
        """Return float32 [N, width]: the rows that `forward` gives for these texts."""
        place: dict[str, int] = {}
        order = np.fromiter((place.setdefault(text, len(place)) for text in texts), np.int64, len(texts))
        distinct = np.empty((len(place), width), np.float32)
        with torch.inference_mode():
            start = 0
            for tokens in self._tokenized(list(place)):
                self._score(tokens, distinct[start : start + len(tokens)])
                start += len(tokens)
        return distinct[order]

    def _tokenized(self, texts: list[str]) -> Iterator[Sequence[Any]]:
        """Yield tokenised slices, one ahead of the forward pass."""
        slices = [texts[i : i + SLICE] for i in range(0, len(texts), SLICE)]
        if len(slices) < 2:
            yield from map(self.tokenize, slices)
            return
        with ThreadPoolExecutor(1) as background:
            waiting = [background.submit(self.tokenize, s) for s in islice(slices, 2)]
            for later in [*slices[2:], None, None]:
                tokens = waiting.pop(0).result()
                if later is not None:
                    waiting.append(background.submit(self.tokenize, later))
                yield tokens

    def _score(self, tokens: Sequence[Any], out: np.ndarray) -> None:
        by_length = np.argsort([-len(t) for t in tokens], kind="stable")
        lengths = np.array([len(tokens[i]) for i in by_length])
        at = 0
        while at < len(by_length):
            longest = max(1, lengths[at])
            end = at + max(1, self.token_budget // longest)
            if self.equal_lengths:
                end = min(end, np.searchsorted(-lengths, -lengths[at], side="right"))
            batch = by_length[at:end]
            try:
                rows = self.forward([tokens[i] for i in batch])
            except RuntimeError as error:
                if not _out_of_memory(error):
                    raise
                if len(batch) == 1:
                    raise RunError(f"a text of {longest} tokens does not fit in memory; lower max_length") from error
                self.token_budget = max(longest, longest * len(batch) // 2)
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
                continue
            out[batch] = rows.float().cpu().numpy()
            at += len(batch)
            made_step()


def _out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def pick_device(device: str) -> torch.device:
    """Return the device; `auto` is the GPU that this process was given, else the CPU."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device)


def softmax(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    return torch.softmax(logits.float() / temperature, dim=1)
