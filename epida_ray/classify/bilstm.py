"""A bidirectional LSTM with attention over frozen word vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from epida_ray.classify import Defaults, saving
from epida_ray.classify.bilstm_network import Network
from epida_ray.classify.engine import Engine, pick_device, softmax
from epida_ray.classify.tokens import Vocabulary
from epida_ray.classify.vectors import WordVectors, find, resolve
from epida_ray.core.errors import RequestError

CAPACITY = 200_000


class BiLSTM:
    """A text longer than `max_words` words is cut there; an empty text is one zero vector."""

    name = "bilstm"
    defaults = Defaults(epochs=30, steps=3000, batch_size=32, learning_rate=3e-3, weight_decay=0.01)

    def __init__(
        self,
        labels: Sequence[str],
        *,
        vectors: str | WordVectors = "auto",
        hidden: int = 100,
        dropout: float = 0.5,
        max_words: int = 256,
        device: str = "auto",
        seed: int = 0,
    ) -> None:
        self.labels = saving.checked_labels(labels)
        if hidden < 1 or max_words < 1 or not 0 <= dropout < 1:
            raise RequestError("the BiLSTM needs hidden >= 1, max_words >= 1 and 0 <= dropout < 1")
        self.hidden, self.dropout, self.max_words = int(hidden), float(dropout), int(max_words)
        self.vectors = resolve(vectors)
        self.temperature = 1.0
        self.device = pick_device(device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = Network(self.vectors.dimension, self.hidden, self.dropout, len(self.labels))
        self.network = network.to(self.device).eval()
        self._vocabulary = Vocabulary(self.max_words, CAPACITY)
        self._probabilities = Engine(self._tokenize, self._forward, token_budget=8192)
        self._hidden = Engine(self._tokenize, self._embed, token_budget=8192)

    def describe(self) -> str:
        return f"BiLSTM with attention (2 x {self.hidden}) over {self.vectors.describe()}"

    def predict_proba(self, texts: Sequence[str]) -> np.ndarray:
        return self._probabilities.run(texts, len(self.labels))

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return float32 [N, 2 x hidden]: the attended states that the linear layer reads."""
        return self._hidden.run(texts, 2 * self.hidden)

    def _tokenize(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return rows of word vectors: looking them up is part of the work done ahead of the forward pass."""
        words, offsets = self._vocabulary.encode(texts)
        used, local = np.unique(words, return_inverse=True)
        names = self._vocabulary.words
        rows = self.vectors.rows([names[i] for i in used])[local]
        empty = np.zeros((1, self.vectors.dimension), np.float32)
        return [rows[a:b] if b > a else empty for a, b in pairwise(offsets)]

    def _inputs(self, tokens: Sequence[Any]) -> dict[str, torch.Tensor]:
        return {name: value.to(self.device) for name, value in padded(tokens).items()}

    def _forward(self, tokens: Sequence[Any]) -> torch.Tensor:
        self.network.eval()
        return softmax(self.network(**self._inputs(tokens)), self.temperature)

    def _embed(self, tokens: Sequence[Any]) -> torch.Tensor:
        self.network.eval()
        return self.network.features(**self._inputs(tokens))

    def state(self) -> dict[str, np.ndarray]:
        state = {key: value.detach().cpu().numpy().copy() for key, value in self.network.state_dict().items()}
        return state | {"temperature": np.array(self.temperature, np.float32)}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        shapes = {key: tuple(value.shape) for key, value in self.network.state_dict().items()}
        weights = saving.checked_state({k: v for k, v in state.items() if k != "temperature"}, shapes)
        self.network.load_state_dict({key: torch.from_numpy(value) for key, value in weights.items()})
        self.temperature = float(state.get("temperature", self.temperature))

    def save(self, directory: str | Path) -> None:
        state = self.state()
        del state["temperature"]
        saving.write(
            Path(directory),
            state,
            {
                "classifier": self.name,
                "labels": list(self.labels),
                "vectors": self.vectors.spec,
                "hidden": self.hidden,
                "dropout": self.dropout,
                "max_words": self.max_words,
                "temperature": self.temperature,
            },
        )

    @classmethod
    def load(cls, directory: Path, config: Mapping[str, Any]) -> BiLSTM:
        options = {key: config[key] for key in ("hidden", "dropout", "max_words")}
        classifier = cls(config["labels"], vectors=find(config["vectors"]), **options)
        classifier.load_state(saving.read_tensors(directory))
        classifier.temperature = float(config["temperature"])
        return classifier

    def module(self) -> nn.Module:
        return self.network

    def parameter_groups(self, module: nn.Module, learning_rate: float, weight_decay: float) -> list[dict[str, Any]]:
        return [{"params": list(module.parameters()), "lr": learning_rate, "weight_decay": weight_decay}]

    def mix_inputs(
        self, inputs: Mapping[str, torch.Tensor], share: float, partner: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Return the module's arguments for mixtures of texts, word by word; each is as long as its longer part."""
        words, lengths = inputs["words"], inputs["lengths"]
        return {
            "words": share * words + (1 - share) * words[partner],
            "lengths": torch.maximum(lengths, lengths[partner]),
        }

    def table(self, texts: Sequence[str]) -> SequenceTable:
        return SequenceTable(self._tokenize(texts))


class SequenceTable:
    """Word vectors of texts, padded batch by batch."""

    def __init__(self, rows: Sequence[np.ndarray]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, rows: np.ndarray) -> dict[str, torch.Tensor]:
        return padded([self.rows[i] for i in rows])


def padded(texts: Sequence[Any]) -> dict[str, torch.Tensor]:
    lengths = [len(t) for t in texts]
    words = np.zeros((len(texts), max(lengths), texts[0].shape[1]), np.float32)
    for i, rows in enumerate(texts):
        words[i, : len(rows)] = rows
    return {"words": torch.from_numpy(words), "lengths": torch.tensor(lengths)}
