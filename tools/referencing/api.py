"""A page of the reference for a module of the package: its public names with their signatures and docstrings.

The source is read and not run (by griffe), so a page is the same whatever Python writes it. Owns: which names are
public, and their order. Invariants: a name of `__all__` is on the page of its module, or making it fails; what a class
inherits is told where it is told first, and named elsewhere. Leaves out: how docstrings become Markdown (`markdown`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

import griffe
from griffe import Attribute, Class, Function, Module, Object

from referencing import markdown

PAGES = {
    "litequeue": "litequeue",
    "litequeue.aio": "aio",
    "litequeue.dbapi": "dbapi",
    "litequeue.testing": "testing",
    "litequeue.pytest_plugin": "pytest",
    "litequeue.metrics": "metrics",
}
"""The public modules, and the names of their pages."""
INTERNAL = frozenset(
    [
        "AsyncLease.fence",
        "AsyncLease.raw_job_id",
        "Failed.delay_us",
        "Failed.retake_within_us",
        "Handler.call",
        "Handler.is_async",
        "Handler.is_permanent",
        "Handler.short_retry_s",
        "Handler.timeout_s",
        "Handler.with_defaults",
        "Job.decoder",
        "Job.encoded_events",
        "Job.encoded_payload",
        "Job.encoded_result",
        "Lease.again",
        "Lease.checkpointed",
        "Lease.fence",
        "Lease.found_lost",
        "Lease.found_settled",
        "Lease.holder",
        "Lease.raw_job_id",
        "MetricsServer.address_family",
        "MetricsServer.allow_reuse_address",
        "MetricsServer.block_on_close",
        "MetricsServer.daemon_threads",
        "MetricsServer.handle_error",
        "MetricsServer.text",
        "NewJob.placed",
        "Queue.between_steps",
        "Queue.surveyor",
        "Transaction.attempt",
        "Transaction.finish",
        "UsageError.of",
    ]
)
"""What only the package's own rooms use, though it has no underscore: they reach across modules."""
CALLED = frozenset(
    [
        "AsyncLease",
        "AsyncQueue",
        "Collector",
        "Completed",
        "Discard",
        "Failed",
        "FakeClock",
        "Handler",
        "Maintenance",
        "MetricsServer",
        "NewJob",
        "Outbox",
        "Released",
        "Retry",
        "Snooze",
        "SystemClock",
        "Tasks",
        "Worker",
    ]
)
"""Classes that callers make objects of; those of others they are given, and how these are made is nobody's business."""
ALIASES = (
    "sqlite.verbs.JobId",
    "sqlite.verbs.JobIds",
    "sqlite.verbs.Jobs",
    "sqlite.verbs.ManyScopes",
    "sqlite.verbs.Scopes",
    "sqlite.verbs.Results",
    "sqlite.verbs.Leases",
    "sqlite.verbs.Conflicts",
    "sqlite.verbs.Refusals",
    "sqlite.verbs.Lines",
    "sqlite.setting_verbs.KindValues",
    "sqlite.setting_verbs.Pauses",
    "settings.Value",
    "sqlite.guard.SQLValue",
    "sqlite.guard.Parameters",
    "sqlite.copying.Progress",
    "outbox.OfMessage",
    "worker.worker.Mode",
    "worker.handlers.Permanent",
    "worker.events.Hook",
)
"""What signatures name and nobody imports."""
_FIRST = ("Queue", "Transaction", "Lease", "AsyncQueue")
_PACKAGE = "litequeue"


class Reader:
    """The package, read once."""

    def __init__(self, root: Path) -> None:
        self._package = cast("Module", griffe.load(_PACKAGE, search_paths=[str(root)], allow_inspection=False))
        self._told: dict[str, str] = {}
        """Members that a page has: by the path of their definition, the class that they are told of under."""

    def names(self, module: str) -> list[str]:
        """Return the public names of a module: those of its `__all__`, or, of the plugin, its fixtures."""
        found = self._module(module)
        if found.exports is not None:
            return [str(name) for name in found.exports]
        return [name for name, member in found.functions.items() if is_fixture(member)]

    def public(self, module: str, name: str) -> Object:
        """Return what a public name stands for.

        Raises:
            KeyError: nothing.
        """
        return _resolved(self._module(module)[name])

    def members(self, owner: Class) -> dict[str, Object]:
        """Return what is public of a class, its own first, then what it inherits from this package."""
        found = {**owner.members, **owner.inherited_members}
        resolved = {name: _resolved(member) for name, member in found.items() if not name.startswith("_")}
        return {
            name: member
            for name, member in resolved.items()
            if member.path.startswith(f"{_PACKAGE}.") and not INTERNAL & {f"{owner.name}.{name}", _short(member)}
        }

    def page(self, module: str) -> str:
        """Return the page of a module."""
        found = {name: self.public(module, name) for name in self.names(module)}
        title = "Fixtures for pytest" if module == f"{_PACKAGE}.pytest_plugin" else f"`{module}`"
        parts = [f"# {title}\n\n{markdown.NOTE}", markdown.introduction(self._module(module))]
        groups = [(title, [name for name in found if _group(found[name]) == title]) for title in _GROUPS]
        groups = [(title, sorted(names, key=_place)) for title, names in groups if names]
        links = _links([name for _, names in groups for name in names])
        parts += [f"**{title}:** {', '.join(links[name] for name in names)}" for title, names in groups]
        for title, names in groups:
            parts.append(f"## {title}")
            for name in names:
                parts += self._entry(name, found[name])
        if module == _PACKAGE:
            parts += ["## Names in signatures", "\n".join(markdown.alias(self._attribute(name)) for name in ALIASES)]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _module(self, name: str) -> Module:
        return self._package if name == _PACKAGE else cast("Module", self._package[name.partition(".")[2]])

    def _attribute(self, path: str) -> Attribute:
        return cast("Attribute", self._package[path])

    def _entry(self, name: str, found: Object) -> Iterator[str]:
        yield f"### `{name}`"
        if isinstance(found, Class):
            yield markdown.made(found) if name in CALLED else markdown.given(found)
            yield markdown.docstring(found)
            yield from self._class(found)
        else:
            yield markdown.signature(found) if isinstance(found, Function) else markdown.value(cast("Attribute", found))
            yield markdown.docstring(found)

    def _class(self, owner: Class) -> Iterator[str]:
        plain: list[tuple[str, Attribute]] = []
        elsewhere: dict[str, list[str]] = {}
        methods: list[tuple[str, Function]] = []
        for name, member in self.members(owner).items():
            home = _derived_from(member) or self._told.get(member.path)
            if home is not None:
                elsewhere.setdefault(home, []).append(name)
                continue
            self._told[member.path] = owner.name
            if isinstance(member, Function):
                methods.append((name, member))
            elif isinstance(member, Attribute):
                plain.append((name, member))
        if plain:
            yield "Attributes:\n\n" + "\n".join(markdown.attribute(name, member) for name, member in plain)
        for home, names in elsewhere.items():
            kind = "Coroutines, each as on" if owner.name.startswith("Async") else "Also, as on"
            yield f"{kind} `{home}`: {', '.join(f'`{name}`' for name in names)}."
        for name, method in methods:
            yield f"#### `{owner.name}.{name}`"
            yield markdown.signature(method)
            yield markdown.docstring(method)


_GROUPS = ("Fixtures", "Functions", "Classes", "Records", "Types and constants", "Errors")


def _group(found: Object) -> str:
    if isinstance(found, Function):
        return "Fixtures" if is_fixture(found) else "Functions"
    if not isinstance(found, Class):
        return "Types and constants"
    bases = [base.name for base in found.mro()] + [str(base) for base in found.bases]
    if "LiteQueueError" in {found.name, *bases}:
        return "Errors"
    if {"IntEnum", "StrEnum", "Enum", "Protocol"} & {base.partition("[")[0] for base in bases}:
        return "Types and constants"
    return "Records" if "dataclass" in found.labels or "NamedTuple" in bases else "Classes"


def _derived_from(member: Object) -> str | None:
    """Return the class whose verb this one is made of, as those of `litequeue.aio` are."""
    if not isinstance(member, Attribute) or member.value is None:
        return None
    match = re.match(r"verb\w*\((?:\w+, )*(\w+)\.\w+", str(member.value))
    return "Queue" if match and match[1] == "Verbs" else match and match[1]


def _short(member: Object) -> str:
    return ".".join(member.path.split(".")[-2:])


def _place(name: str) -> tuple[int, str]:
    return (_FIRST.index(name) if name in _FIRST else len(_FIRST), name.casefold())


def _links(names: list[str]) -> dict[str, str]:
    """Return a link to each heading; of two that differ by their capitals only, the later one is numbered."""
    anchors = [name.lower() for name in names]
    repeats = [anchors[:place].count(anchor) for place, anchor in enumerate(anchors)]
    return {
        name: f"[`{name}`](#{anchor}{f'-{repeat}' if repeat else ''})"
        for name, anchor, repeat in zip(names, anchors, repeats, strict=True)
    }


def _resolved(member: griffe.Object | griffe.Alias) -> Object:
    return member.final_target if isinstance(member, griffe.Alias) else member


def is_fixture(member: Object) -> bool:
    """Tell whether a function of the plugin is a fixture."""
    return any(str(decorator.value).startswith("pytest.fixture") for decorator in getattr(member, "decorators", ()))


def undocumented(reader: Reader) -> Iterable[str]:
    """Name what is public and has no docstring: names of modules, and methods of their classes."""
    for module in PAGES:
        for name in reader.names(module):
            found = reader.public(module, name)
            if not found.has_docstring:
                yield f"{module}.{name}"
            if isinstance(found, Class):
                for member_name, member in reader.members(found).items():
                    if isinstance(member, Function) and not member.has_docstring:
                        yield f"{module}.{name}.{member_name}"
