"""Subjects to be struck."""

import errno
import hashlib
import os
import signal
import threading
from pathlib import Path


def pass_by(context):
    """Say three things; the fault strikes at the second."""
    context.emit("before")
    context.emit("door")
    context.emit("after", seen=os.environ.get("STRUCK"))


def stay(context):
    """Pass the door, and never return."""
    context.emit("door")
    threading.Event().wait()


def report(context):
    """Report numbers, ids and a text, and then once more."""
    for _ in range(2):
        context.emit(
            "door",
            loss=[0.0, 1.5, [2.5, -3.0]],
            ids={"a": [1, 2], "b": [3]},
            text="déjà vu",
            nothing=None,
        )
    context.emit("after")


def end_when_continued(context, *, by=None):
    """End at the very moment it is continued, without its gate: with code 0, or by a signal."""
    # Whichever thread the kernel gives the signal to, this pipe tells of it; the main thread waits
    # at its gate.
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.signal(signal.SIGCONT, lambda *_: None)
    signal.set_wakeup_fd(tell)

    def end():
        os.read(told, 1)
        if by is None:
            os._exit(0)
        os.kill(os.getpid(), by)

    threading.Thread(target=end, daemon=True).start()
    context.emit("door")


def probe(context):
    """After the door, open a file, write a large one, map much memory, compute.

    Tell what came of each.
    """
    import mmap
    import tempfile
    import time

    folder = Path(tempfile.gettempdir())
    context.emit("door")

    def large(size=1 << 18):
        with (folder / "large").open("wb", buffering=0) as file:
            while size > 0:
                size -= file.write(b"x" * min(size, 4096))

    told = {}
    for name, act in (
        ("open", lambda: Path(os.devnull).open().close()),
        ("write", large),
        ("map", lambda: mmap.mmap(-1, 1 << 28).close()),
    ):
        try:
            act()
            told[name] = "done"
        except OSError as error:
            told[name] = errno.errorcode.get(error.errno, str(error))
    until = time.monotonic() + 0.15
    while time.monotonic() < until:
        pass
    context.emit("after", told=told)
    context.group.barrier()


def store(context, *, own="home"):
    """Keep a file in a folder of its own and one that all share.

    After the door use both, and tell what came of it.

    Then again, as soon as nothing is refused any more, or after a while.
    """
    import time

    for folder in _folders(context, own):
        folder.mkdir(exist_ok=True)
        (folder / f"kept-{context.rank}").write_bytes(b"k" * 1000)
    context.group.barrier()
    context.emit("door")
    context.emit("after", told=_stored(context, own))
    until = time.monotonic() + 0.5
    while {(told := _stored(context, own))["own"], told["shared"]} != {
        "done"
    } and time.monotonic() < until:
        pass
    context.emit("later", told=told)


def _folders(context, own):
    top = Path(os.environ["TMPDIR"]) if own == "temporary" else Path.home()
    return top / f"own-{context.rank}", Path(context.shared) / "all"


def _stored(context, own):
    told = {}
    for name, folder in zip(("own", "shared"), _folders(context, own), strict=True):
        try:
            content = (folder / f"kept-{context.rank}").read_bytes()
            told[f"{name}-kept"] = [len(content), content.count(b"k")]
            (folder / f"new-{context.rank}").write_bytes(b"x" * 100_000)
            told[name] = "done"
        except OSError as error:
            told[name] = errno.errorcode[error.errno]
    return told


def clocks(context):
    """Tell what each of Python's clocks says, and how torch computes, behind the door."""
    import datetime as dt
    import time

    import torch

    context.emit("door")
    now = time.time()
    context.emit(
        "after",
        ns=time.time_ns() / 1e9 - now,
        local=time.mktime(time.localtime()) - now,
        utc=dt.datetime.now(dt.UTC).timestamp() - now,
        kernel=_file_time(context) - now,
        monotonic=time.monotonic(),
        threads=torch.get_num_threads(),
        dtype=str(torch.ones(1).dtype),
    )


def _file_time(context):
    """The kernel's own wall clock, by way of a file."""
    file = Path(context.shared) / f"now-{context.rank}"
    file.touch()
    return file.stat().st_mtime


def catch(context):
    """Catch whatever is raised at the door."""
    try:
        context.emit("door")
    except OSError as error:
        context.emit("caught", type=type(error).__name__, message=str(error))
    context.group.barrier()


def never(context):
    """Return without passing the door."""
    context.emit("before")


def die_before(context):
    """Rank 1 dies of its own before it reaches the door."""
    if context.rank == 1:
        raise LookupError("of my own")
    context.emit("door")


def survive_sigterm(context):
    """Take no notice of SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    context.emit("door")


def hang_before(context):
    """Rank 1 never reaches the door."""
    if context.rank == 1:
        threading.Event().wait()
    context.emit("door")


def ask(context):
    """Ask the hub for one thing between two events, and tell what came back."""
    context.emit("door")
    context.emit("after", told=_asked())


def ask_until_answered(context):
    """Ask the hub for one thing again and again until it gives it.

    Tell what came back, each change of it once.
    """
    context.emit("door")
    told = [_asked()]
    while told[-1] != 200:
        if (answer := _asked()) != told[-1]:
            told.append(answer)
    context.emit("after", told=told)


def _asked():
    import urllib.error
    import urllib.request

    try:
        address = f"{os.environ['HF_ENDPOINT']}/api/models/lab/tiny"
        # The hub of this test.
        with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310
            answer.read()
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except (OSError, ValueError) as error:
        return type(error).__name__


def threads(context):
    """Tell how many threads torch has."""
    import torch

    context.emit("threads", count=torch.get_num_threads())


def outlive(context):
    """Rank 0 works on when rank 1 has gone."""
    context.emit("door")
    if context.rank == 0:
        for turn in range(5):
            context.emit("worked", turn=turn)


def gather(context, *, rounds, inside):
    """Gather in a loop; half-way the door is passed before a round, or by another thread while
    rounds go on.
    """
    digest, thread = hashlib.sha256(), None
    for turn in range(rounds):
        if turn == rounds // 2 and context.rank == 1:
            if inside:
                thread = threading.Thread(target=context.emit, args=("door",))
                thread.start()
            else:
                context.emit("door")
        for found in context.group.all_gather(f"{context.rank} {turn}".encode()):
            digest.update(found)
    # A ring does two hundred rounds in milliseconds: go on until the thread came through, so that
    # the pause lands.
    passed = b"0"
    while inside and passed == b"0":
        alive = thread is not None and thread.is_alive()
        passed = context.group.all_gather(b"0" if alive else b"1")[1]
    context.emit("gathered", digest=digest.hexdigest())


def meet(context, *, how):
    """Meet the others after the door, over and over, in one of a backend's ways."""
    context.emit("door")
    for _ in range(1000):
        MEETINGS[how](context)


def reduce_and_swallow(context):
    """Meet the others in sums; rank 2 waits for good where one of them fails, and says what it
    counted before.
    """
    for number in range(1000):
        context.emit("round", number=number)
        context.emit("door")
        try:
            _reduce(context)
        except RuntimeError:
            if context.rank == 2:
                threading.Event().wait()
            raise


def count(context, *, rounds):
    """Count rounds of a sum, each said after it is done."""
    for number in range(rounds):
        if number == 2:
            context.emit("door")
        _reduce(context)
        context.emit("round", number=number)


def _reduce(context):
    import torch

    context.group.native.all_reduce(torch.ones(1))


def _receive(context):
    import torch

    context.group.native.recv(torch.ones(1), src=1)


def _ask_the_store(context):
    context.group.native.distributed_c10d._get_default_store().get("nobody sets this")


MEETINGS = {
    "barrier": lambda context: context.group.barrier(),
    "all_gather": lambda context: context.group.all_gather(b"some bytes"),
    "reduce": _reduce,
    "receive": _receive,
    "store": _ask_the_store,
}
