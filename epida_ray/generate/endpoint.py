"""Ask an OpenAI-compatible server for answers, and try again where that can help."""

from __future__ import annotations

import http.client
import json
import os
import random
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from epida_ray.core.errors import RequestError, TransientError

WAITS = (1.0, 2.0, 4.0, 8.0)
"""Seconds before each further attempt, give or take half, unless the server says how long to wait."""
LONGEST_WAIT = 120.0
"""A server that asks for more seconds than this is taken to be out of service."""
TIMEOUT = 120.0
"""Seconds to wait for the answer to a request, unless told otherwise."""

_AGAIN = {408, 425, 429}
_HOPELESS = {
    401: "set OPENAI_API_KEY to a valid key",
    403: "set OPENAI_API_KEY to a key that may use this model",
    404: "check endpoint, which ends in /v1, and model",
}
"""Answers that every row would get."""


class Refused(ValueError):
    """The server does not answer this prompt."""


class Reply(NamedTuple):
    answers: list[str]
    tokens: int
    """Of the prompt and of the answers, as the server says, or a quarter of their characters if it does not say."""


def chat_url(endpoint: str) -> str:
    """Return the address for chats of the endpoint `…/v1`."""
    if not endpoint.startswith(("http://", "https://")):
        raise RequestError(f"endpoint must be a URL that ends in /v1, not {endpoint!r}")
    return endpoint.rstrip("/") + "/chat/completions"


def chat(url: str, body: dict[str, Any], timeout: float = TIMEOUT) -> Reply:
    """Return the answers to a chat request and how many tokens they cost; wait `timeout` seconds for each attempt.

    A server that is busy, fails or cannot be reached is asked again; after several attempts that is a TransientError,
    and the same command can resume the run. A wrong key, address or model is a RequestError, and a refusal of this one
    prompt is Refused.
    """
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("OPENAI_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    data = json.dumps(body).encode()
    answer = _with_retries(lambda: _post(url, data, headers, timeout), url)
    try:
        content = json.loads(answer)
        answers = [_whole(choice) for choice in content["choices"]]
        usage = content.get("usage") or {}
        tokens = usage.get("total_tokens")
        return Reply(answers, tokens if isinstance(tokens, int) else sum(map(len, (data, *answers))) // 4)
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(f"{url} sent something other than a chat completion: {_one_line(answer)}") from error


def _whole(choice: dict[str, Any]) -> str:
    """Return an answer; of one that was cut off, whole lines will do."""
    answer: str = choice["message"]["content"] or ""
    return answer.rpartition("\n")[0] if choice.get("finish_reason") == "length" else answer


def _post(url: str, data: bytes, headers: dict[str, str], timeout: float) -> bytes:
    request = urllib.request.Request(url, data, headers)
    with urllib.request.urlopen(request, timeout=timeout) as response:
        content: bytes = response.read()
    return content


def _with_retries(send: Callable[[], bytes], url: str) -> bytes:
    for wait in (*WAITS, None):
        asked_wait = None
        try:
            return send()
        except urllib.error.HTTPError as error:
            with error:
                problem = f"HTTP {error.code} {_one_line(_content(error))}".strip()
                asked_wait = _retry_after(error.headers.get("Retry-After"))
            if error.code in _HOPELESS:
                raise RequestError(f"{url} answered {problem}; {_HOPELESS[error.code]}") from error
            if error.code < 500 and error.code not in _AGAIN:
                raise Refused(f"{url} answered {problem}") from error
        except (OSError, http.client.HTTPException) as error:
            problem = f"{type(error).__name__}: {_one_line(str(error))}"
        if wait is None or (asked_wait or 0) > LONGEST_WAIT:
            break
        time.sleep(wait * random.uniform(0.5, 1.5) if asked_wait is None else asked_wait)
    raise TransientError(f"{url} gives no answer ({problem}); run the same command again once the server works")


def _content(error: urllib.error.HTTPError) -> bytes:
    try:
        return error.read(1_000)
    except (OSError, http.client.HTTPException):
        return b""


def _retry_after(value: str | None) -> float | None:
    """Return the seconds of a Retry-After header, which holds seconds or a date."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.now(UTC)).total_seconds())


def _one_line(content: bytes | str) -> str:
    text = content if isinstance(content, str) else content.decode("utf-8", "replace")
    return " ".join(text.split())[:200]
