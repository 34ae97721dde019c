"""The folds of a comparison: which are run, which recipes stop early, and when it is enough."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from epida_ray.core.errors import RequestError, RunError
from epida_ray.core.progress import Reporter, duration, printable
from epida_ray.data.storage import Storage
from epida_ray.experiments.compare_folds import Data, Fold, fold_key, run_fold
from epida_ray.experiments.compare_recipes import Recipe
from epida_ray.experiments.compare_results import FIRST_LOOK, learning_curve
from epida_ray.experiments.compare_statistics import Interval, difference, score, widening
from epida_ray.experiments.layout import trial_file
from epida_ray.stream.tasks import run_tasks, share

REPETITIONS = 5
NARROW = 0.005
"""Half the width of an interval that needs no more folds."""
CURVE = (0.25, 0.5)
"""Shares of the rows in a learning curve, besides all of them."""
CURVE_TIME = 0.2
"""Share of the time that is kept for the learning curve."""
LEAST_TIME = 60.0
"""What is asked for at least when no fold has shown how long it takes."""
STALL_TIMEOUT = 3600.0


@dataclass
class Work:
    """The folds that are done, and which recipes are still compared."""

    data: Data
    recipes: list[Recipe]
    storage: Storage
    reporter: Reporter
    time: float
    results: dict[str, dict[Fold, dict[str, Any]]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    """After how many folds a recipe was dropped, because it was clearly behind."""
    paused: set[str] = field(default_factory=set)
    """Recipes for which there is no time: others are more promising."""
    pace: float = 1.0
    """Seconds that pass for a second of training: less than 1 where folds run side by side."""
    events: list[dict[str, Any]] = field(default_factory=list)
    stopped: str = ""
    """Why no more folds were run."""

    def __post_init__(self) -> None:
        self.started = time.monotonic()
        self.digest = self.data.digest()
        self.results = {recipe.name: {} for recipe in self.recipes}
        self.shared: Any = None

    # Comparing

    def compare(self) -> None:
        """Run folds until one recipe is left, all intervals are narrow, or the time is up."""
        k = self.data.folds
        deadline = self.started + self.time * (1 - CURVE_TIME)
        looks = sorted({min(FIRST_LOOK, k), *(k * (r + 1) for r in range(REPETITIONS))})
        done = 0
        for look in looks:
            new = [Fold(i // k, i % k) for i in range(done, look)]
            self._halve(new, deadline)
            self._run_folds(self.alive(), new, deadline, f"folds {done + 1} to {look}")
            done = look
            self._drop(look)
            if time.monotonic() >= deadline:
                self.stopped = "time"
            elif look >= k and (len(self.rivals()) <= 1 or self._narrow()):
                self.stopped = "clear"
            if self.stopped:
                break
        every = [Fold(i // k, i % k) for i in range(done)]
        if self.paused or any(fold not in self.results[r.name] for r in self.rivals() for fold in every):
            self.stopped = "time"
        self.stopped = self.stopped or "repetitions"
        self._check_enough()

    def alive(self) -> list[Recipe]:
        """Return the recipes that are still compared; the simplest always is, because all are compared with it."""
        gone = self.dropped.keys() | self.failures.keys() | self.paused
        return [r for r in self.recipes if r is self.recipes[0] or r.name not in gone]

    def rivals(self) -> list[Recipe]:
        """Return the recipes that may still turn out to be the best."""
        return [r for r in self.alive() if r.name not in self.dropped]

    def cost(self, name: str) -> float:
        """Return the mean seconds of a fold of the recipe; 0 when none is known."""
        seconds = [one["seconds"] for fold, one in self.results[name].items() if fold.share == 1]
        return float(np.mean(seconds)) if seconds else 0.0

    def _halve(self, folds: Sequence[Fold], deadline: float) -> None:
        """Pause the recipes with the worst scores until what is left can finish these folds in time."""
        left = deadline - time.monotonic()
        while len(self.rivals()) > 2:
            names = [r.name for r in self.alive()]
            new = {name: [f for f in folds if f not in self.results[name]] for name in names}
            if sum(self.cost(name) * len(new[name]) for name in names) * self.pace <= left:
                return
            simplest = self.recipes[0].name
            known = [name for name in names if self.full_folds(name) and name != simplest]
            if not known:
                return
            # A recipe that has only some of the folds is judged by the simplest recipe's score on the same ones.
            worst = min(known, key=lambda name: self._gain(name, simplest))
            self.paused.add(worst)
            self._note(len(self.full_folds(worst)), worst, "paused")

    def _note(
        self, folds: int, name: str, decision: str, leader: str | None = None, apart: Interval | None = None
    ) -> None:
        """Keep a decision on a recipe, after so many folds, and when it was made."""
        numbers = apart._asdict() if apart is not None else dict.fromkeys(Interval._fields)
        seconds = round(time.monotonic() - self.started, 1)
        self.events.append(
            {"folds": folds, "recipe": name, "decision": decision, "seconds": seconds, "leader": leader, **numbers}
        )

    def _gain(self, name: str, simplest: str) -> float:
        folds, y = self.common(name, simplest), self.data.rows.y
        return score(self.votes(name, folds), y) - score(self.votes(simplest, folds), y) if folds else -1.0

    def _run_folds(self, recipes: Sequence[Recipe], folds: Sequence[Fold], deadline: float, title: str) -> None:
        tasks: dict[str, tuple[Recipe, Fold]] = {}
        simplest = self.recipes[0]
        # The simplest recipe comes first, because all are compared with it; then fold by fold, the slowest first.
        order = [(simplest, fold) for fold in folds if simplest in recipes]
        slowest = sorted(recipes, key=lambda r: -self.cost(r.name))
        order += [(recipe, fold) for fold in folds for recipe in slowest if recipe is not simplest]
        for recipe, fold in order:
            key = fold_key(recipe, self.digest, fold)
            if self.storage.exists(trial_file(key)):
                self.results[recipe.name][fold] = json.loads(self.storage.read(trial_file(key)))
            elif time.monotonic() + self.cost(recipe.name) < deadline:
                tasks[key] = recipe, fold
        if not tasks:
            return
        self.shared = self.shared or share(self.data)
        began, trained = time.monotonic(), 0.0
        with self.reporter.track(title, len(tasks), unit="trials") as tracker:
            calls = {key: (recipe, self.shared, fold) for key, (recipe, fold) in tasks.items()}
            outcomes = run_tasks(run_fold, calls, what="trial", stall_timeout=STALL_TIMEOUT, until=deadline)
            for number, (key, value, failure) in enumerate(outcomes, 1):
                recipe, fold = tasks[key]
                if failure is not None:
                    self.failures[recipe.name] = printable(failure, 300)
                    self.reporter.warn(f"{recipe.name}: {self.failures[recipe.name]}")
                else:
                    self.storage.write(trial_file(key), json.dumps(value).encode())
                    self.results[recipe.name][fold] = value
                    trained += value["seconds"]
                tracker.update(number)
        if trained:
            self.pace = (time.monotonic() - began) / trained

    def votes(self, name: str, folds: Sequence[Fold]) -> np.ndarray:
        """Return [N, C]: how often each row was taken for each class in these folds."""
        votes = np.zeros((len(self.data.rows), len(self.data.labels)))
        for fold in folds:
            np.add.at(votes, (self.data.split(fold)[1], self.results[name][fold]["predicted"]), 1)
        return votes

    def full_folds(self, name: str) -> list[Fold]:
        return sorted(fold for fold in self.results[name] if fold.share == 1)

    def common(self, a: str, b: str) -> list[Fold]:
        """Return the folds that both recipes have."""
        return sorted(set(self.full_folds(a)) & set(self.full_folds(b)))

    def apart(self, a: str, b: str) -> Interval | None:
        """Return the paired difference a − b over the folds that both have; None when there are none."""
        folds = self.common(a, b)
        if a == b or not folds:
            return None
        wider = widening(self.data.folds)
        return difference(self.votes(a, folds), self.votes(b, folds), self.data.rows.y, wider, self.data.seed)

    def _leader(self, names: Sequence[str]) -> str:
        """Return the recipe with the best score over the folds that all of these have."""
        folds = sorted(set.intersection(*(set(self.full_folds(name)) for name in names)))
        return max(names, key=lambda name: score(self.votes(name, folds), self.data.rows.y) if folds else 0.0)

    def _drop(self, look: int) -> None:
        """Drop the recipes whose difference to the leading one is below 0 by its confidence interval."""
        names = [r.name for r in self.alive() if len(self.full_folds(r.name)) >= FIRST_LOOK]
        if len(names) < 2:
            return
        leader = self._leader(names)
        for name in names:
            apart = self.apart(name, leader)
            if apart is None:
                continue
            behind = apart.high < 0
            goes_on = not behind or name == self.recipes[0].name
            self._note(look, name, "goes on" if goes_on else "stopped", leader, apart)
            if behind:
                self.dropped[name] = len(self.common(name, leader))

    def _narrow(self) -> bool:
        compared = [e for e in self.events if e["leader"] is not None]
        last = [e for e in compared if e["folds"] == compared[-1]["folds"]]
        rivals = {recipe.name for recipe in self.rivals()}
        return all((e["high"] - e["low"]) / 2 <= NARROW for e in last if e["recipe"] in rivals)

    def missing_time(self) -> float:
        """Return about how many seconds more it takes to test every recipe that is not dropped in every fold once."""
        k, left = self.data.folds, 0.0
        longest = max(self.cost(recipe.name) for recipe in self.recipes)
        for recipe in self.recipes:
            if recipe.name not in self.dropped and recipe.name not in self.failures:
                left += (self.cost(recipe.name) or longest) * max(0, k - len(self.full_folds(recipe.name)))
        return left * self.pace / (1 - CURVE_TIME)

    def _check_enough(self) -> None:
        if len(self.failures) == len(self.recipes):
            raise RunError(f"every recipe failed; the first: {next(iter(self.failures.values()))}")
        compared = [r for r in self.recipes if len(self.full_folds(r.name)) >= FIRST_LOOK]
        if self.recipes[0] in compared:
            return
        name = self.recipes[0].name
        if name in self.failures:
            raise RunError(f"the simplest recipe, {name}, failed: {self.failures[name]}")
        known, spent = self.cost(name), time.monotonic() - self.started
        needed = (
            f"a fold of {name} takes {duration(known)} here; give at least {duration(3 * known * self.data.folds)} "
            "for it alone, and many times as much for all recipes"
            if known
            else f"in {duration(spent)} not even one fold of {name} was done; give at least "
            f"{duration(max(LEAST_TIME, 3 * spent * self.data.folds))}"
        )
        raise RequestError(f"--time {duration(self.time)} is too short for one recipe: {needed}")

    # Learning curve

    def curve(self, recipe: Recipe) -> list[dict[str, Any]]:
        """Return the score of the recipe with a quarter, a half and all of the rows, over the same folds."""
        folds = [fold for fold in self.full_folds(recipe.name) if fold.repeat == 0]
        deadline = self.started + self.time
        for fold in folds:
            smaller = [fold._replace(share=s) for s in CURVE]
            self._run_folds([recipe], smaller, deadline, "learning curve")
        return learning_curve(self, recipe, CURVE)
