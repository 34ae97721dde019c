"""Decoding that a classifier steers towards a label (the idea of Data Boost, Liu et al., 2020)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

TOKENS = 8
"""How many candidates for the next token are considered: those that the language model finds likeliest."""

Guide = Callable[[Sequence[str]], np.ndarray]
"""Texts → how much each is wanted: strength · log p(label | text)."""


def make_guide(
    predict_proba: Callable[[Sequence[str]], np.ndarray], labels: Sequence[str], label: str, strength: float
) -> Guide:
    """Return a guide towards a label of the classifier."""
    column = list(labels).index(label)

    def guide(texts: Sequence[str]) -> np.ndarray:
        p = np.array(predict_proba(list(texts)), np.float64)[:, column]
        p[[not text.strip() for text in texts]] = 0.0  # a classifier may prefer an empty text
        return strength * np.log(np.maximum(p, 1e-10))

    return guide


class Steered:
    """Re-rank the next tokens of all answers of a batch, as a logits processor of transformers.

    The classifier reads the answer so far with each of the TOKENS likeliest next tokens behind it, all answers in one
    call, and a token is drawn from p_LM(token) · p(label | answer and token)^strength. Among those tokens, and before
    temperature and top_p apply, this maximises E[log p(label)] − KL(guided ‖ p_LM) / strength at each step: with a
    smaller strength, it costs more to differ from the language model. Each token costs one call of the classifier, with
    answers · TOKENS texts.
    """

    def __init__(self, tokenizer: Any, guide: Guide, start: int) -> None:
        self._tokenizer, self._guide, self._start = tokenizer, guide, start

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        import torch

        best, tokens = scores.topk(min(TOKENS, scores.shape[1]))
        each = best.shape[1]
        so_far = input_ids[:, self._start :].repeat_interleave(each, 0)
        texts = self._tokenizer.batch_decode(torch.cat([so_far, tokens.reshape(-1, 1)], 1), skip_special_tokens=True)
        wanted = torch.from_numpy(self._guide(texts)).to(scores).reshape(-1, each)
        return torch.full_like(scores, -torch.inf).scatter(1, tokens, best + wanted)
