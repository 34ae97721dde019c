"""Ask a generator for candidates, and check everything that it returns."""

from __future__ import annotations

import ctypes
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import copy_context
from typing import Any, TypeGuard

from epida_ray.core.errors import EpidaError, TransientError
from epida_ray.core.sample import Candidates, Rejected, Sample, SoftLabel, fold_space, sample_seeds
from epida_ray.core.steps import made_step
from epida_ray.data.retry import WAITS

Answer = Candidates | Rejected

ATTEMPTS = 3
"""How often a generator is asked for the candidates of a sample before a shortfall is accepted."""


def propose(
    generator: Any,
    samples: Sequence[Sample],
    n: int,
    *,
    run_seed: int,
    round_: int,
    name: str,
    classes: Sequence[str] = (),
    attempts: int = ATTEMPTS,
    time_limit: float | None = None,
) -> list[Answer]:
    """Return n distinct candidates of each sample, fewer if the generator has no more, or why there are none.

    Candidates equal to the original or to each other, after folding white space, are dropped and requested again with
    the seeds of the next attempt; so are candidates that are not text. A generator that raises, hangs or returns
    something else costs only the samples concerned. What concerns every sample is raised: a RequestError, and a
    TransientError, such as a server that is down, or a disk or memory that fails again and again. A generator may have
    fewer `attempts`. `time_limit` is in seconds for a batch; a batch that exceeds it gets as long again, sample by
    sample. Soft labels are shares of `classes`.
    """
    if n < 1 or not samples:
        return [Candidates([], []) for _ in samples]
    attempts = min(attempts, getattr(generator, "attempts", attempts))
    known = frozenset(classes)
    trusted = getattr(generator, "distinct", False)
    answers: list[Answer | None] = [None] * len(samples)
    unfinished: dict[int, _Collected] = {}
    pending = list(range(len(samples)))
    for attempt in range(attempts):
        batch = [samples[i] for i in pending] if attempt else samples
        seeds = sample_seeds(run_seed, round_, [sample.id for sample in batch], name, attempt)
        for i, answer in zip(pending, _ask(generator, batch, n, seeds, name, time_limit), strict=True):
            if trusted and attempt == 0 and _is_sound(answer, samples[i].text, n):
                answers[i] = answer
                continue
            collected = unfinished.get(i) or unfinished.setdefault(i, _Collected(samples[i], known))
            collected.add(answer, n, name)
            if collected.final or len(collected.texts) == n or attempt == attempts - 1:
                answers[i] = collected.answer(name)
        pending = [i for i in pending if answers[i] is None]
        if not pending:
            break
    return [answer for answer in answers if answer is not None]


def longest(text: str) -> int:
    """Return how many characters a candidate of `text` may have."""
    return 10 * len(text) + 1_000


class _Collected:
    def __init__(self, sample: Sample, classes: frozenset[str]) -> None:
        self.texts: list[str] = []
        self.operations: list[str] = []
        self.soft: list[SoftLabel | None] = []
        self.final = False
        self._label, self._classes = sample.label, classes
        self._limit = longest(sample.text)
        self._seen = {fold_space(sample.text), ""}
        self._problem = ""

    def add(self, answer: object, n: int, name: str) -> None:
        if isinstance(answer, Rejected):
            self.final = True
            self._problem = str(answer.reason)
            return
        if not (isinstance(answer, tuple) and len(answer) in (2, 3) and all(isinstance(p, list) for p in answer[:2])):
            self._problem = f"{name} answered {_shown(answer)}, which is not Candidates(texts, operations)"
            return
        texts, operations = answer[:2]
        if len(texts) != len(operations):
            self._problem = f"{name} gave {len(texts)} texts but {len(operations)} operations"
            return
        soft = [None] * len(texts) if len(answer) == 2 or answer[2] is None else answer[2]
        if not isinstance(soft, list) or len(soft) != len(texts):
            self._problem = f"{name} gave soft labels that are not a list of {len(texts)}: {_shown(soft)}"
            return
        for text, operation, label in zip(texts, operations, soft, strict=True):
            if len(self.texts) == n:
                break
            if not isinstance(text, str) or not isinstance(operation, str):
                self._problem = f"{name} gave a candidate that is not a string: {_shown(text)}, {_shown(operation)}"
            elif not _is_text(text) or not _is_text(operation):
                self._problem = f"{name} gave a candidate with a lone surrogate, which is not a character"
            elif len(text) > self._limit:
                self._problem = f"{name} gave a candidate of {len(text):,} characters; the limit is {self._limit:,}"
            elif label is not None and not _is_soft_label(label, self._label, self._classes):
                self._problem = (
                    f"{name} gave the soft label {_shown(label)}; it takes shares of the classes that sum to 1, the "
                    "largest that of the sample's label, and soft_labels = True in the generator"
                )
            elif (key := fold_space(text)) not in self._seen:
                self._seen.add(key)
                self.texts.append(text)
                self.operations.append(operation)
                self.soft.append(label)

    def answer(self, name: str) -> Answer:
        if self.texts:
            return Candidates(self.texts, self.operations, self.soft if any(self.soft) else None)
        problem = self._problem or f"{name} made no candidate that differs from the text"
        return Rejected(problem.encode("utf-8", "backslashreplace").decode())


def _is_text(value: str) -> bool:
    """Return whether a string has no lone surrogates: Arrow and files hold UTF-8, which has no such characters."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_soft_label(label: object, own: str, classes: frozenset[str]) -> bool:
    if not isinstance(label, Mapping) or own not in label or not label.keys() <= classes:
        return False
    if not all(isinstance(share, int | float) for share in label.values()):
        return False
    if not all(0 <= share <= label[own] <= 2 for share in label.values()):
        return False
    return math.isclose(sum(label.values()), 1.0, abs_tol=1e-3)


def _is_sound(answer: object, text: str, n: int) -> TypeGuard[Candidates]:
    """Return whether a full answer of a generator that promises distinct candidates passes some cheap checks."""
    if type(answer) is not Candidates or answer.soft is not None:
        return False
    if not (isinstance(answer.texts, list) and isinstance(answer.operations, list)):
        return False
    if len(answer.texts) != n or len(answer.operations) != n:
        return False
    if set(map(type, answer.texts)) != {str} or set(map(type, answer.operations)) != {str}:
        return False
    if not _is_text("".join(answer.texts)) or not _is_text("".join(answer.operations)):
        return False
    distinct = set(answer.texts)
    return (
        len(distinct) == n
        and text not in distinct
        and "" not in distinct
        and len(max(answer.texts, key=len)) <= longest(text)
    )


def _ask(
    generator: Any, batch: Sequence[Sample], n: int, seeds: Sequence[int], name: str, time_limit: float | None
) -> Sequence[object]:
    answers = _call(generator, batch, n, seeds, name, time_limit)
    if not isinstance(answers, Rejected):
        return answers
    if len(batch) == 1:
        return [answers]
    deadline = None if time_limit is None else time.monotonic() + time_limit
    single: list[object] = []
    for sample, seed in zip(batch, seeds, strict=True):
        if deadline is not None and time.monotonic() >= deadline:
            single.append(answers)
            continue
        limit = None if time_limit is None else time_limit / 8
        one = _call(generator, [sample], n, [seed], name, limit)
        single.append(one if isinstance(one, Rejected) else one[0])
    return single


def _call(
    generator: Any, batch: Sequence[Sample], n: int, seeds: Sequence[int], name: str, time_limit: float | None
) -> Sequence[object] | Rejected:
    def generate() -> Any:
        if time_limit is None:
            return generator.generate(_Taken(batch), n, seeds)
        return within(time_limit, lambda: generator.generate(_Taken(batch), n, seeds))

    try:
        answers = _with_retries(generate, name)
    except TooLong:
        return Rejected(f"{name} took longer than the time limit of {time_limit:g} s")
    except EpidaError:
        raise
    except Exception as error:  # whatever else a plug-in raises costs a row, not the run
        return Rejected(f"{name} raised {_described(error)}")
    if not isinstance(answers, list | tuple) or isinstance(answers, Candidates | Rejected):
        return Rejected(f"{name} answered {_shown(answers)}, which is not a list")
    if len(answers) != len(batch):
        return Rejected(f"{name} gave {len(answers)} answers for {len(batch)} samples")
    return answers


def _with_retries(generate: Callable[[], Any], name: str) -> Any:
    for wait in (*WAITS, None):
        try:
            return generate()
        except Exception as error:
            if not _is_the_machines(error):
                raise
            if wait is None:
                raise TransientError(
                    f"{name} raised {_described(error)}; run the same command again once that is mended"
                ) from error
        made_step()
        time.sleep(wait * random.uniform(0.5, 1.5))
    raise AssertionError("unreachable")


def _is_the_machines(error: Exception) -> bool:
    """Return whether storage, network or memory failed, which no sample is guilty of."""
    if not isinstance(error, OSError) or isinstance(error, ValueError):
        return isinstance(error, MemoryError)
    if isinstance(error, TimeoutError):
        return error.errno is not None  # a limit that a plug-in sets itself has no number
    # of an HTTP error, by urllib or requests: that a server is busy or fails, but not that it refuses
    status = getattr(error, "code", None) or getattr(getattr(error, "response", None), "status_code", None)
    return not isinstance(status, int) or status in (408, 425, 429) or status >= 500


class _Taken(list[Sample]):
    """The samples of a batch; a generator makes a step with each one it takes, so that slow work is heard of."""

    def __iter__(self) -> Iterator[Sample]:
        for sample in super().__iter__():
            made_step()
            yield sample


class TooLong(Exception):
    """Work took longer than its time limit."""


class _Stop(BaseException):
    pass


def within(seconds: float, work: Callable[[], Any]) -> Any:
    """Return what `work` returns, or raise TooLong.

    Work that overruns is stopped at its next line of Python; if it is stuck elsewhere, it is left behind on a thread
    that does not keep the process alive.
    """
    result: list[Any] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            result.append(work())
        except _Stop:
            pass
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=copy_context().run, args=(run,), daemon=True, name="generator")
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        assert thread.ident is not None
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Stop))
        thread.join(min(1.0, seconds / 10))
        raise TooLong
    if failure:
        raise failure[0]
    return result[0]


def _described(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
