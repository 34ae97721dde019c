import os
import random
import re
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Candidates, Rejected, Sample, fold_space
from epida_ray.generate.eda import EDA
from epida_ray.generate.words import split

EDA_DEFAULT = EDA()
TEXT = "It's a GREAT movie, isn't it? See the trailer at https://t.co/x #film @bob 😀 and bring friends along tonight."


def rewrites(text: str, n: int = 9, seed: int = 1, eda: EDA = EDA_DEFAULT, protected=()) -> Candidates:
    (answer,) = eda.generate([Sample("a", text, "x", protected)], n, [seed])
    assert isinstance(answer, Candidates), answer
    return answer


def only(operation: str, **arguments: float) -> EDA:
    off = {"alpha_sr": 0.0, "alpha_ri": 0.0, "alpha_rs": 0.0, "p_rd": 0.0}
    return EDA(**(off | {operation: 0.1} | arguments))


def test_as_many_as_asked_for_with_all_four_operations() -> None:
    texts, operations, _ = rewrites(TEXT, n=40)
    assert len({fold_space(text) for text in texts} - {TEXT}) == 40
    counts = Counter(operations)
    assert sorted(counts) == ["delete", "insert", "swap", "synonym"]
    assert all(8 <= count <= 12 for count in counts.values())


def test_what_is_not_a_word_survives() -> None:
    for text in rewrites(TEXT, n=60).texts:
        for kept in ("https://t.co/x", "#film", "@bob", "😀"):
            assert text.count(kept) == 1
        assert text.endswith(".")
        for apostrophe in re.findall(r"\w*'\w*", text):
            assert apostrophe in ("It's", "isn't")


def test_replacements_keep_the_case() -> None:
    for text in rewrites("Movies are GREAT and sad", n=60, eda=only("alpha_sr")).texts:
        first, shouted = text.split(" are ")[0], text.split(" are ")[1].split(" and ")[0]
        assert first[0].isupper() and not first.isupper()
        assert shouted.isupper()
        assert text.split(" and ")[1].islower()


def test_insertions_reach_every_place_and_draw_every_synonym() -> None:
    texts = rewrites("hello zzz qqq", n=16, eda=only("alpha_ri")).texts
    assert set(texts) == {
        t.format(word)
        for word in ("hullo", "hi", "howdy", "how do you do")
        for t in ("{} hello zzz qqq", "hello {} zzz qqq", "hello zzz {} qqq", "hello zzz qqq {}")
    }


def test_inflected_words_have_synonyms() -> None:
    assert "automobile" in rewrites("cars", n=20, eda=only("alpha_sr")).texts


@pytest.mark.parametrize(("words", "edits"), [(5, 1), (19, 1), (24, 2), (60, 6)])
def test_the_number_of_edits_follows_alpha(words: int, edits: int) -> None:
    text = " ".join(f"w{i}" for i in range(words))
    for candidate in rewrites(text, n=20, eda=only("alpha_rs")).texts:
        moved = sum(a != b for a, b in zip(text.split(), candidate.split(), strict=True))
        assert 2 <= moved <= 2 * edits
    source = " ".join(["movie"] * words)
    for candidate in rewrites(source, n=9, eda=only("alpha_sr")).texts:
        assert source.split().count("movie") - candidate.split().count("movie") == edits


def test_deletions_follow_p_rd() -> None:
    text = " ".join(f"w{i}" for i in range(100))
    lost = [100 - len(candidate.split()) for candidate in rewrites(text, n=400, eda=only("p_rd")).texts]
    assert 9 < sum(lost) / 400 < 11
    assert all(len(t.split()) == 1 for t in rewrites("a b c d", n=4, eda=only("p_rd", p_rd=1.0)).texts)


def test_deleting_keeps_the_punctuation_and_one_blank() -> None:
    texts = rewrites("one (two), three.", n=6, eda=only("p_rd")).texts
    assert set(texts) == {"(two), three.", "one (), three.", "one (two),.", "(), three.", "(two),.", "one (),."}


@pytest.mark.parametrize("text", ["one\ttwo  three\nfour", "  hello there  world\n"])
def test_white_space_between_words_stays(text: str) -> None:
    for candidate in rewrites(text, n=10, eda=only("alpha_rs")).texts:
        assert re.findall(r"\s+", candidate) == re.findall(r"\s+", text)


def test_candidates_that_differ_only_in_white_space_count_once() -> None:
    assert len(rewrites("zzz\nzzz zzz", n=9).texts) == 2


def test_swaps_and_deletions_without_spaces() -> None:
    for text, operation in zip(*rewrites("我爱北京天安门", n=9)[:2], strict=True):
        assert " " not in text
        assert operation in ("swap", "delete")


def test_deleting_between_latin_words_does_not_glue_them() -> None:
    assert "foo bar" in rewrites("foo我bar", n=9, eda=only("p_rd")).texts


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("?!... --", "no word"),
        ("😀😀 #fun", "no word"),
        ("Привет", "synonym"),
        ("\x00", "no word"),
    ],
)
def test_nothing_to_rewrite_is_said(text: str, reason: str) -> None:
    (answer,) = EDA_DEFAULT.generate([Sample("a", text)], 3, [1])
    assert isinstance(answer, Rejected) and reason in answer.reason


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        "hello hello hello",
        "Привет, как дела?",
        "a\x00b c d",
        "x \ud800 y \udfff z",
        "ha " * 50,
        "I am",
    ],
)
def test_odd_texts(text: str) -> None:
    answer = rewrites(text)
    assert answer.texts and len({fold_space(t) for t in answer.texts} - {fold_space(text), ""}) == len(answer.texts)


def test_a_repeated_word_yields_all_there_is() -> None:
    assert sorted(rewrites("zzz zzz zzz", n=9).texts) == ["zzz", "zzz zzz"]
    assert len(rewrites("hello hello hello").texts) == 9


@pytest.mark.parametrize("text", ["word " * 200_000, "x" * 1_000_000, "我" * 300_000, "zz " * 100_000])
def test_a_text_of_a_megabyte_is_bounded(text: str) -> None:
    (answer,) = EDA_DEFAULT.generate([Sample("a", text)], 3, [1])
    if isinstance(answer, Candidates):
        assert len(answer.texts) == 3
    else:
        assert text == "x" * 1_000_000


words = st.sampled_from(["hello", "Big", "dogs", "ran", "😀", "#a", "don't", "北京", "b,", "(", "…", "x-y", "\n", "  "])
texts = st.lists(words, max_size=12).map(" ".join) | st.text(st.characters(exclude_categories=()), max_size=30)


@settings(max_examples=300, deadline=None)
@given(texts, st.integers(1, 12), st.integers(0, 2**64 - 1), st.data())
def test_any_text(text: str, n: int, seed: int, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    protected = tuple((a, b) for a, b in zip(cuts[::2], cuts[1::2], strict=False) if a < b)
    (answer,) = EDA_DEFAULT.generate([Sample("a", text, "x", protected)], n, [seed])
    if isinstance(answer, Rejected):
        return
    assert 1 <= len(answer.texts) == len(answer.operations) <= n
    keys = {fold_space(candidate) for candidate in answer.texts}
    assert len(keys) == len(answer.texts)
    assert not keys & {fold_space(text), ""}
    for candidate in answer.texts:
        place = 0
        for a, b in protected:
            place = candidate.find(text[a:b], place)
            assert place >= 0, "a protected span is whole and in its order"
            place += b - a


def test_protected_phrases_are_not_split_moved_or_deleted() -> None:
    text = "we saw new york city lights near new york yesterday evening"
    spans = ((7, 20), (33, 41))
    assert [text[a:b] for a, b in spans] == ["new york city", "new york"]
    for candidate in rewrites(text, n=60, protected=spans).texts:
        assert re.search("new york city.*new york", candidate)
        assert len(re.findall("new york", candidate)) == 2


def test_the_way_of_reading_does_not_matter() -> None:
    text = "The quick (brown) fox; it's 5% over and/or under… don't stop!"
    spread = Sample("a", text, "x", ((len(text) - 1, len(text)),))
    (a,), (b,) = (EDA_DEFAULT.generate([sample], 30, [5]) for sample in (Sample("a", text), spread))
    assert a == b
    assert len(split(text)[1]) == 12


def test_a_sample_depends_on_its_seed_alone() -> None:
    samples = [Sample(str(i), f"the quick brown fox number {i} jumps over lazy dogs") for i in range(50)]
    seeds = list(range(100, 150))
    together = EDA_DEFAULT.generate(samples, 9, seeds)
    backwards = EDA().generate(samples[::-1], 9, seeds[::-1])[::-1]
    random.seed(7)
    alone = [EDA().generate([s], 9, [seed])[0] for s, seed in zip(samples[:3], seeds, strict=False)]
    assert together == backwards
    assert together[:3] == alone
    assert EDA_DEFAULT.generate(samples, 9, [seed + 1 for seed in seeds]) != together


def test_what_was_read_before_does_not_matter() -> None:
    samples = [Sample(str(i), " ".join(["zzz"] * 45)) for i in range(20)]
    used = EDA()
    used.generate([Sample("a", "an extraordinarily long sentence about a train station in the big city")], 9, [1])
    assert used.generate(samples, 9, range(20)) == EDA().generate(samples, 9, range(20))


def test_the_hash_seed_does_not_matter() -> None:
    code = (
        "from epida_ray.generate.eda import EDA\nfrom epida_ray.core.sample import Sample\n"
        "print(EDA().generate([Sample('a', 'big dogs ran home')], 9, [3]))"
    )
    run = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "4242")
    ]
    assert run[0] == run[1] != ""


def test_a_table_of_ones_own(tmp_path) -> None:
    table = tmp_path / "de.tsv"
    table.write_text("haus\tGebäude\nhaus\tHeim\n漂亮\t美丽\n", encoding="utf-8")
    eda = only("alpha_sr", language="de", synonyms=str(table))
    assert sorted(rewrites("das Haus dort", n=5, eda=eda).texts) == ["das Gebäude dort", "das Heim dort"]
    assert rewrites("她很漂亮。", n=5, eda=only("alpha_sr", language="zh", synonyms=str(table))).texts == ["她很美丽。"]


@pytest.mark.parametrize("content", ["", "one\n", "a\tb\tc\n", "word\t\n"])
def test_a_bad_table_is_refused_in_one_line(tmp_path, content: str) -> None:
    table = tmp_path / "t.tsv"
    table.write_text(content)
    with pytest.raises(RequestError) as refusal:
        EDA(synonyms=str(table))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"alpha_sr": -1},
        {"p_rd": 2},
        {"alpha_ri": "x"},
        {"alpha_sr": 0, "alpha_ri": 0, "alpha_rs": 0, "p_rd": 0},
        {"tokenizer": "no_such_module:f"},
        {"synonyms": "/no/such/file"},
    ],
)
def test_bad_arguments_are_refused(arguments: dict) -> None:
    with pytest.raises(RequestError):
        EDA(**arguments)
