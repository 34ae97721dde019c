"""The top of the report: what was done, what came out and what to do next, in a sentence each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from epida_ray.method.results import Choice, choice
from epida_ray.runs.manifest import Manifest

FEW = 0.05
"""A share of rejected rows that is worth a look."""
WEAK = 0.2
"""How far the F1 of a class must be below the macro-F1 for the class to be named."""


def summary(manifest: Manifest, rounds: list[dict[str, float]]) -> list[str]:
    """Return three sentences."""
    return [_done(manifest), _outcome(manifest, rounds), _next(manifest, rounds)]


def input_name(manifest: Manifest) -> str:
    """Return the path of the input; the request itself has only its digest."""
    return str(manifest.execution.get("input") or "tables in memory")


def _done(manifest: Manifest) -> str:
    request, done = manifest.request, manifest.done
    state = manifest.observed_status()
    ended = "" if state == "finished" else f" The run is {state}."
    by = f" with {manifest.classifier}" if manifest.classifier else ""
    if manifest.kind == "train":
        rows = f"{manifest.prepared.train:,} texts" if manifest.prepared else "the texts"
        generator = request.get("generator")
        how = "on the originals alone" if generator == "none" else f"with {generator} rewrites"
        pool = " and unlabelled texts" if manifest.execution.get("unlabelled") else ""
        rounds = max(0, manifest.rounds_done - 1)
        return (
            f"A classifier for {len(manifest.labels)} classes was trained on {rows} of {input_name(manifest)}{by}, "
            f"{how}{pool}, in {rounds:,} rounds.{ended}"
        )
    if manifest.kind == "augment":
        return f"{done.rows:,} texts of {input_name(manifest)} were rewritten with {request.get('generator')}.{ended}"
    if manifest.kind == "label":
        return f"{done.rows:,} texts of {input_name(manifest)} were labelled{by}.{ended}"
    title = manifest.experiment["title"] if manifest.experiment else "An experiment"
    were = "were run" if state == "finished" else "are to be run"
    return f"{title}: {manifest.experiment['trials'] if manifest.experiment else 0:,} trials {were}.{ended}"


def _outcome(manifest: Manifest, rounds: list[dict[str, float]]) -> str:
    done = manifest.done
    if manifest.failure:
        return f"It failed: {manifest.failure}"
    if manifest.kind == "train":
        best = manifest.best
        if best is None:
            return "There is no result yet."
        found = _choice(manifest, rounds)
        gain = _gain(manifest, found)
        chosen = "the best on dev" if found is None or found.best else "chosen; it is not clearly worse than the best"
        if test := manifest.test:
            noisy = "".join(f"; {one['macro_f1']:.3f} with noise {n}" for n, one in test.get("noise", {}).items())
            return (
                f"Test macro-F1 is {test['macro_f1']:.3f} (accuracy {test['accuracy']:.3f}, {test['rows']:,} rows"
                f"{noisy}); "
                f"round {best.round} was {chosen}{gain}."
            )
        return f"Dev macro-F1 is {best.macro_f1:.3f}; round {best.round} was {chosen}{gain}."
    if manifest.kind == "reproduce":
        if manifest.status != "finished":
            return "There is no result yet."
        return "The table below has the scores and their differences with confidence intervals."
    each = f", {done.kept / done.rows:.1f} for each text" if done.rows else ""
    rejected = f"; {done.rejected:,} rows were rejected" if done.rejected else "; no row was rejected"
    what = "rewrites were kept" if manifest.kind == "augment" else "texts have a label"
    return f"{done.kept:,} {what}{each if manifest.kind == 'augment' else ''}{rejected}."


def _choice(manifest: Manifest, rounds: Sequence[Mapping[str, float]]) -> Choice | None:
    """Return what is known of the chosen round; None while there is none, or without all of the rounds' lines."""
    best, prepared = manifest.best, manifest.prepared
    if best is None or prepared is None or not {0, best.round} <= {row.get("round") for row in rounds}:
        return None
    return choice(rounds, best.round, prepared.dev)


def _gain(manifest: Manifest, found: Choice | None) -> str:
    """Return how far the chosen round is ahead of round 0, the pre-training, and whether that can be chance."""
    if found is None or not found.used or manifest.best is None or not manifest.best.round:
        return ""
    dev = manifest.prepared.dev if manifest.prepared else 0
    verdict = f"{dev:,} dev rows cannot tell this from chance" if found.unsure else "more than chance explains"
    return f", {found.gain:+.3f} over round 0, which learned from the originals alone ({verdict})"


def rounds_note(manifest: Manifest, rounds: Sequence[Mapping[str, float]]) -> str:
    """Say what the rounds learned from, and which of them the model is from."""
    found = _choice(manifest, rounds)
    if found is None:
        return ""
    who = "Round 0" if found.used else "Every round"
    why = (
        "the best on the dev rows, which are held out to choose it"
        if found.best
        else "which is not clearly worse than the best one on the dev rows: few dev rows cannot show what unlabelled "
        "texts add, but they can show harm"
    )
    return f"{who} learned from the originals alone. The model is that of the chosen round, {why}."


def _next(manifest: Manifest, rounds: list[dict[str, float]]) -> str:
    done, state = manifest.done, manifest.observed_status()
    if state != "finished":
        return "Next: let it finish; the same command resumes it."
    total = done.rows + done.rejected
    if total and done.rejected > FEW * total:
        return f"Next: see why {done.rejected / total:.0%} of the rows were rejected, below."
    if manifest.kind == "train":
        if weakest := _weakest(manifest.test):
            label, f1, support = weakest
            return (
                f"Next: the weakest class is {label} (F1 {f1:.2f}, {support:,} test rows); label more of it: "
                "`epida label POOL --model DIR/model --for-review 100` lists texts worth labelling."
            )
        if manifest.test is None:
            return "Next: measure the model on labelled texts that it has not seen: `epida evaluate DIR/model FILE`."
        if manifest.best and not manifest.best.round and manifest.request.get("generator") != "none":
            return "Next: the rewrites did not help on dev; try `--generator none`, or another generator."
        return "Next: use the model: `epida predict DIR/model FILE -o OUT`, or `epida serve DIR/model`."
    if manifest.kind == "augment":
        return "Next: look through the examples, then train on DIR/augmented, or `epida export DIR kept.csv`."
    if manifest.kind == "label":
        return "Next: use DIR/labelled, or let a fast model learn it: `epida distil`."
    return "Next: choose the method that is ahead by more than its interval; where none is, take the simplest."


def _weakest(test: dict[str, Any] | None) -> tuple[str, float, int] | None:
    """Return a class that is far worse than the mean, if there is one."""
    classes = [(one["f1"], label, one["support"]) for label, one in (test or {}).get("per_class", {}).items()]
    classes = [one for one in classes if one[2]]
    if not classes or test is None:
        return None
    f1, label, support = min(classes)
    return (label, f1, support) if f1 < test["macro_f1"] - WEAK else None
