# ruff: noqa: PT018, PTH118, S106
"""Tokenizers in threads and after forks: a way that holds beside one that people use.

Every scenario file of this folder shares this code. An arm says which way; nothing here knows which
outcome is right.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

TEXTS = ["a", "the quick brown fox jumps", "naïve café " * 8, "12345.678 " * 20]


def first_import(context, *, threads, way):
    """Entry: the first use of transformers happens in several threads at once.

    Args:
        context: the rank's context.
        threads: how many.
        way: `package` (`from transformers import AutoTokenizer` in each thread), `loader`
            (harness.tokenizer.loading in each thread), or `before` (imported by the main thread
            before there are others).
    """
    if way == "before":
        from transformers import AutoTokenizer  # noqa: F401
    start = threading.Barrier(threads)

    def work():
        start.wait()
        if way == "loader":
            from harness.tokenizer.loading.library import auto_tokenizer

            return auto_tokenizer().__name__
        from transformers import AutoTokenizer

        return AutoTokenizer.__name__

    failed = []
    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(work) for _ in range(threads)]:
            error = future.exception()
            if error is not None:
                failed.append(error)
    context.emit(
        "threads.done",
        failed=len(failed),
        errors=sorted({f"{type(one).__name__}: {one}" for one in failed})[:5],
    )
    if failed:
        raise failed[0]
    context.emit("threads.imported")


def shared(context, *, repository, threads, calls, way):
    """Entry: threads encode with different padding and truncation.

    The ids are compared with those of one thread.

    Args:
        context: the rank's context.
        repository: folder below the input `repositories`.
        threads: how many.
        calls: encodings of each thread.
        way: `one` tokenizer for all threads, or one `each`.
    """
    from transformers import AutoTokenizer

    folder = os.path.join(context.inputs["repositories"], repository)
    one = AutoTokenizer.from_pretrained(folder, pad_token="<|endoftext|>")
    lengths = [4 + 3 * slot for slot in range(threads)]
    expected = [encoded(one, length) for length in lengths]
    own = [
        one if way == "one" else AutoTokenizer.from_pretrained(folder, pad_token="<|endoftext|>")
        for _ in lengths
    ]
    start = threading.Barrier(threads)

    def work(slot):
        start.wait()
        wrong, errors = 0, []
        for _ in range(calls):
            try:
                wrong += encoded(own[slot], lengths[slot]) != expected[slot]
            except Exception as error:  # noqa: BLE001
                errors.append(type(error).__name__)
        return wrong, errors

    with ThreadPoolExecutor(threads) as pool:
        told = list(pool.map(work, range(threads)))
    wrong = sum(found for found, _ in told)
    errors = [name for _, names in told for name in names]
    context.emit(
        "encodings.compared",
        calls=threads * calls,
        wrong=wrong,
        errors=len(errors),
        kinds=sorted(set(errors)),
    )
    assert not wrong and not errors
    context.emit("encodings.same")


def encoded(tokenizer, length):
    """Ids of the texts, padded and cut to a length."""
    return tokenizer(TEXTS, padding="max_length", truncation=True, max_length=length)["input_ids"]


def fork(context, *, repository, parallelism, patience=10.0):
    """Entry: encode a batch, fork, encode the same in the child, which has `patience` seconds for
    it.
    """
    os.environ["TOKENIZERS_PARALLELISM"] = parallelism
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(
        os.path.join(context.inputs["repositories"], repository)
    )
    batch = TEXTS * 64
    before = tokenizer(batch)["input_ids"]
    # A library that was imported meanwhile may have set it.
    os.environ["TOKENIZERS_PARALLELISM"] = parallelism
    context.emit("fork.begin", parallelism=os.environ.get("TOKENIZERS_PARALLELISM"))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if tokenizer(batch)["input_ids"] == before else 2
        finally:
            os._exit(code)
    code = await_child(child, patience)
    context.emit("fork.end", code=code)
    if code is None:
        raise TimeoutError(f"the child had not encoded after {patience:g} s")
    assert code == 0
    context.emit("child.same")


def await_child(child, seconds):
    """Its exit code; None if it had to be killed."""
    descriptor = os.pidfd_open(child)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        ended = bool(poll.poll(seconds * 1000))
        if not ended:
            os.kill(child, signal.SIGKILL)
    finally:
        os.close(descriptor)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if ended else None
