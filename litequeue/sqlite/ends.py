"""Where jobs arrive: the ends of the groups of the key (scope, state, priority), and how far each has been seen.

Jobs come to a group at its end, in the order in which they were created, by the wall clock. While that is behind, after
a step back, they come before the rows that were created earlier. Invariants: the place up to which a group has been
seen is never ahead of the clock; the rows ahead of it that have been seen are known one by one, so many of each group.
Where there are more, what comes before the last so many is not seen. Leaves out: what has happened to the jobs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from litequeue.sqlite.reader import Reader, onward
from litequeue.sqlite.statements import SQL

if TYPE_CHECKING:
    from litequeue.sqlite.moments import Moments
    from litequeue.sqlite.rows import Values

Group = tuple[str, int, int]
"""Scope, state and priority."""
Place = tuple[int, bytes]
"""Of a row in its group: when it was created, and its id."""

BEFORE_ALL: Place = (-1, b"")


@dataclass(slots=True)
class _End:
    """How far a group has been seen."""

    place: Place = BEFORE_ALL
    ahead: dict[Place, int] = field(default_factory=dict)
    """Rows beyond it that have been seen, with the lengths of their logs."""


class Ends:
    """The ends of all groups; rows are (created_at, job_id, kind, events)."""

    def __init__(self, moments: Moments) -> None:
        self._moments = moments
        self._ends: dict[Group, _End] = {}

    def begin(self, reader: Reader, group: Group, youngest: Place, most: int) -> None:
        """Take all rows of a group as seen; `youngest` is its last one."""
        end = self._ends[group] = _End()
        if youngest[0] <= self._moments.wall:
            end.place = youngest
            return
        rows = reader.all(SQL.group_youngest, *group, most + 1)
        for created_at, job_id, _, log in rows:
            if created_at <= self._moments.wall or len(end.ahead) == most:
                end.place = created_at, job_id
                return
            end.ahead[created_at, job_id] = len(log)

    def look_anew(self, reader: Reader, most: int) -> None:
        """Let the next look be at all that is ahead of the clock, which has stepped: so many rows of a group."""
        since: Place = (self._moments.wall_since, b"")
        for group, end in self._ends.items():
            if end.place > since:
                rows = reader.all(SQL.group_youngest, *group, most)
                lowest = BEFORE_ALL if len(rows) < most else (rows[-1][0], rows[-1][1])
                end.place = min(end.place, max(since, lowest))
                end.ahead.clear()

    def arrived(self, reader: Reader, group: Group, page: int, most: int) -> tuple[list[Values], bool]:
        """Return the next rows that have come to a group or have changed, and whether that is all; move its end on.

        At most about `page` rows; so many as `most` may stay ahead of the clock.
        """
        end = self._ends.setdefault(group, _End())
        limit = page + len(end.ahead)
        rows = reader.all(SQL.group_since, *group, *end.place, limit)
        found: list[Values] = []
        place = end.place
        for row in rows:
            created_at, job_id, _, log = row
            place = onward((created_at, job_id), (place[0], place[1] + b"\0"))
            if end.ahead.get(place) == len(log):
                continue
            found.append(row)
            if created_at <= self._moments.wall:
                end.place = place
            else:
                end.ahead[place] = len(log)
        ahead = sorted(one for one in end.ahead if one > end.place)
        if len(ahead) > most:
            end.place = ahead[-most - 1]
        end.ahead = {one: end.ahead[one] for one in ahead[-most:]}
        return found, len(rows) < limit
