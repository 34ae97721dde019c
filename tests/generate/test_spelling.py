import pytest

from epida_ray.core.sample import Candidates, Sample
from epida_ray.generate.spelling import Spelling, keyboard

TEXT = "What is the best way to travel from Paris to London by train in the early morning, if you don't like planes?"


def rewrites(text: str, n: int = 30, seed: int = 1, **options) -> Candidates:
    (answer,) = Spelling(**options).generate([Sample("a", text)], n, [seed])
    assert isinstance(answer, Candidates)
    return answer


@pytest.mark.parametrize(("alpha", "edits"), [(0.1, 2), (0.3, 6)])
def test_within_the_edit_budget(alpha: float, edits: int) -> None:
    answer = rewrites(TEXT, alpha=alpha)
    assert len(set(answer.texts)) == 30
    assert set(answer.operations) == {"neighbour", "swap", "drop", "double"}
    for candidate in answer.texts:
        changed = [(a, b) for a, b in zip(TEXT.split(), candidate.split(), strict=True) if a != b]
        assert 1 <= len(changed) <= edits
        assert all(abs(len(a) - len(b)) <= 1 and len(set(a) - set(b)) <= 1 for a, b in changed)


def test_short_words_and_numbers_are_left_alone() -> None:
    for candidate in rewrites("go to 12345 big houses", n=20).texts:
        assert candidate.startswith("go to 12345 ")


def test_keyboards_follow_the_language() -> None:
    assert set(keyboard("en")["s"]) == set("adwezx")
    assert "z" in keyboard("de")["t"] and "y" in keyboard("en")["t"]
    assert keyboard("ru")["а"] and "а" not in keyboard("en")
    texts = rewrites("привет мир", n=40, language="ru")
    assert "neighbour" in texts.operations


def test_case_stays_on_a_wrong_key() -> None:
    for text, operation in zip(*rewrites("HELLO", n=20)[:2], strict=True):
        if operation == "neighbour":
            assert text.isupper()


def test_a_text_without_spaces() -> None:
    answer = rewrites("我爱北京天安门", n=10)
    assert set(answer.operations) <= {"swap", "drop", "double"}
    assert all(abs(len(text) - 7) <= 1 for text in answer.texts)
