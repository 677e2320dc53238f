"""Checks that look at many artefacts of a world and its reference together, by an account that the
harness makes.

Whoever has the files makes the account again; who has not judges by what the event holds of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from harness.checks.check import Check, RankCheck
from harness.checks.finding import Finding, RankFinding, over_ranks
from harness.forms.problem import Draft, Problem
from harness.forms.strict_json import JSON
from harness.history import ARTEFACT_FOUND, ARTEFACTS_ACCOUNTED, History, artefact_was_changed
from harness.numeric.array import NotAnArray
from harness.numeric.arrays import ArrayFile
from harness.reason import VerdictCode

REFERENCE = "reference"


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Sources of an account.

    Attributes:
        history: the trial's events; of its reference by `history.reference`.
        ranks: what each rank kept, by name.
        reference: what the reference kept.
    """

    history: History
    ranks: Mapping[int, Mapping[str, ArrayFile]]
    reference: Mapping[str, ArrayFile]


class AccountedCheck(RankCheck):
    """Check for which the harness makes an account of what the ranks and the reference kept.

    Attributes:
        asks_the_reference: whether the reference itself is judged, its second run against the
            first.
    """

    asks_the_reference: ClassVar[bool] = False

    def wants(self, name: str) -> bool:
        """Tell whether the account is of artefacts of this name."""
        raise NotImplementedError

    def is_answer(self, name: str) -> bool:
        return self.wants(name)

    def account(self, sources: Sources) -> dict[str, JSON]:
        """Make the account. Needs NumPy; the same wherever it is made.

        Raises:
            NotAnArray: a file is not what it has to be.
        """
        raise NotImplementedError

    def judge_account(
        self, history: History, account: Mapping[str, JSON], line: int
    ) -> list[RankFinding]:
        """Judge the ranks asked. Pure, and never raises, whatever the account holds."""
        raise NotImplementedError

    def doubts(self, history: History) -> Iterator[tuple[VerdictCode, str]]:
        """Yield why the reference cannot answer what this check asks; `history` is of its last
        run.
        """
        del history
        yield from ()

    @classmethod
    def lint(cls, checks: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """There is a reference to compare with."""
        for index in checks:
            if not draft.has("subject", "reference"):
                yield draft.problem(
                    ("checks", index, "against"),
                    "needs a subject.reference section for the whole model",
                )

    def judge(self, history: History) -> Finding:
        """By the one account that there has to be, of exactly the files that were kept."""
        noted = [
            seen
            for seen in history.noted(ARTEFACTS_ACCOUNTED)
            if seen.event.values.get("check") == self.id
        ]
        if len(noted) != 1:
            return self._lost(history, "the artefacts of the ranks were not compared")
        values = noted[0].event.values
        line = noted[0].line
        if values.get("files") != files_of(self, history):
            return self._lost(history, "the compared artefacts differ from the saved ones", line)
        for rank, name in _changed(self, history):
            whose = "the reference" if rank is None else f"rank {rank}"
            return self._lost(history, f"{name} of {whose} was changed after it was kept", line)
        account = values.get("account")
        if not isinstance(account, dict):
            return self._lost(history, f"it cannot be compared: {values.get('why')}", line)
        return over_ranks(self.id, self.kind, self.judge_account(history, account, line))

    def _lost(self, history: History, why: str, line: int | None = None) -> Finding:
        return over_ranks(self.id, self.kind, self.uncompared(history, why, line))


def accounted(checks: Iterable[Check]) -> list[AccountedCheck]:
    """List the checks of a scenario for which the harness makes an account."""
    return [check for check in checks if isinstance(check, AccountedCheck)]


def note_accounts(
    checks: Iterable[Check], history: History, *, file: Callable[[Mapping[str, JSON]], ArrayFile]
) -> Iterator[dict[str, JSON]]:
    """Make the accounts of a trial, as the values of the events that hold them.

    Args:
        checks: of the scenario.
        history: of the trial, with what it kept; with the reference's events.
        file: gives an artefact by the values of the event that tells of it.
    """
    for check in accounted(checks):
        if not is_asked(check, history):
            continue
        values: dict[str, JSON] = {"check": check.id, "files": files_of(check, history)}
        ranks: dict[int, dict[str, ArrayFile]] = {rank: {} for rank in range(history.size)}
        reference: dict[str, ArrayFile] = {}
        for (rank, name), artefact in found_of(check, history).items():
            (reference if rank is None else ranks[rank])[name] = file(artefact)
        try:
            values["account"] = check.account(
                Sources(history=history, ranks=ranks, reference=reference)
            )
        except NotAnArray as error:
            values["why"] = str(error)
        yield values


def found_of(
    check: AccountedCheck, history: History
) -> dict[tuple[int | None, str], Mapping[str, JSON]]:
    """Find the artefacts that an account is of, by rank (None is the reference) and name."""
    found = {}
    for place, events in [
        *((rank, history) for rank in range(history.size)),
        (None, history.reference),
    ]:
        for seen in events.noted(ARTEFACT_FOUND, place or 0) if events is not None else ():
            name = seen.event.values.get("artefact")
            if isinstance(name, str) and check.wants(name):
                found[place, name] = seen.event.values
    return found


def files_of(check: AccountedCheck, history: History) -> dict[str, JSON]:
    """Return the digests of the files that an account is of."""
    return {
        f"{REFERENCE if rank is None else rank}/{name}": values.get("sha256")
        for (rank, name), values in found_of(check, history).items()
    }


def is_asked(check: AccountedCheck, history: History) -> bool:
    """Tell whether a check is asked in a trial: of the reference's runs only the second, if at
    all.
    """
    is_reference = history.about().get("arm") == REFERENCE
    return not is_reference or (check.asks_the_reference and history.reference is not None)


def _changed(check: AccountedCheck, history: History) -> Iterator[tuple[int | None, str]]:
    for rank, name in found_of(check, history):
        events = history.reference if rank is None else history
        if events is not None and artefact_was_changed(events, rank or 0, name):
            yield rank, name
