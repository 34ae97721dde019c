from __future__ import annotations

from pathlib import Path

import pytest

from epida_ray.core.errors import RequestError
from epida_ray.core.options import make_request, option_of
from epida_ray.method.requests import GROUPS, AugmentRequest, TrainRequest


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"m": 0}, "^-m: Input should be greater than or equal to 1"),
        ({"combine": "divide"}, "^--combine: Input should be 'add', 'multiply' or 'weighted'"),
        ({"alpha": 0.3}, "^--alpha needs --combine weighted"),
        ({"select": "rem+nothing"}, "there is no selector"),
        ({"labels": ("a",)}, "two or more"),
        ({"colour": 1}, "colour: no such option"),
        ({"language": "de", "generator": "back-translation"}, "--language de: back-translation takes no language"),
        ({"language": "xx"}, "the language 'xx' is unknown; give a code"),
        ({"language": "de", "generator_args": {"language": "fr"}}, "--language de and --generator-arg language=fr"),
        ({"generator": "none"}, "^--generator none makes no rewrites"),
        ({"language": 1}, "--language: Input should be a valid string"),
    ],
)
def test_a_wrong_option_is_named_on_one_line(values: dict, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        make_request(AugmentRequest, {"input": "a", "output": "b"} | values)
    assert "\n" not in str(caught.value)


def test_places_and_pool_sizes_are_not_part_of_what_a_result_depends_on() -> None:
    one = AugmentRequest(input="a", output="b", scorer_actors=3, address="auto", max_rejected=0.5)
    two = AugmentRequest(input="c", output="d")
    assert one.result_options() == two.result_options()
    assert one.result_options() != AugmentRequest(input="a", output="b", m=2).result_options()


def test_the_language_is_an_argument_of_the_generator() -> None:
    given = AugmentRequest(input="a", output="b", language="de", generator_args={"p_rd": 0.2})
    spelled_out = AugmentRequest(input="a", output="b", generator_args={"p_rd": 0.2, "language": "de"})
    assert given.generator_args == {"p_rd": 0.2, "language": "de"}
    assert given.result_options() == spelled_out.result_options()
    assert (
        given.result_options() != AugmentRequest(input="a", output="b", generator_args={"p_rd": 0.2}).result_options()
    )
    assert AugmentRequest(**given.model_dump()) == given


def test_training_without_a_generator_is_training_on_the_originals() -> None:
    def request(**values: object) -> TrainRequest:
        return make_request(TrainRequest, {"input": "a", "output": "b"} | values)

    assert request().augmenting
    assert not request(generator="none").augmenting and not request(loss="original").augmenting
    for values, message in (
        ({"loss": "augmented"}, "--loss augmented needs rewrites"),
        ({"loss": "multi-task"}, "--loss multi-task needs rewrites"),
        ({"language": "de"}, "--generator none takes no"),
        ({"generator_args": {"p_rd": 0.1}}, "--generator none takes no"),
        ({"curriculum": True}, "--curriculum needs new rewrites in every round"),
        ({"vda": "bert", "mixup": 0.2}, "--vda and --mixup both change"),
        ({"mixup_layer": "input"}, "--mixup-layer needs --mixup"),
    ):
        with pytest.raises(RequestError, match=message):
            request(generator="none", **values)


def test_every_option_has_a_help_text_and_a_heading() -> None:
    for kind in (AugmentRequest, TrainRequest):
        for name, info in kind.model_fields.items():
            form = option_of(info)
            assert info.description and info.description.endswith("."), name
            assert form.positional or form.group in GROUPS, name


def test_a_request_is_the_same_in_every_form(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("Blue Kettle\n\n ACME \n")
    typed = {
        "train": "in.csv", "output": "out", "one-time": True, "labels": "yes, no",
        "generator-arg": ["alpha_sr=0.2", "language=en"], "protect": str(tmp_path / "names.txt"),
    }  # fmt: skip
    in_python = {
        "input": "in.csv", "output": "out", "online": False, "labels": ("yes", "no"), "language": "en",
        "generator_args": {"alpha_sr": 0.2, "language": "en"}, "protect": ("Blue Kettle", "ACME"),
    }  # fmt: skip
    one, two = make_request(TrainRequest, typed), make_request(TrainRequest, in_python)
    assert one.result_options() == two.result_options() and one.input == two.input == "in.csv"
    assert make_request(TrainRequest, {"input": "a", "output": "b", "labels": [1, 2]}).labels == ("1", "2")
