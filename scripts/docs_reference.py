"""A hook of mkdocs: the reference page shows the help of every command, made from the code when the site is built."""

from __future__ import annotations

from typing import Any

MARK = "<!-- commands -->"


def on_page_markdown(markdown: str, **context: Any) -> str:
    return markdown.replace(MARK, commands()) if MARK in markdown else markdown


def commands() -> str:
    """Return every command with its help, under the headings of `epida --help`."""
    from typer.testing import CliRunner

    from epida_ray.cli.main import COMMANDS, app, command_name

    lines = []
    for heading, modules in COMMANDS.items():
        lines += [f"## {heading}", ""]
        for module in modules:
            name = command_name(module)
            done = CliRunner().invoke(app, [name, "--help"], prog_name="epida", env={"COLUMNS": "100"})
            assert done.exit_code == 0, done.output
            lines += [f"### epida {name}", "", "```text", done.output.strip(), "```", ""]
    return "\n".join(lines)
