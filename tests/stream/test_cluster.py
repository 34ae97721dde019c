from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray

from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Candidates
from epida_ray.stream.cluster import FINISH_SHARE, check_reachable, fit_pools


@pytest.mark.parametrize("address", ["h" * 70 + ":6379", "127.0.0.1:99999", "127.0.0.1:1", "1.2.3.4"])
def test_an_address_that_nobody_can_answer_at_is_one_line(address: str) -> None:
    with pytest.raises(RequestError, match="no Ray at --address") as caught:
        check_reachable(address)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("cpus", "gpus", "fits"), [(1, 2, 1), (2, 8, 5)])
def test_more_gpus_than_the_cpus_can_serve_are_refused_with_what_would_fit(cpus: int, gpus: int, fits: int) -> None:
    with pytest.raises(RequestError, match=rf"--generator-actors 1 --scorer-actors {fits} would fit"):
        fit_pools(cpus, gpus, None, None)
    assert fit_pools(cpus, gpus, 1, fits).scorers == fits


@pytest.mark.parametrize("options", [{"scorers": 4}, {"workers": 2}, {"generator_gpus": 0.5}])
def test_training_that_the_gpus_cannot_hold_is_refused(options: dict) -> None:
    with pytest.raises(RequestError, match="GPUs each and this Ray has 1; use fewer of them"):
        fit_pools(8, 1, **{"generators": None, "scorers": None, "workers": 1} | options)


@pytest.mark.parametrize("cpus", [2, 5, 16])
@pytest.mark.parametrize("gpus", [1, 2, 3, 8])
@pytest.mark.parametrize("scorers", [None, 1, 3, 5])
@pytest.mark.parametrize("generator_gpus", [0.0, 0.25, 0.3])
@pytest.mark.parametrize("workers", [0, 1])
def test_pools_that_are_not_refused_fit_device_by_device(
    cpus: int, gpus: int, scorers: int | None, generator_gpus: float, workers: int
) -> None:
    try:
        pools = fit_pools(cpus, gpus, None, scorers, generator_gpus, workers)
    except RequestError:
        return
    used = pools.generators * pools.generator_cpus + pools.scorers * (pools.scorer_cpus + FINISH_SHARE)
    assert used <= cpus + 1e-9
    on_gpus = pools.scorers + workers + (pools.generators if generator_gpus else 0)
    assert pools.scorer_gpus > 0 and on_gpus <= gpus * int(1 / pools.scorer_gpus + 1e-9)
    assert generator_gpus in (0, pools.scorer_gpus)


def test_a_generator_gets_no_gpu_where_there_is_none() -> None:
    with pytest.raises(RequestError, match="this Ray has no GPU"):
        fit_pools(4, 0, None, None, 0.5)


@pytest.mark.slow
def test_the_run_that_starts_ray_may_end_last_or_first(tmp_path: Path) -> None:
    """Two runs in threads of one process without a Ray: neither takes it, or its actors, from the other."""
    rows = pa.table({"text": [f"say {w} {i}" for i in range(8) for w in "ab"], "label": ["ask", "tell"] * 8})
    for name in ("slow", "quick"):
        pq.write_table(rows, tmp_path / f"{name}.parquet")
    script = f"""
import sys, time
from concurrent.futures import ThreadPoolExecutor
from epida_ray.method.requests import AugmentRequest
from epida_ray.stream.augment import augment

def run(name, output, generator):
    actors = dict(generator_actors=1, scorer_actors=1)
    request = AugmentRequest(
        input=f"{tmp_path}/{{name}}.parquet", output=f"{tmp_path}/{{output}}", generator=generator,
        classifier="linear", stall_timeout=100, **actors,
    )
    return augment(request).kept

with ThreadPoolExecutor(2) as pool:
    for first in ("slow", "quick"):
        kinds = dict(slow="tests.stream.test_augment:Slow", quick="eda")
        one = pool.submit(run, first, f"{{first}}-first", kinds.pop(first))
        time.sleep(1)
        (name, generator), = kinds.items()
        other = pool.submit(run, name, f"{{name}}-second", generator)
        assert one.result(200) and other.result(200)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=500)


class Holds:
    """A generator that says how many GPUs its process may use."""

    def generate(self, samples, n, seeds):  # type: ignore[no-untyped-def]
        held = f"{len(ray.get_runtime_context().get_accelerator_ids()['GPU'])} GPUs"
        return [Candidates([f"{s.text} {i}" for i in range(n)], [held] * n) for s in samples]


@pytest.mark.slow
def test_generators_hold_the_gpus_they_are_given(tmp_path: Path) -> None:
    """Logical GPUs, in `augment` and in `train`."""
    labels = ["ask" if i % 2 else "tell" for i in range(100)]
    texts = [f"{label} me of the lamp {i}" for i, label in enumerate(labels)]
    pq.write_table(pa.table({"text": texts, "label": labels}), tmp_path / "in.parquet")
    script = f"""
import ray
from epida_ray.method.requests import AugmentRequest, TrainRequest
from epida_ray.stream.augment import augment
from epida_ray.stream.driver import train
ray.init(address="local", num_cpus=2, num_gpus=1, include_dashboard=False, log_to_driver=False)
options = dict(
    input={str(tmp_path / "in.parquet")!r}, classifier="linear", generator="tests.stream.test_cluster:Holds",
    generator_gpus=0.5, stall_timeout=200,
)
augment(AugmentRequest(output={str(tmp_path / "augment")!r}, **options))
train(TrainRequest(output={str(tmp_path / "train")!r}, rounds=1, workers=0, **options))
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=400)
    for run in ("augment", "train"):
        kept = pq.read_table(tmp_path / run / "augmented", partitioning=None)
        assert len(kept) and set(kept["operation"].to_pylist()) == {"1 GPUs"}
