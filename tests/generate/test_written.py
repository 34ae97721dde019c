"""Texts out of the answers of language models, as chat models really give them."""

from __future__ import annotations

import json

import pytest

from epida_ray.generate.written import cleaned, texts_of


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("  A new text.\nAnd more.", "A new text."),
        ('"Quoted"', "Quoted"),
        ("Sure, here is the text:\n\nThe text", "The text"),
        ("Rewritten: The text", "The text"),
        ("\n...\n", ""),
        ("<think>\nThe user wants another text.\n</think>\n\nA new text.", "A new text."),
        ("The user wants another text.\n</think>\nA new text.", "A new text."),
        ("<think>\nThe user wants", ""),
        ("```text\nA new text.\n```", "A new text."),
    ],
)
def test_answers_are_cleaned(answer: str, text: str) -> None:
    assert cleaned(answer) == text


@pytest.mark.parametrize(
    ("answer", "texts"),
    [
        ('["One text", "Another  text"]', ["One text", "Another text"]),
        ('{"texts": ["One text"]}', ["One text"]),
        ('```json\n["One text"]\n```', ["One text"]),
        ("1. One text\n2) Another\n- A third\n\n* A [fourth]", ["One text", "Another", "A third", "A [fourth]"]),
        (
            "10:30 works for me\n3.5 stars\n-5 degrees\n1.\n(12) Twelve",
            ["10:30 works for me", "3.5 stars", "-5 degrees", "Twelve"],
        ),
        ('"Quoted"', ["Quoted"]),
        ('["cut off', []),
        ('[\n  "cut off', []),
        ('```json\n{"texts": [\n"cut off', []),
        ('{\n"texts": [\n"cut off', []),
        ("[sighs] I lost my card", ["[sighs] I lost my card"]),
        ("", []),
    ],
)
def test_answers_are_lists_or_lines(answer: str, texts: list[str]) -> None:
    assert texts_of(answer) == texts


ONE, TWO, THREE = "I lost my card.", "Why is my card blocked?", 'It says "declined", again'
LISTED = json.dumps([ONE, TWO, THREE])


@pytest.mark.parametrize(
    "answer",
    [
        LISTED,
        json.dumps({"texts": [ONE, TWO, THREE]}, indent=2),
        json.dumps({"label": "cards", "texts": [ONE, TWO, THREE]}),
        json.dumps([{"label": "cards", "text": text} for text in (ONE, TWO, THREE)], indent=2),
        json.dumps({"1": ONE, "2": TWO, "3": THREE}),
        "\n".join(json.dumps({"text": text}) for text in (ONE, TWO, THREE)),
        "\n".join(f"{json.dumps(text)}," for text in (ONE, TWO)) + f"\n{THREE}",
        LISTED.replace("]", ",]"),
        LISTED.replace("]", ', "and one that is cut of'),
        f"Here are the texts: {LISTED}",
        f"Sure! Here are 3 more texts:\n\n```json\n{LISTED}\n```\n\nLet me know if you need more.",
        f"```json\n{LISTED}",
        f'<think>\n1. They want ["texts"].\n</think>\n{LISTED}',
        f'They want ["texts"].\n</think>\n\n{LISTED}<|im_end|>',
        f"<think>One line each.</think>\n{ONE}\n{TWO}\n{THREE}",
        f"Of course! Below are three new texts:\n\n{ONE}\n\n{TWO}\n\n{THREE}\n\nI hope these help!",
        f"Here you go.\n1. {ONE}\n2. {TWO}\n3. {THREE}\n\nLet me know if you need more.",
        f"### Texts\n\n1. **{ONE}**\n2. **{TWO}**\n3. **{THREE}**\n---",
        f'1. "{ONE}"\n2. “{TWO}”\n3. {THREE}',
        f"**1.** {ONE}\n**2.** {TWO}\n**3.** {THREE}",
        f"**Text 1:** {ONE}\n**Text 2:** {TWO}\n**Text 3:** {THREE}",
        f"Text 1: {ONE}\nText 2: {TWO}\nText 3: {THREE}",
        f"> {ONE}\n> {TWO}\n> {THREE}",
        f"```\n{ONE}\n{TWO}\n{THREE}\n```",
        f"<texts>\n<text>{ONE}</text>\n<text>{TWO}</text>\n<text>{THREE}</text>\n</texts>",
    ],
)
def test_no_markup_and_no_remark_is_a_text(answer: str) -> None:
    assert texts_of(answer) == [ONE, TWO, THREE]


def test_what_belongs_to_a_text_stays() -> None:
    lines = [
        "Is a < b, or b > a?",
        "My order: two pens",
        "f(x) = [1, 2]",
        "I paid 5*3 and 4*2",
        "Let me know when it comes",
    ]
    assert texts_of("\n".join(lines)) == lines


@pytest.mark.parametrize(
    "answer", ["<think>\nThey want", "[" * 100_000, '{"a": ' * 5_000, '["a \\x b", "c', "```", "{}"]
)
def test_an_answer_without_a_text_gives_none(answer: str) -> None:
    assert texts_of(answer) == []
