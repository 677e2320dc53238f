# ruff: noqa: PTH115, PTH118, PTH119, PTH202, S310
"""Processes and threads that load a tokenizer with code of its own through one shared cache, while
one of them writes.

An arm says which loader; nothing here knows which outcome is right. What was loaded is compared
with the same files read from a folder, in a process of its own, whose copies of the code nobody
shares.
"""

from __future__ import annotations

import builtins
import io
import json
import os
import tempfile
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LONGEST = 90.0


def rankproof(repository, commit, cache):
    """Our loader."""
    from harness.tokenizer.loading import load

    return load(repository, revision=commit, cache=cache, trust_remote_code=True).tokenizer


def transformers(repository, commit, _cache):
    """What everybody does; HF_HOME is the shared folder."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(repository, revision=commit, trust_remote_code=True)


LOADERS = {"rankproof": rankproof, "transformers": transformers}


def load(context, *, loader, repository, code, before="", threads=4, stands=True):
    """Entry: rank 0 loads, and stands still for the fault while it writes the code's file.

    Then the others load.

    Args:
        context: the rank's context.
        loader: `rankproof` or `transformers`.
        repository: id on the hub.
        code: name of the file with the tokenizer's class.
        before: rank 0 stands before the line with this text; by default when the file is there and
            nothing is in it.
        threads: loads at once in every rank but rank 0, which makes one.
        stands: whether rank 0 stands there until the fault has struck; if not, all load at once and
            nothing is done.
    """
    # Read by the libraries when they are imported, which nothing did so far: the scenario starts
    # ranks fresh.
    os.environ["HF_HOME"] = os.path.join(context.shared, "home")
    cache = os.path.join(context.shared, "cache")
    folder = os.path.join(context.inputs["repositories"], repository)
    if context.rank == 0:
        leave(context, "reference", in_a_process(lambda: reference_of(folder)))
    # In every rank before any begins.
    import transformers.models.auto.tokenization_auto  # noqa: F401

    import harness.tokenizer as tokenizers_of
    from harness.tokenizer import observe

    reference = await_(context, "reference")
    leave(context, f"ready-{context.rank}", "")
    commit = head(repository)
    if context.rank == 0:
        for rank in range(1, context.size):
            await_(context, f"ready-{rank}")
        if stands:
            when_written(
                code,
                size_before(os.path.join(folder, code), before),
                lambda file: meet(context, file),
            )
        else:
            leave(context, "opened", "")
        loads = 1
    else:
        await_(context, "opened")
        loads = threads
    start = threading.Barrier(loads)

    def one(_):
        start.wait()
        return LOADERS[loader](repository, commit, cache)

    context.emit("loads.begin", loads=loads)
    with ThreadPoolExecutor(loads) as pool:
        futures = [pool.submit(one, slot) for slot in range(loads)]
    failed = [future.exception() for future in futures if future.exception() is not None]
    said = sorted(
        {
            f"{type(error).__name__}: {str(error).replace(context.shared, '')}"[:200]
            for error in failed
        }
    )
    context.emit("loads.done", loads=loads, failed=len(failed), errors=said[:5])
    if failed:
        raise failed[0]
    first = futures[0].result()
    context.emit("tokenizer.decodes", text=observe.short(first.decode(first.encode("Hello world"))))
    found = {tokenizers_of.identify(future.result()).semantic for future in futures}
    context.emit("tokenizer.identity", semantic=sorted(found), reference=reference)
    assert found == {reference}
    context.emit("tokenizer.same")


def meet(context, file):
    """Rank 0, when so much of the code is written: tell so, and let the others load."""
    size = os.path.getsize(file)
    leave(context, "opened", "")
    context.emit("code.standing", file=os.path.relpath(file, context.shared), size=size)
    context.emit("code.goes-on", written=os.path.getsize(file) - size)


def size_before(file, text):
    """Bytes before the line with this text."""
    whole = Path(file).read_bytes()
    return whole.rindex(b"\n", 0, whole.index(text.encode())) + 1 if text else 0


def when_written(name, size, do):
    """Call `do(path)` once, when this process has written `size` bytes of a file of this name.

    Whoever writes it, by whatever call of Python: the copy of transformers, and our loader's
    download. A write that would go beyond is cut short there, as the system may do with any; its
    caller writes the rest.
    """
    met = threading.Event()

    def stand(file):
        fits = isinstance(file, (str, os.PathLike)) and os.path.basename(file) == name
        if fits and not met.is_set() and os.path.getsize(file) == size:
            met.set()
            do(file)

    def opened(plain):
        def opening(file, *arguments, **options):
            found = plain(file, *arguments, **options)
            stand(file)
            return found

        return opening

    def left(descriptor):
        file = os.readlink(f"/proc/self/fd/{descriptor}")
        if os.path.basename(file) != name or met.is_set():
            return None
        stand(file)
        return None if met.is_set() else size - os.path.getsize(file)

    plain_write, plain_sendfile = os.write, os.sendfile

    def write(descriptor, data):
        return plain_write(descriptor, data[: left(descriptor)])

    def sendfile(descriptor, source, offset, count):
        most = left(descriptor)
        return plain_sendfile(
            descriptor, source, offset, count if most is None else min(count, most)
        )

    builtins.open = io.open = opened(io.open)
    os.open, os.write, os.sendfile = opened(os.open), write, sendfile


def head(repository):
    """The commit that the hub's branch `main` points to."""
    with urllib.request.urlopen(
        f"{os.environ['HF_ENDPOINT']}/api/models/{repository}", timeout=60
    ) as answer:
        return json.load(answer)["sha"]


def reference_of(folder):
    """The semantic digest of the same files, read from a folder by a process that shares no
    cache.
    """
    with tempfile.TemporaryDirectory() as home:
        os.environ["HF_HOME"] = home
        from transformers import AutoTokenizer

        import harness.tokenizer as tokenizers_of

        return tokenizers_of.identify(
            AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
        ).semantic


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


def leave(context, name, text):
    """Leave a word for everybody, in the folder that all ranks share.

    It is there whole or not at all.
    """
    draft = Path(context.shared, f".{name}")
    draft.write_text(text)
    draft.rename(Path(context.shared, f"word-{name}"))


def await_(context, name):
    """Wait until it is there, and read it."""
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        try:
            return Path(context.shared, f"word-{name}").read_text()
        except FileNotFoundError:
            time.sleep(0.005)
    raise TimeoutError(f"no rank left the word {name}")
