"""Commands of ours in processes of their own, forked from one that has imported what they need.

An interpreter that imports it all takes as long as most commands. Folder, streams, variables and
arguments are those that a process started for the command would have.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import BaseModel

ROOT = Path(__file__).parents[2]
# Variables that an interpreter, its loader and its C library read once.
AT_START = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "TZ")
ENDS_WITHIN = 300
LIMIT = 1 << 20


def run(
    *arguments: str, cwd: Path, env: Mapping[str, str], merged: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and until nobody holds its streams, as `subprocess.run` would,
    without an input.

    Args:
        *arguments: its words.
        cwd: the folder that it begins in.
        env: its whole environment; one that acts on a starting interpreter gets an interpreter of
            its own.
        merged: whether its errors come among its output.

    Raises:
        subprocess.TimeoutExpired: it did not end within `ENDS_WITHIN` seconds.
    """
    if _at_start(env) != _at_start(_environment()):
        return subprocess.run(
            [sys.executable, "-m", "harness.cli", *arguments],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merged else subprocess.PIPE,
            text=True,
            timeout=ENDS_WITHIN,
            check=False,
        )
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    request = json.dumps(
        {
            "arguments": arguments,
            "cwd": str(cwd),
            "env": dict(env),
            "processors": _processors(),
            "within": ENDS_WITHIN,
        }
    ).encode()
    with os.fdopen(out) as output, os.fdopen(err) as errors, ThreadPoolExecutor(2) as readers:
        try:
            socket.send_fds(_server(), [request], [out_end, out_end if merged else err_end])
        finally:
            os.close(out_end)
            os.close(err_end)
        texts = [readers.submit(stream.read) for stream in (output, errors)]
        code = int(_server().recv(LIMIT))
        said, complained = (text.result() for text in texts)
    if code == -signal.SIGALRM:
        raise subprocess.TimeoutExpired([*arguments], ENDS_WITHIN, said, complained)
    return subprocess.CompletedProcess([*arguments], code, said, complained)


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(AT_START)}


def _processors() -> list[int]:
    """Those that a process started here may use; empty where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def _environment() -> dict[str, str]:
    """What the server is started with."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {**kept, "PYTHONPATH": str(ROOT)}


@functools.cache
def _server() -> socket.socket:
    """The connection to the server of this process, which ends with it."""
    here, there = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with there:
        server = subprocess.Popen(
            [sys.executable, "-m", __name__, str(there.fileno())],
            cwd=ROOT,
            env={**_environment(), "PYDANTIC_DISABLE_PLUGINS": "__all__"},
            pass_fds=[there.fileno()],
            stdin=subprocess.DEVNULL,
            # As its children's: Python's streams know of theirs whether they can seek.
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    atexit.register(server.communicate)
    atexit.register(here.close)
    return here


def _complete(model: type[BaseModel]) -> None:
    """Build what the models of a kind read with; each is built at its first use otherwise."""
    for kind in model.__subclasses__():
        kind.model_rebuild()
        _complete(kind)


def serve(control: int) -> None:
    """Fork for one request after the other, until who asks is gone.

    Returns in each child, ready to be the command.
    """
    import harness.cli.run
    import harness.cli.running
    import harness.cli.view
    from harness import checks, faults
    from harness.forms.model import Model
    from harness.record.environment import packages
    from harness.record.model import Record
    from harness.run.arms.packages import installed, search_path
    from harness.scenario import load_scenario
    from harness.scenario.model import json_schema

    # What reads a scenario, an override and a record is made when the first is read, for every
    # process anew.
    load_scenario(ROOT / "scenarios" / "late-rank")
    for kind in (*checks.KINDS.ours.values(), *faults.KINDS.ours.values()):
        kind.model_rebuild()
    Record.model_rebuild()
    json_schema({})
    _complete(Model)
    # What is worked out from the texts of installed distributions is kept; the texts are read each
    # time.
    packages()
    installed(search_path(None), names=(), wanted=lambda _: False)
    gc.freeze()
    # Ctrl-C is for the command, and for who asked.
    interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = socket.socket(fileno=control)
    while True:
        request, descriptors, _, _ = socket.recv_fds(channel, LIMIT, 2)
        if not request:
            os._exit(0)
        if (pid := os.fork()) == 0:
            break
        for descriptor in descriptors:
            os.close(descriptor)
        _, status = os.waitpid(pid, 0)
        channel.send(str(os.waitstatus_to_exitcode(status)).encode())
    signal.signal(signal.SIGINT, interrupted)
    given = json.loads(request)
    signal.alarm(given["within"])
    channel.close()
    for number, descriptor in enumerate(descriptors, start=1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if given["processors"]:
        os.sched_setaffinity(0, given["processors"])
    os.chdir(given["cwd"])
    os.environ.clear()
    os.environ.update(given["env"])
    sys.path[0] = given["cwd"]  # where `-m` puts it
    sys.argv = [str(Path(harness.cli.__file__).with_name("__main__.py")), *given["arguments"]]


if __name__ == "__main__":
    from harness.cli import main

    serve(int(sys.argv[1]))
    raise SystemExit(main())
