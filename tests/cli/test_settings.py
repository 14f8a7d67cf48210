"""`settings` and `stats`: what the file agrees on, and what is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litequeue import ANY, SYSTEM
from litequeue.settings import SPECS, Value

if TYPE_CHECKING:
    from litequeue import Queue
    from tests.cli.conftest import Cli

DEFAULTS = {name: spec.default for name, spec in SPECS.items()}


def test_get_shows_every_setting(cli: Cli) -> None:
    """Names and values in force, one a line; in JSON an object, with what kinds have under "kinds" (§5)."""
    cli.done("init")
    lines = [line.split() for line in cli.done("settings", "get").splitlines()]
    assert [line[0] for line in lines] == list(SPECS)
    assert ["dead_retention", "none"] in lines
    assert ["refuse_lapsed", "false"] in lines
    assert ["lease_ttl", "300"] in lines
    assert cli.json("settings", "get") == {**DEFAULTS, "kinds": {}, "scopes": []}


def test_get_of_a_kind_shows_what_is_in_force_for_it(cli: Cli, queue: Queue) -> None:
    """The longest match over the file's own; without a kind, the kinds' own follow (§5)."""
    queue.set("lease_ttl", 60)
    queue.set("lease_ttl", 90, "ingest:")
    assert cli.done("settings", "get", "lease_ttl") == "60\n"
    assert cli.done("settings", "get", "lease_ttl", "--kind", "ingest:pdf") == "90\n"
    assert cli.done("settings", "get").splitlines()[-1].split() == ["lease_ttl", "90", "for", "ingest:"]
    of_file, of_kind = cli.json("settings", "get"), cli.json("settings", "get", "--kind", "ingest:pdf")
    assert isinstance(of_file, dict)
    assert isinstance(of_kind, dict)
    assert of_file["kinds"] == {"ingest:": {"lease_ttl": 90}}
    assert set(of_kind) == {name for name, spec in SPECS.items() if spec.per_kind}
    assert of_kind["lease_ttl"] == 90


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("lease_ttl", "60", 60),
        ("lease_ttl", "0.5", 0.5),
        ("lease_ttl", "10m", 600),
        ("dead_retention", "30d", 2_592_000),
        ("dead_retention", "none", None),
        ("backoff_jitter", "full", "full"),
        ("backoff_jitter", "none", "none"),
        ("backoff_factor", "1.5", 1.5),
        ("max_attempts", "1", 1),
        ("max_bytes", "none", None),
        ("max_bytes", "1000000", 1_000_000),
        ("concurrency", "3", 3),
        ("concurrency", "none", None),
        ("rate", "100/5m", "100/300s"),
        ("rate", "none", None),
        ("refuse_lapsed", "true", True),
        ("refuse_lapsed", "false", False),
    ],
)
def test_set_reads_a_value_by_the_form_of_its_setting(
    cli: Cli, queue: Queue, name: str, text: str, value: Value
) -> None:
    """What is set is what every handle sees, and what is told of it and what `get` prints can be set again (§5)."""
    told, value_told = cli.done("settings", "set", name, text).split()
    assert told == name
    assert queue.settings()[name] == value
    assert type(queue.settings()[name]) is type(value)
    assert cli.json("settings", "get", name) == value
    for again in (value_told, cli.done("settings", "get", name).strip()):
        cli.done("settings", "set", name, again)
        assert queue.settings()[name] == value


def test_set_and_unset_for_a_kind(cli: Cli, queue: Queue) -> None:
    """A kind's own goes over the file's, until it is unset (§5)."""
    cli.done("settings", "set", "max_attempts", "7")
    assert cli.done("settings", "set", "max_attempts", "9", "--kind", "mail:") == "max_attempts 9 for mail:\n"
    assert (queue.settings("mail:send")["max_attempts"], queue.settings("work")["max_attempts"]) == (9, 7)
    assert cli.done("settings", "unset", "max_attempts", "--kind", "mail:") == "max_attempts unset for mail:\n"
    assert queue.settings("mail:send")["max_attempts"] == 7
    cli.done("settings", "unset", "max_attempts")
    assert queue.settings()["max_attempts"] == 5


@pytest.mark.parametrize(
    ("name", "text", "bounds"),
    [
        ("lease_ttl", "0", "more than 0 and at most 31,536,000"),
        ("lease_ttl", "-1", "more than 0 and at most 31,536,000"),
        ("lease_ttl", "-0.5", "more than 0 and at most 31,536,000"),
        ("lease_ttl", "nan", "more than 0 and at most 31,536,000"),
        ("lease_ttl", "none", "more than 0 and at most 31,536,000"),
        ("lease_ttl", "soon", "more than 0 and at most 31,536,000"),
        ("lease_ttl", "9" * 400, "more than 0 and at most 31,536,000"),
        ("max_attempts", "0", "a whole number from 1 to 1000000"),
        ("max_attempts", "2.5", "a whole number from 1 to 1000000"),
        ("backoff_factor", "inf", "a number from 1 to 1000"),
        ("backoff_jitter", "some", "none, equal or full"),
        ("refuse_lapsed", "1", "true or false"),
        ("dead_retention", "-1d", ", or none"),
        ("max_bytes", "1", "a whole number from 65536 to"),
    ],
)
def test_a_value_out_of_bounds_is_refused_with_the_name_and_the_bounds(
    cli: Cli, name: str, text: str, bounds: str
) -> None:
    """Wrong usage (2), and nothing is changed (§5, §6)."""
    cli.done("init")
    line = cli("settings", "set", name, text).line_of_failure(2)
    assert line.startswith(f"{name} must be ")
    assert bounds in line
    assert cli.json("settings", "get") == {**DEFAULTS, "kinds": {}, "scopes": []}


def test_a_limit_within_scopes_is_set_shown_and_taken_back(cli: Cli, queue: Queue) -> None:
    """For each scope, for one, and for the one without a name (§5)."""
    for words in (["--each-scope", "--kind", "mail:"], ["--scope", "one"], ["--system"]):
        cli.done("settings", "set", "concurrency", "2", *words)
    assert queue.scope_settings() == {
        ANY: {"mail:": {"concurrency": 2}},
        "one": {None: {"concurrency": 2}},
        SYSTEM: {None: {"concurrency": 2}},
    }
    shown = [line.split(maxsplit=2) for line in cli.done("settings", "get").splitlines()]
    assert ["concurrency", "2", "for mail: in each scope"] in shown
    assert ["concurrency", "2", "in scope one"] in shown
    assert ["concurrency", "2", "in scope (system)"] in shown
    told = cli.json("settings", "get")
    assert isinstance(told, dict)
    own = {"kind": None, "name": "concurrency", "value": 2}
    assert told["scopes"] == [
        {"scope": None, "each_scope": False, **own},
        {"scope": None, "each_scope": True, **own, "kind": "mail:"},
        {"scope": "one", "each_scope": False, **own},
    ]
    for words in (["--each-scope", "--kind", "mail:"], ["--scope", "one"], ["--system"]):
        cli.done("settings", "unset", "concurrency", *words)
    assert queue.scope_settings() == {}


def test_a_limit_within_a_scope_is_refused_where_there_is_none(cli: Cli) -> None:
    """One line that says which settings may have it (§6)."""
    cli.done("init")
    assert "only concurrency has" in cli("settings", "set", "rate", "1/s", "--each-scope").line_of_failure(2)
    line = cli("settings", "set", "concurrency", "1", "--each-scope", "--scope", "one").line_of_failure(2)
    assert "exclude" in line


@pytest.mark.parametrize("words", [["get"], ["set", "1"], ["unset"]])
def test_unknown_settings_and_misplaced_kinds_are_refused(cli: Cli, words: list[str]) -> None:
    """The line names every setting that there is, or says that this one belongs to the file (§5, §6)."""
    cli.done("init")
    verb, value = words[0], words[1:]
    line = cli("settings", verb, "leas_ttl", *value).line_of_failure(2)
    assert line.startswith("setting must be one of lease_ttl, max_attempts, ")
    line = cli("settings", verb, "max_bytes", *value, "--kind", "a").line_of_failure(2)
    assert "max_bytes belongs to the whole file" in line


def test_stats_count_by_state_and_kind(cli: Cli, queue: Queue) -> None:
    """Every state is there; kinds show the states that they have jobs in (V13)."""
    queue.enqueue("mail:send")
    queue.enqueue("mail:send", delay=60)
    queue.enqueue("other", scope="acme")
    out = cli.done("stats")
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["scope", "default"]
    for line in (["pending", "1"], ["scheduled", "1"], ["dead", "0"], ["total", "2"]):
        assert line in lines
    assert "\nKIND       pending  scheduled\nmail:send  1        1\n" in out
    assert "total            3\n" in cli.done("stats", "--all-scopes")
    assert cli.done("stats", "--scope", "acme").startswith("scope            acme\n")
    assert cli.done("stats", "--system").startswith("scope            (system)\n")


def test_stats_in_json_have_the_names_of_the_library(cli: Cli, queue: Queue) -> None:
    """States by name, times in µs, sizes in bytes (V13)."""
    queue.enqueue("work", scope=SYSTEM)
    queue.enqueue("work", delay=60)
    found = queue.stats()
    shown = cli.json("stats")
    assert isinstance(shown, dict)
    assert set(shown) == {
        *("total", "counts", "by_kind", "oldest_ready_at", "next_due_at"),
        *("lapsed", "file_bytes", "free_bytes", "wal_bytes"),
    }
    assert shown["counts"] == {state.name.lower(): count for state, count in found.counts.items()}
    assert shown["by_kind"] == {"work": {"scheduled": 1}}
    assert (shown["total"], shown["oldest_ready_at"], shown["next_due_at"]) == (1, None, found.next_due_at)
    everything = cli.json("stats", "--all-scopes")
    assert isinstance(everything, dict)
    assert everything["total"] == 2


def test_stats_of_an_empty_queue_are_done(cli: Cli) -> None:
    """Zeros are an answer, not nothing to do (§9)."""
    cli.done("init")
    assert "total            0\n" in cli.done("stats")


def test_weights_are_set_shown_and_taken_back(cli: Cli, queue: Queue) -> None:
    """`weight N --scope NAME`; without N all that are not 1 (V12)."""
    assert cli.done("weight") == ""
    assert cli.json("weight") == []
    cli.done("weight", "5", "--scope", "acme")
    cli.done("weight", "1000", "--system")
    cli.done("weight", "2")
    assert queue.weights() == {SYSTEM: 1000, "acme": 5, "default": 2}
    assert [line.split() for line in cli.done("weight").splitlines()] == [
        ["(system)", "1000"],
        ["acme", "5"],
        ["default", "2"],
    ]
    assert cli.json("weight") == [
        {"scope": None, "weight": 1000},
        {"scope": "acme", "weight": 5},
        {"scope": "default", "weight": 2},
    ]
    cli.done("weight", "1", "--scope", "acme")
    assert queue.weights() == {SYSTEM: 1000, "default": 2}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["0"], "N must be a whole number from 1 to 1000"),
        (["-1"], "N must be a whole number from 1 to 1000"),
        (["1001", "--scope", "a"], "N must be a whole number from 1 to 1000"),
        (["3", "--scope", "litequeue:x"], "scope must be "),
        (["--scope", "a"], "a scope goes with its weight"),
        (["3", "--scope", "a", "--system"], "--scope and --system exclude each other"),
    ],
)
def test_a_weight_out_of_its_bounds_is_wrong_usage(cli: Cli, words: list[str], line: str) -> None:
    """Name, value and bounds (§6, §9)."""
    cli.done("init")
    assert line in cli("weight", *words).line_of_failure(2)
