"""The page of the reference for the command: every command with its options, as `--help` has them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from referencing import markdown


def page(root: click.Group) -> str:
    """Return the page."""
    found = list(leaves(root))
    parts = [
        f"# The command `litequeue`\n\n{markdown.NOTE}",
        _text(root.help),
        _options(root),
        " · ".join(f"[`{name}`](#{_anchor(name)})" for name, _ in found),
    ]
    for name, command in found:
        parts += [f"## `{name}`", _usage(name, command), _text(command.help), _options(command), _examples(command)]
    return "\n\n".join(part for part in parts if part) + "\n"


def leaves(group: click.Group, *path: str) -> Iterator[tuple[str, click.Command]]:
    """Give each command that does something, by its words, in the order of their names."""
    for name, inner in sorted(group.commands.items()):
        if isinstance(inner, click.Group):
            yield from leaves(inner, *path, name)
        else:
            yield " ".join([*path, name]), inner


def _anchor(name: str) -> str:
    return name.replace(" ", "-")


def _text(text: str | None) -> str:
    """Return help as paragraphs."""
    return re.sub(r"\n?\x08\n?", "\n", inspect.cleandoc(text or "")).strip()


def _usage(name: str, command: click.Command) -> str:
    words = ["litequeue --db FILE", name, "[OPTIONS]"]
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            shown = parameter.metavar or (parameter.name or "").upper()
            shown = shown if parameter.required or shown.startswith("[") else f"[{shown}]"
            words.append(shown if parameter.nargs == 1 or shown.endswith(("...", "...]")) else f"{shown}...")
    return f"```text\n{' '.join(words)}\n```"


def _options(command: click.Command) -> str:
    options = [option for option in command.params if isinstance(option, click.Option) and option.name != "version"]
    if not options:
        return ""
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for option in options:
        names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
        shown = f"{names}{_metavar(option)}"
        default = f"`{option.default}`" if option.show_default and option.default is not None else ""
        meaning = " ".join((option.help or "").replace("|", "\\|").split())
        rows.append(f"| {shown} | {default} | {meaning} |")
    return "\n".join(rows)


def _metavar(option: click.Option) -> str:
    if option.is_flag or option.count:
        return ""
    if option.metavar:
        return f" {option.metavar}"
    if isinstance(option.type, click.Choice):
        return " " + ", ".join(f"`{choice}`" for choice in option.type.choices)
    return f" {option.type.name.upper()}"


def _examples(command: click.Command) -> str:
    return f"```text\n{command.epilog.strip()}\n```" if command.epilog else ""
