"""TextAttack's augmentation recipes and attacks: seeds that work, no downloads, the number of outputs asked for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.generate.glove import glove
from epida_ray.generate.library import ROUNDS, Collector, OneByOne, remembered, seeded, unusable
from epida_ray.generate.models import load
from epida_ray.generate.resources import import_textattack, no_nltk_downloads
from epida_ray.generate.textattack_texts import make_fast

_EDA = {
    "synonym": "synonym_replacement",
    "delete": "random_deletion",
    "swap": "random_swap",
    "insert": "random_insertion",
}

_OF_WORDNET = ("WordSwapWordNet", "WordInsertionRandomSynonym")
"""Transformations whose replacements of a word are always the same."""


class TextAttack(OneByOne):
    """`textattack:<Recipe>`; arguments are the recipe's own (pct_words_to_swap, …), and for some of them a model:

    CheckListAugmenter `tagger` (a flair model, file or hub name), EmbeddingAugmenter `vectors=glove`, CLAREAugmenter
    `model` (folder or hub name), `tagger` and `semantic_constraint` (false where TensorFlow Hub is not installed).
    """

    longest = 5_000

    def __init__(self, recipe: str, **arguments: Any) -> None:
        _prepare()
        from textattack.augmentation import Augmenter, recipes

        known = [
            name
            for name, value in sorted(vars(recipes).items())
            if inspect.isclass(value) and issubclass(value, Augmenter) and value is not Augmenter
        ]
        if recipe not in known:
            raise RequestError(f"TextAttack has no augmentation recipe {recipe!r}; there are: {', '.join(known)}")
        if arguments.pop("fast_augment", False):
            raise RequestError("fast_augment gives other candidates in every process; leave it out")
        self.name = f"textattack:{recipe}"
        special = {"CheckListAugmenter": _checklist, "EmbeddingAugmenter": _embedding, "CLAREAugmenter": _clare}
        try:
            with no_nltk_downloads():
                self._augmenter = special.get(recipe, getattr(recipes, recipe))(**arguments)
        except RequestError:
            raise
        except Exception as error:
            raise RequestError(f"{self.name} cannot be made with {arguments}: {error}") from error
        self._parts = {
            operation: getattr(self._augmenter, part)
            for operation, part in _EDA.items()
            if hasattr(self._augmenter, part)
        } or {recipe.removesuffix("Augmenter").lower(): self._augmenter}
        for part in self._parts.values():
            make_orderly(part.transformation)

    def rewrite(self, text: str, n: int) -> list[tuple[str, str]]:
        each = -(-n // len(self._parts))
        found = []
        for operation, part in self._parts.items():
            part.transformations_per_example = each
            found.append([(new, operation) for new in part.augment(text)])
        return [pair[k] for k in range(max(map(len, found))) for pair in found if k < len(pair)]


class TextAttackAttack(OneByOne):
    """`textattack-attack:<Recipe>`: adversarial examples against the current classifier.

    A sample that the classifier gets wrong already has nothing to attack and is rejected. Recipes work where their
    resources are local: DeepWordBugGao2018, PWWSRen2019, Pruthi2019, InputReductionFeng2018, …
    """

    needs_classifier = True
    longest = 5_000

    def __init__(self, recipe: str, query_budget: int = 500, **arguments: Any) -> None:
        _prepare()
        from textattack import attack_recipes
        from textattack.attack_recipes import AttackRecipe

        known: dict[str, Any] = {
            name: value
            for name, value in sorted(vars(attack_recipes).items())
            if inspect.isclass(value) and issubclass(value, AttackRecipe) and value is not AttackRecipe
        }
        if recipe not in known:
            raise RequestError(f"TextAttack has no attack recipe {recipe!r}; there are: {', '.join(known)}")
        self.name = f"textattack-attack:{recipe}"
        self._build = known[recipe].build
        self._arguments = arguments
        self._budget = query_budget
        self._operation = recipe
        self._attack: Any = None
        self._labels: tuple[str, ...] = ()

    def bind(self, predict_proba: Callable[[Sequence[str]], np.ndarray], labels: Sequence[str]) -> None:
        """Set the classifier to attack. Called again whenever its weights change."""
        from textattack.models.wrappers import ModelWrapper

        class Bound(ModelWrapper):  # type: ignore[misc]
            model = None

            def __call__(self, text_input_list: list[str], **_: Any) -> np.ndarray:
                return np.asarray(predict_proba(text_input_list), dtype=np.float64)

        self._labels = tuple(labels)
        try:
            with no_nltk_downloads():
                self._attack = self._build(Bound(), **self._arguments)
        except Exception as error:
            raise RequestError(f"{self.name} cannot be made here: {str(error).splitlines()[0][:300]}") from error
        self._attack.goal_function.query_budget = self._budget
        make_orderly(self._attack.transformation)

    def _one(self, sample: Sample, n: int, seed: int) -> Candidates | Rejected:
        if self._attack is None:
            return Rejected(f"{self.name} attacks a classifier, and none was given")
        if problem := unusable(sample.text, self.longest):
            return Rejected(problem)
        if sample.label not in self._labels:
            return Rejected(f"the label {sample.label!r} is not one of the classifier's")
        from textattack.attack_results import SkippedAttackResult

        collector = Collector(sample, n)
        try:
            with seeded(seed):
                for _ in range(ROUNDS * n):
                    self._attack.clear_cache()
                    result = self._attack.attack(sample.text, self._labels.index(sample.label))
                    if isinstance(result, SkippedAttackResult):
                        return Rejected("the classifier is wrong about the text already; there is nothing to attack")
                    before = len(collector.texts)
                    collector.add(result.perturbed_text(), self._operation)
                    if collector.full or (len(collector.texts) == before and before):
                        break
        except Exception as error:
            if not collector.texts:
                return Rejected(f"{self.name} raised {type(error).__name__}: {' '.join(str(error).split())[:200]}")
        return collector.answer()


def make_orderly(transformation: Any) -> None:
    """Sort what a transformation takes out of sets: their order differs from process to process."""
    for part in _parts(transformation):
        for name in ("_get_replacement_words", "_get_synonyms"):
            if method := getattr(part, name, None):
                in_order = _sorted(method)
                setattr(part, name, remembered(in_order, 16_384) if type(part).__name__ in _OF_WORDNET else in_order)


def _sorted(method: Callable[..., Any]) -> Callable[..., Any]:
    def in_order(*arguments: Any, **options: Any) -> list[Any]:
        return sorted(method(*arguments, **options), key=str)

    return in_order


def _parts(transformation: Any) -> Iterator[Any]:
    for part in getattr(transformation, "transformations", [transformation]):
        if part is transformation:
            yield part
        else:
            yield from _parts(part)


def _prepare() -> None:
    import_textattack()
    from textattack.shared.utils import install, strings

    def refuse(url: str, *_: Any, **__: Any) -> None:
        raise RequestError(f"TextAttack would download {url}; put it into {install.TEXTATTACK_CACHE_DIR} by hand")

    install.http_get = refuse
    make_fast()
    if not isinstance(strings._flair_taggers, _Taggers):
        strings._flair_taggers = _Taggers(strings._flair_taggers)


class _Taggers(dict[str, Any]):
    """TextAttack's flair taggers; one that is not here would be fetched in the middle of a run."""

    def __contains__(self, name: object) -> bool:
        if not super().__contains__(name):
            raise RequestError(
                f"this recipe needs the flair tagger {name!r}; give tagger=FILE where the recipe takes one"
            )
        return True


def _checklist(tagger: str = "", **arguments: Any) -> Any:
    if not tagger:
        raise RequestError("textattack:CheckListAugmenter needs tagger=FILE, a flair model that finds names and places")
    from textattack.augmentation import CheckListAugmenter

    _use_tagger("ner", tagger)
    return CheckListAugmenter(**arguments)


def _use_tagger(kind: str, tagger: str) -> None:
    from flair.models import SequenceTagger
    from textattack.shared.utils import strings

    strings._flair_taggers[kind] = SequenceTagger.load(tagger)


class _Neighbours:
    """Row i: word i and its nearest words, found when they are asked for."""

    def __init__(self, matrix: np.ndarray, size: int = 51) -> None:
        self._matrix = matrix
        self._norms = (matrix**2).sum(1)
        self._size = size
        self._found: dict[int, np.ndarray] = {}

    def __getitem__(self, index: int) -> np.ndarray:
        if index not in self._found:
            distances = self._norms - 2 * (self._matrix @ self._matrix[index])
            nearest = np.argpartition(distances, self._size)[: self._size]
            self._found[index] = nearest[np.argsort(distances[nearest], kind="stable")]
        return self._found[index]


def _embedding(vectors: str = "", **arguments: Any) -> Any:
    from textattack.augmentation import Augmenter, EmbeddingAugmenter
    from textattack.augmentation.recipes import DEFAULT_CONSTRAINTS
    from textattack.constraints.semantics import WordEmbeddingDistance
    from textattack.shared import WordEmbedding
    from textattack.transformations import WordSwapEmbedding

    if not vectors:
        return EmbeddingAugmenter(**arguments)
    if vectors != "glove":
        raise RequestError(f"vectors is glove, not {vectors!r}")
    words, matrix = glove(50_000, "vectors=glove")
    embedding = WordEmbedding(matrix, {w: i for i, w in enumerate(words)}, dict(enumerate(words)), _Neighbours(matrix))
    return Augmenter(
        WordSwapEmbedding(max_candidates=50, embedding=embedding),
        [*DEFAULT_CONSTRAINTS, WordEmbeddingDistance(embedding=embedding, min_cos_sim=0.8)],
        **arguments,
    )


def _clare(
    model: str = "", tokenizer: str = "", tagger: str = "", semantic_constraint: bool = True, **arguments: Any
) -> Any:
    if not (model and tagger):
        raise RequestError(
            "textattack:CLAREAugmenter needs model=FOLDER, a masked language model, and tagger=FILE, a flair model "
            "that tags parts of speech; both may be hub names"
        )
    if semantic_constraint and find_spec("tensorflow_hub") is None:
        raise RequestError(
            "CLARE needs an encoder from TensorFlow Hub: install tensorflow_hub, or give semantic_constraint=false"
        )
    from textattack.augmentation import Augmenter
    from textattack.augmentation.recipes import DEFAULT_CONSTRAINTS
    from textattack.constraints.semantics.sentence_encoders import UniversalSentenceEncoder
    from textattack.transformations import (
        CompositeTransformation,
        WordInsertionMaskedLM,
        WordMergeMaskedLM,
        WordSwapMaskedLM,
    )

    _use_tagger("upos-fast", tagger)
    network, own_tokenizer = load(model, "AutoModelForMaskedLM", tokenizer)
    window = min(512, getattr(network.config, "max_position_embeddings", 512))
    shared = {
        "masked_language_model": network,
        "tokenizer": own_tokenizer,
        "max_candidates": 50,
        "max_length": window,
    }
    constraints = list(DEFAULT_CONSTRAINTS)
    if semantic_constraint:
        constraints.append(
            UniversalSentenceEncoder(
                threshold=0.7,
                metric="cosine",
                compare_against_original=True,
                window_size=15,
                skip_text_shorter_than_window=True,
            )
        )
    transformation = CompositeTransformation(
        [
            WordSwapMaskedLM(method="bae", min_confidence=5e-4, **shared),
            WordInsertionMaskedLM(min_confidence=0.0, **shared),
            WordMergeMaskedLM(min_confidence=5e-3, **shared),
        ]
    )
    return Augmenter(transformation, constraints=constraints, **arguments)
