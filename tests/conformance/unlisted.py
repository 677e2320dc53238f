"""Defects that no row of a conformance states, each with the row that has to see it."""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from harness.conformance import proxy
from harness.conformance.defects import has_text, in_chats, in_events, in_whole, removes
from harness.conformance.proxy import ProxyDefect
from harness.conformance.rows.beside import SHORTS

CROWD_WAITS: Final = 0.3
"""Seconds for which a defect that needs company waits for it."""


def _in_list_order(fields: dict[str, Any]) -> dict[str, Any]:
    stops = fields.get("stop")
    if not isinstance(stops, list) or any("never" in stop for stop in stops):
        return fields
    return fields | {"stop": stops[:1]}


def _forgets_last_letter() -> ProxyDefect:
    """Lose the last letter of a long prompt that was asked before."""
    known: set[str] = set()

    def ask(fields: dict[str, Any]) -> dict[str, Any]:
        prompt = fields.get("prompt")
        if not isinstance(prompt, str) or len(prompt) < 150:
            return fields
        is_known = prompt in known
        known.add(prompt)
        return fields | {"prompt": prompt[:-1]} if is_known else fields

    return ProxyDefect(does="", ask=ask)


def _leaking_longer() -> ProxyDefect:
    """Send what a stream has of a longer stop string before it is whole."""
    stops: list[str] = []

    def ask(fields: dict[str, Any]) -> dict[str, Any]:
        given = fields.get("stop") or []
        listed = [given] if isinstance(given, str) else given
        stops[:] = listed if fields.get("stream") and all(len(one) > 2 for one in listed) else []
        return fields

    def stream(events: Iterator[bytes]) -> Iterator[bytes]:
        leak = stops[-1][:2] if stops else ""
        for event in events:
            value = json.loads(event[6:]) if event.startswith(b"data: {") else {}
            choices = value.get("choices") or [{}]
            if leak and choices[0].get("finish_reason") == "stop":
                inner = choices[0].get("delta", choices[0])
                name = "content" if "delta" in choices[0] else "text"
                inner[name] = (inner.get(name) or "") + leak
                yield b"data: " + json.dumps(value).encode()
            else:
                yield event

    return ProxyDefect(does="", ask=ask, stream=stream)


def _twice(events: Iterator[bytes]) -> Iterator[bytes]:
    told = False
    for event in events:
        yield event
        if has_text(event) and not told:
            told = True
            yield event


def _ascii_only(value: Any) -> None:
    for choice in value["choices"]:
        choice["text"] = choice["text"].encode("ascii", "ignore").decode()


def _always_stop(value: Any) -> None:
    value["choices"][0]["finish_reason"] = "stop"


def _always_stops(value: Any) -> None:
    for choice in value["choices"]:
        if choice["finish_reason"] == "length":
            choice["finish_reason"] = "stop"


def no_usage(value: Any) -> None:
    value.pop("usage", None)


def _one_logprob_less(value: Any) -> None:
    stated = value["choices"][0]["logprobs"]
    for name in stated or ():
        stated[name] = stated[name][1:]


def _all_first(value: Any) -> None:
    for choice in value["choices"]:
        choice["index"] = 0


def _renamed(value: Any) -> None:
    for model in value.get("data", ()):
        model["id"] = "another"


def _upper(value: Any) -> None:
    for choice in value["choices"]:
        if (choice.get("delta") or {}).get("content"):
            choice["delta"]["content"] = choice["delta"]["content"].upper()


def _no_finish(value: Any) -> None:
    for choice in value["choices"]:
        choice["finish_reason"] = None


def _when_streamed(*names: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    without = removes(*names)
    return lambda fields: without(fields) if fields.get("stream") else fields


def _sometimes(every: int, change: Callable[[Any], None]) -> Callable[[bytes], bytes]:
    count = itertools.count(1)
    changed = in_whole(change)
    return lambda body: body if next(count) % every else changed(body)


def louder(value: Any) -> None:
    value["choices"][0]["text"] += "!"


def _in_streamed_chats(*names: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return in_chats(_when_streamed(*names))


def _cold(fields: dict[str, Any]) -> dict[str, Any]:
    return fields | {"temperature": 0}


def _parsed_arguments(value: Any) -> None:
    for choice in value["choices"]:
        for call in (choice.get("message") or {}).get("tool_calls") or ():
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])


def _reversed(value: Any) -> None:
    choices = value["choices"]
    for choice in choices:
        choice["index"] = len(choices) - 1 - choice["index"]


def _no_tool_name(value: Any) -> None:
    for choice in value["choices"]:
        for call in (choice.get("delta") or {}).get("tool_calls") or ():
            call["function"].pop("name", None)


def _other_color(value: Any) -> None:
    for choice in value["choices"]:
        if (text := choice.get("message", {}).get("content")) is not None:
            choice["message"]["content"] = re.sub(r"red|green|blue", "pink", text)


def _other_object(value: Any) -> None:
    value["object"] = "chat.completion"


def _short_streams_are_empty(events: Iterator[bytes]) -> Iterator[bytes]:
    kept = list(events)
    if sum(map(has_text, kept)) > 1:
        yield from kept
        return
    for event in kept:
        yield next(in_events(_no_text)(iter([event]))) if has_text(event) else event


def _no_text(value: Any) -> None:
    for choice in value["choices"]:
        choice["text"] = ""


def _other_tops(value: Any) -> None:
    for choice in value["choices"]:
        stated = choice.get("logprobs") or {}
        for tops in stated.get("top_logprobs") or ():
            for name in list(tops)[1:]:
                tops[f"{name}?"] = tops.pop(name) - 0.5
        for token in stated.get("content") or ():
            token["top_logprobs"] = token["top_logprobs"][:1]


def _no_tops(value: Any) -> None:
    for choice in value["choices"]:
        if choice.get("logprobs"):
            choice["logprobs"]["top_logprobs"] = None
            for token in choice["logprobs"].get("content") or ():
                token["top_logprobs"] = []


def _seed_zero_is_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != "seed" or value}


def _copied_choices(value: Any) -> None:
    for choice in value["choices"][1:]:
        choice |= {**value["choices"][0], "index": choice["index"]}


def _copied_streams(events: Iterator[bytes]) -> Iterator[bytes]:
    """Give the events of the first choice to the second too."""
    for event in events:
        value = json.loads(event.removeprefix(b"data: ")) if has_choices(event) else None
        if value is None or value["choices"][0]["index"] == 0:
            yield event
        if value is not None and value["choices"][0]["index"] == 0:
            value["choices"][0]["index"] = 1
            yield b"data: " + json.dumps(value).encode()


def has_choices(event: bytes) -> bool:
    return event.startswith(b"data: {") and bool(json.loads(event[6:])["choices"])


def _ended_calls(value: Any) -> None:
    """Give calls that were cut as calls that ended."""
    for choice in value["choices"]:
        inner = choice.get("message") or choice.get("delta") or {}
        if inner.get("tool_calls") and choice["finish_reason"] == "length":
            choice["finish_reason"] = "tool_calls"


def _mended_calls(value: Any) -> None:
    """Write the end of calls that were cut: the arguments are JSON then, and under the schema."""
    for choice in value["choices"]:
        for call in (choice.get("message") or {}).get("tool_calls") or ():
            if choice["finish_reason"] == "length":
                call["function"]["arguments"] = '{"color": "red", "bright": null}'
                choice["finish_reason"] = "stop"


def _late_shorts() -> ProxyDefect:
    """Spoil the text of whoever comes while a longer prompt is answered."""
    inside: list[int] = []
    came = threading.Condition()
    arrived: list[int] = []
    ids = threading.local()

    def ask(fields: dict[str, Any]) -> dict[str, Any]:
        size = len(str(fields.get("prompt")))
        ids.spoil = bool(inside) and max(inside) > 2 * size
        inside.append(size)
        ids.size = size
        with came:
            arrived.append(size)
            came.notify_all()
            if size > 100:
                # Whoever is answered at once is beside nobody: it waits for the short ones.
                all_here = len(arrived) + SHORTS
                came.wait_for(lambda: len(arrived) >= all_here, CROWD_WAITS)
        return fields

    def change(body: bytes) -> bytes:
        inside.remove(ids.size)
        return in_whole(louder)(body) if ids.spoil else body

    return ProxyDefect(does="", ask=ask, whole=change)


def _forgets_beyond(size: int) -> Callable[[], ProxyDefect]:
    """Answer only the beginning of a long prompt, if that beginning was asked just before."""

    def fresh() -> ProxyDefect:
        last = ""

        def ask(fields: dict[str, Any]) -> dict[str, Any]:
            nonlocal last
            prompt = fields.get("prompt")
            if not isinstance(prompt, str):
                return fields
            is_cut = len(last) > size and prompt.startswith(last) and prompt != last
            known, last = last, prompt
            return fields | {"prompt": known} if is_cut else fields

        return _ask(ask)

    return fresh


def _last_300(fields: dict[str, Any]) -> dict[str, Any]:
    prompt = fields.get("prompt")
    return fields | {"prompt": prompt[-300:]} if isinstance(prompt, str) else fields


def _in_streamed_chats_last_message(fields: dict[str, Any]) -> dict[str, Any]:
    is_chat = fields.get("stream") and "messages" in fields
    return fields | {"messages": fields["messages"][-1:]} if is_chat else fields


def _without_system(fields: dict[str, Any]) -> dict[str, Any]:
    messages = [
        message | ({"content": ""} if message["role"] == "system" else {})
        for message in fields["messages"]
    ]
    return fields | {"messages": messages}


def _by_twos(fields: dict[str, Any]) -> dict[str, Any]:
    return fields | {"seed": fields["seed"] // 2 * 2} if "seed" in fields else fields


def _no_role(value: Any) -> None:
    for choice in value["choices"]:
        choice.get("message", {}).pop("role", None)


def _swapped_streams() -> ProxyDefect:
    """Give the events of two streams that are there at the same time to each other."""
    swap = proxy.Swap()
    crowd = proxy.Crowd()

    def change(events: Iterator[bytes]) -> Iterator[bytes]:
        swap.running += 1
        # Whoever is answered at once is beside nobody: it waits for another to come.
        with crowd.joined():
            body = b"\n\n".join(events)
            yield from swap(body, "").split(b"\n\n")
        swap.running -= 1

    return ProxyDefect(does="", stream=change)


def _fewer_when_seen() -> ProxyDefect:
    """Count a prompt as one token less, once it was asked."""
    seen: set[str] = set()
    is_seen = False

    def ask(fields: dict[str, Any]) -> dict[str, Any]:
        nonlocal is_seen
        prompt = str(fields.get("prompt"))
        is_seen = prompt in seen
        seen.add(prompt)
        return fields

    def change(value: Any) -> None:
        if is_seen and value.get("usage"):
            value["usage"]["prompt_tokens"] -= 1
            value["usage"]["total_tokens"] -= 1

    return ProxyDefect(does="", ask=ask, whole=in_whole(change))


def _whole(change: Callable[[Any], None]) -> ProxyDefect:
    """Whole answers are changed."""
    return ProxyDefect(does="", whole=in_whole(change))


def _events(change: Callable[[Any], None]) -> ProxyDefect:
    """Each event of a stream is changed."""
    return ProxyDefect(does="", stream=in_events(change))


def _ask(change: Callable[[Any], Any]) -> ProxyDefect:
    """Requests are changed on their way."""
    return ProxyDefect(does="", ask=change)


UNLISTED = {
    "a chat stream has the object of a whole answer": (_events(_other_object), "chat"),
    "chat streams have no usage": (_events(no_usage), "chat"),
    "a stream of one token is empty": (
        ProxyDefect(does="", stream=_short_streams_are_empty),
        "stream-is-whole",
    ),
    "a prompt that was seen counts less": (_fewer_when_seen(), "prefix-cache"),
    "a stream repeats its first text": (ProxyDefect(does="", stream=_twice), "stream-is-whole"),
    "a stream loses what is not ASCII": (_events(_ascii_only), "stop-string"),
    "every answer says stop": (_whole(_always_stop), "stream-is-whole"),
    "every answer and stream says stop": (
        ProxyDefect(does="", whole=in_whole(_always_stops), stream=in_events(_always_stops)),
        "max-tokens",
    ),
    "every chat says stop": (
        ProxyDefect(does="", whole=in_whole(_always_stops), stream=in_events(_always_stops)),
        "chat-max-tokens",
    ),
    "streams alone say stop": (_events(_always_stops), "max-tokens"),
    "a long prompt loses its last letter when it is asked again": (
        ProxyDefect(does="", fresh=_forgets_last_letter),
        "greedy-repeat",
    ),
    "streams leak the beginning of a longer stop string": (
        ProxyDefect(does="", fresh=_leaking_longer),
        "stop-string",
    ),
    "streamed chats leak the beginning of a longer stop string": (
        ProxyDefect(does="", fresh=_leaking_longer),
        "chat-stop",
    ),
    "only the first entry of a list of stop strings is kept": (
        _ask(_in_list_order),
        "stop-string",
    ),
    "only the first entry of a list of stop strings is kept in chats": (
        _ask(_in_list_order),
        "chat-stop",
    ),
    "streams have no usage": (_events(no_usage), "usage"),
    "streams ignore the seed": (_ask(_when_streamed("seed")), "seed"),
    "streams ignore stop": (_ask(_when_streamed("stop")), "stop-string"),
    "a logprob is missing": (_whole(_one_logprob_less), "logprobs"),
    "both choices have index 0": (_whole(_all_first), "n"),
    "another model is listed": (_whole(_renamed), "models"),
    "chats are streamed in capitals": (_events(_upper), "chat"),
    "streams have no finish reason": (_events(_no_finish), "stream-schema"),
    "a stream stays open": (ProxyDefect(does="", holds_open=True), "stream-schema"),
    "every fifth text is another": (
        ProxyDefect(does="", whole=_sometimes(5, louder)),
        "greedy-repeat",
    ),
    "streams ignore echo": (_ask(_when_streamed("echo")), "echo"),
    "max_tokens is ignored": (_ask(removes("max_tokens")), "max-tokens"),
    "streamed chats ignore stop": (_ask(_in_streamed_chats("stop")), "chat-stop"),
    "streamed chats ignore n": (_ask(_in_streamed_chats("n")), "chat-n"),
    "streamed chats ignore the seed": (_ask(_in_streamed_chats("seed")), "chat-seed"),
    "chats ignore max_tokens": (_ask(in_chats(removes("max_tokens"))), "chat-max-tokens"),
    "temperature is always 0": (_ask(_cold), "temperature"),
    "temperature is always 0 in chats": (_ask(in_chats(_cold)), "temperature"),
    "a streamed chat ignores temperature": (_ask(_in_streamed_chats("temperature")), "temperature"),
    "streams ignore response_format": (_ask(_when_streamed("response_format")), "json-object"),
    "a color that the schema does not list": (_whole(_other_color), "json-schema"),
    "arguments are no text": (_whole(_parsed_arguments), "tools"),
    "a streamed call has no name": (_events(_no_tool_name), "tools"),
    "streams ignore tools": (_ask(_when_streamed("tools")), "tools"),
    "prompts of one request change places": (_whole(_reversed), "batched-prompts"),
    "seeds are ignored where clients are many": (
        ProxyDefect(does="", crowded=removes("seed")),
        "parameters-together",
    ),
    "streams have other top_logprobs": (_events(_other_tops), "logprobs"),
    "streamed chats have other top_logprobs": (_events(_other_tops), "chat-logprobs"),
    "streams have no top_logprobs": (_events(_no_tops), "logprobs"),
    "nothing has top_logprobs": (
        ProxyDefect(does="", stream=in_events(_no_tops), whole=in_whole(_no_tops)),
        "chat-logprobs",
    ),
    "seed 0 is no seed": (_ask(_seed_zero_is_none), "seed"),
    "seed 0 is no seed in chats": (_ask(in_chats(_seed_zero_is_none)), "chat-seed"),
    "both choices are copies": (_whole(_copied_choices), "n"),
    "both choices of streams are copies": (ProxyDefect(does="", stream=_copied_streams), "n"),
    "both choices of a chat are copies": (_whole(_copied_choices), "chat-n"),
    "a call that was cut says that it ended": (_whole(_ended_calls), "tools"),
    "a streamed call that was cut says that it ended": (_events(_ended_calls), "tools"),
    "a call that was cut is mended": (_whole(_mended_calls), "tools"),
    "short prompts after a long one are wrong": (
        ProxyDefect(does="", fresh=_late_shorts),
        "long-beside-short",
    ),
    "a cached beginning of 500 tokens loses what follows": (
        ProxyDefect(does="", fresh=_forgets_beyond(500)),
        "lengths",
    ),
    "a cached beginning of 250 tokens loses what follows": (
        ProxyDefect(does="", fresh=_forgets_beyond(250)),
        "lengths",
    ),
    "long prompts lose their beginning": (_ask(_last_300), "lengths"),
    "streamed chats lose their earlier messages": (
        _ask(_in_streamed_chats_last_message),
        "chat-messages",
    ),
    "streams of two clients change places": (
        ProxyDefect(does="", fresh=_swapped_streams),
        "no-cross-talk",
    ),
    "the system message is emptied": (_ask(in_chats(_without_system)), "chat-messages"),
    "seeds are taken by twos": (_ask(_by_twos), "seed"),
    "seeds of chats are taken by twos": (_ask(in_chats(_by_twos)), "chat-seed"),
    "messages have no role": (_whole(_no_role), "chat"),
    "n is ignored where clients are many": (
        ProxyDefect(does="", crowded=removes("n")),
        "parameters-together",
    ),
}
