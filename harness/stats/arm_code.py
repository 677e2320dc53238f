"""The code of an arm, and whether trials ran it (rule 12): folders, modules and environments that
ranks report, held against what was staged and installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from harness.checks.finding import canonical
from harness.forms.digest import fold
from harness.forms.strict_json import JSON
from harness.history import History
from harness.reason import VerdictCode, VerdictReason
from harness.scenario import Scenario
from harness.stats import provenance
from harness.stats.counterparts import BuiltCheckout, Source
from harness.stats.hang import LineOf
from harness.stats.outcome import CellFields, JudgedTrial, TrialKeeper


@dataclass(frozen=True, kw_only=True)
class JudgedEnvironment:
    """Environment that was made for an arm.

    Attributes:
        digest: of every file that was installed in it, wherever from.
        python: version of its interpreter.
        implementation: such as `cpython`.
        named: packages that the scenario names, by normal name, with version and digest of its
            files.
        checkouts: those of them that were built from a commit.
    """

    digest: str
    python: str
    implementation: str
    named: Mapping[str, tuple[str, str]]
    checkouts: Mapping[str, BuiltCheckout] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ArmCode:
    """Code of an arm: the sha256 of each file of its staged folder, the entry's arguments, its
    environment.

    `source` is the folder of the evidence in which its files lie.
    `origin` is what its repository holds of the code that was not staged; None where nobody asks
    which code ran.
    """

    files: Mapping[str, str]
    arguments: Mapping[str, object]
    environment: JudgedEnvironment | None = None
    source: str = ""
    origin: Source | None = None

    def lines(self, read: Callable[[str], bytes]) -> LineOf:
        """Find the text of a line of its files, without indentation, in the evidence."""
        known: dict[str, list[str]] = {}

        def line_of(file: str, line: int) -> str | None:
            if file not in self.files:
                return None
            if file not in known:
                known[file] = (
                    read(f"{self.source}/{file}").decode("utf-8", "backslashreplace").splitlines()
                )
            return known[file][line - 1].strip() if 0 < line <= len(known[file]) else None

        return line_of

    @cached_property
    def folder(self) -> str:
        """One digest of the files."""
        return fold(self.files)

    def same_as(self, other: ArmCode) -> bool:
        """Return whether both arms would run the same code in the same way."""
        digests = [code.environment.digest if code.environment else "" for code in (self, other)]
        return (
            dict(self.files) == dict(other.files)
            and canonical(dict(self.arguments)) == canonical(dict(other.arguments))
            and digests[0] == digests[1]
        )


# Seven arguments: the plan, the code and where the evidence is are known to different callers.
class CodeKeeper(TrialKeeper):
    """Why it is not proved that trials ran the code of their arms (rule 12), and what else ran.

    Attributes:
        unproven: reasons so far, those of the reference too.
    """

    def __init__(
        self, scenario: Scenario, arms: Mapping[str, ArmCode], ran: provenance.Ran
    ) -> None:
        self._subject = scenario.subject
        self._arms = arms
        self._ran = ran
        self.unproven: set[VerdictReason] = set(alike_reasons(scenario, arms))

    def take(self, judged: JudgedTrial) -> None:
        code = self._arms[judged.arm]
        self.unproven.update(
            unproven_reasons(self._subject.called(judged.arm), code, judged.history)
        )
        if code.origin is not None:
            for why in self._ran.hear(judged.arm, code.origin, judged.history):
                reason = VerdictReason(VerdictCode.CODE_NOT_PROVED, not_proved(why))
                self.unproven.add(reason)

    def reasons(self) -> Iterator[VerdictReason]:
        yield from self.unproven

    def fields(self) -> CellFields:
        is_asked = self._arms["candidate"].origin is not None
        return {
            "outside": sorted(self._ran.beside),
            "ran": self._ran.summary() if is_asked else None,
        }


def alike_reasons(scenario: Scenario, arms: Mapping[str, ArmCode]) -> Iterator[VerdictReason]:
    """Why arms that are compared could not have differed: they are the same."""
    if (other := arms.get("reference")) is not None:
        served_alike = scenario.services_of("candidate") == scenario.services_of("reference")
        if served_alike and arms["candidate"].same_as(other):
            alike = "a and b have the same code, arguments and environment"
            yield VerdictReason(VerdictCode.ARMS_ALIKE, f"nothing could differ: {alike}")
        return
    control = arms.get("control")
    struck_alike = all(fault.arm is None for fault in scenario.faults)
    served_alike = scenario.services_of("candidate") == scenario.services_of("control")
    is_alike = struck_alike and served_alike
    if control is not None and is_alike and arms["candidate"].same_as(control):
        alike = "both arms have the same code and arguments"
        stated = scenario.subject.control
        if stated is not None and stated.rev is not None:
            alike += (
                f": the control's rev {stated.rev} already has what the candidate has, so a fix is"
                " in it too; set rev to the commit of the broken code"
            )
        yield VerdictReason(VerdictCode.ARMS_ALIKE, alike)


def unproven_reasons(arm: str, code: ArmCode, history: History) -> Iterator[VerdictReason]:
    """Why it is not proved that this trial ran the arm's code (rule 12)."""
    unproved: set[str] = set()
    elsewhere: set[str] = set()
    for rank in range(history.size):
        if (executed := history.executed(rank)) is not None:
            if executed.event.values.get("folder") != code.folder:
                unproved.add(f"{arm}: the folder of a started program no longer matches the arm's")
            for name, digest in history.executed_files(rank):
                if code.files.get(name) != digest:
                    unproved.add(f"{arm}: the executed {name} differs from the arm's")
        # A program may emit any event, and was started from the files looked at above.
        if history.is_of_programs:
            continue
        for seen in history.said(rank, "subject.loaded"):
            values = seen.event.values
            if values.get("elsewhere"):
                unproved.add(f"{arm}: the entry was not loaded from the arm's folder")
            elsewhere.update(environment_unproven(arm, code.environment, values.get("environment")))
            strays = values.get("strays")
            for name in strays if isinstance(strays, list) else ():
                unproved.add(f"{arm}: module {name} of the arm's code came from an installed copy")
        for file, digest in provenance.loaded_files(history, rank):
            if code.files.get(file) != digest:
                unproved.add(f"{arm}: a rank loaded {file}, which differs from the arm's")
    yield from (VerdictReason(VerdictCode.CODE_NOT_PROVED, not_proved(why)) for why in unproved)
    yield from (
        VerdictReason(VerdictCode.ENVIRONMENT_NOT_PROVED, not_proved(why)) for why in elsewhere
    )


def environment_unproven(
    arm: str, environment: JudgedEnvironment | None, reported: JSON
) -> Iterator[str]:
    """Why it is not proved that a rank ran in its arm's environment.

    Args:
        arm: its name.
        environment: its environment; None is the one that Rankproof runs in.
        reported: `environment` of the rank's `subject.loaded`; None where it told nothing.
    """
    if environment is None:
        if reported is not None:
            yield f"{arm}: a rank ran in its own environment, but the arm has none"
        return
    if not isinstance(reported, dict) or reported.get("apart") is not True:
        yield f"{arm}: a rank did not run in the arm's environment"
        return
    if (reported.get("python"), reported.get("implementation")) != (
        environment.python,
        environment.implementation,
    ):
        there = f"{reported.get('implementation')} {reported.get('python')}"
        yield f"{arm}: a rank ran in {there}, not in Python {environment.python}"
    packages = reported.get("packages")
    for name, (version, record) in environment.named.items():
        package = packages.get(name) if isinstance(packages, dict) else None
        if not isinstance(package, dict) or (package.get("version"), package.get("record")) != (
            version,
            record,
        ):
            seen = package.get("version") if isinstance(package, dict) else "no such package"
            yield (
                f"{arm}: {name} {version} was installed, but a rank found {seen} or different files"
                " of it"
            )


def not_proved(why: str) -> str:
    """Say of a doubt about the code what it leaves open."""
    return f"the run does not prove which code ran: {why}"
