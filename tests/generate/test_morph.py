from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.generate import GENERATORS

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
