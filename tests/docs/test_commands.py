"""Every command that a page shows has options that exist, and is run, or stands on a list with the
reason.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import importlib
import io
import re
import shlex
from collections.abc import Iterator

import pytest

from harness.cli.commands import COMMANDS, MODULES, command_of, parser
from tests.docs.pages import ROOT, Page, pages
from tests.docs.shown import (
    OPTIONS_EXPECTED_LATER,
    PAGES_AT_WORK,
    SCRIPTS,
    SESSIONS_EXPECTED_LATER,
    SHOWN,
    NotRun,
)

pytestmark = pytest.mark.slow  # together they take more than the inner loop has

PROGRAMS = {
    *(
        "rankproof",
        "nox",
        "pip",
        "pipx",
        "nix",
        "git",
        "python",
        "python3.11",
        "export",
        "tar",
        "jq",
        "ray",
        "{",
        ".",
    ),
    *("ssh-keygen", "base64", "cat", "uvx"),
}
# Options in the text that are not ours.
OF_OTHERS = {
    *(
        "--build",
        "--upgrade",
        "--check",
        "--no-index",
        "--find-links",
        "--require-hashes",
        "--user",
        "--soak",
        "--experimental",
    ),
}
# What nox passes on, to which command.
PASSED_ON = {"validate": "run", "gate": "gate"}


@functools.cache
def sessions() -> set[str]:
    """The sessions of noxfile.py."""
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any("nox.session" in ast.unparse(one) for one in node.decorator_list)
    }


@functools.cache
def line_of(command: str) -> argparse.ArgumentParser:
    """The argument parser with the arguments of one command."""
    return parser(
        command, importlib.import_module(f"harness.cli.{MODULES.get(command, command)}").arguments
    )


def complaint(shown: str) -> str:
    """What is wrong with a command as it is shown; empty where nothing is."""
    try:
        words = shlex.split(re.sub(r"\[([^][]*)\](?=\s|$)", r"\1", shown))
    except ValueError as error:
        return str(error)
    for part in _parts(words):
        if said := _complaint_of_one(part):
            return said
    return ""


def _parts(words: list[str]) -> Iterator[list[str]]:
    part: list[str] = []
    for word in [*words, "|"]:
        if word in {"|", "&&", ";"}:
            if part:
                yield part
            part = []
        else:
            part.append(word)


def _complaint_of_one(words: list[str]) -> str:
    program = words[0].rpartition("/")[2]
    if program not in PROGRAMS:
        return (
            f"{words[0]} is not a program that is known here: is it a command? Else mark its block"
            " as text"
        )
    if "nox" in words:
        return _of_nox(words[words.index("nox") + 1 :])
    if program == "nix" and "--" in words:
        rest = words[words.index("--") + 1 :]
        return _of_ours(["run", *rest] if "#validate" in words[2] else rest)
    return _of_ours(words[1:]) if program == "rankproof" else ""


def _of_nox(words: list[str]) -> str:
    if words[:1] != ["-s"] or len(words) < 2:
        return f"nox {' '.join(words)}: names no session"
    name, rest = words[1], words[3:]
    if name not in sessions() | SESSIONS_EXPECTED_LATER:
        return f"no session of nox is called {name}"
    return _of_ours([PASSED_ON[name], *rest]) if name in PASSED_ON and rest else ""


def _of_ours(words: list[str]) -> str:
    if (command := command_of(words)) is None:
        return f"rankproof {' '.join(words[:1])}: it is not a command"
    later = [word for word in words if (words[0], word) in OPTIONS_EXPECTED_LATER]
    words = [word for word in words if word not in later]
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            line_of(command).parse_args(words)
    except SystemExit as ended:
        if ended.code:
            return said.getvalue().strip().splitlines()[-1]
    return ""


ALL = [(page, command, line) for page in pages() for command, line in page.commands]
NAMES = [f"{page.name}:{line}: {command.splitlines()[0][:60]}" for page, command, line in ALL]


@pytest.mark.parametrize(("page", "command", "line"), ALL, ids=NAMES)
def test_a_command_has_options_that_exist(page: Page, command: str, line: int) -> None:
    """Subcommand, options and values of a command are such that the argument parser takes them."""
    if command.splitlines()[0] not in SCRIPTS:
        assert complaint(command) == "", f"{page.name}:{line}"


@pytest.mark.parametrize(("page", "command", "line"), ALL, ids=NAMES)
def test_a_command_is_run_or_the_reason_is_told(page: Page, command: str, line: int) -> None:
    """Each command stands in tests/docs/shown.py: run by test_shown.py, or not, and why."""
    if command.splitlines()[0] in SCRIPTS or page.name in PAGES_AT_WORK:
        return
    assert command in SHOWN.get(page.name, {}), (
        f"{page.name}:{line}: say in tests/docs/shown.py how it is run"
    )


def test_no_reason_is_left_over() -> None:
    """What no page shows any more is not on the list."""
    shown = {(page.name, command) for page, command, _ in ALL}
    listed = {(name, command) for name, commands in SHOWN.items() for command in commands}
    assert sorted(one for one in listed - shown if one[0] not in PAGES_AT_WORK) == []
    first = {command.splitlines()[0] for _, command, _ in ALL}
    assert set(SCRIPTS) - first == set()


FAULTS = {
    "rankproof veryfy report.md": "it is not a command",
    "rankproof run scenarios/x --trials 5": "unrecognized arguments: --trials",
    "rankproof verify": "the following arguments are required",
    "rankproof run --jobs many": "must be a whole number",
    "rankproof tokenizer same A B": "there is no command 'same'",
    "pipx run nox -s checks": "no session of nox is called checks",
    "pipx run nox -s validate -- --speed 3": "unrecognized arguments: --speed",
    "nix develop -c nox -s vaildate": "no session of nox is called vaildate",
    "nix run github:OWNER/rankproof -- veryfy report.md": "it is not a command",
    "rankprof run": "is not a program that is known here",
    "jq . | rankproof lint --strict": "unrecognized arguments: --strict",
    "rankproof run 'scenarios": "No closing quotation",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_command_that_does_not_exist_is_found(fault: str) -> None:
    """A wrong subcommand, option, value or session is named; so the tests above can fail."""
    (shown,) = [command for command, _ in Page("x.md", f"    {fault}\n").commands]
    assert FAULTS[fault] in complaint(shown)


def test_commands_are_found_in_blocks_of_each_kind() -> None:
    """Indented and fenced blocks, prompts, comments and continued lines.

    Data that is marked as such is none.
    """
    text = "    one  # why\n\n```console\n$ two |\n    three\n```\n\n```\nfour\n```\n"
    text += "\n```yaml\nfive: 5\n```\n\n```sh\nsix\nseven\n```\n"
    assert [command for command, _ in Page("x.md", text).commands] == [
        "one",
        "two | three",
        "four",
        "six\nseven",
    ]


def options_of(line: argparse.ArgumentParser) -> set[str]:
    """Every option of a parser, those of its subcommands too."""
    found: set[str] = set()
    for action in line._actions:
        found |= set(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                found |= options_of(below)
    return found


@functools.cache
def every_option() -> set[str]:
    """Every option of every command."""
    return set().union(*(options_of(line_of(command)) for command in COMMANDS))


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_options_and_commands_in_the_text_exist(page: Page) -> None:
    """`--option` in a sentence is one of a command, and `rankproof COMMAND --option` one of that
    command.
    """
    if page.name == "CHANGELOG.md":  # tells of what was, too
        return
    known = every_option() | OF_OTHERS | {option for _, option in OPTIONS_EXPECTED_LATER}
    wrong = []
    for span, line in page.spans:
        words = span.split()
        options = {
            word.strip("[]").partition("=")[0] for word in words if re.match(r"\[?--[a-z]", word)
        }
        if words[0] == "rankproof" and len(words) > 1 and re.fullmatch(r"[a-z]+", words[1]):
            command = command_of(words[1:]) or (words[1] if words[1] == "lab" else None)
            if command is None:
                wrong.append(f"{page.name}:{line}: {span}: it is not a command")
                continue
            later = {option for name, option in OPTIONS_EXPECTED_LATER if name == command}
            wrong += [
                f"{page.name}:{line}: {span}: has no {one}"
                for one in options - options_of(line_of(command)) - later
            ]
        elif words[0] in {"--", "nox"} or words[0].startswith("--"):
            wrong += [
                f"{page.name}:{line}: {span}: no command has {one}" for one in options - known
            ]
        if (
            "nox" in words
            and "-s" in words
            and (name := words[words.index("-s") + 1 :][:1])
            and name[0].isalpha()
        ):
            wrong += [
                f"{page.name}:{line}: no session of nox is called {one}"
                for one in name
                if one not in sessions()
            ]
    assert wrong == []


def test_what_was_expected_later_is_not_there_yet() -> None:
    """An option or a session that is there by now is taken off the list."""
    there = [
        (command, option)
        for command, option in OPTIONS_EXPECTED_LATER
        if option in options_of(line_of(command))
    ]
    assert there == []
    assert SESSIONS_EXPECTED_LATER & sessions() == set()


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_no_command_is_shown_as_prose(page: Page) -> None:
    """What is meant as a block and stands below a list, not far enough to the right, becomes a
    paragraph: none does.
    """
    assert [
        text
        for text in page.paragraphs
        if re.match(r"\$ \w|rankproof [a-z]+ |pip install |pipx run |nox -|nix (run|develop)", text)
    ] == []


def test_a_command_below_a_list_is_found() -> None:
    """Such a paragraph is found; so the test above can fail."""
    assert Page("x.md", "* item\n\n    rankproof list faults here\n").paragraphs == [
        "item",
        "rankproof list faults here",
    ]


def test_every_reason_says_something() -> None:
    """A reason is a sentence that names what is needed, or what runs it instead."""
    reasons = {
        how.because
        for commands in SHOWN.values()
        for how in commands.values()
        if isinstance(how, NotRun)
    }
    assert [reason for reason in reasons if len(reason.split()) < 4] == []
    for name in re.findall(r"tests/[\w/]+(?:\.py)?", " ".join(reasons)):
        assert (ROOT / name).exists(), name
