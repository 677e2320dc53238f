"""Rows about parameters that a server honours or refuses, whole and streamed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Final

from harness.conformance.answer import Answer, TokenLogprob
from harness.conformance.exchange import HTTPRequest
from harness.conformance.rows.alike import demand_unlike
from harness.conformance.rows.row import (
    LEAST_SAMPLED,
    UNSTEADY,
    Asking,
    Judged,
    RowFinding,
    Setting,
    all_alike,
    chat,
    completion,
    conforms,
    demand_same,
    fields,
    honoured,
    ordinary,
    shown,
    streamed,
    texts,
)
from harness.forms.text import plural

# Zero too: where a program takes it for "no seed", only that one is not repeated.
SEEDED: Final = (
    ("seed 1", 1),
    ("seed 2", 2),
    ("seed 1 again", 1),
    ("seed 0", 0),
    ("seed 0 again", 0),
)
LONGER_STOP: Final = 4
"""Characters of the stop strings in a list: several pieces of a stream."""
HOT: Final = 1.5
TOPS: Final = 2
"""Likeliest tokens that are requested beside each token."""
TOLERANCE: Final = 1e-3
"""Of log probabilities, streamed against whole: they are printed with different precision."""


def stop_of(text: str) -> str | None:
    """Return a part of an answer to stop at: from its middle, two characters, no space first."""
    for place in range(len(text) // 2, len(text) - 1):
        word = text[place : place + 2]
        if word[0].isspace() or "\ufffd" in word or not word.isprintable():
            continue
        if text.find(word) > 0:
            return word
    return None


def stops_of(text: str) -> tuple[str, str] | None:
    """Return two longer parts of an answer to stop at, in the order in which they come."""
    begins = range(len(text) - LONGER_STOP + 1)
    words = ((place, text[place : place + LONGER_STOP]) for place in begins)
    good = [
        place
        for place, word in words
        if not word[0].isspace() and "\ufffd" not in word and word.isprintable()
        if place and text.find(word) == place
    ]
    # Far from each other: one piece of a stream must not hold both.
    early = next((place for place in good if place >= len(text) // 3), None)
    if early is None or good[-1] < early + 2 * LONGER_STOP:
        return None
    return text[early : early + LONGER_STOP], text[good[-1] : good[-1] + LONGER_STOP]


def demand_stopped(
    answer: Answer, mode: str, stop: str, wanted: str, compared: Sequence[HTTPRequest]
) -> None:
    """Demand that a text ends before a stop string, and says that this ended it."""
    if not is_cut(answer.text, wanted):
        about = "stop" if stop in answer.text else "place"
        fact = f"{mode}, stop {stop!r}: {shown(answer.text)}, not {shown(wanted)}"
        raise Judged("VIOLATES", about, fact, compared)
    if answer.finish != "stop":
        fact = f"{mode}: the finish reason is {answer.finish}"
        raise Judged("VIOLATES", "finish", fact, compared)


def is_cut(text: str, wanted: str) -> bool:
    """Whether a text ends where a stop string begins. Servers may trim the space before it."""
    return text.rstrip() == wanted.rstrip()


def ask_stop_string(setting: Setting) -> Asking[RowFinding]:
    """Stop strings from the server's own answers to two prompts."""
    stops: list[str] = []
    has_list = False
    for prompt in texts(setting, 2):
        without = completion(setting, "without stop", prompt=prompt)
        base = yield from ordinary(without)
        again = yield from ordinary(completion(setting, "without stop, again", prompt=prompt))
        if base.text != again.text:
            raise Judged("CANNOT TELL", "unsteady", UNSTEADY)
        stop = stop_of(base.text)
        if stop is None:
            continue
        stops.append(stop)
        wanted = base.text[: base.text.find(stop)]
        for make, mode in ((completion, "whole"), (streamed, "streamed")):
            for given in (stop, ["\u241fnever", stop]):
                label = f"stop {given!r}, {mode}"
                request = make(setting, label, prompt=prompt, stop=given)
                answer = yield from honoured(request)
                demand_stopped(answer, mode, stop, wanted, (without, request))
        if has_list or (longer := stops_of(base.text)) is None:
            continue
        has_list = True
        early, late = longer
        wanted = base.text[: base.text.find(early)]
        for make, mode in ((completion, "whole"), (streamed, "streamed")):
            label = f"stop {[late, early]}, {mode}"
            request = make(setting, label, prompt=prompt, stop=[late, early])
            answer = yield from honoured(request)
            demand_stopped(answer, f"{mode}, a list", early, wanted, (without, request))
    if not stops:
        raise Judged("CANNOT TELL", "no stop", "no part of any answer can be used as a stop string")
    return conforms(f"ends before each of {stops}, alone and in a list, whole and streamed")


def _demand_logprobs(answer: Answer, mode: str) -> None:
    if any("logprobs" in problem for problem in answer.problems):
        raise Judged("VIOLATES", "schema", f"{mode}: {'; '.join(answer.problems)}")
    if not answer.logprobs:
        raise Judged(
            "VIOLATES",
            "missing",
            f"{mode}: the request was accepted, but the answer has no logprobs",
        )
    for token in answer.logprobs:
        if token.value > TOLERANCE:
            fact = f"{mode}: a log probability is {token.value}, but must not be above 0"
            raise Judged("VIOLATES", "value", fact)
    # A token may have fewer, but a server that gives none at all ignores what was requested.
    if not any(token.top for token in answer.logprobs):
        fact = f"{mode}: no token has top_logprobs, although {TOPS} were requested"
        raise Judged("VIOLATES", "missing", fact)
    if answer.usage and answer.usage.completion != len(answer.logprobs):
        fact = f"{mode}: {len(answer.logprobs)} logprobs for {answer.usage.completion} tokens"
        raise Judged("VIOLATES", "count", fact)


def _ask_logprobs(whole_of: HTTPRequest, stream_of: HTTPRequest) -> Asking[RowFinding]:
    whole = yield from honoured(whole_of)
    _demand_logprobs(whole, "whole")
    stream = yield from honoured(stream_of)
    _demand_logprobs(stream, "streamed")
    of_whole = whole.logprobs or []
    of_stream = stream.logprobs or []
    if whole.text != stream.text:
        raise Judged(
            "CANNOT TELL", "unsteady", "the texts differ, so their logprobs cannot be compared"
        )
    demand_same("count", "number of logprobs", len(of_whole), len(of_stream))
    for place, (left, right) in enumerate(zip(of_whole, of_stream, strict=True)):
        if left.token != right.token or abs(left.value - right.value) > TOLERANCE:
            fact = (
                f"token {place}: {left.token!r} {left.value:.4f} when not streamed,"
                f" {right.token!r} {right.value:.4f} when streamed"
            )
            raise Judged("VIOLATES", "value", fact)
        if not _are_close(left, right):
            fact = (
                f"top_logprobs of token {place}: {_tops(left)} when not streamed,"
                f" {_tops(right)} when streamed"
            )
            raise Judged("VIOLATES", "value", fact)
    return conforms(f"{plural(len(of_whole), 'token')}, the same when streamed")


def _are_close(left: TokenLogprob, right: TokenLogprob) -> bool:
    """Whether two lists of likeliest tokens have the same tokens and log probabilities, in any
    order.
    """
    if len(left.top) != len(right.top):
        return False
    pairs = zip(sorted(left.top), sorted(right.top), strict=True)
    is_near = all(abs(one - other) <= TOLERANCE for one, other in pairs)
    return is_near and _likelier(left) <= {*right.names} and _likelier(right) <= {*left.names}


def _likelier(token: TokenLogprob) -> set[str]:
    """Return the likeliest tokens without the last of them, which may be one of several alike."""
    least = min(token.top, default=0.0)
    pairs = zip(token.names, token.top, strict=True)
    return {name for name, value in pairs if value > least + 2 * TOLERANCE}


def _tops(token: TokenLogprob) -> str:
    listed = zip(token.names, token.top, strict=True)
    return ", ".join(f"{name!r} {value:.4f}" for name, value in listed) or "none"


def ask_logprobs(setting: Setting) -> Asking[RowFinding]:
    """Log probabilities of a completion."""
    yield from ordinary(completion(setting, "without logprobs"))
    return (
        yield from _ask_logprobs(
            completion(setting, f"logprobs {TOPS}", logprobs=TOPS),
            streamed(setting, f"logprobs {TOPS}, streamed", logprobs=TOPS),
        )
    )


def ask_chat_logprobs(setting: Setting) -> Asking[RowFinding]:
    """Log probabilities in a chat."""
    yield from ordinary(completion(setting, "completion"))
    yield from honoured(chat(setting, "chat without logprobs"))
    more: dict[str, Any] = {"logprobs": True, "top_logprobs": TOPS}
    return (
        yield from _ask_logprobs(
            chat(setting, "chat, logprobs", **more),
            chat(setting, "chat, logprobs, streamed", stream=True, **more),
        )
    )


def ask_n(setting: Setting) -> Asking[RowFinding]:
    """Two choices."""
    yield from ordinary(completion(setting, "one choice"))
    for make, mode in ((completion, "whole"), (streamed, "streamed")):
        # Sampled: at temperature 0 both choices would be the same, and vLLM refuses that.
        request = make(setting, f"n 2, {mode}", n=2, temperature=HOT)
        answer = yield from honoured(request)
        if sorted(answer.choices) != [0, 1]:
            fact = f"{mode}: {plural(len(answer.choices), 'choice')} although 2 were requested"
            raise Judged("VIOLATES", "count", fact)
        if answer.problems:
            raise Judged("VIOLATES", "schema", f"{mode}: {'; '.join(answer.problems)}")
        yield from demand_unlike(request, make(setting, f"sample, {mode}", temperature=HOT), answer)
    return conforms("2 choices, whole and streamed")


def ask_echo(setting: Setting) -> Asking[RowFinding]:
    """The prompt before the continuation."""
    base = yield from ordinary(completion(setting, "without echo"))
    prompt = fields(setting)["prompt"]
    for make, mode in ((completion, "whole"), (streamed, "streamed")):
        answer = yield from honoured(make(setting, f"echo, {mode}", echo=True))
        if not answer.text.lstrip().startswith(prompt):
            how = f"the text is {shown(answer.text)}"
            if answer.text == base.text:
                how = "the answer is the same as without echo"
            raise Judged(
                "VIOLATES", "echo", f"{mode}: the response does not start with the prompt: {how}"
            )
    return conforms("the response starts with the prompt, whole and streamed")


def demand_repeated(found: Mapping[str, str], asked: Mapping[str, HTTPRequest]) -> None:
    """Demand that the seeds that were asked twice gave one text."""
    for seed in ("seed 1", "seed 0"):
        first = found[seed]
        again = found[f"{seed} again"]
        if first != again:
            fact = f"{seed} returned {shown(first)} and {shown(again)}"
            compared = (asked[seed], asked[f"{seed} again"])
            raise Judged("VIOLATES", "seed", fact, compared)


def demand_distinct(
    found: Mapping[str, str], asked: Mapping[str, HTTPRequest], setting: Setting
) -> None:
    """Demand that each seed has a text of its own, where the model is known to sample many."""
    if not setting.samples:
        return
    seeds = ("seed 0", "seed 1", "seed 2")
    for one, other in combinations(seeds, 2):
        if found[one] == found[other] and len(found[one]) >= LEAST_SAMPLED:
            fact = f"{one} and {other} returned the same text {shown(found[one])}"
            raise Judged("VIOLATES", "ignored", fact, (asked[one], asked[other]))


def ask_seed(setting: Setting) -> Asking[RowFinding]:
    """Samples of three seeds: the first again, and streamed; and that of 0 again."""
    base = yield from ordinary(completion(setting, "temperature 0"))
    found: dict[str, str] = {}
    asked: dict[str, HTTPRequest] = {}
    for label, seed in SEEDED:
        asked[label] = completion(setting, label, temperature=1, seed=seed)
        found[label] = (yield from honoured(asked[label])).text
    last = streamed(setting, "seed 1, streamed", temperature=1, seed=1)
    stream = yield from honoured(last)
    demand_repeated(found, asked)
    compared = (asked["seed 1"], last)
    demand_same("streamed", "seed 1", found["seed 1"], stream.text, compared)
    if len(set(found.values())) == 1:
        greedy = " (that of temperature 0)" if base.text == found["seed 1"] else ""
        fact = f"3 seeds returned the same text at temperature 1{greedy}"
        compared = (asked["seed 1"], asked["seed 2"])
        raise all_alike(setting, "ignored", fact, compared)
    demand_distinct(found, asked, setting)
    return conforms(
        f"seeds 1 and 0 repeat, 1 also streamed; 3 seeds returned {len(set(found.values()))} texts"
    )
