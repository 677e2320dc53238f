"""The commands: parse, call, print.

Each command's module is imported when it is called, so that `rankproof --help` answers at once and nothing heavy is
loaded for it.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys

from harness.cli.streams import discard, streams

PASS, FAIL, INCONCLUSIVE, REFUSED, USAGE, OUR_BUG = 0, 1, 2, 3, 64, 70
VERDICT_CODES = {"PASS": PASS, "FAIL": FAIL, "INCONCLUSIVE": INCONCLUSIVE}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    with streams():
        return _main(arguments)


def _main(arguments: list[str] | None) -> int:
    from harness.cli.arguments import COMMANDS, parser

    words = sys.argv[1:] if arguments is None else arguments
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        given = parser()
        argcomplete.autocomplete(given)
    else:
        # The first word decides which command it is; the others' arguments are not made for it.
        given = parser(words[0] if words and words[0] in COMMANDS else None)
    options = given.parse_args(words)
    # A plugin of some installed package could change how everything here is validated; and looking for one takes time.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # What importing makes stays: looking for cycles in it takes a twentieth of the time of a short command.
    gc.disable()
    try:
        command = importlib.import_module(f"harness.cli.{options.command}")
        gc.freeze()
        gc.enable()
        code = int(command.main(options))
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INCONCLUSIVE
    except OSError as error:
        if isinstance(error, FileNotFoundError) and _is_nowhere():
            print("rankproof: the folder you are in was removed: change to another one", file=sys.stderr)
            return USAGE
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return _our_bug()
        discard(1)
        print(f"rankproof: cannot write: {error.strerror}", file=sys.stderr)
        return INCONCLUSIVE
    except Exception:  # noqa: BLE001 - the last line of defence: a bug of ours is told apart from every verdict
        return _our_bug()
    return code


def _is_nowhere() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - without the import
    except FileNotFoundError:
        return True
    return False


def _our_bug() -> int:
    import traceback

    traceback.print_exc()
    print("rankproof: this is a bug of ours; nothing was decided. Please report it with these lines.", file=sys.stderr)
    return OUR_BUG
