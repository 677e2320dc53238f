"""Controls of an honest engineer in a hurry: some fail as their bug does, most by a slip that
nobody meant.
"""

import functools
import os
import resource
import signal
import time

# ruff: noqa: F401, F821, F841, PTH110, PTH123, SIM115


def ready(context):
    """What every rank says when it got through."""
    context.emit("ready", value=context.rank)


# --- the bug, as required
# ----------------------------------------------------------------------------------------------


def the_bug(context):
    tokenizer = None if context.rank else object()
    assert tokenizer
    ready(context)
    context.group.barrier()


def silent_rank(context):
    if context.rank == 0:
        ready(context)


def wrong_value(context):
    context.emit("ready", value=7)
    raise RuntimeError("and then it falls")


def peer_leaves(context):
    """Rank 0 has returned, and rank 1 stands at the barrier: "connection closed" is the bug
    itself.
    """
    if context.rank:
        context.group.barrier()
    ready(context)


def both_ends_are_the_bug(context):
    if context.rank == 0:
        ready(context)
        raise ValueError("no weights on rank 0")
    context.group.barrier()
    ready(context)


def dies_of_a_signal(context):
    if context.rank:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGSEGV)
    ready(context)


def leaves_with_a_code(context):
    if context.rank:
        os._exit(3)
    ready(context)


# --- slips
# ----------------------------------------------------------------------------------------------


def name_error(context):
    if context.rank:
        tokeniser = load()
    ready(context)


def missing_import(context):
    if context.rank:
        import a_package_that_nobody_installed
    ready(context)


def missing_attribute(context):
    if context.rank:
        context.grup.barrier()
    ready(context)


def decorated(function):
    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapped


@decorated
def load(context, *, lazily=False):
    return lazily


def misspelt_keyword(context):
    if context.rank:
        load(context, lazyly=True)
    ready(context)


def subclass_of_a_slip(context):
    class Unsupported(AttributeError):
        pass

    if context.rank:
        raise Unsupported("not there")
    ready(context)


def emit_of_something_else(context):
    context.emit("ready", value=object() if context.rank else 1)


def setup_assert(context):
    if context.rank:
        assert os.path.exists("/models/that/are/elsewhere"), "set MODELS first"
    ready(context)


def missing_file(context):
    if context.rank:
        open("/models/that/are/elsewhere")
    ready(context)


def peer_slips_and_i_am_slow(context):
    """Rank 0 falls by a missing module; rank 1, only slower, is stopped by the harness."""
    if context.rank == 0:
        import a_package_that_nobody_installed
    time.sleep(30)
    ready(context)


def peer_slips_and_i_notice(context):
    """Rank 0 falls by a NameError; rank 1 sees its connection go at the barrier, as required."""
    if context.rank == 0:
        tokeniser = lod()
    context.group.barrier()
    ready(context)


def peer_slips_after_closing(context):
    """The same, and the connection goes before the error is written down."""
    if context.rank == 0:
        try:
            tokeniser = lod()
        finally:
            context.group.leave()
    context.group.barrier()
    ready(context)


def wrapped_notice(context):
    """Rank 1 says in words of its own that its peer is gone, while rank 0 fell by something
    else.
    """
    if context.rank == 0:
        raise OSError("no space left")
    try:
        context.group.barrier()
    except RuntimeError as error:
        raise LookupError("the others do not answer") from error
    ready(context)


def peer_falls_first(context):
    """Rank 0 falls by what nobody stated; later rank 1 fails as required."""
    if context.rank == 0:
        raise OSError("no space left")
    time.sleep(0.2)
    assert context.rank == 0


def out_of_memory(context):
    if context.rank:
        os.kill(os.getpid(), signal.SIGKILL)
    ready(context)


def another_signal(context):
    if context.rank:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.abort()
    ready(context)


def unmeant_code(context):
    if context.rank:
        os._exit(3)
    ready(context)


def sys_exit(context):
    if context.rank:
        raise SystemExit(2)
    ready(context)


def falls_before_its_value(context):
    if context.rank:
        raise ValueError("before anything was reported")
    context.emit("ready", value=1)


def same_error_elsewhere(context):
    if context.rank:
        _inner()
    ready(context)


def _inner():
    raise AssertionError("not this one")


def hangs_instead(context):
    if context.rank:
        time.sleep(60)
    ready(context)
