"""Loading transformers models from a folder or, when a hub name was asked for, from the hub; safetensors only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from epida_ray.core.errors import RequestError
from epida_ray.core.quiet import check_head, quiet_transformers


def load_writer(model: str) -> tuple[Any, Any]:
    """Return a model that writes texts, causal or encoder–decoder as its configuration says, and its tokenizer."""
    import transformers

    local = Path(model).expanduser()
    try:
        config: Any = transformers.AutoConfig.from_pretrained(
            str(local) if local.exists() else model,
            local_files_only=local.exists() or model.startswith((".", "/", "~")),
        )
    except Exception as error:  # of many kinds, as in `load`
        raise RequestError(f"the model {model!r} cannot be loaded: {' '.join(str(error).split())[:300]}") from error
    return load(model, "AutoModelForSeq2SeqLM" if config.is_encoder_decoder else "AutoModelForCausalLM")


def load(model: str, auto_class: str, tokenizer: str = "", **options: Any) -> tuple[Any, Any]:
    """Return the model, ready for inference, on the GPU in half precision if there is one, and its tokenizer."""
    import torch
    import transformers

    local = Path(model).expanduser()
    offline = local.exists() or model.startswith((".", "/", "~"))
    source = str(local) if offline else model
    try:
        with quiet_transformers():
            network, info = getattr(transformers, auto_class).from_pretrained(
                source,
                local_files_only=offline,
                output_loading_info=True,
                **({"use_safetensors": True, "dtype": torch.float32} | options),
            )
            gguf = {"gguf_file": options["gguf_file"]} if "gguf_file" in options else {}
            own: Any = transformers.AutoTokenizer
            reader = own.from_pretrained(tokenizer or source, local_files_only=offline, **gguf)
    except Exception as error:  # files, packages, configurations and architectures fail without a common base
        reason = " ".join(str(error).split())[:300]
        raise RequestError(f"the model {model!r} cannot be loaded: {reason}") from error
    if auto_class == "AutoModelForMaskedLM":
        check_head(model, network, info["missing_keys"])
    network.eval()
    if torch.cuda.is_available():
        network = network.half().cuda()
    return network, reader
