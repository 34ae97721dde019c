"""What was asked of a run: frozen, checked, and the same from the command line, a file or Python."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from epida_ray.core.errors import RequestError

C = TypeVar("C", bound=BaseModel)

EXECUTION_OPTIONS = frozenset(
    {
        "output",
        "address",
        "generators",
        "scorers",
        "generator_gpus",
        "max_rejected",
        "generator_timeout",
        "stall_timeout",
        "threads",
        "trust_code",
    }
)
"""Options that say where and how fast, not what: a run may be resumed with other values of these."""


class MethodConfig(BaseModel):
    """The options that `epida augment` and `epida train` share; the names are those of the command line."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: str = Field(description="File, directory or glob of Parquet, CSV, TSV or JSONL; a path or a URL.")
    output: str = Field(description="Directory of the run: results, manifest, model.")
    text_column: str = Field("text", description="Column with the text.")
    label_column: str = Field("label", description="Column with the label.")
    id_column: str | None = Field(None, description="Column with a unique id; otherwise ids are PATH:ROW.")
    encoding: str = Field("utf-8", description="Encoding of CSV, TSV and JSONL files.")
    labels: tuple[str, ...] = Field((), description="All classes, comma-separated; otherwise those that occur.")
    generator: str = Field("eda", description="What rewrites the texts; see `epida list generators`.")
    generator_args: dict[str, Any] = Field({}, description="Arguments of the generator.")
    language: str | None = Field(None, description="Language of the texts, such as de; by default the generator's.")
    protect: tuple[str, ...] = Field((), description="Words and phrases that stay as they are.")
    classifier: str = Field(
        "cnn",
        description="What judges: one of `epida list classifiers`, trained first, or a directory with a saved one.",
    )
    classifier_args: dict[str, Any] = Field({}, description="Arguments of the classifier.")
    trust_pickle: bool = Field(
        False, description="Load the pickle that --classifier sklearn:FILE names; it may run any code."
    )
    trust_code: tuple[str, ...] = Field(
        (), description="Code that a saved model may run: MODULE:CLASS of your own, or a type in a skops file."
    )
    m: int = Field(3, ge=1, le=1000, description="Rewrites to keep for each sample.")
    k: int = Field(3, ge=1, le=1000, description="Amplification: K·m candidates are made for each sample.")
    select: str = Field(
        "rem+cem", description="How candidates are judged: DIV+QUA, one of them, or random; see `epida list selectors`."
    )
    combine: str = Field("add", description="How the two scores become one: add, multiply or weighted.")
    alpha: float = Field(0.5, ge=0, le=1, description="Weight of diversity with --combine weighted.")
    normalize: bool = Field(True, description="Min-max normalise the scores within each sample.")
    seed: int = Field(0, ge=0, description="Same seed, same bytes.")
    candidates: bool = Field(False, description="Also write every scored candidate to candidates/.")
    max_rejected: float = Field(0.2, ge=0, le=1, description="Share of rows that may be set aside.")
    address: str | None = Field(
        None, description="Ray to run on: local, auto or HOST:PORT; by default $RAY_ADDRESS, else a local one."
    )
    generators: int | None = Field(None, ge=1, description="Generator actors; by default as many as fit.")
    scorers: int | None = Field(None, ge=1, description="Scorer actors; by default as many as fit.")
    generator_gpus: float = Field(0, ge=0, le=1, description="Share of a GPU that each generator holds; 0: none.")
    generator_timeout: float | None = Field(
        None, gt=0, description="Seconds a generator may take for a shard; by default no limit."
    )
    stall_timeout: float = Field(1800, gt=0, description="Longest wait, in seconds, before the run gives up.")

    @model_validator(mode="before")
    @classmethod
    def _language_is_an_argument(cls, values: Any) -> Any:
        from epida_ray.generate import with_language

        match values:
            case {"language": str(language)}:
                arguments = values.get("generator_args", {})
                if isinstance(arguments, dict):
                    arguments = with_language(values.get("generator", "eda"), arguments, language)
                return values | {"generator_args": arguments}
        return values

    @model_validator(mode="after")
    def _check(self) -> Self:
        from epida_ray.select import parse

        if self.combine not in ("add", "multiply", "weighted"):
            raise ValueError(f"combine is add, multiply or weighted, not {self.combine!r}")
        if self.alpha != 0.5 and self.combine != "weighted":
            raise ValueError("alpha belongs to --combine weighted")
        if len(set(self.labels)) != len(self.labels) or len(self.labels) == 1:
            raise ValueError("labels must be two or more different names")
        parse(self.select)
        return self

    def classifier_options(self) -> dict[str, Any]:
        """What the classifier is made with."""
        options = self.classifier_args | ({"trust_pickle": True} if self.trust_pickle else {})
        return options | ({"trust": self.trusted()} if self.classifier.startswith("sklearn:") else {})

    def trusted(self) -> tuple[str, ...]:
        """What the request itself names, and a model's directory may therefore run."""
        types = self.classifier_args.get("trust", ())
        own = () if Path(self.classifier).is_dir() else (self.classifier,)
        return (*own, *self.trust_code, *(types if isinstance(types, list | tuple) else [str(types)]))

    def result_options(self) -> dict[str, Any]:
        """The options that change results, as plain JSON; files are left out, their content counts, and so is the
        language, which is among the generator's arguments."""
        left_out = EXECUTION_OPTIONS | {"input", "train", "dev", "eval", "language"}
        return {k: v for k, v in self.model_dump(mode="json").items() if k not in left_out}


class AugmentConfig(MethodConfig):
    """Every option of `epida augment`."""

    train: str | None = Field(None, description="Labelled file to train the classifier on; otherwise rows of INPUT.")
    train_rows: int = Field(20_000, ge=2, description="At most this many rows of INPUT train the classifier.")
    with_originals: bool = Field(False, description="Put the originals into augmented/ too.")


class TrainConfig(MethodConfig):
    """Every option of `epida train`."""

    dev: str | None = Field(None, description="Labelled file to choose the best round on; otherwise a part of TRAIN.")
    eval: str | None = Field(None, description="Labelled file that the final model is tested on, once.")
    rounds: int = Field(8, ge=1, description="Rounds of training, each with fresh candidates.")
    online: bool = Field(True, description="Fresh candidates every round, or one augmentation for all of them.")
    loss: Literal["sum", "original", "augmented"] = Field("sum", description="L_o + L_g, L_o alone or L_g alone.")
    pretrain_epochs: int | None = Field(
        None, ge=0, description="Epochs on the originals first; by default a third of all."
    )
    epochs_per_round: int | None = Field(
        None, ge=1, description="Epochs of a round; by default the rest, shared evenly."
    )
    batch_size: int | None = Field(
        None, ge=1, description="Originals a step, and with them what was kept of them; by default the classifier's."
    )
    learning_rate: float | None = Field(None, gt=0, description="AdamW's learning rate; by default the classifier's.")
    patience: int | None = Field(None, ge=1, description="Stop after so many rounds without a better dev score.")
    calibrate: bool = Field(False, description="Fit a temperature on dev before candidates are scored.")
    max_staleness: int = Field(
        0, ge=0, le=8, description="Rounds that a scorer's weights may be old; 0: strictly in turn."
    )
    workers: int | None = Field(
        None,
        ge=0,
        description="Train workers; 0: in this process. By default one per GPU; without, 1 on a cluster, else 0.",
    )
    threads: int | None = Field(None, ge=1, description="CPU threads of training; part of what fixes the bytes.")


def flag(name: str) -> str:
    """What the option is called on the command line."""
    return "-" + name if name in ("m", "k") else "--" + name.replace("_", "-")


def make_config(kind: type[C], values: dict[str, Any]) -> C:
    """Check `values`; a wrong one becomes a one-line RequestError that names the option."""
    try:
        return kind(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = flag(str(first["loc"][0])) if first["loc"] else ""
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            near = get_close_matches(str(first["loc"][0]), kind.model_fields, 1)
            known = ", ".join(flag(field).lstrip("-") for field in kind.model_fields)
            message = f"no such option; did you mean {flag(near[0])}?" if near else f"no such option; there are {known}"
        raise RequestError(f"{name}: {message}" if name else message) from error


def read_config(path: str) -> dict[str, Any]:
    """Options from a YAML file, by the names of the command line (dashes or underscores)."""
    try:
        loaded = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, ValueError) as error:
        raise RequestError(f"--config {path}: {' '.join(str(error).split())}") from error
    if not isinstance(loaded, dict):
        raise RequestError(f"--config {path}: a mapping of option names to values is expected")
    return {str(k).replace("-", "_"): v for k, v in loaded.items()}
