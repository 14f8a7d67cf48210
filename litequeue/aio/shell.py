"""Coroutines out of methods: each is the plain method, made in a thread; none is written twice.

Owns: the wrappers, which keep a method's signature, types and docstring. A shell stands around a plain object and says
in which thread, and when, the object may be used. Invariants: a method is found by its name on the plain object itself,
so it is that object's own; a lease may be given in its shell, and a lease that comes out is in its shell. Leaves out:
the threads (`errand`, `turns`, `session`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import wraps
from operator import methodcaller
from typing import Concatenate, Generic, Literal, ParamSpec, TypeVar, cast

from litequeue.lease import Lease

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
Plain = TypeVar("Plain")
Plain_co = TypeVar("Plain_co", covariant=True)
Way = Literal["write", "read", "upkeep"]
"""What a verb of a queue waits for: its turn to write or to read, or for room among those that take long."""


class Shell(ABC, Generic[Plain_co]):
    """Stands around a plain object, whose methods are made in threads."""

    @abstractmethod
    async def _do(self, name: str, call: Callable[[Plain_co], T], way: Way) -> T:
        """Let a thread call this with the plain object; `name` is the verb's."""


class Shelled(ABC):
    """A lease in its shell."""

    @property
    @abstractmethod
    def lease(self) -> Lease:
        """The plain lease."""


def verb(
    method: Callable[Concatenate[Plain, P], T], way: Way = "write"
) -> Callable[Concatenate[Shell[Plain], P], Coroutine[object, None, T]]:
    """Make the coroutine of a method."""
    return _coroutine(method, way, {})


def verb_in_shell(
    method: Callable[Concatenate[Plain, P], T], shelled: Callable[[T], R], way: Way = "write"
) -> Callable[Concatenate[Shell[Plain], P], Coroutine[object, None, R]]:
    """Make the coroutine of a method whose result comes in a shell, which `shelled` puts around it."""
    plain = verb(method, way)

    @wraps(method, updated=())
    async def call(shell: Shell[Plain], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return shelled(await plain(shell, *args, **kwargs))

    return call


def verb_of_lease(
    method: Callable[Concatenate[Plain, Lease, P], T],
) -> Callable[Concatenate[Shell[Plain], Lease | Shelled, P], Coroutine[object, None, T]]:
    """Make the coroutine of a method whose first argument is a `lease`."""
    # The annotation cannot say that it may be given by name as well, which it may.
    return cast(
        "Callable[Concatenate[Shell[Plain], Lease | Shelled, P], Coroutine[object, None, T]]",
        _coroutine(method, "write", {"lease": _bare}),
    )


def verb_of_leases(
    method: Callable[Concatenate[Plain, Iterable[Lease], P], T], way: Way = "write"
) -> Callable[Concatenate[Shell[Plain], Iterable[Lease | Shelled], P], Coroutine[object, None, T]]:
    """Make the coroutine of a method whose first argument are `leases`."""
    return cast(
        "Callable[Concatenate[Shell[Plain], Iterable[Lease | Shelled], P], Coroutine[object, None, T]]",
        _coroutine(method, way, {"leases": _all_bare}),
    )


def _coroutine(
    method: Callable[Concatenate[Plain, P], T], way: Way, bared: Mapping[str, Callable[[object], object]]
) -> Callable[Concatenate[Shell[Plain], P], Coroutine[object, None, T]]:
    """Make the coroutine of a method; `bared` takes the argument of that name, the first one, out of its shell."""
    name = method.__name__

    @wraps(method, updated=())
    async def call(shell: Shell[Plain], /, *args: P.args, **kwargs: P.kwargs) -> T:
        given: tuple[object, ...] = args
        named: dict[str, object] = kwargs
        for argument, bare in bared.items():
            if argument in named:
                named[argument] = bare(named[argument])
            elif given:
                given = (bare(given[0]), *given[1:])
        return await shell._do(name, methodcaller(name, *given, **named), way)  # noqa: SLF001 - one room

    return call


def _bare(lease: object) -> object:
    return lease.lease if isinstance(lease, Shelled) else lease


def _all_bare(leases: object) -> object:
    return [_bare(lease) for lease in leases] if isinstance(leases, Iterable) else leases
