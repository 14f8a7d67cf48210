"""Write docs/reference from docstrings and from the command's help: `python tools/make_reference.py`.

Run it when a public docstring, a signature, a command or an option has changed; a test says which page is out of date.
With `--check` nothing is written, and the exit status is 1 when a page is.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import environment

FOLDER = environment.ROOT / "docs" / "reference"


def pages() -> dict[Path, str]:
    """Return the pages as they should be."""
    from litequeue.cli import litequeue  # noqa: PLC0415 - only the environment has them
    from referencing import api, command  # noqa: PLC0415 - the same

    reader = api.Reader(environment.ROOT)
    made = {FOLDER / f"{name}.md": reader.page(module) for module, name in api.PAGES.items()}
    return made | {FOLDER / "command.md": command.page(litequeue)}


def stale(made: dict[Path, str]) -> list[Path]:
    """Return the pages that are missing or differ, and files that are none."""
    there = {path: path.read_text(encoding="utf-8") for path in FOLDER.glob("*")}
    return sorted(path for path in made | there if made.get(path) != there.get(path))


def main() -> int:
    """Write the pages, or check them; return the exit status."""
    parser = argparse.ArgumentParser(description="write docs/reference from docstrings and the command's help")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a page is out of date")
    check = parser.parse_args().check
    made = pages()
    changed = stale(made)
    for path in changed:
        print(path.relative_to(environment.ROOT))
        if not check and path in made:
            path.parent.mkdir(exist_ok=True)
            path.write_text(made[path], encoding="utf-8")
        elif not check:
            path.unlink()
    return int(check and bool(changed))


if __name__ == "__main__":
    environment.ensure("dev")
    sys.exit(main())
