"""What cannot be called as the scenario says is a mistake of the scenario: 64 with its place,
before any trial.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.record.environment import capture
from harness.run.arms import syntax
from harness.run.arms.entry import seen, slips
from harness.run.arms.staging import NotThere, previewed
from harness.run.plan import TrialPlan
from harness.run.preparation import Preparation
from harness.run.trials import TrialMaker
from harness.run.worlds import Interrupt
from harness.scenario import cells, load_scenario
from harness.world.control.pool import ServerPool
from tests.kit.commands import SCENARIO, SUBJECT, Ran
from tests.kit.repositories import commit, git

pytestmark = pytest.mark.slow  # each is short; together they take longer than the inner loop has

Run = Callable[..., Ran]
Write = Callable[..., Path]
Slips = Callable[[Path], list[str]]

CANDIDATE, CONTROL = "candidate: {with: {broken: false}}", "with: {broken: true}"
BEHIND = """
import functools

def quiet(function):
    WRAPS
    def call(*args, **kw):
        return function(*args, **kw)
    return call

@quiet
"""


def decorated(wraps: str) -> str:
    return BEHIND.replace("WRAPS", wraps) + SUBJECT.lstrip()


@pytest.fixture(scope="module")
def pool() -> Iterator[ServerPool]:
    with ServerPool() as found:
        yield found


@pytest.fixture
def told(pool: ServerPool) -> Slips:
    """What a run says of a folder's scenario before its first trial.

    The look is a real one, in a rank.
    """

    def find(folder: Path) -> list[str]:
        loaded = load_scenario(folder)
        unused: Any = None
        interrupt = Interrupt()
        with contextlib.closing(interrupt):
            try:
                with previewed(loaded.scenario, folder=folder) as staged:
                    preparation = Preparation(
                        arms=staged,
                        inputs={},
                        machine=capture(),
                        environments={},
                        cells=(),
                        skipped={},
                    )
                    plan = TrialPlan(
                        scenario=loaded.scenario,
                        preparation=preparation,
                        results=unused,
                        recipes={},
                    )
                    trials = TrialMaker(plan, pool=pool, interrupt=interrupt)
                    found = slips(loaded, staged, cells(loaded.scenario), look=trials.worlds.look)
            except NotThere as error:
                found = [loaded.problem(error.place, error.message)]
        return [str(problem).removeprefix(f"{folder}/") for problem in found]

    return find


SLIPS = {
    "function": (
        {"scenario.yaml": SCENARIO.replace("subject:meet", "subject:meat")},
        [
            'scenario.yaml:7:10: subject.entry: subject.py has no function "meat"; it has',
            'mean "meet"?',
        ],
    ),
    "argument of the candidate": (
        {"scenario.yaml": SCENARIO.replace(CANDIDATE, "candidate: {with: {brokn: false}}")},
        [
            (
                "scenario.yaml:8:22: subject.candidate.with.brokn: is not a parameter of meet in"
                " subject.py, which takes"
            ),
            'did you mean "broken"?',
        ],
    ),
    "argument of the control": (
        {"scenario.yaml": SCENARIO.replace(CONTROL, "with: {broken: true, fixd: 1}")},
        ["scenario.yaml:10:26: subject.control.with.fixd: is not a parameter of meet"],
    ),
    "argument that is not given": (
        {"scenario.yaml": SCENARIO.replace(CANDIDATE, "candidate: {}")},
        ["scenario.yaml:8:14: subject.candidate.with: does not set broken for meet in subject.py"],
    ),
    "axis": (
        {"scenario.yaml": SCENARIO.replace("matrix: {", "matrix: {speed: [1, 2], ")},
        ["scenario.yaml:12:10: matrix.speed: is not a parameter of meet"],
    ),
    "context": (
        {"subject.py": SUBJECT.replace("context, *, broken", "*, broken")},
        ["add a first parameter for the rank's context"],
    ),
    "coroutine": (
        {"subject.py": SUBJECT.replace("def meet", "async def meet")},
        ["scenario.yaml:7:10: subject.entry: is a coroutine function, so calling it runs nothing"],
    ),
    "generator": (
        {"subject.py": SUBJECT + "    yield\n"},
        ["subject.entry: is a generator function, so calling it runs nothing"],
    ),
    "behind a decorator": (
        {
            "subject.py": decorated("@functools.wraps(function)"),
            "scenario.yaml": SCENARIO.replace(CANDIDATE, "candidate: {with: {brokn: false}}"),
        },
        [
            (
                "subject.candidate.with.brokn: is not a parameter of meet in subject.py, which takes"
                " context, broken"
            )
        ],
    ),
    "no function": (
        {"subject.py": "from os.path import join as meet\nmeet = None\n"},
        ['subject.entry: subject.py has no function "meet"; it has no function'],
    ),
    "the control's file lacks the function": (
        {
            "scenario.yaml": SCENARIO.replace(CONTROL, "file: old.py"),
            "old.py": "def meat(context): pass\n",
        },
        ['subject.entry: old.py has no function "meet"; it has meat'],
    ),
    "the control's file is not there": (
        {"scenario.yaml": SCENARIO.replace(CONTROL, "file: odl.py")},
        ["scenario.yaml:10:11: subject.control.file: odl.py cannot be read"],
    ),
    "no module": (
        {"scenario.yaml": SCENARIO.replace("subject:meet", "sbject:meet")},
        [
            "scenario.yaml:7:10: subject.entry: sbject:meet is not in the subject's folder",
            "which has no sbject.py",
        ],
    ),
    "no folder": (
        {"scenario.yaml": SCENARIO.replace("subject:meet", "subject:meet\n  path: cdoe")},
        ["scenario.yaml:8:9: subject.path: cdoe is not a folder"],
    ),
}


@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_is_told_before_any_trial(scenario: Write, told: Slips, name: str) -> None:
    """Each has its file, line and column, and says what is there or what was meant.

    It is told once.
    """
    files, words = SLIPS[name]
    (problem,) = told(scenario(files))
    for word in words:
        assert word in problem


def test_an_old_revision_without_the_function_is_named(tmp_path: Path, told: Slips) -> None:
    """A control from before the function was there is a slip, told with the arm, the revision and
    its commit.
    """
    repo = tmp_path / "proj"
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    old = commit(repo, {"subject.py": "def join(context): pass\n"}, tag="v1")
    text = SCENARIO.replace(CONTROL, "rev: v1").replace(CANDIDATE, "candidate: {rev: main}")
    commit(
        repo,
        {
            "subject.py": SUBJECT.replace(", *, broken", ", broken=False"),
            "meet/scenario.yaml": text,
        },
    )
    (problem,) = told(repo / "meet")
    assert problem == (
        "scenario.yaml:10:10: subject.control.rev: subject.py in the control's revision (v1, commit"
        f' {old[:12]}) has no function "meet"; it has join. Choose a revision that has it'
    )


FINE = {
    "wrapped without a word": {"subject.py": decorated("")},
    "bound past reading": {
        "subject.py": SUBJECT.replace("def meet", "def inner") + "\nglobals()['meet'] = inner\n"
    },
    "from another module": {"subject.py": "from parts import meet\n", "parts.py": SUBJECT},
    "a class": {"subject.py": "class meet:\n    def __init__(self, context, *, broken): pass\n"},
    "whatever it is given": {
        "subject.py": SUBJECT.replace("*, broken", "**kw"),
        "scenario.yaml": SCENARIO.replace(CANDIDATE, "candidate: {with: {brokn: 1}}"),
    },
}


@pytest.mark.parametrize("name", FINE)
def test_what_can_be_called_is_no_slip(scenario: Write, told: Slips, name: str) -> None:
    """Whatever a module makes of its entry's name, nothing is said against a call that fits it."""
    assert told(scenario(FINE[name])) == []


@pytest.mark.parametrize(
    "importing",
    [
        "raise ValueError('not today')",
        "import sys; sys.exit(0)",
        "import os; os._exit(0)",
        "import signal; signal.pause()",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import os; os.fork(); raise ValueError('twice')",
        "print('x' * 1_000_000); raise ValueError('loud')",
        "input(); raise ValueError",
        "import nosuchmodule",
    ],
)
def test_what_importing_does_is_the_trials_affair(
    scenario: Write, told: Slips, importing: str
) -> None:
    """A module that raises, hangs, ends, forks or prints harms nobody, and is not a slip, whatever
    the entry's name.
    """
    text = SCENARIO.replace("subject:meet", "subject:meat").replace(
        "deadline: 30s", "deadline: 500ms\n, after_failure: 1ms"
    )
    assert (
        told(
            scenario(
                {"scenario.yaml": text.replace("\n,", ","), "subject.py": f"{importing}\n{SUBJECT}"}
            )
        )
        == []
    )


@pytest.mark.slow
def test_a_slip_in_one_scenario_leaves_the_others_alone(scenario: Write, rankproof: Run) -> None:
    """The others run and are signed.

    The exit code says that something is to be mended, and nothing is left of it.
    """
    typo = SCENARIO.replace("id: meet", "id: typo").replace("subject:meet", "subject:meat")
    gone = SCENARIO.replace("id: meet", "id: gone").replace("subject:meet", "sbject:meet")
    ran = rankproof("run", str(scenario({"typo.yaml": typo, "gone.yaml": gone})))
    assert ran.code == 64, ran.out + ran.err
    assert ran.record.judgement.verdict == "PASS"
    assert sorted(path.name for path in ran.results.iterdir() if not path.name.startswith(".")) == [
        "latest",
        "meet",
    ]
    assert 'typo.yaml:7:10: subject.entry: subject.py has no function "meat"' in ran.err
    assert "typo: not run, and nothing was signed" in ran.err
    assert "gone.yaml:7:10: subject.entry: sbject:meet is not in the subject's folder" in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.slow
def test_a_function_that_cannot_be_imported_is_a_failure_of_the_code(
    scenario: Write, rankproof: Run
) -> None:
    """A candidate whose module raises has failed its trials: FAIL, with the exception, and not
    64.
    """
    files = {"subject.py": f"raise ValueError('not today')\n{SUBJECT}"}
    ran = rankproof("run", str(scenario(files)))
    assert ran.code == 1, ran.out + ran.err
    assert "ValueError: not today" in ran.out


def test_lint_tells_what_it_reads(scenario: Write) -> None:
    """A slip is an error where the file shows it.

    An axis that the entry takes among others in ** is a note.
    """
    axis = SCENARIO.replace("matrix: {", "matrix: {speed: [1, 2], ")
    for files, said in (
        (
            {"scenario.yaml": axis, "subject.py": SUBJECT.replace("broken)", "broken, **kw)")},
            "note: matrix.speed: is not a param",
        ),
        (
            {
                "scenario.yaml": SCENARIO.replace(CONTROL, "with: {brokn: 1}"),
                "subject.py": SUBJECT.replace("*, broken", "broken=0, **k"),
            },
            "note: subject.control.with.brokn: is not a parameter of the entry",
        ),
        (
            {"scenario.yaml": SCENARIO.replace("subject:meet", "subject:meat")},
            'subject.entry: subject.py has no function "meat"',
        ),
    ):
        folder = scenario(files)
        loaded = load_scenario(folder)
        with previewed(loaded.scenario, folder=folder) as staged:
            (problem,) = seen(loaded, staged)
        assert (problem.kind == "note") == said.startswith("note: ")
        assert said in str(problem)


PROGRAM = """
schema: 1
id: it
title: It
question: Does it?
subject:
  program: [sh, rank.sh]
  candidate: {with: {tool: sh, script: rank.sh}}
  control: {with: {tool: shh, script: odl.sh}, must_fail: {check: done, ranks: every, code: 1}}
matrix: {ranks: [1]}
world: {deadline: 20s}
trials: {candidate: 1, control: 1}
checks: [{id: done, kind: exit, ranks: every}]
"""
SCRIPT = '#!/bin/sh\nprintf \'{"event":"ready"}\\n\' >&3\nread -r answer <&4\n'


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            '["{tool}", rank.sh]',
            "in the control: shh is neither a file of the subject's code nor a program in PATH",
        ),
        (
            '[sh, "{script}", old.sh]',
            "in the control: odl.sh is not a file of the subject's folder, so sh would not find",
        ),
        ("[plain.sh]", "plain.sh is not an executable; start it with #!"),
        ("[sh, rank.sh]", ""),
        ("[sh, -c, x, rank.sh]", ""),
    ],
)
def test_a_program_that_cannot_be_started_is_a_slip(
    scenario: Write, told: Slips, line: str, words: str
) -> None:
    """A word that is filled in and names no program, a script that is not there, a file that is not
    an executable.
    """
    files = {"rank.sh": SCRIPT, "old.sh": SCRIPT, "plain.sh": SCRIPT.partition("\n")[2]}
    found = told(scenario({"scenario.yaml": PROGRAM.replace("[sh, rank.sh]", line), **files}))
    assert bool(found) == bool(words)
    assert all(
        problem.startswith("scenario.yaml:7:12: subject.program: cannot be started in the ")
        for problem in found
    )
    assert all(words in problem for problem in found[-1:])


@pytest.mark.slow
def test_a_script_whose_interpreter_is_not_here_skips_the_cell(
    scenario: Write, rankproof: Run
) -> None:
    """That is this machine's lack, not the scenario's: SKIPPED, with what is missing."""
    files = {
        "scenario.yaml": PROGRAM.replace("[sh, rank.sh]", "[rank.sh]"),
        "rank.sh": SCRIPT.replace("/bin/sh", "/opt/no/such/shell"),
    }
    ran = rankproof("run", str(scenario(files)))
    assert ran.code == 2
    assert [str(reason) for reason in ran.record.judgement.cells[0].reasons] == [
        "program rank.sh: its interpreter /opt/no/such/shell is not on this machine"
    ]


READ = {
    "plain": ("def f(context, a, *, b=1): pass", "context, a, b"),
    "by place": ("def f(context, /, a=1, *rest, **kw): pass", "context, a, *rest, **kw"),
    "annotated": ("async def g(): pass\ndef f(c: int = 3) -> None: pass", "c"),
}
UNREAD = (
    "@d\ndef f(): pass",
    "def f(): pass\ndef f(a): pass",
    "def f(): pass\nf = g(f)",
    "if x:\n    def f(): pass",
    "def f(): pass\nfrom x import *",
    "def f(): pass\nfor f in (): pass",
    "def f(): pass\ndef g():\n    global f\n    f = 1",
    "async def f(): pass",
    "def f():\n    yield",
    "def __getattr__(name): pass",
    "def f(:",
    "x = '\\0'\0",
)


@pytest.mark.parametrize("name", READ)
def test_a_plain_function_is_read_from_its_file(name: str) -> None:
    """Its parameters are known without importing anything."""
    text, words = READ[name]
    found = syntax.read(text.encode(), "f")
    assert found is not None
    assert found.signature is not None
    assert syntax.shown(found.signature) == words


@pytest.mark.parametrize("text", UNREAD)
def test_what_reading_cannot_tell_is_left_to_importing(text: str) -> None:
    """A decorator, a second binding, a star import or a file that this Python cannot read: nothing
    is guessed.
    """
    assert syntax.read(text.encode(), "f") is None


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        ("def f(c, a, b): pass", ["a"], [(None, "does not set b for")]),
        ("def f(c, *, fixed): pass", ["fixd"], [("fixd", "is not a parameter of")]),
        (
            "def f(c, *, fixed, more): pass",
            ["fixd"],
            [("fixd", "is not a parameter of"), (None, "does not set more for")],
        ),
        ("def f(c, **kw): pass", ["anything"], []),
        ("def f(*args, **kw): pass", ["anything"], []),
        ("def f(c): pass", ["c"], [("c", "receives the rank's context")]),
        (
            "def f(c, a, /): pass",
            ["a"],
            [("a", "is not a parameter of"), (None, "takes a only by position")],
        ),
        (
            "def f(): pass",
            [],
            [(None, "add a first parameter for the rank's context")],
        ),
    ],
)
def test_each_misfit_says_what_to_do(
    text: str, arguments: list[str], said: list[tuple[str | None, str]]
) -> None:
    """Whatever does not bind is explained, and nothing that binds is complained about."""
    found = syntax.read(text.encode(), "f")
    assert found is not None
    assert found.signature is not None
    told = syntax.misfits(found.signature, arguments, called="f in it.py")
    assert len(told) == len(said)
    for misfit, (argument, words) in zip(told, said, strict=True):
        assert misfit.argument == argument
        assert words in misfit.why


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("subject:meet", "subject:meat", '7:10: subject.entry: subject.py has no function "meat"'),
        (CONTROL, "with: {brokn: 1}", "subject.control.with.brokn: is not a parameter of meet"),
        ("subject:meet", "subject:missing", 'subject.py has no function "missing"'),
    ],
)
def test_lint_refuses_what_is_not_there(
    scenario: Write, rankproof: Run, old: str, new: str, said: str
) -> None:
    """An entry or an argument that the code does not have is an error of lint, with its place."""
    done = rankproof("lint", str(scenario({"scenario.yaml": SCENARIO.replace(old, new)})))
    assert done.code == 64
    assert said in done.out
    assert ": ok" not in done.out


@pytest.mark.parametrize(
    "code",
    [
        "from other import *\n",
        "def __getattr__(name): return print\n",
        "globals()['meat'] = print\n",
        "exec('def meat(context): pass')\n",
        "import sys\nsetattr(sys.modules[__name__], 'meat', print)\n",
        "meat = print\n",
        "from os import getcwd as meat\n",
        "import functools\n@functools.cache\ndef meat(): pass\n",
        "if True:\n    def meat(context): pass\n",
        "def (:\n",
    ],
)
def test_lint_says_nothing_of_what_reading_cannot_tell(
    scenario: Write, rankproof: Run, code: str
) -> None:
    """A function that a module may bind in another way than `def` is no error."""
    wanted = SCENARIO.replace("subject:meet", "subject:meat")
    done = rankproof("lint", str(scenario({"scenario.yaml": wanted, "subject.py": code})))
    assert "has no function" not in done.out


def test_the_entry_of_a_reference_is_there(scenario: Write, rankproof: Run) -> None:
    """A reference's function and arguments are looked up like the subject's own."""
    for reference, said in (
        ("{entry: 'subject:whol'}", 'subject.reference.entry: subject.py has no function "whol"'),
        ("{with: {sped: 1}}", "subject.reference.with.sped: is not a parameter of meet"),
    ):
        wanted = SCENARIO.replace("\n  control:", f"\n  reference: {reference}\n  control:")
        assert wanted != SCENARIO
        done = rankproof("lint", str(scenario({"scenario.yaml": wanted})))
        assert done.code == 64
        assert said in done.out
