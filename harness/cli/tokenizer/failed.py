"""What a command says when a load failed: the error, its cause, the requests that failed, and what libraries said."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from harness.cli import INCONCLUSIVE, USAGE

if TYPE_CHECKING:
    from harness.tokenizer.loading import LoadError

LAST_LINES = 5


def failed(command: str, error: LoadError) -> int:
    """Print it to standard error; returns the exit code."""
    from harness.tokenizer.loading import SourceRefused
    from harness.tokenizer.problem import first_line

    print(f"rankproof tokenizer {command}: {error}", file=sys.stderr)
    cause = error.__cause__
    while cause is not None:
        print(f"  because of {type(cause).__name__}: {first_line(cause)}", file=sys.stderr)
        cause = cause.__cause__
    for request in error.requests:
        if request.problem:
            print(f"  {request.method} {request.path}, attempt {request.attempt}: {request.problem}", file=sys.stderr)
    for line in error.logs[-LAST_LINES:]:
        print(
            f"  {''.join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)}", file=sys.stderr
        )
    return USAGE if isinstance(error, SourceRefused) else INCONCLUSIVE
