"""Every script of benchmarks/ can be imported and says how it is called; what it measures takes too long for a test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(FOLDER.glob("*.py"))
RUN = """
import contextlib, io, runpy, sys
for script in sys.argv[1:]:
    sys.argv = [script, "--help"]
    sys.path[0] = script.rpartition("/")[0]
    said, status = io.StringIO(), None
    with contextlib.redirect_stdout(said):
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as error:
            status = error.code
        except Exception as error:
            status = repr(error)
    print(script.rpartition("/")[2], status, said.getvalue().split()[:1])
"""


def test_every_script_says_how_it_is_called() -> None:
    """One process for all of them, because most import torch and Ray."""
    command = [sys.executable, "-c", RUN, *map(str, SCRIPTS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.stdout.splitlines() == [f"{script.name} 0 ['usage:']" for script in SCRIPTS], done.stderr[-2000:]
