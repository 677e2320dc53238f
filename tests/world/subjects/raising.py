"""Subjects that raise."""

import sys

HOSTILE = (
    "\x1b[2J\x1b[31m\u202ePASS\u202c -----BEGIN SSH SIGNATURE----- </details> | `x` \udcff \0 end"
)


def bare(context):
    """Fail as the bug did."""
    tokenizer = None
    assert tokenizer


def hostile(context):
    """Fail with a text that wants to be more than text."""
    raise ValueError(HOSTILE)


def long(context):
    """Fail with a megabyte."""
    raise ValueError("x" * 1_000_000)


class Mute(Exception):
    """Has no text."""

    def __str__(self):
        raise SystemExit("no")


def mute(context):
    """Fail with something that cannot be printed."""
    raise Mute


class Liar(str):
    """A text that lies about itself."""

    __slots__ = ()

    def __len__(self):
        return -5  # noqa: PLE0303 - the lie

    def __getitem__(self, key):
        raise KeyError(key)


class Twisted(Exception):
    """Every look at it raises."""

    @property
    def __cause__(self):
        raise RuntimeError("do not look")

    def __str__(self):
        return Liar("text")


def twisted(context):
    """Fail with something that cannot be described."""
    raise Twisted


def group(context):
    """Fail in two ways at once."""
    raise ExceptionGroup("both", [ValueError("one"), TypeError("two")])


def deep(context):
    """Fall through the stack."""

    def down(level):
        return down(level + 1) + 1

    down(0)


def very_deep(context):
    """Fall far."""
    sys.setrecursionlimit(100_000)

    def down(level):
        if level == 50_000:
            raise ValueError("bottom")
        down(level + 1)

    down(0)


def chain(context):
    """Fail because something else failed."""
    try:
        {}["weights"]
    except KeyError as error:
        raise RuntimeError("no weights") from error


class Lost(ConnectionResetError):
    """What a library makes of an error of the system."""


def lost(context):
    """Fail with a class of its own."""
    raise Lost("peer")


def unfit(context, *, name="out", value=None):
    """Say something that is not an event."""
    context.emit(name, value=object() if value is None else value)
