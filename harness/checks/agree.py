"""`agree`: every rank asked reported the value, and all reported the same.

Agreement among those who answered is not agreement: a silent rank fails the check. Nor is agreement on nothing: null,
an empty text, list or mapping, or a list of nothing but these fails it too, unless the check allows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from harness.checks.finding import Finding, RankFinding, canonical, over_ranks
from harness.checks.history import History
from harness.forms.strict_json import JSON
from harness.scenario import AgreeCheck

NOTHING: Sequence[JSON] = (None, "", [], {})


def judge(check: AgreeCheck, history: History) -> Finding:
    """Judge one trial. A rank that reported several times is compared by the whole sequence."""
    asked = check.ranks.of(history.size)
    known = dict.fromkeys((*asked, *(() if check.against is None else (check.against,))))
    reported = {rank: history.values(rank, check.event, check.key) for rank in known}
    empty = {rank: _empty(found) for rank, found in reported.items()} if check.empty is None else {}
    texts = {
        rank: canonical([value for value, _ in found])
        for rank, found in reported.items()
        if found and empty.get(rank) is None
    }
    usual = _usual(texts) if check.against is None else texts.get(check.against)
    parts = []
    for rank in asked:
        found = reported[rank]
        if not found:
            parts.append(RankFinding(rank=rank, passed=False, reason=f"{check.value} was not reported", missing=True))
            continue
        # Of several reports the whole sequence was compared, so that is what is shown.
        value = found[0][0] if len(found) == 1 else [value for value, _ in found]
        line = found[0][1]
        if (place := empty.get(rank)) is not None:
            value, line = found[place]
            reason = f"{check.value} is empty, and to agree on nothing is no agreement (empty: allowed lets it be)"
        elif texts[rank] == usual:
            reason = ""
        else:
            reason = _why(check, texts)
        parts.append(RankFinding(rank=rank, passed=not reason, observed=_shown(value), reason=reason, line=line))
    return over_ranks(check.id, check.kind, parts)


def _usual(texts: Mapping[int, str]) -> str | None:
    """What more than half of those who reported a value reported; None where there is no such value."""
    if not texts:
        return None
    text, count = Counter(texts.values()).most_common(1)[0]
    return text if 2 * count > len(texts) else None


def _why(check: AgreeCheck, texts: Mapping[int, str]) -> str:
    if check.against is None:
        others = "" if _usual(texts) else ", and no value has a majority (against: RANK names whom to compare with)"
        return f"{check.value} differs from the other ranks'{others}"
    if check.against in texts:
        return f"{check.value} differs from rank {check.against}'s"
    return f"{check.value} of rank {check.against}, which it is compared with, was not reported"


def _empty(found: Sequence[tuple[JSON, int]]) -> int | None:
    """Which of the reported values is the first that says nothing."""
    return next((place for place, (value, _) in enumerate(found) if is_nothing(value)), None)


def is_nothing(value: JSON) -> bool:
    """Whether a value is null, empty, or a list of nothing else."""
    return all(one in NOTHING for one in value) if isinstance(value, list) else value in NOTHING


def _shown(value: JSON) -> JSON:
    """A value as it is looked at; null and the empty ones as JSON, for in a table they would be a blank."""
    return canonical(value) if is_nothing(value) else value
