"""The streams that commands print to: there even where nobody opened them, and showing what would
be hidden.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

from harness.forms.text import visible_lines

if TYPE_CHECKING:
    from rich.text import Text

# Its reader has left, it was opened for reading only, its terminal is gone.
LOST = (errno.EPIPE, errno.EBADF, errno.EIO)


class Shown:
    """Writes text for people: what a terminal would act on or hide, whoever it came from, is
    written as an escape.

    A stream that is lost while a command works takes nothing more, and the command goes on: its
    exit code is an answer too, and a run of an hour is not thrown away because its output went
    through `head`.

    Attributes:
        bare: the stream below, for a table that moves the cursor. It escapes its texts itself.
    """

    def __init__(self, bare: TextIO) -> None:
        self.bare = bare

    def write(self, text: str) -> int:
        """Write text, however many lines.

        Raises:
            OSError: no space is left.
        """
        try:
            self.bare.write(visible_lines(text))
        except OSError as error:
            self._lost(error)
        return len(text)

    def flush(self) -> None:
        """Write what waits.

        Raises:
            OSError: no space is left.
        """
        try:
            self.bare.flush()
        except OSError as error:
            self._lost(error)

    def _lost(self, error: OSError) -> None:
        if error.errno not in LOST:
            raise error
        discard(self.bare.fileno())
        self.bare.flush()
        if self.bare.fileno() != 2:
            what = (
                "the reader closed this output"
                if error.errno == errno.EPIPE
                else "this output can no longer be written"
            )
            print(f"rankproof: {what}; continuing without it", file=sys.stderr)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bare, name)


def is_watched(stream: TextIO) -> bool:
    """Tell whether somebody looks at a terminal that can do more than print lines."""
    return stream.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb"


def print_styled(text: Text) -> None:
    """Print a text whose characters are all harmless: with its styles where somebody watches, else
    without.
    """
    if not is_watched(sys.stdout):
        print(text.plain)
        return
    from rich.console import Console

    Console(file=getattr(sys.stdout, "bare", sys.stdout), highlight=False).print(
        text, soft_wrap=True
    )


def print_word(before: str, word: str, after: str = "") -> None:
    """Print a line with a verdict in it, which has its colour where somebody watches."""
    if not is_watched(sys.stdout) or os.environ.get("NO_COLOR"):
        print(f"{before}{word}{after}")
        return
    from rich.text import Text

    from harness.forms.text import visible
    from harness.report.terminal import STYLES

    print_styled(Text.assemble(visible(before), (word, STYLES.get(word, "")), visible(after)))


def discard(number: int) -> None:
    """Let a descriptor lead nowhere."""
    null = os.open(os.devnull, os.O_WRONLY)
    # In one step: closed first, the number could go to another file of this process.
    os.dup2(null, number)
    os.close(null)


@contextmanager
def streams() -> Iterator[None]:
    """Print through `Shown`, and have all three streams whichever of them the caller has closed."""
    before = sys.stdin, sys.stdout, sys.stderr
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is this one. A file of ours that got it would be printed into.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
    sys.stdout = cast("TextIO", Shown(sys.stdout))
    sys.stderr = cast("TextIO", Shown(sys.stderr))
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets its escape, not our traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            discard(1)
        sys.stdin, sys.stdout, sys.stderr = before
