"""Load a tokenizer as a pool of renderers does: some threads, each with its own call, on a cache of
the rank's own.

Every scenario file of this folder shares this code. An arm says what it does about the hub; nothing
here knows which outcome is the right one.
"""

from __future__ import annotations

import os
import tempfile
import threading
import urllib.error
import urllib.request

from harness.tokenizer import observe


def load(
    context,
    *,
    repository,
    threads=1,
    source="hub",
    cache="cold",
    in_turn=False,
    use_fast="unset",
    ask=False,
):
    """Entry: raise the first error if any load failed; emit `tokenizer.loaded` if none did.

    Args:
        context: the rank's context.
        repository: id of the repository on the hub.
        threads: how many loads.
        in_turn: one load after the other; otherwise all at once, each in a thread of its own.
        source: `hub`; `folder`, a local copy; or `environment`, what HF_HUB_OFFLINE of the rank's
            environment says.
        cache: `cold` (empty); `warm`, another process loaded the same tokenizer into it; or
            `asked`, empty, but another process asked the hub for the model's description once, as
            the one that warms does.
        use_fast: `unset`, or what is passed on.
        ask: another process asks for the model's description again after the loads, to show what
            the hub answers.
    """
    failed = loads(
        context, repository=repository, threads=threads, source=source, cache=cache, in_turn=in_turn,
        use_fast=use_fast, ask=ask,
    )  # fmt: skip
    if failed:
        raise failed[0]
    context.emit("tokenizer.loaded")


def tell(context, **arguments):
    """Entry: what `load` does, but a load that failed is told and not raised.

    `told` is what its error says.
    """
    failed = loads(context, **arguments)
    told = all(any("status" in link for link in observe.chain(error)) for error in failed)
    context.emit("pool.told", failed=len(failed), cause_is_told=told)


def loads(
    context,
    *,
    repository,
    threads=1,
    source="hub",
    cache="cold",
    in_turn=False,
    use_fast="unset",
    ask=False,
):
    """Load, tell everything about it, return the errors."""
    # Imported before any thread starts: that race is another question.
    from transformers import AutoTokenizer

    context.emit("tokenizer.versions", **observe.versions())
    with tempfile.TemporaryDirectory() as folder:
        where, options = repository, {"cache_dir": folder}
        if use_fast != "unset":
            options["use_fast"] = use_fast
        if source == "folder":
            where = f"{context.inputs['repositories']}/{repository}"
        if cache == "warm":
            told = apart(lambda: warm(AutoTokenizer.from_pretrained, repository, folder))
            context.emit("neighbour.loaded", told=told)
        elif cache == "asked":
            context.emit("neighbour.asked", told=apart(lambda: answer(repository)))
        if source == "hub":
            go_online()
        context.emit("cache.before", **observe.cache(folder))
        with observe.Logs(hide=folder) as logs:
            context.emit("tokenizer.load.begin", threads=threads)
            outcomes = pool(
                AutoTokenizer.from_pretrained, where, options, threads=threads, in_turn=in_turn
            )
            context.emit("tokenizer.load.end")
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        for slot, outcome in enumerate(outcomes):
            bad = isinstance(outcome, BaseException)
            told = (
                {"error": observe.chain(outcome)}
                if bad
                else {"tokenizer": observe.describe(outcome)}
            )
            context.emit("tokenizer.slot", slot=slot, failed=bad, **told)
        context.emit("tokenizer.logs", **logs.messages())
        context.emit("cache.after", **observe.cache(folder))
        if ask:
            context.emit("neighbour.asked", told=apart(lambda: answer(repository)))
    context.emit("pool.done", loads=len(outcomes), failed=len(failed))
    return failed


def one(from_pretrained, where, options):
    """The call in question."""
    return from_pretrained(where, **options)


def go_online():
    """Take HF_HUB_OFFLINE back; the library looks at this each time, and at the environment when it
    is imported.
    """
    import huggingface_hub.constants

    huggingface_hub.constants.HF_HUB_OFFLINE = False


def warm(from_pretrained, repository, folder):
    """Fill a cache from the hub."""
    go_online()
    return type(one(from_pretrained, repository, {"cache_dir": folder})).__name__


def pool(from_pretrained, where, options, *, threads, in_turn):
    """Fill every slot, with a tokenizer or with the exception that its load raised."""
    slots = [None] * threads
    start = threading.Barrier(1 if in_turn else threads)

    def fill(slot):
        try:
            start.wait()
            slots[slot] = one(from_pretrained, where, options)
        except Exception as error:  # noqa: BLE001
            slots[slot] = error

    if in_turn or threads == 1:
        for slot in range(threads):
            fill(slot)
        return slots
    workers = [threading.Thread(target=fill, args=(slot,)) for slot in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return slots


def apart(work):
    """Do something in a forked process, whose requests are not the rank's, and return its text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            try:
                said = work()
            except Exception as error:  # noqa: BLE001
                said = f"{type(error).__name__}: {observe.short(str(error))}"
            os.write(writing, str(said).encode()[:2000])
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        said = stream.read().decode("utf-8", "replace")
    os.waitpid(child, 0)
    return said


def answer(repository):
    """The status that the hub answers a question for the model's description with."""
    address = f"{os.environ['HF_ENDPOINT']}/api/models/{repository}"
    try:
        # The scenario's own hub.
        with urllib.request.urlopen(address, timeout=10) as response:  # noqa: S310
            return str(response.status)
    except urllib.error.HTTPError as error:
        return str(error.code)
