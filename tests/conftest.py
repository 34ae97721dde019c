"""Shared fixtures: one local Ray for the whole session, and the real data when there is some."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium; Debian has it as chromium and chromium-driver."""
    if not shutil.which("chromium") or not shutil.which("chromedriver"):
        pytest.skip("no Chromium here: apt-get install chromium chromium-driver")
    webdriver = pytest.importorskip("selenium.webdriver", reason="pip install selenium")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1300,1000",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    yield driver
    driver.quit()
