"""Subjects that break what is around them."""

import os
import shutil
import signal
import threading
from pathlib import Path


def close_and_return(context):
    """Close every descriptor."""
    if context.rank == 1:
        os.closerange(0, 4096)


def close_and_raise(context):
    """Close every descriptor and fail."""
    if context.rank == 1:
        os.closerange(0, 4096)
        raise ValueError("heard all the same")


def close_and_hang(context):
    """Close log and channel and hang; the group's own sockets stay, gloo aborts without them."""
    if context.rank == 1:
        os.closerange(0, 3)
        os.closerange(200, 4096)
        threading.Event().wait()


def error_file(context, kind):
    """Put something else where the error is told, and leave as if nothing had happened, or fail."""
    target = Path.cwd().parent / "error.json"
    if context.rank == 1:
        match kind:
            case "link":
                target.symlink_to("/etc/passwd")
            case "fifo":
                os.mkfifo(target)
            case "folder":
                target.mkdir()
                (target / "inside").write_text("x")
            case "huge":
                with target.open("wb") as file:
                    file.truncate(100 << 20)
            case "garbage":
                target.write_bytes(b'{"type": "X"')


def error_file_and_raise(context, kind):
    """The same, and then fail."""
    error_file(context, kind)
    if context.rank == 1:
        raise ValueError("heard all the same")


def delete_scratch(context):
    """Leave the folder, delete it, and go on."""
    if context.rank == 1:
        scratch = Path.cwd().parent
        os.chdir("/")
        shutil.rmtree(scratch)


def kill_parent(context, number=int(signal.SIGKILL)):
    """Rank 1 leaves a daemon and signals its keeper."""
    if context.rank == 1:
        _daemon()
        os.kill(os.getppid(), number)
    threading.Event().wait()


def kill_server(context, number=int(signal.SIGKILL)):
    """Rank 1 leaves a daemon and signals the keeper's parent."""
    if context.rank == 1:
        _daemon()
        os.kill(_parent(os.getppid()), number)
    threading.Event().wait()


def kill_warden(context):
    """Rank 1 leaves a daemon and kills the server's parent."""
    if context.rank == 1:
        _daemon()
        os.kill(_parent(_parent(os.getppid())), signal.SIGKILL)
    threading.Event().wait()


def own_group(context):
    """Kill the own process group, as a careless clean-up does."""
    if context.rank == 1:
        os.kill(0, signal.SIGKILL)


def _parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _daemon():
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.write(write, b"1")
            threading.Event().wait()
        os._exit(0)
    os.read(read, 1)
