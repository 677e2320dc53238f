"""Limits of what a run shows, worked out from the run: by who made it, and again by who verifies it
(rule 15).

Each sentence follows from the scenario and the events of this run; what no run of any scenario
shows is recited by the report itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from harness.checks import Finding
from harness.checks.agree import AgreeCheck
from harness.checks.arrays import A, AgainstCheck
from harness.checks.finding import canonical
from harness.checks.influence import InfluenceCheck
from harness.faults.proof import STRUCK, noted
from harness.forms.problem import closest
from harness.forms.text import joined, plural
from harness.history import ARTEFACT_FOUND, History, artefact_found
from harness.scenario import Cell, Scenario, processes_of
from harness.scenario.lint.sufficiency import OF_ONE, unasked, unsplit
from harness.stats.outcome import Arm, JudgedTrial, Trial, TrialKeeper
from harness.stats.unseen import (
    has_called,
    has_talked,
    last_asked,
    lazy,
    left_out,
    reported,
    says_nothing,
    swapped,
    texts,
    unseen,
)

CELLS_MOST = 6


class Unshown(TrialKeeper):
    """Takes the judged trials of a scenario one after the other, and tells what they leave open."""

    def __init__(
        self, scenario: Scenario, *, read: Callable[[str], bytes], names: Collection[str]
    ) -> None:
        """Begin.

        Args:
            scenario: whose trials are taken.
            read: gives the bytes of an evidence file by its path.
            names: the paths there are.
        """
        self._scenario = scenario
        self._read = read
        self._evidence = names
        self._axes = list(scenario.matrix.further)
        self._names = [check.id for check in scenario.checks]
        self._cells: dict[str, Cell] = {}
        self._failed: defaultdict[str, set[str]] = defaultdict(set)
        # The checks that trials of the control failed only because there was nothing to compare.
        self._wanting: defaultdict[str, set[str]] = defaultdict(set)
        self._controls: Counter[str] = Counter()
        # Cells of several ranks, of those in which a trial passed: whether an exchange between
        # ranks is shown, or calls at least that may have been one.
        self._talked: dict[str, bool] = {}
        self._called: dict[str, bool] = {}
        self._reported: dict[tuple[str, Arm], str] = {}
        self._swallowed: set[tuple[str, str]] = set()
        self._struck: Counter[str] = Counter()
        self._after: Counter[str] = Counter()
        self._hung = False
        self._spun = False
        self._not_held = 0
        # Of checks against a: trials that passed, and those in which b had the bits of a.
        self._compared: Counter[str] = Counter()
        self._alike: Counter[str] = Counter()
        # Of checks that compare what is given with one another: the first value, how many there
        # were, who had two.
        self._first: dict[str, object] = {}
        self._same: Counter[str] = Counter()
        self._varied: set[str] = set()
        # Of each cell, what its first trial that passed leaves open about the logits that it
        # compared.
        self._unseen: dict[str, list[str]] = {}
        # Services of several processes, in trials that passed: whether the wire carried anything
        # between them. None where nothing was counted.
        self._exchanged: dict[str, bool | None] = {}
        # Events and keys that ranks of the candidate reported, joined by a dot.
        self._values: set[str] = set()

    def take(self, judged: JudgedTrial) -> None:
        """Take one trial. A void one shows nothing, and leaves nothing open."""
        cell = judged.cell
        arm = judged.arm
        trial = judged.trial
        history = judged.history
        if trial.outcome == "void":
            return
        self._cells.setdefault(cell.id, cell)
        self._take_swallowed(arm, history)
        self._take_artefacts(history)
        self._take_values(history)
        if self._axes and (cell.id, arm) not in self._reported:
            self._reported[cell.id, arm] = reported(history)
        if arm == "candidate" and not self._values.issuperset(self._scenario.show):
            said = (seen.event for seen in history.seen if seen.event.by == "rank")
            self._values.update(f"{event.name}.{key}" for event in said for key in event.values)
        if arm == "control":
            self._controls[cell.id] += 1
            proved = history.noted("world.still") if trial.as_stated else ()
            self._hung = self._hung or bool(proved)
            self._spun = self._spun or any(bool(seen.event.values.get("spins")) for seen in proved)
            self._take_failed(cell, judged.findings, history)
        elif trial.outcome == "pass":
            self._take_strikes(trial, history)
            self._take_services(cell, history)
            self._take_alike(history)
            if cell.ranks > 1:
                self._talked[cell.id] = self._talked.get(cell.id, False) or has_talked(history)
                self._called[cell.id] = self._called.get(cell.id, False) or has_called(history)
            if cell.id not in self._unseen:
                self._unseen[cell.id] = unseen(self._scenario, history, axes=cell.axes)

    def take_references(self, arm: str, histories: Iterable[History]) -> None:
        """Take the runs of what the cell is compared with, where it is an arm of its own."""
        for history in histories if arm == "reference" else ():
            self._take_swallowed(arm, history)
            self._take_artefacts(history)
            self._take_values(history)

    def sentences(self, tolerances: Mapping[str, Sequence[str]] | None = None) -> list[str]:
        """Return everything that is left open, one sentence each.

        Args:
            tolerances: by cell, what is left open about them (`harness.stats.teeth`).
        """
        cells = self._cells
        checks = self._scenario.checks
        left = [
            *self._left_unseen(),
            *self._each_by_cell(tolerances or {}),
            *self._by_cell({cell.id: unasked(checks, cell.ranks) for cell in cells.values()}),
            *self._by_cell({cell.id: unsplit(checks, cell.ranks) for cell in cells.values()}),
            *self._by_cell({cell.id: OF_ONE for cell in cells.values() if self._is_one(cell)}),
            *self._by_cell({name: self._unfailed(name) for name in cells if self._controls[name]}),
            *self._by_cell({name: self._wanted(name) for name in cells}),
            *self._by_cell(
                {name: self._silent(name) for name, talked in self._talked.items() if not talked}
            ),
            *self._processes_apart(),
            *(self._not_reported(name) for name in self._scenario.show),
            *(self._changed_nothing(axis) for axis in self._axes),
            *(
                _swallowed(self._scenario.subject.named(arm), name)
                for arm, name in sorted(self._swallowed)
                if name not in self._axes
            ),
            self._same_bits(),
            *self._of_hangs(),
            self._never_varied(),
            *(
                f"fault {fault} struck after the last event that a check uses in {count} of"
                f" {self._struck[fault]} trials of the candidate, so it could not affect the result"
                for fault, count in sorted(self._after.items())
                if count
            ),
            swapped(self._scenario),
            lazy(self._scenario),
            self._not_in_evidence(),
        ]
        return [
            f"{sentence[0].upper()}{sentence[1:]}{'' if sentence.endswith('?') else '.'}"
            for sentence in left
            if sentence
        ]

    def _take_services(self, cell: Cell, history: History) -> None:
        for name, service in self._scenario.services.items():
            if processes_of(service, cell) == 1:
                continue
            served = history.services.get(name)
            carried = served.served(None, "wire.carried") if served is not None else ()
            known = self._exchanged.get(name)
            if carried:
                self._exchanged[name] = bool(known) or bool(carried[0].event.values.get("links"))
            else:
                self._exchanged.setdefault(name, None)

    def _processes_apart(self) -> Iterator[str]:
        """Say of which services it is not known that their processes work together."""
        for name, exchanged in self._exchanged.items():
            if exchanged is None:
                yield (
                    f"the run did not record whether the processes of {name} exchanged anything"
                    f" (services.{name}.hosts would count it), so each may have worked alone"
                )
            elif not exchanged:
                yield f"the processes of {name} exchanged nothing over the wire in any trial"

    def _is_one(self, cell: Cell) -> bool:
        """Return whether nothing of a cell is distributed: one rank, and no service of several
        processes.
        """
        services = self._scenario.services.values()
        return cell.ranks == 1 and all(processes_of(service, cell) == 1 for service in services)

    def _not_in_evidence(self) -> str:
        if not self._not_held:
            return ""
        many = plural(self._not_held, "artefact")
        return (
            f"{many} of ranks are not in the evidence, because its size is limited. It contains the"
            " results of the checks, but a verifier cannot recompute them"
        )

    def _of_hangs(self) -> list[str]:
        """Return what the proof of a hang leaves open, where one was proved."""
        if not self._hung:
            return []
        limits = [
            (
                "the proof that the control hangs covers the waits that the kernel shows. It does"
                " not cover memory shared with a process outside the world, a device that is still"
                " computing, a process that may still connect, open a named pipe or send a signal,"
                " or an alarm without a handler. If the sockets of ranks are hidden from us, it does"
                " not cover their timeouts (SO_RCVTIMEO) either"
            ),
            (
                "a library thread that repeats a wait shorter than a window counts as waiting for"
                " another rank, even if it counts its attempts"
            ),
        ]
        if self._spun:
            limits.append(
                "a loop that would end after the observed time looks like an endless loop"
            )
        return limits

    def _left_unseen(self) -> list[str]:
        """Return what comparing logits leaves open, and the combinations that nobody tried."""
        if not self._cells:
            return []
        return [*self._each_by_cell(self._unseen), *filter(None, [left_out(self._scenario)])]

    def _each_by_cell(self, sentences: Mapping[str, Sequence[str]]) -> list[str]:
        """Return each sentence of each cell once, with the cells it is about."""
        every = dict.fromkeys(chain.from_iterable(sentences.values()))
        return [
            with_cells
            for sentence in every
            for with_cells in self._by_cell(
                {cell: sentence for cell, several in sentences.items() if sentence in several}
            )
        ]

    def _by_cell(self, sentences: Mapping[str, str]) -> list[str]:
        """Return each sentence once, with the cells it is about where it is not about all."""
        cells: defaultdict[str, list[str]] = defaultdict(list)
        for cell, sentence in sentences.items():
            if sentence:
                cells[sentence].append(cell)
        return [
            sentence if len(about) == len(self._cells) else f"{sentence} ({_listed(about)})"
            for sentence, about in cells.items()
        ]

    def _silent(self, cell: str) -> str:
        """Return what to say of a cell in which no exchange between ranks was recorded."""
        if any(isinstance(check, InfluenceCheck) for check in self._scenario.checks):
            return ""  # what one rank changes, another one computes with
        if self._called[cell]:
            return (
                "ranks made collective calls, but no check compared the calls of different ranks"
                " (ledger-agrees would), so each rank may have made its calls in its own group"
            )
        if "collectives" in self._scenario.observe:
            return (
                "the ledgers contain no collective call or transfer between ranks, so each rank may"
                " have worked alone"
            )
        hint = "" if self._scenario.subject.program else " (observe: collectives would record it)"
        return (
            f"the run did not record whether the ranks exchanged anything{hint}, so each rank may"
            " have worked alone"
        )

    def _take_failed(self, cell: Cell, findings: Sequence[Finding], history: History) -> None:
        """Note which checks a trial of the control failed: by what they look at, or for want of
        something to compare.
        """
        control = self._scenario.subject.control
        stated = control.must_fail.check if control is not None else None
        checks = {check.id: check for check in self._scenario.checks}
        for finding in findings:
            if finding.passed:
                continue
            parts = [part for part in finding.ranks if not part.passed]
            check = checks.get(finding.check)
            compared = check is not None and check.properties.compares
            is_want = not finding.reason and all(part.want(compares=compared) for part in parts)
            is_want = is_want and finding.check != stated
            is_empty = not finding.reason and all(
                says_nothing(check, history, part.rank) for part in parts
            )
            if is_want or is_empty:
                self._wanting[cell.id].add(finding.check)
            else:
                self._failed[cell.id].add(finding.check)

    def _wanted(self, cell: str) -> str:
        """Say that the control failed these checks by giving nothing to compare, which does not
        show what they see.
        """
        names = [name for name in self._names if name in self._wanting[cell] - self._failed[cell]]
        if not names:
            return ""
        checks = "check" if len(names) == 1 else "checks"
        detect = "the check detects" if len(names) == 1 else "the checks detect"
        control = self._scenario.subject.named("control")
        return (
            f"{control} failed the {checks} {_quoted(names)} only because its ranks reported"
            f" nothing to compare, so this run does not show that {detect} a wrong value"
        )

    def _unfailed(self, cell: str) -> str:
        left = [
            name for name in self._names if name not in self._failed[cell] | self._wanting[cell]
        ]
        if not left:
            return ""
        checks = "check" if len(left) == 1 else "checks"
        they = "it" if len(left) == 1 else "they"
        control = self._scenario.subject.named("control")
        return (
            f"{control} never failed the {checks} {_quoted(left)}, so this run does not show that"
            f" {they} can fail"
        )

    def _not_reported(self, name: str) -> str:
        """Say that no rank reported a value that is to be shown.

        Empty where one did, or nothing counted.
        """
        if name in self._values or not self._cells:
            return ""
        meant = closest(name, sorted(self._values))
        hint = f"; did you mean {meant}?" if meant else ""
        return (
            f"no rank of {self._scenario.subject.named('candidate')} reported {name}, which show"
            f" names{hint}"
        )

    def _changed_nothing(self, axis: str) -> str:
        """Say why nothing shows that an axis had an effect.

        Empty where something does, or it has one value.
        """
        alike: defaultdict[str, list[Cell]] = defaultdict(list)
        for cell in self._cells.values():
            others = {name: value for name, value in cell.axes.items() if name != axis}
            alike[canonical([cell.ranks, cell.backend, cell.hosts, others])].append(cell)
        groups = [group for group in alike.values() if len(group) > 1]
        if not groups:
            return ""
        arms: tuple[Arm, ...] = ("candidate", "control")
        if all(
            len({self._reported.get((cell.id, arm)) for cell in group}) == 1
            for group in groups
            for arm in arms
        ):
            # No other trial was looked at for this.
            where = "in the first trial of each cell"
            return (
                f"the axis {axis} changed nothing that ranks reported {where}, so this run does not"
                " show that it was used"
            )
        if any(name == axis for _, name in self._swallowed):
            return _swallowed(None, axis)
        return ""

    def _take_swallowed(self, arm: str, history: History) -> None:
        for rank in range(history.size):
            for seen in history.said(rank, "subject.begin"):
                names = seen.event.values.get("swallowed")
                self._swallowed.update((arm, name) for name in texts(names))

    def _take_artefacts(self, history: History) -> None:
        for rank in range(history.size):
            self._not_held += sum(
                seen.event.values.get("stored") is False
                for seen in history.noted(ARTEFACT_FOUND, rank)
            )

    def _take_values(self, history: History) -> None:
        """Note what checks compare with one another: until there are two values, the first and how
        often it was there.
        """
        for check in self._scenario.checks:
            if check.id in self._varied or not isinstance(check, AgreeCheck | AgainstCheck):
                continue
            artefact: str | None = getattr(check, "artefact", None)
            if isinstance(check, AgainstCheck) and check.of[0] is None:
                continue  # the scenario says what it has to be
            for rank in range(history.size):
                if artefact is not None:
                    seen = artefact_found(history, rank, artefact)
                    values = [seen.event.values.get("sha256")] if seen is not None else []
                else:
                    event = str(getattr(check, "event", ""))
                    key = str(getattr(check, "key", ""))
                    values = [value for value, _ in history.values(rank, event, key)]
                for value in values:
                    first = self._first.setdefault(check.id, value)
                    self._same[check.id] += 1
                    if value != first:
                        self._varied.add(check.id)

    def _never_varied(self) -> str:
        """Say that what checks compare was one value throughout: a constant passes them."""
        names = [
            name for name, count in self._same.items() if count > 1 and name not in self._varied
        ]
        if not names:
            return ""
        each = "check" if len(names) == 1 else "each of the checks"
        return (
            f"{each} {_quoted(names)} saw a single value in this run, so a subject that always"
            " reports that value would pass"
        )

    def _take_strikes(self, trial: Trial, history: History) -> None:
        if not trial.strikes or (last := last_asked(self._scenario, history)) is None:
            return
        struck: defaultdict[str, set[bool]] = defaultdict(set)
        for strike in trial.strikes:
            served = history.services.get(strike.service or "", history)
            seen = noted(served, STRUCK, fault=strike.fault, rank=strike.rank)
            if seen is not None:
                struck[strike.fault].add(seen.event.ns > last)
        for fault, after in struck.items():
            self._struck[fault] += 1
            self._after[fault] += after == {True}

    def _same_bits(self) -> str:
        """Say that b never differed from a in what these checks compare.

        The defect is seen in what no arm computes too.
        """
        names = [name for name, count in self._compared.items() if self._alike[name] == count]
        if not names:
            return ""
        noun, what = ("check", "it compares") if len(names) == 1 else ("checks", "they compare")
        # Of a trial that failed a check, the others may have differed too.
        return (
            f"a and b were bit-identical in every trial that passed, by the {noun}"
            f" {_quoted(names)}, so this run does not show that the values that {what} depend on"
            " the difference between a and b"
        )

    def _take_alike(self, history: History) -> None:
        for check in self._scenario.checks:
            if isinstance(check, AgainstCheck) and getattr(check, "against", None) == A:
                self._compared[check.id] += 1
                self._alike[check.id] += check.same_bits(history)


def _swallowed(arm: str | None, name: str) -> str:
    what = f"the axis {name}" if arm is None else f"the argument {name} of {arm}"
    return (
        f"{what} is not a parameter of the entry, which accepts it through **, so this run does not"
        " show that it was used"
    )


def _quoted(checks: Iterable[str]) -> str:
    """Names of checks, which may be words such as `ended`; a report shows them as code."""
    return joined(f"`{check}`" for check in checks)


def _listed(cells: Sequence[str]) -> str:
    more = len(cells) - CELLS_MOST
    return "; ".join([*cells[:CELLS_MOST], *([f"{more} more"] if more > 0 else [])])
