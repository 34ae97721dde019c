"""The number of torch's CPU threads, for a while: the last bits of a sum depend on it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Compute with `count` threads, then go back to as many as before; where torch is not loaded, change nothing."""
    torch = sys.modules.get("torch")  # classifiers that do without torch need not wait for its import
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
