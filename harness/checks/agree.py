"""`agree`: every rank asked reported the value, and all reported the same.

Agreement among those who answered is not agreement: a silent rank fails the check. Nor is agreement
on nothing: null, an empty text, list or mapping, or a list of nothing but these fails it too,
unless the check allows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from harness.checks.check import OF_A_VALUE, ValueCheck
from harness.checks.finding import Finding, RankFinding, canonical, failed, over_ranks
from harness.forms.model import MOST_RANKS
from harness.forms.problem import Draft, Problem
from harness.forms.strict_json import JSON
from harness.history import History

NOTHING: Sequence[JSON] = (None, "", [], {})


class AgreeCheck(ValueCheck):
    """Every rank reports the value, and it is the same on all of them."""

    properties: ClassVar = replace(OF_A_VALUE, compares_ranks=True)
    example: ClassVar = "{id: same-tokens, kind: agree, ranks: every, value: tokenizer.ready.ids}"

    kind: Literal["agree"]
    against: Annotated[int, Field(ge=0, lt=MOST_RANKS)] | None = Field(
        None,
        description=(
            "The rank whose value the others must have (default: the value of more than half of"
            " the ranks; if there is no such value, every rank differs)."
        ),
    )
    empty: Literal["allowed"] | None = Field(
        None,
        description=(
            "allowed: ranks may agree on null, on empty values, and on lists of only these."
        ),
    )

    def judge(self, history: History) -> Finding:
        """Compare the ranks, each by the whole sequence of its reports."""
        asked = self.ranks.of(history.size)
        known = dict.fromkeys((*asked, *(() if self.against is None else (self.against,))))
        reported = {rank: history.values(rank, self.event, self.key) for rank in known}
        # Of each rank, which of its values is the first that says nothing.
        empty = {
            rank: next(
                (place for place, (value, _) in enumerate(values) if is_nothing(value)), None
            )
            for rank, values in (reported.items() if self.empty is None else ())
        }
        texts = {
            rank: canonical([value for value, _ in values])
            for rank, values in reported.items()
            if values and empty.get(rank) is None
        }
        usual = _usual(texts) if self.against is None else texts.get(self.against)
        parts = []
        for rank in asked:
            values = reported[rank]
            if not values:
                parts.append(failed(rank, f"{self.value} was not reported", missing=True))
                continue
            # Of several reports the whole sequence was compared, so that is what is shown.
            value = values[0][0] if len(values) == 1 else [value for value, _ in values]
            line = values[0][1]
            if (place := empty.get(rank)) is not None:
                value, line = values[place]
                reason = (
                    f"{self.value} is empty, which does not count as agreement (to accept it, set"
                    " empty: allowed)"
                )
            elif texts[rank] == usual:
                reason = ""
            else:
                reason = self._difference(texts)
            # Null and the empty ones are shown as JSON: in a table they would be a blank.
            shown = canonical(value) if is_nothing(value) else value
            # With nobody there to agree with, nothing was compared.
            alone = bool(reason) and (usual is None if self.against is not None else not texts)
            parts.append(
                RankFinding(
                    rank=rank,
                    passed=not reason,
                    observed=shown,
                    reason=reason,
                    line=line,
                    uncompared=alone,
                )
            )
        return over_ranks(self.id, self.kind, parts)

    def _difference(self, texts: Mapping[int, str]) -> str:
        if self.against is None:
            others = (
                ""
                if _usual(texts)
                else ", and no value has a majority (to choose a rank to compare with, set"
                " against: RANK)"
            )
            return f"{self.value} differs from the value of the other ranks{others}"
        if self.against in texts:
            return f"{self.value} differs from the value of rank {self.against}"
        return (
            f"rank {self.against} did not report {self.value}, so there is nothing to compare with"
        )

    @classmethod
    def lint(cls, checks: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Yield the problems of whom ranks are compared with, and of comparisons with nobody."""
        sizes = draft.sizes()
        stated = draft.must_fail
        for index, check in checks.items() if sizes else ():
            place = ("checks", index)
            if check.against is not None and check.against >= sizes[0]:
                message = "is not a rank of the smallest world, which has"
                yield draft.problem(
                    (*place, "against"), f"{message} {sizes[0]}; give a rank that is in every world"
                )
            with suppress(ValueError):  # ranks that are not there have a rule of their own
                if (
                    len(
                        {
                            *check.ranks.of(sizes[0]),
                            *(() if check.against is None else (check.against,)),
                        }
                    )
                    < 2
                ):
                    message = (
                        f"covers only one rank in a world of {sizes[0]}, which always agrees with"
                        " itself"
                    )
                    yield draft.problem(place, message, at_key=True, kind="note")
            if check.against is not None or stated is None or stated.check != check.id:
                continue
            with suppress(ValueError):
                pairs = [(size, ranks) for size in sizes if len(ranks := check.ranks.of(size)) == 2]
                if any(stated.ranks.of(size) != ranks for size, ranks in pairs):
                    message = (
                        "compares two ranks, and if they differ, both fail; to say which one is"
                        " right, set against"
                    )
                    path = ("subject", "control", "must_fail", "ranks")
                    yield draft.problem(path, f"{message} right", kind="note")


def _usual(texts: Mapping[int, str]) -> str | None:
    """Return what more than half of those who reported a value reported, if there is such a
    value.
    """
    if not texts:
        return None
    text, count = Counter(texts.values()).most_common(1)[0]
    return text if 2 * count > len(texts) else None


def is_nothing(value: JSON) -> bool:
    """Tell whether a value is null, empty, or a list of nothing else."""
    return all(item in NOTHING for item in value) if isinstance(value, list) else value in NOTHING
