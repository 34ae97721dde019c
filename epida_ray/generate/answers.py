"""A client of an OpenAI-compatible server that pays for no answer twice and stops at a budget.

Every answer is a file in a folder, named by a digest of the request, so a run that was killed and resumed, and any
other run with the same requests, reads what was paid for. Tokens are added up in a file beside the answers, which all
processes of a machine share.
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar, cast

from epida_ray.core.cache import cache_dir
from epida_ray.core.errors import RequestError
from epida_ray.core.steps import made_step
from epida_ray.data.retry import with_retries
from epida_ray.generate.endpoint import TIMEOUT, Refused, Reply, chat, chat_url

SPENT = "tokens"
PARALLEL = 4
THOUGHTS = 2_000
"""Tokens more for a model whose limit, `max_completion_tokens`, counts its thoughts too."""

Item = TypeVar("Item")
Result = TypeVar("Result")

EXECUTION_ARGUMENTS = frozenset({"cache", "budget", "rate", "parallel", "timeout"})
"""Arguments that change what a run costs and how fast it is, but not its result."""


def client_of(endpoint: str, **options: Any) -> Client | None:
    """Return a client of the endpoint, or None without one; then raise RequestError if it was given options."""
    if endpoint:
        return Client(endpoint, **{name: value for name, value in options.items() if name != "structured"})
    if given := [name for name, value in options.items() if value not in (None, "", False)]:
        raise RequestError(f"{', '.join(given)}: only for an endpoint; give endpoint=URL, or leave it out")
    return None


class Client:
    """Ask the server at `endpoint`.

    `cache` is the folder of answers, by default one in the user's cache directory. `budget` is the number of tokens
    that may be spent on answers in that folder. `rate` is the largest number of requests a minute, and `parallel` the
    number of requests at a time, of this process. `timeout` is the number of seconds to wait for an answer.
    """

    def __init__(
        self,
        endpoint: str,
        cache: str = "",
        budget: int | None = None,
        rate: float | None = None,
        parallel: int | None = None,
        timeout: float | None = None,
    ) -> None:
        parallel = PARALLEL if parallel is None else parallel
        self._url = chat_url(endpoint)
        if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int) or budget < 1):
            raise RequestError(f"budget is a number of tokens, 1 or more, not {budget!r}")
        if budget is not None and not cache:
            raise RequestError("budget counts the answers in a folder of your choice; name it with cache=FOLDER")
        if rate is not None and not rate > 0:
            raise RequestError(f"rate is a number of requests a minute, above 0, not {rate!r}")
        if isinstance(parallel, bool) or not isinstance(parallel, int) or parallel < 1:
            raise RequestError(f"parallel is a number of requests, 1 or more, not {parallel!r}")
        if timeout is not None and (isinstance(timeout, bool) or not 0 < timeout < float("inf")):
            raise RequestError(f"timeout is a number of seconds for an answer, above 0, not {timeout!r}")
        self._folder = Path(cache).expanduser() if cache else cache_dir() / "answers"
        self._budget, self._parallel, self._timeout = budget, parallel, TIMEOUT if timeout is None else timeout
        self._counts_thoughts = False
        self._under_way: dict[Path, Future[list[str]]] = {}
        self._interval = 60 / rate if rate else 0.0
        self._next = 0.0
        self._lock = threading.Lock()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RequestError(
                f"answers cannot be kept in {self._folder}: {error}; name another cache=FOLDER"
            ) from error

    def ask(self, body: dict[str, Any]) -> list[str]:
        """Return the answers to a request, from the folder if it was paid for before.

        A request that is under way, for a row whose time was up, is waited for instead of sent again.
        """
        data = json.dumps([self._url, body], sort_keys=True).encode()
        file = self._folder / f"{blake2b(data, digest_size=16).hexdigest()}.json"
        with self._lock:
            other = self._under_way.get(file)
            if other is None:
                mine = self._under_way[file] = Future()
        if other is not None:
            return other.result()
        try:
            mine.set_result(self._kept_or_paid(file, body))
        except BaseException as error:
            mine.set_exception(error)
        with self._lock:
            del self._under_way[file]
        return mine.result()

    def _kept_or_paid(self, file: Path, body: dict[str, Any]) -> list[str]:
        try:
            known: list[str] = json.loads(file.read_bytes())["answers"]
            return known
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            pass  # never asked, or the file was cut short
        if self._budget is not None and (spent := self.spent()) >= self._budget:
            raise RequestError(
                f"{spent:,} tokens are spent, and the budget is {self._budget:,}; give a larger budget= and run the "
                "same command again: what was paid for is kept"
            )
        self._wait()
        reply = self._reply(body)
        # retried here, because whoever asks again pays again
        what = f"cannot keep an answer in {self._folder}"
        with_retries(lambda: self._count(reply.tokens), what)
        with_retries(lambda: self._keep(file, json.dumps({"answers": reply.answers, "tokens": reply.tokens})), what)
        return reply.answers

    def _reply(self, body: dict[str, Any]) -> Reply:
        """Ask, with `max_completion_tokens` once the server has refused `max_tokens`, as OpenAI's newer models do."""
        if not self._counts_thoughts:
            try:
                return chat(self._url, body, self._timeout)
            except Refused as error:
                if "max_completion_tokens" not in str(error):
                    raise
                self._counts_thoughts = True
        named = {name: value for name, value in body.items() if name != "max_tokens"}
        return chat(self._url, named | {"max_completion_tokens": body["max_tokens"] + THOUGHTS}, self._timeout)

    def _count(self, tokens: int) -> None:
        with (self._folder / SPENT).open("ab", buffering=0) as ledger:
            ledger.write(b"%d\n" % tokens)  # one short write at the end of a file is not torn apart
            os.fsync(ledger.fileno())

    def _keep(self, file: Path, answer: str) -> None:
        scratch = file.with_suffix(f".{uuid.uuid4().hex}.part")
        try:
            with scratch.open("wb") as out:
                out.write(answer.encode())
                out.flush()
                os.fsync(out.fileno())
            os.replace(scratch, file)
        finally:
            scratch.unlink(missing_ok=True)

    def spent(self) -> int:
        """Return the tokens of all answers in the folder."""
        try:
            return sum(map(int, (self._folder / SPENT).read_bytes().split()))
        except FileNotFoundError:
            return 0

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Return the results of `work`, which asks, for all items, several at a time; after an error, ask no more."""
        errors: list[Exception] = []

        def guarded(item: Item) -> Result | None:
            if errors:
                return None
            try:
                return work(item)
            except Exception as error:
                errors.append(error)
                return None

        with ThreadPoolExecutor(min(self._parallel, max(1, len(items)))) as pool:
            results = []
            for result in pool.map(guarded, items):
                made_step()
                results.append(result)
        if errors:
            raise errors[0]
        return cast(list[Result], results)

    def _wait(self) -> None:
        if self._interval:
            with self._lock:
                now = time.monotonic()
                mine = max(now, self._next)
                self._next = mine + self._interval
            time.sleep(mine - now)
