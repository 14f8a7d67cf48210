"""Every test there is: `python tools/test.py`. CI runs this.

First the static checks of `tools/check.py`, then the whole suite on every core; a failed check does not keep
the tests from running. Arguments go to pytest (`python tools/test.py -k fencing`), and then the static checks
are skipped, because someone is looking for one thing. The suite runs last: its closing line is the last word.

`python tools/test.py --python 3.11 3.12 3.13` runs the suite, without the static checks, under each of these Pythons,
in an environment of its own (`.venv-3.12` …); `--python all` under each supported one that is installed. Arguments
after the versions go to pytest. A named version that is not there is a failure; the exit status is that of the worst.
"""

from __future__ import annotations

import subprocess
import sys

import environment

if __name__ == "__main__":
    environment.ensure("dev")  # before what follows, which needs a Python of ours

import check
import pythons


def main(arguments: list[str]) -> int:
    """Run the checks and the tests; return the exit status."""
    try:
        versions, pytest_arguments = pythons.split(arguments)
    except pythons.Unknown as exc:
        environment.say(str(exc))
        return 2
    if versions:
        return pythons.run(versions, lambda python: _suite(python, pytest_arguments))
    checked = bool(pytest_arguments) or check.run(check.STATIC)
    status = subprocess.call(_suite(sys.executable, pytest_arguments), cwd=environment.ROOT)
    return status or int(not checked)


def _suite(python: str, pytest_arguments: list[str]) -> list[str]:
    # `worksteal`: a few tests take seconds, and a worker that got two of them gives the rest away.
    return [python, "-m", "pytest", "-n", "auto", "--dist", "worksteal", *pytest_arguments]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
