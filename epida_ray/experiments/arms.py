"""The methods and settings of the experiments: every plan is a list of methods and the settings that they run in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from epida_ray.experiments.experiment import Plan
from epida_ray.experiments.options import Options, Setting
from epida_ray.experiments.paper import PERCENTS, STUDIES
from epida_ray.experiments.trials import NONE, Method

EPIDA = Method("EPiDA (REM+CEM)")
RANDOM = Method("random EDA", select="random")
ONE_TIME = Method("EPiDA (REM+CEM)", online=False)
RANDOM_ONE_TIME = Method("random EDA", select="random", online=False)

MAIN: tuple[Setting, ...] = (
    ("trec", "1%"), ("trec", "10%"), ("irony", "1%"), ("irony", "10%"), ("agnews", "60"), ("agnews", "120"),
    ("sentiment", "1%"), ("sentiment", "10%"), ("sst2", "1%"), ("subj", "1%"), ("cr", "5%"),
)  # fmt: skip
FEW_LABELS: tuple[Setting, ...] = (
    ("trec", "1%"), ("trec", "10%"), ("irony", "1%"), ("irony", "10%"), ("agnews", "60"), ("agnews", "120"),
    ("sentiment", "1%"), ("sst2", "1%"), ("subj", "1%"), ("cr", "5%"),
)  # fmt: skip
MAP: tuple[Setting, ...] = (
    ("trec", "1%"), ("trec", "10%"), ("irony", "10%"), ("agnews", "60"), ("sst2", "1%"), ("subj", "1%"),
)  # fmt: skip


def _random(generator: str) -> str:
    return "random EDA" if generator == "eda" else f"random {generator}"


def _epida(generator: str) -> str:
    return "EPiDA with EDA" if generator == "eda" else f"EPiDA with {generator}"


OF_THE_SAMPLES = ("substructure", "span-mix", "morph")
"""Generators that take parts of the samples themselves, and need neither models nor word lists."""


def _both(generators: Sequence[str], **options: Any) -> list[Method]:
    """Return random rewrites and chosen ones by each of these generators."""
    return [
        method
        for generator in generators
        for method in (
            Method(_random(generator), generator=generator, select="random", **options),
            Method(_epida(generator), generator=generator, **options),
        )
    ]


def generality(options: Options) -> Plan:
    return [NONE, *_both(options.generators or ("eda",))], MAIN


def sota(options: Options) -> Plan:
    generators = options.generators or (
        ("eda", "cwe", "back-translation", "language-model") if options.full else ("eda",)
    )
    methods = [NONE]
    methods += [Method(_random(g), generator=g, select="random", online=False) for g in generators]
    if options.full and not options.generators:
        guided: dict[str, Any] = {"generator": "language-model", "generator_args": {"guide": "classifier"}}
        methods.append(Method("random guided language-model", select="random", online=False, **guided))
    methods += [
        Method("REM only", select="rem", online=False),
        Method("CEM only", select="cem", online=False),
        Method("REM+CEM", online=False),
    ]
    if not options.generators:
        methods += _both(OF_THE_SAMPLES, online=False)
    return methods, (("irony", "10%"), ("sentiment", "10%"))


FROZEN = replace(NONE, name="encoder", classifier="encoder")
TUNED = replace(NONE, name="encoder, tuned", classifier="encoder", classifier_args={"tune": "contrastive"})
RETUNED = {**TUNED.classifier_args, "retune": True}
FULLY: dict[str, Any] = {"classifier": "encoder", "classifier_args": {"tune": "full"}}
FULLY_RETUNED: dict[str, Any] = {"classifier": "encoder", "classifier_args": {"tune": "full", "retune": True}}
FINE_TUNED = replace(
    NONE, name="transformer, fine-tuned", classifier="minilm", classifier_args={"pooling": "mean"}
)  # the encoder's network, trained as a whole
UNLABELLED = 1500


def few_labels(options: Options) -> Plan:
    pool: dict[str, Any] = {"unlabelled": UNLABELLED}
    methods = [
        replace(NONE, name="cnn", classifier="cnn"),
        FROZEN,
        replace(FROZEN, name="encoder, balanced", balance=True),
        replace(FROZEN, name="encoder + unlabelled texts", **pool),
        replace(NONE, name="cnn + unlabelled texts, encoder as teacher", classifier="cnn", teacher=FROZEN, **pool),
    ]
    if options.full:
        methods += [
            FINE_TUNED,
            TUNED,
            replace(TUNED, name="encoder, tuned, balanced", balance=True),
            replace(TUNED, name="encoder, tuned + unlabelled texts", **pool),
            replace(NONE, name="cnn + unlabelled texts, tuned teacher", classifier="cnn", teacher=TUNED, **pool),
        ]
    return methods, FEW_LABELS


def views(options: Options) -> Plan:
    """Return what rewrites could add: to the encoder, to unlabelled texts, and with a second judge."""
    pool: dict[str, Any] = {"unlabelled": UNLABELLED}
    with_eda: dict[str, Any] = {"classifier": "encoder", "generator": "eda"}
    two_judges = Method("cnn + EPiDA, encoder as second judge", classifier="cnn", teacher=FROZEN)
    methods = [
        replace(NONE, name="cnn", classifier="cnn"),
        Method("cnn + EPiDA", classifier="cnn"),
        two_judges,
        FROZEN,
        Method("encoder + random EDA", select="random", **with_eda),
        Method("encoder + EPiDA", **with_eda),
        replace(FROZEN, name="encoder + unlabelled texts", **pool),
        Method("encoder + unlabelled texts and their EDA", pool_rewrites=True, **pool, **with_eda),
    ]
    if options.full:
        methods += [
            TUNED,
            Method("encoder, tuned + random EDA", select="random", classifier_args=TUNED.classifier_args, **with_eda),
            Method("encoder, tuned + EPiDA", classifier_args=TUNED.classifier_args, **with_eda),
            Method("encoder, retuned + random EDA", select="random", classifier_args=RETUNED, **with_eda),
            Method("encoder, retuned + EPiDA", classifier_args=RETUNED, **with_eda),
        ]
    return methods, FEW_LABELS


def typos(options: Options) -> Plan:
    noise: dict[str, Any] = {"noise": "spelling:0.3"}
    robust: dict[str, Any] = {"generator": "spelling", "generator_args": {"alpha": 0.3}, **noise}
    methods = [
        replace(NONE, name="none", **noise),
        Method("random spelling", select="random", **robust),
        Method("worst spelling (REM)", select="rem", **robust),
    ]
    if options.full:
        methods += [
            replace(NONE, name="encoder, fully tuned", **FULLY, **noise),
            Method("encoder, fully tuned, worst spelling (REM)", select="rem", **FULLY, **robust),
            Method("encoder, fully retuned, worst spelling (REM)", select="rem", **FULLY_RETUNED, **robust),
        ]
    return methods, FEW_LABELS


def methods_map(options: Options) -> Plan:
    careful: dict[str, Any] = {"generator_args": {"careful": True}}
    strong: dict[str, Any] = {"generator_args": dict.fromkeys(("alpha_sr", "alpha_ri", "alpha_rs", "p_rd"), 0.3)}
    methods = [
        NONE,
        RANDOM,
        replace(EPIDA, name="EPiDA with EDA"),
        replace(RANDOM, name="random careful EDA", **careful),
        replace(EPIDA, name="EPiDA with careful EDA", **careful),
        *_both(OF_THE_SAMPLES),
        replace(NONE, name="mixup", mixup=0.2),
        replace(NONE, name="mixup, input", mixup=0.2, mixup_layer="input"),
        replace(EPIDA, name="multi-task", loss="multi-task"),
        replace(RANDOM, name="random strong EDA", **strong),
        replace(EPIDA, name="EPiDA with strong EDA", **strong),
        replace(EPIDA, name="curriculum", curriculum=True, **strong),
    ]
    if options.full:
        methods.append(Method("EPiDA with author", generator="author", online=False))
    return methods, MAP


def author(options: Options) -> Plan:
    few: dict[str, Any] = {"m": 2, "k": 2, "online": False}
    methods = [
        NONE,
        Method("random EDA", select="random", **few),
        Method("EPiDA with EDA", **few),
        Method("EPiDA with author", generator="author", **few),
    ]
    if options.full:
        methods.append(replace(methods[-1], name="random author", select="random"))
    return methods, tuple((name, f"{n} per class") for n in (5, 20) for name in ("subj", "trec"))


def ablation_rows() -> list[Method]:
    """Return the paper's nine rows by their numbers: DA, REM, CEM, online, pre-training."""
    row = Method("", pretrain=False, online=False)
    return [
        replace(NONE, name="1: none"),
        replace(row, name="2: DA", select="random"),
        replace(row, name="3: DA, online", select="random", online=True),
        replace(row, name="4: REM, pre-trained", select="rem", pretrain=True),
        replace(row, name="5: CEM, pre-trained", select="cem", pretrain=True),
        replace(row, name="6: REM+CEM"),
        replace(row, name="7: REM+CEM, online", online=True),
        replace(row, name="8: REM+CEM, pre-trained", pretrain=True),
        replace(row, name="9: REM+CEM, online, pre-trained", online=True, pretrain=True),
    ]


def study(*methods: Method) -> Callable[[Options], Plan]:
    """Return the plan of the paper's smaller studies: one-time and pre-trained, with both baselines."""
    return lambda _options: ([NONE, RANDOM_ONE_TIME, *methods], STUDIES)


def alpha(options: Options) -> Plan:
    steps = (0, 5, 10) if options.quick else range(11)
    each = [replace(ONE_TIME, name=f"α = {i / 10:.1f}", combine="weighted", alpha=i / 10) for i in steps]
    return [NONE, RANDOM_ONE_TIME, *each], STUDIES


def k(options: Options) -> Plan:
    each = [replace(ONE_TIME, name=f"K = {k}", k=k) for k in ((2, 10) if options.quick else (2, 3, 5, 7, 10))]
    return [NONE, RANDOM_ONE_TIME, *each], (("irony", "1%"),)


def error_distance(options: Options) -> Plan:
    methods = [
        replace(RANDOM_ONE_TIME, name="EDA"),
        replace(ONE_TIME, name="REM only", select="rem"),
        replace(ONE_TIME, name="CEM only", select="cem"),
        replace(ONE_TIME, name="EPiDA"),
    ]
    return methods, (("sentiment", "1%" if options.quick else "10%"),)


def speed(options: Options) -> Plan:
    methods = []
    for generator in options.generators or (("eda", "cwe") if options.full else ("eda",)):
        methods += [
            Method(generator, generator=generator, select="random", k=1, online=False),
            Method(f"{generator} + EPiDA", generator=generator, online=False),
        ]
    return methods, (("sentiment", "1%" if options.quick else "10%"),)


def saturation(options: Options) -> Plan:
    percents = PERCENTS if options.full else (1, 5, 10, 20, 50, 100)
    return [NONE, RANDOM, replace(EPIDA, name="EPiDA")], tuple(("trec", f"{p}%") for p in percents)


def sst(options: Options) -> Plan:
    return [NONE, *_both(options.generators or ("eda", *OF_THE_SAMPLES))], (("sst1", "10%"),)


def vda(options: Options) -> Plan:
    size = "2%" if options.quick else "100%"
    return generality(options)[0], (("agnews", size), ("mr", size)) if options.full else (("agnews", size),)


def formula(options: Options) -> Plan:
    divs, quas = ("rem", "rem-linear"), ("cem", "cem-agreement", "neg-entropy")
    each = [
        Method(f"{div}+{qua}{'' if pooled else ', original apart'}", select=f"{div}+{qua}", pool_original=pooled)
        for pooled in (True, False)
        for div in divs
        for qua in quas
    ]
    each += [Method("cem-agreement", select="cem-agreement"), Method("rem", select="rem")]
    each += [Method(f"{s}, judged by others", select=s, judge="others") for s in ("rem+cem", "cem-agreement", "rem")]
    return [NONE, RANDOM, *(each[::4] if options.quick else each)], MAIN
