"""Rows about clients that share a server: cross-talk, leaving, and bad requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from harness.conformance.answer import DONE, Answer, events, read
from harness.conformance.exchange import (
    COMPLETIONS,
    FILL,
    HTTPExchange,
    HTTPRequest,
    pack,
    post,
)
from harness.conformance.rows.differing import demand_unchanged, logprobs_if_given
from harness.conformance.rows.row import (
    BUSY,
    LATER,
    LEAST_MS,
    SHOWN,
    Asking,
    Judged,
    RowFinding,
    Setting,
    completion,
    conforms,
    fields,
    honoured,
    lost,
    one,
    ordinary,
    refused,
    shown,
    streamed,
    texts,
)

CLIENTS: Final = 4
TIMES: Final = 3
"""How often each is asked alone: whoever does not repeat a text cannot be compared with it."""
LONG: Final = 2000
SHORTER: Final = 250
"""Tokens of an answer where the context of a server is too short for LONG."""
HUGE: Final = 10_000_000
STAYS_MS: Final = 400
TRIED: Final = 8
"""Prompts of which one is likely to have a long answer."""
LASTS: Final = 4
"""Times as long as the client stays: an answer that would go on while the server is measured."""
IDLE: Final = 0.25
STILL_BUSY: Final = 0.5
"""Of the processor time that the server used while the client read."""
PAUSE_MS: Final = 2000
LEAST_BUSY: Final = 0.1
"""Processor seconds a second below which there is nothing to compare with."""


def ask_no_cross_talk(setting: Setting) -> Asking[RowFinding]:
    """Each prompt alone, then all at the same time: whoever gets another's answer is seen."""
    prompts = texts(setting, CLIENTS)
    requests = [
        completion(setting, f"client {number}", prompt=prompt, max_tokens=12)
        for number, prompt in enumerate(prompts)
    ]
    alone: list[str] = []
    for request in requests:
        answers: list[str] = []
        for _ in range(TIMES):
            answers.append((yield from ordinary(request)).text)  # noqa: PERF401 - a generator
        if len(set(answers)) > 1:
            raise Judged(
                "CANNOT TELL",
                "unsteady",
                f"{request.label}, sent alone {TIMES} times, did not get the same text each time",
            )
        alone.append(answers[0])
    if len(set(alone)) < CLIENTS:
        raise Judged("CANNOT TELL", "same", "two prompts have the same answer")
    streams = [
        streamed(setting, request.label, prompt=prompt, max_tokens=12)
        for request, prompt in zip(requests, prompts, strict=True)
    ]
    # Whether a stream is whole is the promise of another row: it is compared with itself.
    for stream in streams:
        alone.append((yield from honoured(stream)).text)  # noqa: PERF401 - a generator
    exchanges = yield [*requests, *streams]
    moved = 0
    for number, exchange in enumerate(exchanges):
        answer = read(exchange)
        own = alone[number]
        if not answer.is_answer:
            if answer.is_refusal or answer.status in BUSY or exchange.ended == "timed out":
                raise Judged(
                    "CANNOT TELL",
                    "unanswered",
                    f"with {2 * CLIENTS} concurrent clients: {answer.error}",
                )
            raise Judged(
                "VIOLATES", "error", f"with {2 * CLIENTS} concurrent clients: {answer.error}"
            )
        others = {text for place, text in enumerate(alone) if place % CLIENTS != number % CLIENTS}
        if answer.text != own and answer.text in others:
            whose = alone.index(answer.text) % CLIENTS
            fact = (
                f"client {number % CLIENTS} got the answer of client {whose}: {shown(answer.text)}"
            )
            raise Judged("VIOLATES", "swapped", fact)
        moved += answer.text != own
    if moved:
        fact = (
            f"{moved} of {2 * CLIENTS} texts differ from those that the clients got alone, and none"
            " is another client's"
        )
        raise Judged("CANNOT TELL", "moved", fact)
    return conforms(f"{2 * CLIENTS} concurrent clients got the texts they got alone")


class UnharmedClient:
    """A client that asks the plain request, and is answered the same whatever others do."""

    def __init__(self, setting: Setting, more: dict[str, Any], before: Answer) -> None:
        self._setting = setting
        self._more = more
        self._before = before

    @classmethod
    def begin(cls, setting: Setting) -> Asking[UnharmedClient]:
        """Ask before the others do."""
        more = yield from logprobs_if_given(setting)
        before = yield from ordinary(completion(setting, "before", **more))
        return cls(setting, more, before)

    def demand(self, what: str, harm: HTTPRequest) -> Asking[None]:
        """Demand that the plain request is answered as before."""
        plain = completion(self._setting, f"{LATER}after {what}"[:SHOWN], **self._more)
        after = yield from one(plain)
        if not after.is_answer:
            fact = f"the plain request was not answered after {what}: {after.error}"
            raise (yield from lost(self._setting, plain, after.status, fact))
        # Asked again when whoever left is certainly gone.
        again = plain.model_copy(update={"after_ms": PAUSE_MS})
        fact = f"the answer to the plain request changed after {what}"
        yield from demand_unchanged(
            self._before, after, again, "changed", fact, (plain, harm, plain)
        )


def ask_disconnect(setting: Setting) -> Asking[RowFinding]:
    """A client that leaves in the middle of a stream."""
    unharmed = yield from UnharmedClient.begin(setting)
    for _ in range(2):
        exchange = yield from _leaving(setting)
        yield from unharmed.demand("a client left", exchange.request)
        if exchange.ended != "left" or DONE in events(exchange.body())[0]:
            fact = f"the answer ended after {exchange.ms} ms, before its client could leave"
            raise Judged("NOT ASKED" if exchange.ms < LEAST_MS else "CANNOT TELL", "short", fact)
    return conforms("2 clients left in the middle of a stream; the next answer was as before")


def _leaving(setting: Setting) -> Asking[HTTPExchange]:
    """Leave in the middle of the longest answer that the server makes."""
    for tokens in (LONG, SHORTER):
        request = completion(setting, "leaves", stream=True, max_tokens=tokens)
        [exchange] = yield [request.model_copy(update={"leave_after": 2})]
        answer = read(exchange)
        if not answer.is_refusal:
            return exchange
    raise refused(request, answer)


def ask_cancel(setting: Setting) -> Asking[RowFinding]:
    """Processor time after a client left, against that while it read."""
    yield from ordinary(completion(setting, "before"))
    for prompt in texts(setting, TRIED):
        lasting = completion(setting, "leaves", prompt=prompt, stream=True, max_tokens=LONG)
        [exchange] = yield [lasting.model_copy(update={"leave_after_ms": STAYS_MS})]
        if exchange.ended != "left":
            continue
        found = _idle_after(exchange)
        # An answer that ends by itself says nothing of a server that goes on with it.
        seen = len(read(exchange).text)
        count = (LASTS + 2) * len(events(exchange.body())[0])
        if (yield from _lasts(setting, prompt, count, LASTS * seen)):
            return found
    fact = f"no answer of {TRIED} lasted long enough to measure after its client had left"
    raise Judged("CANNOT TELL", "short", fact)


def _idle_after(exchange: HTTPExchange) -> RowFinding:
    """Return that a server stopped working when its client had left. Raises Judged."""
    busy = exchange.busy or 0.0
    if exchange.after is None or busy < LEAST_BUSY:
        fact = f"the stream {exchange.ended}, with {busy:.2f} processor seconds per second"
        raise Judged("CANNOT TELL", "unmeasured", fact)
    used = (
        f"{exchange.after:.2f} processor seconds per second after the client left, {busy:.2f}"
        " before"
    )
    if exchange.after >= STILL_BUSY * busy:
        raise Judged("VIOLATES", "works on", used)
    if exchange.after > IDLE * busy:
        raise Judged("CANNOT TELL", "unclear", used)
    return conforms(used)


def _lasts(setting: Setting, prompt: str, tokens: int, characters: int) -> Asking[bool]:
    """Return whether an answer has so many characters, where about so many tokens should do."""
    # Again where an event has several tokens, so that the first answer was too short to tell.
    for _ in range(2):
        most = min(tokens, LONG)
        whole = yield from one(completion(setting, "how long", prompt=prompt, max_tokens=most))
        if len(whole.text) >= characters:
            return True
        if whole.finish != "length":
            return False
        tokens = 2 * tokens * characters // max(len(whole.text), 1)
    return False


def bad_requests(setting: Setting) -> Sequence[HTTPRequest]:
    """Return requests that no server can serve as they are."""
    whole = fields(setting)
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("max_tokens -1", {"max_tokens": -1}),
        ("max_tokens as a string", {"max_tokens": "many"}),
        ("temperature as a list", {"temperature": [1]}),
        ("temperature -1", {"temperature": -1}),
        ("prompt as a number", {"prompt": 7}),
        ("stop as a number", {"stop": 7}),
        ("an unknown model", {"model": "rankproof/no-such-model"}),
        ("an empty prompt", {"prompt": ""}),
    ]
    half = post("half a JSON", COMPLETIONS, whole)
    return [
        half.model_copy(update={"body": half.body[:-9]}),
        half.model_copy(update={"label": "bad UTF-8", "body": pack(b'{"prompt": "\xff\xfe"}')}),
        half.model_copy(update={"label": "a list", "body": "[1, 2]"}),
        *(post(label, COMPLETIONS, whole | change) for label, change in wrong),
    ]


def ask_bad_requests(setting: Setting) -> Asking[RowFinding]:
    """Bad requests, and the plain request after each."""
    unharmed = yield from UnharmedClient.begin(setting)
    odd = ""
    requests = bad_requests(setting)
    for request in requests:
        [exchange] = yield [request]
        answer = read(exchange)
        yield from unharmed.demand(request.label, request)
        if not answer.is_refusal and not answer.is_answer and not odd:
            odd = (
                f"{request.label}: the server neither answered nor refused the request:"
                f" {answer.error}"
            )
    if odd:
        raise Judged("VIOLATES", "error", odd)
    return conforms(
        f"{len(requests)} bad requests refused or answered; the plain answer is as before"
    )


def ask_huge_request(setting: Setting) -> Asking[RowFinding]:
    """A prompt of 10 MB."""
    unharmed = yield from UnharmedClient.begin(setting)
    huge = completion(setting, "10 MB", prompt=FILL.decode())
    # However it is refused: a server may close the connection while we still send.
    huge = huge.model_copy(update={"fill": HUGE})
    yield [huge]
    yield from unharmed.demand("a prompt of 10 MB", huge)
    return conforms("the plain answer is as before")
