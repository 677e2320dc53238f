"""Texts that should be equal and are not: a defect of the server, or a close decision.

A server that computes the same request in another batch, or with a part of it cached, rounds
differently. Where two tokens are about as likely, the other one may then be chosen. So a text that
differs accuses nobody by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from harness.conformance.answer import Answer, read
from harness.conformance.exchange import HTTPRequest
from harness.conformance.rows.row import (
    ALONE,
    BUSY,
    UNSTEADY,
    Asking,
    Judged,
    RowFinding,
    Setting,
    completion,
    conforms,
    one,
    ordinary,
    shown,
)
from harness.forms.text import plural

FAR: Final = 1.0
"""Difference of log probabilities that no rounding explains, also with weights of 8 bits."""
MOST: Final = 0.75
"""Share of texts from which chance is no explanation: close decisions are rare in short texts."""
FEWEST: Final = 4
"""Comparisons that are needed to speak of a share."""


class TextComparison:
    """One answer against the answer that the same request got before."""

    def __init__(self, label: str, before: Answer, after: Answer) -> None:
        self.label = label
        self.differs = before.text != after.text
        self.fact = f"{label}: {shown(before.text)}, then {shown(after.text)}"
        self.far = far(before, after)
        counts = [one.usage.prompt for one in (before, after) if one.usage is not None]
        self.counts = ""
        if len(set(counts)) > 1:
            self.counts = f"{label}: {counts[0]} prompt tokens, then {counts[1]}"


def far(before: Answer, after: Answer) -> str:
    """Return what in the log probabilities of two answers no rounding explains; empty if nothing.

    Behind the first token that differs the two continue different texts, so nothing is compared.
    """
    pairs = zip(before.logprobs or (), after.logprobs or (), strict=False)
    for place, (left, right) in enumerate(pairs):
        if left.token == right.token:
            if abs(left.value - right.value) > FAR:
                return f"token {place}: log probability {left.value:.2f}, then {right.value:.2f}"
            continue
        for which, token in (("first", left), ("second", right)):
            likeliest = sorted(token.top)[-2:]
            if len(likeliest) == 2 and likeliest[1] - likeliest[0] > FAR:
                margin = likeliest[1] - likeliest[0]
                return f"token {place} differs, chosen the {which} time by {margin:.2f} nats"
        return ""
    return ""


def demand_unchanged(
    before: Answer,
    after: Answer,
    again: HTTPRequest,
    about: str,
    fact: str,
    compared: Sequence[HTTPRequest],
) -> Asking[None]:
    """Demand one text twice; of another text, tell a defect from a close decision.

    Where the server gives log probabilities, they tell. Elsewhere the request is asked again, and
    a text that came back accuses nobody.

    Args:
        before: the text that is demanded.
        after: the text that came.
        again: asks for it once more.
        about: kind of the difference.
        fact: of the difference, in a sentence.
        compared: requests that show it.
    """
    if after.text == before.text:
        return
    if before.logprobs and after.logprobs:
        tokens = [[token.token for token in one.logprobs or ()] for one in (before, after)]
        why = far(before, after)
        if not why and tokens[0] == tokens[1]:
            why = "the log probabilities are those of the same tokens"
        if why:
            raise Judged("VIOLATES", about, f"{fact} ({why})", compared)
        close = "a choice between two tokens that are about as likely may explain this"
        raise Judged("CANNOT TELL", "close", f"{fact}: {close}")
    later = yield from one(again)
    if not later.is_answer:
        raise Judged("CANNOT TELL", "unanswered", f"{fact}; asked again: {later.error}")
    if later.text == before.text:
        raise Judged("CANNOT TELL", "close", f"{fact}, and changed back when it was asked again")
    raise Judged("VIOLATES", about, fact, compared)


def judge(comparisons: Sequence[TextComparison], fact: str) -> RowFinding:
    """Say whether texts that should be equal are, and whether a difference is a defect."""
    differing = [comparison for comparison in comparisons if comparison.differs]
    for comparison in comparisons:
        if comparison.far:
            raise Judged("VIOLATES", "differs", f"{comparison.fact} ({comparison.far})")
    if not differing:
        if counts := next((one.counts for one in comparisons if one.counts), ""):
            raise Judged("VIOLATES", "usage", counts)
        return conforms(fact)
    count = f"{len(differing)} of {plural(len(comparisons), 'text')} differ"
    if len(comparisons) >= FEWEST and len(differing) >= MOST * len(comparisons):
        raise Judged("VIOLATES", "differs", f"{count}, such as {differing[0].fact}")
    close = "a choice between two tokens that are about as likely may explain this"
    raise Judged("CANNOT TELL", "close", f"{count}: {close}: {differing[0].fact}")


def judged(comparisons: Sequence[TextComparison], fact: str) -> RowFinding:
    """Return what `judge` says, also where it accuses."""
    try:
        return judge(comparisons, fact)
    except Judged as found:
        return found.finding


def worst(findings: Sequence[RowFinding]) -> RowFinding:
    """Return the finding that says most against the server."""
    words = ("VIOLATES", "CANNOT TELL", "REFUSES", "CONFORMS")
    return min(findings, key=lambda finding: words.index(finding.word))


def logprobs_if_given(setting: Setting, **fields: Any) -> Asking[dict[str, Any]]:
    """Return the fields that ask for log probabilities, where the server gives them."""
    more = {"logprobs": 2}
    answer = yield from one(completion(setting, "whether there are logprobs", **more, **fields))
    has_two = all(len(token.top) > 1 for token in answer.logprobs or ())
    return more if answer.is_answer and answer.logprobs and has_two else {}


def steady(request: HTTPRequest) -> Asking[Answer]:
    """Ask five times; without one text of five nothing can be compared with it."""
    first = yield from ordinary(request)
    for _ in range(ALONE - 1):
        again = yield from ordinary(request)
        if again.text != first.text:
            raise Judged("CANNOT TELL", "unsteady", UNSTEADY)
    return first


def together(requests: Sequence[HTTPRequest]) -> Asking[list[Answer]]:
    """Ask at the same time. Clients that are turned away for now say nothing."""
    exchanges = yield list(requests)
    answers = [read(exchange) for exchange in exchanges]
    for exchange, answer in zip(exchanges, answers, strict=True):
        if answer.is_answer:
            continue
        fact = f"{plural(len(requests), 'client')} at the same time: {answer.error}"
        is_turned_away = answer.is_refusal or answer.status in BUSY
        if is_turned_away or exchange.ended in ("timed out", "refused"):
            raise Judged("CANNOT TELL", "unanswered", fact)
        raise Judged("VIOLATES", "error", fact)
    return answers
