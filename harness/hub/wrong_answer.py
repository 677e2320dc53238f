"""What a rule makes of a true answer."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from harness.hub import rules
from harness.hub.answer import Answer, failure
from harness.hub.strikes import Struck
from harness.hub.target import Target


@dataclass(frozen=True, slots=True)
class Outgoing:
    """An answer as it will be sent.

    Attributes:
        answer: what to send; None: nothing at all.
        announced: Content-Length.
        sent: bytes of the body to send (for GET).
        then: what happens to the connection afterwards.
        flipped: offset of the byte to change in the body, or None.
        refuse: seconds for which the hub refuses connections afterwards.
    """

    answer: Answer | None
    announced: int = 0
    sent: int = 0
    then: Literal["keep", "close", "reset"] = "keep"
    flipped: int | None = None
    refuse: float | None = None


def truly(answer: Answer) -> Outgoing:
    """Send an answer as it is."""
    return Outgoing(answer, answer.length, answer.length)


def changes(rule: rules.Rule, answer: Answer) -> bool:
    """Whether a rule would change this answer; a strike that changes nothing would not be evidence of a fault."""
    match rule.answer:
        case rules.Truncate() | rules.Short() | rules.WrongBytes():
            return answer.length > 0
        case rules.WrongEtag():
            return "ETag" in answer.headers
        case _:
            return True


def spoiled(struck: Struck, answer: Answer, *, target: Target, commit: str | None) -> Outgoing:
    """Apply the rule that struck to the true answer.

    Args:
        struck: what the rules said; without a rule the answer stays true.
        answer: the true answer.
        target: what was asked for.
        commit: of the revision asked for, or None.
    """
    if struck.rule is None:
        return truly(answer)
    match struck.rule.answer:
        case rules.Missing() | rules.RateLimit() | rules.ServerError() as wrong:
            return truly(_refusal(wrong, struck, target, commit))
        case rules.Reset() | rules.Refuse() as wrong:
            return Outgoing(None, then="reset", refuse=wrong.lasting if isinstance(wrong, rules.Refuse) else None)
        case rules.Close():
            return Outgoing(None, then="close")
        case rules.Truncate() as wrong:
            cut = wrong.after if wrong.after is not None else int(answer.length * wrong.share)
            return Outgoing(answer, answer.length, min(cut, answer.length - 1), wrong.ending)
        case rules.Short() as wrong:
            kept = int(answer.length * wrong.share)
            return Outgoing(answer, kept, kept)
        case rules.WrongEtag() as wrong:
            return truly(_another_etag(wrong, answer))
        case rules.WrongBytes(text=None):
            return replace(truly(answer), flipped=answer.length // 2)
        case rules.WrongBytes() as wrong:
            return truly(Answer(answer.status, answer.headers, (wrong.text or "").encode()))
        case rules.Latency():
            return truly(answer)


def _refusal(
    wrong: rules.Missing | rules.RateLimit | rules.ServerError, struck: Struck, target: Target, commit: str | None
) -> Answer:
    if isinstance(wrong, rules.Missing):
        code = None if wrong.code == "none" else wrong.code
        return failure(404, "Entry not found", code=code, commit=commit if wrong.commit else None)
    if isinstance(wrong, rules.RateLimit):
        return _rate_limited(wrong, struck, target)
    no = failure(wrong.status, "Internal Error - We're working hard to fix this as soon as possible!")
    if wrong.retry_after is not None:
        no.headers["Retry-After"] = str(math.ceil(wrong.retry_after))
    return no


def _rate_limited(wrong: rules.RateLimit, struck: Struck, target: Target) -> Answer:
    no = failure(429, "Too Many Requests")
    left = math.ceil(struck.left if struck.left is not None else wrong.reset)
    if wrong.headers in {"ratelimit", "both"}:
        kind = "resolvers" if target.kind == "resolve" else "api"
        no.headers["RateLimit"] = f'"{kind}";r=0;t={left}'
        when = struck.rule.when if struck.rule is not None else None
        if when is not None and when.quota is not None and when.window is not None:
            window = math.ceil(when.window)
            no.headers["RateLimit-Policy"] = f'"fixed window";"{kind}";q={when.quota};w={window}'
    if wrong.headers in {"retry-after", "both"}:
        no.headers["Retry-After"] = str(left)
    return no


def _another_etag(wrong: rules.WrongEtag, answer: Answer) -> Answer:
    true = answer.headers["ETag"].strip('"')
    # As long as the true one, so that only comparing bytes with digests can tell.
    etag = wrong.etag if wrong.etag is not None else true[::-1] if true != true[::-1] else "0" * len(true)
    headers = {**answer.headers, "ETag": f'"{etag}"'}
    if "X-Linked-Etag" in headers:
        headers["X-Linked-Etag"] = f'"{etag}"'
    return replace(answer, headers=headers)
