"""The paper's experiments as lists of trials, with the numbers the paper has for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast, get_args

from epida_ray.core.errors import RequestError
from epida_ray.experiments.trials import NONE, Budget, Method, Protocol, Trial

Column = tuple[str, str]
"""(data set, size)"""

EPIDA = Method("EPiDA (REM+CEM)")
RANDOM = Method("random EDA", select="random")
ONE_TIME = Method("EPiDA (REM+CEM)", online=False)
RANDOM_ONE_TIME = Method("random EDA", select="random", online=False)

MAIN: tuple[Column, ...] = (
    ("trec", "1%"), ("trec", "10%"), ("irony", "1%"), ("irony", "10%"), ("agnews", "60"), ("agnews", "120"),
    ("sentiment", "1%"), ("sentiment", "10%"), ("sst2", "1%"), ("subj", "1%"), ("cr", "5%"),
)  # fmt: skip
STUDIES: tuple[Column, ...] = (("trec", "1%"), ("irony", "1%"))
"""Where the paper's smaller studies were made."""


@dataclass(frozen=True)
class Options:
    """How much of an experiment to run, and how."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    quick: bool = False
    full: bool = False
    protocol: Protocol = "dev"
    classifier: str = "cnn"
    classifier_args: dict[str, Any] = field(default_factory=dict)
    generators: tuple[str, ...] = ()
    generator_args: dict[str, Any] = field(default_factory=dict)
    """For each of `generators`."""
    columns: tuple[Column, ...] = ()
    clean: bool = False
    steps: int | None = None
    """Steps of training, if not the classifier's default."""
    learning_rate: float | None = None
    text_column: str = "text"
    label_column: str | None = None


def make_options(
    *,
    seeds: int = 5,
    quick: bool = False,
    full: bool = False,
    protocol: str = "dev",
    classifier: str = "cnn",
    generators: Sequence[str] = (),
    generator_args: dict[str, Any] | None = None,
    settings: Sequence[str] = (),
    clean: bool = False,
    steps: int | None = None,
    learning_rate: float | None = None,
    classifier_args: dict[str, Any] | None = None,
    text_column: str = "text",
    label_column: str | None = None,
) -> Options:
    """From what a command line gives: `settings` are DATASET:SIZE such as trec:1%, agnews:60 or hub:ag_news:60."""
    if protocol not in get_args(Protocol):
        raise RequestError(f"--protocol is {' or '.join(get_args(Protocol))}, not {protocol!r}")
    if seeds < 1:
        raise RequestError(f"--seeds is how many seeds to run, at least 1, not {seeds}")
    if steps is not None and steps < 10:
        raise RequestError(f"--steps is how long to train, at least 10, not {steps}")
    if learning_rate is not None and not learning_rate > 0:
        raise RequestError(f"--learning-rate is above 0, not {learning_rate:g}")
    if quick and full:
        raise RequestError("--quick and --full exclude each other")
    if generator_args and not generators:
        raise RequestError("--generator-arg needs --generator, to say whose argument it is")
    columns = []
    for setting in settings:
        dataset, _, size = setting.rpartition(":")
        if not dataset:
            raise RequestError(f"a setting is DATASET:SIZE, such as trec:1% or agnews:60, not {setting!r}")
        columns.append((dataset, size))
    return Options(
        seeds=tuple(range(seeds)),
        quick=quick,
        full=full,
        protocol=cast(Protocol, protocol),
        classifier=classifier,
        generators=tuple(generators),
        generator_args=generator_args or {},
        columns=tuple(columns),
        clean=clean,
        steps=steps,
        learning_rate=learning_rate,
        classifier_args=classifier_args or {},
        text_column=text_column,
        label_column=label_column,
    )


@dataclass(frozen=True)
class Experiment:
    """`plan` gives methods and columns; every method is run on every column with every seed."""

    name: str
    title: str
    plan: Callable[[Options], tuple[list[Method], tuple[Column, ...]]]
    paper: dict[tuple[str, Column], float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    metric: str = "macro_f1"
    extra: tuple[str, ...] = ()
    """Further figures of a trial that get a table of their own."""
    measure: tuple[str, ...] = ()
    paper_of: str = "cnn"
    """The classifier that the paper's numbers are of."""
    plotted: str = ""
    """What the plot shows, if not the metric."""
    lines: bool = False
    """Plot the metric over the columns, not side by side."""
    use_dev_split: bool = False

    def trials(self, options: Options) -> list[Trial]:
        methods, columns = self.plan(options)
        methods = [
            replace(m, generator_args=options.generator_args) if m.generator in options.generators else m
            for m in methods
        ]
        if options.columns:
            columns = options.columns
        elif options.quick:
            columns = columns[:1]
        seeds = options.seeds[:2] if options.quick else options.seeds
        budget = replace(default_budget(options.classifier), learning_rate=options.learning_rate)
        if options.steps:
            budget = replace(budget, steps=options.steps)
        if options.quick:
            budget = replace(budget, steps=min(budget.steps, 60), least=3, most=12, rounds=3)
        return [
            Trial(
                dataset, size, seed, method, options.classifier, options.classifier_args, budget,
                options.protocol, use_dev_split=self.use_dev_split, clean=options.clean, measure=self.measure,
            )
            for dataset, size in columns
            for seed in seeds
            for method in methods
        ]  # fmt: skip


def default_budget(classifier: str) -> Budget:
    if classifier == "cnn":
        return Budget()
    return Budget(steps=120, least=3, most=15, rounds=3)


def _paper(columns: Sequence[Column], rows: dict[str, Sequence[float | None]]) -> dict[tuple[str, Column], float]:
    return {
        (name, column): value
        for name, values in rows.items()
        for column, value in zip(columns, values, strict=True)
        if value is not None
    }


def _chance(generator: str) -> str:
    return "random EDA" if generator == "eda" else f"random {generator}"


def _epida(generator: str) -> str:
    return "EPiDA with EDA" if generator == "eda" else f"EPiDA with {generator}"


def _generality(options: Options) -> tuple[list[Method], tuple[Column, ...]]:
    methods = [NONE]
    for generator in options.generators or ("eda",):
        methods += [
            Method(_chance(generator), generator=generator, select="random"),
            Method(_epida(generator), generator=generator),
        ]
    return methods, MAIN


_GENERALITY_COLUMNS = (
    ("trec", "1%"), ("trec", "10%"), ("agnews", "60"), ("agnews", "120"), ("sentiment", "1%"), ("sentiment", "10%"),
    ("irony", "1%"), ("irony", "10%"),
)  # fmt: skip
_GENERALITY_PAPER = _paper(
    _GENERALITY_COLUMNS,
    {
        "none": (0.722, 0.806, 0.745, 0.826, 0.446, 0.584, 0.534, 0.616),
        "EPiDA with EDA": (0.745, 0.814, 0.806, 0.829, 0.520, 0.598, 0.579, 0.621),
        "EPiDA with cwe": (0.737, 0.817, 0.806, 0.826, 0.524, 0.598, 0.578, 0.623),
        "EPiDA with textattack": (0.723, 0.838, 0.819, 0.829, 0.527, 0.600, 0.568, 0.631),
    },
)


def _sota(options: Options) -> tuple[list[Method], tuple[Column, ...]]:
    generators = options.generators or (
        ("eda", "cwe", "back-translation", "language-model") if options.full else ("eda",)
    )
    methods = [NONE]
    methods += [Method(_chance(g), generator=g, select="random", online=False) for g in generators]
    methods += [
        Method("REM only", select="rem", online=False),
        Method("CEM only", select="cem", online=False),
        Method("REM+CEM", online=False),
    ]
    return methods, (("irony", "10%"), ("sentiment", "10%"))


def ablation_rows() -> list[Method]:
    """The paper's nine rows by their numbers: DA, REM, CEM, online, pre-training."""
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


def _ablation(options: Options) -> tuple[list[Method], tuple[Column, ...]]:
    return ablation_rows(), MAIN


_ABLATION_PAPER = _paper(
    STUDIES,
    dict(
        zip(
            (method.name for method in ablation_rows()),
            zip(
                (0.722, 0.736, 0.723, 0.729, 0.723, 0.734, 0.739, 0.740, 0.745),
                (0.534, 0.474, 0.550, 0.557, 0.559, 0.548, 0.575, 0.576, 0.579),
                strict=True,
            ),
            strict=True,
        )
    ),
)


def _study(*methods: Method) -> Callable[[Options], tuple[list[Method], tuple[Column, ...]]]:
    """One-time and pre-trained, the setting of the paper's smaller studies, with both baselines."""
    return lambda _options: ([NONE, RANDOM_ONE_TIME, *methods], STUDIES)


def _alpha(options: Options) -> tuple[list[Method], tuple[Column, ...]]:
    steps = (0, 5, 10) if options.quick else range(11)
    each = [replace(ONE_TIME, name=f"α = {i / 10:.1f}", combine="weighted", alpha=i / 10) for i in steps]
    return [NONE, RANDOM_ONE_TIME, *each], STUDIES


def _k(options: Options) -> tuple[list[Method], tuple[Column, ...]]:
    each = [replace(ONE_TIME, name=f"K = {k}", k=k) for k in ((2, 10) if options.quick else (2, 3, 5, 7, 10))]
    return [NONE, RANDOM_ONE_TIME, *each], (("irony", "1%"),)


def _error_distance(options: Options) -> tuple[list[Method], tuple[Column, ...]]:
    methods = [
        replace(RANDOM_ONE_TIME, name="EDA"),
        replace(ONE_TIME, name="REM only", select="rem"),
        replace(ONE_TIME, name="CEM only", select="cem"),
        replace(ONE_TIME, name="EPiDA"),
    ]
    return methods, (("sentiment", "1%" if options.quick else "10%"),)


def _speed(options: Options) -> tuple[list[Method], tuple[Column, ...]]:
    methods = []
    for generator in options.generators or (("eda", "cwe") if options.full else ("eda",)):
        methods += [
            Method(generator, generator=generator, select="random", online=False),
            Method(f"{generator} + EPiDA", generator=generator, online=False),
        ]
    return methods, (("sentiment", "1%" if options.quick else "10%"),)


_PERCENTS = (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)


def _saturation(options: Options) -> tuple[list[Method], tuple[Column, ...]]:
    percents = _PERCENTS if options.full else (1, 5, 10, 20, 50, 100)
    return [NONE, RANDOM, replace(EPIDA, name="EPiDA")], tuple(("trec", f"{p}%") for p in percents)


def _whole(options: Options, dataset: str) -> tuple[Column, ...]:
    return ((dataset, "2%" if options.quick else "100%"),)


def _sst(options: Options) -> tuple[list[Method], tuple[Column, ...]]:
    methods, _ = _generality(options)
    return methods, (("sst1", "10%"),)


def _vda(options: Options) -> tuple[list[Method], tuple[Column, ...]]:
    methods, _ = _generality(options)
    return methods, _whole(options, "agnews") + (_whole(options, "mr") if options.full else ())


def _formula(options: Options) -> tuple[list[Method], tuple[Column, ...]]:
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


_SHARED = (
    "The paper's normalisation, combination and replacement studies share .740 and .576, row 8 of its ablation "
    "(pre-trained, one-time); these trials are run that way."
)
_MIRROR = (
    "flips: share of the kept that their judge takes for another class. mirror: median correlation of s_div and "
    "s_qua within a sample. extreme: share of the kept with s_div within .05 of 0 or 1. All are means over the rounds."
)
_TREC = (
    "The paper has the CNN without augmentation on TREC 1% at .722 macro-F1 in its tables and at .419 accuracy in its "
    "saturation figure; both cannot be."
)
_BINARY = (
    "The paper says F1 for binary tasks such as Irony, but macro-F1 of the same numbers in its ablation; ours is "
    "macro-F1 throughout."
)

EXPERIMENTS: dict[str, Experiment] = {
    e.name: e
    for e in (
        Experiment(
            "generality",
            "Different generators and classifiers, online",
            _generality,
            _GENERALITY_PAPER,
            (
                _TREC,
                _BINARY,
                "AG News 60 and 120 are the paper's 0.05% and 0.1%.",
                "SST-2, SUBJ and CR are not in the paper.",
                _MIRROR,
            ),
            extra=("flips", "mirror", "extreme"),
        ),
        Experiment(
            "sota",
            "Existing augmentation methods, one round",
            _sota,
            _paper(
                (("irony", "10%"), ("sentiment", "10%")),
                {
                    "random EDA": (0.530, 0.560),
                    "random cwe": (0.518, 0.610),
                    "random back-translation": (0.520, 0.617),
                    "REM only": (0.624, 0.619),
                    "CEM only": (0.629, 0.629),
                    "REM+CEM": (0.651, 0.639),
                },
            ),
            ("The paper's back-translation goes through French.", _BINARY),
            paper_of="bert",
            extra=("ppl",),
            measure=("ppl",),
        ),
        Experiment("ablation", "The nine rows of the ablation", _ablation, _ABLATION_PAPER, (_TREC, _BINARY)),
        Experiment(
            "normalization",
            "With and without normalisation",
            _study(replace(ONE_TIME, name="normalised"), replace(ONE_TIME, name="raw scores", normalize=False)),
            _paper(STUDIES, {"normalised": (0.740, 0.576), "raw scores": (0.732, 0.568)}),
            (_SHARED,),
        ),
        Experiment(
            "combine",
            "Adding and multiplying the two scores",
            _study(replace(ONE_TIME, name="add"), replace(ONE_TIME, name="multiply", combine="multiply")),
            _paper(STUDIES, {"add": (0.740, 0.576), "multiply": (0.725, 0.572)}),
            (_SHARED,),
        ),
        Experiment(
            "alpha",
            "Weighted addition",
            _alpha,
            {
                ("α = 0.5", ("trec", "1%")): 0.740,
                ("α = 0.5", ("irony", "1%")): 0.576,
                ("α = 0.4", ("irony", "1%")): 0.579,
            },
            ("The paper shows a curve; the numbers here are those its text names.",),
        ),
        Experiment(
            "k",
            "The amplification factor K",
            _k,
            _paper(
                (("irony", "1%"),),
                {"K = 2": (0.573,), "K = 3": (0.577,), "K = 5": (0.576,), "K = 7": (0.574,), "K = 10": (0.575,)},
            ),
        ),
        Experiment(
            "loss",
            "The loss: L_o, L_g and their sum",
            _study(replace(ONE_TIME, name="L_g", loss="augmented"), replace(ONE_TIME, name="L = L_o + L_g")),
            _paper(STUDIES, {"none": (0.722, 0.534), "L_g": (0.736, 0.474), "L = L_o + L_g": (0.740, 0.576)}),
            ("`none` is L_o.", "The paper's L_g numbers are row 2 of its ablation: DA, no REM, CEM or pre-training."),
        ),
        Experiment(
            "replacement",
            "Perplexity for REM, cosine similarity for CEM",
            _study(
                replace(ONE_TIME, name="REM+CEM"),
                replace(ONE_TIME, name="PPL+CEM", select="ppl+cem"),
                replace(ONE_TIME, name="REM+cosine", select="rem+cosine"),
                replace(ONE_TIME, name="PPL+cosine", select="ppl+cosine"),
            ),
            _paper(
                STUDIES,
                {
                    "REM+CEM": (0.740, 0.576),
                    "PPL+CEM": (0.731, 0.567),
                    "REM+cosine": (0.736, 0.566),
                    "PPL+cosine": (0.730, 0.562),
                },
            ),
            (_SHARED,),
        ),
        Experiment(
            "error-distance",
            "Error rate and distance of what is kept",
            _error_distance,
            notes=(
                "error: share of the kept whose label a classifier trained on the full training set denies (paper: "
                "EDA 3.05%, REM only 6.75%, CEM only 0.64%, EPiDA 1.53%).",
                "distance: of that classifier's hidden state to the original's, root mean square over its units, among "
                "the rest (paper, in its own unit: EDA 0.54, REM only 1.21, CEM only 0.25, EPiDA 0.78).",
            ),
            extra=("error", "distance"),
            plotted="error",
            measure=("error-distance",),
        ),
        Experiment(
            "speed",
            "Kept samples a second",
            _speed,
            notes=("The paper, on one RTX 3090: EDA 188.4, EDA + EPiDA 43.8, CWE 30.7, CWE + EPiDA 10.1.",),
            extra=("kept_per_second",),
            plotted="kept_per_second",
            measure=("speed",),
        ),
        Experiment(
            "saturation",
            "Accuracy over the share of data used",
            _saturation,
            _paper(
                tuple(("trec", f"{p}%") for p in _PERCENTS),
                {
                    "none": (
                        0.4192,
                        0.6008,
                        0.7056,
                        0.7304,
                        0.7984,
                        0.8236,
                        0.8392,
                        0.8292,
                        0.8464,
                        0.8596,
                        0.8636,
                        0.8804,
                    ),
                    "random EDA": (
                        0.5912,
                        0.8192,
                        0.8464,
                        0.8824,
                        0.8868,
                        0.8872,
                        0.898,
                        0.8856,
                        0.8988,
                        0.9092,
                        0.9008,
                        0.8916,
                    ),
                    "EPiDA": (0.7172, 0.830, 0.852, 0.878, 0.916, 0.914, 0.914, 0.922, 0.932, 0.926, 0.934, 0.938),
                },
            ),
            (_TREC,),
            metric="accuracy",
            lines=True,
        ),
        Experiment(
            "sst",
            "SST-5 10% with a devtest split",
            _sst,
            _paper(
                (("sst1", "10%"),),
                {
                    "none": (0.254,),
                    "random EDA": (0.406,),
                    "random cwe": (0.449,),
                    "EPiDA with EDA": (0.435,),
                    "EPiDA with cwe": (0.459,),
                },
            ),
            ("SUB² has .458 in the paper.",),
            paper_of="xlm-r",
            metric="accuracy",
            use_dev_split=True,
        ),
        Experiment(
            "vda",
            "All of AG News and MR",
            _vda,
            {
                ("none", ("agnews", "100%")): 0.944,
                ("EPiDA with EDA", ("agnews", "100%")): 0.949,
                ("none", ("mr", "100%")): 0.868,
                ("EPiDA with EDA", ("mr", "100%")): 0.879,
            },
            (
                "The paper has 120,000 rows of AG News; VDA has .945 there and .878 on MR.",
                "100% is all of the training file that is in the data directory.",
            ),
            paper_of="bert",
            metric="accuracy",
        ),
        Experiment(
            "formula",
            "REM and CEM as printed and as in the authors' code, with and without the original in the pool",
            _formula,
            notes=(
                "Not in the paper.",
                "judged by others: by a classifier that was pre-trained on the half of the samples that the judged "
                "one is not in.",
                _MIRROR,
            ),
            extra=("flips", "mirror", "extreme"),
        ),
    )
}


def find(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise RequestError(f"there is no experiment {name!r}; there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
