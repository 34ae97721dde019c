"""Classes for scikit-learn: `EpidaClassifier` and `Augmenter`. Only these two need scikit-learn."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from epida_ray.api import augment, augment_texts, python_names, reporter, train
from epida_ray.classify import load as load_classifier
from epida_ray.classify.model import Model, saved_card
from epida_ray.core.errors import RequestError
from epida_ray.data.storage import below
from epida_ray.method.card import card
from epida_ray.runs.manifest import Best, Manifest, versions
from epida_ray.runs.run import digest

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted
except ImportError:
    raise ImportError("EpidaClassifier and Augmenter need scikit-learn: pip install 'epida-ray[sklearn]'") from None

if TYPE_CHECKING:
    from epida_ray.method.requests import TrainRequest
    from epida_ray.method.trainer import Progress

SAVED = "estimator.json"
"""What `EpidaClassifier.save` writes beside the model: the parameters and the classes with their types."""


class WrongInput(RequestError, ValueError):
    """The parameters or the data are wrong; scikit-learn expects a ValueError."""


class EpidaClassifier(ClassifierMixin, BaseEstimator):
    """Learns to classify texts as `epida train` does, with scikit-learn's methods.

    The parameters are options of `epida train`. One that is None is not given: `epida train` then chooses, as it does
    on the command line. The differences:

    - `unlabelled` may be a sequence of texts, as well as a path.
    - Without `address` it trains in this process, without Ray. With an address (local, auto or HOST:PORT) it trains on
      that Ray; on a cluster, `output` must be a directory that all nodes see. Each fit has a folder of its own in it,
      named by its data and options, so that the same fit resumes.
    - `verbose` prints what is chosen and how training goes. Warnings are Python warnings.

    After `fit`: `classes_`; `model_`, an `epida_ray.Model`; `metrics_`, one dictionary per round; `best_round_`.
    """

    def __init__(
        self,
        classifier: str = "auto",
        *,
        classifier_args: dict[str, Any] | None = None,
        generator: str | None = None,
        generator_args: dict[str, Any] | None = None,
        language: str | None = None,
        protect: Sequence[str] | None = None,
        m: int | None = None,
        k: int | None = None,
        select: str | None = None,
        combine: str | None = None,
        alpha: float | None = None,
        normalize: bool | None = None,
        unlabelled: Sequence[str] | str | None = None,
        pool_rows: int | None = None,
        pool_weight: float | None = None,
        prior: dict[str, float] | None = None,
        pool_rewrites: bool | None = None,
        teacher: str | None = None,
        soft_labels: bool | None = None,
        rounds: int | None = None,
        online: bool | None = None,
        loss: str | None = None,
        curriculum: bool | None = None,
        mixup: float | None = None,
        mixup_layer: str | None = None,
        vda: str | None = None,
        pretrain_epochs: int | None = None,
        epochs_per_round: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        dev_share: float | None = None,
        robust: str | None = None,
        balance: bool | None = None,
        patience: int | None = None,
        calibrate: bool | None = None,
        max_rejected: float | None = None,
        trust_code: Sequence[str] | None = None,
        threads: int | None = None,
        seed: int = 0,
        address: str | None = None,
        output: str | None = None,
        verbose: bool = False,
    ) -> None:
        self.classifier = classifier
        self.classifier_args = classifier_args
        self.generator = generator
        self.generator_args = generator_args
        self.language = language
        self.protect = protect
        self.m = m
        self.k = k
        self.select = select
        self.combine = combine
        self.alpha = alpha
        self.normalize = normalize
        self.unlabelled = unlabelled
        self.pool_rows = pool_rows
        self.pool_weight = pool_weight
        self.prior = prior
        self.pool_rewrites = pool_rewrites
        self.teacher = teacher
        self.soft_labels = soft_labels
        self.rounds = rounds
        self.online = online
        self.loss = loss
        self.curriculum = curriculum
        self.mixup = mixup
        self.mixup_layer = mixup_layer
        self.vda = vda
        self.pretrain_epochs = pretrain_epochs
        self.epochs_per_round = epochs_per_round
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.dev_share = dev_share
        self.robust = robust
        self.balance = balance
        self.patience = patience
        self.calibrate = calibrate
        self.max_rejected = max_rejected
        self.trust_code = trust_code
        self.threads = threads
        self.seed = seed
        self.address = address
        self.output = output
        self.verbose = verbose

    def fit(
        self,
        X: Sequence[str],
        y: Sequence[Any],
        *,
        ids: Sequence[str] | None = None,
        dev: tuple[Any, Any] | None = None,
    ) -> Self:
        """Train on the texts X with the labels y.

        `dev` is (texts, labels) to choose the best round with; without it, a part of the rows is held out. `ids` are
        the texts' ids, by default 0, 1, 2, …: rewrites depend on them. `epida train FILE` has the ids FILE:0, FILE:1, …
        """
        texts, targets = _texts(X), _targets(y, len(X))
        classes, names = _class_names(targets)
        known = dict(zip(classes.tolist(), names, strict=True))
        with tempfile.TemporaryDirectory(prefix="epida-") as folder, python_names(WrongInput):
            files = {"input": _table(texts, [known[label] for label in targets.tolist()], ids)}
            if dev is not None:
                dev_texts, dev_y = _texts(dev[0]), _targets(dev[1], len(dev[0]))
                files["dev"] = _table(dev_texts, [known.get(label, str(label)) for label in dev_y.tolist()])
            if self.unlabelled is not None and not isinstance(self.unlabelled, str):
                files["unlabelled"] = pa.table({"text": _texts(self.unlabelled)})
            options = self._options() | {"id_column": "id"}
            model, self.metrics_, self.best_round_ = self._train(files, options, Path(folder))
        self._set_model(model, classes, names)
        return self

    def _options(self) -> dict[str, Any]:
        own = {"unlabelled", "output", "verbose"}
        given = {k: v for k, v in self.get_params(deep=False).items() if k not in own and v is not None}
        return given | ({"unlabelled": self.unlabelled} if isinstance(self.unlabelled, str) else {})

    def _train(
        self, files: dict[str, pa.Table], options: dict[str, Any], folder: Path
    ) -> tuple[Model, list[dict[str, Any]], int]:
        if self.address is not None:
            table = files.pop("input")
            output = str(folder) if self.output is None else _fit_folder(self.output, {"input": table} | files, options)
            result = train(table, output, progress=self.verbose, **files, **options)
            return result.model(), result.metrics, result.metrics[-1]["best_round"]
        from epida_ray.method import local
        from epida_ray.method.requests import TrainRequest, make_request

        for name, table in files.items():
            pq.write_table(table, folder / f"{name}.parquet")
        places = {name: str(folder / f"{name}.parquet") for name in files}
        request = make_request(TrainRequest, places | {"output": str(folder / "run")} | options)
        classifier, progress, request = local.train(request, reporter(self.verbose))
        assert progress.best_round is not None
        return Model(classifier, self._card(classifier, progress, request)), progress.metrics, progress.best_round

    def _card(self, classifier: Any, progress: Progress, request: TrainRequest) -> str:
        """Return the card of a model that was trained in this process."""
        assert progress.best is not None and progress.best_round is not None
        pool = self.unlabelled if isinstance(self.unlabelled, str) else self.unlabelled and "texts in memory"
        best = Best(
            round=progress.best_round, macro_f1=progress.best.macro_f1, accuracy=progress.best.accuracy,
            loss=progress.best.loss,
        )  # fmt: skip
        return card(
            Manifest(
                kind="train",
                status="finished",
                request=request.result_options(),
                labels=list(classifier.labels),
                execution={"unlabelled": pool, "teacher": self.teacher},
                classifier=classifier.describe(),
                best=best,
                versions=versions(),
            )
        )

    def _set_model(self, model: Model, classes: np.ndarray, names: list[str]) -> None:
        if missing := sorted(set(names) - set(model.labels)):
            raise WrongInput(f"no text of the class {', '.join(missing)} can be used; give texts that are not empty")
        self.model_, self.classes_ = model, classes
        place = {label: i for i, label in enumerate(model.labels)}
        self._columns = np.array([place[name] for name in names])

    def predict_proba(self, X: Sequence[str]) -> np.ndarray:
        """Return the probability of every class, in the order of `classes_`."""
        check_is_fitted(self)
        with python_names(WrongInput):
            return self.model_.predict_proba(_texts(X))[:, self._columns]

    def predict(self, X: Sequence[str]) -> np.ndarray:
        """Return the most likely class of every text."""
        p = self.predict_proba(X)
        return self.classes_[p.argmax(axis=1)]

    def save(self, directory: str | Path) -> None:
        """Write the model to a directory that `load` and every command of `epida` take; safetensors and JSON."""
        check_is_fitted(self)
        parameters = self.get_params(deep=False)
        if not isinstance(self.unlabelled, str):  # texts are data, and need not travel with the model
            parameters["unlabelled"] = None
        said = {"parameters": parameters, "classes": self.classes_.tolist(), "best_round": self.best_round_}
        text = json.dumps(said, indent=2, default=lambda value: value.item())  # a search's parameters are NumPy's
        self.model_.save(directory)
        (Path(directory) / SAVED).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, directory: str | Path, trust_code: Sequence[str] = ()) -> Self:
        """Return the classifier that `save` wrote, or that `epida train` did."""
        with python_names(WrongInput):
            model = Model(load_classifier(directory, trust=trust_code), saved_card(Path(directory)))
        path = Path(directory) / SAVED
        said = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        made = cls(**said.get("parameters", {}))
        made.metrics_, made.best_round_ = [], said.get("best_round", -1)
        made._set_model(model, *_class_names(np.array(said.get("classes", model.labels))))
        return made

    def __sklearn_tags__(self) -> Any:
        return _of_texts(super().__sklearn_tags__())


class Augmenter(BaseEstimator):
    """Adds rewrites to labelled texts as `epida augment` chooses them.

    It has the method of imbalanced-learn's samplers, so that it fits into their pipelines, before any classifier. The
    parameters are options of `epida augment`; one that is None is not given. `classifier` may also be a fitted
    `EpidaClassifier`'s `model_.classifier`. Without `address` it works in this process, else on that Ray.

    After `fit_resample`: `rewrites_`, an Arrow table of the kept rewrites with their scores.
    """

    def __init__(
        self,
        generator: str = "eda",
        *,
        generator_args: dict[str, Any] | None = None,
        language: str | None = None,
        protect: Sequence[str] | None = None,
        classifier: Any = None,
        classifier_args: dict[str, Any] | None = None,
        m: int = 3,
        k: int = 3,
        select: str | None = None,
        with_originals: bool = True,
        seed: int = 0,
        address: str | None = None,
        output: str | None = None,
        verbose: bool = False,
    ) -> None:
        self.generator = generator
        self.generator_args = generator_args
        self.language = language
        self.protect = protect
        self.classifier = classifier
        self.classifier_args = classifier_args
        self.m = m
        self.k = k
        self.select = select
        self.with_originals = with_originals
        self.seed = seed
        self.address = address
        self.output = output
        self.verbose = verbose

    def fit_resample(
        self, X: Sequence[str], y: Sequence[Any], *, ids: Sequence[str] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return texts and labels: the originals, unless `with_originals` is false, and then their rewrites."""
        texts, targets = _texts(X), _targets(y, len(X))
        classes, names = _class_names(targets)
        known = dict(zip(classes.tolist(), names, strict=True))
        own = {"with_originals", "address", "output", "verbose"}
        options = {k: v for k, v in self.get_params(deep=False).items() if k not in own and v is not None}
        with python_names(WrongInput):
            self.rewrites_ = self._rewrites(_table(texts, [known[label] for label in targets.tolist()], ids), options)
        values = dict(zip(names, classes.tolist(), strict=True))
        new_texts = np.array(self.rewrites_["text"].to_pylist(), object)
        new_y = np.array([values[name] for name in self.rewrites_["label"].to_pylist()], targets.dtype)
        if not self.with_originals:
            return new_texts, new_y
        return np.concatenate([np.array(texts, object), new_texts]), np.concatenate([targets, new_y])

    def _rewrites(self, rows: pa.Table, options: dict[str, Any]) -> pa.Table:
        if self.address is None:
            return augment_texts(*(rows[name].to_pylist() for name in ("text", "label", "id")), **options)
        with tempfile.TemporaryDirectory(prefix="epida-") as folder:
            options |= {"id_column": "id", "address": self.address}
            output = folder if self.output is None else _fit_folder(self.output, {"input": rows}, options)
            result = augment(rows, output, progress=self.verbose, **options)
            return result.table()

    def __sklearn_tags__(self) -> Any:
        return _of_texts(super().__sklearn_tags__())


def _fit_folder(output: str, tables: dict[str, pa.Table], options: dict[str, Any]) -> str:
    """Return the directory of one fit, named by its data and options: cross-validation fits many with one `output`."""
    said = [{name: table.to_pydict() for name, table in tables.items()}, options | {"address": None}]
    return below(output, digest(json.loads(json.dumps(said, default=str)))[:16])


def _of_texts(tags: Any) -> Any:
    tags.input_tags.string, tags.input_tags.two_d_array, tags.input_tags.one_d_array = True, False, True
    return tags


def _texts(X: Any) -> list[str]:
    """Return the texts of a list, array, Series or Arrow column."""
    if isinstance(X, str) or getattr(X, "ndim", 1) != 1 or hasattr(X, "columns"):
        raise WrongInput("X must be a sequence of texts; of a table give the column, such as frame['text']")
    texts = X.to_pylist() if isinstance(X, pa.Array | pa.ChunkedArray) else list(X)
    if not texts:
        raise WrongInput("X has no texts (0 samples); at least 1 is required")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise WrongInput(f"text {number} is not a string but {type(text).__name__}")
    return [str(text) for text in texts]


def _targets(y: Any, count: int) -> np.ndarray:
    if y is None:
        raise WrongInput("EpidaClassifier requires y to be passed, but the target y is None")
    y = np.asarray(y.to_pylist() if isinstance(y, pa.Array | pa.ChunkedArray) else y)
    check_classification_targets(y)
    if y.ndim != 1 or len(y) != count:
        raise WrongInput(f"y must have one label for each text: {count} texts, y has the shape {y.shape}")
    return y


def _class_names(y: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Return the classes, sorted, and their names as a file would have them: 3, true, news."""
    classes = np.unique(y)
    if np.issubdtype(classes.dtype, np.floating) and (classes == classes.astype(int)).all():
        return classes, [str(int(label)) for label in classes]
    return classes, [str(label).lower() if isinstance(label, bool) else str(label) for label in classes.tolist()]


def _table(texts: list[str], names: list[str], ids: Sequence[str] | None = None) -> pa.Table:
    if ids is not None and len(ids) != len(texts):
        raise WrongInput(f"there are {len(texts)} texts and {len(ids)} ids")
    known = [str(i) for i in (range(len(texts)) if ids is None else ids)]
    return pa.table({"id": known, "text": texts, "label": names})
