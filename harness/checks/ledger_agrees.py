"""`ledger-agrees`: the ranks made the same collective calls in the same order, and every send had
its receive.

The ranks write ledgers, the harness holds them against each other once the ranks have ended, and
whoever verifies the record does it again from the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

from harness.checks.check import NO_VALUE, Check, FailsAt, RankCheck
from harness.checks.finding import Finding, RankFinding, over_ranks
from harness.forms.problem import Draft, Problem
from harness.forms.text import plural
from harness.history import LEDGERS_COMPARED, History
from harness.ledger.outside.account import NO_CALL, in_words


class LedgerAgreesCheck(RankCheck):
    """Every rank made the same collective calls as the others of each group, and each send and
    receive has its end.
    """

    properties: ClassVar = replace(
        NO_VALUE, compares_ranks=True, wrong=FailsAt.WORLD_END, missing=FailsAt.WORLD_END
    )
    example: ClassVar = "{id: in-step, kind: ledger-agrees, ranks: every}"

    kind: Literal["ledger-agrees"]

    def judge(self, history: History) -> Finding:
        """What the ranks' ledgers differ by. A ledger that is not whole agrees with nothing."""
        asked = self.ranks.of(history.size)
        noted = history.noted(LEDGERS_COMPARED)
        if len(noted) != 1:
            reason = "the ledgers of the ranks were not compared"
            lost = [
                RankFinding(rank=rank, passed=False, reason=reason, uncompared=True)
                for rank in asked
            ]
            return over_ranks(self.id, self.kind, lost)
        values = noted[0].event.values
        line = noted[0].line
        ranks = _listed(values.get("ranks"))
        found = _mapping(_mapping(values.get("checks")).get(self.id))
        matched = _listed(found.get("matched"))
        if len(ranks) != history.size or len(matched) != len(asked):
            reason = "what is noted of the ledgers is of another world or of another check"
            odd = [
                RankFinding(rank=rank, passed=False, reason=reason, line=line, uncompared=True)
                for rank in asked
            ]
            return over_ranks(self.id, self.kind, odd)
        summaries = {rank: _mapping(ranks[rank]) for rank in asked}
        difference = _mapping(found.get("difference"))
        lost_by = [rank for rank, summary in summaries.items() if summary.get("why") != ""]
        parts = []
        for rank, many in zip(asked, matched, strict=True):
            reason, compared = self._reason(rank, summaries, difference, many, lost_by, history)
            calls = summaries[rank].get("calls")
            shown = (
                f"{plural(calls, 'call')}{_written(summaries[rank])}"
                if isinstance(calls, int)
                else None
            )
            shown = (
                f"{shown}; a world of one has nobody to agree with"
                if shown and history.size == 1
                else shown
            )
            parts.append(
                RankFinding(
                    rank=rank,
                    passed=not reason,
                    observed=shown,
                    reason=reason,
                    line=line,
                    uncompared=not compared,
                )
            )
        return over_ranks(self.id, self.kind, parts)

    def _reason(
        self,
        rank: int,
        summaries: Mapping[int, Mapping[str, Any]],
        difference: Mapping[str, Any],
        matched: object,
        lost_by: list[int],
        history: History,
    ) -> tuple[str, bool]:
        """Why a rank does not agree, empty where it does.

        And whether something was compared that shows it.
        """
        why = summaries[rank].get("why", "it was not looked at")
        if history.size == 1:  # whole it has to be, and there is nobody to agree with
            return str(summaries[rank].get("partly", "") if why in ("", NO_CALL) else why), False
        if why:
            return str(why), False
        if rank in _listed(difference.get("ranks")):
            return _in_words(difference, history), True
        if partly := summaries[rank].get("partly"):
            return str(partly), False
        if lost_by:
            return f"nothing of rank {lost_by[0]} could be held against its calls", False
        if not isinstance(matched, int) or matched < 1:
            return (
                (
                    f"none of its {summaries[rank].get('calls')} calls was made together with"
                    " another rank"
                ),
                False,
            )
        return "", True

    @classmethod
    def lint(cls, checks: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Calls are observed, and there are ranks to agree."""
        for index, check in checks.items():
            place = ("checks", index)
            observed = draft.at("observe")
            if not isinstance(observed, list) or "collectives" not in observed:
                yield draft.problem(
                    (*place, "kind"), "needs the ranks' ledgers; add observe: [collectives]"
                )
            alone = not isinstance(check.ranks.which, str) and len(check.ranks.which) == 1
            if alone or draft.sizes() == (1,):
                message = "asks one rank alone, which always agrees with itself; ask two or more"
                yield draft.problem((*place, "ranks"), message)


def asks_ledgers(checks: Iterable[Check], *, size: int) -> dict[str, tuple[int, ...]]:
    """Of each check of a scenario that asks the ledgers, the ranks that it asks in a world of
    `size`.
    """
    return {
        check.id: check.ranks.of(size) for check in checks if isinstance(check, LedgerAgreesCheck)
    }


def _in_words(difference: Mapping[str, Any], history: History) -> str:
    """Both calls, with the rank and the line of each."""
    sides = [_mapping(difference.get(name)) for name in ("one", "other")]
    first, second = sorted(sides, key=lambda side: side.get("call") is None)
    call = in_words(first.get("call"))
    split = _mapping(difference.get("split"))
    apart = (
        f": rank {split.get('from')} gives {_elements(split.get('gives'))} to rank"
        f" {split.get('to')}, which takes {split.get('takes')} of it"
    )
    sentence = (
        f"rank {first.get('rank')} made {call}, rank {second.get('rank')} {_made(second, history)}"
    )
    return sentence + (apart if split else "")


def _made(side: Mapping[str, Any], history: History) -> str:
    """What a rank did; of one whose world was stopped nobody knows whether it would have made a
    call yet.
    """
    if side.get("call") is not None:
        return in_words(side["call"])
    rank = side.get("rank")
    last = side.get("last")
    was_stopped = isinstance(rank, int) and history.was_stopped(rank)
    lacks = "had not made it when the world was stopped" if was_stopped else "made no such call"
    return lacks + (f": its last is {in_words(last)}" if last is not None else " and no other")


def _written(summary: Mapping[str, Any]) -> str:
    """How its calls came into the ledger. MLX is lazy: what is seen is the order of the calls."""
    by = (
        ", of which a recorder in C wrote those that were met before"
        if summary.get("in_c") is True
        else ""
    )
    return by + (
        ", in the order in which they were called, for MLX runs them later"
        if "mlx" in _listed(summary.get("libraries"))
        else ""
    )


def _elements(many: object) -> str:
    return plural(many, "element") if isinstance(many, int) else "something"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
