"""Texts made the fast way are those that TextAttack makes, with the same attributes."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.skipif(find_spec("textattack") is None, reason="textattack is not installed")

PLAIN = ["cat", "It's", "well-known", "don't", "a_b", "naïve", "жар", "I", "o", "l", "the", "the", "Split"]
ODD = ["'quoted'", "x@y.com", "3.50", "#tag", "日本", "...", "-", "<SPLIT>", "😀", "two words", ""]
WORDS = st.one_of(st.sampled_from(PLAIN + ODD), st.text(max_size=6))


@pytest.fixture(scope="module", autouse=True)
def fast() -> None:
    from epida_ray.generate.from_textattack import _prepare

    _prepare()


def outcome(make: Any) -> Any:
    """What there is to see of a text, or the kind of error."""
    try:
        made = make()
    except (ValueError, IndexError, TypeError) as error:
        return type(error)
    known = {name: value for name, value in made.attack_attrs.items() if name != "previous_attacked_text"}
    known["original_index_map"] = known["original_index_map"].tolist()
    return made.text, made.words, known, made.column_labels


@settings(max_examples=600, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=12), st.data())
def test_changed_words(pieces: list[str], data: st.DataObject) -> None:
    """Exchanged, deleted, or with another word before or after it; three times over."""
    from textattack.shared import AttackedText

    text = AttackedText(" ".join(pieces))
    for _ in range(3):
        count = len(text.words)
        if not count:
            return
        index = data.draw(st.integers(0, count - 1))
        new = data.draw(st.one_of(WORDS, WORDS.map(lambda w, i=index, t=text: f"{w} {t.words[i]}"), st.just("")))
        words = list(text.words)
        words[index] = new
        expected = outcome(lambda words=words, text=text: text.generate_new_attacked_text(words))
        assert outcome(lambda i=index, new=new, text=text: text.replace_word_at_index(i, new)) == expected
        if isinstance(expected, type):
            return
        text = text.replace_word_at_index(index, new)


def test_a_wrong_request_is_refused_as_before() -> None:
    from textattack.shared import AttackedText

    text = AttackedText("one two three")
    with pytest.raises(ValueError, match="Cannot assign"):
        text.replace_word_at_index(-1, "zero")
    with pytest.raises(TypeError, match="requires"):
        text.replace_word_at_index(0, 3)
