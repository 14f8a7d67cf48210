"""New job ids: the layout of a UUID of version 7, and that they rise (§2)."""

from __future__ import annotations

import os
import pickle
import uuid
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litequeue.ids import new_job_ids, stored_job_id

NOW = 1_750_000_000_123_456
MOMENTS = st.integers(0, 2**48 * 1000 - 1)
"""µs that 48 bits of milliseconds hold: until the year 10889."""


@settings(deadline=None)
@given(MOMENTS, st.integers(1, 50))
def test_an_id_has_the_layout_of_the_standard(now_us: int, count: int) -> None:
    """48 bits of milliseconds, version 7, 12 bits of the rest of them, the variant (RFC 9562, 5.7 and 6.2)."""
    milliseconds, rest_us = divmod(now_us, 1000)
    for job_id in new_job_ids(now_us, count):
        assert (job_id.version, job_id.variant) == (7, uuid.RFC_4122)
        assert job_id.int >> 80 == milliseconds
        assert job_id.int >> 64 & 0xFFF == rest_us * 4096 // 1000


def test_an_id_tells_its_moment() -> None:
    """As text too: what every other reader of version 7 sees (RFC 9562)."""
    (job_id,) = new_job_ids(NOW, 1)
    assert str(job_id).startswith("01977420-dc7b-774b-")


@settings(deadline=None)
@given(MOMENTS, st.integers(2, 200))
def test_the_ids_of_one_call_rise(now_us: int, count: int) -> None:
    """So new jobs go to the end of their table, in order (DESIGN §2)."""
    ids = new_job_ids(now_us, count)
    assert len(ids) == count
    assert all(earlier < later for earlier, later in pairwise(ids))
    assert [job_id.bytes for job_id in ids] == sorted(job_id.bytes for job_id in ids)


@settings(deadline=None)
@given(st.integers(0, 2**48 * 1000 - 10_000), st.integers(1, 5000))
def test_the_ids_of_later_moments_rise(now_us: int, later_us: int) -> None:
    """A microsecond is enough, however many were made before it (DESIGN §2)."""
    assert new_job_ids(now_us, 20)[-1] < new_job_ids(now_us + later_us, 1)[0]


@pytest.mark.parametrize("byte", [b"\x00", b"\xff"])
def test_no_draw_of_chance_runs_into_the_layout(monkeypatch: pytest.MonkeyPatch, byte: bytes) -> None:
    """Also when it is all ones there is room for a large batch above it (RFC 9562)."""
    monkeypatch.setattr(os, "urandom", lambda size: byte * size)
    ids = new_job_ids(NOW, 10_000)
    assert all(earlier < later for earlier, later in pairwise(ids))
    assert {(job_id.version, job_id.variant, job_id.int >> 64) for job_id in ids} == {
        (7, uuid.RFC_4122, 0x01977420DC7B774B)
    }


def test_ids_of_one_moment_never_meet() -> None:
    """Neither within a call nor across calls (V1)."""
    ids = [job_id for _ in range(200) for job_id in new_job_ids(NOW, 50)]
    assert len(set(ids)) == len(ids) == 10_000


def test_of_nothing_there_is_none() -> None:
    """An empty batch needs no id (V1)."""
    assert new_job_ids(NOW, 0) == []


@given(st.integers(0, 2**128 - 1))
def test_an_id_made_the_short_way_is_the_one_that_the_constructor_makes(number: int) -> None:
    """In every respect: as text, in a set, in a pickle, and that nobody knows whether it is safe."""
    made, expected = stored_job_id(number.to_bytes(16)), uuid.UUID(int=number)
    assert made == expected
    assert (str(made), hash(made), made.bytes, made.is_safe) == (
        str(expected),
        hash(expected),
        expected.bytes,
        expected.is_safe,
    )
    assert pickle.dumps(made) == pickle.dumps(expected)
