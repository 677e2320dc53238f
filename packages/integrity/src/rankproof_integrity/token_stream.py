"""Stream of tokens through the stages of a pipeline: as messages, with or without their texts; how
far each stage is, who is behind, and who may go on.
"""

from __future__ import annotations

import json
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .digest import digest_of, hexadecimal
from .loops import Waits
from .problem import MessageCorrupt, MessageLate, Misused, OutOfStep
from .records import CHUNK_HEAD, NO_TIME, EnhancedTokenChunk, ValidationResult
from .sequence import SequenceIntegrityChecker
from .store import SharedStore
from .token_validator import TokenValidator


class TokenTransferValidator:
    """Check of tokens that were handed from one device to another. It keeps nothing."""

    def compute_checksum(self, token_data: Any) -> str:
        """Xxh3 of 64 bits of a contiguous buffer, in sixteen lower-case hexadecimal digits."""
        return hexadecimal(token_data)

    def validate_transfer(self, original: EnhancedTokenChunk, received: EnhancedTokenChunk) -> bool:
        """Return whether what came is what was sent, and each is what its maker made.

        The original comes from the sender, by another way than the received one: an object held
        against itself says nothing. Where it is not at hand, `received.intact` says what its own
        checksum says.
        """
        return received.intact and received == original


def chunk_bytes(chunk: EnhancedTokenChunk) -> bytes:
    """Return a chunk as a message: its checksum as its maker computed it, then what that covers.

    Raises:
        Misused: it has none, or is not what its checksum was made of: what is wrong here is not
            sent on.
    """
    content = chunk.content()
    checksum = hexadecimal(content)
    if chunk.checksum != checksum:
        raise Misused(
            f"the token at position {chunk.sequence_position} changed after it was created: its"
            f" checksum is {chunk.checksum or 'missing'}, but its content has {checksum}"
        )
    return bytes.fromhex(checksum) + content


def chunk_of(data: Any, *, peer: str = "the sender") -> EnhancedTokenChunk:
    """Return the chunk in a message, whose checksum is the one its maker gave it.

    Raises:
        MessageCorrupt: it is not a chunk, or not as its maker made it.
    """
    view = memoryview(data)
    try:
        chunk = EnhancedTokenChunk.from_content(bytes(view[8:]), checksum=view[:8].hex())
    except (struct.error, ValueError, OverflowError) as error:
        raise MessageCorrupt(f"a message from {peer} is not a token: {error}", peer=peer) from error
    # Every byte of a message is in its chunk and the other way round, so that these bytes are its
    # content.
    if not chunk.intact:
        raise MessageCorrupt(
            f"the token at position {chunk.sequence_position} from {peer} changed after rank"
            f" {chunk.source_device_rank} created it: its checksum is {chunk.checksum}, but the"
            f" token that arrived has {chunk.computed_checksum()}",
            peer=peer,
            sequence=chunk.sequence_position,
            epoch=chunk.epoch,
        )
    return chunk


_CHECKSUM = struct.Struct("!Q")
_ID = struct.Struct("!q")
_ID_AT = _CHECKSUM.size + struct.calcsize("!QI")  # behind the checksum, the position and the epoch


class BareTokens:
    """One end of a stream of ids without texts and times. Not for several threads at once.

    It makes no chunk of an id, because that takes several times as long.

    Args:
        tokens: what is known of the vocabulary.
        maker: the rank that makes them.
        stream: the request's id.
        epoch: how often its maker had begun.

    Attributes:
        sequence: the ids so far, and their digests.
    """

    def __init__(
        self, *, tokens: TokenValidator, maker: int, stream: str = "", epoch: int = 0
    ) -> None:
        self.sequence = SequenceIntegrityChecker(stream=stream, epoch=epoch)
        self._tokens = tokens
        self._maker = maker
        self._name = stream.encode(errors="surrogatepass")
        self._tail = (NO_TIME, maker, len(self._name), 0, -1)
        self._size = _CHECKSUM.size + CHUNK_HEAD.size + len(self._name)

    def made(self, token_id: int) -> bytes:
        """Take the next id where it is made; gives the message that `chunk_bytes` would give.

        Raises:
            OutOfStep: it is not of the vocabulary.
        """
        self._demand(self._tokens.validate_id(token_id, self.sequence.position))
        message = self._message(token_id)
        self.sequence.append(token_id)
        return message

    def taken(self, data: Any) -> int:
        """Return the id in a message, which is the next.

        Raises:
            MessageCorrupt: it is not as its maker made it.
            OutOfStep: it is another one than is due, or not of the vocabulary.
        """
        message = bytes(data)
        if len(message) == self._size:
            token_id: int = _ID.unpack_from(message, _ID_AT)[0]
            # All but the id is known, so the message is good if it is the one that is due.
            if message == self._message(token_id):
                self._demand(self._tokens.validate_id(token_id, self.sequence.position))
                self.sequence.append(token_id)
                return token_id
        chunk = chunk_of(message, peer=f"rank {self._maker}")
        if chunk.source_device_rank != self._maker:
            raise OutOfStep(
                f"rank {chunk.source_device_rank} created the token at position"
                f" {chunk.sequence_position}, not rank {self._maker}"
            )
        self._demand(self._tokens.validate_id(chunk.token_id, chunk.sequence_position))
        self._demand(self.sequence.check(chunk))
        return chunk.token_id

    def _message(self, token_id: int) -> bytes:
        head = CHUNK_HEAD.pack(self.sequence.position, self.sequence.epoch, token_id, *self._tail)
        content = head + self._name
        return _CHECKSUM.pack(digest_of(content)) + content

    def _demand(self, result: ValidationResult) -> None:
        if result.error_type is not None:
            raise OutOfStep(
                f"the token at position {self.sequence.position} from rank {self._maker} is not"
                f" valid: {result.words}"
            )


FIRST_LOOK = 0.0005
LAST_LOOK = 0.02
"""Seconds between two looks at the store: they become longer while nothing happens."""


@dataclass(frozen=True, kw_only=True)
class StagePosition:
    """How far a stage is: tokens that it has handed on, and how often it has begun.

    Epoch 0: not yet.
    """

    stage: int
    epoch: int
    position: int


@dataclass(frozen=True, kw_only=True)
class GenerationCoordination:
    """How a stream stands.

    Attributes:
        stage: who asked.
        next_position: the position that it is to work on.
        may_go_on: whether it may now: the stage before it has handed that on, and nobody after it
            is too far behind.
        stages: all of them.
        waits_for: the stages that keep it from going on.
        behind: the stages that are behind the first one, with by how many tokens.
    """

    stage: int
    next_position: int
    may_go_on: bool
    stages: tuple[StagePosition, ...]
    waits_for: tuple[int, ...]
    behind: dict[int, int]


class TokenStreamSynchronizer:
    """One stage's side of one stream.

    Args:
        store: what the stages share.
        stream: the stream's name, a request's id.
        stage, stages: which stage this is, of how many.
        epoch: how often this stage began for this stream, from 1.
        lead: how many tokens a stage may be ahead of the last one.
    """

    def __init__(
        self,
        *,
        store: SharedStore,
        stream: str,
        stage: int,
        stages: int,
        epoch: int = 1,
        lead: int = 64,
    ) -> None:
        if not 0 <= stage < stages or epoch < 1 or lead < 1:
            raise Misused(
                "stage must be 0 or more and below stages, and epoch and lead 1 or more: stage"
                f" {stage} of {stages}, epoch {epoch}, lead {lead}"
            )
        self._store = store
        self._stream = stream
        self._stages = stages
        self._lead = lead
        self.stage = stage
        self.epoch = epoch
        self.position = 0
        self._seen: dict[int, StagePosition] = {}
        self._tell()

    def resume(self, *, position: int) -> None:
        """Go on at a position that was agreed on after a restart: every stage calls this with the
        same.
        """
        self.position = position
        self._seen.clear()
        self._tell()

    def handed_on(self, position: int) -> None:
        """Tell the others that this stage has handed on the token of that position.

        Raises:
            OutOfStep: it is not the next one.
        """
        if position != self.position:
            raise OutOfStep(
                f"stage {self.stage} of stream {self._stream!r} passed on position {position}, but"
                f" the next position is {self.position}"
            )
        self.position += 1
        self._tell()

    def look(self) -> GenerationCoordination:
        """Return how the stream stands now.

        Raises:
            OutOfStep: a stage began again, or went back: what it had handed on before has to be
                agreed on anew.
        """
        stages = tuple(self._read(stage) for stage in range(self._stages))
        for now in stages:
            self._demand_forward(now)
        waits = []
        if self.stage and stages[self.stage - 1].position <= self.position:
            waits.append(self.stage - 1)
        waits += [
            later.stage
            for later in stages[self.stage + 1 :]
            if self.position - later.position >= self._lead
        ]
        first = stages[0].position
        return GenerationCoordination(
            stage=self.stage,
            next_position=self.position,
            may_go_on=not waits,
            stages=stages,
            waits_for=tuple(waits),
            behind={now.stage: first - now.position for now in stages if now.position < first},
        )

    def _demand_forward(self, now: StagePosition) -> None:
        """Refuse a stage that began again or went back since it was looked at."""
        before = self._seen.get(now.stage)
        if before is not None and before.epoch:
            title = f"stage {now.stage} of stream {self._stream!r}"
            if (now.epoch, now.position) < (before.epoch, before.position):
                raise OutOfStep(
                    f"{title} went back to position {now.position} from {before.position}"
                )
            if now.epoch > before.epoch:
                raise OutOfStep(
                    f"{title} restarted (epoch {now.epoch} after {before.epoch}) at position"
                    f" {now.position}, but was at {before.position}; agree on a position, and call"
                    " resume() with it"
                )
        self._seen[now.stage] = now

    def wait(self, *, timeout: float) -> GenerationCoordination:
        """Wait until this stage may work on its next position.

        Raises:
            MessageLate: it may not within `timeout` seconds; says whom it waits for.
            OutOfStep: as `look`.
        """
        return self._waited(timeout, threading.Event())

    def _waited(self, timeout: float, left: threading.Event) -> GenerationCoordination:
        until = time.monotonic() + timeout
        pause = FIRST_LOOK
        while not (state := self.look()).may_go_on and not left.is_set():
            now = time.monotonic()
            if now >= until:
                who = ", ".join(
                    f"stage {stage} at {state.stages[stage].position}" for stage in state.waits_for
                )
                raise MessageLate(
                    f"stage {self.stage} of stream {self._stream!r} waited {timeout:g} s at"
                    f" position {self.position} for {who}",
                    peer=f"stage {state.waits_for[0]}",
                    sequence=self.position,
                    epoch=self.epoch,
                )
            left.wait(min(pause, until - now))
            pause = min(2 * pause, LAST_LOOK)
        return state

    async def coordinate_generation(
        self, pipeline_stage: int, *, within: float = 30.0
    ) -> GenerationCoordination:
        """`wait`, for callers that run an event loop; a stage asks for itself."""
        if pipeline_stage != self.stage:
            raise Misused(f"stage {pipeline_stage} was requested, but this is stage {self.stage}")
        return await Waits().wait(lambda left: self._waited(within, left))

    async def verify_token_ordering(self, tokens: Sequence[EnhancedTokenChunk]) -> bool:
        """Return whether the tokens follow each other: `disorder` says what is wrong where they do
        not.
        """
        return disorder(tokens) is None

    def _tell(self) -> None:
        self._store.set(self._key(self.stage), json.dumps([self.epoch, self.position]).encode())

    def _key(self, stage: int) -> str:
        return f"stream/{self._stream}/{stage}"

    def _read(self, stage: int) -> StagePosition:
        epoch, position = json.loads(self._store.get(self._key(stage)) or b"[0, 0]")
        return StagePosition(stage=stage, epoch=epoch, position=position)


def disorder(tokens: Sequence[EnhancedTokenChunk]) -> str | None:
    """Return what is first wrong with the order of tokens, in words; None where they follow each
    other.

    Right is: of one stream, positions one after the other, no token of an earlier epoch of its rank
    after one of a later, and nothing after the one that finished.
    """
    epochs: dict[int, int] = {}
    for before, now in zip([None, *tokens], tokens, strict=False):
        where = f"position {now.sequence_position}"
        if before is not None:
            if now.stream != before.stream:
                return (
                    f"{where} belongs to stream {now.stream!r}, but the previous position belongs"
                    f" to {before.stream!r}"
                )
            if now.sequence_position != before.sequence_position + 1:
                return f"{where} follows position {before.sequence_position}"
            if before.finish_reason is not None:
                return (
                    f"{where} follows the last token, whose finish reason is"
                    f" {before.finish_reason!r}"
                )
        if now.epoch < epochs.get(now.source_device_rank, 0):
            return (
                f"{where} belongs to epoch {now.epoch} of rank {now.source_device_rank}, which has"
                " ended"
            )
        epochs[now.source_device_rank] = now.epoch
    return None
