"""The Ray Serve application: a model behind HTTP.

Requests that arrive while the model is busy become its next batch. A thread looks for a new model and loads it beside
the one that answers; the next batch then takes the new one, so that no request waits for it or fails.

Annotations are evaluated here, unlike elsewhere: Ray sends the class to its replicas by value, where FastAPI could not
find the names in them.
"""

import asyncio
import os
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import ray
import torch
from fastapi import Depends, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi_offline import FastAPIOffline
from pydantic import BaseModel, ConfigDict
from ray import serve
from ray.util.metrics import Counter, Gauge, Histogram
from starlette.exceptions import HTTPException as AnyHTTPException

from epida_ray.core.errors import RequestError
from epida_ray.method.serving import (
    LARGEST_BODY,
    MOST_TEXTS,
    TOKEN,
    Answer,
    Health,
    NewestModel,
    PredictRequest,
    Problem,
    first_problem,
    hashed,
    is_token,
    read_token,
)
from epida_ray.stream.compat import close_replica

MOST_WAITING = 20_000
"""Texts that wait in a replica; with more, it refuses requests until it has caught up."""
MOST_REQUESTS = 4096
"""Requests that a replica holds at a time."""
METRICS_TIMEOUT = 10.0
OURS = ("ray_epida_serve_", "ray_serve_")

PROBLEMS: dict[int | str, dict[str, Any]] = {
    401: {"model": Problem, "description": "The token is missing or wrong."},
    413: {"model": Problem, "description": f"The body has more than {LARGEST_BODY:,} bytes."},
    422: {"model": Problem, "description": "The body is not what is required."},
    503: {"model": Problem, "description": "Too many texts are waiting; try again later."},
}


class Application(BaseModel):
    """The arguments of `application`, as in serve.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    """Directory or URL of a saved model."""
    token_hash: str | None = None
    """sha256 of the token. Without it, the token is $EPIDA_SERVE_TOKEN of the replicas, if that is set."""
    check_every: float = 2.0
    threads: int = 1
    int8: bool = False
    trust_code: tuple[str, ...] = ()


class TokenFirst:
    """Refuse a request with a body but without the token before any of the body is read."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD", "OPTIONS"):
            server: Any = serve.get_replica_context().servable_object
            try:
                server.check(await bearer(Request(scope)))
            except HTTPException as error:
                await JSONResponse({"error": error.detail}, error.status_code, error.headers)(scope, receive, send)
                return
        await self.app(scope, receive, send)


class LimitBody:
    """Refuse a body that is too large, before it is in memory."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        size = 0

        async def receive_within() -> Any:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > LARGEST_BODY:
                raise HTTPException(413, f"the body has more than {LARGEST_BODY:,} bytes; send fewer texts at a time")
            return message

        await self.app(scope, receive_within, send)


app = FastAPIOffline(
    title="epida",
    description="Classes of texts, from a model that epida-ray trained. `GET /health` says which.",
    responses=PROBLEMS,
)
app.add_middleware(LimitBody)
app.add_middleware(TokenFirst)
bearer = HTTPBearer(auto_error=False, description="The token, if the server was started with one.")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]


@app.exception_handler(RequestValidationError)
async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
    return JSONResponse({"error": first_problem(error.errors())}, 422)


@app.exception_handler(AnyHTTPException)
async def _refused(request: Request, error: AnyHTTPException) -> JSONResponse:
    return JSONResponse({"error": str(error.detail)}, error.status_code, headers=error.headers)


def _node_metrics() -> str:
    """Return what Ray exports on this node about serving; it brings the numbers up to date every few seconds."""
    here = ray.get_runtime_context().get_node_id()
    node = next(node for node in ray.nodes() if node["NodeID"] == here)
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    with urllib.request.urlopen(url, timeout=METRICS_TIMEOUT) as response:
        lines = response.read().decode().splitlines()
    ours = [line for line in lines if line.removeprefix("# HELP ").removeprefix("# TYPE ").startswith(OURS)]
    return "\n".join(ours) + "\n"


def _texts(requests: list[PredictRequest]) -> int:
    return sum(len(request.texts) for request in requests)


@serve.deployment(max_ongoing_requests=MOST_REQUESTS, health_check_period_s=5)
@serve.ingress(app)
class Server:
    def __init__(self, options: Application) -> None:
        close_replica()
        torch.set_num_threads(options.threads)
        token = read_token(None, os.environ.get(TOKEN))
        self._token_hash = options.token_hash or (hashed(token) if token else None)
        if self._token_hash is None and ray.util.get_node_ip_address() != "127.0.0.1":
            raise RequestError(f"this node is open to others: set {TOKEN} in the environment of the replicas")
        self._models = NewestModel(options.model, options.trust_code, options.threads, options.int8)
        self._thread = ThreadPoolExecutor(1)  # a classifier is used by one thread at a time
        self._waiting = 0
        self._requests = Counter("epida_serve_requests", "Requests to /predict.", ("status",))
        self._answered = Counter("epida_serve_texts", "Texts that were classified.")
        self._batches = Histogram(
            "epida_serve_batch_texts", "Texts in a batch.", [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000]
        )
        bounds = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10]
        self._seconds = Histogram("epida_serve_seconds", "From a request to its answer.", bounds)
        self._loaded = Gauge("epida_serve_model_loaded", "When the model was loaded, in seconds.", ("version",))
        self._loaded.set(time.time(), {"version": self._models.current.version})
        threading.Thread(target=self._watch, args=(options.check_every,), daemon=True).start()

    def _watch(self, seconds: float) -> None:
        while True:
            time.sleep(seconds)
            try:
                if self._models.look():
                    self._loaded.set(time.time(), {"version": self._models.current.version})
            except Exception as error:  # storage that does not answer for a moment; the next look may succeed
                self._models.problem = f"the directory cannot be read: {type(error).__name__}: {error}"

    def check(self, credentials: HTTPAuthorizationCredentials | None) -> None:
        if self._token_hash is None:
            return
        if credentials is None or not is_token(credentials.credentials, self._token_hash):
            raise HTTPException(
                401, "send the token of this server as `Authorization: Bearer TOKEN`", {"WWW-Authenticate": "Bearer"}
            )

    @app.post("/predict", response_model=Answer, summary="Classify texts")
    async def predict(self, body: PredictRequest, credentials: Credentials) -> Response:
        self.check(credentials)
        if self._waiting > MOST_WAITING:
            self._requests.inc(1, {"status": "503"})
            raise HTTPException(503, f"{self._waiting:,} texts are waiting; try again later", {"Retry-After": "1"})
        began = time.perf_counter()
        self._waiting += len(body.texts)
        try:
            answer: str = await self._batched(body)
        finally:
            self._waiting -= len(body.texts)
        self._requests.inc(1, {"status": "200"})
        self._seconds.observe(time.perf_counter() - began)
        return Response(answer, media_type="application/json")

    @serve.batch(max_batch_size=MOST_TEXTS, batch_wait_timeout_s=0, batch_size_fn=_texts)
    async def _batched(self, requests: list[PredictRequest]) -> list[str]:
        model = self._models.current
        answers = await asyncio.get_running_loop().run_in_executor(self._thread, model.answer, requests)
        count = _texts(requests)
        self._answered.inc(count)
        self._batches.observe(count)
        return [answer.model_dump_json(exclude_none=True) for answer in answers]

    @app.get("/health", response_model_exclude_none=True, summary="Which model answers")
    async def health(self) -> Health:
        model = self._models.current
        return Health(
            status="ok",
            model_version=model.version,
            loaded=model.loaded,
            classifier=model.describe(),
            labels=list(model.labels),
            problem=self._models.problem,
        )

    @app.get("/metrics", summary="Metrics of this node's replicas, for Prometheus", response_class=Response)
    async def metrics(self, credentials: Credentials) -> Response:
        self.check(credentials)
        try:
            text = await asyncio.to_thread(_node_metrics)
        except OSError as error:
            raise HTTPException(503, f"Ray's metrics cannot be read: {error}") from error
        return Response(text, media_type="text/plain; version=0.0.4")


def application(arguments: Application) -> serve.Application:
    """Return the application; `import_path` in serve.yaml is `epida_ray.stream.serve:application`."""
    deployment: Any = Server
    return deployment.bind(arguments)
