"""A session of pytest on a module that was changed, in a process of its own, and what became of it.

Nothing dies by accident: a test kills only if it passed on the module without a change, in the same
kind of session, before all mutants and again after them. What ends without a test that failed by
name (it hangs, it is killed, the tests cannot be imported) counts only if the same tests end well
without the change, within the same time.
"""

from __future__ import annotations

import gc
import importlib
import importlib.abc
import importlib.util
import inspect
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from tests.mutants.mutation import Mutant

ROOT = Path(__file__).resolve().parents[2]
# Seconds for the tests of one mutant; those that are chosen for it took a third of it together.
LONGEST = 60.0
# Seconds for one session of many tests without a change.
PATIENCE = 600.0
# Imported before the forks, because each mutant would pay for it again; nothing of ours is, or it
# could not be mutated, and not hypothesis, whose asserts pytest rewrites when it imports it.
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
HEAVY = (
    "pydantic",
    "yaml",
    "numpy",
    "xxhash",
    "filelock",
    "psutil",
    "scipy.stats",
    "xml.dom.minidom",
)


class Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from the source of a mutant.

    Attributes:
        is_loaded: whether anything has imported it.
    """

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._name = name_of(mutant.path)
        self.is_loaded = False

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        """Find the mutated module, and no other."""
        del path, target
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(name, ROOT / self._mutant.path, loader=self)

    def create_module(self, spec: object) -> None:
        """Leave it to the import system."""

    def exec_module(self, module: object) -> None:
        """Run the mutant's source under the name of the file that it stands for."""
        self.is_loaded = True
        file = str(ROOT / self._mutant.path)
        code = compile(self._mutant.source, file, "exec", dont_inherit=True)
        # The mutant is made here, from a file of this repository.
        exec(code, vars(module))  # noqa: S102


def name_of(path: str) -> str:
    """The name by which a module is imported."""
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


class Heard:
    """Keeps which tests fail and which pass: a plug-in of pytest.

    Args:
        folder: the working folder of the tests. A mutant that takes a relative path for an absolute
            one writes there, not into the checkout.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.failed: list[str] = []
        self.passed: list[str] = []

    def pytest_collection_finish(self) -> None:
        """Leave the checkout, now that pytest has found the tests by their relative names."""
        os.chdir(self._folder)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test fails with its fixtures; it passes if it was called."""
        if report.failed:
            self.failed.append(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed.append(report.nodeid)


@dataclass(frozen=True, kw_only=True)
class Session:
    """What one session came to.

    Attributes:
        mutant: what it ran on.
        tests: how many tests it was given.
        seconds: how long it took.
        cpu: seconds of CPU, with those of the processes that its tests waited for.
        is_over: whether it was stopped, because it had no time left.
        code: of pytest; None where it did not end, or did not end by itself.
        failed: the tests that failed, in order.
        passed: those that passed.
        is_loaded: whether the mutant was imported at all.
    """

    mutant: Mutant
    tests: Sequence[str]
    seconds: float
    cpu: float = 0.0
    is_over: bool = False
    code: int | None = None
    failed: Sequence[str] = ()
    passed: Sequence[str] = ()
    is_loaded: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether its end can be judged alone: all passed, or a test failed that has a name."""
        return self.code == 0 or (self.code == 1 and bool(self.failed))


@dataclass(frozen=True)
class Order:
    """A session to be run: which tests, on what, and for how many seconds at most."""

    mutant: Mutant
    tests: Sequence[str]
    longest: float = LONGEST
    stops: bool = True


@dataclass
class _Running:
    order: Order
    pid: int
    folder: Path
    begun: float = field(default_factory=time.monotonic)


def sessions(
    orders: Iterable[Order],
    perform: Callable[[Order, Path], dict[str, object]],
    *,
    jobs: int,
    heard: Callable[[Session], None] = lambda _: None,
) -> list[Session]:
    """Run them, several at a time; the results are in the order in which they end.

    An order is taken when its turn comes, so it may rest on what was heard before.
    """
    ended: list[Session] = []
    running: dict[int, _Running] = {}
    left = iter(orders)
    order = next(left, None)
    with _folder() as root:
        while order is not None or running:
            while order is not None and len(running) < jobs:
                place = Path(tempfile.mkdtemp(dir=root))
                pid = _start(order, perform, place)
                running[os.pidfd_open(pid)] = _Running(order, pid, place)
                order = next(left, None)
            ready, _, _ = select.select(list(running), [], [], 1.0)
            for descriptor, one in list(running.items()):
                is_over = time.monotonic() - one.begun > one.order.longest
                if descriptor in ready or is_over:
                    os.close(descriptor)
                    del running[descriptor]
                    ended.append(_end(one, is_over=is_over and descriptor not in ready))
                    heard(ended[-1])
    return ended


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder for what tests write: its path is short, because servers have sockets in it."""
    root = Path(tempfile.mkdtemp(prefix="mu-", dir="/tmp"))
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _start(order: Order, perform: Callable[[Order, Path], dict[str, object]], folder: Path) -> int:
    """Run the tests in a fork; its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        told = perform(order, folder)
        # Written beside and renamed: a session that is killed while it writes says nothing, not half.
        (folder / "telling.json").write_text(json.dumps(told))
        (folder / "telling.json").replace(folder / "told.json")
        os._exit(0)
    # A mutant that cannot be imported ends here; nothing is told.
    except BaseException:  # noqa: BLE001
        os._exit(99)


def imported(order: Order, folder: Path) -> dict[str, object]:
    """Run tests in a process that has imported nothing of ours, and import the mutant in it."""
    mutated = Mutated(order.mutant)
    sys.meta_path.insert(0, mutated)
    heard = Heard(folder)
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header"]
    if order.stops:
        options.append("-x")
    code = pytest.main([*options, f"--basetemp={folder / 't'}", *order.tests], plugins=[heard])
    return {
        "code": int(code),
        "failed": heard.failed,
        "passed": heard.passed,
        "is_loaded": mutated.is_loaded,
    }


class Collected:
    """Collects tests once, and runs sessions as forks of that: a plug-in of pytest.

    Importing and collecting is most of what a session costs.
    """

    def __init__(self, work: Callable[[Collected], None]) -> None:
        self._work = work
        self._items: dict[str, pytest.Item] = {}
        self._there: defaultdict[str, list[FunctionType]] = defaultdict(list)
        self._problem: BaseException | None = None

    def collect(self, tests: Sequence[str]) -> None:
        """Collect the tests, then work.

        Raises:
            SystemExit: the tests cannot be collected.
        """
        options = ["-s", "-qq", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not whole"]
        code = pytest.main([*options, *tests], plugins=[self])
        if self._problem is not None:
            raise self._problem
        if code:
            raise SystemExit(f"the tests cannot be collected: pytest ends with {code}")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Work, where pytest would run the tests."""
        if session.testsfailed:
            return True
        self._items = {item.nodeid: item for item in session.items}
        for one in gc.get_objects():
            if isinstance(one, FunctionType):
                self._there[one.__code__.co_filename].append(one)
        gc.freeze()  # or each fork would copy what a collection of garbage looks at
        try:
            self._work(self)
        except BaseException as problem:  # noqa: BLE001 - pytest would make its own of it
            self._problem = problem
        return True

    def perform(self, order: Order, folder: Path) -> dict[str, object]:
        """Run tests with the mutant's code in the place of that of the functions that are there."""
        is_loaded = swap(order.mutant, self._there[str(ROOT / order.mutant.path)])
        # The tests were collected before, so no hook tells this one to leave the checkout.
        os.chdir(folder)
        heard = Heard(folder)
        items = [self._items[name] for name in order.tests]
        config = items[0].config
        config.pluginmanager.register(heard)
        # Forks that run at the same time must not share a folder.
        config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if order.stops and heard.failed:
                break
        return {
            "code": int(bool(heard.failed)),
            "failed": heard.failed,
            "passed": heard.passed,
            "is_loaded": is_loaded,
        }


# -- code that is there already ----------------------------------------------------------------


def _functions(code: CodeType) -> Iterator[CodeType]:
    """The code of the functions and methods of a module, without that of functions within them."""
    for one in code.co_consts:
        if isinstance(one, CodeType):
            is_function = (
                bool(one.co_flags & inspect.CO_NEWLOCALS) and one.co_name not in COMPREHENSIONS
            )
            if is_function:
                yield one
            else:
                yield from _functions(one)


def _body(code: CodeType) -> object:
    """What runs once, when the module is imported: of the module and of its classes, the code
    alone.
    """
    functions = set(_functions(code))
    own = [repr(one) for one in code.co_consts if not isinstance(one, CodeType)]
    classes = [one for one in code.co_consts if isinstance(one, CodeType) and one not in functions]
    return code.co_code, own, code.co_names, [_body(one) for one in classes]


def is_in_functions(mutant: Mutant, original: Mutant) -> bool:
    """Whether a mutant differs in its functions alone, so that its module need not be imported
    again.
    """
    one, other = _compiled(original.source, mutant.path), _compiled(mutant.source, mutant.path)
    names = [[code.co_qualname for code in _functions(each)] for each in (one, other)]
    return names[0] == names[1] and _body(one) == _body(other)


@lru_cache(maxsize=8)
def _compiled(source: str, path: str) -> CodeType:
    return compile(source, str(ROOT / path), "exec", dont_inherit=True)


def swap(mutant: Mutant, there: Iterable[FunctionType]) -> bool:
    """Give the functions of a module that are there the code that the mutant has for them.

    Returns:
        Whether there were any.
    """
    text = (ROOT / mutant.path).read_text(encoding="utf-8")
    old = _functions(_compiled(text, mutant.path))
    new = _functions(_compiled(mutant.source, mutant.path))
    codes = dict(zip(old, new, strict=True))
    is_loaded = False
    for one in there:
        if one.__code__ in codes:
            one.__code__ = codes[one.__code__]
            is_loaded = True
    return is_loaded


def _end(one: _Running, *, is_over: bool) -> Session:
    """Take what a session told, and leave nothing of it."""
    seconds = time.monotonic() - one.begun
    # The whole group, also after a good end: a test may have left something behind.
    with suppress(ProcessLookupError):
        os.killpg(one.pid, signal.SIGKILL)
    _, _, used = os.wait4(one.pid, 0)
    cpu = used.ru_utime + used.ru_stime
    told: dict[str, object] = {}
    if (one.folder / "told.json").exists():
        told = json.loads((one.folder / "told.json").read_text())
    shutil.rmtree(one.folder, ignore_errors=True)
    return Session(
        mutant=one.order.mutant,
        tests=one.order.tests,
        seconds=seconds,
        cpu=cpu,
        is_over=is_over,
        **told,  # type: ignore[arg-type]  # written by _start
    )
