"""Load models with transformers: without its messages and progress bars, and without weights made up."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from logging import ERROR, getLogger
from typing import Any

from epida_ray.core.errors import RequestError


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers while a model is loaded; errors are raised, not printed."""
    logging: Any = import_module("transformers.utils.logging")
    said, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    hub = getLogger("huggingface_hub")  # it warns of every attempt to reach the hub
    heard = hub.level
    hub.setLevel(ERROR)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        hub.setLevel(heard)
        logging.set_verbosity(said)
        if bar:
            logging.enable_progress_bar()


def check_head(model: str, network: Any, missing: Iterable[str]) -> None:
    """Raise RequestError if weights of a masked language model are missing that are not copies of others.

    transformers draws them at random, so that the model would answer nonsense.
    """
    tied = list(getattr(network, "_tied_weights_keys", None) or ())
    if drawn := sorted(name for name in missing if not any(re.search(pattern, name) for pattern in tied)):
        raise RequestError(
            f"{model!r} has no head of a masked language model ({drawn[0]} is missing); name a checkpoint that was "
            "saved with it, such as bert-base-uncased or roberta-base"
        )
