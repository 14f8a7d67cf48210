"""The verbs of schedules, each written once; see `verbs`.

Invariant: all that can be checked or encoded without the write lock is, before it is taken. Leaves out: their firing,
which is nobody's verb (`scheduler`).
"""

from __future__ import annotations

from litequeue import arguments, codec, schedules
from litequeue.errors import UsageError
from litequeue.lease import Duration
from litequeue.model import Enqueued, Misfire, Schedule, Scope, placed, storable_scope
from litequeue.sqlite import scheduling
from litequeue.sqlite.doing import Doing
from litequeue.sqlite.scheduling import Declared


class ScheduleVerbs(Doing):
    """What is said of schedules."""

    def schedule(
        self,
        name: str,
        spec: str,
        kind: str,
        payload: object = None,
        *,
        scope: Scope | None = None,
        priority: int = 100,
        max_attempts: int | None = None,
        expires: Duration | None = None,
        timezone: str = "UTC",
        misfire: Misfire = "all",
    ) -> Schedule:
        """Enqueue such a job again and again, at the boundaries of `spec`; return the schedule as it is now.

        `spec` is `@every` with an interval from 1 s on (`@every 90s`, with s, m, h or d), the first boundary one
        interval from now; or five cron fields or a name such as `@daily`, in the IANA time zone `timezone`, for which
        the extra `cron` must be installed. A name of 1 to 200 characters that is there already is changed: with the
        same spec and time zone it keeps its next boundary, so a program may declare its schedules at each start; with
        other ones it begins anew from now. A pause stays in either case.

        Whoever runs maintenance (a worker does), or `run_schedules`, makes a job at each boundary; its `boundary` says
        which. Boundaries found more than 60 s late were missed: with `all` they are replayed in order, the latest 64;
        with `latest` the latest one is fired; with `skip` none of them is. The other arguments are those of `enqueue`;
        `expires` counts, in seconds, from the moment at which the job is made.

        Raises:
            InvalidSpec: the spec cannot be read, or no time matches it.
            UsageError: another argument out of its bounds, an unknown time zone, or the extra is not installed.
            PayloadError: the payload cannot be stored, or is larger than `max_payload`.
        """
        name = arguments.schedule_name(name)
        if misfire not in ("all", "latest", "skip"):
            raise UsageError.of("misfire", misfire, "all, latest or skip")
        checked = placed(kind, scope, priority, None, None, expires, max_attempts, None, "return", None)
        text = schedules.normal(spec)
        schedules.zone(timezone)
        wanted = Declared(
            name,
            text,
            timezone,
            schedules.rule(text, timezone),
            checked.kind,
            storable_scope(self.scope) if checked.scope is None else checked.scope,
            checked.priority,
            checked.max_attempts,
            checked.expires_us,
            misfire,
            codec.encode(payload),
        )
        return self._do(lambda context: scheduling.declare(context, wanted), durable=True)

    def unschedule(self, name: str) -> None:
        """Remove a schedule; the jobs that it has made stay.

        Raises:
            ScheduleNotFound: there is none of this name.
        """
        given = arguments.schedule_name(name)
        self._do(lambda context: scheduling.remove(context, given), durable=True)

    def schedules(self) -> list[Schedule]:
        """Return all schedules of the file, by name; a pure read.

        Raises:
            RecordError: one of them is damaged; `unschedule` removes it.
        """
        return self._look(scheduling.every)

    def pause_schedule(self, name: str) -> None:
        """Let a schedule rest until `resume_schedule`: no job is made at its boundaries.

        Raises:
            ScheduleNotFound: there is none of this name.
        """
        given = arguments.schedule_name(name)
        self._do(lambda context: scheduling.pause(context, given), durable=True)

    def resume_schedule(self, name: str) -> None:
        """Let a paused schedule go on with its next boundary from now; those that came meanwhile are not fired.

        One that is not paused is left as it is.

        Raises:
            ScheduleNotFound: there is none of this name.
        """
        given = arguments.schedule_name(name)
        self._do(lambda context: scheduling.resume(context, given), durable=True)

    def run_now(self, name: str) -> Enqueued:
        """Enqueue one job of a schedule at once, also of a paused one; its boundaries stay as they are.

        The job has no `boundary` and no key: two calls make two jobs.

        Raises:
            ScheduleNotFound: there is none of this name.
            PayloadError, QueueFull: as `enqueue`.
        """
        given = arguments.schedule_name(name)
        return self._do(lambda context: scheduling.run_now(context, given), durable=True)
