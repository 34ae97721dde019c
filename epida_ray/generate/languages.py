"""Names of languages, as generators take them."""

from __future__ import annotations

from epida_ray.core.errors import RequestError


def base(language: str) -> str:
    """`pt` of `pt-BR`: the part of a language's name that words, marks and keyboards are known by."""
    if not isinstance(language, str) or not language.strip():
        raise RequestError(f"language is a code such as en, de or pt-BR, not {language!r}")
    return language.strip().replace("_", "-").split("-")[0].lower()
