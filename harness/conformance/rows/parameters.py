"""Rows about parameters that a server honours or refuses, whole and streamed."""

from __future__ import annotations

from typing import Any, Final

from harness.conformance.answer import Answer
from harness.conformance.exchange import HTTPRequest
from harness.conformance.rows.row import (
    UNSTEADY,
    Asking,
    Judged,
    RowFinding,
    Setting,
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


def is_cut(text: str, wanted: str) -> bool:
    """Whether a text ends where a stop string begins. Servers may trim the space before it."""
    return text.rstrip() == wanted.rstrip()


def ask_stop_string(setting: Setting) -> Asking[RowFinding]:
    """Stop strings from the server's own answers to two prompts."""
    stops: list[str] = []
    for prompt in texts(setting, 2):
        base = yield from ordinary(completion(setting, "without stop", prompt=prompt))
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
                answer = yield from honoured(make(setting, label, prompt=prompt, stop=given))
                if not is_cut(answer.text, wanted):
                    about = "stop" if stop in answer.text else "text"
                    fact = f"{mode}, stop {stop!r}: {shown(answer.text)}, not {shown(wanted)}"
                    raise Judged("VIOLATES", about, fact)
                if answer.finish != "stop":
                    raise Judged("VIOLATES", "finish", f"{mode}: finish reason {answer.finish}")
    if not stops:
        raise Judged("CANNOT TELL", "no stop", "no part of an answer can be a stop string")
    return conforms(f"ends before each of {stops}, alone and in a list, whole and streamed")


def _demand_logprobs(answer: Answer, mode: str) -> None:
    if any("logprobs" in problem for problem in answer.problems):
        raise Judged("VIOLATES", "schema", f"{mode}: {'; '.join(answer.problems)}")
    if not answer.logprobs:
        raise Judged("VIOLATES", "missing", f"{mode}: no logprobs, and no refusal")
    for token in answer.logprobs:
        if token.value > TOLERANCE:
            raise Judged("VIOLATES", "value", f"{mode}: a log probability of {token.value}")
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
            fact = f"token {place}: whole {left.token!r} {left.value:.4f}, streamed {right.token!r} {right.value:.4f}"
            raise Judged("VIOLATES", "value", fact)
    return conforms(f"{plural(len(of_whole), 'token')}, streamed as whole")


def ask_logprobs(setting: Setting) -> Asking[RowFinding]:
    """Log probabilities of a completion."""
    yield from ordinary(completion(setting, "without logprobs"))
    return (
        yield from _ask_logprobs(
            completion(setting, "logprobs 2", logprobs=2),
            streamed(setting, "logprobs 2, streamed", logprobs=2),
        )
    )


def ask_chat_logprobs(setting: Setting) -> Asking[RowFinding]:
    """Log probabilities in a chat."""
    yield from ordinary(completion(setting, "completion"))
    yield from honoured(chat(setting, "chat without logprobs"))
    more: dict[str, Any] = {"logprobs": True, "top_logprobs": 2}
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
        answer = yield from honoured(make(setting, f"n 2, {mode}", n=2, temperature=1))
        if sorted(answer.choices) != [0, 1]:
            fact = f"{mode}: {plural(len(answer.choices), 'choice')} although 2 were requested"
            raise Judged("VIOLATES", "count", fact)
        if answer.problems:
            raise Judged("VIOLATES", "schema", f"{mode}: {'; '.join(answer.problems)}")
    return conforms("2 choices, whole and streamed")


def ask_echo(setting: Setting) -> Asking[RowFinding]:
    """The prompt before the continuation."""
    base = yield from ordinary(completion(setting, "without echo"))
    prompt = fields(setting)["prompt"]
    for make, mode in ((completion, "whole"), (streamed, "streamed")):
        answer = yield from honoured(make(setting, f"echo, {mode}", echo=True))
        if not answer.text.lstrip().startswith(prompt):
            how = "ignored" if answer.text == base.text else f"the text is {shown(answer.text)}"
            raise Judged("VIOLATES", "echo", f"{mode}: the prompt does not come first: {how}")
    return conforms("the prompt comes first, whole and streamed")


def ask_seed(setting: Setting) -> Asking[RowFinding]:
    """Samples of three seeds: the first again, and streamed."""
    base = yield from ordinary(completion(setting, "temperature 0"))
    found: dict[str, str] = {}
    for label, seed in (("seed 1", 1), ("seed 2", 2), ("seed 3", 3), ("seed 1 again", 1)):
        request = completion(setting, label, temperature=1, seed=seed)
        found[label] = (yield from honoured(request)).text
    stream = yield from honoured(streamed(setting, "seed 1, streamed", temperature=1, seed=1))
    if found["seed 1"] != found["seed 1 again"]:
        fact = f"seed 1 returned {shown(found['seed 1'])} and {shown(found['seed 1 again'])}"
        raise Judged("VIOLATES", "seed", fact)
    demand_same("streamed", "seed 1", found["seed 1"], stream.text)
    if len(set(found.values())) == 1:
        greedy = " (that of temperature 0)" if base.text == found["seed 1"] else ""
        fact = f"3 seeds returned the same text at temperature 1{greedy}"
        raise Judged("VIOLATES" if setting.samples else "CANNOT TELL", "ignored", fact)
    return conforms(
        f"seed 1 repeats, also streamed; 3 seeds returned {len(set(found.values()))} texts"
    )
