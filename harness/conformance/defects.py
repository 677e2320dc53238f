"""The defects that the proxies of the rows put in: what each row has to see."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from harness.conformance.proxy import Fields, ProxyDefect

Change = Callable[[Any], None]


def removes(*names: str) -> Callable[[Fields], Fields]:
    """Change a request by leaving fields out."""
    return lambda fields: {name: value for name, value in fields.items() if name not in names}


def in_whole(change: Change) -> Callable[[bytes], bytes]:
    """Change the JSON of an answer that is not streamed."""

    def changed(body: bytes) -> bytes:
        value = json.loads(body)
        change(value)
        return json.dumps(value, ensure_ascii=False).encode()

    return changed


def in_events(change: Change) -> Callable[[Iterator[bytes]], Iterator[bytes]]:
    """Change the JSON of each event of a stream."""

    def changed(events: Iterator[bytes]) -> Iterator[bytes]:
        for event in events:
            if not event.startswith(b"data: {"):
                yield event
                continue
            value = json.loads(event.removeprefix(b"data: "))
            change(value)
            yield b"data: " + json.dumps(value, ensure_ascii=False).encode()

    return changed


def has_text(event: bytes) -> bool:
    """Whether an event of a stream carries text."""
    if not event.startswith(b"data: {"):
        return False
    choices = json.loads(event.removeprefix(b"data: ")).get("choices") or [{}]
    return bool(choices[0].get("text") or (choices[0].get("delta") or {}).get("content"))


def drops_last_text(events: Iterator[bytes]) -> Iterator[bytes]:
    """Leave out the text of the last event that has some; its finish reason stays."""
    listed = list(events)
    last = max((place for place, event in enumerate(listed) if has_text(event)), default=None)
    for place, event in enumerate(listed):
        if place == last:
            yield next(in_events(_without_text)(iter([event])))
        else:
            yield event


def _without_text(value: Any) -> None:
    choice = value["choices"][0]
    if "delta" in choice:
        choice["delta"] = {}
    else:
        choice["text"] = ""


def _without_logprobs(value: Any) -> None:
    for choice in value.get("choices", ()):
        choice["logprobs"] = None


def _more_prompt(tokens: int) -> Change:
    def change(value: Any) -> None:
        if value.get("usage"):
            value["usage"]["prompt_tokens"] += tokens
            value["usage"]["total_tokens"] += tokens

    return change


def _no_models(value: Any) -> None:
    value["data"] = []


def _without_own(fields: Fields) -> Fields:
    """Ignore the parameters of a request. Without any limit its answer may take a minute."""
    kept = removes("stop", "n", "logprobs", "seed")(fields)
    return kept | {"max_tokens": 2 * fields.get("max_tokens", 16)}


def _more_tokens(fields: Fields) -> Fields:
    return fields | {"max_tokens": fields.get("max_tokens", 16) + 3}


def _without_last(events: Iterator[bytes]) -> Iterator[bytes]:
    return (event for event in events if event != b"data: [DONE]")


def completes_broken(events: Iterator[bytes]) -> Iterator[bytes]:
    """End each stream with [DONE], however the server ended it."""
    done = b"data: [DONE]"
    last = b""
    with contextlib.suppress(OSError, http.client.HTTPException):
        for last in events:
            yield last
    if last != done:
        yield done


def unsteady() -> Callable[[bytes], bytes]:
    """Return what changes the text of every second answer."""
    count = itertools.count()

    def change(value: Any) -> None:
        if next(count) % 2:
            value["choices"][0]["text"] += "!"

    return in_whole(change)


def leftover() -> ProxyDefect:
    """Return the defect of a proxy that mixes the end of an answer into the next."""
    before = ""

    def change(value: Any) -> None:
        nonlocal before
        choice = value["choices"][0]
        inner, name = (choice["message"], "content") if "message" in choice else (choice, "text")
        text = inner[name] or ""
        if before and text != before:
            inner[name] = text + before[-3:]
        before = text

    return ProxyDefect(does="", whole=in_whole(change))


def prefix_only(remembered: int) -> Callable[[], ProxyDefect]:
    """Return what makes a proxy that answers the beginning of a prompt, where it was asked before.

    Args:
        remembered: how many prompts it keeps.
    """

    def fresh() -> ProxyDefect:
        prompts: deque[str] = deque(maxlen=remembered)

        def change(fields: Fields) -> Fields:
            prompt = fields.get("prompt")
            if not isinstance(prompt, str):
                return fields
            known = [one for one in prompts if prompt.startswith(one) and prompt != one]
            prompts.append(prompt)
            return fields | {"prompt": max(known, key=len)} if known else fields

        return ProxyDefect(does="", ask=change)

    return fresh


def in_chats(change: Callable[[Fields], Fields]) -> Callable[[Fields], Fields]:
    """Change the requests of chats alone."""
    return lambda fields: change(fields) if "messages" in fields else fields


def _first_prompt(fields: Fields) -> Fields:
    prompt = fields.get("prompt")
    return fields | {"prompt": prompt[0]} if isinstance(prompt, list) else fields


def _last_message(fields: Fields) -> Fields:
    return fields | {"messages": fields["messages"][-1:]}


def _hot(fields: Fields) -> Fields:
    return fields | {"temperature": 1.5}


HALF = ProxyDefect(
    does="answers 200 with half of the answer", whole=lambda body: body[: len(body) // 2]
)
DROPPED = ProxyDefect(does="drops the last text of a stream", stream=drops_last_text)
NOT_ENDED = ProxyDefect(does="does not end a stream with [DONE]", stream=_without_last)
MORE_TOKENS = ProxyDefect(does="requests 3 tokens more than the client does", ask=_more_tokens)
UNSTEADY = ProxyDefect(does="changes the text of every second answer", whole=unsteady())
NO_STOP = ProxyDefect(does="removes `stop` from the request", ask=removes("stop"))
NO_N = ProxyDefect(does="removes `n` from the request", ask=removes("n"))
NO_SEED = ProxyDefect(does="removes `seed` from the request", ask=removes("seed"))
NO_ECHO = ProxyDefect(does="removes `echo` from the request", ask=removes("echo"))
NO_LOGPROBS = ProxyDefect(
    does="removes the logprobs from streams", stream=in_events(_without_logprobs)
)
MISCOUNTS = ProxyDefect(
    does="counts 1 prompt token too many in streams", stream=in_events(_more_prompt(1))
)
MISCOUNTS_ALL = ProxyDefect(does="counts 3 prompt tokens too many", whole=in_whole(_more_prompt(3)))
NO_MODELS = ProxyDefect(does="lists no models", whole=in_whole(_no_models))
SWAPS = ProxyDefect(does="swaps the answers of two clients", swaps=True)
BREAKS = ProxyDefect(does="stops answering after a bad request", breaks_after="refusal")
LEFT_BROKEN = ProxyDefect(does="stops answering after a client left", breaks_after="leaving")
DEAF = ProxyDefect(does="keeps generating after the client left", hides_leaving=True)
LEFTOVER = ProxyDefect(
    does="appends the end of the previous answer to each answer that differs from it",
    fresh=leftover,
)
PREFIX_ONLY = ProxyDefect(
    does="answers only the beginning of a prompt if that beginning was sent before",
    fresh=prefix_only(64),
)
PREFIX_AT_ONCE = ProxyDefect(
    does="answers only the beginning of a prompt if that beginning was sent just before",
    fresh=prefix_only(1),
)
CROWDED = ProxyDefect(
    does="ignores the parameters of requests that arrive at the same time", crowded=_without_own
)
FIRST_PROMPT = ProxyDefect(does="answers only the first of several prompts", ask=_first_prompt)
SAYS_HEALTHY = ProxyDefect(does="answers /health by itself", healthy=True)
ENDS_CLEANLY = ProxyDefect(does="ends broken streams with [DONE]", stream=completes_broken)
ONE_AT_A_TIME = ProxyDefect(does="forwards one request at a time", serial=True)
HOT = ProxyDefect(does="requests temperature 1.5, whatever the client requested", ask=_hot)
NO_CHAT_STOP = ProxyDefect(does="removes `stop` from chats", ask=in_chats(removes("stop")))
LAST_MESSAGE = ProxyDefect(
    does="removes all messages of a chat but the last", ask=in_chats(_last_message)
)
NO_CHAT_N = ProxyDefect(does="removes `n` from chats", ask=in_chats(removes("n")))
NO_CHAT_SEED = ProxyDefect(does="removes `seed` from chats", ask=in_chats(removes("seed")))
MORE_CHAT_TOKENS = ProxyDefect(
    does="requests 3 tokens more than the client does in chats", ask=in_chats(_more_tokens)
)
NO_FORMAT = ProxyDefect(
    does="removes `response_format` from the request", ask=removes("response_format")
)
NO_TOOLS = ProxyDefect(
    does="removes `tools` and `tool_choice` from the request", ask=removes("tools", "tool_choice")
)
