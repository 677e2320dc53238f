"""What an answer says, read strictly from its bytes: a pure function of an exchange.

Whatever is not in OpenAI's schema is reported and never repaired. Fields that may be null may also
be absent, as most servers write them, and further fields are allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from harness.conformance.exchange import CHAT, HTTPExchange
from harness.forms.strict_json import strict_json

FINISHES: Final = ("stop", "length", "content_filter", "tool_calls", "function_call")
DONE: Final = "[DONE]"
PROBLEMS_KEPT: Final = 5
SHOWN: Final = 80
EVENT_STREAM: Final = "text/event-stream"


@dataclass(frozen=True)
class TokenLogprob:
    """Log probability of one token that was chosen, and those of the likeliest tokens.

    Attributes:
        top: log probabilities of the likeliest tokens, as the server lists them.
        names: those tokens, in the same order.
    """

    token: str
    value: float
    top: tuple[float, ...]
    names: tuple[str, ...] = ()


@dataclass
class ToolCall:
    """A call of a tool that the model makes: its name, and its arguments as they are written."""

    name: str = ""
    arguments: str = ""


@dataclass
class Choice:
    """One continuation. `logprobs` is None where the server gave none."""

    text: str = ""
    finish: str | None = None
    logprobs: list[TokenLogprob] | None = None
    tools: list[ToolCall] = field(default_factory=list)


@dataclass(frozen=True)
class Usage:
    """Counts of tokens, as the server states them."""

    prompt: int
    completion: int
    total: int

    def __str__(self) -> str:
        return f"{self.prompt} + {self.completion} = {self.total}"


@dataclass
class Answer:
    """What a server answered.

    Attributes:
        status: of HTTP; None where no answer began.
        error: how the exchange ended or what the server said, where this is no answer of the model.
        problems: what is not as in OpenAI's schema, the first few.
        choices: by index.
        place: the event of a stream that is being read; problems name it.
    """

    status: int | None
    error: str = ""
    problems: list[str] = field(default_factory=list)
    choices: dict[int, Choice] = field(default_factory=dict)
    usage: Usage | None = None
    place: str = ""
    _noted: set[str] = field(default_factory=set)

    @property
    def is_refusal(self) -> bool:
        """Whether the server said clearly that it does not do this."""
        return self.status is not None and (400 <= self.status < 500 or self.status == 501)

    @property
    def is_answer(self) -> bool:
        """Whether a continuation came, however well its schema was kept."""
        return not self.error and bool(self.choices)

    @property
    def text(self) -> str:
        """Text of the first choice."""
        return self.choices[0].text if 0 in self.choices else ""

    @property
    def finish(self) -> str | None:
        """Finish reason of the first choice."""
        return self.choices[0].finish if 0 in self.choices else None

    @property
    def logprobs(self) -> list[TokenLogprob] | None:
        """Log probabilities of the first choice."""
        return self.choices[0].logprobs if 0 in self.choices else None

    @property
    def tools(self) -> list[ToolCall]:
        """Calls of tools in the first choice."""
        return self.choices[0].tools if 0 in self.choices else []

    def wrong(self, what: str) -> None:
        """Note a problem, once with the first event that has it; of thousands the first few."""
        if len(self.problems) < PROBLEMS_KEPT and what not in self._noted:
            self._noted.add(what)
            self.problems.append(f"{self.place}: {what}" if self.place else what)


def read(exchange: HTTPExchange) -> Answer:
    """Return what an exchange says. It raises nothing, whatever the server sent."""
    answer = Answer(exchange.status)
    if exchange.status is None:
        answer.error = f"no answer ({exchange.ended})"
        return answer
    if exchange.status != 200:
        answer.error = f"status {exchange.status}: {_message(exchange)}"
        return answer
    if exchange.ended not in ("complete", "left"):
        answer.error = f"the answer did not end well ({exchange.ended})"
    kind = exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
    if exchange.request.fields().get("stream") is True:
        if kind != EVENT_STREAM:
            answer.wrong(f"content-type is {kind[:SHOWN]!r}, not {EVENT_STREAM}")
        _read_stream(answer, exchange)
    else:
        if kind != "application/json":
            answer.wrong(f"content-type is {kind[:SHOWN]!r}, not application/json")
        _read_whole(answer, exchange)
    return answer


def spelled(exchange: HTTPExchange) -> str:
    """Return every text of an answer, joined: what a reader of it would see.

    Also of fields that no row reads: the texts of one field, over all items of its lists and all
    events of a stream.
    """
    answer = read(exchange)
    tokens = [token.token for choice in answer.choices.values() for token in choice.logprobs or ()]
    texts = [choice.text for choice in answer.choices.values()]
    calls = [
        call.name + call.arguments for choice in answer.choices.values() for call in choice.tools
    ]
    fields: dict[str, str] = {}
    found: list[str | bytes] = [exchange.body(), *events(exchange.body())[0]]
    for data in found:
        try:
            value = strict_json(data)
        except ValueError:
            continue
        for name, text in _fields(value):
            fields[name] = fields.get(name, "") + text
    joined = [*texts, *calls, "".join(tokens), *fields.values()]
    return "\n".join([answer.error, *answer.problems, *joined])


def _fields(value: Any) -> Iterator[tuple[str, str]]:
    """Yield each text in a value with the names of the fields that it is in."""
    left = [("", value)]
    while left:
        name, one = left.pop()
        if isinstance(one, str):
            yield name, one
        elif isinstance(one, dict):
            left += [(f"{name}/{key}", inner) for key, inner in reversed(one.items())]
        elif isinstance(one, list):
            left += [(name, inner) for inner in reversed(one)]


def events(body: bytes) -> tuple[list[str], list[str]]:
    """Return the data of every server-sent event of a body, and what is wrong with the body."""
    problems: list[str] = []
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        problems.append(f"the stream contains invalid UTF-8 at byte {error.start}")
        text = body.decode(errors="replace")
    # Exactly the line ends that the standard names: str.splitlines knows more of them, and JSON may
    # hold those.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    found: list[str] = []
    data: list[str] = []
    for line in lines[:-1]:
        if not line:
            if data:
                found.append("\n".join(data))
                data = []
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            if name == "data":
                data.append(value.removeprefix(" "))
            elif name not in ("event", "id", "retry"):
                problems.append(f"a line is not a field of an event: {line[:SHOWN]!r}")
    if data or lines[-1]:
        problems.append("the last event does not end with a blank line")
    return found, problems


def _read_stream(answer: Answer, exchange: HTTPExchange) -> None:
    is_chat = exchange.request.path == CHAT
    first: Mapping[str, Any] = {}
    for number, data in enumerate(_before_done(answer, exchange.body()), start=1):
        answer.place = f"event {number}"
        value = _mapping(answer, data)
        if value is None:
            continue
        answer.place = _place(value, number)
        _demand_head(answer, value, "chat.completion.chunk" if is_chat else "text_completion")
        first = first or value
        if value.get("id") != first.get("id"):
            answer.wrong("the id changes within a stream")
        for index, choice in _choices(answer, value):
            known = answer.choices.setdefault(index, Choice())
            if known.finish is not None and (_text_of(answer, choice, is_chat, streamed=True)):
                answer.wrong("text follows the finish reason")
            _take(answer, known, choice, is_chat, streamed=True)
        _take_usage(answer, value)
    answer.place = ""
    if exchange.ended == "complete":
        for index, known in answer.choices.items():
            if known.finish is None:
                answer.wrong(f"choice {index} ends without a finish reason")
    if not answer.choices and not answer.error:
        answer.error = "the stream contains no choice"


def _place(value: Mapping[str, Any], number: int) -> str:
    """Return how to find an event in a stream: by what only one event of a stream has."""
    if value.get("usage") is not None and not value.get("choices"):
        return "the event with the usage"
    choices = value.get("choices")
    listed = choices if isinstance(choices, list) else []
    if any(isinstance(one, dict) and one.get("finish_reason") is not None for one in listed):
        return "the event with the finish reason"
    return f"event {number}"


def _before_done(answer: Answer, body: bytes) -> list[str]:
    """Return the events before the mark at the end, and note whether it is the last."""
    found, problems = events(body)
    for problem in problems:
        answer.wrong(problem)
    if DONE not in found:
        answer.wrong(f"the stream does not end with {DONE}")
        return found
    end = found.index(DONE)
    if end != len(found) - 1:
        answer.wrong(f"something follows {DONE}")
    return found[:end]


def _read_whole(answer: Answer, exchange: HTTPExchange) -> None:
    value = _mapping(answer, exchange.body())
    if value is None:
        answer.error = answer.error or f"not an answer: {answer.problems[-1]}"
        return
    is_chat = exchange.request.path == CHAT
    _demand_head(answer, value, "chat.completion" if is_chat else "text_completion")
    for index, choice in _choices(answer, value):
        if index in answer.choices:
            answer.wrong(f"choice {index} appears twice")
        known = answer.choices.setdefault(index, Choice())
        _take(answer, known, choice, is_chat, streamed=False)
        if known.finish is None:
            answer.wrong(f"choice {index} has no finish reason")
    _take_usage(answer, value)
    if not answer.choices and not answer.error:
        answer.error = "the answer contains no choice"


def _mapping(answer: Answer, data: str | bytes) -> Mapping[str, Any] | None:
    try:
        value = strict_json(data)
    except ValueError as error:
        answer.wrong(str(error)[: 2 * SHOWN])
        return None
    if not isinstance(value, dict):
        answer.wrong("the JSON is not an object")
        return None
    if "error" in value:
        answer.error = answer.error or f"200 with an error: {str(value['error'])[:SHOWN]}"
    return value


def _demand_head(answer: Answer, value: Mapping[str, Any], kind: str) -> None:
    if value.get("object") != kind:
        answer.wrong(f"object is {str(value.get('object'))[:SHOWN]!r}, not {kind!r}")
    for name, wanted in (("id", str), ("created", int), ("model", str)):
        if type(value.get(name)) is not wanted:
            answer.wrong(f"{name} is not of type {wanted.__name__}")


def _choices(answer: Answer, value: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    listed = value.get("choices")
    if not isinstance(listed, list):
        answer.wrong("choices is not a list")
        return
    for choice in listed:
        if not isinstance(choice, dict) or type(choice.get("index")) is not int:
            answer.wrong("a choice has no index")
            continue
        yield choice["index"], choice


def _text_of(answer: Answer, choice: Mapping[str, Any], is_chat: bool, *, streamed: bool) -> str:
    if is_chat:
        place = "delta" if streamed else "message"
        inner = choice.get(place)
        if not isinstance(inner, dict):
            answer.wrong(f"a choice has no {place}")
            return ""
        if not streamed and inner.get("role") != "assistant":
            answer.wrong(f"the role of a message is {str(inner.get('role'))[:SHOWN]!r}")
        text = inner.get("content")
        if text is None:
            return ""
    else:
        text = choice.get("text")
    if not isinstance(text, str):
        answer.wrong("the text of a choice is not a string")
        return ""
    return text


def _take(
    answer: Answer, known: Choice, choice: Mapping[str, Any], is_chat: bool, *, streamed: bool
) -> None:
    known.text += _text_of(answer, choice, is_chat, streamed=streamed)
    if is_chat:
        _take_tools(answer, known, choice, streamed=streamed)
    finish = choice.get("finish_reason")
    if finish is not None:
        if finish not in FINISHES:
            answer.wrong(f"finish_reason is {str(finish)[:SHOWN]!r}")
        if known.finish is not None:
            answer.wrong("a choice has two finish reasons")
        known.finish = str(finish)[:SHOWN]
    stated = choice.get("logprobs")
    if stated is not None:
        try:
            tokens = _chat_logprobs(stated) if is_chat else _logprobs(stated)
        except (KeyError, TypeError, ValueError, AttributeError):
            answer.wrong("logprobs are not as in OpenAI's schema")
            return
        known.logprobs = [*(known.logprobs or ()), *tokens]


def _take_tools(
    answer: Answer, known: Choice, choice: Mapping[str, Any], *, streamed: bool
) -> None:
    """Add the calls of tools of a message, or what an event adds to them."""
    inner = choice.get("delta" if streamed else "message")
    listed = inner.get("tool_calls") if isinstance(inner, dict) else None
    if listed is None:
        return
    try:
        for place, call in enumerate(listed):
            number = call["index"] if streamed else place
            function = call["function"]
            # A call begins with its id, which its result has to state. Calls are counted on.
            if number == len(known.tools):
                _word(call["id"])
                known.tools.append(ToolCall())
            known.tools[number].name += _word(function.get("name") or "")
            known.tools[number].arguments += _word(function.get("arguments") or "")
    except (KeyError, IndexError, TypeError, AttributeError):
        answer.wrong("tool_calls are not as in OpenAI's schema")


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("not a number")
    return float(value)


def _word(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a string")
    return value


def _logprobs(stated: Mapping[str, Any]) -> list[TokenLogprob]:
    tokens: Sequence[Any] = stated["tokens"]
    values: Sequence[Any] = stated["token_logprobs"]
    tops: Sequence[Any] = stated.get("top_logprobs") or [{}] * len(tokens)
    return [
        TokenLogprob(
            _word(token),
            _number(value),
            tuple(_number(one) for one in (top or {}).values()),
            tuple(top or {}),
        )
        for token, value, top in zip(tokens, values, tops, strict=True)
    ]


def _chat_logprobs(stated: Mapping[str, Any]) -> list[TokenLogprob]:
    return [
        TokenLogprob(
            _word(token["token"]),
            _number(token["logprob"]),
            tuple(_number(top["logprob"]) for top in token.get("top_logprobs") or ()),
            tuple(_word(top["token"]) for top in token.get("top_logprobs") or ()),
        )
        for token in stated["content"] or ()
    ]


def _take_usage(answer: Answer, value: Mapping[str, Any]) -> None:
    usage = value.get("usage")
    if usage is None:
        return
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    if not isinstance(usage, dict) or any(type(usage.get(name)) is not int for name in names):
        answer.wrong("usage does not contain three integers")
        return
    answer.usage = Usage(*(usage[name] for name in names))


def _message(exchange: HTTPExchange) -> str:
    """Return what a server says of an error: the message of OpenAI's schema, or the body."""
    body = exchange.body()
    try:
        value = strict_json(body)
    except ValueError:
        return body.decode(errors="replace").strip()[:SHOWN] or "(empty)"
    if isinstance(value, dict):
        inner = value.get("error", value.get("detail", value.get("message", value)))
        value = inner.get("message", inner) if isinstance(inner, dict) else inner
    return str(value)[: 2 * SHOWN]
