"""The rows: each asks for one promise, and judges the answers.

A row is a generator. It yields requests that are sent at the same time, is given their exchanges,
and returns a finding. It knows nothing but the setting and the exchanges, so whoever verifies runs
the same code over the exchanges that were kept.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from harness.conformance import defects
from harness.conformance.answer import Answer, read
from harness.conformance.exchange import (
    CHAT,
    COMPLETIONS,
    FILL,
    MODELS,
    Exchange,
    HTTPRequest,
    pack,
    post,
)
from harness.conformance.proxy import Defect
from harness.forms.model import Model
from harness.forms.strict_json import strict_json
from harness.forms.text import plural

Word = Literal["CONFORMS", "VIOLATES", "REFUSES", "CANNOT TELL", "NOT ASKED"]
T = TypeVar("T")
Asking = Generator[list[HTTPRequest], list[Exchange], T]

LENGTH: Final = 24
"""Tokens of an ordinary answer."""
CUTS: Final = (13, 14, 15, 16)
"""Lengths of which one is likely to end within a character of several bytes."""
ALONE: Final = 5
CLIENTS: Final = 4
LONG: Final = 2000
HUGE: Final = 10_000_000
TOLERANCE: Final = 1e-3
"""Of log probabilities, streamed against whole: they are printed with different precision."""
STAYS_MS: Final = 500
IDLE: Final = 0.25
STILL_BUSY: Final = 0.5
"""Of the processor time that the server used while the client read."""
LEAST_BUSY: Final = 0.1
"""Processor seconds a second below which there is nothing to compare with."""
UNSTEADY: Final = "the same request did not give the same text twice"
TEXTUAL: Final = frozenset({"text", "seed", "streamed", "value", "changed"})
"""Differences that mean something only where the server repeats its texts."""
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


class Setting(Model):
    """What a row knows before it asks.

    Attributes:
        model: name that requests state.
        seed: of the words in prompts.
        samples: whether the model is known to have several likely next tokens, so that other seeds
            must give other texts.
        tokens: how many tokens the tokenizer makes of a prompt, without and with the special ones;
            None without a tokenizer.
    """

    model: str
    seed: int
    samples: bool
    tokens: dict[str, list[int]] | None


class Finding(Model):
    """What one repetition of a row found.

    Attributes:
        about: the difference in one word, which the control of the row states.
        fact: in a sentence.
    """

    word: Word
    about: str
    fact: str


class Judged(Exception):
    """A finding that ends the row."""

    def __init__(self, word: Word, about: str, fact: str) -> None:
        super().__init__(fact)
        self.finding = Finding(word=word, about=about, fact=fact)


@dataclass(frozen=True, kw_only=True)
class Row:
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
    """

    name: str
    promises: str
    requests: int
    ask: Callable[[Setting], Asking[Finding]]
    defect: Defect
    about: str
    is_core: bool = False
    may_harm: bool = False
    is_long: bool = False
    needs: Literal["", "tokenizer", "process"] = ""


def drive(
    row: Row, setting: Setting, send: Callable[[list[HTTPRequest]], list[Exchange]]
) -> Finding:
    """Run a row to its finding: over a server, or over exchanges that were kept."""
    asking = row.ask(setting)
    try:
        requests = next(asking)
        while True:
            requests = asking.send(send(requests))
    except StopIteration as end:
        finding: Finding = end.value
        return finding
    except Judged as judged:
        return judged.finding


def texts(setting: Setting, count: int = 1) -> list[str]:
    """Return prompts, the same in every repetition."""
    dice = random.Random(setting.seed)  # noqa: S311 - words of a prompt
    return [
        f"The {' and the '.join(dice.sample(WORDS, 3))} of {dice.randrange(10, 99)} people:"
        for _ in range(count)
    ]


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
    messages = [{"role": "user", "content": texts(setting)[0]}]
    if stream:
        more |= {"stream": True, "stream_options": {"include_usage": True}}
    return post(label, CHAT, fields(setting, prompt=None, messages=messages, **more))


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


def honoured(request: HTTPRequest) -> Asking[Answer]:
    """Ask what a server may refuse: it has to answer, or to say clearly that it does not."""
    [exchange] = yield [request]
    answer = read(exchange)
    if answer.is_answer:
        return answer
    if answer.is_refusal:
        raise Judged("REFUSES", "refused", f"{request.label}: {answer.error}")
    if exchange.ended == "timed out" or answer.status in BUSY:
        raise Judged("CANNOT TELL", "unanswered", f"{request.label}: {answer.error}")
    raise Judged(
        "VIOLATES", "error", f"{request.label}: neither an answer nor a refusal: {answer.error}"
    )


def demand_same(about: str, what: str, whole: object, other: object) -> None:
    """Demand that two values are equal."""
    if whole != other:
        raise Judged("VIOLATES", about, f"{what}: whole {_shown(whole)}, streamed {_shown(other)}")


def conforms(fact: str) -> Finding:
    """Return that the promise was kept."""
    return Finding(word="CONFORMS", about="", fact=fact)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN // 2]}...{text[-SHOWN // 2 :]}"


# -- what every server answers ---------------------------------------------------------------------


def ask_completion(setting: Setting) -> Asking[Finding]:
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


def ask_stream_schema(setting: Setting) -> Asking[Finding]:
    """One stream, event by event."""
    yield from ordinary(completion(setting, "whole"))
    [exchange] = yield [streamed(setting, "streamed")]
    answer = read(exchange)
    if answer.is_refusal:
        raise Judged("REFUSES", "refused", answer.error)
    if exchange.ended == "timed out" and (answer.finish is None or not answer.is_answer):
        if answer.finish is None:
            raise Judged("CANNOT TELL", "unanswered", answer.error)
        raise Judged("VIOLATES", "open", "the stream stays open after its finish reason")
    if not answer.is_answer or answer.problems:
        raise Judged("VIOLATES", "schema", "; ".join(answer.problems) or answer.error)
    return conforms(f"{plural(len(exchange.chunks), 'chunk')}, each in OpenAI's schema")


def ask_stream_is_whole(setting: Setting) -> Asking[Finding]:
    """Answers of four lengths, whole and streamed; the longest twice, to see whether it repeats."""
    first = None
    broad = 0
    for count in (*CUTS, CUTS[-1]):
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
        broad += whole.text[-1:] > "\x7f"
    return conforms(
        f"{len(CUTS)} lengths; {plural(broad, 'answer')} ended with a character of several bytes"
    )


def ask_max_tokens(setting: Setting) -> Asking[Finding]:
    """Three lengths, and one streamed."""
    found: list[str] = []
    for count in (1, 5, 12):
        answer = yield from ordinary(completion(setting, f"{count} tokens", max_tokens=count))
        _demand_length(answer, count)
        found.append(answer.text)
    stream = yield from honoured(streamed(setting, "5 tokens, streamed", max_tokens=5))
    if stream.finish not in ("length", "stop"):
        raise Judged("VIOLATES", "finish", f"streamed: finish reason {stream.finish}")
    if stream.usage is not None:
        _demand_length(stream, 5)
    if found[0] and found[0] == found[2]:
        raise Judged(
            "VIOLATES", "length", f"1 token and 12 tokens are the same text {_shown(found[0])}"
        )
    return conforms("1, 5 and 12 tokens, and 5 streamed")


def _demand_length(answer: Answer, count: int) -> None:
    if answer.usage is None:
        raise Judged("CANNOT TELL", "uncounted", "the server does not state its usage")
    made = answer.usage.completion
    if made > count:
        raise Judged("VIOLATES", "length", f"{made} tokens where at most {count} were asked for")
    if answer.finish == "length" and made < count:
        raise Judged("VIOLATES", "finish", f"finish reason length after {made} of {count} tokens")
    if made == count and answer.finish not in ("length", "stop"):
        raise Judged("VIOLATES", "finish", f"finish reason {answer.finish} after {count} tokens")


def ask_greedy_repeat(setting: Setting) -> Asking[Finding]:
    """The same request five times."""
    found: list[str] = []
    for number in range(ALONE):
        answer = yield from ordinary(completion(setting, f"time {number + 1}"))
        found.append(answer.text)
    if len(set(found)) > 1:
        other = next(text for text in found if text != found[0])
        fact = f"{len(set(found))} texts in {ALONE} requests: {_shown(found[0])}, {_shown(other)}"
        raise Judged("VIOLATES", "repeat", fact)
    return conforms(f"{ALONE} times the same text")


def ask_models(setting: Setting) -> Asking[Finding]:
    """The list of models."""
    yield from ordinary(completion(setting, "whole"))
    [exchange] = yield [HTTPRequest(label="models", method="GET", path=MODELS)]
    answer = Answer(exchange.status)
    if answer.is_refusal:
        raise Judged("REFUSES", "refused", f"status {exchange.status}")
    if exchange.status != 200:
        raise Judged(
            "VIOLATES", "error", f"no list of models ({exchange.status or exchange.ended})"
        )
    try:
        value = strict_json(exchange.body())
        names = [model["id"] for model in value["data"]]
    except (ValueError, KeyError, TypeError):
        raise Judged(
            "VIOLATES",
            "schema",
            f"status 200, and {len(exchange.body())} bytes that list no models",
        ) from None
    # Servers of local models list the folder.
    if setting.model.rpartition("/")[2] not in [str(name).rpartition("/")[2] for name in names]:
        raise Judged(
            "VIOLATES", "missing", f"{setting.model} is served and not in the list of {len(names)}"
        )
    return conforms(f"{setting.model} is one of {plural(len(names), 'model')}")


# -- parameters ------------------------------------------------------------------------------------


def stop_of(text: str) -> str | None:
    """Return a part of an answer to stop at: from its middle, two characters, no space first."""
    for place in range(len(text) // 2, len(text) - 1):
        word = text[place : place + 2]
        if word[0].isspace() or "\ufffd" in word or not word.isprintable():
            continue
        if text.find(word) > 0:
            return word
    return None


def ask_stop_string(setting: Setting) -> Asking[Finding]:
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
                if answer.text != wanted:
                    about = "stop" if stop in answer.text else "text"
                    fact = f"{mode}, stop {stop!r}: {_shown(answer.text)}, not {_shown(wanted)}"
                    raise Judged("VIOLATES", about, fact)
                if answer.finish != "stop":
                    raise Judged("VIOLATES", "finish", f"{mode}: finish reason {answer.finish}")
    if not stops:
        raise Judged("CANNOT TELL", "no stop", "no part of an answer can be a stop string")
    return conforms(f"ends before each of {stops}, alone and in a list, whole and streamed")


def ask_usage(setting: Setting) -> Asking[Finding]:
    """Usage of two prompts, and of a stream."""
    short = yield from ordinary(completion(setting, "whole"))
    prompt = fields(setting)["prompt"]
    long = yield from ordinary(
        completion(setting, "longer prompt", prompt=f"{prompt} {prompt} {prompt}")
    )
    if short.usage is None or long.usage is None:
        raise Judged("VIOLATES", "missing", "no usage in an answer")
    for usage in (short.usage, long.usage):
        if usage.prompt + usage.completion != usage.total:
            raise Judged("VIOLATES", "sum", f"usage does not add up: {usage}")
    if not long.usage.prompt > short.usage.prompt > 0:
        fact = f"a prompt three times as long has {long.usage.prompt} tokens, the short one {short.usage.prompt}"
        raise Judged("VIOLATES", "prompt", fact)
    stream = yield from honoured(streamed(setting, "streamed"))
    if stream.usage is None:
        raise Judged("VIOLATES", "missing", "no usage in a stream that was asked for it")
    if stream.text == short.text:
        demand_same("usage", "usage", str(short.usage), str(stream.usage))
    return conforms(f"{short.usage}, whole and streamed")


def ask_usage_tokens(setting: Setting) -> Asking[Finding]:
    """Usage against the tokenizer."""
    for prompt, counts in sorted((setting.tokens or {}).items()):
        answer = yield from ordinary(completion(setting, "whole", prompt=prompt, max_tokens=1))
        if answer.usage is None:
            raise Judged("VIOLATES", "missing", "no usage in an answer")
        if answer.usage.prompt not in counts:
            made = " or ".join(map(str, counts))
            fact = f"{answer.usage.prompt} tokens where the tokenizer makes {made}"
            raise Judged("VIOLATES", "prompt", fact)
    return conforms(f"{plural(len(setting.tokens or {}), 'prompt')} counted as the tokenizer does")


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


def _ask_logprobs(whole_of: HTTPRequest, stream_of: HTTPRequest) -> Asking[Finding]:
    whole = yield from honoured(whole_of)
    _demand_logprobs(whole, "whole")
    stream = yield from honoured(stream_of)
    _demand_logprobs(stream, "streamed")
    one_, other = whole.logprobs or [], stream.logprobs or []
    if whole.text != stream.text:
        raise Judged(
            "CANNOT TELL", "unsteady", "the texts differ, so their logprobs cannot be compared"
        )
    demand_same("count", "number of logprobs", len(one_), len(other))
    for place, (left, right) in enumerate(zip(one_, other, strict=True)):
        if left.token != right.token or abs(left.value - right.value) > TOLERANCE:
            fact = f"token {place}: whole {left.token!r} {left.value:.4f}, streamed {right.token!r} {right.value:.4f}"
            raise Judged("VIOLATES", "value", fact)
    return conforms(f"{plural(len(one_), 'token')}, streamed as whole")


def ask_logprobs(setting: Setting) -> Asking[Finding]:
    """Log probabilities of a completion."""
    yield from ordinary(completion(setting, "without logprobs"))
    return (
        yield from _ask_logprobs(
            completion(setting, "logprobs 2", logprobs=2),
            streamed(setting, "logprobs 2, streamed", logprobs=2),
        )
    )


def ask_chat_logprobs(setting: Setting) -> Asking[Finding]:
    """Log probabilities in a chat."""
    yield from honoured(chat(setting, "chat without logprobs"))
    more: dict[str, Any] = {"logprobs": True, "top_logprobs": 2}
    return (
        yield from _ask_logprobs(
            chat(setting, "chat, logprobs", **more),
            chat(setting, "chat, logprobs, streamed", stream=True, **more),
        )
    )


def ask_chat(setting: Setting) -> Asking[Finding]:
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
    if found[0] != found[1]:
        raise Judged("CANNOT TELL", "unsteady", UNSTEADY)
    demand_same("text", "text", *found[0])
    demand_same("finish", "finish reason", *finishes)
    return conforms(f"{plural(len(found[0][0]), 'character')}, streamed as whole")


def ask_n(setting: Setting) -> Asking[Finding]:
    """Two choices."""
    yield from ordinary(completion(setting, "one choice"))
    for make, mode in ((completion, "whole"), (streamed, "streamed")):
        answer = yield from honoured(make(setting, f"n 2, {mode}", n=2))
        if sorted(answer.choices) != [0, 1]:
            fact = f"{mode}: {plural(len(answer.choices), 'choice')} where 2 were asked for"
            raise Judged("VIOLATES", "count", fact)
    return conforms("2 choices, whole and streamed")


def ask_echo(setting: Setting) -> Asking[Finding]:
    """The prompt before the continuation."""
    base = yield from ordinary(completion(setting, "without echo"))
    prompt = fields(setting)["prompt"]
    for make, mode in ((completion, "whole"), (streamed, "streamed")):
        answer = yield from honoured(make(setting, f"echo, {mode}", echo=True))
        if not answer.text.lstrip().startswith(prompt):
            how = "ignored" if answer.text == base.text else f"the text is {_shown(answer.text)}"
            raise Judged("VIOLATES", "echo", f"{mode}: the prompt does not come first: {how}")
    return conforms("the prompt comes first, whole and streamed")


def ask_seed(setting: Setting) -> Asking[Finding]:
    """Samples of three seeds: the first again, and streamed."""
    base = yield from ordinary(completion(setting, "temperature 0"))
    found: dict[str, str] = {}
    for label, seed in (("seed 1", 1), ("seed 2", 2), ("seed 3", 3), ("seed 1 again", 1)):
        request = completion(setting, label, temperature=1, seed=seed)
        found[label] = (yield from honoured(request)).text
    stream = yield from honoured(streamed(setting, "seed 1, streamed", temperature=1, seed=1))
    if found["seed 1"] != found["seed 1 again"]:
        fact = f"seed 1 gave {_shown(found['seed 1'])} and {_shown(found['seed 1 again'])}"
        raise Judged("VIOLATES", "seed", fact)
    demand_same("streamed", "seed 1", found["seed 1"], stream.text)
    if len(set(found.values())) == 1:
        greedy = " (that of temperature 0)" if base.text == found["seed 1"] else ""
        fact = f"3 seeds gave the same text at temperature 1{greedy}"
        raise Judged("VIOLATES" if setting.samples else "CANNOT TELL", "ignored", fact)
    return conforms(f"seed 1 repeats, also streamed; 3 seeds gave {len(set(found.values()))} texts")


# -- clients ---------------------------------------------------------------------------------------


def ask_no_cross_talk(setting: Setting) -> Asking[Finding]:
    """Each prompt alone, then all at the same time: whoever gets another's answer is seen."""
    prompts = texts(setting, CLIENTS)
    requests = [
        completion(setting, f"client {number}", prompt=prompt, max_tokens=12)
        for number, prompt in enumerate(prompts)
    ]
    alone: list[str] = []
    for request in requests:
        answers: list[str] = []
        for _ in range(ALONE):
            answers.append((yield from ordinary(request)).text)  # noqa: PERF401 - a generator
        if len(set(answers)) > 1:
            raise Judged(
                "CANNOT TELL",
                "unsteady",
                f"{request.label} alone did not get one text {ALONE} times",
            )
        alone.append(answers[0])
    if len(set(alone)) < CLIENTS:
        raise Judged("CANNOT TELL", "alike", "two prompts have the same answer")
    exchanges = yield [*requests, *requests]
    moved = 0
    for number, exchange in enumerate(exchanges):
        answer = read(exchange)
        own = alone[number % CLIENTS]
        if not answer.is_answer:
            if answer.is_refusal or answer.status in BUSY or exchange.ended == "timed out":
                raise Judged("CANNOT TELL", "unanswered", f"{2 * CLIENTS} clients: {answer.error}")
            raise Judged(
                "VIOLATES", "error", f"{2 * CLIENTS} clients at the same time: {answer.error}"
            )
        if answer.text != own and answer.text in alone:
            whose = alone.index(answer.text)
            fact = (
                f"client {number % CLIENTS} got the answer of client {whose}: {_shown(answer.text)}"
            )
            raise Judged("VIOLATES", "swapped", fact)
        moved += answer.text != own
    if moved:
        fact = (
            f"{moved} of {2 * CLIENTS} texts differ from those alone, and none is another client's"
        )
        raise Judged("CANNOT TELL", "differs", fact)
    return conforms(f"{2 * CLIENTS} clients at the same time got the texts they got alone")


def _demand_unharmed(setting: Setting, before: Answer, what: str) -> Asking[None]:
    after = yield from one(completion(setting, f"after: {what}"[:SHOWN]))
    if not after.is_answer:
        raise Judged(
            "VIOLATES", "dead", f"after {what}, the plain request is not answered: {after.error}"
        )
    if after.text != before.text:
        raise Judged("VIOLATES", "changed", f"after {what}, the plain request has another answer")


def ask_disconnect(setting: Setting) -> Asking[Finding]:
    """A client that leaves in the middle of a stream."""
    before = yield from ordinary(completion(setting, "before"))
    leaving = completion(setting, "leaves", stream=True, max_tokens=400)
    for _ in range(2):
        yield [leaving.model_copy(update={"leave_after": 2})]
        yield from _demand_unharmed(setting, before, "a client left")
    return conforms("2 clients left in the middle of a stream; the next answer was as before")


def ask_cancel(setting: Setting) -> Asking[Finding]:
    """Processor time after a client left, against that while it read."""
    yield from ordinary(completion(setting, "before"))
    leaving = completion(setting, "leaves", stream=True, max_tokens=LONG)
    [exchange] = yield [leaving.model_copy(update={"leave_after_ms": STAYS_MS})]
    busy = exchange.busy or 0.0
    if exchange.ended != "left" or exchange.after is None or busy < LEAST_BUSY:
        fact = f"the stream {exchange.ended}, with {busy:.2f} processor seconds a second"
        raise Judged("CANNOT TELL", "unmeasured", fact)
    used = (
        f"{exchange.after:.2f} processor seconds a second after the client left, {busy:.2f} before"
    )
    if exchange.after >= STILL_BUSY * busy:
        raise Judged("VIOLATES", "works on", used)
    if exchange.after > IDLE * busy:
        raise Judged("CANNOT TELL", "unclear", used)
    return conforms(used)


def bad_requests(setting: Setting) -> Sequence[HTTPRequest]:
    """Return requests that no server can serve as they are."""
    whole = fields(setting)
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("max_tokens -1", {"max_tokens": -1}),
        ("max_tokens as a text", {"max_tokens": "many"}),
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


def ask_bad_requests(setting: Setting) -> Asking[Finding]:
    """Bad requests, and the plain request after each."""
    before = yield from ordinary(completion(setting, "before"))
    odd = ""
    requests = bad_requests(setting)
    for request in requests:
        [exchange] = yield [request]
        answer = read(exchange)
        yield from _demand_unharmed(setting, before, request.label)
        if not answer.is_refusal and not answer.is_answer and not odd:
            odd = f"{request.label}: neither an answer nor a refusal: {answer.error}"
    if odd:
        raise Judged("VIOLATES", "error", odd)
    return conforms(
        f"{len(requests)} bad requests refused or answered; the plain answer is as before"
    )


def ask_huge_request(setting: Setting) -> Asking[Finding]:
    """A prompt of 10 MB."""
    before = yield from ordinary(completion(setting, "before"))
    huge = completion(setting, "10 MB", prompt=FILL.decode())
    # However it is refused: a server may close the connection while we still send.
    yield [huge.model_copy(update={"fill": HUGE})]
    yield from _demand_unharmed(setting, before, "a prompt of 10 MB")
    return conforms("the plain answer is as before")


ROWS: Final[dict[str, Row]] = {
    row.name: row
    for row in (
        Row(
            name="completion",
            promises="A completion is answered in OpenAI's schema.",
            requests=1,
            ask=ask_completion,
            defect=defects.HALF,
            about="schema",
            is_core=True,
        ),
        Row(
            name="stream-is-whole",
            promises="A stream has the text, finish reason and usage of the whole answer.",
            requests=10,
            ask=ask_stream_is_whole,
            defect=defects.DROPPED,
            about="text",
            is_core=True,
        ),
        Row(
            name="max-tokens",
            promises="An answer has at most max_tokens tokens, and says when that ended it.",
            requests=4,
            ask=ask_max_tokens,
            defect=defects.MORE_TOKENS,
            about="length",
            is_core=True,
        ),
        Row(
            name="greedy-repeat",
            promises="At temperature 0 the same request has the same text.",
            requests=ALONE,
            ask=ask_greedy_repeat,
            defect=defects.UNSTEADY,
            about="repeat",
            is_core=True,
        ),
        Row(
            name="stop-string",
            promises="A text ends exactly before the first stop string.",
            requests=12,
            ask=ask_stop_string,
            defect=defects.NO_STOP,
            about="stop",
        ),
        Row(
            name="stream-schema",
            promises="Each event of a stream is in OpenAI's schema, and the last is [DONE].",
            requests=2,
            ask=ask_stream_schema,
            defect=defects.NOT_ENDED,
            about="schema",
        ),
        Row(
            name="usage",
            promises="Usage adds up, grows with the prompt, and is the same streamed.",
            requests=3,
            ask=ask_usage,
            defect=defects.MISCOUNTS,
            about="usage",
        ),
        Row(
            name="usage-tokens",
            promises="Usage counts the tokens that the tokenizer makes of the prompt.",
            requests=2,
            ask=ask_usage_tokens,
            defect=defects.MISCOUNTS_ALL,
            about="prompt",
            needs="tokenizer",
        ),
        Row(
            name="logprobs",
            promises="Completions give logprobs, streamed as whole, or refuse them.",
            requests=3,
            ask=ask_logprobs,
            defect=defects.NO_LOGPROBS,
            about="missing",
        ),
        Row(
            name="chat",
            promises="A chat is answered in OpenAI's schema, streamed as whole.",
            requests=5,
            ask=ask_chat,
            defect=defects.DROPPED,
            about="text",
        ),
        Row(
            name="chat-logprobs",
            promises="Chats give logprobs, streamed as whole, or refuse them.",
            requests=3,
            ask=ask_chat_logprobs,
            defect=defects.NO_LOGPROBS,
            about="missing",
        ),
        Row(
            name="n",
            promises="n=2 gives 2 choices, whole and streamed, or is refused.",
            requests=3,
            ask=ask_n,
            defect=defects.NO_N,
            about="count",
        ),
        Row(
            name="echo",
            promises="echo puts the prompt first, whole and streamed, or is refused.",
            requests=3,
            ask=ask_echo,
            defect=defects.NO_ECHO,
            about="echo",
        ),
        Row(
            name="seed",
            promises="The same seed repeats a sample, also streamed, or is refused.",
            requests=6,
            ask=ask_seed,
            defect=defects.NO_SEED,
            about="seed",
        ),
        Row(
            name="models",
            promises="/v1/models lists the model that answers.",
            requests=2,
            ask=ask_models,
            defect=defects.NO_MODELS,
            about="missing",
        ),
        Row(
            name="no-cross-talk",
            promises="Clients at the same time get their own answers.",
            requests=ALONE * CLIENTS + 2 * CLIENTS,
            ask=ask_no_cross_talk,
            defect=defects.SWAPS,
            about="swapped",
        ),
        Row(
            name="disconnect",
            promises="A client that leaves harms no other client.",
            requests=5,
            ask=ask_disconnect,
            defect=defects.LEFT_BROKEN,
            about="dead",
        ),
        Row(
            name="cancel",
            promises="A server stops working for a client that left.",
            requests=2,
            ask=ask_cancel,
            defect=defects.DEAF,
            about="works on",
            needs="process",
        ),
        Row(
            name="bad-requests",
            promises="Bad requests are refused or answered, and harm nobody.",
            requests=23,
            ask=ask_bad_requests,
            defect=defects.BREAKS,
            about="dead",
            may_harm=True,
        ),
        Row(
            name="huge-request",
            promises="A prompt of 10 MB harms nobody.",
            requests=3,
            ask=ask_huge_request,
            defect=defects.BREAKS,
            about="dead",
            may_harm=True,
            is_long=True,
        ),
    )
}
