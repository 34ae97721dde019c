"""What a user requests of a run: frozen, checked, and the same from the command line, a file or Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

from epida_ray.core.options import (
    Arguments,
    Names,
    Phrases,
    flag,
    key_values,
    make_request,
    option,
    read_config,
    result_options,
)

AUTO = "auto"
"""The classifier of a training run that leaves the choice to us."""
NO_GENERATOR = "none"
"""The generator of a training run without augmentation."""

INPUT = "Input"
METHOD = "Method"
TRAINING = "Training"
POOL = "Unlabelled texts and teachers"
OUTPUT = "Output"
RESOURCES = "Resources and limits"
GROUPS = (INPUT, METHOD, TRAINING, POOL, OUTPUT, RESOURCES)
"""The headings of `--help`, in this order."""


class RunRequest(BaseModel):
    """The options of every command that works through an input on Ray."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # Of a file its content affects the result, not its name: the run adds a digest.
    input: str = option(
        ..., "Labelled texts: a file, directory, pattern or URL of Parquet, CSV, JSON, Excel or Arrow.",
        metavar="INPUT", positional=True, affects_result=False,
    )  # fmt: skip
    output: str = option(
        ..., "Directory for everything the run writes.", group=OUTPUT, short="-o", metavar="DIR", affects_result=False
    )
    text_column: str = option("text", "Column with the text.", group=INPUT, metavar="NAME")
    id_column: str | None = option(
        None, "Column with a unique id. Without it, a row's id is PATH:ROW.", group=INPUT, metavar="NAME"
    )
    encoding: str = option(
        "auto", "Encoding of CSV, TSV and JSON files; auto detects UTF-8, UTF-16 and Windows-1252.",
        group=INPUT, metavar="NAME",
    )  # fmt: skip
    delimiter: str | None = option(
        None, "Delimiter of CSV and TSV files, such as ';' or tab. Detected by default.", group=INPUT, metavar="C"
    )
    trust_code: tuple[str, ...] = option(
        (), "Code that a saved model may run: MODULE:CLASS, or a type in a skops file.",
        group=METHOD, metavar="NAME", repeat=True, affects_result=False,
    )  # fmt: skip
    seed: int = option(
        0, "Seed of all random choices; the same seed gives the same result.", group=METHOD, metavar="N", ge=0
    )

    address: str | None = option(
        None, "Ray to use: local, auto or HOST:PORT. Without it, $RAY_ADDRESS if set, else local.",
        group=RESOURCES, metavar="ADDRESS", affects_result=False,
    )  # fmt: skip
    scorer_actors: int | None = option(
        None, "Number of actors that score. Without it, as many as fit.",
        group=RESOURCES, metavar="N", affects_result=False, ge=1,
    )  # fmt: skip
    max_rejected: float = option(
        0.2, "Share of the rows that may be rejected before the run fails.",
        group=RESOURCES, metavar="SHARE", affects_result=False, ge=0, le=1,
    )  # fmt: skip
    stall_timeout: float = option(
        1800, "Give up after this long without progress.",
        group=RESOURCES, metavar="SECONDS", affects_result=False, gt=0,
    )  # fmt: skip
    take_over: bool = option(
        False, "Take over the run in DIR from another command, which then stops writing.",
        group=RESOURCES, affects_result=False,
    )  # fmt: skip

    def trusted(self) -> tuple[str, ...]:
        """Return the code that the request names and that a saved model may therefore run."""
        return self.trust_code

    def result_options(self) -> dict[str, Any]:
        """Return the options that can change the result, as plain JSON."""
        return result_options(self)


class MethodRequest(RunRequest):
    """The options that `epida augment` and `epida train` share."""

    label_column: str = option("label", "Column with the label.", group=INPUT, metavar="NAME")
    labels: Names = option(
        (), "All classes, separated by commas. Without it, the classes found in the data.", group=INPUT, metavar="A,B,…"
    )

    generator: str = option(
        "eda", "Generator that rewrites the texts; `epida list generators` shows them.", group=METHOD, metavar="NAME"
    )
    generator_args: Arguments = option(
        {}, "Argument of the generator.", group=METHOD, flag="--generator-arg", metavar="KEY=VALUE", repeat=True
    )
    # The language becomes one of the generator's arguments, which affect the result.
    language: str | None = option(
        None, "Language of the texts, such as de. Without it, the generator's default.",
        group=METHOD, metavar="CODE", affects_result=False,
    )  # fmt: skip
    protect: Phrases = option(
        (), "File with words and phrases to leave unchanged, one per line.", group=METHOD, metavar="FILE"
    )
    classifier: str = option(
        "cnn", "Classifier: a name from `epida list classifiers`, or the directory of a saved model.",
        group=METHOD, metavar="NAME|DIR",
    )  # fmt: skip
    classifier_args: Arguments = option(
        {}, "Argument of the classifier.", group=METHOD, flag="--classifier-arg", metavar="KEY=VALUE", repeat=True
    )
    trust_pickle: bool = option(
        False, "Load the pickle file named by --classifier sklearn:FILE. A pickle can run any code.", group=METHOD
    )
    m: int = option(3, "Rewrites to keep per text.", group=METHOD, metavar="N", ge=1, le=1000)
    k: int = option(
        3, "Candidates per kept rewrite: K·m are generated per text.", group=METHOD, metavar="N", ge=1, le=1000
    )
    select: str = option(
        "rem+cem", "Scores that choose the rewrites: DIVERSITY+QUALITY, one of the two, or random; see `epida list "
        "selectors`.", group=METHOD, metavar="NAME",
    )  # fmt: skip
    combine: Literal["add", "multiply", "weighted"] = option(
        "add", "How diversity and quality become one score.", group=METHOD
    )
    alpha: float = option(
        0.5, "Weight of diversity with --combine weighted.", group=METHOD, metavar="SHARE", ge=0, le=1
    )
    normalize: bool = option(True, "Scale the scores of each text's candidates to 0–1.", group=METHOD)
    candidates: bool = option(False, "Also write every scored candidate to DIR/candidates.", group=OUTPUT)
    track: tuple[Literal["mlflow", "wandb", "tensorboard"], ...] = option(
        (), "Also send options, metrics and the model to mlflow, wandb or tensorboard.",
        group=OUTPUT, metavar="NAME", repeat=True, affects_result=False,
    )  # fmt: skip

    generator_actors: int | None = option(
        None, "Number of actors that generate. Without it, as many as fit.",
        group=RESOURCES, metavar="N", affects_result=False, ge=1,
    )  # fmt: skip
    generator_gpus: float = option(
        0, "Share of a GPU for each generator actor; 0 for none.",
        group=RESOURCES, metavar="SHARE", affects_result=False, ge=0, le=1,
    )  # fmt: skip
    generator_timeout: float | None = option(
        None, "Time limit for generating one shard. Without it, none.",
        group=RESOURCES, metavar="SECONDS", affects_result=False, gt=0,
    )  # fmt: skip

    @model_validator(mode="before")
    @classmethod
    def _add_language_to_arguments(cls, values: Any) -> Any:
        from epida_ray.generate import with_language

        match values:
            case {"language": str(language)} if values.get("generator") != NO_GENERATOR:
                arguments = key_values(values.get("generator_args", {}))
                if isinstance(arguments, dict):
                    arguments = with_language(values.get("generator", "eda"), arguments, language)
                return values | {"generator_args": arguments}
        return values

    @model_validator(mode="before")
    @classmethod
    def _read_policy(cls, values: Any) -> Any:
        """Put the content of policy:FILE into the request: what is in the file affects the result, not its name."""
        from epida_ray.generate.policy import read_policy

        match values:
            case {"generator": str(name)} if name.startswith("policy:"):
                arguments = key_values(values.get("generator_args", {}))
                if isinstance(arguments, dict):
                    operations = read_policy(name.removeprefix("policy:"))
                    return values | {"generator": "policy", "generator_args": arguments | {"operations": operations}}
        return values

    @model_validator(mode="after")
    def _check(self) -> Self:
        from epida_ray.select import parse

        if self.generator == NO_GENERATOR and (self.generator_args or self.language):
            raise ValueError("--generator none takes no --generator-arg and no --language")
        if self.alpha != 0.5 and self.combine != "weighted":
            raise ValueError("--alpha needs --combine weighted")
        if len(set(self.labels)) != len(self.labels) or len(self.labels) == 1:
            raise ValueError("--labels must be two or more different names")
        parse(self.select)
        return self

    def classifier_options(self) -> dict[str, Any]:
        """Return the arguments to create the classifier with."""
        options = self.classifier_args | ({"trust_pickle": True} if self.trust_pickle else {})
        return options | ({"trust": self.trusted()} if self.classifier.startswith("sklearn:") else {})

    def trusted(self) -> tuple[str, ...]:
        """Return the code that the request names and that a saved model may therefore run."""
        types = self.classifier_args.get("trust", ())
        own = () if Path(self.classifier).is_dir() else (self.classifier,)
        return (*own, *self.trust_code, *(types if isinstance(types, list | tuple) else [str(types)]))


class AugmentRequest(MethodRequest):
    """Every option of `epida augment`."""

    train: str | None = option(
        None, "Labelled file to train the classifier on. Without it, rows of INPUT.",
        group=METHOD, metavar="FILE", affects_result=False,
    )  # fmt: skip
    train_rows: int = option(
        20_000, "Largest number of rows of INPUT to train the classifier on.", group=METHOD, metavar="N", ge=2
    )
    with_originals: bool = option(False, "Also write the original texts to DIR/augmented.", group=OUTPUT)

    @model_validator(mode="after")
    def _check_generator(self) -> Self:
        if self.generator == NO_GENERATOR:
            raise ValueError(
                "--generator none makes no rewrites to write; choose another one, see `epida list generators`"
            )
        return self


class TrainRequest(MethodRequest):
    """Every option of `epida train`."""

    input: str = option(
        ..., "Labelled texts to learn from: a file, directory, pattern or URL of Parquet, CSV, JSON, Excel or Arrow.",
        metavar="TRAIN", positional=True, affects_result=False,
    )  # fmt: skip
    generator: str = option(
        "eda", "Generator that rewrites the texts; `epida list generators` shows them. none trains on the originals "
        "only; it is the default when --classifier auto chooses an encoder.",
        group=METHOD, metavar="NAME",
    )  # fmt: skip
    classifier: str = option(
        AUTO, "Classifier: a name from `epida list classifiers`, or the directory of a saved model. auto chooses "
        "by the number of rows and by what is installed.", group=METHOD, metavar="NAME|DIR",
    )  # fmt: skip
    dev: str | None = option(
        None, "Labelled file to choose the best round with. Without it, a part of TRAIN (--dev-share).",
        group=TRAINING, metavar="FILE", affects_result=False,
    )  # fmt: skip
    dev_share: float = option(
        0.2, "Share of TRAIN held out to choose the best round when --dev is not given.",
        group=TRAINING, metavar="SHARE", gt=0, lt=1,
    )  # fmt: skip
    eval: str | None = option(
        None, "Labelled file to test the final model on, once.", group=TRAINING, metavar="FILE", affects_result=False
    )
    unlabelled: str | None = option(
        None, "Unlabelled texts to learn from as well: a file, directory, pattern or URL, as TRAIN but without labels.",
        group=POOL, metavar="POOL", affects_result=False,
    )  # fmt: skip
    pool_rows: int = option(
        5000, "Unlabelled texts to use in each round; rounds take turns through a larger pool.",
        group=POOL, metavar="N", ge=1,
    )  # fmt: skip
    pool_weight: float = option(
        1.0, "Weight of the unlabelled texts' loss against that of the labelled texts.",
        group=POOL, metavar="WEIGHT", gt=0,
    )  # fmt: skip
    prior: Arguments = option(
        {}, "Share of a class among the unlabelled texts. Without it, its share among the labelled rows.",
        group=POOL, metavar="CLASS=SHARE", repeat=True,
    )  # fmt: skip
    pool_rewrites: bool = option(
        False, "Also rewrite the unlabelled texts; REM and CEM choose the rewrites without a label.", group=POOL
    )
    teacher: str | None = option(
        None, "Saved model that labels unlabelled texts and kept rewrites, and judges the quality of rewrites.",
        group=POOL, metavar="DIR", affects_result=False,
    )  # fmt: skip
    soft_labels: bool = option(
        False, "Learn the teacher's probabilities of TRAIN's texts in place of their labels.", group=POOL
    )
    rounds: int = option(8, "Rounds of training after pre-training.", group=TRAINING, metavar="N", ge=1)
    online: bool = option(
        True, "Generate new candidates in every round, or only once.", group=TRAINING, off="--one-time"
    )
    curriculum: bool = option(
        False, "Make rewrites stronger from round to round: from a fifth of the generator's strength to its full "
        "strength.",
        group=TRAINING,
    )  # fmt: skip
    loss: Literal["sum", "original", "augmented", "multi-task"] = option(
        "sum", "Texts in the loss: originals and rewrites, originals only, rewrites only, or both, each with its "
        "own head of the network.", group=TRAINING,
    )  # fmt: skip
    pretrain_epochs: int | None = option(
        None, "Epochs on the originals before the first round. Without it, a third of all epochs.",
        group=TRAINING, metavar="N", ge=0,
    )  # fmt: skip
    epochs_per_round: int | None = option(
        None, "Epochs in each round. Without it, an equal share of the remaining epochs.",
        group=TRAINING, metavar="N", ge=1,
    )  # fmt: skip
    batch_size: int | None = option(
        None, "Originals per training step, plus their rewrites. Without it, the classifier's default.",
        group=TRAINING, metavar="N", ge=1,
    )  # fmt: skip
    learning_rate: float | None = option(
        None,
        "Learning rate of AdamW. Without it, the classifier's default. Not for classifiers that are fitted in one go.",
        group=TRAINING,
        metavar="RATE",
        gt=0,
    )
    mixup: float | None = option(
        None, "Learn from mixtures of two texts' vectors, with shares drawn from Beta(A, A); a usual A is 0.2. "
        "Without it, learn from the texts as they are.", group=TRAINING, metavar="A", gt=0,
    )  # fmt: skip
    mixup_layer: Literal["hidden", "input"] = option(
        "hidden", "What --mixup mixes: the vector of each text before the last layer (hidden), or the vectors of its "
        "words (input).",
        group=TRAINING,
    )  # fmt: skip
    vda: str | None = option(
        None, "Masked language model (a directory or a hub name) for virtual data augmentation: it rewrites texts in "
        "the embeddings of the transformer, which must have the same vocabulary.", group=TRAINING, metavar="MODEL",
    )  # fmt: skip
    robust: str | None = option(
        None, "Train for noisy texts: of the rewrites that this generator (such as spelling) makes, learn from those "
        "that the classifier gets most wrong.", group=TRAINING, metavar="GENERATOR",
    )  # fmt: skip
    balance: bool = option(
        False, "Give every class the same weight, however few rows it has, and keep more rewrites of rarer classes.",
        group=TRAINING,
    )  # fmt: skip
    patience: int | None = option(
        None, "Stop after N rounds without a better dev score. Without it, train all rounds.",
        group=TRAINING, metavar="N", ge=1,
    )  # fmt: skip
    calibrate: bool = option(
        False, "Calibrate the classifier on the dev rows before it scores candidates.", group=TRAINING
    )
    keep_checkpoints: bool = option(
        False, "Keep DIR/checkpoint after training. Without it, checkpoints are removed when the run ends.",
        group=OUTPUT, affects_result=False,
    )  # fmt: skip
    max_staleness: int = option(
        0, "Rounds by which the scorers' weights may lag behind training; above 0, scoring and training overlap.",
        group=TRAINING, metavar="N", ge=0, le=8,
    )  # fmt: skip
    workers: int | None = option(
        None, "Number of training workers; 0 trains in this process. Without it, one per GPU; without GPUs, one on a "
        "cluster and 0 on a single machine.", group=TRAINING, metavar="N", ge=0,
    )  # fmt: skip
    # Kept on resume by the run itself, because the order of additions depends on it.
    threads: int | None = option(
        None, "CPU threads for training; a different number can change the last digits of results.",
        group=TRAINING, metavar="N", affects_result=False, ge=1,
    )  # fmt: skip

    @model_validator(mode="before")
    @classmethod
    def _apply_robust(cls, values: Any) -> Any:
        match values:
            case {"robust": str(generator)}:
                given = [name for name in ("generator", "select") if values.get(name)]
                if given:
                    raise ValueError(f"--robust chooses the generator and the score; leave out --{given[0]}")
                return values | {"generator": generator, "select": "rem"}
        return values

    @model_validator(mode="after")
    def _check_training(self) -> Self:
        if self.generator == NO_GENERATOR and self.loss in ("augmented", "multi-task"):
            raise ValueError(f"--loss {self.loss} needs rewrites; choose a --generator other than none")
        if self.curriculum and not (self.augmenting and self.online):
            raise ValueError("--curriculum needs new rewrites in every round: a --generator, and no --one-time")
        if self.mixup_layer != "hidden" and self.mixup is None:
            raise ValueError("--mixup-layer needs --mixup")
        if self.vda is not None and self.mixup is not None:
            raise ValueError("--vda and --mixup both change what the network reads; give one of them")
        for name in ("prior", "pool_rewrites"):
            if getattr(self, name) and self.unlabelled is None:
                raise ValueError(f"{flag(name)} needs --unlabelled")
        if self.pool_rewrites and not self.augmenting:
            raise ValueError("--pool-rewrites needs a --generator other than none")
        if self.soft_labels and self.teacher is None:
            raise ValueError("--soft-labels needs a --teacher")
        if self.teacher is not None and not (self.augmenting or self.unlabelled or self.soft_labels):
            raise ValueError(
                "--teacher labels rewrites and unlabelled texts; add a --generator, --unlabelled or --soft-labels"
            )
        if "divergence" in self.select.split("+") and self.teacher is None:
            raise ValueError("--select divergence needs a --teacher")
        return self

    def classifier_options(self) -> dict[str, Any]:
        """Return the arguments to create the classifier with; with --robust an encoder is tuned on noisy texts, too."""
        options = super().classifier_options()
        encoder = self.classifier == "encoder" or self.classifier.startswith("encoder:")
        if self.robust is not None and encoder and options.get("tune", "none") != "none":
            return {"retune": True} | options
        return options

    @property
    def augmenting(self) -> bool:
        """Whether the run trains on rewrites; without, it trains on the originals only."""
        return self.generator != NO_GENERATOR and self.loss != "original"


class LabelRequest(RunRequest):
    """Every option of `epida label`."""

    input: str = option(
        ..., "Texts: a file, directory, pattern or URL of Parquet, CSV, JSON, Excel or Arrow. Labels are not needed.",
        metavar="POOL", positional=True, affects_result=False,
    )  # fmt: skip
    model: str = option(
        ..., "Directory of a saved model, such as DIR/model of a run.", group=METHOD, metavar="MODEL_DIR",
        affects_result=False,
    )  # fmt: skip
    for_review: int = option(
        0, "Also write to DIR/review.csv the N texts that are most useful to label by hand: uncertain ones that differ "
        "from each other. A finished run can be asked for them, too.",
        group=OUTPUT, metavar="N", affects_result=False, ge=0, le=5_000,
    )  # fmt: skip


__all__ = [
    "AUTO", "GROUPS", "NO_GENERATOR", "AugmentRequest", "LabelRequest", "MethodRequest", "RunRequest", "TrainRequest",
    "flag", "make_request", "read_config",
]  # fmt: skip
