"""What commands print to: streams that are closed or lost, and text that hides something."""

from __future__ import annotations

import io
import json
import os
import subprocess
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import TextIO, cast

import pytest

from harness.cli.progress import Watched
from harness.cli.streams import Shown
from harness.forms.text import visible_lines
from harness.run.progress import RunOutline
from harness.scenario import Cell
from tests.kit import command_server
from tests.kit.commands import SCENARIO, SUBJECT, Ran, command, environment
from tests.kit.repositories import git

pytestmark = pytest.mark.slow  # each is short; together they take longer than the inner loop has

HIDDEN = "\u202egnp.exe\u202c \u2066\u200b\u200d \x1b]0;owned\x07 \x9b31m"
SEEN = r"\u202egnp.exe\u202c \u2066\u200b\u200d \x1b]0;owned\x07 \x9b31m"
LEFT = "rankproof: the reader closed this output; continuing without it\n"


def in_a_shell(words: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of ours with a shell's redirections."""
    return subprocess.run(
        ["sh", "-c", f'"$@" {words}', "sh", *command(*arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(folder / "home"),
        cwd=folder,
    )


def to_nobody(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of ours into a pipe whose reader has left."""
    read, write = os.pipe()
    os.close(read)
    try:
        return subprocess.run(
            command(*arguments),
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=environment(folder / "home"),
            cwd=folder,
        )
    finally:
        os.close(write)


@pytest.mark.whole
@pytest.mark.parametrize("words", [">&-", "2>&-", "<&- >&- 2>&-", "1</dev/null"])
def test_a_closed_stream_takes_nothing_from_a_command(tmp_path: Path, words: str) -> None:
    """Whichever descriptors a caller has closed, the exit code is the command's own."""
    assert in_a_shell(words, "--help", folder=tmp_path).returncode == 0
    assert in_a_shell(words, "list", "schema", folder=tmp_path).returncode == 0
    assert in_a_shell(words, "show", "nowhere", folder=tmp_path).returncode == 64
    assert in_a_shell(words, "init", "new", folder=tmp_path).returncode == 0


def test_a_reader_that_leaves_is_told_once(tmp_path: Path) -> None:
    """A command goes on when nobody reads it any more, and ends with its own exit code, also where
    that is a usage.
    """
    for words, code in (
        (("list", "schema"), 0),
        (("--help",), 0),
        (("verify", "nowhere", "--signer", "x"), 64),
    ):
        done = to_nobody(*words, folder=tmp_path)
        assert (done.returncode, done.stderr.count(LEFT)) == (code, 0 if code else 1), done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.whole
def test_a_run_that_nobody_reads_is_whole(scenario: Callable[..., Path], tmp_path: Path) -> None:
    """Without any stream, and into a pipe without a reader, a run is judged and signed as ever."""
    folder = str(scenario())
    closed = in_a_shell("<&- >&- 2>&-", "run", folder, folder=tmp_path)
    first = (tmp_path / "results" / "latest").resolve()
    left = to_nobody("run", folder, folder=tmp_path)
    second = (tmp_path / "results" / "latest").resolve()
    assert (closed.returncode, left.returncode, left.stderr.count(LEFT)) == (0, 0, 1), left.stderr
    assert first != second
    for run in (first, second):
        assert "BEGIN SSH SIGNATURE" in (run / "report.md").read_text()
    # No file got the number of a closed stream: what was printed is in none.
    assert not [
        file
        for file in tmp_path.rglob("*")
        if file.is_file() and b"signing with" in file.read_bytes()
    ]


@pytest.mark.parametrize("command_", ["run", "doctor", "reproduce"])
def test_results_in_a_loop_of_links_is_bad_usage(
    rankproof: Callable[..., Ran], tmp_path: Path, command_: str
) -> None:
    """A results folder that can never be one is told with what to do, before anything runs."""
    (tmp_path / "loop").symlink_to("loop")
    words = {"run": [str(tmp_path)], "doctor": ["--quick"], "reproduce": ["report.md"]}[command_]
    for place in ("loop", "loop/inside", "x" * 300):
        done = command_server.run(
            command_, *words, "--results", place, cwd=tmp_path, env=environment(tmp_path)
        )
        assert done.returncode == 64
        assert f"argument --results: {place}: " in done.stderr
        assert done.stderr.endswith("; give another folder\n")


@pytest.mark.parametrize("text", ["plain", "two\nlines\n", "é日本\u05d0👩\u200d🚀 a\u0301", ""])
def test_what_people_write_is_shown_as_it_is(text: str) -> None:
    """Accents, right-to-left scripts and emoji with their joiners are nothing to hide."""
    assert visible_lines(text) == text


def hides_something(text: str) -> bool:
    return any(
        unicodedata.category(letter) in ("Cc", "Cf", "Cs") for letter in text.replace("\n", "")
    )


@pytest.mark.slow
def test_no_command_lets_a_scenario_hide_something(
    scenario: Callable[..., Path], rankproof: Callable[..., Ran], tmp_path: Path
) -> None:
    """Bidi, zero-width and control characters of a scenario reach a terminal as escapes, whichever
    command prints.
    """
    # A control character in a title is a mistake of the file; the rest is only hard to see.
    quoted = json.dumps(HIDDEN[: HIDDEN.index("\x1b")])
    text = SCENARIO.replace("title: Ranks meet", f"title: {quoted}")
    # The candidate fails with such a text, too.
    subject = SUBJECT.replace(
        "    assert thing\n", f"    assert thing\n    assert not context.rank, {HIDDEN!r}\n"
    )
    folder = str(scenario({"scenario.yaml": text, "subject.py": subject}))
    told = {"list": rankproof("list", folder), "run": rankproof("run", folder, "--unsigned")}
    assert told["run"].code == 1, told["run"].out + told["run"].err
    results = str(told["run"].results / "latest")
    told["show"] = rankproof("show", results)
    told["compare"] = rankproof("diff", results + HIDDEN, results)
    told["verify"] = rankproof("verify", results + HIDDEN, "--signer", "SHA256:" + "x" * 43)
    told["usage"] = rankproof("run", f"--{HIDDEN}")
    git(tmp_path, "init", "-q")
    told["gate"] = rankproof("gate", "--json", "--trusted-ref", HIDDEN)
    assert json.loads(told["gate"].out)["answer"] == "NOT VERIFIED"
    (tmp_path / "scenario" / "scenario.yaml").write_text(
        text.replace("schema: 1", f"schema: {quoted}")
    )
    told["lint"] = rankproof("lint", folder)
    for name, ran in told.items():
        assert ran.out + ran.err, name
        assert not hides_something(ran.out + ran.err), name
        assert r"\u202egnp.exe" in (ran.out + ran.err).replace("\\\\u", "\\u"), name
    assert "meet: " + SEEN[: SEEN.index(r" \x1b")] in told["run"].out
    assert f"AssertionError: {SEEN}" in told["run"].out


def test_a_live_table_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table writes to the terminal itself, past what guards the other lines, and escapes what
    it shows.
    """

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    cell = Cell(id=f"way={HIDDEN}", slug="a", ranks=2, backend="gloo")
    watched = Watched(cast("TextIO", Shown(terminal)))
    watched.planned(RunOutline(candidate=1, control=1, cells=[cell], skipped={}))
    watched.done()
    assert r"\u202egnp.exe" in terminal.getvalue()
    assert "\x1b[" in terminal.getvalue()
    assert not {"\u202e", "\u200b", "\x9b", "\x07"} & set(terminal.getvalue())
