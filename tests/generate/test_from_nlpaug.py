import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epida_ray.core.sample import Sample
from epida_ray.generate import GENERATORS
from epida_ray.generate.from_nlpaug import joined, tokens

pytest.importorskip("nlpaug")


@settings(deadline=None)
@given(st.text(st.characters(exclude_characters="\u2060\u2063"), max_size=60))
def test_tokens_join_to_the_text(text: str) -> None:
    assert joined(tokens(text)) == " ".join(text.split())


def test_punctuation_and_hashtags_survive_nlpaug() -> None:
    text = "It's great, don't you think? #film @bob https://t.co/x (really)"
    (answer,) = GENERATORS.create("nlpaug:KeyboardAug").generate([Sample("a", text)], 8, [1])
    for candidate in answer.texts:
        assert all(part in candidate for part in ("#film @bob https://t.co/x", "?", "(", ")", ","))
        assert len(candidate.split()) == len(text.split())
