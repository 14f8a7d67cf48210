"""Prometheus' text format, as its own parser reads it (issue 8, metrics)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from litequeue.histogram import Histogram
from litequeue.metrics import families as of
from litequeue.metrics.families import OTHER, Kinds, Page
from litequeue.metrics.text import render


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Read a page as Prometheus does; no value stands there twice."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found
            found[key] = sample.value
    return found


@given(kind=st.text(min_size=1), db=st.text(min_size=1))
def test_whatever_text_a_label_is_it_is_read_as_it_was(kind: str, db: str) -> None:
    """Quotes, backslashes, line breaks of every sort, and what looks like an escape."""
    page = Page()
    page.add(db, of.REAPS, 3, kind)
    text = render(page)
    assert text.count("\n") == 3
    assert samples(text) == {("litequeue_reaps", frozenset({("db", db), ("kind", kind)})): 3}


@pytest.mark.parametrize("kind", ['a"b', "a\\b", "a\nb", "a\\nb", 'a\\"', "{a}", "a,b=", "ä∀🙂", " "])
def test_a_kind_that_could_break_a_line_does_not(kind: str) -> None:
    """The hard ones by name, should chance not find them."""
    page = Page()
    page.add("x", of.JOBS, 1, kind, "pending")
    ((_, labels),) = samples(render(page))
    assert dict(labels)["kind"] == kind


def test_a_histogram_is_one_to_prometheus() -> None:
    """With its buckets, +Inf among them, its count and its sum; it is declared as a histogram."""
    histogram = Histogram((0.5, 1.0))
    for value in (0.25, 0.75, 3.0):
        histogram.observe(value)
    page = Page()
    page.add_histogram("x", of.GATE_WAIT, histogram.observed())
    (family,) = text_string_to_metric_families(render(page))
    assert (family.name, family.type) == ("litequeue_gate_wait_seconds", "histogram")
    buckets = [(one.labels["le"], one.value) for one in family.samples if one.name.endswith("_bucket")]
    assert buckets == [("0.5", 1), ("1.0", 2), ("+Inf", 3)]
    rest = {one.name: one.value for one in family.samples if not one.name.endswith("_bucket")}
    assert rest == {"litequeue_gate_wait_seconds_count": 3, "litequeue_gate_wait_seconds_sum": 4.0}


def test_a_remark_is_a_comment_on_one_line() -> None:
    """And no parser takes it for anything else."""
    page = Page()
    page.add("x", of.UP, 0)
    page.remarks.append('/my "file was\nreplaced # TYPE')
    text = render(page)
    assert text.startswith('# litequeue: error: /my "file was replaced # TYPE\n# HELP litequeue_up ')
    assert list(samples(text).values()) == [0]


@pytest.mark.parametrize("definition", [*of.OF_FILE, *of.OF_PROCESS], ids=lambda one: one.name)
def test_names_and_helps_are_as_prometheus_wants_them(definition: of.Definition) -> None:
    """Counters end in _total, and nothing else does; times are seconds, sizes bytes; a help is a sentence."""
    assert re.fullmatch(r"litequeue_[a-z_]+", definition.name)
    assert definition.name.endswith("_total") == (definition.type == "counter")
    assert not re.search(r"_(ms|us|kb|mb|minutes|percent)(_|$)", definition.name)
    assert re.fullmatch(r"[A-Z].+\.", definition.help)
    assert definition.name.endswith("_seconds") or definition.type != "histogram"


def test_kinds_beyond_the_bound_share_one() -> None:
    """However many a file has, the number of series is bounded; the largest have names."""
    kinds = Kinds(2)
    kinds.renew({"a": 1, "b": 5, "c": 3})
    assert [kinds.label(kind) for kind in "abc"] == [OTHER, "b", "c"]


def test_a_kind_keeps_its_name_for_as_long_as_it_has_jobs() -> None:
    """So that no series comes and goes because another one has grown."""
    kinds = Kinds(2)
    kinds.renew({"a": 1, "b": 5, "c": 3})
    kinds.renew({"a": 100, "b": 1, "c": 1})
    assert [kinds.label(kind) for kind in "abc"] == [OTHER, "b", "c"]
    kinds.renew({"a": 100, "c": 1})
    assert [kinds.label(kind) for kind in "abc"] == ["a", OTHER, "c"]
