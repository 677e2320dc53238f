"""Rows about what every server answers: schema, streams, lengths, usage, chats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harness.conformance.answer import DONE, Answer, Usage, events, read
from harness.conformance.exchange import MODELS, HTTPRequest
from harness.conformance.rows.differing import TextComparison, judged, logprobs_if_given
from harness.conformance.rows.row import (
    ALONE,
    BUSY,
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
    one,
    ordinary,
    shown,
    streamed,
    unseen,
)
from harness.forms.strict_json import strict_json
from harness.forms.text import joined, plural

LONG_WORDS: Final = (32, 160)
"""Words of prompts of about 200 and 1000 characters: caches keep whole blocks of tokens."""
AGAIN: Final = 2
FEW: Final = 8
"""Tokens of an answer: a close decision is unlikely among so few."""
CUTS: Final = (13, 14, 15, 16)
"""Lengths of which one is likely to end within a character of several bytes."""
LENGTHS: Final = (1, 5, 12)
"""Limits of tokens. What the last of them goes on with was not the end of the others."""
LIMITS: Final = (1, *CUTS)
"""A stream of one token is all beginning and end."""


def ask_completion(setting: Setting) -> Asking[RowFinding]:
    """A plain completion."""
    [exchange] = yield [completion(setting, "whole")]
    answer = read(exchange)
    if (
        answer.status is None
        or answer.is_refusal
        or answer.status in BUSY
        or 300 <= answer.status < 400
    ):
        raise Judged("CANNOT TELL", "unanswered", answer.error)
    if exchange.ended == "timed out":
        raise Judged("CANNOT TELL", "unanswered", answer.error)
    if not answer.is_answer:
        raise Judged("VIOLATES", "schema", answer.error)
    if answer.problems:
        raise Judged("VIOLATES", "schema", "; ".join(answer.problems))
    return conforms(f"{plural(len(answer.text), 'character')}, finish reason {answer.finish}")


def ask_stream_schema(setting: Setting) -> Asking[RowFinding]:
    """One stream, event by event."""
    yield from ordinary(completion(setting, "whole"))
    [exchange] = yield [streamed(setting, "streamed")]
    answer = read(exchange)
    if answer.is_refusal:
        raise Judged("REFUSES", "refused", answer.error)
    if exchange.ended == "timed out" and (answer.finish is None or not answer.is_answer):
        if answer.finish is None:
            raise Judged("CANNOT TELL", "unanswered", answer.error)
        raise Judged("VIOLATES", "open", "the stream stayed open after its finish reason")
    if not answer.is_answer or answer.problems:
        raise Judged("VIOLATES", "schema", "; ".join(answer.problems) or answer.error)
    # Counted in the bytes: several may have arrived together.
    found, _ = events(exchange.body())
    return conforms(f"{plural(len(found) - 1, 'event')} in OpenAI's schema, then {DONE}")


def ask_stream_is_whole(setting: Setting) -> Asking[RowFinding]:
    """Answers of five lengths, whole and streamed; the longest twice, to see whether it repeats."""
    first = None
    broad: set[int] = set()
    uncounted = ""
    for count in (*LIMITS, LIMITS[-1]):
        whole = yield from ordinary(completion(setting, f"whole, {count} tokens", max_tokens=count))
        stream = yield from honoured(
            streamed(setting, f"streamed, {count} tokens", max_tokens=count)
        )
        if count == CUTS[-1] and first is None:
            first = (whole.text, stream.text)
        elif count == CUTS[-1] and first != (whole.text, stream.text):
            raise Judged("CANNOT TELL", "unsteady", UNSTEADY)
        demand_same("text", f"text of {count} tokens", whole.text, stream.text)
        demand_same("finish", f"finish reason of {count} tokens", whole.finish, stream.finish)
        if whole.usage and stream.usage:
            demand_same("usage", f"usage of {count} tokens", str(whole.usage), str(stream.usage))
        else:
            uncounted = "; usage is not compared, because an answer has none"
        if whole.text[-1:] > "\x7f":
            broad.add(count)
    limits = joined(map(str, LIMITS))
    ended = f"{len(broad)} of {len(LIMITS)} texts end with a character of several bytes"
    return conforms(f"limits of {limits} tokens; {ended}{uncounted}")


def ask_max_tokens(setting: Setting) -> Asking[RowFinding]:
    """Three lengths, and one streamed."""
    answers: list[Answer] = []
    asked: list[HTTPRequest] = []
    for count in LENGTHS:
        asked.append(completion(setting, f"{count} tokens", max_tokens=count))
        answer = yield from ordinary(asked[-1])
        demand_length(answer, count)
        answers.append(answer)
    asked.append(streamed(setting, "5 tokens, streamed", max_tokens=5))
    stream = yield from honoured(asked[-1])
    if stream.finish not in ("length", "stop"):
        fact = f"streamed: the finish reason is {stream.finish}, expected length or stop"
        raise Judged("VIOLATES", "finish", fact)
    uncounted = demand_counted_length(stream, 5)
    first, fifth, last = answers
    if first.text and first.text == last.text:
        raise Judged(
            "VIOLATES",
            "length",
            f"requests for 1 token and for 12 tokens returned the same text {shown(first.text)}",
            (asked[0], asked[2]),
        )
    for request, answer in zip(asked, (first, fifth, last, stream), strict=True):
        demand_not_ended(request.label, answer, last, (request, asked[2]))
    return conforms(f"limits of 1, 5 and 12 tokens, and of 5 streamed{uncounted}")


def demand_counted_length(stream: Answer, count: int) -> str:
    """Demand the same of a stream that counts its tokens; returns what to say of another."""
    if stream.usage is None:
        return ", which was not counted, because the stream has no usage"
    demand_length(stream, count)
    return ""


def demand_not_ended(
    label: str, answer: Answer, longer: Answer, compared: Sequence[HTTPRequest]
) -> None:
    """Demand that no text is said to have ended that goes on in a longer answer."""
    # A limit may cut a character, and servers may trim the space at an end.
    text = answer.text.rstrip("\ufffd").rstrip()
    rest = longer.text.rstrip("\ufffd").rstrip().removeprefix(text)
    if answer.finish != "stop" or not text or not longer.text.startswith(text) or not rest:
        return
    fact = f"{label}: the finish reason is stop, but with a higher limit the text goes on"
    raise Judged("VIOLATES", "finish", f"{fact} with {shown(rest)}", compared)


def demand_length(answer: Answer, count: int) -> None:
    """Demand that an answer has at most so many tokens, and says when that ended it."""
    if answer.usage is None:
        raise Judged("CANNOT TELL", "uncounted", "the server does not report token usage")
    made = answer.usage.completion
    if made > count:
        fact = f"the server reported {plural(made, 'token')}, but at most {count} were requested"
        raise Judged("VIOLATES", "length", fact)
    if answer.finish == "length" and made < count:
        raise Judged(
            "VIOLATES", "finish", f"the finish reason is length after only {made} of {count} tokens"
        )
    if made == count and answer.finish not in ("length", "stop"):
        fact = f"the finish reason is {answer.finish} after {count} tokens, expected length or stop"
        raise Judged("VIOLATES", "finish", fact)


def ask_greedy_repeat(setting: Setting) -> Asking[RowFinding]:
    """A short request five times, and two long ones three times."""
    found: list[str] = []
    for number in range(ALONE):
        short = completion(setting, f"time {number + 1}")
        answer = yield from ordinary(short)
        found.append(answer.text)
    if len(set(found)) > 1:
        other = next(text for text in found if text != found[0])
        fact = f"{len(set(found))} texts in {ALONE} requests: {shown(found[0])}, {shown(other)}"
        raise Judged("VIOLATES", "repeat", fact, [short] * ALONE)
    more = yield from logprobs_if_given(setting)
    compared: list[TextComparison] = []
    changed: list[HTTPRequest] = []
    lengths: list[str] = []
    for words in LONG_WORDS:
        prompt = unseen(setting, f"{words} words", words)
        request = completion(setting, f"{words} words", prompt=prompt, max_tokens=FEW, **more)
        first = yield from one(request)
        if first.is_refusal:
            # Its context may be shorter.
            continue
        if not first.is_answer:
            raise Judged("CANNOT TELL", "unanswered", f"{request.label}: {first.error}")
        for _ in range(AGAIN):
            again = yield from ordinary(request)
            label = f"the same prompt of {len(prompt)} characters"
            compared.append(TextComparison(label, first, again))
            if compared[-1].differs and not changed:
                changed = [request] * (1 + AGAIN)
        lengths.append(str(len(prompt)))
    # A cached prompt may round a close decision otherwise, so one text more is no proof.
    long = judged(compared, f"{ALONE} times the same text")
    if long.word == "VIOLATES":
        raise Judged("VIOLATES", "repeat", long.fact, changed)
    if long.word != "CONFORMS":
        return long
    long_ones = f"; {1 + AGAIN} times for prompts of {joined(lengths)} characters"
    return conforms(long.fact + (long_ones if lengths else ""))


def ask_models(setting: Setting) -> Asking[RowFinding]:
    """The list of models."""
    yield from ordinary(completion(setting, "whole"))
    [exchange] = yield [HTTPRequest(label="models", method="GET", path=MODELS)]
    answer = Answer(exchange.status)
    if answer.is_refusal:
        raise Judged("REFUSES", "refused", f"status {exchange.status}")
    if exchange.status != 200:
        raise Judged(
            "VIOLATES",
            "error",
            f"the server did not return a list of models ({exchange.status or exchange.ended})",
        )
    try:
        value = strict_json(exchange.body())
        names = [model["id"] for model in value["data"]]
    except (ValueError, KeyError, TypeError):
        raise Judged(
            "VIOLATES",
            "schema",
            f"status 200, but the body of {len(exchange.body())} bytes is not a list of models",
        ) from None
    # Servers of local models list the folder.
    last = setting.model.rpartition("/")[2]
    listed = [str(name) for name in names if str(name).rpartition("/")[2] == last]
    if not listed:
        raise Judged(
            "VIOLATES",
            "missing",
            f"{setting.model} is served, but is not in the list of {plural(len(names), 'model')}",
        )
    return conforms(f"{listed[0]} is listed ({plural(len(names), 'model')})")


def ask_usage(setting: Setting) -> Asking[RowFinding]:
    """Usage of two prompts, and of a stream."""
    short = yield from ordinary(completion(setting, "whole"))
    prompt = fields(setting)["prompt"]
    long = yield from ordinary(
        completion(setting, "longer prompt", prompt=f"{prompt} {prompt} {prompt}")
    )
    if short.usage is None or long.usage is None:
        raise Judged("VIOLATES", "missing", "a response contains no usage field")
    _demand_sum(short.usage)
    _demand_sum(long.usage)
    if not long.usage.prompt > short.usage.prompt > 0:
        fact = f"a prompt three times as long has {long.usage.prompt} tokens, the short one {short.usage.prompt}"
        raise Judged("VIOLATES", "prompt", fact)
    stream = yield from honoured(streamed(setting, "streamed"))
    if stream.usage is None:
        raise Judged(
            "VIOLATES", "missing", "a stream contains no usage field, although it was requested"
        )
    _demand_sum(stream.usage)
    streams = f"{stream.usage} for a stream of another text, so it was not compared"
    if stream.text == short.text:
        demand_same("usage", "usage", str(short.usage), str(stream.usage))
        streams = "the same when streamed"
    tokens = f"{long.usage.prompt} prompt tokens for a prompt three times as long"
    return conforms(f"{short.usage}, {streams}; {tokens}")


def _demand_sum(usage: Usage) -> None:
    if usage.prompt + usage.completion != usage.total:
        raise Judged("VIOLATES", "sum", f"usage does not add up: {usage}")


def ask_usage_tokens(setting: Setting) -> Asking[RowFinding]:
    """Usage against the tokenizer."""
    for prompt, counts in sorted((setting.tokens or {}).items()):
        answer = yield from ordinary(completion(setting, "whole", prompt=prompt, max_tokens=1))
        _demand_counted(answer, counts, "the tokenizer makes")
    return conforms(f"{plural(len(setting.tokens or {}), 'prompt')} counted as the tokenizer does")


def ask_chat_template(setting: Setting) -> Asking[RowFinding]:
    """Usage of chats against the tokenizer and its chat template."""
    yield from ordinary(completion(setting, "completion"))
    chats = sorted((setting.chats or {}).items())
    for prompt, counts in chats:
        messages = [{"role": "user", "content": prompt}]
        answer = yield from honoured(chat(setting, "chat", messages=messages, max_tokens=1))
        _demand_counted(answer, counts, "the chat template makes")
    return conforms(f"{plural(len(chats), 'chat')} counted as the chat template makes them")


def _demand_counted(answer: Answer, counts: list[int], what: str) -> None:
    if answer.usage is None:
        raise Judged("VIOLATES", "missing", "a response contains no usage field")
    if answer.usage.prompt not in counts:
        made = " or ".join(map(str, counts))
        raise Judged(
            "VIOLATES",
            "prompt",
            f"{answer.usage.prompt} prompt tokens were reported, but {what} {made}",
        )


def ask_chat(setting: Setting) -> Asking[RowFinding]:
    """An answer in a chat, whole and streamed, twice."""
    yield from ordinary(completion(setting, "whole"))
    found: list[tuple[str, str]] = []
    for time in ("first", "second"):
        whole = yield from honoured(chat(setting, f"chat, {time}"))
        stream = yield from honoured(chat(setting, f"chat, streamed, {time}", stream=True))
        if whole.problems:
            raise Judged("VIOLATES", "schema", "; ".join(whole.problems))
        found.append((whole.text, stream.text))
        finishes = (whole.finish, stream.finish)
    wholes, streams = zip(*found, strict=True)
    # A stream that twice loses something may lose more or less of it.
    is_lossy = wholes[0] not in streams
    if len(set(wholes)) > 1 or (len(set(streams)) > 1 and not is_lossy):
        raise Judged("CANNOT TELL", "unsteady", UNSTEADY)
    demand_same("text", "text", *found[0])
    demand_same("finish", "finish reason", *finishes)
    if stream.problems:
        raise Judged("VIOLATES", "schema", "; ".join(stream.problems))
    if whole.usage is not None:
        if stream.usage is None:
            fact = "a stream contains no usage field, although it was requested"
            raise Judged("VIOLATES", "missing", fact)
        demand_same("usage", "usage", str(whole.usage), str(stream.usage))
        _demand_sum(whole.usage)
    return conforms(f"{plural(len(found[0][0]), 'character')}, the same when streamed")
