"""Proof of which code ran (rule 12): every file that a rank loaded, the arm's own and everybody
else's.

`sys.modules` names what is there now. Code that was loaded by its path, or forgotten again, is in
no list. The interpreter reports it to an audit hook all the same, which nobody can remove.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any, TypedDict

from harness.rank.inventory import PACKAGES, Inventory, InventoryEntry, data_of, digest, is_standard

# With one of these, or none, a file is code; templates are compiled under their own names too.
CODE = ("", ".py", ".pyw", ".pyc", ".so", ".pyd")
FORKS = ("os.fork", "os.forkpty")
# Who starts a process without a word: each is imported when it does.
SPAWNERS = {
    "multiprocessing.popen_spawn_posix": "spawn",
    "multiprocessing.popen_forkserver": "forkserver",
}
CHILDREN_LIMIT = 20
MODULE_LIMIT = 500
# Fits into the line of an event, with long names.
FILE_LIMIT = 1_500
# The rank's runtime, where the arm brings a `harness` of its own: nobody's subject.
PARKED = "_rankproof_runtime"
BESIDE = tuple(f"{os.sep}{name}{os.sep}" for name in PACKAGES)


class ImportWitness:
    """Audit hook of one process. A fork of it is another process, and is not listened to.

    Attributes:
        files: absolute paths of the files whose code was executed, in order.
        children: what was started, by the program's name, in order.
    """

    def __init__(self, *, on_execution: Callable[[str], None]) -> None:
        """Prepare to listen.

        Args:
            on_execution: called with a file each time that it is executed, before it can change.
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
            # An exception of a hook would end the call of the subject that it hears of.
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
    """Return True if code has the name of a file, in an archive too. It may have any other."""
    archive = path
    while not os.path.lexists(archive):
        archive = os.path.dirname(archive)
    return archive == path or os.path.isfile(archive)


def _first(command: Any) -> Any:
    return command.split(maxsplit=1)[0] if isinstance(command, str | bytes) else command[0]


class LoadedModule(TypedDict):
    """File of the arm that was loaded, in the event `subject.loaded`.

    Attributes:
        module: name, or empty where the code was executed and is in no module any more.
        file: path below the arm's folder.
        sha256: of the file.
    """

    module: str
    file: str
    sha256: str


class Stock:
    """Files that are loaded.

    Ranks share the stock of their warm server, and look at none of its files again.

    Attributes:
        names: by distribution, the packages of it that are loaded and as RECORD says, each with its
            "name version".
        entries: the same, every file with its package.
        others: files that are not so, each with its package.
    """

    def __init__(self) -> None:
        self.names: dict[str, set[tuple[str, str]]] = defaultdict(set)
        self.entries: dict[str, list[tuple[str, InventoryEntry]]] = defaultdict(list)
        self.others: list[tuple[str, InventoryEntry]] = []

    def add(self, package: str, entry: InventoryEntry) -> None:
        """Add a file."""
        if entry.record in ("as", "tool") and entry.distribution is not None:
            self.names[entry.distribution].add((package, f"{entry.distribution} {entry.version}"))
            self.entries[entry.distribution].append((package, entry))
        else:
            self.others.append((package, entry))


INVENTORY = Inventory()
# Filled by a warm server before it forks; in an interpreter that was started for one rank it stays
# empty.
STOCK = Stock()


def take_stock() -> None:
    """Look at everything that is loaded now, for the ranks that will be forked."""
    with _uncollected():
        for package, path in _modules(list(sys.modules)):
            if not is_standard(path):
                STOCK.add(package, INVENTORY.entry(path))


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Stop the garbage collector meanwhile.

    It would look at all that torch holds, and take longer than the work itself.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class LoadedModules:
    """Files, packages and children of one rank.

    Args:
        folder: the arm's folder.
        declared: normal names of the distributions whose files are listed one by one, because the
            repository declares them.
        differing: those whose files are also listed in full, because the other arm has another
            release of them.
        begun: when the ranks' server started, in nanoseconds since 1970.
    """

    def __init__(
        self, folder: str, *, declared: Collection[str], begun: int, differing: Collection[str] = ()
    ) -> None:
        self._root = os.path.realpath(folder) + os.sep
        self._beginnings = tuple({self._root, folder.rstrip(os.sep) + os.sep})
        self._declared = frozenset(declared)
        self._differing = frozenset(differing)
        self._begun = begun
        # Of a distribution in a folder that is put on the path later, nobody else reads the data.
        self._path = frozenset(sys.path)
        self._inherited = bool(STOCK.names)
        self._last = next(reversed(sys.modules))
        self._strangers: dict[str, set[InventoryEntry]] = defaultdict(set)
        self._witness = ImportWitness(on_execution=self._executed)
        self._witness.attach()

    @property
    def children(self) -> list[str]:
        """Programs that this process started, by name; `fork` for a copy of itself."""
        return list(self._witness.children)

    def since(self) -> list[str]:
        """Name the modules that were loaded since the rank began, the newest first.

        Where the subject removed the module that was the last one then, these are all modules.
        """
        # What comes after a module in `sys.modules` was loaded later.
        newest_first = reversed(sys.modules)
        if self._last not in sys.modules:
            return list(newest_first)
        return list(itertools.takewhile(lambda name: name != self._last, newest_first))

    def of_arm(self) -> list[LoadedModule]:
        """List the files that were loaded from the arm's folder."""
        files: dict[tuple[str, str], LoadedModule] = {}
        # A warm rank shares thousands of modules with its server, and to look at one copies its
        # page. So the walk ends at the first that the rank did not load itself.
        for name, path in (*_named(self.since()), *(("", path) for path in self._witness.files)):
            if not path.startswith(self._beginnings):
                continue
            file = os.path.realpath(path)
            if not file.startswith(self._root):
                continue
            short = file[len(self._root) :]
            # What was executed and has left `sys.modules` has no name.
            if name or not any(known == short for _, known in files):
                sha256 = digest(file)[0]
                files[name, short] = {"module": name, "file": short, "sha256": sha256}
        return [files[key] for key in sorted(files)][:MODULE_LIMIT]

    def packages(self) -> dict[str, Any]:
        """Describe everything else that is loaded beyond the standard library.

        Returns:
            JSON object. `installed`: import package to the distributions, each as "name version",
            whose files were loaded for it and are as RECORD says (or those of the Rankproof that
            runs). `others`: whatever else, and distributions that the repository declares, as
            `package`, `distribution`, `version`, `record` (see `InventoryEntry`) and `files`, path
            to sha256. `more`: how many of these files are left out. `in_full`: as `others`, those
            of `installed` that differ between the arms. `left_out`: how many of these files are
            left out.
        """
        with _uncollected():
            return self._packages()

    def _packages(self) -> dict[str, Any]:
        names = self.since() if self._inherited else list(sys.modules)
        paths = {path: package for package, path in _modules(names)}
        runtime = list(sys.modules) if PARKED in sys.modules else ()
        parked = {path for name, path in _named(runtime) if name.startswith(PARKED)}
        for path in self._witness.files:
            if path not in parked:
                paths.setdefault(path, "")
        stock = Stock()
        # Of each package that no RECORD proves, or that was found in a folder put on the path
        # later, its data once.
        seen: set[str] = set()
        for path, package in paths.items():
            if is_standard(path) or path.startswith(self._beginnings):
                continue
            for entry in self._strangers.get(path) or (INVENTORY.entry(path, begun=self._begun),):
                name = package or entry.file.partition("/")[0].partition(".")[0]
                stock.add(name, entry)
                folder = path[: -len(entry.file)] + name
                later = (
                    entry.distribution in self._declared
                    and path[: -len(entry.file) - 1] not in self._path
                )
                if (entry.record == "absent" or later) and folder not in seen:
                    seen.add(folder)
                    for data in data_of(path, entry, most=FILE_LIMIT):
                        stock.add(name, data)
        return _packages_of((STOCK, stock), self._declared, self._differing)

    def _executed(self, path: str) -> None:
        """Take the digest of a file that no installer brought, as it is executed.

        By the time it is reported, it may be gone or be another.
        """
        if (
            not any(word in path for word in BESIDE)
            and not path.startswith(self._beginnings)
            and not is_standard(path)
        ):
            self._strangers[path].add(INVENTORY.look(path, begun=self._begun))


def _packages_of(
    stocks: Sequence[Stock], declared: frozenset[str], differing: frozenset[str]
) -> dict[str, Any]:
    installed: dict[str, set[str]] = defaultdict(set)
    one_by_one: set[tuple[str, InventoryEntry]] = set()
    in_full: set[tuple[str, InventoryEntry]] = set()
    for stock in stocks:
        one_by_one.update(stock.others)
        for name, packages in stock.names.items():
            if name in declared:
                one_by_one.update(stock.entries[name])
                continue
            for package, release in packages:
                installed[package].add(release)
            if name in differing:
                in_full.update(stock.entries[name])
    others, more = _listed(one_by_one, most=FILE_LIMIT)
    description: dict[str, Any] = {
        "installed": {
            package: ", ".join(sorted(names)) for package, names in sorted(installed.items())
        },
        "others": others,
    }
    if more:
        description["more"] = more
    if in_full:
        room = max(0, FILE_LIMIT - len(one_by_one))
        description["in_full"], left_out = _listed(in_full, most=room)
        if left_out:
            description["left_out"] = left_out
    return description


def _listed(
    entries: Collection[tuple[str, InventoryEntry]], *, most: int
) -> tuple[list[dict[str, Any]], int]:
    """List files in order by their origin, at most so many; also return how many are left out."""
    by_origin: dict[tuple[str, str, str, str], list[dict[str, str]]] = defaultdict(list)
    in_order = sorted(entries, key=lambda pair: (pair[0], *map(str, pair[1])))
    for package, entry in in_order[:most]:
        known = by_origin[package, entry.distribution or "", entry.version or "", entry.record]
        # Two files may have one name: of two folders, or before and after it was written anew.
        files = next((files for files in known if entry.file not in files), None)
        if files is None:
            known.append(files := {})
        files[entry.file] = entry.sha256
    listed = [
        {
            "package": package,
            "distribution": distribution or None,
            "version": version or None,
            "record": record,
            "files": files,
        }
        for (package, distribution, version, record), known in sorted(by_origin.items())
        for files in known
    ]
    return listed, max(0, len(in_order) - most)


def file_of(module: ModuleType | None) -> str | None:
    """Return the real path of a module's file, or None for a built-in or a namespace."""
    file = getattr(module, "__file__", None)
    return os.path.realpath(file) if isinstance(file, str) else None


def _named(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the modules that have a file, each with its absolute path.

    A module made by hand may name any text.
    """
    for name in names:
        file = getattr(sys.modules.get(name), "__file__", None)
        if isinstance(file, str) and file.startswith(os.sep):
            yield name, file


def _modules(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the top-level package and the path of modules that have a file.

    The runtime of a rank whose arm brings its own `harness` is left out.
    """
    for name, path in _named(names):
        if (package := name.partition(".")[0]) != PARKED:
            yield package, path
