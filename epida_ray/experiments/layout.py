"""Every path inside the output directory of `epida reproduce`. The folder of an experiment also has a manifest."""

from __future__ import annotations

RESULTS = "results.csv"
TABLE = "table.md"
PLOT = "plot.svg"


TRIALS = "trials"


def trial_file(key: str) -> str:
    """Return the file with a trial's result, which all experiments in the directory share."""
    return f"{TRIALS}/{key}.json"
