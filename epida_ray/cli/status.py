"""`epida status`."""

from __future__ import annotations

import typer

from epida_ray.cli.options import RUN_DIR
from epida_ray.core.progress import MESSAGE, best_round, printable

EXAMPLE = "epida status run"


def command(directory: RUN_DIR) -> None:
    """Show the progress or the result of a run."""
    from epida_ray.data.storage import Storage
    from epida_ray.method.results import summary
    from epida_ray.runs.manifest import read_manifest

    manifest = read_manifest(Storage(directory))
    state = manifest.observed_status()
    lines = [f"{manifest.kind}: {'refused' if manifest.problem else state}"]
    if state != manifest.status and not manifest.problem:
        lines[0] += " before it was finished; run the same command again to resume it"
    lines.append(f"started: {manifest.started}")
    if manifest.problem:
        lines.append(f"reason: {manifest.problem}; correct the command and run it again; it can use the same directory")
    if manifest.failure and state == "failed":
        lines.append(f"failed: {manifest.failure}")
    if manifest.kind == "train":
        rounds = max(0, manifest.rounds_done - 1)  # the first is pre-training
        lines.append(f"rounds: {rounds:,} of {manifest.request['rounds']:,} done")
        if best := manifest.best:
            lines.append(best_round(best.round, best.macro_f1))
        if test := manifest.test:
            lines.append(
                f"test: accuracy {test['accuracy']:.4f}, macro-F1 {test['macro_f1']:.4f} on {test['rows']:,} rows"
            )
    elif manifest.shards:
        lines.append(f"shards: {manifest.done.shards:,} of {manifest.shards:,} done")
    if manifest.done.rows:
        lines += summary(manifest)
    for line in lines:
        typer.echo(printable(line, MESSAGE))
