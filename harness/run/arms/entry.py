"""Slips of a scenario that would make trials of something that cannot be called: found before the
first trial.

A function that is not there, arguments that it does not take, a program that cannot be started: a
trial would fail of them, and the failure would be signed as one of the code. What importing
*raises* is the trial's affair.

Most entries are read from their files. Where that does not tell, or tells of a slip, the arm's own
interpreter imports the module as a trial would, in a world of one rank that joins no group: what an
import does beside importing (hang, exit, fork, print) stays in there.
"""

from __future__ import annotations

import builtins
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from harness.forms.problem import closest
from harness.forms.strict_json import JSON
from harness.forms.text import listed
from harness.rank.arm import names_swallowed
from harness.run.arms import syntax
from harness.run.arms.staging import StagedArm, as_in
from harness.run.arms.syntax import SubjectEntry
from harness.scenario import Arm, Cell, LoadedScenario, Problem, Scenario
from harness.world.control import program
from harness.world.control.rank_environment import server_environment

DEFINED = re.compile(r"^\s*(?:async\s+)?(?:def|class)\s+(\w+)", re.MULTILINE)
EMITTED = re.compile(r"""\b(?:emit|event|measure|span)\w*\(\s*["']([\w.-]+)["']""")
MUST_FAIL = ("subject", "control", "must_fail")
Place = tuple[str | int, ...]
Look = Callable[[str], SubjectEntry | None]


def slips(
    loaded: LoadedScenario, staged: Mapping[str, StagedArm], cells: Sequence[Cell], *, look: Look
) -> list[Problem]:
    """Every slip of the entry or the program, at its place in the file.

    Empty where the trials can begin.

    The cells are those that can run here; `look` imports an arm's entry and looks at it.
    """
    if loaded.scenario.subject.use is not None or not cells:
        return []
    if loaded.scenario.subject.program is not None:
        return list(dict.fromkeys(_programs(loaded, staged, cells)))
    problems: list[Problem] = []
    for name, arm in _stated(loaded, staged):
        entry = _read(loaded.scenario.subject.function, arm)
        if entry is None or _problems(loaded, name, arm, entry):
            problems += _problems(loaded, name, arm, look(name))
    problems += _nowhere(loaded, staged)
    return list(dict.fromkeys(problems))


def seen(loaded: LoadedScenario, staged: Mapping[str, StagedArm]) -> list[Problem]:
    """Return what reading the files tells of such slips.

    As notes, arguments that no parameter is named after.
    """
    subject = loaded.scenario.subject
    if subject.use is not None or subject.program is not None:
        return []
    problems: list[Problem] = []
    for name, arm in _stated(loaded, staged):
        entry = _read(loaded.scenario.subject.function, arm)
        if entry is not None:
            problems += _problems(loaded, name, arm, entry)
            problems += _swallowed(loaded, name, arm, entry)
    problems += _of_the_reference(loaded, staged)
    problems += _nowhere(loaded, staged)
    problems += _fails_nowhere(loaded, staged)
    problems += _unsaid(loaded, staged)
    return list(dict.fromkeys(problems))


def _stated(loaded: LoadedScenario, staged: Mapping[str, StagedArm]) -> list[tuple[str, StagedArm]]:
    """Return the arms that the file states: a comparison's control is its b once more."""
    compares = loaded.scenario.subject.compare is not None
    return [(name, arm) for name, arm in staged.items() if not (compares and name == "control")]


def _not_there(entry: SubjectEntry, function: str, where: str) -> str:
    there = f"it has {listed(entry.names)}" if entry.names else "it has no functions"
    return f'{where} has no function "{function}"; {there}'


def _read(function: str, arm: StagedArm) -> SubjectEntry | None:
    module, _, name = function.partition(":")
    place = arm.folder / module.replace(".", "/")
    files = [file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()]
    return syntax.read(files[0].read_bytes(), name) if len(files) == 1 else None


# -- functions ---------------------------------------------------------------------------------


def _problems(
    loaded: LoadedScenario, name: str, arm: StagedArm, entry: SubjectEntry | None
) -> list[Problem]:
    """Return what is wrong with the entry of an arm, as far as it is known."""
    scenario = loaded.scenario
    given = scenario.subject.arms[name]
    function = scenario.subject.function.partition(":")[2]
    where = f"{_file(scenario, given)}{as_in(scenario.subject.named(name), arm.revision)}"
    if entry is None:
        return []
    if not entry.there:
        message = _not_there(entry, function, where)
        # Where the arm is other code than lies here, that is what may be meant otherwise.
        place: Place = (
            (*scenario.subject.place(name), "rev")
            if given.rev is not None
            else ("subject", "entry")
        )
        if given.rev is not None:
            message = f"{message}. Choose a revision that has it"
        return [loaded.problem(place, message, suggestion=closest(function, entry.names))]
    if entry.late:
        return [loaded.problem(("subject", "entry"), f"{syntax.LATE[entry.late]} ({where})")]
    if entry.signature is None:
        return []
    axes = list(scenario.matrix.further)
    problems = []
    for misfit in syntax.misfits(
        entry.signature, [*arm.arguments, *axes], called=f"{function} in {where}"
    ):
        place = (
            ("subject", "entry")
            if misfit.of_the_function
            else (*scenario.subject.place(name), "with")
        )
        if misfit.argument is not None:
            place = (
                ("matrix", misfit.argument)
                if misfit.argument in axes
                else (*place, misfit.argument)
            )
        problems.append(
            loaded.problem(place, misfit.why, at_key=True, suggestion=misfit.suggestion)
        )
    return problems


def _swallowed(
    loaded: LoadedScenario, name: str, arm: StagedArm, entry: SubjectEntry
) -> Iterator[Problem]:
    """Axes and arguments that bind, and that no parameter is named after."""
    if entry.signature is None:
        return
    axes = list(loaded.scenario.matrix.further)
    for argument in names_swallowed(entry.signature.parameters.values(), [*arm.arguments, *axes]):
        given = (*loaded.scenario.subject.place(name), "with", argument)
        place: Place = ("matrix", argument) if argument in axes else given
        message = (
            "is not a parameter of the entry, which accepts it through **; if the entry does not use"
            " it, "
        )
        what = "these cells are all the same" if argument in axes else "it changes nothing"
        yield loaded.problem(place, f"{message}{what}", at_key=True, kind="note")


def _nowhere(loaded: LoadedScenario, staged: Mapping[str, StagedArm]) -> Iterator[Problem]:
    """Where a hang is stated at a function or a line that no file of the control has."""
    control = loaded.scenario.subject.control
    arm = staged.get("control")
    hang = control.must_fail.hang if control is not None else None
    if hang is None or arm is None:
        return
    texts = _texts(arm)
    place: Place = (*MUST_FAIL, "hang")
    if hang.function is not None and not hang.function.startswith("<"):
        names = sorted({name for text in texts for name in DEFINED.findall(text)})
        if hang.function not in names:
            message = "is not a function in the control's code"
            yield loaded.problem(
                (*place, "function"), message, suggestion=closest(hang.function, names)
            )
    yield from _no_line(loaded, texts, hang.source, place)


def _fails_nowhere(loaded: LoadedScenario, staged: Mapping[str, StagedArm]) -> Iterator[Problem]:
    """Where an error is stated at a line that no file of the control has.

    A self-test may want that.
    """
    control = loaded.scenario.subject.control
    arm = staged.get("control")
    stated = control.must_fail if control is not None else None
    if stated is None or arm is None or loaded.scenario.role == "self-test":
        return
    # A line of another file is a library's, and so may one be where the control has an environment
    # of its own.
    if (
        getattr(stated, "file", None) is None
        and "control" not in loaded.scenario.subject.environments
    ):
        yield from _no_line(loaded, _texts(arm), getattr(stated, "source", None), MUST_FAIL)


def _no_line(
    loaded: LoadedScenario, texts: Sequence[str], source: str | None, place: Place
) -> Iterator[Problem]:
    lines = sorted({line.strip() for text in texts for line in text.splitlines()})
    if source is not None and source not in lines:
        message = "is not a line of the control's code; use a whole line, without its indentation"
        yield loaded.problem((*place, "source"), message, suggestion=closest(source, lines))


def _texts(arm: StagedArm) -> list[str]:
    return [
        file.read_text("utf-8", "replace")
        for file in sorted(arm.folder.rglob("*.py"))
        if file.is_file()
    ]


def _unsaid(loaded: LoadedScenario, staged: Mapping[str, StagedArm]) -> Iterator[Problem]:
    """Names of events and exceptions that are in no file of the code, where one nearly like it is.

    As notes: a name can be put together as the code runs, and a package can emit it.
    """
    texts = [text for _, arm in _stated(loaded, staged) for text in _texts(arm)]
    emitted = sorted({name for text in texts for name in EMITTED.findall(text)})
    scenario = loaded.scenario
    asked: list[tuple[Place, str | None]] = []
    for index, check in enumerate(scenario.checks):
        key = "event" if "event" in check.model_fields_set else "value"
        asked.append((("checks", index, key), getattr(check, "event", None)))
    asked += [(("faults", index, "at"), fault.event) for index, fault in enumerate(scenario.faults)]
    asked += [
        (("measure", index, "event"), row.event) for index, row in enumerate(scenario.measure)
    ]
    for place, name in asked:
        # Beginnings and ends of what takes time are emitted by one name.
        stem = "" if name is None else name.removesuffix(".begin").removesuffix(".end")
        is_there = any(f"{quote}{stem}" in text for text in texts for quote in "'\"")
        meant = closest(stem, emitted)
        if not is_there and meant is not None:
            message = (
                "no file of the subject mentions this event; ranks emit it only if a package does"
            )
            yield loaded.problem(place, message, suggestion=meant, kind="note")
    control = scenario.subject.control
    error = getattr(control.must_fail, "error", None) if control is not None else None
    known = [name for name, value in vars(builtins).items() if isinstance(value, type)]
    if error is None or error in known or any(error.rpartition(".")[2] in text for text in texts):
        return
    if meant := closest(error, known):
        message = "is not a built-in exception, and no file of the subject mentions it"
        yield loaded.problem((*MUST_FAIL, "error"), message, suggestion=meant, kind="note")


def _of_the_reference(loaded: LoadedScenario, staged: Mapping[str, StagedArm]) -> list[Problem]:
    """Return what is wrong with the entry of a reference, as far as reading the candidate's code
    tells.
    """
    subject = loaded.scenario.subject
    reference = subject.reference
    arm = staged.get("candidate")
    if reference is None or arm is None:
        return []
    called = reference.entry or subject.function
    module, _, function = called.partition(":")
    entry = _read(called, arm)
    if entry is None:
        return []
    where = f"{module.replace('.', '/')}.py"
    place: Place = (
        ("subject", "reference", "entry") if reference.entry is not None else ("subject", "entry")
    )
    if not entry.there:
        return [
            loaded.problem(
                place, _not_there(entry, function, where), suggestion=closest(function, entry.names)
            )
        ]
    if entry.signature is None:
        return []
    axes = [] if reference.once == "scenario" else list(loaded.scenario.matrix.further)
    given: Place = ("subject", "reference", "with")
    problems = []
    arguments = [*reference.with_, *axes]
    for misfit in syntax.misfits(entry.signature, arguments, called=f"{function} in {where}"):
        at = place if misfit.of_the_function else given
        if misfit.argument is not None:
            at = (
                ("matrix", misfit.argument)
                if misfit.argument in axes
                else (*given, misfit.argument)
            )
        why = f"of the reference: {misfit.why}" if at[0] == "matrix" else misfit.why
        problems.append(loaded.problem(at, why, at_key=True, suggestion=misfit.suggestion))
    return problems


def _file(scenario: Scenario, arm: Arm) -> str:
    return arm.file or f"{scenario.subject.function.partition(':')[0].replace('.', '/')}.py"


# -- programs ----------------------------------------------------------------------------------


def _programs(
    loaded: LoadedScenario, staged: Mapping[str, StagedArm], cells: Sequence[Cell]
) -> Iterator[Problem]:
    scenario = loaded.scenario
    search = server_environment(scenario.world.env).get("PATH", os.defpath)
    for name, arm in staged.items():
        for cell in cells:
            arguments: dict[str, JSON] = {**arm.arguments, **cell.axes}
            why = program.slip(
                scenario.subject.program or (), code=arm.folder, arguments=arguments, path=search
            )
            if why is not None:
                where = as_in(scenario.subject.named(name), arm.revision) or f" in the {name}"
                yield loaded.problem(("subject", "program"), f"cannot be started{where}: {why}")
