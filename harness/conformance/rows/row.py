"""What a row is, how it is driven, and what rows ask with.

A row is a generator. It yields requests that are sent at the same time, is given their exchanges,
and returns a finding. It knows nothing but the setting and the exchanges, so whoever verifies runs
the same code over the exchanges that were kept.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from harness.conformance.answer import Answer, read
from harness.conformance.exchange import (
    CHAT,
    COMPLETIONS,
    HTTPExchange,
    HTTPRequest,
    Mode,
    post,
)
from harness.conformance.proxy import ProxyDefect
from harness.forms.model import Model

Word = Literal["CONFORMS", "VIOLATES", "REFUSES", "CANNOT TELL", "NOT ASKED"]
T = TypeVar("T")
Asking = Generator[list[HTTPRequest], list[HTTPExchange], T]

LENGTH: Final = 24
"""Tokens of an ordinary answer."""
ALONE: Final = 5
LEAST_SAMPLED: Final = 4
"""Characters of a sample below which two may be equal by chance."""
UNSTEADY: Final = "the same request did not return the same text twice"
TEXTUAL: Final = frozenset(
    {"text", "place", "seed", "streamed", "value", "changed", "order", "differs"}
)
"""Differences that mean something only where the server repeats its texts. That it does not repeat
them is the finding of rows of its own.
"""
COMPLETIONS_BOTH: Final[frozenset[Mode]] = frozenset({"completion", "streamed completion"})
CHATS_BOTH: Final[frozenset[Mode]] = frozenset({"chat", "streamed chat"})
LATER: Final = "later: "
"""Begins the label of a request whose text may differ from before for a reason that its own row
judges.
"""
WAITS_MS: Final = (1000, 4000, 10_000)
BUSY: Final = (429, 502, 503, 504)
WORDS: Final = [
    "river",
    "stone",
    "cloud",
    "garden",
    "window",
    "paper",
    "silver",
    "market",
    "winter",
    "yellow",
    "forest",
    "bridge",
    "candle",
    "harbor",
    "island",
    "mirror",
]
SHOWN: Final = 60
LEAST_MS: Final = 200
"""Milliseconds of an answer below which nobody can wait for it, or leave in the middle of it."""


class Setting(Model):
    """What a row knows before it asks.

    Attributes:
        model: name that requests state.
        seed: of the words in prompts.
        samples: whether the model is known to have several likely next tokens, so that other seeds
            must give other texts.
        tokens: how many tokens the tokenizer makes of a prompt, without and with the special ones;
            None without a tokenizer.
        chats: likewise of the same prompts as chats; None without a chat template.
        waits: whether a server that is gone may come back, because somebody else starts it again.
        number: of the place and repetition. Prompts made with it were never asked before, so a
            cache of the server cannot know them.
    """

    model: str
    seed: int
    samples: bool
    tokens: dict[str, list[int]] | None
    chats: dict[str, list[int]] | None = None
    waits: bool = False
    number: int = 0


class RowFinding(Model):
    """What one repetition of a row found.

    Attributes:
        about: the kind of difference, of `harness.conformance.rows.kinds`. The control of the row
            states which one it has to find.
        fact: in a sentence.
    """

    word: Word
    about: str
    fact: str


class Judged(Exception):
    """A finding that ends the row.

    Args:
        compared: requests that show it, in the order in which they are sent; empty where the last
            ones of the row do.
    """

    def __init__(
        self, word: Word, about: str, fact: str, compared: Sequence[HTTPRequest] = ()
    ) -> None:
        super().__init__(fact)
        self.finding = RowFinding(word=word, about=about, fact=fact)
        self.compared = compared


@dataclass(frozen=True, kw_only=True)
class ConformanceRow:
    """One promise.

    Attributes:
        promises: in a sentence.
        requests: how many one repetition sends.
        ask: asks and judges.
        defect: what the proxy of its control does.
        about: what the row has to find behind that proxy.
        is_core: whether a PASS needs it.
        may_harm: whether a server may be worse off for it.
        is_long: whether it is asked only with --all, or by name.
        needs: what has to be there to ask it.
        compares: modes whose texts it compares.
    """

    name: str
    promises: str
    requests: int
    ask: Callable[[Setting], Asking[RowFinding]]
    defect: ProxyDefect
    about: str
    is_core: bool = False
    may_harm: bool = False
    is_long: bool = False
    needs: Literal["", "tokenizer", "template", "process"] = ""
    compares: frozenset[Mode] = COMPLETIONS_BOTH


def drive(
    row: ConformanceRow,
    setting: Setting,
    send: Callable[[list[HTTPRequest]], list[HTTPExchange]],
    compared: list[HTTPRequest] | None = None,
) -> RowFinding:
    """Run a row to its finding: over a server, or over exchanges that were kept.

    The requests that show the finding go to `compared`.
    """
    asking = row.ask(setting)
    try:
        requests = next(asking)
        while True:
            exchanges = send(requests)
            if any(exchange.ended == "withheld" for exchange in exchanges):
                # Nothing is known of an answer that is not kept, so it accuses nobody.
                fact = "an answer spells the API key, so nothing of it was kept"
                return RowFinding(word="CANNOT TELL", about="withheld", fact=fact)
            requests = asking.send(exchanges)
    except StopIteration as end:
        finding: RowFinding = end.value
        return finding
    except Judged as judged:
        if compared is not None:
            compared.extend(judged.compared)
        return judged.finding


def texts(setting: Setting, count: int = 1) -> list[str]:
    """Return prompts, the same in every repetition."""
    dice = random.Random(setting.seed)  # noqa: S311 - words of a prompt
    return [
        f"The {' and the '.join(dice.sample(WORDS, 3))} of {dice.randrange(10, 99)} people:"
        for _ in range(count)
    ]


def unseen(setting: Setting, what: str, words: int) -> str:
    """Return a prompt of so many words that no other repetition asks, different from its start."""
    dice = random.Random(f"{setting.seed} {setting.number} {what}")  # noqa: S311 - likewise
    return " ".join([f"{dice.randrange(10_000, 100_000)}:", *dice.choices(WORDS, k=words - 1)])


def fields(setting: Setting, **more: Any) -> dict[str, Any]:
    """Return the fields of a completion at temperature 0."""
    prompt = texts(setting)[0]
    ordinary = {"model": setting.model, "prompt": prompt, "max_tokens": LENGTH, "temperature": 0}
    return {name: value for name, value in (ordinary | more).items() if value is not None}


def completion(setting: Setting, label: str, **more: Any) -> HTTPRequest:
    """Return a request for a completion at temperature 0."""
    return post(label, COMPLETIONS, fields(setting, **more))


def streamed(setting: Setting, label: str, **more: Any) -> HTTPRequest:
    """Return the same, streamed and with usage."""
    options = {"include_usage": True}
    return completion(setting, label, stream=True, stream_options=options, **more)


def chat(setting: Setting, label: str, *, stream: bool = False, **more: Any) -> HTTPRequest:
    """Return a request for an answer in a chat."""
    more = {"messages": [{"role": "user", "content": texts(setting)[0]}]} | more
    if stream:
        more |= {"stream": True, "stream_options": {"include_usage": True}}
    return post(label, CHAT, fields(setting, prompt=None, **more))


def one(request: HTTPRequest) -> Asking[Answer]:
    """Ask once."""
    [exchange] = yield [request]
    return read(exchange)


def ordinary(request: HTTPRequest) -> Asking[Answer]:
    """Ask what every server answers; without an answer nothing else can be told."""
    answer = yield from one(request)
    if not answer.is_answer:
        raise Judged(
            "CANNOT TELL", "unanswered", f"the plain request was not answered: {answer.error}"
        )
    return answer


def lost(setting: Setting, plain: HTTPRequest, status: int | None, fact: str) -> Asking[Judged]:
    """Return what to say of a server that left the plain request unanswered.

    Where somebody else may start it again, it is asked a few times more: the next repetition begins
    with a server that answers, if there is one.

    Args:
        setting: of the row.
        plain: the request.
        status: that it got.
        fact: what the server did before.
    """
    if not setting.waits:
        return Judged("VIOLATES", "dead", fact)
    for wait in WAITS_MS:
        answer = yield from one(plain.model_copy(update={"after_ms": wait}))
        if answer.is_answer and status in BUSY:
            return Judged("CANNOT TELL", "busy", f"{fact}; it answered again later")
        if answer.is_answer:
            return Judged("VIOLATES", "dead", f"{fact}; it answered again later")
    seconds = sum(WAITS_MS) // 1000
    return Judged("VIOLATES", "dead", f"{fact}; it did not answer in the next {seconds} s either")


def honoured(request: HTTPRequest) -> Asking[Answer]:
    """Ask what a server may refuse: it has to answer, or to say clearly that it does not."""
    [exchange] = yield [request]
    answer = read(exchange)
    if answer.is_answer:
        return answer
    if answer.is_refusal:
        raise refused(request, answer)
    told = f"request {request.label!r}: {answer.error}"
    if exchange.ended == "timed out" or answer.status in BUSY:
        raise Judged("CANNOT TELL", "unanswered", told)
    raise Judged("VIOLATES", "error", f"{told}, which is neither an answer nor a refusal")


def refused(request: HTTPRequest, answer: Answer) -> Judged:
    """Return that a server says clearly that it does not do what a request asks for."""
    return Judged("REFUSES", "refused", f"request {request.label!r}: {answer.error}")


def all_alike(
    setting: Setting, about: str, fact: str, compared: Sequence[HTTPRequest] = ()
) -> Judged:
    """Return what to say of texts that should not all be the same: a model may be sure of one."""
    if setting.samples:
        return Judged("VIOLATES", about, fact, compared)
    return Judged("CANNOT TELL", "one text", fact)


def demand_same(
    about: str,
    what: str,
    whole: object,
    other: object,
    compared: Sequence[HTTPRequest] = (),
) -> None:
    """Demand that two values are equal."""
    if whole != other:
        fact = f"{what}: {shown(whole)} when not streamed, {shown(other)} when streamed"
        raise Judged("VIOLATES", about, fact, compared)


def conforms(fact: str) -> RowFinding:
    """Return that the promise was kept."""
    return RowFinding(word="CONFORMS", about="", fact=fact)


def shown(value: object) -> str:
    """Return a value as a finding states it: both its ends."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN // 2]}...{text[-SHOWN // 2 :]}"
