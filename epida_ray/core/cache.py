"""Find the directory for files that can be made again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """Return `EPIDA_CACHE` when that is set, else `epida_ray` in the user's cache directory."""
    if folder := os.environ.get("EPIDA_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "epida_ray"
