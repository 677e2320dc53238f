"""Life of one rank: prepare the process, join the group, load the subject, call it, end.

The order of its events is the order of its life: `rank.begin`, `backend.ready`, `subject.loaded`,
`subject.begin`, whatever the subject emits, `subject.end`. A rank that exits without `subject.end`
did not finish, whatever its exit code says.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import fcntl
import importlib
import json
import os
import random
import signal
import sys
import threading
from collections.abc import Callable

# A subject may replace os._exit; a rank must end all the same.
from os import _exit
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.forms.strict_json import JSON
from harness.history import ENVIRONMENT_TOLD
from harness.ledger.file import ARTEFACT
from harness.ledger.inside.book import Book, module_of
from harness.rank import failure
from harness.rank.arm import LOOKED, look, names_swallowed, parameters, prefer, strays
from harness.rank.artefacts import BYTES
from harness.rank.artefacts import FOLDER as KEPT_FOLDER
from harness.rank.context import Context, Group
from harness.rank.emit import Emitter
from harness.rank.environment import environment
from harness.rank.groups import Watch
from harness.rank.inside import load
from harness.rank.inventory import describe
from harness.rank.loaded import LoadedModules, file_of
from harness.rank.spec import RankSpec

STACKS = "stacks.txt"
# A signal subjects hardly use; SIGUSR1 and SIGUSR2 belong to them.
STACK_SIGNAL: int = signal.SIGRTMAX - 3 if hasattr(signal, "SIGRTMAX") else signal.SIGUSR2


class SubjectNotFound(ImportError):
    """Raised where the entry does not name a function in the arm's folder."""


def main(path: str) -> None:
    """Live the rank that the spec at `path` describes, in an interpreter started for it alone.

    Never returns.
    """
    live(RankSpec.from_json(json.loads(Path(path).read_text())))


def live(spec: RankSpec) -> None:
    """Run the subject as this process' whole purpose; never returns.

    The exit code is what Python would give: 0, 1 for an exception, or what the subject passed to
    `sys.exit`.

    Raises:
        Exception: what the file raises that joins the backend's group, while it is loaded.
    """
    join = load(spec.group).join
    recorder = module_of(spec.recorder)
    with contextlib.suppress(OSError):  # a full disk costs the stacks, not the rank
        # faulthandler keeps the file open for life
        stacks = Path(spec.scratch, STACKS).open("wb", buffering=0)  # noqa: SIM115
        faulthandler.register(STACK_SIGNAL, file=stacks, all_threads=True)
    os.environ.update(spec.env)
    # A subject may close low descriptors or write to them, so the channel moves to where a plain
    # program does not reach.
    emitter = Emitter(
        events_fd=_out_of_reach(spec.events_fd),
        gates_fd=_out_of_reach(spec.gates_fd),
        gates=spec.gates,
        inside=spec.inside,
    )
    code = 0
    pid = os.getpid()
    loaded = LoadedModules(
        spec.folder, declared=spec.declared, differing=spec.differing, begun=spec.begun
    )
    try:
        if spec.looks:
            _look(spec, emitter)
        else:
            _run(spec, join, emitter, loaded, recorder=recorder)
    except SystemExit as leaving:
        code = _exit_code(leaving)
    except BaseException as error:  # noqa: BLE001 - whatever ended the subject is the finding
        code = 1
        if os.getpid() == pid:
            failure.record(error, scratch=spec.scratch, folder=spec.folder)
        with contextlib.suppress(BaseException):
            sys.excepthook(type(error), error, error.__traceback__)
    if os.getpid() != pid:
        # The subject forked, and its child came back here. A child does not report for the rank.
        _exit(code)
    with contextlib.suppress(Exception):  # a subject may leave anything in sys.modules
        _tell(spec, emitter, loaded)
    _leave(code)


def _run(
    spec: RankSpec,
    join: Callable[[RankSpec], Group],
    emitter: Emitter,
    loaded: LoadedModules,
    *,
    recorder: ModuleType | None,
) -> None:
    process: dict[str, JSON] = {
        "python": sys.version.split()[0],
        "threads": threading.active_count(),
        "world": spec.world,
    }
    if spec.on_host:
        process["host"] = os.uname().nodename
    emitter.emit("rank.begin", process)
    if spec.reported:
        values = {name: os.environ.get(name) for name in spec.reported}
        emitter.emit("fault.env", {"values": values, "at_start": _at_start(spec)})
    seed(spec.seed)
    group = join(spec)
    emitter.emit("backend.ready", {"backend": spec.backend, "rank": group.rank, "size": group.size})
    book = _book(spec, recorder) if spec.observe else None
    watch = Watch(emitter.emit, size=spec.size, book=book)
    watch.begin()
    prefer(spec.folder, entry=spec.entry.partition(":")[0].partition(".")[0])
    function = _entry(spec)
    _tell(spec, emitter, loaded)
    context = Context(
        rank=spec.rank,
        size=spec.size,
        backend=spec.backend,
        group=group,
        inputs=spec.inputs,
        seed=spec.seed,
        shared=spec.shared,
        _emitter=emitter,
        _kept=Path(spec.scratch, KEPT_FOLDER),
    )
    unnamed = names_swallowed(parameters(function) or (), spec.arguments)
    if spec.tells_environment:
        emitter.emit(ENVIRONMENT_TOLD, environment("begin", loaded.packages()))
    emitter.emit("subject.begin", {"swallowed": unnamed} if unnamed else {})
    pid = os.getpid()
    function(context, **spec.arguments)
    if os.getpid() != pid:
        return
    if spec.tells_environment:
        emitter.emit(ENVIRONMENT_TOLD, environment("end", loaded.packages()))
    watch.look()
    emitter.emit("subject.end", {})
    group.leave()


def _book(spec: RankSpec, recorder: ModuleType | None) -> Book | None:
    """Make the rank's ledger.

    Without one the rank goes on, and the harness reports that it is missing.
    """
    try:
        path = Path(spec.scratch, KEPT_FOLDER, ARTEFACT + BYTES)
        return Book(path, spec, is_struck=bool(spec.inside), recorder=recorder)
    except OSError as error:
        print(f"rankproof: cannot create the ledger of this rank's calls: {error}", file=sys.stderr)
    return None


def seed(number: int) -> None:
    """Seed the random generators that are loaded. numpy takes 32 bits, torch 64.

    Nothing is imported for their sake.
    """
    random.seed(number)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(number % 2**32)
    if (torch := sys.modules.get("torch")) is not None:
        _seed_torch(torch, number)
    if (mlx := sys.modules.get("mlx.core")) is not None:
        mlx.random.seed(number)


def _seed_torch(torch: Any, number: int) -> None:
    """Seed the generators of all devices that this torch was built for.

    `torch.manual_seed` keeps the seed for each kind of device with a stack trace, for which it
    reads source files, even in a build without any such device: 150 page faults of a forked rank
    (docs/adr/0154).
    """
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None or accelerator.current_accelerator() is not None:
        torch.manual_seed(number)
    else:
        torch.default_generator.manual_seed(number)


def _look(spec: RankSpec, emitter: Emitter) -> None:
    """Import the entry's module as a trial would, and describe its function."""
    name, _, attribute = spec.entry.partition(":")
    prefer(spec.folder, entry=name.partition(".")[0])
    emitter.emit(LOOKED, look(importlib.import_module(name), attribute))


def _at_start(spec: RankSpec) -> dict[str, JSON] | None:
    """Read the same variables as the kernel gave them to this process.

    A library reads these while it is imported. None where the system does not keep them.
    """
    try:
        text = Path("/proc/self/environ").read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return None
    known = dict(variable.split("=", 1) for variable in text.split("\0") if "=" in variable)
    return {name: known.get(name) for name in spec.reported}


def _entry(spec: RankSpec) -> Callable[..., Any]:
    """Import the entry from the arm's folder.

    Raises:
        SubjectNotFound: the module has no such function. A module that came from elsewhere is not
            an error here: the evidence (`subject.loaded`) shows it, and the verdict is
            INCONCLUSIVE.
    """
    name, _, attribute = spec.entry.partition(":")
    module: ModuleType = importlib.import_module(name)
    function: object = module
    for part in attribute.split("."):
        function = getattr(function, part, None)
    if not callable(function):
        file = Path(file_of(module) or name).name
        raise SubjectNotFound(
            f"{file} has no function {attribute!r}; set subject.entry to module:function"
        )
    return function


def _tell(spec: RankSpec, emitter: Emitter, loaded: LoadedModules) -> None:
    """Report what this process has loaded: after the entry's import, and at the end for what was
    loaded late.
    """
    name = spec.entry.partition(":")[0]
    modules = loaded.of_arm()
    entry = next((module["file"] for module in modules if module["module"] == name), None)
    elsewhere = not entry and file_of(sys.modules.get(name)) is not None
    with contextlib.suppress(OSError, ValueError):
        values: dict[str, Any] = {"entry": entry, "elsewhere": elsewhere, "modules": modules}
        values["packages"] = loaded.packages()
        if strangers := strays(spec.folder, loaded.since()):
            values["strays"] = strangers
        if loaded.children:
            values["children"] = loaded.children
        if spec.distributions is not None:
            values["environment"] = describe(spec.distributions)
        emitter.emit("subject.loaded", values)


def _out_of_reach(descriptor: int) -> int:
    """Move a descriptor to a high number, and return that."""
    # Closed on exec: a program that the subject starts must not hold the channel open.
    high: int = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 200)
    os.close(descriptor)
    return high


def _exit_code(leaving: SystemExit) -> int:
    """Return the code that Python would exit with, and print what is not a number."""
    with contextlib.suppress(BaseException):
        if leaving.code is None:
            return 0
        if isinstance(leaving.code, int):
            return leaving.code & 0xFF
        print(leaving.code, file=sys.stderr)
    return 1


def _leave(code: int) -> None:
    """End a forked rank as the interpreter would: non-daemon threads, exit handlers, buffers.

    The teardown itself is left out. A forked process must not run that of its server, and torch's
    takes a second.
    """
    with contextlib.suppress(BaseException):
        # What the interpreter itself calls.
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()  # noqa: SLF001 - the same
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()
    _exit(code)
