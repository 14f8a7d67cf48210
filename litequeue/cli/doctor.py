"""`doctor`: what an examination found, one line each."""

from __future__ import annotations

import click

import litequeue
from litequeue import Diagnosis
from litequeue.cli.commands import Command
from litequeue.cli.failures import Failure
from litequeue.cli.jsonable import Json, dumps
from litequeue.cli.layout import logged
from litequeue.cli.output import count_of, plain
from litequeue.cli.progress import progress
from litequeue.cli.target import Target, pass_target
from litequeue.diagnosis import Severity


@click.command(
    cls=Command,
    epilog="""
litequeue --db app.queue doctor
litequeue --db app.queue doctor --fix
""",
)
@click.option("--fix", is_flag=True, help="Mend what can be mended without losing anything, and look again.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object.")
@pass_target
def doctor(target: Target, *, fix: bool, as_json: bool) -> None:
    """Examine the file, in use or damaged.

    Also one that cannot be opened. Looks at SQLite's own structures, at every job, at the tables to each other, at
    what waits, at the clocks, and at what lies beside the file. Prints a line for each finding, and at the end
    whether anything is wrong; without --fix nothing is changed.

    Ends with status 1 when there is a problem. Warnings and facts are none.
    """
    path = target.required_path()
    with progress("examining") as drawn:
        diagnosis = litequeue.doctor(path, fix=fix, progress=drawn)
    if as_json:
        click.echo(dumps(_form(diagnosis)))
    else:
        rows = [["mended", "", plain(line)] for line in diagnosis.mended]
        rows += [[finding.severity, finding.code, plain(str(finding))] for finding in diagnosis.findings]
        for line in logged(rows):
            click.echo(line)
        click.echo(_verdict(diagnosis))
    if not diagnosis.is_healthy:
        raise Failure(f"{diagnosis.path} has {count_of(len(diagnosis.problems), 'problem')}")


def _verdict(diagnosis: Diagnosis) -> str:
    warnings = sum(finding.severity is Severity.WARNING for finding in diagnosis.findings)
    if not warnings and diagnosis.is_healthy:
        return "nothing is wrong"
    problems = "no problem" if diagnosis.is_healthy else count_of(len(diagnosis.problems), "problem")
    return f"{problems}, {count_of(warnings, 'warning')}" if warnings else problems


def _form(diagnosis: Diagnosis) -> dict[str, Json]:
    return {
        "path": diagnosis.path,
        "is_healthy": diagnosis.is_healthy,
        "mended": list(diagnosis.mended),
        "findings": [
            {
                "code": finding.code,
                "severity": str(finding.severity),
                "text": finding.text,
                "count": finding.count,
                "examples": list(finding.examples),
                "mendable": finding.mendable,
            }
            for finding in diagnosis.findings
        ],
    }
