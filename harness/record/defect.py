"""Finding about a released library: what its author states, and how its script ended in this run.

A finding is SHOWN where the control failed as required and the candidate did not, and the script
says so in the control's environment: it exits with 1 and prints a line that begins with `DEFECT: `.
The code alone is not enough, because Python exits with 1 after any exception. It is NOT SHOWN where the control never failed
(docs/adr/0165).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Literal

from harness.events import EventError, parse_lines
from harness.forms.digest import sha256
from harness.forms.distribution import normal
from harness.forms.model import Model
from harness.forms.text import visible
from harness.history import History, ended
from harness.record.facts import RunFacts, installed
from harness.scenario import Scenario
from harness.scenario.defect import StatedDefect
from harness.stats.verdict import Judgement

FindingWord = Literal["SHOWN", "NOT SHOWN", "INCONCLUSIVE"]

SCRIPT_FOLDER: Final = "evidence/finding"
AT_FAULT: Final = 1
MARK: Final = "DEFECT: "
"""Begins the line in which a script says what is wrong."""
RIGHT: Final = 0
LINE_LIMIT: Final = 300


class ScriptRun(Model):
    """How the script of a finding ended in the environment of an arm.

    Attributes:
        version: of the library there; None where it is not installed.
        python: version of the interpreter.
        code: exit code; None where a signal ended it.
        how: how it ended, in words.
        says: the line that says what is wrong, or else the last line that it printed.
        log: what it printed; None where it printed nothing.
    """

    version: str | None
    python: str
    code: int | None
    how: str
    says: str
    log: str | None

    @property
    def shows(self) -> bool:
        """Whether it exited with 1 and said what is wrong."""
        return self.code == AT_FAULT and self.says.startswith(MARK)


class FindingRecord(Model):
    """Finding of a run.

    Attributes:
        stated: by the scenario.
        script: path of the script in the evidence.
        sha256: of the script.
        runs: the script by arm; the candidate only where its environment is another one.
        doubts: why the script does not show the defect; empty where it does.
    """

    stated: StatedDefect
    script: str
    sha256: str
    runs: dict[str, ScriptRun]
    doubts: list[str]

    @property
    def at_fault(self) -> str:
        """The library, with the version that was there."""
        version = self.runs["control"].version
        return f"{self.stated.library} {version or '(not installed)'}"


def environments_with_script(digests: Mapping[str, str]) -> list[str]:
    """Return the arms in whose environments the script runs.

    Args:
        digests: of the arms that have an environment of their own, by arm.
    """
    both = digests.get("control") == digests.get("candidate")
    return ["control"] if both else ["control", "candidate"]


def script_files(scenario: Scenario, run: RunFacts) -> dict[str, int]:
    """Return the folders of events of the script's runs, each with one process."""
    if scenario.finding is None:
        return {}
    return {f"{SCRIPT_FOLDER}/{arm}": 1 for arm in _arms(run)}


def finding_of(
    scenario: Scenario, run: RunFacts, read: Callable[[str], bytes], names: Collection[str]
) -> FindingRecord | None:
    """Work out the finding of a run from its evidence; None where it states none, or did not run.

    Raises:
        ValueError: a file of the script's runs is missing, or contradicts itself.
    """
    stated = scenario.finding
    if stated is None or all(cell.skipped is not None for cell in run.cells):
        return None
    path = f"{SCRIPT_FOLDER}/{stated.script}"
    if path not in names:
        raise ValueError(f"the scenario has a finding, but {path} is missing")
    runs = {arm: _run(stated, run, arm, read, names) for arm in _arms(run)}
    return FindingRecord(
        stated=stated,
        script=path,
        sha256=sha256(read(path)),
        runs=runs,
        doubts=list(_doubts(stated, runs)),
    )


def _arms(run: RunFacts) -> list[str]:
    return environments_with_script({arm: one.digest for arm, one in run.environments.items()})


def _run(
    stated: StatedDefect,
    run: RunFacts,
    arm: str,
    read: Callable[[str], bytes],
    names: Collection[str],
) -> ScriptRun:
    place = f"{SCRIPT_FOLDER}/{arm}"
    events = f"{place}/events.jsonl"
    if events not in names:
        raise ValueError(f"the finding's script ran, but {events} is missing")
    try:
        history = History(parse_lines(read(events)), size=1)
    except EventError as error:
        raise ValueError(f"{events}: {error}") from None
    end = history.exit(0)
    python, versions = installed(run, arm)
    log = f"{place}/rank-0.log"
    lines = read(log).decode("utf-8", "replace").strip().splitlines() if log in names else []
    code = end.event.values.get("code") if end is not None else None
    was_stopped = history.was_stopped(0)
    how = "did not end in time" if was_stopped or end is None else ended(end.event.values)
    says = said(lines)
    return ScriptRun(
        version=versions.get(normal(stated.library)),
        python=python,
        code=code if isinstance(code, int) and not was_stopped else None,
        how=how,
        says=visible(says, LINE_LIMIT),
        log=log if log in names else None,
    )


def said(lines: Sequence[str]) -> str:
    """Return the line in which a script says what is wrong, or else its last line."""
    marked = [line.strip() for line in lines if line.startswith(MARK)]
    last = lines[-1].strip() if lines else ""
    return marked[-1] if marked else last


def _doubts(stated: StatedDefect, runs: Mapping[str, ScriptRun]) -> list[str]:
    doubts = []
    for arm, one in runs.items():
        if one.shows if arm == "control" else one.code == RIGHT:
            continue
        wanted = f"exit with {AT_FAULT} and print a line that begins with {MARK.strip()}"
        if arm == "candidate":
            wanted = f"exit with {RIGHT}"
        text = f"{stated.script} must {wanted} in the environment of the {arm}"
        said = f": {one.says}" if one.says else ""
        doubts.append(f"{text}, but {'it ' if one.code is None else 'exited with '}{one.how}{said}")
    return doubts


def finding_word(judgement: Judgement, finding: FindingRecord | None) -> FindingWord:
    """Return the word of a run of role upstream."""
    ran = [cell for cell in judgement.cells if cell.candidate is not None]
    if judgement.verdict == "PASS":
        return "INCONCLUSIVE" if finding is not None and finding.doubts else "SHOWN"
    if not ran:
        return "INCONCLUSIVE"
    for cell in ran:
        candidate = cell.candidate
        control = cell.control
        if control is None:
            if cell.verdict != "FAIL":
                return "INCONCLUSIVE"
            continue
        is_clean = candidate is not None and candidate.counted and not candidate.failed
        if not is_clean or not control.counted or control.failed:
            return "INCONCLUSIVE"
    return "NOT SHOWN"
