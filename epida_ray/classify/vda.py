"""Virtual data augmentation (Zhou et al., 2021): rewrites in the embedding layer, which no tokeniser could write down.

A masked language model says how likely each token of the vocabulary is at each place of a text. With Gaussian noise on
its logits, the mixture of all embeddings under these probabilities replaces the embedding of the token. The network
learns to answer the virtual text as it answers the text itself.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from epida_ray.classify import checkpoint
from epida_ray.classify.mixup import reads_tokens_only
from epida_ray.classify.transformer import Transformer
from epida_ray.core.errors import RequestError

NOISE = 1.0
"""Standard deviation of the noise on the masked language model's logits."""


class Virtual:
    """Lets a transformer in training answer the virtual texts of each batch too."""

    def __init__(self, classifier: Any, model: str, device: torch.device) -> None:
        masked, tokenizer = read_masked(classifier, model)
        self._masked = masked.to(device).eval().requires_grad_(False)
        self._network = classifier.module()
        self._special = torch.tensor(sorted(tokenizer.all_special_ids), device=device)
        self._hook: Any = None

    def draw(self) -> None:
        """Add virtual texts to the next batch: its N texts get 2N logits."""
        self._hook = self._network.register_forward_pre_hook(self._doubled, with_kwargs=True)

    def _doubled(self, _module: nn.Module, _args: Any, inputs: dict[str, torch.Tensor]) -> tuple[tuple[()], Any]:
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        embeddings = self._network.get_input_embeddings()
        own = embeddings(ids)
        places = mask.bool() & ~torch.isin(ids, self._special)
        with torch.no_grad():
            logits = self._masked(**inputs).logits[places][:, : len(embeddings.weight)].float()
            likely = torch.softmax(logits + NOISE * torch.randn_like(logits), dim=1).to(own.dtype)
        virtual = own.masked_scatter(places.unsqueeze(2), likely @ embeddings.weight[: likely.shape[1]].to(own.dtype))
        return (), {"inputs_embeds": torch.cat([own, virtual]), "attention_mask": mask.repeat(2, 1)}

    def losses(self, logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return each text's cross-entropy plus its inconsistency, and add no more virtual texts until `draw`."""
        self._hook.remove()
        own, virtual = logits.chunk(2)
        return F.cross_entropy(own, y, reduction="none") + inconsistency(own, virtual)


def inconsistency(logits: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Return (KL(p ‖ q) + KL(q ‖ p)) / 2 of each row, with p and q the predictions that these logits make."""
    p, q = F.log_softmax(logits, dim=1), F.log_softmax(others, dim=1)
    return ((p.exp() - q.exp()) * (p - q)).sum(dim=1) / 2


def read_masked(classifier: Any, model: str) -> tuple[Any, Any]:
    """Return the masked language model and its tokeniser; raise RequestError unless they fit the classifier."""
    if not isinstance(classifier, Transformer):
        name = getattr(classifier, "name", type(classifier).__name__)
        raise RequestError(f"--vda works in the embeddings of a transformer, which {name} is not; leave it out")
    if reads_tokens_only(classifier):
        raise RequestError("--vda mixes the vectors of tokens, and an encoder–decoder takes tokens only; leave it out")
    masked, tokenizer = checkpoint.read(model, "AutoModelForMaskedLM")
    if tokenizer.get_vocab() != classifier.tokenizer.get_vocab():
        raise RequestError(
            f"--vda {model} has another vocabulary than the classifier; name a masked language model with the same "
            "tokeniser, one that still has its head"
        )
    longest = checkpoint.max_tokens(masked.config, tokenizer, classifier.max_length)
    if longest < classifier.max_length:
        raise RequestError(
            f"--vda {model} reads {longest} tokens, but the classifier {classifier.max_length}; add "
            f"--classifier-arg max_length={longest}"
        )
    return masked, tokenizer
