"""The program `epida`: its commands, and how their errors are shown.

Each command is a module with a function `command` and an EXAMPLE for the end of its help. The modules import Ray, torch
and the rest of the package only when a command runs, so that `epida --help` is quick.
"""

from __future__ import annotations

import os
import sys
import threading
from textwrap import indent
from types import ModuleType
from typing import Annotated, Any, NoReturn

import typer

from epida_ray.cli import (
    augment,
    check,
    compare,
    demo,
    distil,
    doctor,
    evaluate,
    export,
    export_model,
    label,
    predict,
    preview,
    report,
    reproduce,
    serve,
    status,
    train,
    tune,
    watch,
)
from epida_ray.cli import list as list_
from epida_ray.cli.options import CommandsByGroup, HelpByGroup
from epida_ray.core.errors import EpidaError
from epida_ray.core.progress import MESSAGE, printable

INTERRUPTED = 130
"""What Typer returns when Ctrl-C ends a command."""
USAGE_ERRORS: Any = typer.BadParameter.__mro__[1:3]
"""UsageError and ClickException: of click, or of Typer's own copy of it."""
COMMANDS = {
    "Start here": (demo, compare, train, augment, distil, tune),
    "Look at data, runs and models": (check, preview, status, report, watch, evaluate),
    "Use the results": (predict, label, serve, export, export_model),
    "See what is installed": (list_, doctor),
    "Repeat the paper's experiments": (reproduce,),
}


def command_name(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2].replace("_", "-")


app = typer.Typer(
    name="epida",
    cls=CommandsByGroup,
    help="Train better text classifiers from few labelled texts.\n\nepida generates several rewrites of every text, "
    "lets the classifier score them, and keeps the best to train on.",
    epilog="\b\nFirst step, on a bundled corpus, in a minute or two:\n  epida demo\n\n"
    "\b\nThen, with your own file that has the columns text and label:\n  epida train mine.csv --output run\n\n"
    "`epida COMMAND --help` explains a command.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
for heading, modules in COMMANDS.items():
    for module in modules:
        app.command(
            command_name(module),
            cls=HelpByGroup,
            rich_help_panel=heading,
            epilog=f"\b\nExample:\n{indent(module.EXAMPLE, '  ')}",
        )(module.command)


def _print_version(requested: bool) -> None:
    if requested:
        from epida_ray import __version__

        typer.echo(f"epida {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the program: a wrong request is one line and status 2, a failed run one line and status 1."""
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")  # else a thread that outlives its Ray would start another
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    try:
        exit_status = app(prog_name="epida", standalone_mode=False)
    except EpidaError as error:
        fail(str(error), error.exit_status)
    except (KeyboardInterrupt, typer.Abort):
        fail("interrupted", 1)
    except BrokenPipeError:
        exit_status = 1
    except USAGE_ERRORS as error:
        usage: Any = error
        command = usage.ctx.command_path if getattr(usage, "ctx", None) else "epida"
        fail(f"{usage.format_message().rstrip('.')}; see `{command} --help`", 2)
    if exit_status == INTERRUPTED:
        fail("interrupted", 1)
    raise SystemExit(exit_status)


def fail(message: str, exit_status: int) -> NoReturn:
    """Print one line on standard error and exit."""
    print(printable(f"epida: {message}", MESSAGE), file=sys.stderr)
    if any(thread.name.startswith(("StreamingExecutor", "epida-train")) for thread in threading.enumerate()):
        # A thread of Ray Data that outlives its Ray, or one in the middle of a torch step, can crash the interpreter
        # while it shuts down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_status)
    raise SystemExit(exit_status)
