import pytest

from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.generate import GENERATORS
from epida_ray.generate.corpus import READ, bind_samples, from_bytes, to_bytes
from epida_ray.generate.span_mix import word_spans

OTHERS = [
    Sample("a", "A red car, really.", "traffic"),
    Sample("b", "seven busy corners", "traffic"),
    Sample("c", "small dogs waited", "animals"),
]
SAMPLE = Sample("x", "The big cat ran through our old green garden yesterday", "animals")


def mixed(sample: Sample = SAMPLE, n: int = 40, **arguments: object) -> Candidates | Rejected:
    generator = GENERATORS.create("span-mix", **arguments)
    bind_samples(generator, OTHERS)
    (answer,) = generator.generate([sample], n, [1])
    return answer


def test_labels_are_mixed_by_length() -> None:
    answer = mixed()
    assert isinstance(answer, Candidates) and answer.soft is not None
    classes = {word.lower(): s.label for s in OTHERS for word in s.text.replace(",", "").replace(".", "").split()}
    seen = set()
    for text, label in zip(answer.texts, answer.soft, strict=True):
        assert label is not None
        words = text.replace(",", "").replace(".", "").split()
        assert len(words) == 10, "as many words come as go"
        foreign = [word for word in words if classes.get(word.lower()) == "traffic"]
        assert label.get("traffic", 0.0) == pytest.approx(len(foreign) / 10)
        assert label["animals"] == pytest.approx(1 - len(foreign) / 10)
        seen.add(len(foreign))
    assert seen == {0, 1, 2, 3}


def test_share_is_the_most_that_another_text_gets() -> None:
    answer = mixed(share=0.1)
    assert isinstance(answer, Candidates) and answer.soft is not None
    assert {min(label.values()) for label in answer.soft if label} == {0.1, 1.0}


def test_a_span_comes_with_its_punctuation_and_the_rest_of_the_text_stays() -> None:
    answer = mixed(n=200)
    assert isinstance(answer, Candidates)
    assert "The big cat ran through our car, really garden yesterday" in answer.texts


def test_a_sample_gets_no_span_of_its_own_and_needs_a_label_and_three_words() -> None:
    assert isinstance(mixed(SAMPLE._replace(text="big cats")), Rejected)
    assert isinstance(mixed(SAMPLE._replace(label="")), Rejected)
    generator = GENERATORS.create("span-mix")
    bind_samples(generator, [SAMPLE])
    (answer,) = generator.generate([SAMPLE], 3, [1])
    assert answer == Rejected("no other sample has a span that can be put into this text")
    bind_samples(generator, [])
    assert generator.generate([SAMPLE], 3, [1]) == [answer]


def test_protected_words_stay_whatever_is_put_beside_them() -> None:
    answer = mixed(SAMPLE._replace(protected=((4, 11), (27, 36))))
    assert isinstance(answer, Candidates)
    assert all("big cat" in text and "old green" in text for text in answer.texts)


def test_the_index_is_the_same_bytes_whatever_the_order_and_bounded() -> None:
    generator = GENERATORS.create("span-mix")
    long = Sample("d", "word and " * 1_000, "long")
    none = [Sample("e", "?!", "marks"), Sample("f", "three good words", ""), Sample("g", "word" * 1_000, "long")]
    data = to_bytes(generator.index([*OTHERS, long, *none]))
    assert data.equals(to_bytes(generator.index([*none, long, *OTHERS[::-1]])))
    rows = from_bytes(data).to_pylist()
    assert [row["id"] for row in rows] == ["a", "b", "c", "d"]
    assert rows[0]["text"] == "A red car, really" and READ - 8 < len(rows[3]["text"]) <= READ


def test_word_spans() -> None:
    text = " It's 5.00, ok?"
    assert [text[a:b] for a, b in word_spans(text)] == ["It's", "5.00", "ok"]
    assert word_spans("") == word_spans("?!") == []


def test_a_mix_gives_soft_labels_where_a_part_does() -> None:
    mix = GENERATORS.create("mix", **{"span-mix": 1, "eda": 1})
    assert mix.soft_labels and not GENERATORS.create("mix", eda=1).soft_labels
    bind_samples(mix, OTHERS)
    (answer,) = mix.generate([SAMPLE], 8, [1])
    assert isinstance(answer, Candidates) and answer.soft is not None
    assert [o.split("/")[0] == "eda" for o in answer.operations] == [label is None for label in answer.soft]


def test_a_first_word_is_written_as_where_it_stands() -> None:
    others = [
        Sample("a", "The corner", "traffic"), Sample("b", "Paris the", "traffic"), Sample("c", "i met it", "traffic"),
        Sample("d", "I drove", "traffic"),
    ]  # fmt: skip
    generator = GENERATORS.create("span-mix")
    bind_samples(generator, others)
    (answer,) = generator.generate([Sample("x", "Every big cat ran through it", "animals")], 60, [1])
    assert isinstance(answer, Candidates)
    texts = set(answer.texts)
    assert {"The big cat ran through it", "Every big the ran through it", "Every big Paris ran through it"} <= texts
    assert "Every big I ran through it" in texts and not any("the" in text[:3] or " The" in text for text in texts)
