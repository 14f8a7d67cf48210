"""Every command, setting and metric is documented; what is missing is named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from litequeue.cli import litequeue as command
from litequeue.metrics import families
from litequeue.settings import SPECS

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).resolve().parents[2] / "docs"


def leaves(group: click.Group, *path: str) -> Iterator[tuple[str, click.Command]]:
    """Give each command that does something, by its words."""
    for name, inner in group.commands.items():
        if isinstance(inner, click.Group):
            yield from leaves(inner, *path, name)
        else:
            yield " ".join([*path, name]), inner


def test_every_command_stands_in_the_table_of_commands() -> None:
    """And no other: one that is added, renamed or gone must be told of (issue 8)."""
    page = (DOCS / "guide" / "command.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]*`) \|", page, re.MULTILINE)
    told = {
        " ".join(re.findall(r"(?<!\S)[a-z][a-z-]*(?!\S)", words))
        for row in rows
        for words in re.findall(r"`(.*?)`", row)
    }
    assert told == {name for name, _ in leaves(command)}


def test_every_option_stands_in_the_reference() -> None:
    """Below its command (issue 8)."""
    page = (DOCS / "reference" / "command.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## `([^`]+)`\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    options = {
        f"{name} {word}"
        for name, inner in leaves(command)
        for option in inner.params
        if isinstance(option, click.Option)
        for word in (*option.opts, *option.secondary_opts)
    }
    told = {f"{name} {word}" for name, text in sections.items() for word in re.findall(r"`(--?[\w-]+)`", text)}
    assert sections.keys() == {name for name, _ in leaves(command)}
    assert options - told == set()


def test_every_command_and_option_has_help_and_every_command_examples() -> None:
    """Which is what `--help` shows, and the reference (issue 8)."""
    for name, inner in leaves(command):
        assert inner.help, name
        assert inner.epilog, f"{name} has no examples"
        for option in inner.params:
            assert not isinstance(option, click.Option) or option.help, f"{name} {option.opts}"


def test_every_metric_stands_on_its_page() -> None:
    """And no other; those to alert on, of the page on operations, are among them."""
    page = (DOCS / "guide" / "metrics.md").read_text(encoding="utf-8")
    rows = "".join(re.findall(r"^\| (`litequeue_[^|]*) \|", page, re.MULTILINE))
    told = set(re.findall(r"litequeue_\w+", rows))
    assert told == {each.name for each in (*families.OF_FILE, *families.OF_PROCESS)}
    alerts = set(re.findall(r"litequeue_\w+", (DOCS / "operations.md").read_text(encoding="utf-8")))
    assert alerts
    assert alerts <= told


def test_every_setting_stands_on_its_page_with_its_default() -> None:
    """A setting that is added or changed must be told of (issue 8)."""
    page = (DOCS / "guide" / "settings.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \| ([^|]+) \|", page, re.MULTILINE)
    told = {
        name: value.strip()
        for names, values in rows
        for name, value in zip(re.findall(r"`(\w+)`", names), values.split(","), strict=True)
    }
    words: dict[object, str] = {None: "none", False: "false"}
    assert told == {name: words.get(spec.default, str(spec.default)) for name, spec in SPECS.items()}
