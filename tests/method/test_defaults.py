"""What `epida train` chooses when the user leaves the choice to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from epida_ray.classify import create
from epida_ray.core.errors import RequestError
from epida_ray.core.progress import Reporter
from epida_ray.experiments.tune_space import read_space, tuned
from epida_ray.method import defaults
from epida_ray.method.requests import TrainRequest
from epida_ray.method.round_plan import learn_options
from epida_ray.stream.search import Range
from tests.classify import tiny


def resolved(folder: Path, **options: object) -> TrainRequest:
    file = folder / "in.csv"
    file.write_text("text,label\n" + "".join(f"text {i},{'ab'[i % 2]}\n" for i in range(40)))
    request = TrainRequest(input=str(file), output=str(folder / "out"), **options)  # type: ignore[arg-type]
    return defaults.with_defaults(request, Reporter(quiet=True))


def test_few_rows_get_a_tuned_encoder_without_rewrites(tmp_path: Path) -> None:
    chosen = resolved(tmp_path)
    assert (chosen.classifier, chosen.classifier_args, chosen.generator) == (
        "encoder", {"tune": "contrastive"}, "none",
    )  # fmt: skip
    assert resolved(tmp_path, generator="aeda").generator == "aeda"
    assert resolved(tmp_path, classifier_args={"tune": "none"}).classifier_args == {"tune": "none"}


class Listens(Reporter):
    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.lines: list[str] = []

    def say(self, message: str) -> None:
        self.lines.append(message)


def test_uneven_classes_are_balanced_unless_the_user_chooses(tmp_path: Path) -> None:
    file = tmp_path / "uneven.csv"

    def asked(few: int, many: int, **options: object) -> tuple[TrainRequest, str]:
        rows = [f"text {i},{'b' if i < few else 'a'}\n" for i in range(few + many)]
        file.write_text("text,label\n" + "".join(rows) + ",b\n" * 50)  # rows without a text are no rows of a class
        request = TrainRequest(input=str(file), output=str(tmp_path / "out"), **options)  # type: ignore[arg-type]
        reporter = Listens()
        return defaults.with_defaults(request, reporter), reporter.lines[-1]

    chosen, said = asked(20, 30)
    assert chosen.balance and ", with --balance as the classes have 20 to 30 rows, without rewrites" in said
    for few, many, options in (
        (20, 29, {}),
        (10, 30, {"balance": False}),
        (10, 30, {"generator": "eda"}),
        (10, 30, {"classifier": "encoder"}),
    ):
        if "classifier" in options:
            request = TrainRequest(input=str(file), output="out", **options)  # type: ignore[arg-type]
            assert defaults.with_defaults(request, Reporter(quiet=True)) is request and not request.balance
        else:
            chosen, said = asked(few, many, **options)
            assert not chosen.balance and "--balance" not in said
    file.write_text("text,label\n" + "one text,c\n" + "a text,a\nb text,b\n" * 9)
    named = TrainRequest(input=str(file), output="out", labels=("a", "b"))
    assert not defaults.with_defaults(named, Reporter(quiet=True)).balance, "a row of another label is rejected"


def test_a_teacher_without_other_texts_labels_rewrites(tmp_path: Path) -> None:
    assert resolved(tmp_path, teacher="model").generator == "eda"
    assert resolved(tmp_path, teacher="model", unlabelled="pool").generator == "none"
    assert resolved(tmp_path, teacher="model", soft_labels=True).generator == "none"


def test_what_the_user_names_is_left_alone(tmp_path: Path) -> None:
    chosen = resolved(tmp_path, classifier="cnn")
    assert (chosen.classifier, chosen.generator) == ("cnn", "eda")


def test_many_rows_or_no_encoder_get_the_cnn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults, "TUNED_ROWS", 10)
    assert resolved(tmp_path).classifier == "cnn"
    monkeypatch.setattr(defaults, "TUNED_ROWS", 1000)
    monkeypatch.setattr("epida_ray.core.registry.find_spec", lambda name: None)
    assert resolved(tmp_path).classifier == "cnn"


def test_a_learning_rate_reaches_the_tuned_encoder_and_is_refused_where_it_has_no_effect(tmp_path: Path) -> None:
    chosen = resolved(tmp_path, learning_rate=1e-4)
    assert chosen.classifier_args == {"tune": "contrastive", "learning_rate": 1e-4} and chosen.learning_rate is None
    assert resolved(tmp_path, learning_rate=1e-4, classifier_args={"learning_rate": 1e-5}).classifier_args == {
        "tune": "contrastive",
        "learning_rate": 1e-5,
    }
    tiny.transformer("bert", tmp_path / "network", ("a", "b"))
    encoder = f"encoder:{tmp_path / 'network'}"

    def refused(name: str, message: str, **arguments: object) -> None:
        request = TrainRequest(input="in", output="out", classifier=name, learning_rate=0.002)
        with pytest.raises(RequestError, match=message):
            learn_options(request, 40, create(name, ("a", "b"), **arguments))

    refused("linear", "--learning-rate has no effect on linear, which is fitted in one go; leave it out")
    refused(encoder, "no effect on encoder, .*; leave it out")
    refused(encoder, "no effect on encoder, .*; give --classifier-arg learning_rate=0.002", tune="contrastive")
    point = {
        k: v.low if isinstance(v, Range) else v[0] if isinstance(v, list) else v for k, v in read_space(None).items()
    }
    asked = TrainRequest(input="in", output="out", **tuned(point).options)
    classifier = create(asked.classifier, ("a", "b"), vectors="hashed", channels=4)
    assert learn_options(asked, 40, classifier).training.learning_rate == 0.001
