"""MODULE:OBJECT: the handlers that the user names on the command line.

Owns: the import of the user's module, and what its object may be. Invariants: a name that leads nowhere is wrong usage,
one line and no traceback; an exception of the user's own code is shown with the last lines of its traceback, without
ours, because only they say where. Leaves out: what the handlers themselves have to be (`worker.handlers`).
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TypeVar, cast

import click

from litequeue.cli.failures import Failure, Misuse
from litequeue.cli.output import plain
from litequeue.worker import errortext
from litequeue.worker.handlers import AnyTask, Handler, Handling, fits, is_async

T = TypeVar("T")

_FORM = "MODULE:OBJECT, such as app.tasks:tasks"
_WANTED = "Tasks, a mapping of kinds to handlers, or a function without arguments that returns one of them"
_MISSING = object()
_OURS = ("<frozen importlib", importlib.__file__, __file__)
"""Where the frames of a traceback begin that say nothing to the user."""


def handlers_of(name: str) -> Mapping[str, Handling]:
    """Import a module, from the current folder too, and return the handlers that its object is or makes.

    Raises:
        Misuse: the name leads nowhere, to something else, or to no handlers at all.
        Failure: the user's own code raised; its traceback has been shown.
    """
    module_name, colon, path = name.partition(":")
    if not (colon and all(module_name.split(".")) and all(path.split("."))):
        raise Misuse(f"{name!r} is not {_FORM}")
    found: object = _imported(module_name)
    at = module_name
    for part in path.split("."):
        found = _attribute(found, part, at)
        at = f"{at}.{part}"
    handlers = cast("Mapping[str, Handling]", found) if isinstance(found, Mapping) else _made(name, found)
    if not handlers:
        raise Misuse(f"{name!r} has no tasks or handlers: is the module that defines them imported?")
    return handlers


def _imported(name: str) -> ModuleType:
    with contextlib.suppress(FileNotFoundError):  # the folder has been deleted: then the module is elsewhere
        folder = os.getcwd()  # noqa: PTH109 - an entry of the path is text
        if folder not in sys.path:
            sys.path.insert(0, folder)
    try:
        return _of_user(f"importing {name!r}", lambda: importlib.import_module(name))
    except _NotThere as exc:
        hint = "; a module is named as in an import, not by its file" if name.endswith(".py") or "/" in name else ""
        raise Misuse(f"there is no module {exc.name!r}, here or on Python's path{hint}") from None


def _attribute(of: object, part: str, at: str) -> object:
    found = _of_user(f"asking {at!r} for {part!r}", lambda: getattr(of, part, _MISSING))
    if found is _MISSING:
        raise Misuse(f"{at!r} has no {part!r}{_fitting_in(of)}")
    return found


def _fitting_in(thing: object) -> str:
    """Name what there is in a module, or in an object, that could have been meant."""
    names = [
        repr(name)
        for name, value in getattr(thing, "__dict__", {}).items()
        if not name.startswith("_") and isinstance(value, Mapping) and value and all(map(_may_handle, value.values()))
    ]
    return f"; it has {', '.join(names)}" if names else ""


def _may_handle(thing: object) -> bool:
    return callable(thing) or isinstance(thing, (AnyTask, Handler))


def _made(name: str, factory: object) -> Mapping[str, Handling]:
    """Call what is not a mapping itself, if it can be called without arguments."""
    if isinstance(factory, AnyTask):
        raise Misuse(f"{name!r} is one task; give the Tasks that it is in, or a mapping")
    if not callable(factory) or is_async(factory) or not fits(factory, (), {}):
        raise Misuse(f"{name!r} is {_kind_of(factory)}; give {_WANTED}")
    made = _of_user(f"calling {name!r}", cast("Callable[[], object]", factory))
    if isinstance(made, Mapping):
        return cast("Mapping[str, Handling]", made)
    raise Misuse(f"{name!r} returned {_kind_of(made)}; give {_WANTED}")


def _kind_of(thing: object) -> str:
    if thing is None:
        return "None"
    if inspect.isroutine(thing):
        return "an asynchronous function" if is_async(thing) else "a function that takes arguments"
    what = "the class" if isinstance(thing, type) else "an object of the type"
    name = thing.__name__ if isinstance(thing, type) else type(thing).__name__
    return f"{what} {name}"


class _NotThere(Exception):
    """The module that was to be imported, or a package that it is in, is not there."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _of_user(doing: str, act: Callable[[], T]) -> T:
    """Run the user's code; show where it fails."""
    try:
        return act()
    except KeyboardInterrupt:
        raise
    except BaseException as exc:
        trace = exc.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
            trace = trace.tb_next
        if isinstance(exc, ModuleNotFoundError) and trace is None and exc.name is not None:
            raise _NotThere(exc.name) from None
        for line in errortext.described(exc.with_traceback(trace)).splitlines()[1:]:
            click.echo(plain(line), err=True)
        raise Failure(f"{doing} failed: {errortext.summary(exc)}") from exc
