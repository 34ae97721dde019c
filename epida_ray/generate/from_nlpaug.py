"""Any word, character or sentence augmenter of nlpaug, with seeds that work and the number of outputs asked for."""

from __future__ import annotations

import inspect
from typing import Any

from epida_ray.core.errors import RequestError
from epida_ray.generate.library import OneByOne, remembered
from epida_ray.generate.resources import nltk_data, no_nltk_downloads
from epida_ray.generate.words import split

_JOIN, _FIXED = "\u2060", "\u2063"
"""Invisible marks on tokens: this one touches its neighbour; this one is no word."""
_MODELS = ("model_path", "from_model_name", "to_model_name", "model_dir")
_BATCHED = ("ContextualWordEmbsAug", "ContextualWordEmbsForSentenceAug", "BackTranslationAug", "AbstSummAug")


class NlpAug(OneByOne):
    """`nlpaug:<Augmenter>`; arguments are the augmenter's own. Models are never downloaded unless named."""

    def __init__(self, augmenter: str, **arguments: Any) -> None:
        nltk_data()
        classes = augmenters()
        if augmenter not in classes:
            raise RequestError(f"nlpaug has no text augmenter {augmenter!r}; there are: {', '.join(classes)}")
        parameters = inspect.signature(classes[augmenter]).parameters
        if unknown := [name for name in arguments if name not in parameters]:
            known = ", ".join(name for name in parameters if name not in ("name", "verbose"))
            raise RequestError(f"nlpaug:{augmenter} takes no argument {unknown[0]!r}; it takes: {known}")
        for name in _MODELS:
            if name in parameters and parameters[name].default is not None and name not in arguments:
                raise RequestError(f"nlpaug:{augmenter} needs {name}=FOLDER (a local model) or a hub name")
        if {"tokenizer", "reverse_tokenizer", "stopwords_regex"} <= parameters.keys() and "tokenizer" not in arguments:
            own = {
                "tokenizer": remembered(tokens, 64),
                "reverse_tokenizer": joined,
                "stopwords_regex": f".*[{_JOIN}{_FIXED}]",
            }
            arguments = own | arguments
        self.name = f"nlpaug:{augmenter}"
        self._batched = augmenter in _BATCHED
        try:
            with no_nltk_downloads():
                self._augmenter = classes[augmenter](**arguments)
        except Exception as error:
            if "_convert_token_to_id" in str(error):
                reason = "nlpaug needs transformers below 5 for it; masked-lm does without"
                raise RequestError(f"{self.name} cannot be made: {reason}") from error
            raise RequestError(f"{self.name} cannot be made with {arguments}: {error}") from error
        words = getattr(getattr(self._augmenter, "model", None), "dict", None)
        if isinstance(words, dict):  # the lists were sets, whose order differs from process to process
            words.update({key: sorted(value) for key, value in words.items() if isinstance(value, list | set)})
        for method, size in (("pos_tag", 64), ("predict", 65_536)):  # of WordNet: pure and slow, so remembered
            if augmenter in ("SynonymAug", "AntonymAug") and hasattr(self._augmenter.model, method):
                setattr(self._augmenter.model, method, remembered(getattr(self._augmenter.model, method), size))
        self._operation = str(getattr(self._augmenter, "action", augmenter))

    def rewrite(self, text: str, n: int) -> list[tuple[str, str]]:
        # The model-based augmenters take a list in one forward pass, but n copies of one text in n passes.
        made = self._augmenter.augment([text] * n) if self._batched else self._augmenter.augment(text, n=n)
        return [(new, self._operation) for new in ([made] if isinstance(made, str) else made) if isinstance(new, str)]


def tokens(text: str) -> list[str]:
    """Return words and, apart from them, what must stay as it is: marks that touch a word, hashtags, URLs, emoji."""
    found: list[str] = []
    for chunk in text.split():
        glue, cores = split(chunk)
        if not cores:
            found.append(_FIXED + chunk)
            continue
        for i, core in enumerate(cores):
            if glue[i]:
                found.append((_JOIN if i else "") + glue[i] + _JOIN)
            found.append(_JOIN + core if i and not glue[i] else core)
        if glue[-1]:
            found.append(_JOIN + glue[-1])
    return found


def joined(parts: list[str]) -> str:
    """Return the text of such tokens, or of what an augmenter made of them."""
    text = " ".join(parts).replace(" " + _JOIN, "").replace(_JOIN + " ", "")
    return text.replace(_JOIN, "").replace(_FIXED, "")


class CWE(NlpAug):
    """Contextual word embeddings through nlpaug; `model` is a folder or a hub name, `action` insert or substitute."""

    def __init__(self, model: str, action: str = "substitute", **arguments: Any) -> None:
        if action not in ("insert", "substitute"):
            raise RequestError(f"action is insert or substitute, not {action!r}")
        super().__init__("ContextualWordEmbsAug", model_path=model, action=action, **arguments)


def augmenters() -> dict[str, Any]:
    """Return nlpaug's augmenters of text by name."""
    import nlpaug.augmenter.char as char
    import nlpaug.augmenter.sentence as sentence
    import nlpaug.augmenter.word as word

    return {
        name: value
        for module in (word, char, sentence)
        for name, value in sorted(vars(module).items())
        if inspect.isclass(value) and name.endswith("Aug")
    }
