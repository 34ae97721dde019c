"""Text → one vector: a Hugging Face encoder with the pooling that it was trained with.

A text's embedding is the same bits in any batch and with any number of threads: only texts of equal length in tokens
share a batch, so nothing is padded, and each forward pass runs on one thread. More threads take more batches. Without
that, results would depend on which texts the cache happens to have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from epida_ray.classify import checkpoint, saving
from epida_ray.classify.embedding_cache import SUFFIX, EmbeddingCache, key_of
from epida_ray.classify.engine import Engine, pick_device
from epida_ray.classify.pooling import FILE_NAMES, SentenceConfig, pool, sentence_config
from epida_ray.classify.threads import torch_threads
from epida_ray.core.cache import cache_dir
from epida_ray.core.errors import RequestError
from epida_ray.core.quiet import quiet_transformers

FEWEST_TOKENS = 32
"""A smaller batch is computed with copies of its texts: matrix products of few rows have other last bits."""
TOKEN_BUDGET = {"cpu": 1024, "cuda": 65536}
_NOT_IN_DIGEST = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "architectures")


class SentenceEncoder:
    """`model` is a hub name or a directory: of sentence-transformers, or any AutoModel with mean pooling.

    `prompt` is put before each text; by default it is the checkpoint's own. `cache` keeps embeddings on disk too.
    """

    def __init__(
        self,
        model: str,
        *,
        max_length: int | None = None,
        prompt: str | None = None,
        cache: bool = True,
        token_budget: int | None = None,
        device: str = "auto",
    ) -> None:
        self.device = pick_device(device)
        self.network, self.tokenizer = checkpoint.read(model, "AutoModel")
        self.config = sentence_config(model) or SentenceConfig()
        self.prompt = self.config.prompt if prompt is None else prompt
        limit = self.config.max_length if max_length is None else max_length
        self.max_length = checkpoint.max_tokens(self.network.config, self.tokenizer, limit)
        self.width = int(self.network.config.hidden_size)
        self.network.to(self.device).eval()
        self._changed = False
        self._on_disk = bool(cache)
        self._cache: EmbeddingCache | None = None
        budget = token_budget or TOKEN_BUDGET["cuda" if self.device.type == "cuda" else "cpu"]
        self._engine = Engine(self.tokenize, self._forward, budget, equal_lengths=True)

    def parameters(self) -> int:
        return sum(p.numel() for p in self.network.parameters())

    # Embedding

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return float32 [N, width], rows of length one."""
        if self._cache is None:
            on_disk = self._on_disk and not self._changed
            path = cache_dir() / "embeddings" / f"{self.digest()}{SUFFIX}" if on_disk else None
            self._cache = EmbeddingCache(self.width, path)
        keys = [key_of(text) for text in texts]
        known = self._cache.get(keys)
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        if missing:
            fresh = dict(zip(missing, self._compute(list(missing.values())), strict=True))
            self._cache.put(fresh)
            known |= fresh
        return np.stack([known[key] for key in keys]) if keys else np.empty((0, self.width), np.float32)

    def _compute(self, texts: list[str]) -> np.ndarray:
        threads = torch.get_num_threads() if self.device.type == "cpu" else 1
        by_length = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        shares = [share for i in range(threads) if (share := by_length[i::threads])]
        out = np.empty((len(texts), self.width), np.float32)

        def work(share: list[int]) -> None:
            torch.set_num_threads(1)  # each Python thread has its own number
            out[share] = self._engine.run([texts[i] for i in share], self.width)

        with torch_threads(1):
            if len(shares) == 1:
                work(shares[0])
            else:
                with ThreadPoolExecutor(len(shares)) as pool:
                    list(pool.map(work, shares))
        return out

    def tokenize(self, texts: Sequence[str], more: int = 0) -> list[list[int]]:
        """Return the tokens of each text, cut after `max_length` and so many `more`."""
        ready = [self.prompt + (text.lower() if self.config.lower else text) for text in texts]
        return checkpoint.tokenize(self.tokenizer, ready, self.max_length + more)

    def _forward(self, tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        self.network.eval()
        copies = -(-FEWEST_TOKENS // max(1, len(tokens) * len(tokens[0])))
        return F.normalize(self.pooled(list(tokens) * copies), dim=1)[: len(tokens)]

    def pooled(self, tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        """Return one vector for each text: the last layer's states, pooled."""
        left = self.tokenizer.padding_side == "left"
        inputs = checkpoint.padded(tokens, self.tokenizer.pad_token_id, left)
        inputs = {k: v.to(self.device) for k, v in inputs.items()}
        return pool(self.network(**inputs).last_hidden_state, inputs["attention_mask"], self.config.pooling)

    # Weights

    def digest(self) -> str:
        """Return a hash of all that an embedding depends on."""
        config = {k: v for k, v in self.network.config.to_dict().items() if k not in _NOT_IN_DIGEST}
        versions = [torch.__version__, str(getattr(import_module("transformers"), "__version__", ""))]
        machine = [self.device.type, torch.backends.cpu.get_cpu_capability()]
        options = [self.config.pooling, self.config.lower, self.prompt, self.max_length, *versions, *machine]
        self.tokenizer.backend_tokenizer.no_truncation()
        self.tokenizer.backend_tokenizer.no_padding()
        total = blake2b(json.dumps([config, options], sort_keys=True, default=str).encode(), digest_size=16)
        total.update(self.tokenizer.backend_tokenizer.to_str().encode())
        for key, value in sorted(self.network.state_dict().items()):
            total.update(key.encode())
            total.update(value.detach().cpu().contiguous().numpy())
        return total.hexdigest()

    def changed(self) -> None:
        """Forget the embeddings: the weights are no longer the checkpoint's."""
        self._changed, self._cache = True, None

    def weights(self) -> dict[str, np.ndarray]:
        return {key: value.detach().cpu().numpy().copy() for key, value in self.network.state_dict().items()}

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        now = self.network.state_dict()
        if weights.keys() == now.keys() and all(np.array_equal(weights[k], now[k].cpu().numpy()) for k in now):
            return  # the embeddings that are known stay right
        try:
            self.network.load_state_dict({key: torch.from_numpy(np.array(value)) for key, value in weights.items()})
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise RequestError(f"these weights are of another model: {reason[:300]}") from error
        self.changed()

    # Files

    def save(self, directory: Path) -> None:
        """Write what both transformers (AutoModel) and sentence-transformers load."""
        with quiet_transformers():
            self.network.save_pretrained(directory)
        checkpoint.save_tokenizer(self.tokenizer, directory)
        kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
        modules = [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (path, kind) in enumerate(kinds.items())
        ]
        old = {f"pooling_mode_{name}": self.config.pooling == mode for name, mode in FILE_NAMES.items()}
        prompts = {"prompts": {"default": self.prompt}, "default_prompt_name": "default"} if self.prompt else {}
        files = {
            "modules.json": modules,
            "1_Pooling/config.json": {"word_embedding_dimension": self.width} | old,
            "sentence_bert_config.json": {"max_seq_length": self.max_length, "do_lower_case": self.config.lower},
            "config_sentence_transformers.json": prompts,
        }
        (directory / "1_Pooling").mkdir(exist_ok=True)
        for name, content in files.items():
            saving.write_atomically(directory / name, (json.dumps(content, indent=2) + "\n").encode())
