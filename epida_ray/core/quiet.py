"""Load models with transformers without its messages and progress bars."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from importlib import import_module
from typing import Any


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers while a model is loaded; errors are raised, not printed."""
    logging: Any = import_module("transformers.utils.logging")
    said, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.set_verbosity(said)
        if bar:
            logging.enable_progress_bar()
