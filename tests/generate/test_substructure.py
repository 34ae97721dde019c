import pyarrow as pa
import pytest

from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.generate import GENERATORS
from epida_ray.generate.chunks import KINDS, chunks, tagged
from epida_ray.generate.corpus import bind_samples, from_bytes, from_file, to_bytes
from epida_ray.method.noise import parse_noise

OTHERS = [
    Sample("a", "The small dog waited in the old house", "animals"),
    Sample("b", "A red car stopped at the busy corner", "traffic"),
]


def phrases(text: str) -> set[tuple[str, str]]:
    return {(KINDS[c.kind], text[c.start : c.stop]) for c in chunks(tagged(text))}


def test_phrases() -> None:
    assert phrases("The small dog visited a very old house in London .") == {
        ("NP", "The small dog"), ("NP", "a very old house"), ("NP", "London"), ("PP", "in London"),
        ("VP", "visited a very old house"),
    }  # fmt: skip
    assert phrases("It 's the dog 's house , really") == {("NP", "the dog"), ("NP", "house"), ("ADVP", "really")}
    assert phrases("") == phrases("?!") == set()


def test_a_phrase_comes_from_the_same_class_and_is_of_the_same_kind() -> None:
    generator = GENERATORS.create("substructure")
    bind_samples(generator, OTHERS)
    sample = Sample("x", "The big cat waited", "animals")
    (answer,) = generator.generate([sample], 3, [1])
    assert answer == Candidates(["The small dog waited", "The old house waited"], ["NP", "NP"]) or answer == Candidates(
        ["The old house waited", "The small dog waited"], ["NP", "NP"]
    )
    (other,) = generator.generate([sample._replace(label="none")], 3, [1])
    assert isinstance(other, Rejected)


def test_a_phrase_of_the_text_itself_does_not_come_twice() -> None:
    generator = GENERATORS.create("substructure", slack=8)
    bind_samples(generator, OTHERS)
    (answer,) = generator.generate(OTHERS[:1], 9, [1])
    assert answer == Rejected("no candidate differs from the text")
    bind_samples(generator, [*OTHERS, Sample("c", "The big cat", "animals")])
    (answer,) = generator.generate(OTHERS[:1], 9, [1])
    assert isinstance(answer, Candidates) and all("big cat" in text for text in answer.texts)


def test_any_class() -> None:
    generator = GENERATORS.create("substructure", label="any", slack=0)
    bind_samples(generator, OTHERS)
    (answer,) = generator.generate([Sample("x", "The big cat waited")], 9, [1])
    assert isinstance(answer, Candidates)
    assert set(answer.texts) == {
        f"{np} waited" for np in ("The small dog", "The old house", "A red car", "The busy corner")
    }


def test_protected_phrases_are_not_replaced() -> None:
    generator = GENERATORS.create("substructure")
    bind_samples(generator, OTHERS)
    (answer,) = generator.generate([Sample("x", "The big cat waited", "animals", ((4, 11),))], 3, [1])
    assert isinstance(answer, Rejected)


def test_the_index_is_the_same_bytes_whatever_the_order_and_can_be_mapped(tmp_path) -> None:
    generator = GENERATORS.create("substructure")
    data = to_bytes(generator.index(OTHERS))
    assert data.equals(to_bytes(generator.index(OTHERS[::-1])))
    (tmp_path / "index.arrow").write_bytes(data)
    before = pa.total_allocated_bytes()
    mapped = from_file(tmp_path / "index.arrow")
    assert mapped.equals(from_bytes(data)) and pa.total_allocated_bytes() == before


def test_an_empty_corpus() -> None:
    generator = GENERATORS.create("substructure")
    bind_samples(generator, [])
    (answer,) = generator.generate([Sample("x", "The big cat waited", "animals")], 3, [1])
    assert isinstance(answer, Rejected)


def test_a_mix_with_parts_of_other_samples() -> None:
    mix = GENERATORS.create("mix", substructure=1, eda=1)
    bind_samples(mix, OTHERS)
    (answer,) = mix.generate([Sample("x", "The big cat waited in a house", "animals")], 6, [1])
    assert isinstance(answer, Candidates)
    assert {o.split("/")[0] for o in answer.operations} == {"substructure", "eda"}


def test_noise_cannot_take_parts_of_other_samples() -> None:
    with pytest.raises(RequestError, match="other samples"):
        parse_noise("substructure")


def test_the_index_of_long_texts_is_bounded() -> None:
    generator = GENERATORS.create("substructure")
    word = "The small dog waited in the old house number"
    long = Sample("a", " . ".join(f"{word} {i}{'x' * (i % 7)}" for i in range(200)), "animals")
    texts = generator.index([long])["text"].to_pylist()
    assert texts and all(text in long.text[:1001].lower() for text in map(str.lower, texts))


def test_a_mapped_index_is_not_copied(tmp_path) -> None:
    for name in ("substructure", "span-mix"):
        generator = GENERATORS.create(name)
        samples = [Sample(str(i), f"{OTHERS[0].text} number {i}", "animals") for i in range(500)]
        (tmp_path / name).write_bytes(to_bytes(generator.index(samples)))
        before = pa.total_allocated_bytes()
        generator.bind_corpus(from_file(tmp_path / name))
        assert pa.total_allocated_bytes() - before < 2_000, name
