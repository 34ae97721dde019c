"""How the states of a text's tokens become one vector, as the files of a checkpoint say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch

from epida_ray.core.errors import RequestError

POOLINGS = ("mean", "cls", "max", "lasttoken")
FILE_NAMES = {"mean_tokens": "mean", "cls_token": "cls", "max_tokens": "max", "lasttoken": "lasttoken"}
"""Names in the files of sentence-transformers."""


class SentenceConfig(NamedTuple):
    """What a directory of sentence-transformers says beside its network; the defaults are those of any other."""

    pooling: str = "mean"
    lower: bool = False
    prompt: str = ""
    max_length: int | None = None


def pool(hidden: torch.Tensor, mask: torch.Tensor, how: str) -> torch.Tensor:
    """Return [N, D] from states [N, L, D] and the mask [N, L] of what is no padding."""
    inside = mask.unsqueeze(-1)
    if how == "mean":
        return (hidden * inside).sum(dim=1) / inside.sum(dim=1).clamp(min=1)
    if how == "max":
        return hidden.masked_fill(inside == 0, -torch.inf).amax(dim=1)
    rows = torch.arange(len(hidden), device=hidden.device)
    first = mask.argmax(dim=1)
    return hidden[rows, first if how == "cls" else first + mask.sum(dim=1) - 1]


def sentence_config(model: str) -> SentenceConfig | None:
    """Return what the files of sentence-transformers say, or None when the checkpoint has none."""
    modules = _json(model, "modules.json")
    if modules is None:
        return None
    pooling = "mean"
    for module in modules:
        kind = str(module["type"]).rpartition(".")[2]
        if kind == "Pooling":
            pooling = _pooling(model, _json(model, f"{module['path']}/config.json") or {})
        elif kind not in ("Transformer", "Normalize"):
            raise RequestError(f"{model} has a {kind} module; only Transformer, Pooling and Normalize can be used")
    options = _json(model, "sentence_bert_config.json") or {}
    prompts = _json(model, "config_sentence_transformers.json") or {}
    prompt = (prompts.get("prompts") or {}).get(prompts.get("default_prompt_name"), "")
    return SentenceConfig(pooling, bool(options.get("do_lower_case", False)), prompt, options.get("max_seq_length"))


def _pooling(model: str, config: Mapping[str, Any]) -> str:
    modes = config.get("pooling_mode") or [
        key.removeprefix("pooling_mode_")
        for key, on in config.items()
        if key.startswith("pooling_mode_") and on is True
    ]
    modes = [modes] if isinstance(modes, str) else list(modes)
    names = [FILE_NAMES.get(mode, mode) for mode in modes]
    if len(names) != 1 or names[0] not in POOLINGS:
        raise RequestError(
            f"{model} pools by {', '.join(names) or 'nothing'}; one of {', '.join(POOLINGS)} is required"
        )
    return names[0]


def _json(model: str, name: str) -> Any:
    """Return the content of a checkpoint's file, or None where it has none."""
    hub: Any = import_module("transformers.utils.hub")
    optional = ("gated_repo", "missing_entries", "connection_errors")
    path = hub.cached_file(model, name, **{f"_raise_exceptions_for_{what}": False for what in optional})
    try:
        return None if path is None else json.loads(Path(path).read_bytes())
    except ValueError as error:
        raise RequestError(f"{path} cannot be read as JSON: {error}") from error
