import pytest

from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.generate import GENERATORS
from epida_ray.generate.morph import cropped, fragments

TEXT = "The old man bought a red car in Paris after the war ."


def made(**arguments: str) -> set[str]:
    (answer,) = GENERATORS.create("morph", **arguments).generate([Sample("a", TEXT)], 30, [1])
    assert isinstance(answer, Candidates)
    assert set(answer.operations) == {arguments["action"]}
    return set(answer.texts)


def test_crop_leaves_out_phrases_but_not_subject_and_verb() -> None:
    texts = made(action="crop")
    assert {"The old man bought a red car in Paris .", "The old man bought in Paris after the war ."} <= texts
    assert all(text.startswith("The old man bought") and text.endswith(" .") for text in texts)


def test_rotate_lets_phrases_behind_the_verb_change_places() -> None:
    assert made(action="rotate") == {
        "The old man bought in Paris a red car after the war .",
        "The old man bought after the war in Paris a red car .",
        "The old man bought a red car after the war in Paris .",
    }


def test_a_text_without_phrases_is_rejected() -> None:
    answers = GENERATORS.create("morph").generate([Sample("a", "Why ?"), Sample("b", "Paris")], 3, [1, 2])
    assert all(isinstance(answer, Rejected) for answer in answers)


@pytest.mark.parametrize(
    ("text", "gone", "left"),
    [
        ("In May, what did he win?", ["In May"], "What did he win?"),
        ("in May , what did he win ?", ["in May"], "what did he win ?"),
        ("He went home. Really, the big dog slept.", ["Really"], "He went home. The big dog slept."),
        ("He went home. Really, the big dog slept.", ["Really", "the big dog"], "He went home. Slept."),
        ("We met. The cat slept there.", ["The cat"], "We met. Slept there."),
        ("She read a book, quickly, at home.", ["quickly"], "She read a book, at home."),
        ("She read a book, at home.", ["at home"], "She read a book."),
        ("She came home, quickly", ["quickly"], "She came home"),
        ("She gave him (in May) a book.", ["in May"], "She gave him a book."),
        ("She came home .", ["home"], "She came ."),
        ("She came home. At night.", ["At night"], "She came home."),
    ],
)
def test_no_mark_of_a_phrase_that_is_left_out_stays_behind(text: str, gone: list[str], left: str) -> None:
    assert cropped(text, {(text.index(part), text.index(part) + len(part)) for part in gone}) == left


def test_what_follows_a_preposition_stays_and_no_sentence_loses_its_beginning() -> None:
    text = "In 1999 , he met the old man . The big dog saw a cat ."
    loose, behind = ([text[a:b] for a, b in spans] for spans in fragments(text, ()))
    assert "1999" not in loose and "The big dog" not in behind and {"the old man", "a cat"} <= set(behind)
