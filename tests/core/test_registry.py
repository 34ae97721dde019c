from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from epida_ray.core.errors import RequestError
from epida_ray.core.registry import Builtin, Registry
from epida_ray.generate import GENERATORS

REGISTRY = Registry(
    "generator",
    {
        "plain": Builtin("collections:Counter", "counts"),
        "family": Builtin("fractions:Fraction", "named", family=True),
        "absent": Builtin("no_such_module_xyz:Thing", "missing", requires=("no_such_module_xyz",), extra="thing"),
    },
)


def test_names_families_and_classes_of_ones_own() -> None:
    assert REGISTRY.create("plain", a=2) == {"a": 2}
    assert str(REGISTRY.create("family:3/4")) == "3/4"
    assert REGISTRY.create("decimal:Decimal") == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent", r"no_such_module_xyz not installed; pip install 'epida-ray\[thing\]'"),
        ("nothing", "there is no generator 'nothing'; there are: plain, family:NAME, absent"),
        ("family", "there is no generator 'family'"),
        ("no_module_here:Class", "cannot be imported"),
        ("collections:NoSuchClass", "cannot be imported"),
        (":Foo", "generator ':Foo' cannot be imported"),
        ("tests.no_such.module..x:Foo", "cannot be imported"),
    ],
)
def test_an_unusable_name_says_what_to_do(name: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        REGISTRY.create(name)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(RequestError, match="does not take these arguments: .*bogus"):
        REGISTRY.create("decimal:Decimal", bogus=1)
    with pytest.raises(
        RequestError, match="bogus.*; it takes numerator, denominator; give one as --generator-arg NAME=VALUE"
    ):
        REGISTRY.create("fractions:Fraction", bogus=1)
    with pytest.raises(RequestError, match="requires arguments: missing a required argument: 'seq'"):
        REGISTRY.create("collections:UserString")
    with pytest.raises(RequestError, match="'decimal:Decimal' cannot be created with these arguments: .*dict"):
        REGISTRY.create("decimal:Decimal", value={})


def test_listing_keeps_what_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("mine", "collections:OrderedDict", "epida_ray.generators"),
        EntryPoint("broken", "no_such_module_xyz:A", "epida_ray.generators"),
    ]
    monkeypatch.setattr("epida_ray.core.registry.entry_points", lambda group: points)
    rows = {row.name: row for row in REGISTRY.listing()}
    assert rows["absent"].missing and rows["mine"].missing == "" and "cannot be imported" in rows["broken"].missing
    assert REGISTRY.create("mine") == {}
    with pytest.raises(RequestError, match="broken.*cannot be imported"):
        REGISTRY.create("broken")


def test_arguments_without_a_default_are_still_needed() -> None:
    assert GENERATORS.still_needed("masked-lm") == "--generator-arg model=…"
    assert GENERATORS.still_needed("eda") == GENERATORS.still_needed("policy:FILE") == ""
