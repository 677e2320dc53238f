# ruff: noqa: ARG001, ARG005, PLR0402, PTH103, PTH118, SLF001
"""Processes that load the same tokenizer through one cache, in the situations that caches break in.

Every scenario file of this folder shares this code. An arm says which loader, a file which
situation; nothing here says which outcome is the right one. Whatever was loaded is compared with
the same files read from a folder, offline, in a process of its own.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
import threading
import traceback
from pathlib import Path

from loaders import LOADERS
from ranks import Halfway, Signs, await_end, files

import harness.tokenizer as tokenizers_of
import harness.tokenizer.observe as observe

HALF = 1_500_000
"""Bytes after which rank 0 stands still: about half of the largest repository's tokenizer.json."""


def together(context, *, loader, repository, patience=20.0, flock="works"):
    """Entry: all ranks but one load at the same time into the empty cache.

    When they are done, rank 0 loads from it.
    """
    lock(flock)
    signs = Signs(context.shared)
    others = range(1, context.size)
    if context.rank == 0:
        for rank in others:
            signs.await_(f"done-{rank}")
        load_and_compare(context, loader=loader, repository=repository, patience=patience)
        return
    try:
        load_and_compare(context, loader=loader, repository=repository, patience=patience)
    finally:
        signs.leave(f"done-{context.rank}")


def after_a_kill(context, *, loader, repository, patience=20.0, flock="works", elsewhere=False):
    """Entry: rank 0 stands still in the middle of its download, where it is killed.

    Then the others load.

    Args:
        context: the rank's context.
        loader: see loaders.py.
        repository: id on the hub.
        patience: seconds after which a load that has not ended counts as hanging.
        flock: `works`, `ignored` (each call succeeds and does nothing) or `refused` (ENOSYS).
        elsewhere: rank 0 bears another host's name, as in another container that mounts the same
            cache.
    """
    lock(flock)
    signs = Signs(context.shared)
    if context.rank == 0:
        if elsewhere:
            socket.gethostname = lambda: "another-container"
        stand_halfway(context, signs, loader=loader, repository=repository, patience=patience)
        return
    await_end(signs.await_("half")["pid"])
    load_and_compare(context, loader=loader, repository=repository, patience=patience)


def behind_a_stopped_one(context, *, loader, repository, patience=5.0):
    """Entry: rank 0 is stopped in the middle of its download.

    The others load, and may say whom they wait for.

    One that said so, with the right process, waits until rank 0 has gone on, and loads then.
    """
    signs = Signs(context.shared)
    if context.rank == 0:
        stand_halfway(context, signs, loader=loader, repository=repository, patience=10 * patience)
        signs.leave("whole")
        return
    holder = signs.await_("half")["pid"]
    try:
        load_and_compare(context, loader=loader, repository=repository, patience=patience)
    except Exception as error:
        named = re.search(rf"\bprocess {holder}\b.*\bstopped\b", str(error))
        if not named:
            raise
        context.emit(
            "holder.named", pid=holder, said=observe.short(str(error)), type=type(error).__name__
        )
        signs.await_("whole")
        load_and_compare(context, loader=loader, repository=repository, patience=patience)


def with_half_a_file(context, *, loader, repository, file, patience=20.0):
    """Entry: a file of a warm cache loses its second half, as after a full disk or a crash.

    Then all load from it.
    """
    signs = Signs(context.shared)
    if context.rank == 0:
        cache = shared_cache(context)
        LOADERS[loader](repository, cache, patience=patience)
        whole = next(path for path in Path(cache).rglob(file))
        size = whole.stat().st_size
        # At the end of a line: what is left is a whole file to every parser.
        os.truncate(whole.resolve(), whole.read_bytes().index(b"\n", size // 2) + 1)
        context.emit("file.halved", file=file, before=size, after=whole.stat().st_size)
        signs.leave("halved")
    signs.await_("halved")
    load_and_compare(context, loader=loader, repository=repository, patience=patience)


def stand_halfway(context, signs, *, loader, repository, patience):
    """Rank 0: load in a thread that stands still at the half; meet the fault there, then go on."""
    halfway = Halfway(after=HALF)

    def meet():
        halfway.reached.wait()
        signs.leave("half", pid=os.getpid())
        context.emit("download.half", files=files(shared_cache(context)))
        halfway.go()

    threading.Thread(target=meet, daemon=True).start()
    load_and_compare(context, loader=loader, repository=repository, patience=patience)


def load_and_compare(context, *, loader, repository, patience):
    """Load; tell everything about it; raise if it fails, hangs, or hands back another tokenizer."""
    reference = in_a_process(lambda: reference_of(context, repository))
    cache = shared_cache(context)
    context.emit("cache.before", **observe.cache(cache))
    with observe.Logs(hide=cache) as logs:
        context.emit("tokenizer.load.begin")
        try:
            tokenizer = within(patience, LOADERS[loader], repository, cache, patience=patience)
        except Exception as error:
            context.emit("tokenizer.failed", error=observe.chain(error))
            context.emit("tokenizer.logs", **logs.messages())
            raise
        context.emit("tokenizer.load.end")
    found = tokenizers_of.identify(tokenizer)
    context.emit(
        "tokenizer.identity", semantic=found.semantic, full=found.full, reference=reference
    )
    context.emit("cache.after", **observe.cache(cache))
    assert found.semantic == reference
    context.emit("tokenizer.same")


def shared_cache(context):
    """The one cache of all ranks."""
    cache = os.path.join(context.shared, "cache")
    os.makedirs(cache, exist_ok=True)
    return cache


def reference_of(context, repository):
    """The semantic digest of the same files, read from a folder."""
    from transformers import AutoTokenizer

    folder = os.path.join(context.inputs["repositories"], repository)
    return tokenizers_of.identify(AutoTokenizer.from_pretrained(folder)).semantic


def within(seconds, work, *arguments, **options):
    """Do it in a thread; raise TimeoutError, with the line that it hangs at, if it has not ended
    after `seconds`.
    """
    found, failed = [], []

    def run():
        try:
            found.append(work(*arguments, **options))
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if found:
        return found[0]
    frames = [
        f"{frame.filename.rpartition('site-packages/')[2]}:{frame.lineno}:{frame.name}"
        for frame in stack(thread)
    ]
    raise TimeoutError(f"no tokenizer and no error after {seconds:g} s; it is at {frames[-1:]}")


def stack(thread):
    """Where a thread stands."""
    import sys

    frame = sys._current_frames().get(thread.ident)
    return traceback.extract_stack(frame) if frame else []


def in_a_process(work):
    """The text that a forked process works out."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            os.write(writing, work().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        said = stream.read().decode()
    os.waitpid(child, 0)
    if not said:
        raise RuntimeError("the reference could not be worked out; the log says why")
    return said


def lock(kind):
    """Make flock as some file systems have it: see `after_a_kill`."""
    if kind == "ignored":
        fcntl.flock = lambda descriptor, operation: None
    elif kind == "refused":

        def refuse(descriptor, operation):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

        fcntl.flock = refuse


def with_a_spoiled_file(context, *, loader, repository, file, patience=20.0):
    """Entry: a file of a warm cache is spoiled while rank 0 stands at `cache.warm`.

    Then all load from it.
    """
    signs = Signs(context.shared)
    if context.rank == 0:
        cache = shared_cache(context)
        LOADERS[loader](repository, cache, patience=patience)
        place = next(
            path
            for path in Path(cache).rglob(file)
            if "snapshots" in path.parts or "files" in path.parts
        )
        # Where a cache keeps a file is the cache's own business: the fault finds it under this
        # name.
        Path(context.shared, "victim").symlink_to(place.parent)
        context.emit("cache.warm", file=file, folder=str(place.parent.relative_to(cache)))
        signs.leave("spoiled")
    signs.await_("spoiled")
    load_and_compare(context, loader=loader, repository=repository, patience=patience)


def on_a_bad_disk(context, *, loader, repository, words, patience=20.0):
    """Entry: what the last rank has of the shared cache goes bad before it loads.

    The others load from it as ever.

    Args:
        context: the rank's context.
        loader: see loaders.py.
        repository: id on the hub.
        words: what the system says of such a disk; an error has to say it too, and where.
        patience: seconds after which a load that has not ended counts as hanging.
    """
    cache = shared_cache(context)
    if context.rank != context.size - 1:
        load_and_compare(context, loader=loader, repository=repository, patience=patience)
        return
    context.emit("cache.before-load")
    try:
        within(patience, LOADERS[loader], repository, cache, patience=patience)
    except Exception as error:  # noqa: BLE001 - whatever the loader says is looked at
        said = str(error)
        context.emit("tokenizer.failed", error=observe.chain(error))
    else:
        return
    assert words in said
    assert cache in said
    context.emit("disk.named", said=observe.short(said))


def from_a_cache_that_cannot_be_written(context, *, loader, repository, patience=20.0):
    """Entry: rank 0 fills the cache.

    Then rank 1, for whom it has become read-only, loads from it.
    """
    signs = Signs(context.shared)
    if context.rank == 0:
        load_and_compare(context, loader=loader, repository=repository, patience=patience)
        signs.leave("warm")
        return
    signs.await_("warm")
    context.emit("cache.before-load")
    load_and_compare(context, loader=loader, repository=repository, patience=patience)
