"""Settings: what every process must agree on, and the back-off that follows from them.

Owns: the names, defaults and bounds of contract §5, their resolution (the longest matching kind filter over the
file's own value) and the back-off. Invariant: a `Settings` is a snapshot, read inside one transaction, and never
changes. Leaves out: where they are stored (`sqlite/settings_table`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, cast

from litequeue import arguments, limits
from litequeue.errors import UsageError
from litequeue.limits import ALL_KINDS, ALL_SCOPES, Limits, Pauses

Value = int | float | str | bool | None
"""A setting as the caller sees it: durations in seconds, sizes in bytes."""
Jitter = Literal["none", "equal", "full"]

_DAY_S = 86_400
_YEAR_S = 365 * _DAY_S
MAX_WEIGHT = 1000
_MIN_FILE_BYTES = 65_536
_MAX_PAYLOAD_BYTES = 536_870_912
_MAX_FILE_BYTES = 2**50
_MAX_RESOLVED_KINDS = 4096


@dataclass(frozen=True, slots=True)
class Spec:
    """One setting: its default, whether a kind may have its own, and its bounds."""

    default: Value
    per_kind: bool
    form: Literal["seconds", "number", "count", "jitter", "flag", "rate"]
    least: float = 0
    most: float = 0
    positive: bool = False
    optional: bool = False
    """Whether `None` is allowed: forever, or no limit."""
    per_scope: bool = False
    """Whether it may be held against each scope by itself."""

    def check(self, name: str, value: object) -> Value:
        """Return the value in its stored form.

        Raises:
            UsageError: out of bounds, naming the setting and the bounds.
        """
        if value is None and self.optional:
            return None
        try:
            return self._in_bounds(name, value)
        except UsageError as exc:
            if self.optional:
                raise UsageError.of(name, value, f"{exc.bounds}, or none") from None
            raise

    def _in_bounds(self, name: str, value: object) -> Value:
        match self.form:
            case "seconds":
                return self._seconds(name, value)
            case "number":
                return arguments.number(name, value, self.least, self.most)
            case "count":
                return arguments.whole(name, value, int(self.least), int(self.most))
            case "jitter":
                if value in ("none", "equal", "full"):
                    return value
                raise UsageError.of(name, value, "none, equal or full")
            case "flag":
                if isinstance(value, bool):
                    return value
                raise UsageError.of(name, value, "true or false")
            case "rate":
                return limits.rate_text(name, value)

    def _seconds(self, name: str, value: object) -> float:
        arguments.duration_us(name, value, positive=self.positive, most_s=self.most)
        return cast("float", value.total_seconds() if isinstance(value, timedelta) else value)


SPECS: Mapping[str, Spec] = {
    "lease_ttl": Spec(300, per_kind=True, form="seconds", most=_YEAR_S, positive=True),
    "max_attempts": Spec(5, per_kind=True, form="count", least=1, most=arguments.MAX_COUNT),
    "backoff_base": Spec(10, per_kind=True, form="seconds", most=_YEAR_S),
    "backoff_factor": Spec(4, per_kind=True, form="number", least=1, most=1000),
    "backoff_cap": Spec(3600, per_kind=True, form="seconds", most=_YEAR_S),
    "backoff_jitter": Spec("none", per_kind=True, form="jitter"),
    "completed_retention": Spec(_DAY_S, per_kind=True, form="seconds", most=arguments.MAX_DURATION_S, optional=True),
    "cancelled_retention": Spec(_DAY_S, per_kind=True, form="seconds", most=arguments.MAX_DURATION_S, optional=True),
    "dead_retention": Spec(None, per_kind=True, form="seconds", most=arguments.MAX_DURATION_S, optional=True),
    "concurrency": Spec(None, per_kind=True, form="count", least=1, most=10_000, optional=True, per_scope=True),
    "rate": Spec(None, per_kind=True, form="rate", optional=True),
    "reaper_interval": Spec(30, per_kind=False, form="seconds", most=_DAY_S, positive=True),
    "idempotency_window": Spec(_DAY_S, per_kind=False, form="seconds", most=arguments.MAX_DURATION_S),
    "max_payload": Spec(1_048_576, per_kind=False, form="count", least=1, most=_MAX_PAYLOAD_BYTES),
    "max_bytes": Spec(None, per_kind=False, form="count", least=_MIN_FILE_BYTES, most=_MAX_FILE_BYTES, optional=True),
    "refuse_lapsed": Spec(default=False, per_kind=False, form="flag"),
}


def check_name(name: object, kind: object = None, scope: str | None = None) -> Spec:
    """Find a setting by its name, for the file, a kind filter, or scopes (in their stored form).

    Raises:
        UsageError: an unknown name, or a kind or scope where the setting has none.
    """
    spec = SPECS.get(name) if isinstance(name, str) else None
    if spec is None:
        raise UsageError.of("setting", name, f"one of {', '.join(SPECS)}")
    if kind is not None:
        arguments.kind(kind)
        if not spec.per_kind:
            message = f"{name} belongs to the whole file: it has no value for a kind ({kind!r})"
            raise UsageError(message, argument="kind", value=kind, bounds="none")
    if scope is not None and not spec.per_scope:
        able = ", ".join(each for each, its in SPECS.items() if its.per_scope)
        message = f"{name} has no value for a scope; only {able} has"
        raise UsageError(message, argument="scope", value=scope, bounds="none")
    return spec


def check(name: str, value: object, kind: str | None = None, scope: str | None = None) -> Value:
    """Check a setting before it is stored; return its value.

    Raises:
        UsageError: unknown name, a value out of bounds, or a kind or scope where the setting has none.
    """
    return check_name(name, kind, scope).check(name, value)


@dataclass(frozen=True, slots=True)
class KindSettings:
    """The settings in force for one kind, durations in µs; a retention of `None` is forever."""

    lease_ttl_us: int
    max_attempts: int
    backoff_base_us: int
    backoff_factor: float
    backoff_cap_us: int
    backoff_jitter: Jitter
    completed_retention_us: int | None
    cancelled_retention_us: int | None
    dead_retention_us: int | None

    def backoff_us(self, attempt: int, draw: float) -> int:
        """Return the pause after failed attempt `attempt` (1 or more), in µs.

        `min(cap, base · factor^(attempt-1))`; jitter `equal` takes from the upper half of it, `full` from all of it,
        by `draw` in [0, 1). Source: contract §5.
        """
        try:
            pause = min(self.backoff_cap_us, self.backoff_base_us * self.backoff_factor ** (attempt - 1))
        except OverflowError:
            pause = self.backoff_cap_us if self.backoff_base_us else 0
        match self.backoff_jitter:
            case "none":
                return round(pause)
            case "equal":
                return round(pause / 2 + pause / 2 * draw)
            case "full":
                return round(pause * draw)


@dataclass(frozen=True, slots=True)
class Settings:
    """A snapshot of the file's settings: the file's own values, those of kind filters and scopes, and the pauses."""

    own: Mapping[str, Value] = field(default_factory=dict)
    by_kind: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    by_scope: Mapping[str, Mapping[str, Mapping[str, Value]]] = field(default_factory=dict)
    """By scope (or `limits.EACH_SCOPE`), then by kind filter (or `limits.ALL_KINDS`)."""
    pauses: Pauses = field(default_factory=Pauses)
    limits: Limits = field(init=False, repr=False, compare=False)
    """What `concurrency` and `rate` say."""
    has_limits: bool = field(init=False, repr=False, compare=False)
    is_restricted: bool = field(init=False, repr=False, compare=False)
    """Whether there is any limit or pause that a lease has to ask."""
    weights: Mapping[str, int] = field(default_factory=dict)
    """How many jobs in a row a scope (in its stored form) is served, where leases go round; the default is 1."""
    has_chains: bool = False
    """Whether jobs wait for other jobs, or have, so that verbs that end jobs have to ask."""
    max_payload_bytes: int = field(init=False, repr=False, compare=False)
    """The largest encoded payload or result."""
    max_bytes: int | None = field(init=False, repr=False, compare=False)
    """The size of the file in use beyond which nothing more is enqueued."""
    refuse_lapsed: bool = field(init=False, repr=False, compare=False)
    """Whether a holder past its deadline is refused although nobody has reaped its job."""
    idempotency_window_us: int = field(init=False, repr=False, compare=False)
    """How long after completion a key still finds its job, in µs."""
    _resolved: dict[str, KindSettings] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Look up once what every verb asks for."""
        object.__setattr__(self, "max_payload_bytes", self.value("max_payload"))
        object.__setattr__(self, "max_bytes", self.value("max_bytes"))
        object.__setattr__(self, "refuse_lapsed", bool(self.value("refuse_lapsed")))
        object.__setattr__(self, "idempotency_window_us", _us(self.value("idempotency_window")))
        object.__setattr__(self, "limits", self._limits())
        object.__setattr__(self, "has_limits", bool(self.limits))
        object.__setattr__(self, "is_restricted", self.has_limits or bool(self.pauses))

    def value(self, name: str, kind: str | None = None) -> Value:
        """Return the value in force: the longest matching kind filter's, else the file's, else the default."""
        return self._find(name, kind)[0]

    def values(self, kind: str | None = None) -> dict[str, Value]:
        """Return every setting in force, for a kind or for the file; durations in seconds."""
        return {name: self.value(name, kind) for name, spec in SPECS.items() if kind is None or spec.per_kind}

    def of(self, kind: str) -> KindSettings:
        """Return what is in force for this kind; resolved once a kind."""
        found = self._resolved.get(kind)
        if found is None:
            if len(self._resolved) >= _MAX_RESOLVED_KINDS:
                self._resolved.clear()
            found = self._resolved[kind] = self._resolve(kind)
        return found

    @property
    def reaper_interval_us(self) -> int:
        """The pause between two passes of maintenance, in µs."""
        return _us(self.value("reaper_interval"))

    def least_retention_us(self, name: str) -> int | None:
        """Return the shortest retention of this name over the file and all kinds; `None` when all are forever."""
        values = [self.value(name), *(own[name] for own in self.by_kind.values() if name in own)]
        finite = [_us(value) for value in values if value is not None]
        return min(finite) if finite else None

    def _limits(self) -> Limits:
        of_kinds = [(ALL_KINDS, self.own), *self.by_kind.items()]
        found = {ALL_SCOPES: _values("concurrency", of_kinds)}
        found |= {scope: _values("concurrency", by_kind.items()) for scope, by_kind in self.by_scope.items()}
        return Limits(
            {scope: cast("dict[str, int | None]", values) for scope, values in found.items() if values},
            {
                kind: None if stored is None else limits.rate(cast("str", stored))
                for kind, stored in _values("rate", of_kinds).items()
            },
        )

    def _find(self, name: str, kind: str | None) -> tuple[Value, bool]:
        """Return the value, and whether it is a kind's own."""
        if kind is not None and self.by_kind:
            filters = [f for f, own in self.by_kind.items() if name in own and arguments.matches(f, kind)]
            if filters:
                return self.by_kind[max(filters, key=len)][name], True
        return self.own.get(name, SPECS[name].default), False

    def _resolve(self, kind: str) -> KindSettings:
        base, is_own_base = self._find("backoff_base", kind)
        cap_us = _us(self.value("backoff_cap", kind))
        return KindSettings(
            lease_ttl_us=_us(self.value("lease_ttl", kind)),
            max_attempts=cast("int", self.value("max_attempts", kind)),
            backoff_base_us=_us(base),
            backoff_factor=float(cast("float", self.value("backoff_factor", kind))),
            backoff_cap_us=max(cap_us, _us(base)) if is_own_base else cap_us,
            backoff_jitter=cast("Jitter", self.value("backoff_jitter", kind)),
            completed_retention_us=_optional_us(self.value("completed_retention", kind)),
            cancelled_retention_us=_optional_us(self.value("cancelled_retention", kind)),
            dead_retention_us=_optional_us(self.value("dead_retention", kind)),
        )


def _values(name: str, of_kinds: Iterable[tuple[str, Mapping[str, Value]]]) -> dict[str, Value]:
    return {kind: own[name] for kind, own in of_kinds if name in own}


def _us(seconds: Value) -> int:
    return round(cast("float", seconds) * 1_000_000)


def _optional_us(seconds: Value) -> int | None:
    return None if seconds is None else _us(seconds)
