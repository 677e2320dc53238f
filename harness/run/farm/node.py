"""A node as control sees it: questions and their answers over whatever relays bytes, and what
became of it.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

from harness.forms.strict_json import NotStrict, strict_json
from harness.forms.text import printable
from harness.run.farm.answer import MOST, AnswerRefused
from harness.world.machines.agent import HEAD, MOST_JSON
from harness.world.starters.ray_relay import WAIT, ActorGone, Bytes, NodeLost

Answer = tuple[dict[str, Any], bytes]


def frame(message: dict[str, Any], content: bytes = b"") -> bytes:
    """A message as it is sent."""
    words = json.dumps(message).encode()
    return HEAD.pack(len(words), len(content)) + words + content


BEAT = frame({"ask": "nothing"})


class Node:
    """One node. Safe to use from several threads.

    Attributes:
        number: in the record.
        name: of its host.
        ended: why it is not used any more; None while it is.
    """

    def __init__(self, relay: Bytes, *, number: int, name: str) -> None:
        """Begin to listen."""
        self.number = number
        self.name = name
        self.ended: Exception | None = None
        self._relay = relay
        self._orders = itertools.count(1)
        self._pending: dict[int, Future[Answer]] = {}
        # Between who asks and the thread that listens: no question is added once the node has
        # ended, as nobody would answer it.
        self._lock = threading.Lock()
        self._buffer = bytearray()
        self._thread = threading.Thread(target=self._listen, name=f"node-{number}", daemon=True)
        self._thread.start()

    def ask(self, what: str, content: bytes = b"", **more: Any) -> Future[Answer]:
        """Ask one thing. The future raises NodeLost, ActorGone or AnswerRefused where no answer
        comes any more.
        """
        future: Future[Answer] = Future()
        with self._lock:
            if self.ended is not None:
                future.set_exception(self.ended)
                return future
            order = next(self._orders)
            self._pending[order] = future
        self._relay.write(frame({"ask": what, "order": order, **more}, content))
        return future

    def await_end(self, within: float) -> bool:
        """Wait until the process there has ended; whether it has."""
        self._thread.join(within)
        return not self._thread.is_alive()

    def kill(self) -> None:
        """End the relay, and with it the process: it hears that its channel is closed."""
        self._end(ActorGone("control ended it"))
        self._relay.kill()

    def _listen(self) -> None:
        try:
            while self.ended is None:
                part = self._relay.read(WAIT)
                if part is None:
                    self._end(
                        ActorGone(
                            f"our process there ended, and the node is there{self._last_words()}"
                        )
                    )
                    return
                self._buffer += part
                for message, content in self._messages():
                    self._take(message, content)
        except (NodeLost, ActorGone, AnswerRefused) as error:
            self._end(error)
        except Exception as error:  # noqa: BLE001 - whoever waits has to hear of it
            self._end(ActorGone(f"{type(error).__name__}: {printable(str(error), limit=200)}"))

    def _last_words(self) -> str:
        said = self._relay.said().strip().rpartition("\n")[2]
        return f"; its last words: {printable(said, limit=200)}" if said else ""

    def _messages(self) -> Iterator[tuple[dict[str, Any], bytes]]:
        while len(self._buffer) >= HEAD.size:
            words, size = HEAD.unpack_from(self._buffer)
            if words > MOST_JSON or size > MOST:
                raise AnswerRefused(
                    f"it would send {words + size} bytes at once, at most {MOST_JSON + MOST} are"
                    " taken"
                )
            end = HEAD.size + words + size
            if len(self._buffer) < end:
                return
            text = bytes(self._buffer[HEAD.size : HEAD.size + words])
            content = bytes(self._buffer[end - size : end])
            del self._buffer[:end]
            try:
                message = strict_json(text)
            except NotStrict as error:
                raise AnswerRefused(f"it did not answer in JSON: {error}") from None
            if not isinstance(message, dict):
                raise AnswerRefused("it did not answer as our process does")
            yield message, content

    def _take(self, message: dict[str, Any], content: bytes) -> None:
        order = message.get("order")
        with self._lock:
            future = self._pending.pop(order, None) if type(order) is int else None
        if future is None:
            raise AnswerRefused("it answered what nobody asked, or answered twice")
        future.set_result((message, content))

    def _end(self, why: Exception) -> None:
        with self._lock:
            if self.ended is None:
                self.ended = why
            left = list(self._pending.values())
            self._pending.clear()
        for future in left:
            future.set_exception(why)
