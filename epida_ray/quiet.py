"""transformers without its progress bars, which would run through ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


@contextmanager
def no_bars() -> Iterator[Any]:
    """Gives transformers' logging module; the bars are back afterwards if there were any."""
    logging: Any = import_module("transformers.utils.logging")
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield logging
    finally:
        if shown:
            logging.enable_progress_bar()
