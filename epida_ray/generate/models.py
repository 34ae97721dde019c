"""Loading transformers models from a folder or, when a hub name was asked for, from the hub; safetensors only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from epida_ray.core.errors import RequestError
from epida_ray.core.quiet import quiet_transformers


def load(model: str, auto_class: str, tokenizer: str = "", **options: Any) -> tuple[Any, Any]:
    """The model, ready for inference on the GPU (in half precision) when there is one, and its tokenizer."""
    import torch
    import transformers

    local = Path(model).expanduser()
    offline = local.exists() or model.startswith((".", "/", "~"))
    source = str(local) if offline else model
    try:
        with quiet_transformers():
            network = getattr(transformers, auto_class).from_pretrained(
                source, local_files_only=offline, **({"use_safetensors": True, "dtype": torch.float32} | options)
            )
            gguf = {"gguf_file": options["gguf_file"]} if "gguf_file" in options else {}
            own: Any = transformers.AutoTokenizer
            reader = own.from_pretrained(tokenizer or source, local_files_only=offline, **gguf)
    except Exception as error:  # files, packages, configurations and architectures fail without a common base
        reason = " ".join(str(error).split())[:300]
        raise RequestError(f"the model {model!r} cannot be loaded: {reason}") from error
    network.eval()
    if torch.cuda.is_available():
        network = network.half().cuda()
    return network, reader
