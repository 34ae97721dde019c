from hypothesis import given, settings
from hypothesis import strategies as st

from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.generate.aeda import AEDA, MARKS

WORDS = st.lists(st.sampled_from(["hello", "dogs", "it's", "#a", "мир", "x-y"]), min_size=1, max_size=20)


def rewrites(text: str, n: int = 9, seed: int = 1, **options) -> Candidates:
    (answer,) = AEDA(**options).generate([Sample("a", text)], n, [seed])
    assert isinstance(answer, Candidates)
    return answer


@settings(deadline=None)
@given(WORDS, st.integers(0, 2**64 - 1))
def test_without_the_marks_the_text_is_the_original(words: list[str], seed: int) -> None:
    text = " ".join(words)
    answer = rewrites(text, seed=seed)
    assert len(set(answer.texts)) == 9
    assert set(answer.operations) == {"mark"}
    for candidate in answer.texts:
        tokens = candidate.split()
        assert " ".join(token for token in tokens if token not in MARKS) == text
        assert 1 <= len(tokens) - len(words) <= max(1, int(0.3 * (len(words) + 1)))


def test_white_space_stays() -> None:
    for candidate in rewrites("one  two\nthree").texts:
        for mark in MARKS:
            candidate = candidate.replace(f"{mark} ", "").replace(f" {mark}", "")
        assert candidate == "one  two\nthree"


def test_a_text_without_spaces_takes_marks_inside() -> None:
    texts = rewrites("我爱北京", n=20).texts
    assert any(text[0] == "我" and text[-1] == "京" for text in texts)


def test_every_candidate_of_one_word_is_found() -> None:
    assert len(rewrites("hello", n=50).texts) == 2 * len(MARKS)


def test_a_protected_phrase_is_not_split() -> None:
    text = "in new york city today"
    (answer,) = AEDA(share=1.0).generate([Sample("a", text, "x", ((3, 16),))], 30, [1])
    assert all("new york city" in candidate for candidate in answer.texts)


def test_a_wholly_protected_text_can_still_take_marks_at_its_ends() -> None:
    (answer,) = AEDA().generate([Sample("a", "new york", "x", ((0, 8),))], 4, [1])
    assert len(answer.texts) == 4
    (empty,) = AEDA().generate([Sample("a", " ")], 4, [1])
    assert isinstance(empty, Rejected)


def test_seeds() -> None:
    assert rewrites("some words in a row", seed=1) == rewrites("some words in a row", seed=1)
    assert rewrites("some words in a row", seed=1) != rewrites("some words in a row", seed=2)


def test_marks_follow_the_language() -> None:
    marks = {c for text in rewrites("我爱北京", n=40, language="zh-TW").texts for c in text} - set("我爱北京 ")
    assert marks == {"。", "；", "？", "：", "！", "，"}
    assert rewrites("one two three", language="de") == rewrites("one two three")
