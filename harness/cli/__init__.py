"""The commands: parse, call, print.

Each command's module is imported when it is called, so that `rankproof --help` answers at once and
nothing heavy is loaded for it.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys

from harness.cli.streams import discard, streams

PASS = 0
FAIL = 1
INCONCLUSIVE = 2
REFUSED = 3
USAGE = 64
OUR_BUG = 70
# What a path may lead to, and what to do about it.
WAYS = {
    **dict.fromkeys((errno.EACCES, errno.EPERM), "change its permissions, or give another path"),
    **dict.fromkeys(
        (errno.EROFS, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR), "give another path"
    ),
}
VERDICT_CODES = {"PASS": PASS, "FAIL": FAIL, "INCONCLUSIVE": INCONCLUSIVE}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    with streams():
        return _main(arguments)


def give_up(command: str, why: object, code: int) -> int:
    """Say on standard error why a command ends here; returns its exit code."""
    print(f"rankproof {command}: {why}", file=sys.stderr)
    return code


def _main(given: list[str] | None) -> int:
    from harness.cli.commands import MODULES, command_of, parser

    words = list(sys.argv[1:] if given is None else given)
    if words[:1] == ["--"]:
        del words[0]
    _find_home()
    completing = "_ARGCOMPLETE" in os.environ
    typed = os.environ.get("COMP_LINE", "").split()[1:] if completing else words
    # The first words decide which command it is; the modules of the others are not imported.
    chosen = command_of(typed)
    if chosen is None and not completing:
        # Help, the version or a complaint end it here.
        parser().parse_args(words)
        return USAGE
    # A plugin of some installed package could change how everything here is validated; and looking
    # for one takes time.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # What importing makes stays: looking for cycles in it takes a twentieth of the time of a short
    # command.
    gc.disable()
    try:
        module = (
            importlib.import_module(f"harness.cli.{MODULES.get(chosen, chosen)}")
            if chosen
            else None
        )
        line = parser(chosen, module.arguments if module else None, every=completing)
        if completing:
            import argcomplete

            argcomplete.autocomplete(line)
        options = line.parse_args(words)
        gc.freeze()
        gc.enable()
        assert module is not None
        code = int(module.main(options))
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INCONCLUSIVE
    except OSError as error:
        return _refused(error, chosen or "")
    # The last line of defence: a bug of ours is kept apart from every verdict.
    except Exception:  # noqa: BLE001
        return _our_bug()
    return code


def _find_home() -> None:
    """Give a user that the machine does not know, as in some containers, the root as home."""
    if "HOME" not in os.environ:
        import pwd

        try:
            pwd.getpwuid(os.getuid())
        except KeyError:
            os.environ["HOME"] = "/"


def _refused(error: OSError, command: str) -> int:
    """Say what the system refused and no command looked out for, where our code did not cause it;
    return the exit code.
    """
    if isinstance(error, FileNotFoundError) and _is_nowhere():
        print("rankproof: the current folder was removed; change to another one", file=sys.stderr)
        return USAGE
    if error.errno in WAYS and error.filename is not None:
        return give_up(command, f"{error.filename}: {error.strerror}: {WAYS[error.errno]}", USAGE)
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        return give_up(
            command, f"{error.strerror}; `rankproof doctor` shows the limits", INCONCLUSIVE
        )
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return _our_bug()
    discard(1)
    print(f"rankproof: cannot write: {error.strerror}", file=sys.stderr)
    return INCONCLUSIVE


def _is_nowhere() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - without the import
    except FileNotFoundError:
        return True
    return False


def _our_bug() -> int:
    import traceback

    from harness.plugins import PluginFailed, passed_through

    if isinstance(error := sys.exc_info()[1], PluginFailed):
        print(f"rankproof: no verdict: {error}", file=sys.stderr)
        return INCONCLUSIVE
    traceback.print_exc()
    if error is not None and (release := passed_through(error)) is not None:
        print(
            f"rankproof: no verdict, because a plug-in of {release} raised this error; report it"
            " to its authors",
            file=sys.stderr,
        )
        return INCONCLUSIVE
    print(
        "rankproof: no verdict, because of a bug in rankproof. Please report it with these lines.",
        file=sys.stderr,
    )
    return OUR_BUG
