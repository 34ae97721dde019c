"""A pretrained sentence encoder with a logistic head: the classifier for few labels.

The head is the optimum of a convex problem on the embeddings, found in a fraction of a second. A frozen encoder embeds
each text once, and only the head, some kilobytes, is published to scorers.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from epida_ray.classify import checkpoint, saving
from epida_ray.classify.engine import softmax
from epida_ray.classify.logistic import Head, fit_head
from epida_ray.classify.pooling import pool
from epida_ray.classify.sentence import SentenceEncoder
from epida_ray.classify.targets import distributions
from epida_ray.core.errors import RequestError

HEAD = "head.safetensors"
STRENGTH = 10.0
"""As good as what cross-validation finds, over eight small data sets, and the same in every round."""
TUNE = ("none", "contrastive", "full")
RATES = {"none": 0.0, "contrastive": 3e-5, "full": 1e-4}
TEMPLATES = ("{}", "This text is about {}.")
"""What a class is called, as texts of that class."""


class _Graph(nn.Module):
    def __init__(self, encoder: SentenceEncoder, head: Head, temperature: float) -> None:
        super().__init__()
        self.network, self.pooling = encoder.network, encoder.config.pooling
        self.weight, self.bias = torch.from_numpy(head.weight), torch.from_numpy(head.bias)
        self.temperature = temperature

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = self.network(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        x = F.normalize(pool(hidden, attention_mask, self.pooling), dim=1)
        return softmax(F.linear(x, self.weight, self.bias), self.temperature)


class Encoder:
    """`model` is a directory of sentence-transformers, any AutoModel directory or a hub name; MiniLM-L6 by default.

    `tune` is `none` (the encoder is frozen), `contrastive` or `full`; it happens in the first `fit`. With `retune` it
    happens in each, from the weights of `model` and with all texts of that `fit`. `strength` is the weight of the
    data against the regulariser. With `label_names`, the names of the classes are training texts, too: for names that
    mean something, and a handful of rows.
    """

    name = "encoder"

    def __init__(
        self,
        model: str | Path | None = None,
        labels: Sequence[str] | None = None,
        *,
        tune: str = "none",
        steps: int = 80,
        learning_rate: float | None = None,
        retune: bool = False,
        threads: int = 1,
        strength: float = STRENGTH,
        label_names: bool = False,
        max_length: int | None = None,
        prompt: str | None = None,
        cache: bool = True,
        token_budget: int | None = None,
        device: str = "auto",
        seed: int = 0,
    ) -> None:
        self.labels = saving.checked_labels(labels)
        if tune not in TUNE or steps < 1 or threads < 1 or not (learning_rate is None or learning_rate > 0):
            raise RequestError(
                f"an encoder takes tune {', '.join(TUNE)}, steps >= 1, threads >= 1 and learning_rate > 0"
            )
        if strength <= 0:
            raise RequestError(f"strength must be greater than 0, not {strength}")
        self.tune, self.steps, self.retune, self.threads = tune, int(steps), bool(retune), int(threads)
        self.learning_rate = RATES[tune] if learning_rate is None else float(learning_rate)
        self.strength, self.label_names = strength, bool(label_names)
        self.temperature = 1.0
        self.source = "MiniLM-L6" if model is None else str(model)
        folder = str(checkpoint.minilm_directory() if model is None else model)
        self.encoder = SentenceEncoder(
            folder, max_length=max_length, prompt=prompt, cache=cache, token_budget=token_budget, device=device
        )
        self._tuned = 0
        """How many times the encoder was tuned."""
        self._original = self.encoder.weights() if self.retune and tune != "none" else {}
        """What every tuning starts from; kept only where there can be more than one."""
        classes, width = len(self.labels), self.encoder.width
        self._head = Head(np.zeros((classes, width), np.float32), np.zeros(classes, np.float32))

    def describe(self) -> str:
        name = Path(self.source).name if Path(self.source).is_dir() else self.source
        how = "frozen" if self.tune == "none" else f"tuned ({self.tune})"
        return (
            f"sentence encoder {name} ({self.encoder.parameters() / 1e6:.1f} M parameters, {how}) with a logistic head"
        )

    # Scoring

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return float32 [N, width], rows of length one; the same bits in any batch."""
        return self.encoder.embed(texts)

    def predict_proba(self, texts: Sequence[str]) -> np.ndarray:
        """Return float32 [N, C]. A text's probabilities are the same bits in any batch."""
        x = self.embed(texts).astype(np.float64)
        # einsum, as a matrix product's last bits depend on the number of rows
        logits = (np.einsum("nd,cd->nc", x, self._head.weight.astype(np.float64)) + self._head.bias) / self.temperature
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        return (p / p.sum(axis=1, keepdims=True)).astype(np.float32)

    @property
    def tokenizer(self) -> Any:
        return self.encoder.tokenizer

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        return self.encoder.tokenize(texts)

    def graph(self) -> nn.Module:
        """Return a module from token ids and their mask to probabilities, for ONNX."""
        return _Graph(self.encoder, self._head, self.temperature)

    # Training

    def fit(
        self, texts: Sequence[str], y: np.ndarray, weights: np.ndarray, seed: int, mixup: float | None = None
    ) -> None:
        """Tune the encoder if that is due, then find the head's optimum; it does not depend on the earlier head.

        With `mixup`, the A of Beta(A, A), the head learns from mixtures of embeddings.
        """
        texts, a = self._targets(texts, y, weights)
        if self.tune != "none" and (self.retune or not self._tuned):
            from epida_ray.classify.tuning import tune

            if self._original:
                self.encoder.load_weights(self._original)
            tune(
                self.encoder,
                texts,
                a,
                self.tune,
                steps=self.steps,
                learning_rate=self.learning_rate,
                seed=(seed, self._tuned),
                threads=self.threads,
            )
            self._tuned += 1
        self._fit_head(texts, a, seed, mixup)

    def refit(
        self, texts: Sequence[str], y: np.ndarray, weights: np.ndarray, seed: int, mixup: float | None = None
    ) -> None:
        """Find the head's optimum on other rows, and leave the encoder as it is."""
        self._fit_head(*self._targets(texts, y, weights), seed, mixup)

    def _targets(self, texts: Sequence[str], y: np.ndarray, weights: np.ndarray) -> tuple[Sequence[str], np.ndarray]:
        """Return texts and [N, C]: the targets of each times its weight."""
        a = distributions(y, len(self.labels)) * np.asarray(weights, np.float64)[:, None]
        return _with_label_names(texts, a, self.labels) if self.label_names else (texts, a)

    def _fit_head(self, texts: Sequence[str], a: np.ndarray, seed: int, mixup: float | None) -> None:
        x = self.embed(texts)
        if mixup is not None:
            from epida_ray.classify.mixup import mixed_rows

            x, a = mixed_rows(x, a, mixup, seed)
        self._head = fit_head(x, a, self.strength)

    # Weights and files

    def state(self) -> dict[str, np.ndarray]:
        """Return the head, and with a tuned encoder all its weights."""
        state = {key: value.copy() for key, value in self._head._asdict().items()}
        state["temperature"] = np.array(self.temperature, np.float32)
        if self.tune == "none":
            return state
        state["tuned"] = np.array(self._tuned, np.int64)
        return state | {f"encoder/{key}": value for key, value in self.encoder.weights().items()}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        rest = {k: v for k, v in state.items() if k not in ("temperature", "tuned") and not k.startswith("encoder/")}
        head = self._checked_head(rest)
        encoder = {k.removeprefix("encoder/"): v for k, v in state.items() if k.startswith("encoder/")}
        if bool(encoder) != (self.tune != "none"):
            raise RequestError("these weights are of another model: one encoder is frozen and the other is tuned")
        if encoder:
            self.encoder.load_weights(encoder)
            self._tuned = int(state["tuned"])
        self._head = head
        self.temperature = float(state.get("temperature", self.temperature))

    def _checked_head(self, arrays: Mapping[str, np.ndarray]) -> Head:
        shapes = {key: value.shape for key, value in self._head._asdict().items()}
        return Head(**saving.checked_state(arrays, shapes))

    def save(self, directory: str | Path) -> None:
        """Write a directory that sentence-transformers and transformers (AutoModel) load too."""
        from safetensors.numpy import save

        target = Path(directory)
        target.mkdir(parents=True, exist_ok=True)
        options = {
            "label_names": self.label_names,
            "learning_rate": self.learning_rate or None,
            "max_length": self.encoder.max_length,
            "prompt": self.encoder.prompt,
            "retune": self.retune,
            "steps": self.steps,
            "strength": self.strength,
            "threads": self.threads,
            "tune": self.tune,
        }
        config = {
            "classifier": self.name,
            "labels": list(self.labels),
            "options": options,
            "source": self.source,
            "temperature": self.temperature,
            "tuned": self._tuned,
        }
        with tempfile.TemporaryDirectory(dir=target, prefix=".saving-") as folder:
            made = Path(folder)
            self.encoder.save(made)
            (made / HEAD).write_bytes(save(self._head._asdict()))
            (made / saving.OPTIONS).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
            for path in sorted(made.rglob("*"), key=lambda p: (not p.is_dir(), p.name == saving.CONFIG)):
                place = target / path.relative_to(made)  # the configuration last: without one it is not a model
                if path.is_dir():
                    place.mkdir(exist_ok=True)
                else:
                    path.replace(place)

    @classmethod
    def load(cls, directory: Path, config: Mapping[str, Any]) -> Encoder:
        said = json.loads((directory / saving.OPTIONS).read_bytes())
        classifier = cls(directory, said["labels"], **said["options"])
        classifier._head = classifier._checked_head(saving.read_tensors(directory, HEAD))
        classifier.source, classifier._tuned = str(said["source"]), int(said["tuned"])
        classifier.temperature = float(said["temperature"])
        return classifier


def _with_label_names(texts: Sequence[str], a: np.ndarray, labels: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Return texts and targets with those of the classes' names, each of which weighs as much as a text does."""
    names = [" ".join(re.split(r"[\W_]+", label)).strip() or label for label in labels]
    weight = a.sum() / len(texts)
    more = np.repeat(np.eye(len(labels)), len(TEMPLATES), axis=0) * weight
    return [*texts, *(t.format(name) for name in names for t in TEMPLATES)], np.concatenate([a, more])
