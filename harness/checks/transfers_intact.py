"""`transfers-intact`: what each rank received is what was sent to it, call by call, by digests
taken at both ends.

The ranks digest what they give to a call and what they get from it, the harness holds both ends
against each other once the ranks have ended, and whoever verifies the record does it again from the
files.
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


class TransfersIntactCheck(RankCheck):
    """What every rank received of another one is what that one sent, and every sum is that of what
    the ranks gave.
    """

    properties: ClassVar = replace(
        NO_VALUE, compares_ranks=True, wrong=FailsAt.WORLD_END, missing=FailsAt.WORLD_END
    )
    example: ClassVar = "{id: intact, kind: transfers-intact, ranks: every}"

    kind: Literal["transfers-intact"]

    def judge(self, history: History) -> Finding:
        """What the digests at both ends differ by. A call that was not compared is not intact."""
        asked = self.ranks.of(history.size)
        noted = history.noted(LEDGERS_COMPARED)
        values = noted[0].event.values if len(noted) == 1 else {}
        ranks = _listed(values.get("ranks"))
        found = _mapping(_mapping(values.get("checks")).get(self.id))
        compared = _listed(found.get("compared"))
        left = _listed(found.get("left"))
        if len(ranks) != history.size or len(compared) != len(asked) or len(left) != len(asked):
            reason = "what the ranks sent and received was not compared"
            lost = [
                RankFinding(rank=rank, passed=False, reason=reason, uncompared=True)
                for rank in asked
            ]
            return over_ranks(self.id, self.kind, lost)
        line = noted[0].line
        damage = _mapping(found.get("damage"))
        parts = []
        for rank, many, missed in zip(asked, compared, left, strict=True):
            reason, is_shown = _reason(
                rank, _mapping(ranks[rank]), damage, many, missed, size=history.size
            )
            shown = f"{plural(many, 'call')} compared" if isinstance(many, int) else None
            shown = (
                f"{shown}; a world of one sends to nobody" if shown and history.size == 1 else shown
            )
            part = RankFinding(
                rank=rank, passed=not reason, observed=shown, reason=reason, line=line
            )
            parts.append(part._replace(uncompared=bool(reason) and not is_shown))
        return over_ranks(self.id, self.kind, parts)

    @classmethod
    def lint(cls, checks: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Digests are taken, and there are ranks that send to each other."""
        for index, check in checks.items():
            place = ("checks", index)
            observed = draft.at("observe")
            words = observed if isinstance(observed, list) else []
            if "collectives" not in words or not {"digests", "eager-digests"} & {
                str(word) for word in words
            }:
                yield draft.problem(
                    (*place, "kind"),
                    "needs digests in the ledgers; add observe: [collectives, digests]",
                )
            alone = not isinstance(check.ranks.which, str) and len(check.ranks.which) == 1
            if alone or draft.sizes() == (1,):
                yield draft.problem(
                    (*place, "ranks"), "asks one rank alone, which sends to nobody; ask two or more"
                )


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
    why = summary.get("why", "it was not looked at")
    if size == 1 and why in ("", NO_CALL):  # whole it has to be, and there is nobody to send to
        return str(summary.get("partly", "")), False
    if why:
        return str(why), False
    if "undigested" not in summary:
        return "its ledger has no digests", False
    if rank in _listed(damage.get("ranks")):
        return _in_words(damage), True
    if partly := summary.get("partly"):
        return str(partly), False
    if summary["undigested"] != 0:
        many = (
            f"{summary['undigested']} of its calls were"
            if summary["undigested"] != 1
            else "a call of it was"
        )
        return f"{many} not digested: {summary.get('undigested_why')}", False
    if left != 0:
        return (
            (
                f"{left} of its calls were not held against the other end: it is missing, or out of"
                " step"
            ),
            False,
        )
    if not isinstance(compared, int) or compared < 1:
        return f"none of its {summary.get('calls')} calls was held against another rank's", False
    return "", True


def _in_words(damage: Mapping[str, Any]) -> str:
    """What was sent, what was received, and what that is, with the rank and the line of each."""
    got = f"rank {damage.get('receiver')} got in {in_words(damage.get('received'))}"
    like = f": {damage['like']}" if damage.get("like") else ""
    if damage.get("sender") is None:
        return f"{got} another result than what the ranks gave makes{like}"
    return (
        f"{got} something else than rank {damage.get('sender')} gave in"
        f" {in_words(damage.get('sent'))}{like}"
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
