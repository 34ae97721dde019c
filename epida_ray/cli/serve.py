"""`epida serve`."""

from __future__ import annotations

from epida_ray.cli.options import QUIET, takes
from epida_ray.core.progress import Reporter
from epida_ray.method.serving import ServeRequest

EXAMPLE = "epida serve run/model --port 8000"


@takes(ServeRequest)
def command(request: ServeRequest, quiet: QUIET = False) -> None:
    """Serve a model over HTTP.

    POST /predict with {"texts": ["…"]} answers with a class and its probability for each text. When a new
    model is written to MODEL_DIR, it takes over and no request fails. On a cluster, use Ray Serve with jobs/serve.yaml.
    """
    from epida_ray.stream.server import serve_model

    serve_model(request, Reporter(quiet))
