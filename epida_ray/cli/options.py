"""Typer parameters and help pages made from the fields of a request."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
import typer.core
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from epida_ray.core.options import by_field, flag, make_request, option_of, read_config
from epida_ray.method.requests import GROUPS, MethodRequest

CONFIG = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="YAML file with options, under these names. Options on the command line override it.",
    ),
]
RUN_DIR = Annotated[str, typer.Argument(metavar="DIR", help="Directory of a run: its --output.")]
MODEL_DIR = Annotated[
    str, typer.Argument(metavar="MODEL_DIR", help="Directory of a saved model, such as DIR/model of a run.")
]
OVERWRITE = Annotated[bool, typer.Option("--overwrite", help="Replace the file if it is there already.")]
QUIET = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]


def shared(name: str, help: str = "") -> Any:
    """Return the Typer option of a field of MethodRequest, for a command that has only a few of them."""
    info = MethodRequest.model_fields[name]
    least, most = (next((getattr(m, key) for m in info.metadata if hasattr(m, key)), None) for key in ("ge", "le"))
    return _typer_option(name, MethodRequest, help or info.description or "", min=least, max=most)


def default(name: str) -> Any:
    """Return the default of a field of MethodRequest."""
    return MethodRequest.model_fields[name].default


def takes(request: type[BaseModel]) -> Callable[[Callable[..., None]], Any]:
    """Give a command every option of `request`; the function gets the checked request and its own parameters.

    An option of the command line overrides the same one in the file of --config.
    """

    def decorate(function: Callable[..., None]) -> Any:
        own = [p for p in inspect.signature(function, eval_str=True).parameters.values() if p.name != "request"]

        def command(ctx: typer.Context, config: str | None, **given: Any) -> None:
            values = {
                name: given[name]
                for name in request.model_fields
                if (source := ctx.get_parameter_source(name)) is not None and source.name == "COMMANDLINE"
            }
            in_file = by_field(request, read_config(config)) if config else {}
            function(make_request(request, in_file | values), **{p.name: given[p.name] for p in own})

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [
            inspect.Parameter("ctx", kind, annotation=typer.Context),
            *(_parameter(name, info, request) for name, info in request.model_fields.items()),
            inspect.Parameter("config", kind, annotation=CONFIG, default=None),
            *own,
        ]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        command.__name__ = function.__name__
        command.__doc__ = function.__doc__
        return command

    return decorate


def _parameter(name: str, info: FieldInfo, request: type[BaseModel]) -> inspect.Parameter:
    form = option_of(info)
    help = f"{info.description} Required, here or in --config." if info.is_required() else info.description or ""
    made: Any
    if form.positional:
        made = typer.Argument(metavar=form.metavar, help=help, show_default=False)
    else:
        made = _typer_option(name, request, help, rich_help_panel=form.group or None)
    type_, default = _type_and_default(info)
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Annotated[type_, made], default=default
    )


def _typer_option(name: str, request: type[BaseModel], help: str, **more: Any) -> Any:
    info = request.model_fields[name]
    form = option_of(info)
    on = flag(name, request)
    if info.annotation is bool and info.default:
        flags = [f"{on}/{form.off or f'--no-{on[2:]}'}"]
    else:
        flags = [on, *([form.short] if form.short else [])]
    if form.repeat:
        help = f"{help} May be repeated."
    return typer.Option(*flags, help=help, metavar=form.metavar or None, **more)


def _type_and_default(info: FieldInfo) -> tuple[Any, Any]:
    """Return what Typer reads; the request itself turns texts into lists and mappings."""
    if option_of(info).repeat:
        return list[str], []
    plain = {str, int, float, bool, type(None)}
    types = set(get_args(info.annotation)) if get_origin(info.annotation) is not Literal else set()
    if info.is_required() or (info.annotation not in plain and types and not types <= plain):
        return str | None, None
    return info.annotation, info.default


class HelpByGroup(typer.core.TyperCommand):
    """A command whose help shows its options under headings."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Write a required argument as FILE; some versions of Typer write {FILE}."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in ("Arguments", *GROUPS, "Options")}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                if parameter.param_type_name == "argument":
                    groups["Arguments"].append((getattr(parameter, "metavar", None) or record[0], record[1]))
                else:
                    groups[getattr(parameter, "rich_help_panel", None) or "Options"].append(record)
        _write(formatter, groups)


class CommandsByGroup(typer.core.TyperGroup):
    """The program, whose help shows its commands under headings."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        limit = formatter.width - 6 - max(map(len, self.commands))
        groups: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            heading = getattr(command, "rich_help_panel", None) or "Commands"
            groups.setdefault(str(heading), []).append((name, command.get_short_help_str(limit)))
        _write(formatter, groups)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Put the commands before the options: they are what a newcomer looks for."""
        self.format_commands(ctx, formatter)
        records = [record for p in self.get_params(ctx) if (record := p.get_help_record(ctx))]
        _write(formatter, {"Options": records})


def _write(formatter: Any, groups: dict[str, list[tuple[str, str]]]) -> None:
    # One column for all groups, so that the texts below each other line up.
    width = min(30, max((len(name) for records in groups.values() for name, _ in records), default=0))
    for heading, records in groups.items():
        if records:
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), text) for name, text in records])
