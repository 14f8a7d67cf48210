"""Signatures and docstrings as Markdown.

Invariant: a docstring is shown as it was written; only what it raises becomes a list.
"""

from __future__ import annotations

import re

from griffe import Attribute, Class, Expr, Function, Object, Parameter, ParameterKind

NOTE = "<!-- Written by `python tools/make_reference.py` from docstrings: change those. -->"
_WIDTH = 100
_RAISES = re.compile(r"^(Raises|Yields|Returns):\n((?:    .*\n?|\n)+)", re.MULTILINE)
_BEFORE = {ParameterKind.var_positional: "*", ParameterKind.var_keyword: "**"}


def docstring(found: Object) -> str:
    """Return a docstring, with a list of what it raises."""
    text = found.docstring.value.strip() if found.docstring else ""
    return _RAISES.sub(lambda match: _listed(match[1], match[2]), text + "\n").strip()


def introduction(found: Object) -> str:
    """Return the docstring of a module without what it says to those who change it."""
    return "\n\n".join(part for part in docstring(found).split("\n\n") if not part.startswith("Owns:"))


def signature(function: Function) -> str:
    """Return how a function is called, as a block; parameters one a line when they are many."""
    is_awaited = "async" in function.labels and not _is_context(function)
    before = "async def" if is_awaited else "def"
    return _call(f"{before} {function.name}", _parameters(function), _returned(function))


def given(found: Class) -> str:
    """Return what a class derives from, as far as callers may know it: of one that they do not call."""
    bases = [base for base in found.bases if isinstance(base, Expr)]
    known = [
        base for base in bases if not base.canonical_path.startswith("litequeue.") or ".errors." in base.canonical_path
    ]
    return _block(f"class {found.name}({', '.join(map(str, known))})" if known else f"class {found.name}")


def made(found: Class) -> str:
    """Return how a class is called."""
    if "dataclass" in found.labels:
        return _call(f"class {found.name}", _fields(found), "")
    init = found.members.get("__init__")
    return _call(f"class {found.name}", _parameters(init) if isinstance(init, Function) else [], "")


def value(found: Attribute) -> str:
    """Return what a constant or an alias is."""
    return _block(f"{found.name} = {found.value}")


def alias(found: Attribute) -> str:
    """Return a name in signatures as an item of a list."""
    text = " ".join(found.docstring.value.split()) if found.docstring else ""
    return f"- `{found.name}` = `{found.value}`{'. ' + text if text else ''}"


def attribute(name: str, found: Attribute) -> str:
    """Return an attribute as an item of a list; of a class's own value, as of an enum, that as well."""
    kind = f": `{found.annotation}`" if found.annotation is not None else ""
    if found.annotation is None and "class-attribute" in found.labels and "instance-attribute" not in found.labels:
        kind = f" = `{found.value}`"
    text = " ".join(found.docstring.value.split()) if found.docstring else ""
    return f"- `{name}`{kind}{'. ' + text if text else ''}"


def _parameters(function: Function) -> list[str]:
    shown: list[str] = []
    keyword_only = False
    positional_only = False
    for parameter in function.parameters:
        if parameter.name in {"self", "cls"}:
            continue
        if positional_only and parameter.kind is not ParameterKind.positional_only:
            shown.append("/")
        positional_only = parameter.kind is ParameterKind.positional_only
        if parameter.kind is ParameterKind.keyword_only and not keyword_only:
            shown.append("*")
        keyword_only |= parameter.kind in {ParameterKind.keyword_only, ParameterKind.var_positional}
        shown.append(_parameter(parameter))
    return shown


def _parameter(parameter: Parameter) -> str:
    kind = f": {parameter.annotation}" if parameter.annotation is not None else ""
    text = f"{_BEFORE.get(parameter.kind or ParameterKind.positional_or_keyword, '')}{parameter.name}{kind}"
    if parameter.default is None or parameter.kind in _BEFORE:
        return text
    default = str(parameter.default)
    if parameter.name == "mode" and default.isdigit():
        default = oct(int(default))  # permissions, which the tree has as a plain number
    return f"{text} = {default}"


def _fields(found: Class) -> list[str]:
    shown = []
    for name, member in found.members.items():
        if not isinstance(member, Attribute) or name.startswith("_") or member.annotation is None:
            continue
        if "property" in member.labels or "init=False" in str(member.value):
            continue
        default = "" if member.value is None else f" = {member.value}"
        shown.append(f"{name}: {member.annotation}{default}")
    return shown


def _returned(function: Function) -> str:
    if function.returns is None:
        return ""
    returned = str(function.returns)
    if _is_context(function):
        returned = re.sub(
            r"^(Async)?(?:Iterator|Generator)\[(.*?)(?:, None.*)?\]$", r"Abstract\1ContextManager[\2]", returned
        )
    return f" -> {returned}"


def _is_context(function: Function) -> bool:
    return any(str(decorator.value) in {"contextmanager", "asynccontextmanager"} for decorator in function.decorators)


def _listed(title: str, entries: str) -> str:
    items: list[str] = []
    for line in entries.splitlines():
        if line.startswith("     "):
            items[-1] += f" {line.strip()}"
        elif line.strip():
            items.append(line.strip())
    return f"{title}:\n\n" + "".join(f"- {_item(item)}\n" for item in items)


def _item(item: str) -> str:
    names, colon, text = item.partition(":")
    if not colon:
        return item
    return f"{', '.join(f'`{name.strip()}`' for name in names.split(','))}:{text}"


def _call(before: str, shown: list[str], after: str) -> str:
    line = f"{before}({', '.join(shown)}){after}"
    if len(line) > _WIDTH:
        line = "\n".join([f"{before}(", *(f"    {one}," for one in shown), f"){after}"])
    return _block(line)


def _block(text: str) -> str:
    return f"```py\n{text}\n```"
