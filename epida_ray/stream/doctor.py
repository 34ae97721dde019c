"""`epida doctor`: what is installed, what can be scheduled, what is missing and how to get it."""

from __future__ import annotations

import shutil
import tempfile

import ray
from rich.console import Console

from epida_ray.classify import CLASSIFIERS
from epida_ray.core.errors import EpidaError
from epida_ray.generate import GENERATORS
from epida_ray.runs.manifest import versions
from epida_ray.stream.cluster import connected, size_pools


def examine(address: str | None) -> bool:
    """Print the findings; True when a run could start."""
    console = Console(highlight=False, soft_wrap=True)
    console.print("[bold]Installed[/bold]")
    for name, number in versions().items():
        console.print(f"  {name} {number}")
    console.print("[bold]Generators and classifiers[/bold]")
    for registry in (GENERATORS, CLASSIFIERS):
        for row in registry.listing():
            needed = registry.still_needed(row.name) if registry is GENERATORS and not row.missing else ""
            ready = f"missing: {row.missing}" if row.missing else f"ready, with {needed}" if needed else "ready"
            console.print(f"  {row.name}: {ready}", markup=False)
    console.print("[bold]Disk[/bold]")
    free = shutil.disk_usage(tempfile.gettempdir()).free
    console.print(f"  {free / 1e9:.0f} GB free in {tempfile.gettempdir()}, where Ray keeps its session")
    console.print("[bold]Ray[/bold]")
    try:
        with connected(address):
            resources = ray.cluster_resources()
            nodes = [node for node in ray.nodes() if node["Alive"]]
            pools = size_pools(None, None)
            console.print(
                f"  {len(nodes)} node(s), {resources.get('CPU', 0):g} CPUs, {resources.get('GPU', 0):g} GPUs, "
                f"{resources.get('memory', 0) / 1e9:.1f} GB memory, "
                f"{resources.get('object_store_memory', 0) / 1e9:.1f} GB object store"
            )
            where = "on GPUs" if pools.scorer_gpus else "on CPUs"
            console.print(f"  a run would use {pools.generators} generators and {pools.scorers} scorers {where}")
    except EpidaError as error:
        console.print(f"  {error}", markup=False)
        return False
    return True
