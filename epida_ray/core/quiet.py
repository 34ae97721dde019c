"""Load models with transformers without its messages and progress bars."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from importlib import import_module
from logging import ERROR, getLogger
from typing import Any


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
