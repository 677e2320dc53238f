"""A small server that keeps every promise: on it each control is shown that another server cannot
show. Standard library only.

Its tokens are bytes. Which character comes next follows from a digest of the text so far, so the
same question has the same answer, alone or among others.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import exp, log
from typing import Any, ClassVar

from harness.conformance.structured import RefusedRequest, StructuredAnswer, structured_answer

MODEL = "rankproof-correct"
ALPHABET = "abcdefghijklmnopqrstuvwxyz      .,éß世界🙂"
CANDIDATES = 3
CONTEXT = 2048
MOST_BODY = 2**20
MOST_TOKENS = 4096
MOST_CHOICES = 8
MOST_STOPS = 4
MOST_PROMPTS = 16
BEGINS = "assistant: "
LONG = 64
PACE = 0.002
"""Seconds for a piece of an answer of at least LONG tokens: a model takes its time as well."""


@dataclass(frozen=True)
class DrawnToken:
    """One token: its byte, its log probability, and those of the likeliest bytes."""

    byte: int
    logprob: float
    top: tuple[tuple[str, float], ...]


class AnswerPace:
    """The time that a piece of a long answer takes: asleep, or busy where we are measured."""

    is_busy: ClassVar[bool] = False

    @classmethod
    def take(cls) -> None:
        """Let it pass."""
        if not cls.is_busy:
            time.sleep(PACE)
            return
        end = time.monotonic() + PACE
        while time.monotonic() < end:
            pass


def _candidates(context: bytes) -> list[tuple[str, float]]:
    """Return the characters that may follow, with their log probabilities, the likeliest first."""
    digest = hashlib.sha256(context).digest()
    # 1 to 3, which no text makes equal: a greedy choice is never a tie.
    weights = {
        ALPHABET[(digest[n] + n) % len(ALPHABET)]: 1 + digest[8 + n] / 128 + n / 1024
        for n in range(CANDIDATES)
    }
    total = sum(exp(weight) for weight in weights.values())
    found = ((char, weight - log(total)) for char, weight in weights.items())
    return sorted(found, key=lambda item: (-item[1], item[0]))


def tokens(prompt: bytes, *, temperature: float, seed: str) -> Iterator[DrawnToken]:
    """Continue a prompt without an end, byte by byte."""
    text = prompt
    while True:
        ranked = _candidates(text[-CONTEXT:])
        char, logprob = ranked[0]
        if temperature > 0:
            word = hashlib.sha256(f"{seed} {len(text)} ".encode() + text[-CONTEXT:]).digest()
            place = int.from_bytes(word[:7], "big") / 2**56
            scaled = [exp(value / temperature) for _, value in ranked]
            for (char, logprob), weight in zip(ranked, scaled, strict=True):  # noqa: B007
                place -= weight / sum(scaled)
                if place < 0:
                    break
        for number, byte in enumerate(char.encode()):
            # Bytes after the first of a character are certain.
            tops = (
                tuple((_shown(c.encode()[0]), value) for c, value in ranked) if not number else ()
            )
            yield DrawnToken(byte, logprob if not number else 0.0, tops)
        text += char.encode()


def _shown(byte: int) -> str:
    """Write a token as OpenAI does: a byte that is no character by its number."""
    return chr(byte) if byte < 128 else f"bytes:\\x{byte:02x}"


@dataclass
class ParsedRequest:
    """A request that is served, with all its values checked."""

    is_chat: bool
    prompts: list[bytes]
    max_tokens: int
    temperature: float
    seed: int | None
    stops: list[bytes]
    n: int
    stream: bool
    usage: bool
    logprobs: int | None
    echo: bool
    structured: StructuredAnswer | None

    @property
    def choices(self) -> int:
        """How many continuations are asked for, of all prompts."""
        return len(self.prompts) * self.n

    def echoed(self, index: int) -> str:
        """Return the prompt of a choice."""
        return self.prompts[index // self.n].decode(errors="replace")

    def message(self, text: str) -> dict[str, Any]:
        """Return what the assistant says in a whole answer: a text, or a call of a tool."""
        if self.structured is None or not self.structured.tool:
            return {"role": "assistant", "content": text}
        call = {"id": "call-1", "type": "function"}
        function = {"name": self.structured.tool, "arguments": text}
        return {"role": "assistant", "content": None, "tool_calls": [call | {"function": function}]}

    def delta(self, text: str, *, is_first: bool) -> dict[str, Any]:
        """Return what one event of a stream adds to it."""
        if self.structured is None or not self.structured.tool:
            return {"role": "assistant", "content": text}
        call: dict[str, Any] = {"index": 0, "function": {"arguments": text}}
        if is_first:
            call |= {"id": "call-1", "type": "function"}
            call["function"]["name"] = self.structured.tool
        return {"role": "assistant", "tool_calls": [call]}

    def reason(self, finish: str | None) -> str | None:
        """Return why a choice ended."""
        is_tool = self.structured is not None and bool(self.structured.tool)
        return "tool_calls" if is_tool and finish == "stop" else finish


def _value(fields: Mapping[str, Any], name: str, kinds: tuple[type, ...], default: Any) -> Any:
    value = fields.get(name)
    if value is None:
        return default
    if type(value) not in kinds:
        raise RefusedRequest(
            f"{name} must be of type {' or '.join(kind.__name__ for kind in kinds)}"
        )
    return value


def _asked(body: bytes, *, is_chat: bool) -> ParsedRequest:
    """Check a request. Raises RefusedRequest."""
    try:
        fields = json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        raise RefusedRequest(f"the body is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise RefusedRequest("the body must be an object")
    if fields.get("model") != MODEL:
        raise RefusedRequest(
            f"there is no model {str(fields.get('model'))[:80]!r}; the only model is {MODEL}"
        )
    prompts = _prompts(fields, is_chat=is_chat)
    logprobs = _value(fields, "logprobs", (bool,) if is_chat else (int,), None)
    if is_chat:
        logprobs = _value(fields, "top_logprobs", (int,), 0) if logprobs else None
    stop = _value(fields, "stop", (str, list), [])
    stops = [stop] if isinstance(stop, str) else stop
    options = _value(fields, "stream_options", (dict,), {})
    asked = ParsedRequest(
        is_chat=is_chat,
        prompts=[prompt.encode("utf-8", "surrogatepass") for prompt in prompts],
        max_tokens=_value(fields, "max_tokens", (int,), 16),
        temperature=float(_value(fields, "temperature", (int, float), 1.0)),
        seed=_value(fields, "seed", (int,), None),
        stops=[word.encode() if isinstance(word, str) else b"" for word in stops],
        n=_value(fields, "n", (int,), 1),
        stream=_value(fields, "stream", (bool,), False),
        usage=bool(options.get("include_usage")),
        logprobs=logprobs,
        echo=_value(fields, "echo", (bool,), False) and not is_chat,
        structured=structured_answer(fields, prompts[0], is_chat=is_chat),
    )
    _demand_served(asked)
    return asked


def _demand_served(asked: ParsedRequest) -> None:
    """Refuse values that are out of bounds. Raises RefusedRequest."""
    if not 1 <= asked.max_tokens <= MOST_TOKENS:
        raise RefusedRequest(f"max_tokens must be between 1 and {MOST_TOKENS}")
    if not 0 <= asked.temperature <= 2:
        raise RefusedRequest("temperature must be between 0 and 2")
    if not 1 <= asked.n <= MOST_CHOICES:
        raise RefusedRequest(f"n must be between 1 and {MOST_CHOICES}")
    if len(asked.stops) > MOST_STOPS or not all(asked.stops):
        raise RefusedRequest(
            f"stop must be a string, or a list of at most {MOST_STOPS} strings, and none may be empty"
        )
    if asked.logprobs is not None and not 0 <= asked.logprobs <= CANDIDATES:
        raise RefusedRequest(f"logprobs must be between 0 and {CANDIDATES}")
    if asked.echo and asked.logprobs is not None:
        raise RefusedRequest("echo with logprobs is not supported")
    if asked.structured is not None and (asked.n > 1 or asked.logprobs is not None or asked.stops):
        raise RefusedRequest("n, stop and logprobs are not supported with tools or response_format")


def _prompts(fields: Mapping[str, Any], *, is_chat: bool) -> list[str]:
    """Return the texts that a request wants continued. Raises RefusedRequest."""
    if is_chat:
        return [_chat_prompt(fields.get("messages"))]
    given = _value(fields, "prompt", (str, list), "")
    prompts = [given] if isinstance(given, str) else given
    if not all(isinstance(prompt, str) for prompt in prompts):
        raise RefusedRequest("each prompt must be a string")
    if not prompts or not all(prompts):
        raise RefusedRequest("prompt is empty")
    if len(prompts) > MOST_PROMPTS:
        raise RefusedRequest(f"there must be at most {MOST_PROMPTS} prompts")
    return prompts


def _chat_prompt(messages: Any) -> str:
    if not isinstance(messages, list) or not messages:
        raise RefusedRequest("messages must be a list")
    lines = []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("content"), str):
            raise RefusedRequest("each message must have a role and a string as content")
        lines.append(chat_line(str(message.get("role")), message["content"]))
    return "".join([*lines, BEGINS])


def chat_line(role: str, content: str) -> str:
    """Return one message as the model sees it: this and what follows is our chat template."""
    return f"{role}: {content}\n"


def chat_prompt(content: str) -> str:
    """Return a chat of one message as the model sees it."""
    return chat_line("user", content) + BEGINS


@dataclass
class TextPiece:
    """What one step of a choice adds: text, tokens, and at the end why it ended."""

    text: str
    drawn: list[DrawnToken]
    finish: str | None = None


def _pieces(asked: ParsedRequest, index: int) -> Iterator[TextPiece]:
    """Continue one choice, held back as far as a stop string or a character is not decided."""
    seed = f"{asked.seed} {index}" if asked.seed is not None else secrets.token_hex(8)
    out = b""
    told = 0
    waiting: list[DrawnToken] = []
    prompt = asked.prompts[index // asked.n]
    made = tokens(prompt, temperature=asked.temperature, seed=seed)
    if asked.structured is not None:
        made = (DrawnToken(byte, 0.0, ()) for byte in asked.structured.text.encode())
    for count, token in enumerate(made, start=1):
        if asked.max_tokens >= LONG:
            AnswerPace.take()
        out += bytes([token.byte])
        waiting.append(token)
        places = [place for place in (out.find(stop) for stop in asked.stops) if place >= 0]
        if places:
            yield TextPiece(out[told : min(places)].decode(errors="replace"), waiting, "stop")
            return
        if count == asked.max_tokens:
            yield TextPiece(out[told:].decode(errors="replace"), waiting, "length")
            return
        ready = _decided(out, asked.stops)
        if ready > told:
            yield TextPiece(out[told:ready].decode(), waiting)
            told = ready
            waiting = []
    yield TextPiece(out[told:].decode(), waiting, "stop")


def _decided(out: bytes, stops: list[bytes]) -> int:
    """Return how many bytes can be sent: no part of a character, no beginning of a stop string."""
    end = len(out)
    while end and out[:end].decode(errors="ignore").encode() != out[:end]:
        end -= 1
    for stop in stops:
        for length in range(min(len(stop), len(out)), 0, -1):
            if out.endswith(stop[:length]):
                end = min(end, len(out) - length)
                break
    while end and out[:end].decode(errors="ignore").encode() != out[:end]:
        end -= 1
    return end


class CorrectHandler(BaseHTTPRequestHandler):
    """Serves completions, chat, the list of models and health."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Keep silent."""

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "rankproof"}
            self._answer(200, {"object": "list", "data": [model]})
        elif self.path == "/health":
            self._answer(200, {"status": "ok"})
        else:
            self._refuse(404, "there is no such path")

    def do_POST(self) -> None:
        length = self.headers.get("content-length", "")
        if not length.isdecimal():
            self.close_connection = True
            self._refuse(411, "content-length is missing")
            return
        if int(length) > MOST_BODY:
            self._swallow(int(length))
            self._refuse(413, f"the body must be at most {MOST_BODY} bytes")
            return
        body = self.rfile.read(int(length))
        if self.path not in ("/v1/completions", "/v1/chat/completions"):
            self._refuse(404, "there is no such path")
            return
        try:
            asked = _asked(body, is_chat=self.path == "/v1/chat/completions")
        except RefusedRequest as problem:
            self._refuse(400, str(problem))
            return
        # A client that leaves ends its own answer and nothing else.
        with contextlib.suppress(ConnectionError):
            if asked.stream:
                self._stream(asked)
            else:
                self._whole(asked)

    def _swallow(self, length: int) -> None:
        """Read a body that is refused: a client that still sends would not hear why."""
        while length > 0 and (data := self.rfile.read(min(length, 2**16))):
            length -= len(data)

    def _head(self, asked: ParsedRequest, *, streamed: bool) -> dict[str, Any]:
        kind = "text_completion"
        if asked.is_chat:
            kind = "chat.completion.chunk" if streamed else "chat.completion"
        word = hashlib.sha256(b"".join(asked.prompts)).hexdigest()[:12]
        return {"id": f"cmpl-{word}", "object": kind, "created": 0, "model": MODEL}

    def _whole(self, asked: ParsedRequest) -> None:
        choices = []
        completion = 0
        for index in range(asked.choices):
            text = asked.echoed(index) if asked.echo else ""
            drawn: list[DrawnToken] = []
            finish = None
            for piece in _pieces(asked, index):
                text += piece.text
                drawn += piece.drawn
                finish = piece.finish
            completion += len(drawn)
            said = {"message": asked.message(text)} if asked.is_chat else {"text": text}
            choices.append(
                {
                    "index": index,
                    **said,
                    "logprobs": _logprobs(asked, drawn),
                    "finish_reason": asked.reason(finish),
                }
            )
        usage = _usage(asked, completion)
        self._answer(200, {**self._head(asked, streamed=False), "choices": choices, "usage": usage})

    def _stream(self, asked: ParsedRequest) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        head = self._head(asked, streamed=True)
        completion = 0
        for index in range(asked.choices):
            if asked.echo:
                echoed = {"index": index, "text": asked.echoed(index)}
                self._event(
                    {**head, "choices": [{**echoed, "logprobs": None, "finish_reason": None}]}
                )
            for number, piece in enumerate(_pieces(asked, index)):
                completion += len(piece.drawn)
                said = (
                    {"delta": asked.delta(piece.text, is_first=not number)}
                    if asked.is_chat
                    else {"text": piece.text}
                )
                choice = {
                    "index": index,
                    **said,
                    "logprobs": _logprobs(asked, piece.drawn),
                    "finish_reason": asked.reason(piece.finish),
                }
                self._event({**head, "choices": [choice]})
        if asked.usage:
            self._event({**head, "choices": [], "usage": _usage(asked, completion)})
        self._send_chunk(b"data: [DONE]\n\n")
        self._send_chunk(b"")

    def _event(self, value: Mapping[str, Any]) -> None:
        self._send_chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    def _send_chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _refuse(self, status: int, message: str) -> None:
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
        self._answer(status, {"error": error})

    def _answer(self, status: int, value: Mapping[str, Any]) -> None:
        body = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body)


def _usage(asked: ParsedRequest, completion: int) -> dict[str, int]:
    prompt = sum(map(len, asked.prompts))
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def _logprobs(asked: ParsedRequest, drawn: list[DrawnToken]) -> dict[str, Any] | None:
    if asked.logprobs is None:
        return None
    most = asked.logprobs
    if asked.is_chat:
        return {
            "content": [
                {
                    "token": _shown(token.byte),
                    "logprob": token.logprob,
                    "bytes": [token.byte],
                    "top_logprobs": [
                        {"token": word, "logprob": value, "bytes": None}
                        for word, value in token.top[:most]
                    ],
                }
                for token in drawn
            ]
        }
    return {
        "tokens": [_shown(token.byte) for token in drawn],
        "token_logprobs": [token.logprob for token in drawn],
        "top_logprobs": [dict(token.top[:most]) for token in drawn],
    }


def serve(port: int) -> None:
    """Serve on a port of loopback until the process ends, as busy as a model."""
    AnswerPace.is_busy = True
    with LoopbackServer(("127.0.0.1", port), CorrectHandler) as server:
        server.serve_forever()


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler] = CorrectHandler) -> Iterator[str]:
    """Serve on a port of loopback as long as this lasts; gives the address."""
    with LoopbackServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class LoopbackServer(ThreadingHTTPServer):
    """Threads that end with the process; a client that leaves is no error."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, *_: Any) -> None:
        """Keep silent: a connection that ends early is what some rows are about."""
