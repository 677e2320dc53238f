"""What a rank executes and starts, as the interpreter itself tells: files that left no module
behind, and children.

`sys.modules` names what is there now. Code that was loaded by its path, or forgotten again, stands
in no list; an audit hook hears of it all the same, and cannot be taken away.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

# With one of these, or none, a file is code; templates are compiled under their own names too.
CODE = ("", ".py", ".pyw", ".pyc", ".so", ".pyd")
FORKS = ("os.fork", "os.forkpty")
# Who starts a process without a word: each is imported when it does.
SPAWNERS = {
    "multiprocessing.popen_spawn_posix": "spawn",
    "multiprocessing.popen_forkserver": "forkserver",
}
CHILDREN_LIMIT = 20


class Witness:
    """Listens in one process; a fork of it is another.

    Attributes:
        files: absolute paths of the files whose code was executed, in order.
        children: what was started, by the program's name, in order.
    """

    def __init__(self, *, on_execution: Callable[[str], None]) -> None:
        """`on_execution` is called with each file while it is as it was executed, each time that it
        is executed.
        """
        self.files: dict[str, None] = {}
        self.children: dict[str, None] = {}
        self._on_execution = on_execution
        self._pid = os.getpid()
        self._heard: dict[str, Callable[[tuple[Any, ...]], None]] = {
            "exec": lambda given: self._file(given[0].co_filename),
            "import": self._import,
            "subprocess.Popen": lambda given: self._child(given[0] or _first(given[1])),
            "os.posix_spawn": lambda given: self._child(given[0]),
            "os.exec": lambda given: self._child(given[0]),
            "os.system": lambda given: self._child(os.fsdecode(given[0]).split(maxsplit=1)[0]),
            **dict.fromkeys(FORKS, lambda _: self._child("fork")),
        }

    def attach(self) -> None:
        """Begin to listen, for the rest of this process' life."""
        sys.addaudithook(self._hear)

    def _hear(self, event: str, given: tuple[Any, ...]) -> None:
        if (hear := self._heard.get(event)) is not None and os.getpid() == self._pid:
            # What a hook raises ends what was going on: it is the subject's, and none of our
            # business.
            with contextlib.suppress(Exception):
                hear(given)

    def _import(self, given: tuple[Any, ...]) -> None:
        if (name := SPAWNERS.get(given[0])) is not None:
            self._child(name)
        if given[1]:
            self._file(given[1])

    def _file(self, name: str) -> None:
        if name.startswith("<") or os.path.splitext(name)[1] not in CODE:
            return
        path = os.path.abspath(name)
        if path in self.files or _is_there(path):
            self.files[path] = None
            self._on_execution(path)

    def _child(self, program: str | bytes | os.PathLike[str]) -> None:
        if len(self.children) < CHILDREN_LIMIT:
            self.children[os.path.basename(os.fsdecode(program))] = None


def _is_there(path: str) -> bool:
    """Whether there is such a file, in an archive too.

    Code may bear any name, that of no file as well.
    """
    archive = path
    while not os.path.lexists(archive):
        archive = os.path.dirname(archive)
    return archive == path or os.path.isfile(archive)


def _first(command: Any) -> Any:
    return command.split(maxsplit=1)[0] if isinstance(command, str | bytes) else command[0]
