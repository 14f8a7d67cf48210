"""No Python code of the package opens a file, except where it says here why it may.

Why: POSIX drops *all* of a process's locks on a file when *any* of its descriptors for it is closed. So one
`open()` of the queue's file, its `-wal` or its `-shm`, in the process that has it open in SQLite, takes away
SQLite's locks behind its back, and acknowledged commits vanish (DESIGN §3).
Source: SQLite's "How To Corrupt An SQLite Database File", section 2.2.

Sees calls by name, through the file's imports. Leaves out what nobody writes by chance (`getattr`, `ctypes`), what a
child process opens, and a second SQLite: the import contracts forbid that (`pyproject.toml`).
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "litequeue"

ALLOWED = {
    # (file in the package, function or Class.method): why this can never be one of the three files
    ("clock.py", "_told_by_proc"): "reads the kernel's boot id under /proc",
    ("sqlite/filesystem.py", "kind_of"): "reads the kernel's mount table under /proc",
    ("sqlite/partial.py", "partial"): "makes a file of a name that nothing has, and nobody locks",
    ("sqlite/partial.py", "sync_folder"): "opens a folder, to sync what was moved into it",
    ("sqlite/gate.py", "lockers"): "reads the kernel's table of locks under /proc",
    ("sqlite/gate.py", "_is_at_work"): "reads the state of a process under /proc",
    ("sqlite/kqueue.py", "Kqueue.arm"): "copies a descriptor of a bell, a sidecar that SQLite never locks",
    ("cli/files.py", "new_file"): "writes a file of a name that nothing had",
    ("cli/files.py", "foreign_file"): "has compared it with the queue's files",
    ("sqlite/gate.py", "open_sidecar"): "opens `<file>-lock`, `-bell` or `-done`, sidecars that SQLite never locks",
}

OPENERS = frozenset(
    {"open", "io.open", "io.open_code", "io.FileIO", "os.open", "codecs.open", "tokenize.open", "fileinput.input"}
    # The modules behind them.
    | {f"{module}.open" for module in ("_io", "_pyio", "posix", "nt")}
    | {f"{module}.FileIO" for module in ("_io", "_pyio")}
    # These open, and close, the files that they are given.
    | {f"shutil.{name}" for name in ("copy", "copy2", "copyfile", "copytree", "move", "make_archive")}
    | {f"{module}.open" for module in ("gzip", "bz2", "lzma", "tarfile", "wave", "shelve", "dbm")}
    | {"gzip.GzipFile", "bz2.BZ2File", "lzma.LZMAFile", "zipfile.ZipFile", "tarfile.TarFile"}
    # These close a descriptor, or a copy of it, wherever it came from: that is what drops the locks.
    | {"os.fdopen", "os.dup", "os.dup2", "os.closerange", "mmap.mmap"}
    | {"runpy.run_path", "linecache.getline", "linecache.getlines", "logging.FileHandler"}
)
METHODS = frozenset({"open", "read_text", "read_bytes", "write_text", "write_bytes", "touch", "copy_into", "move_into"})
"""Of `pathlib.Path`; without types, anything else that has a method of this name is taken for a path."""

OWN_DATA = "importlib.resources."
"""Reads what lies in the installed package, where no queue is: the statements and the schema."""


@dataclass(frozen=True)
class Opening:
    """One place that opens a file."""

    file: str
    line: int
    function: str
    call: str


def openings(source: str, file: str) -> list[Opening]:
    """Return the places in `source` that open a file, in order, whether they are allowed or not."""
    visitor = _Visitor(file)
    visitor.visit(ast.parse(source, file))
    return visitor.found


def problems(package: Path, allowed: dict[tuple[str, str], str]) -> list[str]:
    """Return a line for each opening that `allowed` does not name, and for each entry that opens nothing."""
    found = [
        opening
        for path in sorted(package.rglob("*.py"))
        for opening in openings(path.read_text(encoding="utf-8"), path.relative_to(package).as_posix())
    ]
    unused = allowed.keys() - {(opening.file, opening.function) for opening in found}
    return [
        f"{opening.file}:{opening.line}: {opening.call} in {opening.function}: may be one of SQLite's files"
        for opening in found
        if (opening.file, opening.function) not in allowed
    ] + [f"{file}: {function} opens nothing: drop it from the allow list" for file, function in sorted(unused)]


class _Visitor(ast.NodeVisitor):
    """Walk one module, knowing what its names stand for and which function it is in."""

    def __init__(self, file: str) -> None:
        self.found: list[Opening] = []
        self._file = file
        self._scopes: list[str] = []
        self._names: dict[str, str] = {}

    def visit_Module(self, node: ast.Module) -> None:
        # A function of the module's own hides the builtin of its name, also above its definition.
        own = (child.name for child in node.body if isinstance(child, ast.FunctionDef))
        self._names.update({name: f"litequeue.{name}" for name in own})
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            # `import a.b` binds `a`; `import a.b as c` binds `c` to `a.b`.
            first = alias.name.partition(".")[0]
            self._names[alias.asname or first] = alias.name if alias.asname else first

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = "litequeue" if node.level else node.module
        for alias in node.names:
            self._names[alias.asname or alias.name] = f"{module}.{alias.name}"

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._enter(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._enter(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._enter(node)

    def visit_Name(self, node: ast.Name) -> None:
        self._check_opener(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._check_opener(node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            name = self._name(node.func) or ""
            own_open = name.startswith("litequeue.") and node.func.attr == "open"
            if not (own_open or name in OPENERS or name.startswith(OWN_DATA)):
                self._add(node, f".{node.func.attr}()")
        self.generic_visit(node)

    def _enter(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._scopes.append(node.name)
        self.generic_visit(node)
        self._scopes.pop()

    def _check_opener(self, node: ast.Name | ast.Attribute) -> None:
        """Report a known opener, called or not: `partial(open, path)` opens as well as `open(path)` does."""
        name = self._name(node)
        if name in OPENERS and isinstance(node.ctx, ast.Load):
            self._add(node, f"{name}()")

    def _name(self, node: ast.expr) -> str | None:
        """Return the dotted name that an expression begins with, calls and `/` left out, if there is one."""
        match node:
            case ast.Name():
                return self._names.get(node.id, node.id)
            case ast.Attribute():
                receiver = self._name(node.value)
                return receiver and f"{receiver}.{node.attr}"
            case ast.Call():
                return self._name(node.func)
            case ast.BinOp(op=ast.Div()):
                return self._name(node.left)
        return None

    def _add(self, node: ast.expr, call: str) -> None:
        function = ".".join(self._scopes) or "<module>"
        self.found.append(Opening(self._file, node.lineno, function, call))


def main() -> int:
    """Print the problems; return the exit status."""
    lines = problems(PACKAGE, ALLOWED)
    print("\n".join(lines), end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
