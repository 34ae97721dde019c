"""The paper's CNN (Kim, 2014) over frozen word vectors.

On a CPU the scores come from compiled loops that multiply each distinct word by all filters once and then sum windows
by look-up: equal to the convolution within rounding, and many times faster. Torch is imported for training only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from epida_ray.classify import Defaults, kernels, saving
from epida_ray.classify.tokens import Vocabulary
from epida_ray.classify.vectors import WordVectors, find, resolve
from epida_ray.core.errors import RequestError

if TYPE_CHECKING:
    import torch

    from epida_ray.classify.cnn_network import Network

CACHE_BYTES = 384 << 20
"""What a scorer may keep of the words it has seen: about 100,000 of them with 50-dimensional vectors."""

SLICE = 1024
"""Texts that are scored together: their features stay in a core's cache."""


class CNN:
    """Filters of several widths, max over time, dropout, one linear layer.

    A text shorter than the widest filter is padded with zero vectors at its end up to that width; a text longer than
    `max_words` words is cut there. An empty text is all padding.
    """

    name = "cnn"
    defaults = Defaults(epochs=60, steps=5000, batch_size=16, learning_rate=5e-3, weight_decay=0.01)

    def __init__(
        self,
        labels: Sequence[str],
        *,
        vectors: str | WordVectors = "auto",
        filters: Sequence[int] = (2, 3, 4),
        channels: int = 100,
        dropout: float = 0.5,
        max_words: int = 512,
        seed: int = 0,
    ) -> None:
        self.labels = saving.checked_labels(labels)
        self.filters = tuple(int(w) for w in filters)
        if not self.filters or min(self.filters) < 1 or len(set(self.filters)) < len(self.filters):
            raise RequestError(f"the CNN's filters must be different widths of at least 1, not {list(filters)}")
        if channels < 1 or max_words < max(self.filters) or not 0 <= dropout < 1:
            raise RequestError("the CNN needs channels >= 1, max_words >= its widest filter and 0 <= dropout < 1")
        self.channels = int(channels)
        self.dropout = float(dropout)
        self.max_words = int(max_words)
        self.vectors = resolve(vectors)
        self.temperature = 1.0
        row_bytes = 4 * (self.channels * sum(self.filters) + self.vectors.dimension)
        self._vocabulary = Vocabulary(self.max_words, capacity=max(1000, CACHE_BYTES // row_bytes))
        self._generation = -1
        self._rows = self._projected = np.empty((0, 0), np.float32)
        self._fresh = np.empty(0, np.bool_)
        self._state: dict[str, np.ndarray] = {}
        self.load_state(self._random_state(seed))

    def describe(self) -> str:
        widths = ", ".join(map(str, self.filters))
        return f"CNN (filters {widths} x {self.channels}) over {self.vectors.describe()}"

    # Scoring

    def predict_proba(self, texts: Sequence[str]) -> np.ndarray:
        """Return float32 [N, C]. A text's probabilities have the same bits in any batch."""
        probabilities = np.empty((len(texts), len(self.labels)), np.float32)
        for start in range(0, len(texts), SLICE):
            rows = slice(start, start + SLICE)
            kernels.classify(
                self.embed(texts[rows]),
                self._linear,
                self._linear_bias,
                np.float32(self.temperature),
                probabilities[rows],
            )
        return probabilities

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return float32 [N, filters x channels]: the pooled features that the linear layer reads."""
        words, offsets = self.encode(texts)
        if not self._fresh.all():
            used = np.zeros(len(self._fresh), np.bool_)
            used[words] = True
            stale = np.flatnonzero(used & ~self._fresh)
            kernels.project(stale, self._rows, self._filters, self._projected)
            self._fresh[stale] = True
        features = np.empty((len(offsets) - 1, self._bias.size), np.float32)
        kernels.pool(words, offsets, self._projected, self._widths, self.channels, self._bias, features)
        return features

    @property
    def word_vectors(self) -> np.ndarray:
        """Return float32 [V, D]: the vectors of the word ids that `encode` returned last."""
        return self._rows

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the word ids of all texts and the offsets of each; `word_vectors` has a row for every id."""
        encoded = self._vocabulary.encode(texts)
        words = self._vocabulary.words
        if self._generation != self._vocabulary.generation:
            self._generation = self._vocabulary.generation
            self._used = 1
            self._rows = np.zeros((1, self.vectors.dimension), np.float32)
            self._projected = np.zeros((1, self._filters.shape[1]), np.float32)
            self._fresh = np.ones(1, np.bool_)
        if self._used < len(words):
            grown = max(len(words), 2 * len(self._rows))
            if len(words) > len(self._rows):
                self._rows = _grown(self._rows, grown)
                self._projected = _grown(self._projected, grown)
                self._fresh = np.concatenate([self._fresh, np.ones(grown - len(self._fresh), np.bool_)])
            self._rows[self._used : len(words)] = self.vectors.rows(words[self._used :])
            self._fresh[self._used : len(words)] = False
            self._used = len(words)
        return encoded

    # Weights

    def state(self) -> dict[str, np.ndarray]:
        """Return all that training changes, as float32 arrays, and the temperature."""
        state = {key: value.copy() for key, value in self._state.items()}
        return state | {"temperature": np.array(self.temperature, np.float32)}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        self._state = saving.checked_state({k: v for k, v in state.items() if k != "temperature"}, self._shapes())
        self.temperature = float(state.get("temperature", self.temperature))
        kernel = [self._state[f"conv{w}.weight"] for w in self.filters]
        # [channels, dimension, width] -> columns ordered by (width, position, channel)
        self._filters = np.ascontiguousarray(
            np.concatenate([k.transpose(1, 2, 0).reshape(self.vectors.dimension, -1) for k in kernel], axis=1)
        )
        self._bias = np.concatenate([self._state[f"conv{w}.bias"] for w in self.filters])
        narrow = max(0, 8 - len(self.labels))
        self._linear = np.ascontiguousarray(np.pad(self._state["linear.weight"], ((0, narrow), (0, 0))).T)
        self._linear_bias = np.pad(self._state["linear.bias"], (0, narrow))
        self._widths = np.array(self.filters, np.int64)
        self._fresh[1:] = False

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {}
        for w in self.filters:
            shapes[f"conv{w}.weight"] = (self.channels, self.vectors.dimension, w)
            shapes[f"conv{w}.bias"] = (self.channels,)
        shapes["linear.weight"] = (len(self.labels), self.channels * len(self.filters))
        shapes["linear.bias"] = (len(self.labels),)
        return shapes

    def _random_state(self, seed: int) -> dict[str, np.ndarray]:
        random = np.random.default_rng(seed)
        shapes = self._shapes()
        state = {}
        for key, shape in shapes.items():
            fan_in = np.prod(shapes[key.replace("bias", "weight")][1:])
            state[key] = random.uniform(-(fan_in**-0.5), fan_in**-0.5, shape).astype(np.float32)
        return state

    # Files

    def save(self, directory: str | Path) -> None:
        saving.write(
            Path(directory),
            self._state,
            {
                "classifier": self.name,
                "labels": list(self.labels),
                "vectors": self.vectors.spec,
                "filters": list(self.filters),
                "channels": self.channels,
                "dropout": self.dropout,
                "max_words": self.max_words,
                "temperature": self.temperature,
            },
        )

    @classmethod
    def load(cls, directory: Path, config: Mapping[str, Any]) -> CNN:
        options = {key: config[key] for key in ("filters", "channels", "dropout", "max_words")}
        classifier = cls(config["labels"], vectors=find(config["vectors"]), **options)
        classifier.temperature = float(config["temperature"])
        classifier.load_state(saving.read_tensors(directory))
        return classifier

    # Training with torch

    def parameter_groups(
        self, module: torch.nn.Module, learning_rate: float, weight_decay: float
    ) -> list[dict[str, Any]]:
        return [{"params": list(module.parameters()), "lr": learning_rate, "weight_decay": weight_decay}]

    def module(self) -> Network:
        """Return the same network in torch, with these weights."""
        from epida_ray.classify.cnn_network import Network

        network = Network(self.vectors.dimension, self.filters, self.channels, self.dropout, len(self.labels))
        network.load_arrays(self._state)
        return network

    def mix_inputs(
        self, inputs: Mapping[str, torch.Tensor], share: float, partner: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Return the module's arguments for mixtures of texts, word by word."""
        from epida_ray.classify.cnn_network import mixed

        return mixed(**inputs, share=share, partner=partner)

    def table(self, texts: Sequence[str]) -> WordTable:
        """Return texts made ready for `module`, once for many epochs."""
        words, offsets = self.encode(texts)
        return WordTable(words, offsets, self._rows)


class WordTable:
    """Encoded texts and the vectors of their words; word 0 is the padding word."""

    def __init__(self, words: np.ndarray, offsets: np.ndarray, vectors: np.ndarray) -> None:
        used, local = np.unique(np.concatenate([[0], words]), return_inverse=True)
        self.words = local[1:].astype(np.int32)
        self.offsets = offsets
        self.vectors = vectors[used]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def batch(self, rows: np.ndarray) -> dict[str, torch.Tensor]:
        """Return the module's arguments for these texts."""
        import torch

        start, lengths = self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        words = self.words[np.repeat(start - offsets[:-1], lengths) + np.arange(offsets[-1])]
        used = np.zeros(len(self.vectors), np.bool_)
        used[0] = True
        used[words] = True
        number = np.cumsum(used, dtype=np.int32) - 1
        arrays = {"words": number[words], "offsets": offsets, "vectors": self.vectors[used]}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _grown(array: np.ndarray, rows: int) -> np.ndarray:
    larger = np.empty((rows, array.shape[1]), np.float32)
    larger[: len(array)] = array
    return larger
