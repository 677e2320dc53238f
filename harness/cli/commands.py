"""The command line: the commands with their help.

A command is one word, or two where it is behind another (`list faults`). The module of each has
`arguments(parser)` and `main(options)`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence

from harness import __version__
from harness.cli import USAGE

EPILOG = (
    "exit codes: 0 PASS, 1 FAIL, 2 INCONCLUSIVE (also: could not run or could not sign),"
    " 3 verification failed, 64 usage or scenario error, 70 a bug in rankproof"
)
COMPARED = (
    "exit codes: 0 all results are the same, 1 a result changed, 2 undecided (a result is `cannot"
    " tell`), 3 a run failed verification, 64 usage error. Differences in times, scenario and"
    " environment are printed, but do not affect the exit code."
)


GATE_CODES = (
    "exit codes: 0 OPEN, 1 CLOSED (a requirement is not met, or a report is missing), 2 CANNOT"
    " TELL (INCONCLUSIVE or SKIPPED), 3 NOT VERIFIED (a report failed verification, or a trusted"
    " policy is missing), 64 usage or policy error"
)
LOOKED_AT = (
    "exit codes: 0 no problems found, 1 findings, 3 file not found, 4 warnings under --strict, 5"
    " not a GGUF file or damaged, 15 permission denied, 64 usage error; with several files, the"
    " highest code"
)
FETCHED = (
    "exit codes: 0 success, or no difference; 1 a difference, or a finding; 2 undecided; 3 not"
    " found; 4 not proven (--strict); 5 damaged file; 10 disk full; 11 login required; 12 rate limited; 13"
    " digest mismatch; 14 network error or deadline exceeded; 15 permission denied; 17 another"
    " process holds the lock; 64 usage error"
)
RAN = (
    "exit codes: 0 success, 1 the given tokenizer is not the model's, 3 no tokenizer found, 4 no"
    " proven tokenizer, 5 damaged files, 16 no engine or device can run the model, 64 usage error;"
    " 10 to 15 and 17 as for `tokenizer fetch`"
)
BISECTED = (
    "exit codes: 0 the version was found, 2 no version was found or a neighbouring version could"
    " not be tested, 64 usage or scenario error"
)
REPRODUCED = (
    "exit codes: 0 REPRODUCED, 1 SAME VERDICT, DIFFERENT FAILURE or NOT REPRODUCED, 2 CANNOT TELL"
    " or SOURCE DIFFERS, 3 the report failed verification and nothing was run, 64 usage error; with"
    " --fresh-seeds, the worse result of the two passes (1 is worst, then 2, then 0)"
)

# What a user does, and the commands for it, in the order of the first help page.
GROUPS: dict[str, tuple[str, ...]] = {
    "make": ("init", "lint", "run", "doctor"),
    "look": ("show", "view", "diff", "list"),
    "trust": ("verify", "reproduce", "bundle", "gate"),
    "more": ("conformance", "tokenizer", "models", "hosts", "lab"),
}
LAB = "run long test campaigns, or a model hub that injects faults"
COMMANDS: dict[str, tuple[str, str | None]] = {
    "init": ("write a scenario folder for your own bug", None),
    "lint": ("check scenario files", None),
    "run": ("run scenarios on real ranks and sign a report for each", EPILOG),
    "doctor": ("report what this machine can run, and how to fix each problem", None),
    "show": ("print a report in the terminal", None),
    "view": ("write one HTML page about all runs in a folder", None),
    "diff": ("compare two runs of a scenario", COMPARED),
    "list": (
        "list scenarios, faults, checks, backends and environments",
        "also: list faults, list checks, list backends, list schema, list environments",
    ),
    "verify": ("check a report's signature, evidence, verdict and text", EPILOG),
    "reproduce": ("repeat the run behind a report and check that the results match", REPRODUCED),
    "bundle": ("pack a run into a single file to share", None),
    "gate": ("apply a release policy to the signed reports for a commit", GATE_CODES),
    "conformance": ("test whether a server conforms to the OpenAI API", EPILOG),
    "tokenizer": ("identify, compare, fetch and lock tokenizers; read GGUF files", FETCHED),
    "models": ("make small models, and list the engines that run them", None),
    "hosts": ("check and prepare the machines in a hostfile", None),
    "list faults": ("list the kinds of faults and whether each can run here", None),
    "list checks": ("list the kinds of checks, with an example of each", None),
    "list backends": ("list the backends and whether each can run here", None),
    "list schema": ("print a JSON Schema for editors and other tools", None),
    "list environments": ("list or remove the cached environments of arms", None),
    "lab matrix": ("run every kind of fault against the checks that must detect it", EPILOG),
    "lab search": ("compare engines across models, shardings and prompts", EPILOG),
    "lab bisect": ("find the version of a package that breaks or fixes a scenario", BISECTED),
    "lab operators": ("look for wrong results from collectives, DTensors and tensor files", EPILOG),
    "lab served": (
        "test releases and modes of inference servers, and group the failures",
        EPILOG,
    ),
    "lab hub": ("serve tokenizer repositories from a local hub with injected faults", None),
    "tokenizer gguf": ("inspect and check GGUF model files", LOOKED_AT),
    "tokenizer infer": ("continue a prompt with a GGUF model", RAN),
    # BitNet's names: they work, and no page lists them.
    "compat-check": ("BitNet's name for `tokenizer gguf check`", LOOKED_AT),
    "inspect-gguf": ("BitNet's name for `tokenizer gguf inspect`", LOOKED_AT),
    "pre-download-tokenizers": ("BitNet's name for `tokenizer fetch --for-models`", None),
    "crossval": ("BitNet's name for `tokenizer parity`, with --tokenizer-only", None),
    "infer": ("BitNet's name for `tokenizer infer`", RAN),
}
# Commands that share a module, or have one of another name.
MODULES = {
    **dict.fromkeys(
        ("list", "list faults", "list checks", "list backends", "list schema"), "lists"
    ),
    **dict.fromkeys(("init", "lint"), "scenarios"),
    **dict.fromkeys(("doctor", "list environments", "hosts"), "machines"),
    **dict.fromkeys(("lab matrix", "lab search", "lab operators", "lab served"), "series"),
    **dict.fromkeys(("show", "verify", "diff", "bundle"), "reports"),
    **dict.fromkeys(
        ("compat-check", "inspect-gguf", "pre-download-tokenizers", "crossval"), "bitnet"
    ),
    "lab bisect": "bisect",
    "lab hub": "hub",
    "tokenizer gguf": "gguf",
    "tokenizer infer": "infer",
}
HELP_AT = 15
UNKNOWN = re.compile(r"argument COMMAND: invalid choice: '([^']*)'")


def command_of(words: Sequence[str]) -> str | None:
    """Find the command that words begin with; None where they begin with none."""
    two = " ".join(words[:2])
    if two in COMMANDS:
        return two
    return words[0] if words and words[0] in COMMANDS else None


def commands_behind(lead: str) -> list[str]:
    """List the second words of the commands behind a word."""
    return [name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{lead} ")]


class Parser(argparse.ArgumentParser):
    """argparse with our exit code for bad usage, and suggestions for a word that is no command."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.print_usage(sys.stderr)
        if (unknown := UNKNOWN.match(message)) is not None:
            message = f"there is no command {unknown[1]!r}{_suggestion(self.prog, unknown[1])}"
        print(f"{self.prog}: {message}", file=sys.stderr)
        raise SystemExit(USAGE)


class TopParser(Parser):
    """Parser of the whole line, whose help is one page of four groups."""

    def format_help(self) -> str:
        """Return the page: what the commands are for, each in a line."""
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        lines = [formatter.format_help(), "\n"]
        for title, names in GROUPS.items():
            lines.append(f"{title}:\n")
            for name in names:
                help_ = LAB if name == "lab" else COMMANDS[name][0]
                lines.append(f"  {name:<{HELP_AT - 2}}{help_}\n")
            lines.append("\n")
        lines.append("Run `rankproof COMMAND --help` to see the options of a command.\n\n")
        formatter = self._get_formatter()
        formatter.add_text(self.epilog)
        return "".join([*lines, formatter.format_help()])


def _suggestion(prog: str, word: str) -> str:
    """Name the command that was probably meant: one behind another word, or one spelt alike."""
    whole = [name for name in COMMANDS if name.endswith(f" {word}")]
    if word == "compare":
        whole = ["diff"]
    if whole:
        return f": did you mean `rankproof {whole[0]}`?"
    # Imported here: most lines are right.
    from difflib import get_close_matches

    lead = prog.partition(" ")[2]
    known = commands_behind(lead) if lead else [name for group in GROUPS.values() for name in group]
    close = get_close_matches(word, known, n=1)
    if close:
        return f": did you mean `{prog} {close[0]}`?"
    return f". `{prog} --help` lists the commands"


def parser(
    chosen: str | None = None,
    arguments: Callable[[argparse.ArgumentParser], None] | None = None,
    *,
    every: bool = True,
) -> Parser:
    """Command line.

    Args:
        chosen: the command whose arguments are wanted; the module of no other is imported.
        arguments: adds them.
        every: whether the names of the other commands are known too; a call needs none of them.
    """
    top = TopParser(
        prog="rankproof",
        description=(
            "A validation harness for distributed LLM inference. "
            "A validation that could not have failed proves nothing."
        ),
        epilog=EPILOG,
    )
    top.add_argument("--version", action="version", version=f"rankproof {__version__}")
    commands = top.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=Parser
    )
    behind: dict[str, argparse._SubParsersAction[Parser]] = {}
    for name, (help_, epilog) in COMMANDS.items():
        if name != chosen and not every:
            continue
        lead, _, second = name.partition(" ")
        if not second:
            command = commands.add_parser(lead, help=help_, epilog=epilog)
        elif lead == chosen:
            # It has arguments of its own, such as paths: what is behind it was not chosen.
            continue
        else:
            if lead not in behind:
                outer = commands.choices.get(lead) or commands.add_parser(lead, description=LAB)
                behind[lead] = outer.add_subparsers(
                    dest="command", metavar="COMMAND", required=lead == "lab", parser_class=Parser
                )
            command = behind[lead].add_parser(second, help=help_, epilog=epilog)
        if name == chosen and arguments is not None:
            arguments(command)
    return top
