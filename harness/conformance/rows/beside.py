"""Rows about requests that are there at the same time: long beside short, several prompts in one
request, parameters of several clients, and the server's own paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harness.conformance.answer import Answer, read
from harness.conformance.exchange import MODELS, HTTPExchange, HTTPRequest
from harness.conformance.rows.differing import (
    MOST,
    TextComparison,
    judge,
    judged,
    logprobs_if_given,
    steady,
    together,
    worst,
)
from harness.conformance.rows.parameters import stop_of
from harness.conformance.rows.row import (
    BUSY,
    LEAST_MS,
    Asking,
    Judged,
    RowFinding,
    Setting,
    completion,
    conforms,
    honoured,
    lost,
    one,
    ordinary,
    shown,
    streamed,
    texts,
    unseen,
)
from harness.forms.text import plural

HEALTH: Final = "/health"
WORDS_OF_LONG: Final = 48
WORDS_OF_SHORT: Final = 4
SHORTS: Final = 3
TOKENS: Final = 12
LEAST_OWN: Final = 8
"""Characters of a text that belongs to one prompt alone."""
PROMPTS: Final = 3
SEEDS: Final = (1, 2, 3, 4)
LONG_ANSWERS: Final = (250, 1500, 8000)
"""Tokens of the long answer, and of longer ones for a server that makes it in no time."""
LONG_MS: Final = 500
"""Milliseconds of an answer that is long enough on a busy machine too: there, a path that waits for
nothing was seen to answer after 350.
"""
COUNTING: Final = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20"
"""What few models stop to continue."""
BEGUN_MS: Final = 50
AFTER_MS: Final = 15
"""Milliseconds after which requests join those that are being answered."""
SLACK: Final = 0.1
"""Of the time of the long answer: what ends so shortly before it has waited for it."""


def _demand_own(number: int, text: str, alone: Sequence[Answer]) -> None:
    """Demand that a text is not that of another prompt. Short ones may be equal by chance."""
    known = [answer.text for answer in alone]
    if text != known[number] and text in known and len(text) >= LEAST_OWN:
        fact = f"prompt {number} got the answer of prompt {known.index(text)}: {shown(text)}"
        raise Judged("VIOLATES", "swapped", fact)


def ask_long_beside_short(setting: Setting) -> Asking[RowFinding]:
    """One long prompt and three short ones: the long one first, then last."""
    more = yield from logprobs_if_given(setting)
    prompts = [unseen(setting, "long", WORDS_OF_LONG)]
    prompts += [unseen(setting, f"short {number}", WORDS_OF_SHORT) for number in range(SHORTS)]
    alone: list[Answer] = []
    for prompt in prompts:
        request = completion(setting, "alone", prompt=prompt, max_tokens=TOKENS, **more)
        alone.append((yield from steady(request)))
    if len({answer.text for answer in alone}) < len(prompts):
        raise Judged("CANNOT TELL", "same", "two prompts have the same answer")
    found: list[RowFinding] = []
    fact = f"{WORDS_OF_LONG} words beside {SHORTS} prompts of {WORDS_OF_SHORT}, in both orders"
    for which, is_late in (("first", [False, True]), ("last", [True, False])):
        requests = [
            completion(setting, f"client {number}", prompt=prompt, max_tokens=TOKENS, **more)
            for number, prompt in enumerate(prompts)
        ]
        joining = [
            request.model_copy(update={"after_ms": AFTER_MS}) if is_late[number > 0] else request
            for number, request in enumerate(requests)
        ]
        answers = yield from together(joining)
        compared: list[TextComparison] = []
        for number, answer in enumerate(answers):
            _demand_own(number, answer.text, alone)
            what = "the long prompt" if number == 0 else f"short prompt {number}"
            label = f"{what}, the long one {which}"
            compared.append(TextComparison(label, alone[number], answer))
        # Each order by itself: a server may be wrong in one of them alone.
        found.append(judged(compared, fact))
    return worst(found)


def _unharming(setting: Setting, several: HTTPRequest, plain: HTTPRequest) -> Asking[Answer]:
    """Ask what a server may refuse. A refusal counts where the server works on behind it."""
    try:
        return (yield from honoured(several))
    except Judged as judged:
        after = yield from one(plain)
        if not after.is_answer and after.status not in BUSY:
            fact = f"{judged.finding.fact}; the plain request after it: {after.error}"
            raise (yield from lost(setting, plain, after.status, fact)) from None
        raise


def ask_batched_prompts(setting: Setting) -> Asking[RowFinding]:
    """Several prompts in one request, whole and streamed."""
    prompts = texts(setting, PROMPTS)
    requests = [
        completion(setting, "alone", prompt=prompt, max_tokens=TOKENS) for prompt in prompts
    ]
    alone: list[Answer] = []
    for request in requests:
        alone.append((yield from steady(request)))  # noqa: PERF401 - a generator
    compared: list[TextComparison] = []
    for make, mode in ((completion, "whole"), (streamed, "streamed")):
        label = f"{PROMPTS} prompts, {mode}"
        several = make(setting, label, prompt=prompts, max_tokens=TOKENS)
        answer = yield from _unharming(setting, several, requests[0])
        if sorted(answer.choices) != list(range(PROMPTS)):
            fact = f"{mode}: {plural(len(answer.choices), 'choice')} for {PROMPTS} prompts"
            raise Judged("VIOLATES", "count", fact)
        for number in range(PROMPTS):
            choice = Answer(answer.status, choices={0: answer.choices[number]})
            _demand_own(number, choice.text, alone)
            compared.append(TextComparison(f"prompt {number}, {mode}", alone[number], choice))
    return judge(compared, f"{PROMPTS} prompts in one request get the texts they get alone")


def _is_honoured(name: str, answer: Answer, stop: str) -> bool:
    """Whether an answer keeps what its parameter asks for."""
    if not answer.is_answer:
        return False
    if name == "stop":
        return stop not in answer.text
    if name == "max_tokens":
        return answer.usage is not None and answer.usage.completion <= 3
    if name == "n":
        return sorted(answer.choices) == [0, 1]
    return bool(answer.logprobs)


def ask_parameters_together(setting: Setting) -> Asking[RowFinding]:
    """Clients with other parameters at the same time; each parameter that is honoured alone."""
    base = yield from ordinary(completion(setting, "without parameters"))
    stop = stop_of(base.text) or ""
    asked: dict[str, HTTPRequest] = {
        "stop": completion(setting, "client with stop", stop=stop or None),
        "max_tokens": completion(setting, "client with max_tokens", max_tokens=3),
        "n": completion(setting, "client with n", n=2, temperature=1, max_tokens=TOKENS),
        "logprobs": completion(setting, "client with logprobs", logprobs=2, max_tokens=TOKENS),
    }
    kept: dict[str, HTTPRequest] = {}
    for name, request in asked.items():
        answer = yield from one(request)
        if _is_honoured(name, answer, stop) and (name != "stop" or stop):
            kept[name] = request
    seeded = [
        completion(setting, f"client with seed {seed}", temperature=1, seed=seed, max_tokens=TOKENS)
        for seed in SEEDS
    ]
    samples: list[Answer] = []
    for request in seeded:
        first = yield from one(request)
        again = yield from one(request)
        if first.is_answer and again.text == first.text:
            samples.append(first)
    has_seeds = len(samples) == len(SEEDS)
    if not kept and not has_seeds:
        raise Judged(
            "CANNOT TELL",
            "none",
            "the server ignores every parameter, even in a request that is sent alone",
        )
    # Twice each, so that one parameter alone has company too.
    named = [*kept.items(), *kept.items()]
    requests = [request for _, request in named] + (seeded if has_seeds else [])
    answers = yield from together(requests)
    for (name, _), answer in zip(named, answers, strict=False):
        if not _is_honoured(name, answer, stop):
            fact = f"{name} is honoured alone, but not among {len(requests) - 1} others"
            raise Judged("VIOLATES", "together", f"{fact}: {shown(answer.text)}")
    compared = [
        TextComparison(f"seed {seed}", before, after)
        for seed, before, after in zip(SEEDS, samples, answers[len(named) :], strict=False)
    ]
    differing = [comparison for comparison in compared if comparison.differs]
    if has_seeds and len(differing) >= MOST * len(SEEDS):
        fact = f"seed is honoured alone, but not among {len(requests) - 1} others"
        raise Judged("VIOLATES", "together", f"{fact}: {differing[0].fact}")
    if has_seeds and differing:
        raise Judged("CANNOT TELL", "close", f"{len(differing)} of {len(SEEDS)} samples differ")
    names = ", ".join([*kept, *(["seed"] if has_seeds else [])])
    return conforms(f"{names}: honoured for {len(requests)} concurrent clients")


def ask_health(setting: Setting) -> Asking[RowFinding]:
    """The list of models and the state of health while a long answer is made."""
    [before] = yield [completion(setting, "before")]
    if not read(before).is_answer:
        fact = f"the plain request was not answered: {read(before).error}"
        raise Judged("CANNOT TELL", "unanswered", fact)
    tokens, exchange, others = yield from _beside_a_long_answer(setting)
    unblocked = f"{MODELS} and {HEALTH} do not wait for an answer of up to {tokens} tokens"
    # From the first bytes to the last, because the way to a server far away takes its time as
    # well. Where a server holds a stream back, that is no more than all of a plain request.
    first, last = _span(exchange)
    took = last - min(first, before.ms)
    ends = [other.ms for other in others if other.status is not None]
    if len(ends) == len(others) and max(ends) <= last / 2 and last - max(ends) >= LEAST_MS:
        # So also where the whole stream came at its end.
        return conforms(unblocked)
    if took < LEAST_MS:
        fact = f"the long answer took only {took} ms, which is too short to test this"
        raise Judged("CANNOT TELL", "short", fact)
    for other in others:
        # Whether the server has this path at all is the promise of another row.
        if other.status is None or other.ms >= last - SLACK * took:
            how = f"{other.request.path}: {other.status or other.ended} after {other.ms} ms"
            fact = f"{how}, beside an answer that ended after {last} ms"
            raise Judged("VIOLATES", "blocked", fact)
    return conforms(unblocked)


def _beside_a_long_answer(setting: Setting) -> Asking[tuple[int, HTTPExchange, list[HTTPExchange]]]:
    """Ask for a long answer, and for the list of models and the state of health meanwhile.

    A server that makes it in no time is asked for longer ones.
    """
    # Sent when the long answer is under way: what comes before it does not wait for it.
    waiting = [
        HTTPRequest(label=path, method="GET", path=path, after_ms=BEGUN_MS)
        for path in (MODELS, HEALTH)
    ]
    last = 0
    reached = 0
    for tokens in LONG_ANSWERS:
        label = "client with a long answer"
        long = streamed(setting, label, prompt=COUNTING, max_tokens=tokens)
        [exchange, *others] = yield [long, *waiting]
        answer = read(exchange)
        if reached and (answer.is_refusal or exchange.ended == "too large"):
            # More than its context holds, or than a client of ours takes.
            break
        if not answer.is_answer:
            fact = f"the long answer was not generated ({exchange.ended})"
            raise Judged("CANNOT TELL", "short", fact)
        reached = tokens
        found = exchange, others
        _, last = _span(exchange)
        if last >= LONG_MS:
            break
    if last >= LEAST_MS:
        return reached, *found
    fact = f"an answer of up to {reached} tokens took {last} ms, so nobody can wait for it"
    raise Judged("NOT ASKED", "short", fact)


def _span(exchange: HTTPExchange) -> tuple[int, int]:
    """Return when the first and the last bytes of an answer came, in milliseconds."""
    if not exchange.chunks:
        return 0, 0
    return exchange.chunks[0].ms, exchange.chunks[-1].ms
