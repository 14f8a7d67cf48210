"""A clock that moves by hand.

Owns: both of a machine's clocks and its boot, as a test has them. Invariant: nothing moves them but this object's own
methods. Leaves out: who moves them from one due job to the next (`draining`).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_DEFAULT_WALL_US = 1_750_000_000_000_000
"""15 June 2025, 15:06:40 UTC."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class FakeClock:
    """A clock for `litequeue.open(..., clock=...)`; nothing moves it but its methods."""

    def __init__(
        self, wall_us: int = _DEFAULT_WALL_US, monotonic_us: int = 1_000_000, boot_id: str = "fake-boot-1"
    ) -> None:
        self._wall_us = wall_us
        self._monotonic_us = monotonic_us
        self._boot_id = boot_id

    def wall_us(self) -> int:
        """Return the wall clock, µs since the epoch."""
        return self._wall_us

    def monotonic_us(self) -> int:
        """Return the monotonic clock, µs."""
        return self._monotonic_us

    def boot_id(self) -> str:
        """Return the identity of the present boot."""
        return self._boot_id

    def now(self) -> datetime:
        """Return the wall clock as an aware datetime, UTC: what a `run_at` is told from."""
        return _EPOCH + timedelta(microseconds=self._wall_us)

    def advance(self, duration: float | timedelta) -> None:
        """Let time pass, on both clocks, by seconds or a timedelta of 0 or more.

        Raises:
            ValueError: less than 0.
        """
        microseconds = _us(duration)
        if microseconds < 0:
            raise ValueError(f"time passes forwards, not by {duration}: step_wall() steps the wall clock back")
        self._wall_us += microseconds
        self._monotonic_us += microseconds

    def step_wall(self, duration: float | timedelta) -> None:
        """Set the wall clock forwards or back, as an administrator or NTP does; leases do not notice.

        `duration` is seconds or a timedelta.
        """
        self._wall_us += _us(duration)

    def suspend(self, duration: float | timedelta) -> None:
        """Close the laptop: the wall clock goes on, the monotonic clock stands still.

        `duration` is seconds or a timedelta.
        """
        self._wall_us += _us(duration)

    def reboot(self, boot_id: str | None = None, monotonic_us: int = 1_000_000) -> None:
        """Start the machine anew: another boot id, and a monotonic clock that begins again."""
        self._boot_id = boot_id if boot_id is not None else f"{self._boot_id}+"
        self._monotonic_us = monotonic_us


def _us(duration: float | timedelta) -> int:
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    return round(seconds * 1_000_000)
