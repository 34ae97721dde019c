"""What an experiment is: methods and settings, and how they become trials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from epida_ray.core.errors import RequestError
from epida_ray.experiments import paper
from epida_ray.experiments.options import Options, Setting
from epida_ray.experiments.trials import NONE, Method, Trial

QUICK_STEPS, QUICK_ROUNDS = 60, 3
SEEDS, QUICK_SEEDS = 5, 2

Plan = tuple[list[Method], tuple[Setting, ...]]


@dataclass(frozen=True)
class Experiment:
    """`plan` gives methods and settings; every method runs in every setting with every seed."""

    name: str
    title: str
    plan: Callable[[Options], Plan]
    paper: paper.Numbers = field(default_factory=dict)
    paper_notes: tuple[str, ...] = ()
    """What a reader of the paper should know; left out where no setting is the experiment's own."""
    notes: tuple[str, ...] = ()
    metric: str = "macro_f1"
    extra: tuple[str, ...] = ()
    """Further figures of a trial, each shown in a table of its own."""
    measure: tuple[str, ...] = ()
    baselines: tuple[str, ...] = ()
    """Methods that all others are compared with; by default no augmentation and random rewrites."""
    paper_of: str = "cnn"
    """The classifier that the paper's numbers are for."""
    plotted: str = ""
    """What the plot shows, if not the metric."""
    lines: bool = False
    """Plot the metric over the settings as lines."""
    use_dev_split: bool = False

    def trials(self, options: Options) -> list[Trial]:
        methods, settings = self.plan(options)
        methods = [
            replace(m, generator_args=options.generator_args) if m.generator in options.generators else m
            for m in self._chosen(methods, options)
        ]
        if options.settings:
            settings = options.settings
        elif options.quick:
            settings = settings[:1]
        example = Trial(
            "", "", 0, NONE, options.classifier, options.classifier_args, steps=options.steps,
            learning_rate=options.learning_rate, protocol=options.protocol, use_dev_split=self.use_dev_split,
            clean=options.clean, measure=self.measure,
        )  # fmt: skip
        if options.quick:
            example = replace(example, steps=min(options.steps or QUICK_STEPS, QUICK_STEPS), rounds=QUICK_ROUNDS)
        return [
            replace(example, dataset=dataset, size=size, seed=seed, method=method)
            for dataset, size in settings
            for seed in options.seeds or range(QUICK_SEEDS if options.quick else SEEDS)
            for method in methods
        ]

    def _chosen(self, methods: list[Method], options: Options) -> list[Method]:
        """Return the methods that --method names, in the experiment's order, or all of them."""
        names = [m.name for m in methods]
        if unknown := [name for name in options.methods if name not in names]:
            for full, how in ((False, "without --quick"), (True, "with --full")):
                if unknown[0] in {m.name for m in self.plan(replace(options, quick=False, full=full))[0]}:
                    raise RequestError(f"{self.name} has the method {unknown[0]!r} only {how}")
            listed = "; ".join(names)
            raise RequestError(f"{self.name} has no method {unknown[0]!r}; choose one of: {listed}")
        return [m for m in methods if m.name in options.methods] if options.methods else methods
