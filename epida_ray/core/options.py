"""Options that are declared once: a field of a request model says its own flag, help heading and help text.

The command line, `--config` files and the Python API are all made from the fields of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from pydantic.fields import FieldInfo

from epida_ray.core.errors import RequestError

R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True)
class Option:
    """How a field appears to users; `option` attaches it and `option_of` reads it back."""

    group: str = ""
    """The heading under which `--help` shows the option."""
    flag: str = ""
    """The flag, where it is not the field's name with dashes."""
    short: str = ""
    """A second, short flag, such as -o."""
    off: str = ""
    """The flag that turns a switch off, where it is not --no-NAME."""
    metavar: str = ""
    positional: bool = False
    """Whether the command line takes the value without a flag."""
    repeat: bool = False
    """Whether the flag may be given several times."""
    affects_result: bool = True
    """Whether another value can change the rows or the model of a run."""


def option(
    default: Any,
    help: str,
    *,
    group: str = "",
    flag: str = "",
    short: str = "",
    off: str = "",
    metavar: str = "",
    positional: bool = False,
    repeat: bool = False,
    affects_result: bool = True,
    **bounds: Any,
) -> Any:
    """Return a pydantic field with its command-line form; `...` as the default makes it required.

    `bounds` are pydantic's own checks, such as ge=1.
    """
    form = Option(group, flag, short, off, metavar, positional, repeat, affects_result)
    return Field(default, description=help, json_schema_extra={"option": asdict(form)}, **bounds)


def option_of(info: FieldInfo) -> Option:
    """Return what `option` said of this field."""
    extra: Any = info.json_schema_extra
    return Option(**extra["option"]) if isinstance(extra, dict) and "option" in extra else Option()


def flag(name: str, kind: type[BaseModel] | None = None) -> str:
    """Return the flag of the option `name` on the command line."""
    given = option_of(kind.model_fields[name]).flag if kind and name in kind.model_fields else ""
    return given or ("-" if len(name) == 1 else "--") + name.replace("_", "-")


def shown_name(name: str, kind: type[BaseModel]) -> str:
    """Return what the user types for the option: its flag, or the metavar of a positional argument."""
    form = option_of(kind.model_fields[name]) if name in kind.model_fields else Option()
    return form.metavar if form.positional else flag(name, kind)


def result_options(request: BaseModel) -> dict[str, Any]:
    """Return the options that can change results, as plain JSON."""
    affecting = {name for name, info in type(request).model_fields.items() if option_of(info).affects_result}
    return {name: value for name, value in request.model_dump(mode="json").items() if name in affecting}


def by_field(kind: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` by the names of the model's fields.

    A name may be the field's or the flag's, with dashes or underscores: generator_args, generator-arg; one-time: true
    is online: false; train: FILE is the input of a command that calls its argument TRAIN.
    """
    other: dict[str, tuple[str, bool]] = {}  # a name that users may give → the field, and whether it turns it off
    for name, info in kind.model_fields.items():
        form = option_of(info)
        for shown in (form.flag, form.metavar.lower() if form.positional else ""):
            if shown:
                other[_plain(shown)] = name, False
        if info.annotation is bool:
            other[_plain(form.off) or f"no_{name}"] = name, True
    result: dict[str, Any] = {}
    for given, value in values.items():
        plain = _plain(str(given))
        name, turned_off = (plain, False) if plain in kind.model_fields else other.get(plain, (plain, False))
        if name in result:
            raise RequestError(f"{shown_name(name, kind)} is given twice, once as {given}")
        result[name] = not value if turned_off and isinstance(value, bool) else value
    return result


def _plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


def make_request(kind: type[R], values: Mapping[str, Any]) -> R:
    """Check `values` and return the request; a wrong value raises a one-line RequestError that names the option."""
    given = by_field(kind, values)
    for name, value in given.items():
        if not _is_utf8(value):
            raise RequestError(f"{shown_name(name, kind)}: {value!r} is not valid UTF-8; rename it")
    try:
        return kind(**given)
    except ValidationError as error:
        found = error.errors()
        # A misspelt name is often the reason why another one is missing, so it is reported first.
        first = next((one for one in found if one["type"] == "extra_forbidden"), found[0])
        if not first["loc"]:
            raise RequestError(_reason(first)) from error
        name = str(first["loc"][0])
        shown = shown_name(name, kind)
        if first["type"] == "extra_forbidden":
            typed = next(str(key) for key in values if _plain(str(key)) == name)  # as a file or Python code has it
            raise RequestError(f"{typed}: {_no_such_option(name, kind)}") from error
        if first["type"] == "missing":
            form = option_of(kind.model_fields[name])
            typed = shown if form.positional else f"{shown} {form.metavar}".strip()
            raise RequestError(f"{typed} is missing: {kind.model_fields[name].description}") from error
        raise RequestError(f"{shown}: {_reason(first)}") from error


def _is_utf8(value: Any) -> bool:
    """Return whether all texts of an option can be written to a file."""
    if isinstance(value, dict):
        return all(_is_utf8(key) and _is_utf8(one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_utf8, value))
    return not (isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value))


def _reason(found: Any) -> str:
    """Return pydantic's message; that of a check of our own comes without pydantic's heading."""
    cause = found.get("ctx", {}).get("error")
    return str(cause) if found["type"] == "value_error" and cause else str(found["msg"])


def _no_such_option(name: str, kind: type[BaseModel]) -> str:
    names = {flag(field, kind).lstrip("-"): shown_name(field, kind) for field in kind.model_fields}
    near = get_close_matches(name.replace("_", "-"), names, 1) or [one for one in names if name in one.split("-")]
    if near:
        return f"no such option; did you mean {' or '.join(names[one] for one in near)}?"
    return f"no such option; there are {', '.join(flag(field, kind) for field in kind.model_fields)}"


def read_config(path: str) -> dict[str, Any]:
    """Read options from a YAML file; names are those of the command line, with dashes or underscores."""
    try:
        loaded = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, ValueError) as error:
        raise RequestError(
            f"--config {path}: {getattr(error, 'strerror', None) or ' '.join(str(error).split())}"
        ) from error
    if not isinstance(loaded, dict):
        raise RequestError(f"--config {path}: must map option names to values, such as `rounds: 8`")
    return {str(name): value for name, value in loaded.items()}


def key_values(given: Any) -> Any:
    """Return a mapping from a list of KEY=VALUE, whose values are YAML; anything else stays as it is."""
    return dict(map(_key_value, given)) if isinstance(given, list | tuple) else given


def _key_value(pair: Any) -> tuple[str, Any]:
    key, equals, value = str(pair).partition("=")
    if not equals:
        raise RequestError(f"{pair!r} is not KEY=VALUE")
    try:
        return key.strip(), yaml.safe_load(value)
    except (yaml.YAMLError, ValueError) as error:  # a ValueError comes from a date such as 2020-13-45
        raise RequestError(f"the value of {pair!r} cannot be read as YAML: {error}") from error


def _comma_separated(given: Any) -> Any:
    if isinstance(given, str):
        return tuple(part.strip() for part in given.split(",") if part.strip())
    # A YAML file may have numbers and booleans for labels.
    return tuple(str(part) for part in given) if isinstance(given, list | tuple) else given


def lines_of_file(given: Any) -> Any:
    """Return the lines of the file with this name; anything but a name is returned as it is."""
    if not isinstance(given, str):
        return given
    try:
        lines = Path(given).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{given} cannot be read: {error}") from error
    return tuple(line.strip() for line in lines if line.strip())


Arguments = Annotated[dict[str, Any], BeforeValidator(key_values)]
"""A mapping, or a list of KEY=VALUE."""
Names = Annotated[tuple[str, ...], BeforeValidator(_comma_separated)]
"""Several names, or one string with commas between them."""
Phrases = Annotated[tuple[str, ...], BeforeValidator(lines_of_file)]
"""Several phrases, or the path of a file with one on each line."""
