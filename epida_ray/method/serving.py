"""What a server of a model does, without the server: requests, answers, and which files are the newest model."""

from __future__ import annotations

import hmac
import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import pyarrow.fs as pafs
from pydantic import BaseModel, ConfigDict, Field

from epida_ray.classify import load
from epida_ray.classify.model import CARD
from epida_ray.classify.saving import has_model
from epida_ray.core.errors import RequestError
from epida_ray.core.options import option
from epida_ray.data.storage import Storage
from epida_ray.method.evaluate import no_model
from epida_ray.runs.run import directory_digest

MOST_TEXTS = 1_000
"""Texts of one request."""
LONGEST_TEXT = 100_000
"""Characters of one text."""
LARGEST_BODY = 8 * 2**20
"""Bytes of one request."""
TOKEN = "EPIDA_SERVE_TOKEN"
"""The environment variable with the token."""
LEAST_TOKEN = 16
"""Characters of a token; shorter ones can be guessed."""

Text = Annotated[str, Field(max_length=LONGEST_TEXT)]


class ServeRequest(BaseModel):
    """Every option of `epida serve`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = option(
        ..., "Directory of a saved model, such as DIR/model of a run.", metavar="MODEL_DIR", positional=True
    )
    host: str = option(
        "127.0.0.1", "Address to listen on. Any address but loopback requires a token.", metavar="ADDRESS"
    )
    port: int = option(8000, "Port to listen on.", metavar="N", ge=1, le=65_535)
    token_file: str | None = option(
        None, f"File with the token that clients must send. Without it, ${TOKEN} if set.", metavar="FILE"
    )
    replicas: int = option(1, "Number of server processes; each loads the model.", metavar="N", ge=1)
    threads: int | None = option(
        None, "CPU threads per replica. Without it, replicas share all CPUs.", metavar="N", ge=1
    )
    int8: bool = option(
        False,
        "Compute with 8-bit integers: about twice as fast; `epida export-model --int8 --eval FILE` "
        "measures what it costs.",
    )
    check_every: float = option(2.0, "Look for a new model this often.", metavar="SECONDS", gt=0)
    trust_code: tuple[str, ...] = option(
        (), "Code that a saved model may run: MODULE:CLASS, or a type in a skops file.", metavar="NAME", repeat=True
    )


class PredictRequest(BaseModel):
    """The body of POST /predict."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"texts": ["where is my parcel?"], "probabilities": True}}
    )

    texts: list[Text] = Field(min_length=1, max_length=MOST_TEXTS, description="The texts to classify.")
    probabilities: bool = Field(False, description="Whether to answer with the probabilities of all classes too.")


class Prediction(BaseModel):
    label: str = Field(description="The likeliest class.")
    confidence: float = Field(description="Its probability.")
    probabilities: dict[str, float] | None = None


class Answer(BaseModel):
    model_config = ConfigDict(protected_namespaces=())

    model_version: str = Field(description="A digest of the model's files; all predictions are of this version.")
    predictions: list[Prediction] = Field(description="One for each text, in order.")


class Health(BaseModel):
    model_config = ConfigDict(protected_namespaces=())

    status: str
    model_version: str
    loaded: str = Field(description="When this version was loaded, in UTC.")
    classifier: str
    labels: list[str]
    problem: str | None = Field(None, description="Why the newest files in the directory are not being served.")


class Problem(BaseModel):
    error: str = Field(description="What is wrong, in one line.")


class ServedModel:
    """One version of a model, loaded from a private copy of its files."""

    def __init__(self, storage: Storage, trust_code: Sequence[str] = (), threads: int = 1, int8: bool = False) -> None:
        from epida_ray.classify import onnx  # imports torch, for which the help of `epida serve` need not wait
        from epida_ray.classify.engine import pick_device

        if not has_model(storage):
            raise RequestError(no_model(storage.location, storage))
        # The directory may be written to at any moment, so a copy is loaded.
        with tempfile.TemporaryDirectory(prefix="epida-serve-") as folder, storage.local("") as source:
            copy = Path(folder) / "model"
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns(".*"))
            self.version = directory_digest(copy)[:16]
            self.classifier = load(copy, trust=trust_code)
        self._scorer, self._engine = self.classifier, ""
        if int8 or (hasattr(self.classifier, "graph") and onnx.installed() and pick_device("auto").type == "cpu"):
            try:
                self._scorer = onnx.scorer(self.classifier, threads, int8)
                self._engine = f", by ONNX Runtime in {'int8' if int8 else 'float32'}"
            except RequestError as error:
                if int8:
                    raise RequestError(f"--int8 cannot be used: {error}") from error
                self._engine = f", by torch: {error}"
        self.labels: tuple[str, ...] = tuple(self.classifier.labels)
        self.loaded = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.answer([PredictRequest(texts=["a first text", "and a second one, which is longer"])])

    def describe(self) -> str:
        said = self.classifier.describe() if hasattr(self.classifier, "describe") else type(self.classifier).__name__
        return f"{said}{self._engine}"

    def answer(self, requests: Sequence[PredictRequest]) -> list[Answer]:
        """Return the answers to several requests, whose texts the model sees as one batch."""
        texts = [text for request in requests for text in request.texts]
        probabilities = self._scorer.predict_proba(texts)
        best = probabilities.argmax(axis=1).tolist()
        answers, at = [], 0
        for request in requests:
            predictions = []
            for row in range(at, at + len(request.texts)):
                p = [round(float(v), 6) for v in probabilities[row]]
                every = dict(zip(self.labels, p, strict=True)) if request.probabilities else None
                predictions.append(
                    Prediction(label=self.labels[best[row]], confidence=p[best[row]], probabilities=every)
                )
            answers.append(Answer(model_version=self.version, predictions=predictions))
            at += len(request.texts)
        return answers


class NewestModel:
    """The newest whole model in a directory. `look` loads it, in the thread of whoever calls."""

    def __init__(self, location: str, trust_code: Sequence[str] = (), threads: int = 1, int8: bool = False) -> None:
        self._storage, self._options = Storage(location), (tuple(trust_code), threads, int8)
        self._seen = self._tried = self._signature()
        self.problem: str | None = None
        self.current = ServedModel(self._storage, *self._options)

    def look(self) -> bool:
        """Return whether another version was loaded.

        Files that changed since the last look are still being written. Files that cannot be loaded leave the version
        that is there in place, and are tried again when they change.
        """
        now = self._signature()
        settled, self._seen = now == self._seen, now
        if not settled or now == self._tried:
            return False
        self._tried = now
        try:
            found = ServedModel(self._storage, *self._options)
        except Exception as error:  # whatever is wrong with the files, the old version goes on answering
            self.problem = " ".join(f"{type(error).__name__}: {error}".split())[:500]
            return False
        if self._signature() != now:
            self._tried = ()
            return False
        self.problem = None
        changed = found.version != self.current.version
        if changed:
            self.current = found
        return changed

    def _signature(self) -> tuple[Any, ...]:
        selector = pafs.FileSelector(self._storage.root, recursive=True, allow_not_found=True)
        infos = self._storage.retried(lambda: self._storage.filesystem.get_file_info(selector), "look into")
        above = len(self._storage.root)  # a hidden folder above the model hides nothing
        files = [i for i in infos if i.type == pafs.FileType.File and "/." not in i.path[above:]]
        return tuple(sorted((i.path, i.size, i.mtime_ns) for i in files if i.base_name != CARD))


def read_token(file: str | None, environment: str | None) -> str | None:
    """Return the token of a file or of the environment; refuse one that can be guessed or cannot be sent."""
    if file is None and not environment:
        return None
    try:
        token = Path(file).read_text(encoding="utf-8").strip() if file is not None else str(environment).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"--token-file {file} cannot be read: {error}") from error
    if len(token) < LEAST_TOKEN or not re.fullmatch(r"[!-~]+", token):
        raise RequestError(
            f"a token has at least {LEAST_TOKEN} characters, without spaces; `openssl rand -hex 32` makes one"
        )
    return token


def hashed(token: str) -> str:
    return sha256(token.encode()).hexdigest()


def is_token(presented: str, expected_hash: str) -> bool:
    """Return whether the token that a client sent is the expected one, in a time that tells nothing about it."""
    return hmac.compare_digest(hashed(presented), expected_hash)


def first_problem(errors: Sequence[Any]) -> str:
    """Return pydantic's first error as one line, without the value that caused it."""
    first = errors[0]
    where = ".".join(str(part) for part in first["loc"] if part != "body")
    message = str(first["msg"])
    if first["type"] == "model_attributes_type":
        return 'send {"texts": ["…"]} with the header Content-Type: application/json'
    if first["type"] == "json_invalid":
        return f"the body is not JSON: {first.get('ctx', {}).get('error', message)}"
    return f"{where}: {message}" if where else message
