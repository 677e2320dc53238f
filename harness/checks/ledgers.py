"""Checks of the ranks' ledgers: `ledger-agrees` compares the calls that ranks made, and
`transfers-intact` what they sent and received.

The harness compares the ledgers once the ranks have ended, and whoever verifies the record does it
again from the files.
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


class LedgersCheck(RankCheck):
    """Check of what the harness noted when it compared the ranks' ledgers."""

    properties: ClassVar = replace(
        NO_VALUE, compares_ranks=True, wrong=FailsAt.WORLD_END, missing=FailsAt.WORLD_END
    )
    # Options of `observe` one of which is needed besides `collectives`; none where that is enough.
    options: ClassVar[frozenset[str]] = frozenset()
    # Advice where the ledgers or the digests are missing, and where one rank alone is asked.
    unobserved: ClassVar[str]
    alone: ClassVar[str]

    @classmethod
    def lint(cls, checks: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Yield checks of what is not observed, and of one rank alone."""
        observed = draft.at("observe")
        words = set(map(str, observed)) if isinstance(observed, list) else set()
        is_observed = "collectives" in words and (not cls.options or bool(cls.options & words))
        for index, check in checks.items():
            if not is_observed:
                yield draft.problem(("checks", index, "kind"), cls.unobserved)
            which = check.ranks.which
            if draft.sizes() == (1,) or (not isinstance(which, str) and len(which) == 1):
                yield draft.problem(("checks", index, "ranks"), cls.alone)

    def noted(self, history: History) -> tuple[Mapping[str, Any], list[Any], int | None]:
        """Return what was noted for this check, the summaries of the ranks' ledgers, and the line.

        Nothing where the ledgers were not compared exactly once.
        """
        events = history.noted(LEDGERS_COMPARED)
        if len(events) != 1:
            return {}, [], None
        values = events[0].event.values
        checks = _mapping(values.get("checks"))
        return _mapping(checks.get(self.id)), _listed(values.get("ranks")), events[0].line


class LedgerAgreesCheck(LedgersCheck):
    """Every rank made the same collective calls as the other ranks of each group, and every send
    matches a receive.
    """

    unobserved: ClassVar = "needs the ranks' ledgers; add observe: [collectives]"
    alone: ClassVar = "covers only one rank, which always agrees with itself; give two or more"
    example: ClassVar = "{id: in-step, kind: ledger-agrees, ranks: every}"

    kind: Literal["ledger-agrees"]

    def judge(self, history: History) -> Finding:
        """Judge what the ranks' ledgers differ by. A ledger that is not whole agrees with
        nothing.
        """
        asked = self.ranks.of(history.size)
        noted, ranks, line = self.noted(history)
        matched = _listed(noted.get("matched"))
        if line is None or len(ranks) != history.size or len(matched) != len(asked):
            reason = "the ledgers of the ranks were not compared"
            if line is not None:
                reason = "the notes about the ledgers belong to another world or another check"
            return over_ranks(self.id, self.kind, self.uncompared(history, reason, line))
        summaries = {rank: _mapping(ranks[rank]) for rank in asked}
        difference = _mapping(noted.get("difference"))
        lost_by = [rank for rank, summary in summaries.items() if summary.get("why") != ""]
        parts = []
        for rank, many in zip(asked, matched, strict=True):
            reason, compared = self._reason(rank, summaries, difference, many, lost_by, history)
            calls = summaries[rank].get("calls")
            shown = None
            if isinstance(calls, int):
                alone = (
                    "; a world with one rank has no other rank to agree with"
                    if history.size == 1
                    else ""
                )
                # How a ledger was written explains calls that agree; a failure has its own reason.
                written = "" if reason else _written(summaries[rank])
                shown = f"{plural(calls, 'call')}{written}{alone}"
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
        why = summaries[rank].get("why", "it was not compared")
        if history.size == 1:  # whole it has to be, and there is nobody to agree with
            return str(summaries[rank].get("partly", "") if why in ("", NO_CALL) else why), False
        if why:
            return str(why), False
        if rank in _listed(difference.get("ranks")):
            return _difference_in_words(difference, history), True
        if partly := summaries[rank].get("partly"):
            return str(partly), False
        if lost_by:
            return f"its calls could not be compared with rank {lost_by[0]}", False
        if not isinstance(matched, int) or matched < 1:
            calls = summaries[rank].get("calls")
            return f"none of its calls ({calls}) was matched by another rank", False
        return "", True


def asks_ledgers(checks: Iterable[Check], *, size: int) -> dict[str, tuple[int, ...]]:
    """Of each check of a scenario that asks the ledgers, the ranks that it asks in a world of
    `size`.
    """
    return {
        check.id: check.ranks.of(size) for check in checks if isinstance(check, LedgerAgreesCheck)
    }


def _difference_in_words(difference: Mapping[str, Any], history: History) -> str:
    """Both calls, with the rank and the line of each."""
    sides = [_mapping(difference.get(name)) for name in ("one", "other")]
    first, second = sorted(sides, key=lambda side: side.get("call") is None)
    call = in_words(first.get("call"))
    split = _mapping(difference.get("split"))
    apart = (
        f"; rank {split.get('from')} sends {_elements(split.get('gives'))} to rank"
        f" {split.get('to')}, which receives {split.get('takes')} of it"
    )
    sentence = (
        f"rank {first.get('rank')} made {call}, rank {second.get('rank')} {_made(second, history)}"
    )
    return sentence + (apart if split else "")


def _made(side: Mapping[str, Any], history: History) -> str:
    """Describe what a rank did; nobody knows what a stopped rank would have done yet."""
    if side.get("call") is not None:
        return f"made {in_words(side['call'])}"
    rank = side.get("rank")
    last = side.get("last")
    was_stopped = isinstance(rank, int) and history.was_stopped(rank)
    lacks = "had not made it when the world was stopped" if was_stopped else "made no such call"
    return lacks + (
        f"; its last call is {in_words(last)}" if last is not None else ", nor any other"
    )


def _written(summary: Mapping[str, Any]) -> str:
    """How its calls came into the ledger. MLX is lazy: what is seen is the order of the calls."""
    by = " (repeated calls are recorded by the C recorder)" if summary.get("in_c") is True else ""
    return by + (
        ", in the order in which they were called, because MLX runs them later"
        if "mlx" in _listed(summary.get("libraries"))
        else ""
    )


def _elements(many: object) -> str:
    return plural(many, "element") if isinstance(many, int) else "something"


# The ranks digest what they give to a call and what they get from it, the harness holds both ends
# against each other once the ranks have ended, and whoever verifies the record does it again from
# the files.
class TransfersIntactCheck(LedgersCheck):
    """Every rank received exactly the data that another rank sent, and every sum is the sum of the
    ranks' inputs.
    """

    options: ClassVar = frozenset({"digests", "eager-digests"})
    unobserved: ClassVar = "needs digests in the ledgers; add observe: [collectives, digests]"
    alone: ClassVar = "covers only one rank, which does not send anything; give two or more"
    example: ClassVar = "{id: intact, kind: transfers-intact, ranks: every}"

    kind: Literal["transfers-intact"]

    def judge(self, history: History) -> Finding:
        """Judge what the digests at both ends differ by. A call that was not compared is not
        intact.
        """
        asked = self.ranks.of(history.size)
        noted, ranks, line = self.noted(history)
        compared = _listed(noted.get("compared"))
        left = _listed(noted.get("left"))
        if len(ranks) != history.size or len(compared) != len(asked) or len(left) != len(asked):
            reason = "the data that the ranks sent and received was not compared"
            return over_ranks(self.id, self.kind, self.uncompared(history, reason))
        damage = _mapping(noted.get("damage"))
        parts = []
        for rank, many, missed in zip(asked, compared, left, strict=True):
            reason, is_shown = _reason(
                rank, _mapping(ranks[rank]), damage, many, missed, size=history.size
            )
            shown = None
            if isinstance(many, int):
                alone = (
                    "; a world with one rank does not send anything" if history.size == 1 else ""
                )
                shown = f"{plural(many, 'call')} compared{alone}"
            part = RankFinding(
                rank=rank, passed=not reason, observed=shown, reason=reason, line=line
            )
            parts.append(part._replace(uncompared=bool(reason) and not is_shown))
        return over_ranks(self.id, self.kind, parts)


def asks_digests(checks: Iterable[Check], *, size: int) -> dict[str, tuple[int, ...]]:
    """Of each check of a scenario that asks for digests, the ranks that it asks in a world of
    `size`.
    """
    return {
        check.id: check.ranks.of(size)
        for check in checks
        if isinstance(check, TransfersIntactCheck)
    }


def _reason(
    rank: int,
    summary: Mapping[str, Any],
    damage: Mapping[str, Any],
    compared: object,
    left: object,
    *,
    size: int,
) -> tuple[str, bool]:
    """Why a rank's transfers are not intact, empty where they are.

    And whether something was compared that shows it.
    """
    why = summary.get("why", "it was not compared")
    if size == 1 and why in ("", NO_CALL):  # whole it has to be, and there is nobody to send to
        return str(summary.get("partly", "")), False
    if why:
        return str(why), False
    if "undigested" not in summary:
        return "its ledger has no digests", False
    if rank in _listed(damage.get("ranks")):
        return _damage_in_words(damage), True
    if partly := summary.get("partly"):
        return str(partly), False
    if summary["undigested"] != 0:
        many = (
            f"{summary['undigested']} of its calls were"
            if summary["undigested"] != 1
            else "one of its calls was"
        )
        return f"{many} not digested: {summary.get('undigested_why')}", False
    if left != 0:
        missing = "were not compared with the other end, which is missing or out of step"
        return f"{left} of its calls {missing}", False
    if not isinstance(compared, int) or compared < 1:
        calls = summary.get("calls")
        return f"none of its calls ({calls}) was compared with another rank's", False
    return "", True


def _damage_in_words(damage: Mapping[str, Any]) -> str:
    """Describe what was sent, what was received, and what that is, with the rank and line of
    each.
    """
    got = f"rank {damage.get('receiver')} received in {in_words(damage.get('received'))}"
    like = f": {damage['like']}" if damage.get("like") else ""
    if damage.get("sender") is None:
        return f"{got} a result that does not follow from the ranks' inputs{like}"
    return (
        f"{got} data that differs from what rank {damage.get('sender')} passed to"
        f" {in_words(damage.get('sent'))}{like}"
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
