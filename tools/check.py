"""The checks, as CI and a developer run them before a commit: `python tools/check.py [--fix]`.

Owns the list of steps and how they are reported: one line a step, the output of those that failed. A failed
step does not stop the later ones, so one run tells everything. `tools/test.py` runs the static ones too.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import environment


@dataclass(frozen=True)
class Step:
    """One check: a command that fails when something is wrong."""

    name: str
    command: tuple[str, ...]


def python(*arguments: str) -> tuple[str, ...]:
    """Return a command for this environment's Python."""
    return (sys.executable, *arguments)


STATIC = (
    Step("format", python("-m", "ruff", "format", "--check", "--diff", ".")),
    Step("lint", python("-m", "ruff", "check", ".")),
    Step("types", python("-m", "mypy")),
    # import-linter has no `-m`: its command stands beside the interpreter.
    Step("layers", (str(Path(sys.executable).with_name("lint-imports")),)),
    Step("open()", python("tools/lint_open.py")),
)
FAST_TESTS = Step("fast tests", python("-m", "pytest", "-q", "-m", "not slow", "-n", "2"))
FIXES = (
    Step("fix lint", python("-m", "ruff", "check", "--fix-only", ".")),
    Step("fix format", python("-m", "ruff", "format", ".")),  # last: a fix may leave a line too long
)


def run(steps: tuple[Step, ...]) -> bool:
    """Run all the steps, whatever becomes of them; return whether every one passed."""
    passed = True
    for step in steps:
        done = subprocess.run(
            step.command,
            cwd=environment.ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        print(f"{step.name:<12} {'ok' if done.returncode == 0 else 'failed'}", flush=True)
        if done.returncode != 0:
            passed = False
            print(done.stdout.rstrip(), flush=True)
    return passed


def main() -> int:
    """Run the checks; return the exit status."""
    parser = argparse.ArgumentParser(description="format, lint, types, layers and the fast tests")
    parser.add_argument("--fix", action="store_true", help="first mend what can be mended automatically")
    fix = parser.parse_args().fix
    return 0 if run((*(FIXES if fix else ()), *STATIC, FAST_TESTS)) else 1


if __name__ == "__main__":
    environment.ensure("dev")
    sys.exit(main())
