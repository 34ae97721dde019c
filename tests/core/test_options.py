from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from epida_ray.core.errors import RequestError
from epida_ray.core.options import (
    Arguments,
    by_field,
    flag,
    key_values,
    make_request,
    option,
    option_of,
    read_config,
    result_options,
)


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")

    input: str = option(..., "What to bake.", metavar="DOUGH", positional=True)
    output: str = option(..., "Where to put it.", short="-o", metavar="TRAY", affects_result=False)
    heat: int = option(180, "Heat of the oven.", group="Oven", ge=50)
    fan: bool = option(True, "Use the fan.", off="--still")
    topping_args: Arguments = option({}, "More.", flag="--topping", metavar="KEY=VALUE", repeat=True)


WANTED = {"input": "a", "output": "b"}


def test_a_field_says_how_it_looks() -> None:
    assert [flag(name, Order) for name in Order.model_fields] == ["--input", "--output", "--heat", "--fan", "--topping"]
    assert flag("m") == "-m" and flag("dev_share") == "--dev-share"
    form = option_of(Order.model_fields["output"])
    assert (form.short, form.metavar, form.affects_result) == ("-o", "TRAY", False)
    assert result_options(Order(**WANTED)) == {"input": "a", "heat": 180, "fan": True, "topping_args": {}}


def test_names_of_fields_flags_and_switches_mean_the_same() -> None:
    typed = {"dough": "a", "output": "b", "still": True, "topping": ["salt=1", "seeds=[poppy]"]}
    by_name = {"input": "a", "output": "b", "fan": False, "topping_args": {"salt": 1, "seeds": ["poppy"]}}
    assert make_request(Order, typed) == Order(**by_name)
    assert by_field(Order, {"still": False}) == {"fan": True}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"output": "b"}, "^DOUGH is missing: What to bake.$"),
        ({"input": "a"}, "^--output TRAY is missing: Where to put it.$"),
        ({"input": "a", "otput": "b"}, "^otput: no such option; did you mean --output[?]$"),
        (WANTED | {"toping": ["a=1"]}, "^toping: no such option; did you mean --topping[?]$"),
        (WANTED | {"colour": 1}, "^colour: no such option; there are --input, --output, --heat, --fan, --topping$"),
        (WANTED | {"heat": 1}, "^--heat: Input should be greater than or equal to 50$"),
        (WANTED | {"topping": [], "topping_args": {}}, "^--topping is given twice, once as topping_args$"),
        (WANTED | {"topping": ["salt"]}, "^'salt' is not KEY=VALUE$"),
    ],
)
def test_a_wrong_request_is_one_line_that_names_the_option(values: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        make_request(Order, values)
    assert "\n" not in str(caught.value)


def test_options_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("heat: 200\noven-name: big\n")
    assert read_config(str(path)) == {"heat": 200, "oven-name": "big"}
    path.write_text("- a\n")
    with pytest.raises(RequestError, match="must map option names to values"):
        read_config(str(path))
    with pytest.raises(RequestError, match="nowhere"):
        read_config("nowhere.yaml")


def test_values_of_pairs_are_yaml() -> None:
    assert key_values(["a=1", "b=x=y", "c="]) == {"a": 1, "b": "x=y", "c": None}
    assert key_values({"a": "1"}) == {"a": "1"}
