"""The command line: options become a request, errors become one line and an exit status."""

from epida_ray.cli.main import main

__all__ = ["main"]
