"""The machines of a hostfile: whether each answers, is another one and has what ranks need; making
them ready with the same environment on each, from one lock; and cleaning up after runs.
"""

from __future__ import annotations

import platform
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from harness.forms.text import plural, printable
from harness.world.machines import agent, store
from harness.world.machines.agent_channel import AgentChannel, Clock, Unreachable, argv
from harness.world.starters import hostfile
from harness.world.starters.hostfile import Machine

ANSWERS_WITHIN = 30.0
AT_ONCE = 16
# Enough that a fast link is past its slow start, little enough for a slow one.
SAMPLE = 8 * 2**20
MOST_NAMED = 3
# A difference of wall clocks that certificates, caches and logs begin to suffer from, in seconds.
CLOCK_LIMIT = 1.0
LEAST_FREE = 2 * 2**30
# Rankproof itself is brought along; these only install.
BROUGHT = ("rankproof", "pip", "setuptools", "wheel")


@dataclass(frozen=True, kw_only=True)
class SeenMachine:
    """What was seen of a machine.

    Attributes:
        machine: of the hostfile.
        facts: what its agent says; empty where none answered.
        clock: its wall clock against this one's.
        up, down: bytes a second that the channel carried to it, and from it.
        ready: seconds until its agent had spoken.
        problems: why no rank can run there, each with its remedy.
        notes: what is worth knowing.
    """

    machine: Machine
    facts: Mapping[str, Any] = field(default_factory=dict)
    clock: Clock | None = None
    up: float = 0.0
    down: float = 0.0
    ready: float = 0.0
    problems: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Offered:
    """What a machine has of what a scenario may need, as its agent says: of Nix, whether it is
    there.
    """

    system: str
    cores: int
    memory: int
    gpu: str | None
    nix: str | None

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """Of facts in the form of `facts_of`."""
        programs = facts["programs"]
        return cls(
            system=facts["system"],
            cores=facts["cores"],
            memory=facts["memory"],
            gpu="there" if programs.get("nvidia-smi") is True else None,
            nix="there" if programs.get("nix") is True else None,
        )


def check(
    machines: Sequence[Machine],
    *,
    interpreter: str,
    configuration: Path | None = None,
    within: float = ANSWERS_WITHIN,
) -> list[SeenMachine]:
    """Look at machines, several at a time; in their order.

    Args:
        machines: of a hostfile.
        interpreter: path of the Python in whose environment ranks would run there.
        configuration: file for ssh instead of the user's own.
        within: seconds that each has to answer.
    """
    here = agent.facts()

    def look(machine: Machine) -> SeenMachine:
        return _look(
            machine, here=here, interpreter=interpreter, configuration=configuration, within=within
        )

    with ThreadPoolExecutor(max_workers=min(AT_ONCE, len(machines))) as pool:
        return _apart(list(pool.map(look, machines)))


def _look(
    machine: Machine,
    *,
    here: Mapping[str, Any],
    interpreter: str,
    configuration: Path | None,
    within: float,
) -> SeenMachine:
    command = hostfile.ssh_command(machine.name, argv(interpreter), configuration=configuration)
    began = time.monotonic()
    try:
        with AgentChannel(command, within=within) as channel:
            ready = time.monotonic() - began
            facts = facts_of(channel.ask("facts", interpreter=interpreter, within=within))
            clock = channel.clock()
            up = _rate(lambda: channel.ask("take", content=bytes(SAMPLE), within=within))
            down = _rate(lambda: channel.ask("give", bytes=SAMPLE, within=within))
    except FileNotFoundError:
        return SeenMachine(
            machine=machine, problems=(("ssh is not installed", "install OpenSSH's client"),)
        )
    except Unreachable as error:
        remedy = hostfile.ssh_remedy(error.said) or f"try `ssh {machine.name} true`"
        return SeenMachine(machine=machine, problems=((str(error), remedy),))
    seen = SeenMachine(machine=machine, facts=facts, clock=clock, up=up, down=down, ready=ready)
    return replace(
        seen, problems=tuple(problems_of(facts, here=here)), notes=tuple(_notes(seen, here=here))
    )


def _rate(move: Callable[[], object]) -> float:
    began = time.perf_counter()
    move()
    return SAMPLE / (time.perf_counter() - began)


def facts_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an agent answered, if it is of the form that ours answers in.

    Raises:
        Unreachable: it is not.
    """
    packages = answer.get("packages")
    words = (
        "name",
        "machine",
        "python",
        "implementation",
        "executable",
        "system",
        "release",
        "architecture",
        "libc",
    )
    holds = (
        all(isinstance(answer.get(word), str) for word in words)
        and all(
            type(answer.get(word)) is int and 0 <= answer[word] < 2**63
            for word in ("cores", "memory", "free")
        )
        and isinstance(answer.get("programs"), dict)
        and isinstance(packages, dict)
        and all(
            isinstance(package, list)
            and len(package) == 2
            and all(isinstance(w, str) for w in package)
            for package in packages.values()
        )
    )
    if not holds:
        raise Unreachable(
            "its agent uses a different protocol; install the same version of Rankproof on both"
            " machines"
        )
    return dict(answer)


def problems_of(facts: Mapping[str, Any], *, here: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Why no rank can run on a machine of these facts, each with its remedy."""
    problems = []
    for what, remedy in (
        ("system", "all ranks of a world must run on the same system"),
        (
            "architecture",
            "its wheels differ; all ranks of a world must run on the same architecture",
        ),
        (
            "python",
            f"use --python to select {here['implementation']} {here['python']} on that machine",
        ),
    ):
        if facts[what] != here[what]:
            problems.append(
                (
                    f"its {what} is {printable(facts[what])}, but {here[what]} on this machine",
                    remedy,
                )
            )
    if differing := differences(facts["packages"], here["packages"]):
        more = len(differing) - MOST_NAMED
        named = ", ".join(differing[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        remedy = (
            "install from the same lock file on that machine, and select that interpreter"
            " with --python"
        )
        differ = "differs" if len(differing) == 1 else "differ"
        problems.append(
            (
                (
                    f"{plural(len(differing), 'package')} {differ} from the packages on this machine:"
                    f" {named}"
                ),
                remedy,
            )
        )
    if facts.get("unwritable"):
        remedy = "make it writable for this user, and free some space on that machine"
        problems.append(
            (
                (f"cannot write to its cache {printable(str(facts['unwritable']), limit=300)}"),
                remedy,
            )
        )
    if facts.get("unexecutable"):
        remedy = "use --python to select an interpreter that can be executed on that machine"
        problems.append(
            (
                (f"cannot execute its Python: {printable(str(facts['unexecutable']), limit=300)}"),
                remedy,
            )
        )
    if facts["free"] < LEAST_FREE:
        problems.append(
            (
                (
                    f"{facts['free'] / 2**30:.1f} GiB are free in its home folder, or in its"
                    " folder for received files"
                ),
                "free some space on that machine",
            )
        )
    return problems


def differences(there: Mapping[str, Sequence[str]], here: Mapping[str, Sequence[str]]) -> list[str]:
    """Each package that two environments do not have alike, in words.

    Args:
        there: name to version and digest of the wheel's files.
        here: the same of this interpreter's environment.
    """
    differing = []
    for name in sorted({*there, *here}.difference(BROUGHT)):
        expected = here.get(name)
        other = there.get(name)
        if expected is None or other is None:
            differing.append(
                f"{printable(name)} only on {'that' if expected is None else 'this'} machine"
            )
        elif expected[0] != other[0]:
            differing.append(f"{name} {printable(other[0])} instead of {expected[0]}")
        elif expected[1] != other[1] or not expected[1]:
            differing.append(
                f"{name} {expected[0]} from"
                f" {'another wheel' if expected[1] and other[1] else 'an unknown wheel'}"
            )
    return differing


def _notes(seen: SeenMachine, *, here: Mapping[str, Any]) -> list[str]:
    clock = seen.clock
    notes = []
    if clock is not None and abs(clock.offset) - clock.uncertainty > CLOCK_LIMIT:
        way = "ahead" if clock.offset > 0 else "behind"
        notes.append(
            f"its clock is {abs(clock.offset):.1f} s {way}; no verdict depends on it, but logs and"
            " certificates do"
        )
    for name, there in sorted(seen.facts["programs"].items()):
        if not there and here["programs"].get(name):
            notes.append(f"{printable(name)} is missing")
    if seen.facts["libc"] != here["libc"]:
        notes.append(
            f"its C library is {printable(seen.facts['libc'])}, but {here['libc']} on this machine"
        )
    return notes


def _apart(seen: list[SeenMachine]) -> list[SeenMachine]:
    """Return the same, where two names lead to one machine with that said of the later one: it is
    not another machine.
    """
    first: dict[str, str] = {}
    apart = []
    for entry in seen:
        identity = entry.facts.get("machine", "")
        name = first.setdefault(identity, entry.machine.name) if identity else entry.machine.name
        why = (f"it is the same machine as {name}", "keep one of the names, with the slots of both")
        apart.append(
            entry if name == entry.machine.name else replace(entry, problems=(*entry.problems, why))
        )
    return apart


CONNECTS_WITHIN = 60.0
# Wheels of a GPU's libraries are gigabytes, and come from somewhere.
MADE_WITHIN = 3600.0
# Beside a lock: where the wheels are of a torch that is on no index of Python's. nox reads it too.
TORCH = "torch-cpu.toml"
# What pip says where it finds no such wheel; the second, where the machine's pip has constraints.
NOT_FOUND = ("No matching distribution found", "ResolutionImpossible")


@dataclass(frozen=True, kw_only=True)
class Done:
    """What became of a machine.

    Attributes:
        machine: of the hostfile.
        said: what was done there.
        interpreter: of its environment, `~/` for its home folder; empty where there is none.
        why: why not; empty where it was done.
    """

    machine: Machine
    said: str = ""
    interpreter: str = ""
    why: str = ""


def prepare(
    machines: Sequence[Machine],
    *,
    lock: Path,
    wheels: Path | None,
    interpreter: str,
    configuration: Path | None = None,
    within: float = MADE_WITHIN,
) -> list[Done]:
    """Have the environment of a lock on every machine, several at a time; in their order.

    Args:
        machines: of a hostfile.
        lock: requirements, each with the sha256 of its files.
        wheels: a folder of them, which goes there by its digest, for machines without an index;
            None: as pip is configured there.
        interpreter: path of the Python there that environments are made of: of this one's version.
        configuration: file for ssh instead of the user's own.
        within: seconds until a machine has to be ready.

    Raises:
        OSError: the lock or the wheels cannot be read.
    """
    files = [store.files_of(place) for place in (lock, wheels) if place is not None]
    given = [(store.digest_of(file), file) for file in files]
    page = page_of(lock)

    def make(channel: AgentChannel) -> tuple[str, str]:
        for digest, listed in given:
            channel.give(digest, listed, within=within)
        digests = [digest for digest, _ in given]
        answer = channel.ask(
            "prepare",
            within=within,
            beats=True,
            lock=digests[0],
            wheels=digests[1] if wheels is not None else None,
            python=platform.python_version(),
            page=page,
        )
        place = str(answer.get("interpreter"))
        home = str(answer.get("home"))
        seconds = answer.get("seconds")
        took = f" in {seconds:.1f} s" if isinstance(seconds, float) else ""
        below = place.removeprefix(f"{home.rstrip('/')}/")
        return (f"made{took}" if answer.get("made") is True else "there"), (
            place if below == place else f"~/{below}"
        )

    return _each(machines, make, interpreter=interpreter, configuration=configuration)


def page_of(lock: Path) -> str | None:
    """Return the page with the wheels of the torch that a lock pins, where a file beside the lock
    names one; else None.

    Raises:
        OSError: the file cannot be read, or does not say what it has to.
    """
    torch = lock.with_name(TORCH)
    if not torch.is_file():
        return None
    try:
        about = tomllib.loads(torch.read_text("utf-8"))
        pinned = f"torch=={about['version']}"
        index = str(about["index"])
    except (ValueError, KeyError) as error:
        raise OSError(f"{torch}: it does not contain a version and an index: {error}") from None
    words = lock.read_text("utf-8", "replace").split()
    return f"{index.rstrip('/')}/torch/" if pinned in words else None


def clean(
    machines: Sequence[Machine],
    *,
    most: int = store.MOST_KEPT,
    older: float = store.KEPT_FOR,
    interpreter: str,
    configuration: Path | None = None,
) -> list[Done]:
    """Take away of the caches on every machine what is older, or beyond a size, and used by nobody.

    Args:
        machines: of a hostfile.
        most: bytes that may stay of trees, and of environments.
        older: seconds since something was used last.
        interpreter: path of a Python there.
        configuration: file for ssh instead of the user's own.
    """

    def take_away(channel: AgentChannel) -> tuple[str, str]:
        answer = channel.ask("clean", most=most, older=older, within=MADE_WITHIN, beats=False)
        gone = answer.get("gone")
        freed = answer.get("freed")
        if type(gone) is not int or type(freed) is not int:
            raise Unreachable("its response does not state what was removed")
        return f"{gone} removed, {freed / 2**20:.1f} MiB", ""

    return _each(
        machines, take_away, interpreter=interpreter, configuration=configuration, lease=MADE_WITHIN
    )


def _each(
    machines: Sequence[Machine],
    do: Callable[[AgentChannel], tuple[str, str]],
    *,
    interpreter: str,
    configuration: Path | None,
    lease: float = 10.0,
) -> list[Done]:
    def reach(machine: Machine) -> Done:
        command = hostfile.ssh_command(machine.name, argv(interpreter), configuration=configuration)
        try:
            with AgentChannel(command, within=CONNECTS_WITHIN, lease=lease) as channel:
                said, place = do(channel)
        except FileNotFoundError:
            return Done(
                machine=machine,
                why=("ssh is not installed on this machine; install OpenSSH's client"),
            )
        except Unreachable as error:
            remedy = hostfile.ssh_remedy(error.said)
            if any(words in str(error) for words in NOT_FOUND):
                remedy = (
                    "pass a folder with the lock's wheels as --wheels; it is copied to that"
                    " machine, and no index is used"
                )
            return Done(machine=machine, why=f"{error}{f': {remedy}' if remedy else ''}")
        return Done(
            machine=machine,
            said=printable(said, limit=200),
            interpreter=printable(place, limit=1000),
        )

    with ThreadPoolExecutor(max_workers=min(AT_ONCE, len(machines))) as pool:
        return list(pool.map(reach, machines))
