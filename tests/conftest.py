"""Shared fixtures: one local Ray for the whole session, and the real data when there is some."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tiny_models import causal_model, marian_model, masked_model, ner_tagger, pos_tagger  # noqa: F401

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Resources are laid out in a folder of this session, not in the user's."""
    os.environ["EPIDA_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """A local Ray with two CPUs, started once."""
    import logging

    import ray

    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _node_ip_address="127.0.0.1",
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with real data sets, `$EPIDA_DATA`."""
    folder = os.environ.get("EPIDA_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("EPIDA_DATA is not set to a folder with the real data sets")
    return Path(folder)
