"""Logistic regression on hashed n-grams: words, word pairs and the letters inside words. Trains in seconds.

Each n-gram that occurs in the training set has a column, found again by a 64-bit hash. A text's n-grams are weighted
by idf and scaled to length one; a text with no known n-gram gets the classes' bias alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from epida_ray.classify import kernels, saving
from epida_ray.classify.targets import distributions
from epida_ray.classify.threads import torch_threads
from epida_ray.classify.tokens import Vocabulary
from epida_ray.core.errors import RequestError

CAPACITY = 200_000


class Linear:
    """`strength` is the weight of the data against the regulariser (scikit-learn's C)."""

    name = "linear"

    def __init__(
        self,
        labels: Sequence[str],
        *,
        letters: Sequence[int] = (3, 4),
        pairs: bool = True,
        strength: float = 30.0,
        max_words: int = 2048,
        seed: int = 0,
    ) -> None:
        self.labels = saving.checked_labels(labels)
        self.letters = tuple(int(n) for n in letters)
        if any(n < 1 for n in self.letters) or strength <= 0 or max_words < 1:
            raise RequestError("the linear classifier needs letters >= 1, strength > 0 and max_words >= 1")
        self.pairs, self.strength, self.max_words = bool(pairs), float(strength), int(max_words)
        self.temperature = 1.0
        self._vocabulary = Vocabulary(self.max_words, CAPACITY)
        self._generation = -1
        self._grams: list[np.ndarray] = []
        self._hashes = np.empty(0, np.uint64)
        self._idf = np.empty(0, np.float32)
        self._weight = np.empty((0, len(self.labels)), np.float32)
        self._bias = np.zeros(len(self.labels), np.float32)

    def describe(self) -> str:
        many = f"{len(self._hashes):,} " if len(self._hashes) else ""
        return f"logistic regression on {many}hashed n-grams"

    # Features

    def _features(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the hashes of all n-grams of all texts, text by text, and the offsets of each text."""
        words, offsets = self._vocabulary.encode(texts)
        if self._generation != self._vocabulary.generation:
            self._generation, self._grams = self._vocabulary.generation, [np.empty(0, np.uint64)]
        self._grams += [self._word_grams(w) for w in self._vocabulary.words[len(self._grams) :]]
        grams = [self._grams[i] for i in words]
        flat = np.concatenate([*grams, np.empty(0, np.uint64)])
        lengths = np.fromiter(map(len, grams), np.int64, len(grams))
        ends = np.concatenate([[0], np.cumsum(lengths)])
        if not self.pairs:
            return flat, ends[offsets]
        first = np.array([g[0] for g in grams], np.uint64)
        pair = np.concatenate([_mix(first[:-1], first[1:]), np.zeros(min(1, len(first)), np.uint64)])
        pair[offsets[1:][offsets[1:] > offsets[:-1]] - 1] = 0  # nothing follows the last word of a text
        joined = np.insert(flat, ends[1:], pair)
        return joined, ends[offsets] + offsets

    def _word_grams(self, word: str) -> np.ndarray:
        marked = f"\x02{word}\x03"
        grams = [word, *(marked[i : i + n] for n in self.letters for i in range(len(marked) - n + 1))]
        tagged = (f"{len(g)}\0{g}" if k else f"w\0{g}" for k, g in enumerate(grams[:200]))
        digests = [blake2b(g.encode("utf-8", "surrogatepass"), digest_size=8).digest() for g in tagged]
        return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)

    def _columns(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return column numbers (-1 for an n-gram that was not in the training set) and offsets."""
        grams, offsets = self._features(texts)
        if not len(self._hashes):
            return np.full(len(grams), -1, np.int64), offsets
        at = np.minimum(np.searchsorted(self._hashes, grams), len(self._hashes) - 1)
        return np.where(self._hashes[at] == grams, at, -1), offsets

    # Scoring

    def predict_proba(self, texts: Sequence[str]) -> np.ndarray:
        """Return float32 [N, C]. A text's probabilities have the same bits in any batch."""
        columns, offsets = self._columns(texts)
        out = np.empty((len(texts), len(self.labels)), np.float32)
        kernels.linear(columns, offsets, self._idf, self._weight, self._bias, np.float32(self.temperature), out)
        return out

    # Training

    def fit(self, texts: Sequence[str], y: np.ndarray, weights: np.ndarray, seed: int) -> None:
        """Find the optimum of a convex problem: it does not depend on earlier weights or on the seed."""
        grams, offsets = self._features(texts)
        present = grams != 0
        rows = np.repeat(np.arange(len(texts)), np.diff(offsets))[present]
        self._hashes, columns = np.unique(grams[present], return_inverse=True)
        seen = np.unique(rows * len(self._hashes) + columns)
        documents = np.bincount(seen % max(1, len(self._hashes)), minlength=len(self._hashes))
        self._idf = (1 + np.log((1 + len(texts)) / (1 + documents))).astype(np.float32)
        each = np.asarray(weights, np.float64) * self.strength
        self._weight, self._bias = _optimum(rows, columns, self._idf, distributions(y, len(self.labels)), each)

    # Weights and files

    def state(self) -> dict[str, np.ndarray]:
        return self._arrays() | {"temperature": np.array(self.temperature, np.float32)}

    def _arrays(self) -> dict[str, np.ndarray]:
        arrays: dict[str, np.ndarray] = {
            "hashes": self._hashes,
            "idf": self._idf,
            "weight": self._weight,
            "bias": self._bias,
        }
        return {key: value.copy() for key, value in arrays.items()}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        n, c = len(state.get("hashes", ())), len(self.labels)
        shapes = {"idf": (n,), "weight": (n, c), "bias": (c,)}
        checked = saving.checked_state({k: v for k, v in state.items() if k not in ("hashes", "temperature")}, shapes)
        self._hashes = np.array(state["hashes"], np.uint64)
        self._idf, self._weight, self._bias = checked["idf"], checked["weight"], checked["bias"]
        self.temperature = float(state.get("temperature", self.temperature))

    def save(self, directory: str | Path) -> None:
        saving.write(
            Path(directory),
            self._arrays(),
            {
                "classifier": self.name,
                "labels": list(self.labels),
                "letters": list(self.letters),
                "pairs": self.pairs,
                "strength": self.strength,
                "max_words": self.max_words,
                "temperature": self.temperature,
            },
        )

    @classmethod
    def load(cls, directory: Path, config: Mapping[str, Any]) -> Linear:
        options = {key: config[key] for key in ("letters", "pairs", "strength", "max_words")}
        classifier = cls(config["labels"], **options)
        classifier.load_state(saving.read_tensors(directory))
        classifier.temperature = float(config["temperature"])
        return classifier


def _mix(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a hash of two hashes, in this order."""
    x = (a ^ (b >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15) + b
    x ^= x >> np.uint64(32)
    return x * np.uint64(0xD6E8FEB86659FD93)


def _optimum(
    rows: np.ndarray, columns: np.ndarray, idf: np.ndarray, targets: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Fit multinomial logistic regression by L-BFGS in double precision; return weights [columns, classes] and bias."""
    import torch

    texts, classes = targets.shape
    norm = np.sqrt(np.bincount(rows, idf[columns].astype(np.float64) ** 2, minlength=texts))
    values = idf[columns] / np.maximum(norm[rows], 1e-12)
    target = torch.from_numpy(targets)
    weight = torch.zeros((len(idf), classes), dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(classes, dtype=torch.float64, requires_grad=True)
    each = torch.from_numpy(weights)[:, None]
    solver: Any = torch.optim.LBFGS([weight, bias], max_iter=100, tolerance_grad=1e-4, line_search_fn="strong_wolfe")

    def closure() -> float:
        with torch.no_grad():
            logits = bias.repeat(texts, 1)
            kernels.gather_rows(rows, columns, values, weight.detach().numpy(), logits.numpy())
            log_p = torch.log_softmax(logits, dim=1)
            error = (log_p.exp() - target) * each
            weight.grad = weight.detach().clone()
            kernels.gather_rows(columns, rows, values, error.numpy(), weight.grad.numpy())
            bias.grad = error.sum(dim=0)
            return float(-(target * log_p * each).sum() + 0.5 * (weight**2).sum())

    with torch_threads(1):
        solver.step(closure)
    return weight.detach().numpy().astype(np.float32), bias.detach().numpy().astype(np.float32)
