"""Online training: what a round costs beside its work, what overlap gains, and what EPiDA costs over plain training.

    python benchmarks/online.py [--rounds 10] [--rows 545] [--seeds 5]

1. A round's time that is not generating, judging or training, beside the naive shape: a `fit()` and a fresh actor
   pool for every round. Process ids of scorers and generators must not change.
2. `--max-staleness 1` against 0, with one scorer thread and one train thread, and K such that judging and training
   cost about the same. On one machine this stands for scorers and training on devices of their own.
3. The rounds of EPiDA against plain training with as many steps: on the originals alone, and with steps as large as
   EPiDA's, which hold m kept rewrites beside every original.

Round 1, in which actors start, is left out of every sum.

The last line is the naive shape's overhead a round ÷ ours.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import uuid
from pathlib import Path
from statistics import mean, median, stdev

import pyarrow as pa
import pyarrow.parquet as pq
import ray
import ray.data
import ray.train
import ray.train.torch

from epida_ray.method.requests import TrainRequest
from epida_ray.method.results import TrainResult
from epida_ray.stream.cluster import connected
from epida_ray.stream.driver import train
from epida_ray.stream.pipeline import data_context


def corpus(path: Path, rows: int) -> None:
    folder = os.environ.get("EPIDA_DATA")
    if folder:
        table = pq.read_table(Path(folder) / "trec" / "train.parquet", columns=["text", "label_name"])
        table = table.rename_columns(["text", "label"]).slice(0, rows)
        name = "TREC questions of $EPIDA_DATA"
    else:
        from pyarrow import csv

        import epida_ray

        corpus = Path(epida_ray.__file__).parent / "experiments" / "support_desk" / "train.csv"
        table = csv.read_csv(corpus).slice(0, rows)
        name = "bundled support requests"
    print(f"{len(table)} {name}")
    pq.write_table(table, path)


class Nothing:
    def __call__(self, block: pa.Table) -> pa.Table:
        return block


def naive_round() -> float:
    """Seconds of a round's machinery with no work in it, built anew."""
    began = time.perf_counter()
    with ray.data.DataContext.current(data_context()):
        data = ray.data.from_items([{"i": 0}]).map_batches(
            Nothing, batch_format="pyarrow", compute=ray.data.ActorPoolStrategy(size=1), num_cpus=0.4
        )
        data.take_all()
    with tempfile.TemporaryDirectory() as folder:
        ray.train.torch.TorchTrainer(
            lambda: None,
            scaling_config=ray.train.ScalingConfig(num_workers=1, resources_per_worker={"CPU": 1}),
            run_config=ray.train.RunConfig(name=uuid.uuid4().hex, storage_path=folder),
        ).fit()
    return time.perf_counter() - began


def rounds_of(result: TrainResult) -> list[dict]:
    return [line for line in result.metrics if line["round"] > 0]


def overhead(line: dict) -> float:
    """What is left of a round in strict turns after waiting for candidates, judging, training and the dev score."""
    spent = line["seconds"]
    return spent["round"] - spent["generate_wait"] - spent["judge"] - spent["train"] - spent["dev"]


def wall(result: TrainResult) -> float:
    """Seconds of all rounds but the first, in which actors start."""
    return sum(line["seconds"]["round"] for line in rounds_of(result)[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--rows", type=int, default=545)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="epida-benchmark-") as folder, connected("local"):
        path = Path(folder) / "in.parquet"
        corpus(path, options.rows)

        def run(name: str, **changes: object) -> TrainResult:
            values = {"input": str(path), "output": f"{folder}/{name}", "rounds": options.rounds, "epochs_per_round": 2}
            values |= {"pretrain_epochs": 5, "workers": 0, "classifier": "cnn"}
            return train(TrainRequest(**values | changes))  # type: ignore[arg-type]

        strict = run("strict")
        lines = rounds_of(strict)[1:]
        ours = [overhead(line) for line in lines]
        pids = {(tuple(line["scorer_pids"]), tuple(line["generator_pids"])) for line in lines}
        scorers = {pid for line in lines for pid in line["scorer_pids"]}
        generators = {pid for line in lines for pid in line["generator_pids"]}
        print(f"{len(lines)} rounds, one fit(): overhead a round p50 {median(ours):.3f} s, max {max(ours):.3f} s")
        print(
            f"  processes: {len(scorers)} scorers, {len(generators)} generators in all rounds ({len(pids)} sets of ids)"
        )
        for part in ("judge", "train", "broadcast", "generate_wait"):
            print(f"  {part}: p50 {median(line['seconds'][part] for line in lines):.3f} s")
        naive = [naive_round() for _ in range(2)]
        print(f"naive shape, nothing but its machinery: {', '.join(f'{s:.1f} s' for s in naive)} a round")

        alone = run("alone", loss="original")
        overlapping = run("overlapping", max_staleness=1)
        # m = 3 rewrites beside an original: four texts a step for each of plain training's one
        equal = run("equal", loss="original", batch_size=128, epochs_per_round=8, pretrain_epochs=20)
        trained = sum(line["seconds"]["train"] for line in lines)
        print(
            f"against plain training, same steps of as many texts: {wall(overlapping) / wall(equal):.2f} × with "
            f"--max-staleness 1, {wall(strict) / wall(equal):.2f} × strictly in turn "
            f"({wall(strict) / wall(alone):.2f} × against steps of the originals alone)"
        )
        print(
            f"  EPiDA's rounds {wall(strict):.2f} s, of which training {trained:.2f} s; plain {wall(equal):.2f} s, ",
            end="",
        )
        print(f"originals alone {wall(alone):.2f} s")

        per_k = median(line["seconds"]["judge"] for line in lines) / 3
        k = max(3, round(median(line["seconds"]["train"] for line in lines) / per_k))
        ratios, differences = [], []
        for seed in range(options.seeds):
            both = {}
            for staleness in (0, 1):
                result = run(
                    f"stale{staleness}-{seed}",
                    seed=seed,
                    k=k,
                    max_staleness=staleness,
                    scorer_actors=1,
                    generator_actors=1,
                )
                both[staleness] = (wall(result), max(line["dev_macro_f1"] for line in result.metrics))
            ratios.append(both[1][0] / both[0][0])
            differences.append(both[1][1] - both[0][1])
        spread = stdev(differences) if len(differences) > 1 else float("nan")
        print(
            f"--max-staleness 1 ÷ 0 with K = {k}: {mean(ratios):.2f} of the time ("
            + ", ".join(f"{r:.2f}" for r in ratios)
            + ")"
        )
        print(f"  dev macro-F1, 1 − 0: {mean(differences):+.3f} ± {spread:.3f} (sd over {len(differences)} seeds)")
        print(f"ratio {median(naive) / median(ours):.1f}")


if __name__ == "__main__":
    main()
