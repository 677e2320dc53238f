"""The source of functions and classes, as digests."""

from __future__ import annotations

import dis
import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

from harness.tokenizer.digest import digest_text

# Packages of code that lies beside a tokenizer: as transformers copies it, and as `loading` imports it.
OWN_PACKAGE = "rankproof_remote_"
BESIDE = ("transformers_modules.", OWN_PACKAGE)
# What a class has besides what its source defines. `_auto_class` is set by whoever registers it.
UNWRITTEN = {"_abc_impl", "_auto_class"}
WRITTEN = {"__call__", "__getattr__", "__getstate__", "__init__", "__len__", "__setstate__"}


def source_of(function: object) -> str:
    """Digest of a function's source; what is known of it where there is none."""
    try:
        return digest_text(inspect.getsource(inspect.unwrap(function)))  # type: ignore[arg-type]
    except (OSError, TypeError, ValueError):
        return f"no source: {type(function).__qualname__}"


def name_of(kind: type) -> str:
    """Module and name of a class. Code that lies beside a tokenizer has the name it has there, whoever imported it."""
    module = kind.__module__
    return f"{module.rpartition('.')[2] if module.startswith(BESIDE) else module}.{kind.__qualname__}"


def code_of(kind: type) -> dict[str, dict[str, str] | str]:
    """For every class of a tokenizer but transformers' base classes: its source, and what it really defines.

    The source of code that lies beside a tokenizer is that of the class's file and of all files that it imports from
    beside itself, wherever a loader put them and whatever else lies there. It is read now, and may have been written
    since the class was made. So the names that the class has stand beside it: one made from half of a file is another.
    """
    made: dict[str, dict[str, str] | str] = {}
    for one in kind.__mro__:
        if one is object or re.match(r"transformers\.(tokenization_|utils)", one.__module__):
            continue
        try:
            file = Path(inspect.getfile(one))
            # An installed package is one version as a whole, and may be large.
            files = _with_neighbours(file) if one.__module__.startswith(BESIDE) else [file]
            digests = {
                Path(os.path.relpath(beside, file.parent)).as_posix(): digest_text(beside.read_bytes())
                for beside in files
            }
        except (OSError, TypeError, SyntaxError, ValueError):
            made[one.__qualname__] = "no source"
            continue
        names = (name for name in vars(one) if name not in UNWRITTEN)
        defined = sorted(name for name in names if name in WRITTEN or not name.startswith("__"))
        made[one.__qualname__] = digests | {"defines": digest_text("\n".join(defined))}
    return made


def _with_neighbours(file: Path) -> list[Path]:
    """A file and those it imports relatively, directly or not; an empty `__init__.py` says nothing."""
    start = file.with_name("__init__.py")
    files = {file, start} if start.is_file() and start.stat().st_size else {file}
    waiting = list(files)
    while waiting:
        one = waiting.pop()
        for level, name, members in _relative_imports(compile(one.read_bytes(), one, "exec", dont_inherit=True)):
            place = one.parent.joinpath(*[".."] * (level - 1), *name.split(".") if name else [])
            for path in (place, *(place / member for member in members)):
                for candidate in (path.with_name(f"{path.name}.py"), path / "__init__.py"):
                    there = Path(os.path.normpath(candidate))
                    if there not in files and there.is_file() and there.stat().st_size:
                        files.add(there)
                        waiting.append(there)
    return sorted(files)


def _relative_imports(code: CodeType) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Level, module and names of `from .module import names`, anywhere in a file.

    Read from compiled code: `ast.parse` fails now and then where threads use it at once (CPython gh-106905).
    """
    done = [one for one in dis.get_instructions(code) if one.opname not in {"CACHE", "EXTENDED_ARG"}]
    for level, members, one in zip(done, done[1:], done[2:], strict=False):
        if one.opname == "IMPORT_NAME" and level.argval:
            yield level.argval, one.argval, tuple(members.argval or ())
    for inside in code.co_consts:
        if isinstance(inside, CodeType):
            yield from _relative_imports(inside)
