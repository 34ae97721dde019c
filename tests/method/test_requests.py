from __future__ import annotations

from pathlib import Path

import pytest

from epida_ray.core.errors import RequestError
from epida_ray.method.requests import AugmentConfig, make_config, read_config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"m": 0}, "^-m: Input should be greater than or equal to 1"),
        ({"combine": "divide"}, "combine is add, multiply or weighted"),
        ({"alpha": 0.3}, "alpha belongs to --combine weighted"),
        ({"select": "rem+nothing"}, "there is no selector"),
        ({"labels": ("a",)}, "two or more"),
        ({"colour": 1}, "--colour: no such option"),
        ({"language": "de", "generator": "back-translation"}, "--language de: back-translation takes no language"),
        ({"language": "de", "generator_args": {"language": "fr"}}, "--language de and --generator-arg language=fr"),
        ({"language": 1}, "--language: Input should be a valid string"),
    ],
)
def test_a_wrong_option_is_named_on_one_line(values: dict, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        make_config(AugmentConfig, {"input": "a", "output": "b"} | values)
    assert "\n" not in str(caught.value)


def test_places_and_pool_sizes_are_not_part_of_what_a_result_depends_on() -> None:
    one = AugmentConfig(input="a", output="b", scorers=3, address="auto", max_rejected=0.5)
    two = AugmentConfig(input="c", output="d")
    assert one.result_options() == two.result_options()
    assert one.result_options() != AugmentConfig(input="a", output="b", m=2).result_options()


def test_the_language_is_an_argument_of_the_generator() -> None:
    given = AugmentConfig(input="a", output="b", language="de", generator_args={"p_rd": 0.2})
    spelled_out = AugmentConfig(input="a", output="b", generator_args={"p_rd": 0.2, "language": "de"})
    assert given.generator_args == {"p_rd": 0.2, "language": "de"}
    assert given.result_options() == spelled_out.result_options()
    assert given.result_options() != AugmentConfig(input="a", output="b", generator_args={"p_rd": 0.2}).result_options()
    assert AugmentConfig(**given.model_dump()) == given


def test_options_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("m: 5\ntext-column: body\n")
    assert read_config(str(path)) == {"m": 5, "text_column": "body"}
    path.write_text("- a\n")
    with pytest.raises(RequestError, match="a mapping"):
        read_config(str(path))
    with pytest.raises(RequestError, match="nowhere"):
        read_config("nowhere.yaml")
