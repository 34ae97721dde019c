import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epida_ray.generate.words import is_spaced, split

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)


def joined(glue: list[str], cores: list[str]) -> str:
    return "".join(g + c for g, c in zip(glue, [*cores, ""], strict=True))


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("It's a well-known fact, don’t you think?", ["It's", "a", "well-known", "fact", "don’t", "you", "think"]),
        ("see https://a.b/c?d=e#f now, or www.x.org/y", ["see", "now", "or"]),
        ("@ann loves #sunny_days, mail bob.x@mail.org", ["loves", "mail"]),
        ("so happy 😀👍🏽❤️ :D <3 xD 1️⃣ ok", ["so", "happy", "ok"]),
        (
            "$5.00 is 50% of 1,000 at 10:30 in the U.S.",
            ["$5.00", "is", "50%", "of", "1,000", "at", "10:30", "in", "the", "U.S"],
        ),
        ("Tom &amp; Jerry &#39;s", ["Tom", "Jerry", "s"]),
        ("Привет, мир!", ["Привет", "мир"]),
        ("हिन्दी में été", ["हिन्दी", "में", "été"]),
        ("我爱hello世界。", ["我", "爱", "hello", "世", "界"]),
        ("ラーメン", ["ラ", "ー", "メ", "ン"]),
        ("สวัสดี", ["ส", "วั", "ส", "ดี"]),
        ("... !!! ___ --", []),
        ("", []),
    ],
)
def test_words_are_found(text: str, cores: list[str]) -> None:
    glue, found = split(text)
    assert found == cores
    assert joined(glue, found) == text


@settings(deadline=None)
@given(ANY_TEXT, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=4))
def test_nothing_is_lost_and_no_protected_character_is_in_a_word(text: str, spans: list[tuple[int, int]]) -> None:
    glue, cores = split(text, spans)
    assert joined(glue, cores) == text
    place = 0
    for g, core in zip(glue, cores, strict=False):
        start = place + len(g)
        place = start + len(core)
        assert core.strip()
        assert not any(a < place and start < b for a, b in spans if a < b)


def test_a_tokenizer_splits_runs_without_spaces() -> None:
    assert split("我爱北京 ok", tokenizer=lambda run: [run[:2], run[2:]])[1] == ["我爱", "北京", "ok"]


def test_a_tokenizer_that_loses_characters_is_not_used() -> None:
    assert split("我爱", tokenizer=lambda run: ["x"])[1] == ["我", "爱"]


def test_scripts_without_spaces() -> None:
    assert is_spaced("hello") and is_spaced("мир") and is_spaced("한국어")
    assert not is_spaced("我") and not is_spaced("วั")


@pytest.mark.parametrize("text", ["a" * 1_000_000, "a.b+" * 250_000, "a@" * 500_000, "'" * 1_000_000, "&a" * 300_000])
def test_a_long_text_takes_one_pass(text: str) -> None:
    assert joined(*split(text)) == text
