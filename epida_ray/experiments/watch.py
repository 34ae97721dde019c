"""`epida watch DIR`: the report of a run as a page on this machine, made again and again while the run goes on."""

from __future__ import annotations

from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from epida_ray.core.errors import EpidaError, RequestError
from epida_ray.data.storage import Storage
from epida_ray.experiments.report import render, report_data
from epida_ray.experiments.report_compared import compared_data
from epida_ray.runs.layout import MANIFEST
from epida_ray.runs.manifest import read_manifest

REFRESH = 5
"""Seconds after which a browser asks for the page again, until the run has ended."""
ENDED = ("finished", "failed", "interrupted", "stopped")


def _has_ended(storage: Storage) -> bool:
    """Return whether the page will not change; comparisons, searches and checks have only files of their end."""
    if not storage.exists(MANIFEST) and compared_data(storage) is not None:
        return True
    return read_manifest(storage).observed_status() in ENDED


def watcher(directory: str, port: int, trust_code: Sequence[str] = ()) -> ThreadingHTTPServer:
    """Return a server on 127.0.0.1 whose only page is the report; port 0 picks a free one."""
    storage = Storage(directory)
    maps: dict[str, dict[str, Any]] = {}
    _has_ended(storage)  # it is refused at once if there is nothing to show

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # A page of another site that resolves its name to this machine sends its own name as the host.
            host = self.headers.get("Host", "").rpartition(":")[0]
            if host not in ("127.0.0.1", "localhost"):
                self.send_error(403)
            elif self.path != "/":
                self.send_error(404)
            else:
                self._send_report()

        def _send_report(self) -> None:
            try:
                body = render(report_data(storage, trust_code, maps)).encode("utf-8", "replace")
                status, ended = 200, _has_ended(storage)
            except (EpidaError, OSError, ValueError) as error:  # a file that is being replaced; the next time is better
                body, status, ended = f"{error}".encode("utf-8", "replace"), 503, False
            self.send_response(status)
            self.send_header("Content-Type", f"text/{'html' if status == 200 else 'plain'}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            if not ended:
                self.send_header("Refresh", str(REFRESH))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    try:
        return ThreadingHTTPServer(("127.0.0.1", port), Page)
    except OSError as error:
        raise RequestError(f"cannot listen on port {port}: {error.strerror}; choose another --port") from error
