"""Rows about an engine one of whose processes is stopped for a moment, or killed."""

from __future__ import annotations

from typing import Final

from harness.conformance.answer import DONE, Answer, events, read
from harness.conformance.exchange import MODELS, HTTPExchange, HTTPRequest, StrikeFacts
from harness.conformance.rows.beside import COUNTING, HEALTH
from harness.conformance.rows.clients import UnharmedClient
from harness.conformance.rows.row import (
    LATER,
    Asking,
    Judged,
    RowFinding,
    Setting,
    completion,
    conforms,
    one,
    ordinary,
    shown,
    streamed,
)
from harness.forms.text import plural

STOPPED_IN: Final = 96
KILLED_IN: Final = 250
"""Tokens, enough that most of an answer is not made yet when its first chunks have come."""
STATES: Final = ("stopped", "zombie", "gone")


def _get(path: str, label: str, *, after_strike: bool) -> HTTPRequest:
    return HTTPRequest(label=label, method="GET", path=path, after_strike=after_strike)


def _long(setting: Setting, label: str, tokens: int) -> HTTPRequest:
    return streamed(setting, label, prompt=COUNTING, max_tokens=tokens)


def _demand_struck(exchange: HTTPExchange) -> StrikeFacts:
    """Return what was done to the engine, where it is known that this was done."""
    struck = exchange.struck
    if struck is None:
        fact = f"the fault did not reach any process ({exchange.ended})"
        raise Judged("CANNOT TELL", "unstruck", fact)
    if struck.state not in STATES:
        raise Judged("CANNOT TELL", "unstruck", f"the process is still {struck.state}")
    return struck


def _ends(answer: Answer, exchange: HTTPExchange) -> str:
    """Return by what a client takes a stream for complete; empty where it cannot."""
    if exchange.ended != "complete" or answer.error:
        return ""
    found, _ = events(exchange.body())
    if DONE in found:
        return DONE
    return f"finish reason {answer.finish}" if answer.finish is not None else ""


def ask_freeze(setting: Setting) -> Asking[RowFinding]:
    """A process is stopped in the middle of a stream, and goes on a moment later."""
    unharmed = yield from UnharmedClient.begin(setting)
    whole = yield from ordinary(_long(setting, "before it is stopped", STOPPED_IN))
    # Where there is no path of health, the list of models is all that a prober can ask.
    [known] = yield [_get(HEALTH, "health", after_strike=False)]
    path = HEALTH if known.status == 200 else MODELS
    long = _long(setting, f"{LATER}while it is stopped", STOPPED_IN)
    stopped = long.model_copy(update={"strike": "freeze"})
    probe = _get(path, "while it is stopped", after_strike=True)
    [exchange, probed] = yield [stopped, probe]
    struck = _demand_struck(exchange)
    until = struck.until_ms or 0
    which = _which(struck)
    answer = read(exchange)
    ends = _ends(answer, exchange)
    if ends and exchange.ms < until and answer.text == whole.text:
        raise Judged("CANNOT TELL", "short", "the answer had ended before the process was stopped")
    if probed.status == 200 and struck.ms <= probed.ms < until:
        fact = f"{path} answered 200 after {probed.ms - struck.ms} ms, while {which} was stopped"
        raise Judged("VIOLATES", "healthy", fact)
    if exchange.ended == "timed out":
        fact = f"the client was not told in {exchange.ms} ms that {which} had been stopped"
        raise Judged("VIOLATES", "hung", fact)
    if ends and answer.text != whole.text:
        fact = f"{shown(answer.text)} after {which} was stopped, {shown(whole.text)} before"
        raise Judged("VIOLATES", "text", fact)
    yield from unharmed.demand(f"{which} was stopped for a moment", stopped)
    told = (
        "the stream continued with the same text" if ends else "the client of the stream was told"
    )
    return conforms(f"{which} was stopped for {until - struck.ms} ms: {told}")


def ask_kill(setting: Setting) -> Asking[RowFinding]:
    """A process is killed in the middle of a stream."""
    yield from ordinary(completion(setting, "before"))
    whole = yield from ordinary(_long(setting, "before it is killed", KILLED_IN))
    long = _long(setting, f"{LATER}while it is killed", KILLED_IN)
    [exchange] = yield [long.model_copy(update={"strike": "kill"})]
    struck = _demand_struck(exchange)
    which = _which(struck)
    answer = read(exchange)
    if ends := _ends(answer, exchange):
        if answer.text == whole.text:
            raise Judged(
                "CANNOT TELL", "short", "the answer had ended before the process was killed"
            )
        fact = f"{which} was killed after {plural(len(answer.text), 'character')}, and the stream"
        raise Judged("VIOLATES", "clean", f"{fact} still ended as if it were complete, with {ends}")
    if exchange.ended == "timed out":
        fact = f"the client was not told in {exchange.ms} ms that {which} had been killed"
        raise Judged("VIOLATES", "hung", fact)
    after = yield from one(completion(setting, f"{LATER}after it was killed"))
    [health] = yield [_get(HEALTH, "after it was killed", after_strike=False)]
    if health.status == 200 and not after.is_answer:
        fact = f"{which} was killed, the next request got no answer ({after.error}), and {HEALTH}"
        raise Judged("VIOLATES", "healthy", f"{fact} answered 200")
    if struck.processes > 1 and struck.exit_code == 0:
        fact = f"{which} was killed, and the engine ended with exit code 0"
        raise Judged("VIOLATES", "exit code", fact)
    return conforms(f"{which} was killed: the client saw that the stream had not ended")


def _which(struck: StrikeFacts) -> str:
    if struck.processes == 1:
        return "its only process"
    return f"the busiest of its {struck.processes} processes"
