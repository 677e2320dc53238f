"""Making the machines of a hostfile ready: the same environment on each, from one lock.

And cleaning up after runs.
"""

from __future__ import annotations

import platform
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from harness.forms.text import printable
from harness.world.machines import store
from harness.world.machines.agent_channel import AgentChannel, Unreachable, argv
from harness.world.starters import hostfile
from harness.world.starters.hostfile import Machine

ANSWERS_WITHIN = 60.0
# Wheels of a GPU's libraries are gigabytes, and come from somewhere.
MADE_WITHIN = 3600.0
AT_ONCE = 16
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
    given = [(store.digest_of(one), one) for one in files]
    page = page_of(lock)

    def make(channel: AgentChannel) -> tuple[str, str]:
        for digest, listed in given:
            channel.give(digest, listed, within=within)
        digests = [digest for digest, _ in given]
        told = channel.ask(
            "prepare",
            within=within,
            beats=True,
            lock=digests[0],
            wheels=digests[1] if wheels is not None else None,
            python=platform.python_version(),
            page=page,
        )
        place = str(told.get("interpreter"))
        home = str(told.get("home"))
        seconds = told.get("seconds")
        took = f" in {seconds:.1f} s" if isinstance(seconds, float) else ""
        below = place.removeprefix(f"{home.rstrip('/')}/")
        return (f"made{took}" if told.get("made") is True else "there"), (
            place if below == place else f"~/{below}"
        )

    return _each(machines, make, interpreter=interpreter, configuration=configuration)


def page_of(lock: Path) -> str | None:
    """The page with the wheels of the torch that a lock pins, where a file beside the lock names
    one; else None.

    Raises:
        OSError: the file cannot be read, or does not say what it has to.
    """
    beside = lock.with_name(TORCH)
    if not beside.is_file():
        return None
    try:
        about = tomllib.loads(beside.read_text("utf-8"))
        pinned = f"torch=={about['version']}"
        index = str(about["index"])
    except (ValueError, KeyError) as error:
        raise OSError(f"{beside}: it does not name a version and an index: {error}") from None
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
        told = channel.ask("clean", most=most, older=older, within=MADE_WITHIN, beats=False)
        gone = told.get("gone")
        freed = told.get("freed")
        if type(gone) is not int or type(freed) is not int:
            raise Unreachable("it does not count")
        return f"{gone} taken away, {freed / 2**20:.1f} MiB", ""

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
    def one(machine: Machine) -> Done:
        command = hostfile.ssh_command(machine.name, argv(interpreter), configuration=configuration)
        try:
            with AgentChannel(command, within=ANSWERS_WITHIN, lease=lease) as channel:
                said, place = do(channel)
        except FileNotFoundError:
            return Done(machine=machine, why="ssh is not installed here: install OpenSSH's client")
        except Unreachable as error:
            remedy = hostfile.ssh_remedy(error.said)
            if any(words in str(error) for words in NOT_FOUND):
                remedy = (
                    "name a folder with the lock's wheels by --wheels: it is sent there, and no"
                    " index is asked"
                )
            return Done(machine=machine, why=f"{error}{f': {remedy}' if remedy else ''}")
        return Done(
            machine=machine,
            said=printable(said, limit=200),
            interpreter=printable(place, limit=1000),
        )

    with ThreadPoolExecutor(max_workers=min(AT_ONCE, len(machines))) as pool:
        return list(pool.map(one, machines))
