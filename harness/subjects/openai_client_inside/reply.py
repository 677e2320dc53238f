"""What an answer says, read strictly from its bytes: what does not fit is reported, not mended."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .exchange import CHAT, Exchange, Wanted, shortened

MOST_PROBLEMS = 5
MOST_NUMBER = 2**53


@dataclass
class ServerReply:
    """What an answer says. `problems` are the first few places that are not as they should be."""

    text: str | None = None
    ids: list[int] | None = None
    logprobs: list[float] | None = None
    finish: str | None = None
    usage: dict[str, int] | None = None
    error: str = ""
    problems: list[str] = field(default_factory=list)

    def wrong(self, what: str) -> None:
        """Note a problem."""
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(shortened(what))


def strict(text: str | bytes) -> Any:
    """Parse JSON as the standard defines it. Raises ValueError."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key appears twice in one object")
        return found

    def constant(word: str) -> Any:
        raise ValueError(f"{word} is not JSON")

    try:
        text = text.decode() if isinstance(text, bytes) else text
        return json.loads(text, object_pairs_hook=members, parse_constant=constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def events(body: bytes, reply: ServerReply, *, whole: bool) -> list[str]:
    """Return the data of each server-sent event, and note what is wrong with the stream.

    Args:
        body: the stream, as it came.
        reply: where problems are noted.
        whole: whether the server ended it. Otherwise its last line may be half of one.
    """
    if not whole:
        body = body[: body.rfind(b"\n") + 1]
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        reply.wrong(f"the stream contains invalid UTF-8 at byte {error.start}")
        text = body.decode(errors="replace")
    # These are all line ends that the standard has: str.splitlines knows more, which JSON may hold.
    *lines, rest = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    found: list[str] = []
    data: list[str] = []
    for line in lines:
        if not line:
            if data:
                found.append("\n".join(data))
            data = []
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            if name == "data":
                data.append(value.removeprefix(" "))
            elif name not in ("event", "id", "retry"):
                reply.wrong(f"a line of the stream is not a field of an event: {line!r}")
    if whole and (data or rest):
        reply.wrong("the last event of the stream does not end with a blank line")
    return found


def read(exchange: Exchange, wanted: Wanted, *, streamed: bool) -> ServerReply:
    """Return what an answer says. It raises nothing, whatever the server sent."""
    reply = ServerReply(error=exchange.error)
    body = exchange.data()
    whole = exchange.ended == "complete"
    if exchange.status != 200:
        if exchange.status is not None and not reply.error:
            reply.error = shortened(body.decode(errors="replace").strip()) or "(empty)"
        return reply
    if exchange.headers.get("content-encoding", "identity") != "identity":
        reply.wrong("the answer has a content-encoding, which was not requested")
    if not streamed:
        if whole:
            take(body, reply, wanted, place="message")
            if reply.text is not None and reply.finish is None:
                reply.wrong("the answer has no finish reason")
        return reply
    found = events(body, reply, whole=whole)
    end = found.index("[DONE]") if "[DONE]" in found else len(found)
    if whole and end != len(found) - 1:
        reply.wrong("the stream does not end with [DONE]")
    said = 0
    for data in found[:end]:
        before = reply.text
        take(data, reply, wanted, place="delta")
        if reply.text and reply.text != before:
            said = len(before or "")
    if wanted.drops_last and reply.text:
        # The bug of this control: a reader that loses the last text of a stream.
        reply.text = reply.text[:said]
    if whole and reply.finish is None:
        reply.wrong("the stream has no finish reason")
    return reply


def take(data: str | bytes, reply: ServerReply, wanted: Wanted, *, place: str) -> None:
    """Add what one JSON text of an answer says."""
    try:
        value = strict(data)
    except ValueError as error:
        reply.wrong(f"not JSON: {error}")
        return
    if not isinstance(value, dict) or not isinstance(value.get("choices"), list):
        if isinstance(value, dict) and "error" in value:
            reply.error = reply.error or shortened(f"200 with an error: {value['error']}")
        else:
            reply.wrong("the JSON is not an object with a list of choices")
        return
    for choice in value["choices"]:
        if not isinstance(choice, dict) or type(choice.get("index")) is not int:
            reply.wrong("the index of a choice is not an integer")
        elif choice["index"] != 0:
            reply.wrong(f"choice {choice['index']} was not requested")
        else:
            take_choice(choice, reply, wanted, place=place)
    usage = value.get("usage")
    if usage is not None:
        names = ("prompt_tokens", "completion_tokens", "total_tokens")
        if isinstance(usage, dict) and all(is_count(usage.get(name)) for name in names):
            reply.usage = {name: usage[name] for name in names}
        else:
            reply.wrong("usage does not contain three token counts")


def take_choice(choice: Mapping[str, Any], reply: ServerReply, wanted: Wanted, place: str) -> None:
    """Add what one choice says: text, finish reason, token ids and log probabilities."""
    inner: Any = choice
    if wanted.api == CHAT:
        inner = choice.get(place)
    text = None
    if isinstance(inner, dict):
        # A message without content says nothing; a completion without text is a problem.
        text = inner.get("content" if wanted.api == CHAT else "text")
        if text is None and wanted.api == CHAT:
            text = ""
    if not isinstance(text, str):
        reply.wrong("a choice has no text")
        return
    if text and reply.finish is not None:
        reply.wrong("text follows the finish reason")
    if any("\ud800" <= character <= "\udfff" for character in text):
        reply.wrong("a text has half a surrogate pair, which is not a character")
        text = text.encode("utf-8", "replace").decode()
    reply.text = (reply.text or "") + text
    finish = choice.get("finish_reason")
    if finish is not None:
        if reply.finish is not None:
            reply.wrong("there are two finish reasons")
        reply.finish = shortened(str(finish))
    ids = ids_of(choice)
    if ids:
        # Extended in place: a hostile stream has a hundred thousand events.
        reply.ids = reply.ids or []
        reply.ids.extend(ids)
    stated = choice.get("logprobs")
    if wanted.logprobs and stated is not None:
        try:
            values = (
                [token["logprob"] for token in stated["content"] or ()]
                if wanted.api == CHAT
                else list(stated["token_logprobs"])
            )
        except (KeyError, TypeError):
            values = [None]
        if not all(type(one) in (int, float) and is_finite(one) for one in values):
            reply.wrong("logprobs do not match OpenAI's schema")
            return
        reply.logprobs = reply.logprobs or []
        reply.logprobs.extend(map(float, values))


def ids_of(choice: Mapping[str, Any]) -> list[int]:
    """Return the token ids of a choice where the server gives them: OpenAI's schema has none.

    vLLM writes them as `token_ids`, or as tokens `token_id:N`; mlx-lm gives the tokens as numbers.
    """
    stated = choice.get("logprobs")
    tokens = choice.get("token_ids")
    if tokens is None and isinstance(stated, dict):
        tokens = stated.get("tokens")
    found: list[int] = []
    for token in tokens if isinstance(tokens, list) else []:
        digits = token.removeprefix("token_id:") if isinstance(token, str) else ""
        if is_count(token):
            found.append(token)
        elif digits != token and digits.isascii() and digits.isdigit() and len(digits) < 16:
            found.append(int(digits))
        else:
            return []
    return found


def is_count(value: object) -> bool:
    """Return whether it is a whole number that an event may hold."""
    return type(value) is int and 0 <= value <= MOST_NUMBER


def is_finite(value: float) -> bool:
    """Return whether it is a number that JSON can hold; a whole number may be too large for it."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
