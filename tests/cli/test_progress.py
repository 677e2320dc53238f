"""Progress: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cli import progress
from harness.cli.progress import Plain, Spoken, Watched, progress_for
from harness.reason import Skip, SkipCode
from harness.run.plan import RunSettings
from harness.run.progress import MadeTrial, RunOutline
from harness.run.run import run
from harness.scenario import Cell, load_scenario
from tests.kit.commands import SCENARIO, SUBJECT, command, environment
from tests.kit.people import RANK
from tests.kit.people import SCENARIO as WORDS
from tests.run import test_control_cells

CELLS = (
    Cell(id="ranks=2,backend=gloo", slug="a", ranks=2, backend="gloo"),
    Cell("ranks=4,x=[red]", "b", 4, "gloo"),
)
PLAN = RunOutline(
    candidate=3,
    control=2,
    cells=CELLS,
    skipped={"ranks=4,x=[red]": Skip(SkipCode.MACHINE_GPUS, "no GPU")},
)


def made(*, arm: str = "candidate", odd: bool = False, void: bool = False) -> MadeTrial:
    return MadeTrial(cell=CELLS[0], arm=arm, void=void, as_expected=not odd)  # type: ignore[arg-type]


def test_counts_are_what_happened() -> None:
    """A void trial brings the end no nearer; what is unexpected is so in either arm."""
    count = Spoken(io.StringIO())
    count.planned(PLAN)
    for trial in (
        made(),
        made(void=True),
        made(odd=True),
        made(arm="control"),
        made(arm="control", odd=True),
    ):
        count.began(trial.cell)
        count.ended(trial)
    assert (count.made, count.void, count.flying, count.unexpected.total()) == (4, 1, 0, 2)
    assert count.line().startswith("4/5 trials, 0 ranks in flight, about ")


def test_time_left_is_that_of_trials() -> None:
    """What came before the first trial, a reference that took ten minutes, does not come again
    before each.
    """
    count = Spoken(io.StringIO())
    count.planned(PLAN)
    count.begin -= 600
    count.began(CELLS[0])
    count.ended(made())
    assert count.left() == "about 0 s left"


def test_a_reference_is_told_of_while_it_runs() -> None:
    """It may take minutes, in which no rank is in flight and no trial ends."""
    count = Spoken(io.StringIO())
    count.planned(PLAN)
    count.compares("the reference, run 2 of 2")
    assert count.line() == "0/5 trials, 0 ranks in flight, the reference, run 2 of 2: 0 s"
    count.began(CELLS[0])
    assert count.line() == "0/5 trials, 2 ranks in flight, time left unknown yet"


def test_without_a_terminal_there_are_plain_lines() -> None:
    """A file or a pipe gets lines, no control characters, and the reason of every skipped cell."""
    stream = io.StringIO()
    progress = progress_for(stream)
    assert isinstance(progress, Plain)
    progress.planned(PLAN)
    progress.ended(made())
    progress.done()
    assert "ranks=4,x=[red]: SKIPPED: no GPU" in stream.getvalue()
    assert "5 trials in 1 cell\n" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


@pytest.mark.slow
def test_ranks_in_flight_are_counted_while_they_fly(
    scenario: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines come while worlds live, and say how many ranks these have."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    subject = SUBJECT.replace("broken):", 'broken, gate):\n    open(gate, "rb").close()')
    text = re.sub("broken: (true|false)", rf"\g<0>, gate: {gate}", SCENARIO)
    opened: list[int] = []

    class Watching(io.StringIO):
        def write(self, text: str) -> int:
            # No rank gets on before a line has told of all of them.
            if "4 ranks in flight" in text and not opened:
                opened.append(os.open(gate, os.O_RDWR))
            return super().write(text)

    monkeypatch.setattr(progress, "EVERY", 0.02)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    found = load_scenario(scenario({"scenario.yaml": text, "subject.py": subject}))
    stream = Watching()
    plain = Plain(stream)
    run(found, RunSettings(results=tmp_path / "results", signer=None, jobs=2), progress=plain)
    os.close(*opened)
    numbers = [
        int(line.split(" ranks in flight")[0].split()[-1])
        for line in stream.getvalue().splitlines()[1:]
    ]
    assert 4 in numbers
    assert set(numbers) <= {0, 2, 4}


@pytest.mark.slow
@pytest.mark.parametrize(("stated", "odd"), [("[3]", 0), ("[2]", 4)])
def test_a_control_that_holds_where_it_has_to_is_expected(
    scenario: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stated: str,
    odd: int,
) -> None:
    """It fails in worlds of an odd size: what is unexpected is where it does otherwise than is
    stated.
    """
    text = test_control_cells.SCENARIO.replace("[2, 3, 4, 5]", "[2, 3]").replace("[3, 5]", stated)
    text = text.replace("candidate: 5, control: 5", "candidate: 1, control: 2")
    found = load_scenario(
        scenario({"scenario.yaml": text, "subject.py": test_control_cells.SUBJECT})
    )
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    count = Spoken(io.StringIO())
    run(found, RunSettings(results=tmp_path / "results", signer=None, jobs=2), progress=count)
    assert (count.made, count.unexpected.total()) == (6, odd)


@pytest.mark.parametrize("variable", ["CI", "TERM"])
def test_ci_and_a_dumb_terminal_get_plain_lines(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Where CI is set, or the terminal cannot move its cursor, nothing is redrawn."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(progress_for(Terminal()), Watched)
    monkeypatch.setenv(variable, "dumb")
    assert isinstance(progress_for(Terminal()), Plain)


@pytest.mark.slow
@pytest.mark.parametrize(("locale", "columns"), [("C", 40), ("C.UTF-8", 120)])
def test_a_real_terminal_shows_what_it_can(
    scenario: Callable[..., Path], tmp_path: Path, locale: str, columns: int
) -> None:
    """On a terminal of any width the run ends well.

    Where the encoding is ASCII, only ASCII is written.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = environment(
        tmp_path / "home", TERM="xterm", LC_ALL=locale, PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
    )
    del env["CI"]
    folder = scenario({"scenario.yaml": WORDS, "rank.sh": RANK})
    process = subprocess.Popen(
        command("run", str(folder), "--results", str(tmp_path / "results")),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=env,
        cwd=tmp_path,
        start_new_session=True,
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # the terminal's other end is closed: everybody has left
            break
        if not data:
            break
        written += data
    os.close(ours)
    assert process.wait() == 0, written.decode(errors="replace")
    assert b"ranks in flight" in written
    assert b"Traceback" not in written
    if locale == "C":
        written.decode("ascii")
