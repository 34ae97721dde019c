"""The paper's experiments as lists of trials, with the paper's numbers for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from epida_ray.core.errors import RequestError
from epida_ray.experiments import paper
from epida_ray.experiments.options import Options, Setting
from epida_ray.experiments.paper import PERCENTS, STUDIES
from epida_ray.experiments.trials import NONE, Method, Trial

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


def _generality(options: Options) -> Plan:
    return [NONE, *_both(options.generators or ("eda",))], MAIN


def _sota(options: Options) -> Plan:
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
UNLABELLED = 1500


def _few_labels(options: Options) -> Plan:
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
            TUNED,
            replace(TUNED, name="encoder, tuned + unlabelled texts", **pool),
            replace(NONE, name="cnn + unlabelled texts, tuned teacher", classifier="cnn", teacher=TUNED, **pool),
        ]
    return methods, FEW_LABELS


def _views(options: Options) -> Plan:
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
        ]
    return methods, FEW_LABELS


def _typos(options: Options) -> Plan:
    noisy = replace(NONE, name="none", noise="spelling:0.3")
    robust: dict[str, Any] = {"generator": "spelling", "generator_args": {"alpha": 0.3}, "noise": "spelling:0.3"}
    return [
        noisy,
        Method("random spelling", select="random", **robust),
        Method("worst spelling (REM)", select="rem", **robust),
    ], FEW_LABELS


def _map(options: Options) -> Plan:
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


def _author(options: Options) -> Plan:
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


def _study(*methods: Method) -> Callable[[Options], Plan]:
    """Return the plan of the paper's smaller studies: one-time and pre-trained, with both baselines."""
    return lambda _options: ([NONE, RANDOM_ONE_TIME, *methods], STUDIES)


def _alpha(options: Options) -> Plan:
    steps = (0, 5, 10) if options.quick else range(11)
    each = [replace(ONE_TIME, name=f"α = {i / 10:.1f}", combine="weighted", alpha=i / 10) for i in steps]
    return [NONE, RANDOM_ONE_TIME, *each], STUDIES


def _k(options: Options) -> Plan:
    each = [replace(ONE_TIME, name=f"K = {k}", k=k) for k in ((2, 10) if options.quick else (2, 3, 5, 7, 10))]
    return [NONE, RANDOM_ONE_TIME, *each], (("irony", "1%"),)


def _error_distance(options: Options) -> Plan:
    methods = [
        replace(RANDOM_ONE_TIME, name="EDA"),
        replace(ONE_TIME, name="REM only", select="rem"),
        replace(ONE_TIME, name="CEM only", select="cem"),
        replace(ONE_TIME, name="EPiDA"),
    ]
    return methods, (("sentiment", "1%" if options.quick else "10%"),)


def _speed(options: Options) -> Plan:
    methods = []
    for generator in options.generators or (("eda", "cwe") if options.full else ("eda",)):
        methods += [
            Method(generator, generator=generator, select="random", k=1, online=False),
            Method(f"{generator} + EPiDA", generator=generator, online=False),
        ]
    return methods, (("sentiment", "1%" if options.quick else "10%"),)


def _saturation(options: Options) -> Plan:
    percents = PERCENTS if options.full else (1, 5, 10, 20, 50, 100)
    return [NONE, RANDOM, replace(EPIDA, name="EPiDA")], tuple(("trec", f"{p}%") for p in percents)


def _sst(options: Options) -> Plan:
    return [NONE, *_both(options.generators or ("eda", *OF_THE_SAMPLES))], (("sst1", "10%"),)


def _vda(options: Options) -> Plan:
    size = "2%" if options.quick else "100%"
    return _generality(options)[0], (("agnews", size), ("mr", size)) if options.full else (("agnews", size),)


def _formula(options: Options) -> Plan:
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


SAME_NUMBERS = (
    "The paper's normalization, combination and replacement studies share .740 and .576, row 8 of its ablation "
    "(pre-trained, one-time); these trials run that way."
)
FLIPS = "flips: share of the kept rewrites that their judge takes for another class, a mean over the rounds."
MIRROR = (
    "mirror: median correlation of s_div and s_qua within a sample. extreme: share of the kept rewrites with s_div "
    "within .05 of 0 or 1. Both are means over the rounds."
)
TREC = (
    "The paper reports the CNN without augmentation on TREC 1% as .722 macro-F1 in its tables and as .419 accuracy in "
    "its saturation figure; these contradict each other."
)
BINARY = (
    "For binary tasks such as Irony the paper's text says F1, its ablation macro-F1, of the same numbers; here it is "
    "always macro-F1."
)

EXPERIMENTS: dict[str, Experiment] = {
    e.name: e
    for e in (
        Experiment(
            "few-labels",
            "Sentence encoders, unlabelled texts and teachers",
            _few_labels,
            baselines=("cnn", "encoder"),
            notes=(f"Unlabelled texts are {UNLABELLED:,} other texts of the training split.",),
        ),
        Experiment(
            "views",
            "What rewrites add to encoders, unlabelled texts and teachers",
            _views,
            baselines=("cnn", "encoder"),
            notes=(f"Unlabelled texts are {UNLABELLED:,} other texts of the training split.",),
        ),
        Experiment(
            "typos",
            "Training for misspelt texts",
            _typos,
            notes=("The noisy test texts have three words in ten misspelt.",),
            extra=("noisy_macro_f1",),
        ),
        Experiment(
            "map",
            "More of the methods that the paper compares with",
            _map,
            notes=(
                "error: share of the kept rewrites that a classifier trained on the full training set takes for "
                "another class. distance: how far its hidden states of a rewrite are from those of the original.",
                "author, with --full, writes once, before the first round.",
                "strong EDA changes three words in ten in place of one, and curriculum does so in the last round: in "
                "the first it changes a fifth as many.",
            ),
            extra=("error", "distance"),
            measure=("error-distance",),
        ),
        Experiment(
            "author",
            "New texts of a class by a language model, few rows",
            _author,
            notes=(
                "Four texts are made of each row, once, after pre-training, and two are kept.",
                "error: share of the kept texts that a classifier trained on the full training set takes for another "
                "class.",
            ),
            extra=("error", "kept"),
            measure=("error-distance",),
        ),
        Experiment(
            "generality",
            "Different generators and classifiers, online",
            _generality,
            paper.GENERALITY,
            (
                TREC,
                BINARY,
                "AG News 60 and 120 are the paper's 0.05% and 0.1%.",
                "SST-2, SUBJ and CR are not in the paper.",
                MIRROR,
            ),
            notes=(FLIPS,),
            extra=("flips", "mirror", "extreme"),
        ),
        Experiment(
            "sota",
            "Existing augmentation methods, one round",
            _sota,
            paper.SOTA,
            (
                "The paper translates back through French. The guided language model has its number of Data Boost.",
                BINARY,
            ),
            paper_of="bert",
            extra=("ppl",),
            measure=("ppl",),
        ),
        Experiment(
            "ablation",
            "The nine rows of the ablation",
            lambda _options: (ablation_rows(), MAIN),
            paper.ABLATION,
            (TREC, BINARY),
        ),
        Experiment(
            "normalization",
            "With and without normalization",
            _study(replace(ONE_TIME, name="normalized"), replace(ONE_TIME, name="raw scores", normalize=False)),
            paper.NORMALIZATION,
            (SAME_NUMBERS,),
        ),
        Experiment(
            "combine",
            "Adding and multiplying the two scores",
            _study(replace(ONE_TIME, name="add"), replace(ONE_TIME, name="multiply", combine="multiply")),
            paper.COMBINE,
            (SAME_NUMBERS,),
        ),
        Experiment(
            "alpha",
            "Weighted addition",
            _alpha,
            paper.ALPHA,
            ("The paper shows a curve; its text states only the numbers given here.",),
        ),
        Experiment("k", "The amplification factor K", _k, paper.K),
        Experiment(
            "loss",
            "The loss: L_o, L_g and their sum",
            _study(replace(ONE_TIME, name="L_g", loss="augmented"), replace(ONE_TIME, name="L = L_o + L_g")),
            paper.LOSS,
            ("The paper's numbers for L_g are row 2 of its ablation: DA without REM, CEM and pre-training.",),
            ("`none` is L_o.",),
        ),
        Experiment(
            "replacement",
            "Perplexity instead of REM, cosine similarity instead of CEM",
            _study(
                replace(ONE_TIME, name="REM+CEM"),
                replace(ONE_TIME, name="PPL+CEM", select="ppl+cem"),
                replace(ONE_TIME, name="REM+cosine", select="rem+cosine"),
                replace(ONE_TIME, name="PPL+cosine", select="ppl+cosine"),
            ),
            paper.REPLACEMENT,
            (SAME_NUMBERS,),
        ),
        Experiment(
            "error-distance",
            "Error rate and distance of the kept rewrites",
            _error_distance,
            notes=(
                "error: share of the kept rewrites that a classifier trained on the full training set takes for "
                "another class.",
                "distance: root mean square difference between that classifier's hidden states of a rewrite and of its "
                "original, over the other rewrites.",
            ),
            paper_notes=(
                "error in the paper: EDA 3.05%, REM only 6.75%, CEM only 0.64%, EPiDA 1.53%.",
                "distance in the paper, in its own unit: EDA 0.54, REM only 1.21, CEM only 0.25, EPiDA 0.78.",
            ),
            extra=("error", "distance"),
            plotted="error",
            measure=("error-distance",),
        ),
        Experiment(
            "speed",
            "Kept rewrites per second",
            _speed,
            paper_notes=("The paper, on one RTX 3090: EDA 188.4, EDA + EPiDA 43.8, CWE 30.7, CWE + EPiDA 10.1.",),
            notes=("A generator alone makes m rewrites per text and needs no judge.",),
            extra=("kept_per_second",),
            plotted="kept_per_second",
            measure=("speed",),
        ),
        Experiment(
            "saturation",
            "Accuracy over the share of the data that is used",
            _saturation,
            paper.SATURATION,
            (TREC,),
            metric="accuracy",
            lines=True,
        ),
        Experiment(
            "sst",
            "SST-5 10% with its own dev split",
            _sst,
            paper.SST,
            ("The paper's number beside random substructure is that of SUB².",),
            paper_of="xlm-r",
            metric="accuracy",
            use_dev_split=True,
        ),
        Experiment(
            "vda",
            "All of AG News and MR",
            _vda,
            paper.VDA,
            ("The paper uses 120,000 rows of AG News; VDA has .945 there and .878 on MR.",),
            ("100% is the whole training file in the data directory.",),
            paper_of="bert",
            metric="accuracy",
        ),
        Experiment(
            "formula",
            "REM and CEM as printed and as in the authors' code, with and without the original in the pool",
            _formula,
            paper_notes=("Not in the paper.", MIRROR),
            notes=(
                "judged by others: the judge of a sample is a classifier that was pre-trained on the half of the "
                "samples without it.",
                FLIPS,
            ),
            extra=("flips", "mirror", "extreme"),
        ),
    )
}


def find(name: str) -> Experiment:
    """Return the experiment of this name; raise RequestError when there is none."""
    if name not in EXPERIMENTS:
        raise RequestError(f"there is no experiment {name!r}; choose one of {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
