"""The results of an experiment's trials, by method and setting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from epida_ray.data.writer import csv_table
from epida_ray.experiments.experiment import Experiment
from epida_ray.experiments.options import Options, Setting
from epida_ray.experiments.statistics import Difference, mean_and_error, paired_difference
from epida_ray.experiments.trials import Trial

BASELINES = ("none", "random ", "1: none", "2: DA", "3: DA, online")
"""How the names of the baselines begin, with which other methods are compared."""
OF_TRIAL = ("dataset", "size", "method", "classifier", "protocol", "seed")
OF_RESULT = (
    "rows", "dev_rows", "macro_f1", "accuracy", "dev_macro_f1", "best_round", "kept", "flips", "mirror", "extreme",
    "ppl", "error", "distance", "kept_per_second", "seconds",
)  # fmt: skip
OF_PAPER = ("mirror", "extreme")
"""Figures about the paper's scores, which are of no use to those who try their own data."""
TITLES = {
    "macro_f1": "macro-F1",
    "dev_macro_f1": "dev macro-F1",
    "ppl": "perplexity",
    "kept_per_second": "kept rewrites per second",
}


class Row(NamedTuple):
    """A trial and its figures."""

    trial: Trial
    result: dict[str, Any]


class Results:
    """The figures of all trials of an experiment."""

    def __init__(self, experiment: Experiment, rows: Sequence[Row]) -> None:
        self.experiment, self.rows = experiment, rows
        self.methods = list(dict.fromkeys(r.trial.method.name for r in rows))
        self.settings: list[Setting] = list(dict.fromkeys((r.trial.dataset, r.trial.size) for r in rows))
        self.seeds = sorted({r.trial.seed for r in rows})
        self.example = rows[0].trial
        """The options that all trials share are those of this one."""
        self._generator = {m.name: (m.generator, repr(m.generator_args)) for m in (r.trial.method for r in rows)}
        self._cells: dict[tuple[str, Setting], dict[int, dict[str, Any]]] = defaultdict(dict)
        for trial, result in rows:
            self._cells[trial.method.name, (trial.dataset, trial.size)][trial.seed] = result

    @property
    def own_settings(self) -> bool:
        """Return whether a setting is one of the paper's, or of those that the experiment itself plans."""
        planned = {setting for _, setting in self.experiment.paper} | set(self.experiment.plan(Options())[1])
        return not planned.isdisjoint(self.settings)

    @property
    def figures(self) -> list[str]:
        """Return the names of the figures of a trial that are of use here."""
        return [name for name in OF_RESULT if self.own_settings or name not in OF_PAPER]

    def by_seed(self, method: str, setting: Setting, metric: str) -> dict[int, float]:
        return {s: r[metric] for s, r in self._cells[method, setting].items() if metric in r}

    def values(self, method: str, setting: Setting, metric: str) -> list[float]:
        return list(self.by_seed(method, setting, metric).values())

    def difference(self, method: str, baseline: str, setting: Setting, metric: str) -> Difference | None:
        """Return the difference over the seeds that both methods have, or None when there are fewer than two."""
        a, b = self.by_seed(method, setting, metric), self.by_seed(baseline, setting, metric)
        seeds = sorted(a.keys() & b.keys())
        return paired_difference([a[s] for s in seeds], [b[s] for s in seeds]) if len(seeds) > 1 else None

    def mean_difference(self, method: str, baseline: str, metric: str) -> str:
        """Return the mean over the settings, each of which counts as one observation, and its standard error."""
        found = [self.difference(method, baseline, setting, metric) for setting in self.settings]
        return mean_and_error([d.mean for d in found if d is not None])

    def comparisons(self) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """Yield what to compare: a name, and pairs of a method and its baseline.

        Every method is compared with the experiment's baselines: by default no augmentation and random rewrites, and
        with several generators, or arguments of one, also random rewrites of its own.
        """
        if self.experiment.baselines:
            for baseline in self.experiment.baselines:
                if baseline in self.methods:
                    yield baseline, [(m, baseline) for m in self.methods if m != baseline]
            return
        baselines = [m for m in self.methods if m.startswith(BASELINES)]
        random = {self._generator[m]: m for m in baselines if m.startswith("random ")}
        common = [m for m in baselines if m not in list(random.values())[1:]]
        for baseline in common:
            yield baseline, [(m, baseline) for m in self.methods if m not in (baseline, "none", "1: none")]
        if len(random) > 1:
            own = {m: random.get(self._generator[m], m) for m in self.methods}
            yield "random rewrites of the same generator", [(m, b) for m, b in own.items() if m != b]

    def csv(self) -> str:
        """Return one line per trial."""
        rows = []
        for trial, result in self.rows:
            named = {c: getattr(trial, c) for c in OF_TRIAL if c != "method"}
            rows.append(result | named | {"method": trial.method.name})
        return csv_table((*OF_TRIAL, *self.figures), rows)


def shown(metric: str) -> str:
    """Return the name of a metric for readers."""
    return TITLES.get(metric, metric)


def title(setting: Setting) -> str:
    return " ".join(setting)
