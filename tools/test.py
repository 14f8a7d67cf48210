"""Every test there is: `python tools/test.py`. CI runs this.

First the static checks of `tools/check.py`, then the whole suite on every core; a failed check does not keep
the tests from running. Arguments go to pytest (`python tools/test.py -k fencing`), and then the static checks
are skipped, because someone is looking for one thing. The suite runs last: its closing line is the last word.
"""

from __future__ import annotations

import subprocess
import sys

import check
import environment


def main(pytest_arguments: list[str]) -> int:
    """Run the checks and the tests; return the exit status."""
    checked = bool(pytest_arguments) or check.run(check.STATIC)
    # `worksteal`: a few tests take seconds, and a worker that got two of them gives the rest away.
    suite = check.python("-m", "pytest", "-n", "auto", "--dist", "worksteal", *pytest_arguments)
    status = subprocess.call(suite, cwd=environment.ROOT)
    return status or int(not checked)


if __name__ == "__main__":
    environment.ensure("dev")
    sys.exit(main(sys.argv[1:]))
