"""A stream of tokens through the stages of a pipeline: how far each stage is, who is behind, and
who may go on.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from .loops import Waits
from .problem import MessageLate, Misused, OutOfStep
from .records import EnhancedTokenChunk
from .store import Store

FIRST_LOOK = 0.0005
LAST_LOOK = 0.02


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
        self, *, store: Store, stream: str, stage: int, stages: int, epoch: int = 1, lead: int = 64
    ) -> None:
        if not 0 <= stage < stages or epoch < 1 or lead < 1:
            raise Misused(
                f"stage {stage} of {stages}, epoch {epoch}, lead {lead}: each counts from its"
                " beginning"
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
        """This stage has handed on the token of that position.

        Raises:
            OutOfStep: it is not the next one.
        """
        if position != self.position:
            raise OutOfStep(
                f"stage {self.stage} of stream {self._stream!r} handed on position {position}, and"
                f" the next one is {self.position}"
            )
        self.position += 1
        self._tell()

    def look(self) -> GenerationCoordination:
        """How the stream stands now.

        Raises:
            OutOfStep: a stage began again, or went back: what it had handed on before has to be
                agreed on anew.
        """
        found = tuple(self._read(stage) for stage in range(self._stages))
        for now in found:
            before = self._seen.get(now.stage)
            if (
                before is not None
                and before.epoch
                and (now.epoch, now.position) < (before.epoch, before.position)
            ):
                raise OutOfStep(
                    f"{self._title(now)} is at {now.position}, and was at {before.position}"
                )
            if before is not None and before.epoch and now.epoch > before.epoch:
                raise OutOfStep(
                    f"{self._title(now)} began again (epoch {now.epoch} after {before.epoch}) at"
                    f" position {now.position}, and was at {before.position}: agree on a position,"
                    " and resume() there"
                )
            self._seen[now.stage] = now
        waits = []
        if self.stage and found[self.stage - 1].position <= self.position:
            waits.append(self.stage - 1)
        waits += [
            one.stage
            for one in found[self.stage + 1 :]
            if self.position - one.position >= self._lead
        ]
        first = found[0].position
        return GenerationCoordination(
            stage=self.stage,
            next_position=self.position,
            may_go_on=not waits,
            stages=found,
            waits_for=tuple(waits),
            behind={one.stage: first - one.position for one in found if one.position < first},
        )

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
        while not (found := self.look()).may_go_on and not left.is_set():
            if (now := time.monotonic()) >= until:
                who = ", ".join(
                    f"stage {stage} at {found.stages[stage].position}" for stage in found.waits_for
                )
                raise MessageLate(
                    f"stage {self.stage} of stream {self._stream!r} waits at position"
                    f" {self.position} for {who}, for {timeout:g} s",
                    peer=f"stage {found.waits_for[0]}",
                    sequence=self.position,
                    epoch=self.epoch,
                )
            left.wait(min(pause, until - now))
            pause = min(2 * pause, LAST_LOOK)
        return found

    async def coordinate_generation(
        self, pipeline_stage: int, *, within: float = 30.0
    ) -> GenerationCoordination:
        """`wait`, for callers that run an event loop; a stage asks for itself."""
        if pipeline_stage != self.stage:
            raise Misused(f"stage {pipeline_stage} was asked for, and this is stage {self.stage}")
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

    def _title(self, one: StagePosition) -> str:
        return f"stage {one.stage} of stream {self._stream!r}"


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
                    f"{where} is of stream {now.stream!r}, and the one before of {before.stream!r}"
                )
            if now.sequence_position != before.sequence_position + 1:
                return f"{where} follows position {before.sequence_position}"
            if before.finish_reason is not None:
                return f"{where} follows the last token, which finished by {before.finish_reason!r}"
        if now.epoch < epochs.get(now.source_device_rank, 0):
            return (
                f"{where} is of epoch {now.epoch} of rank {now.source_device_rank}, which is over"
            )
        epochs[now.source_device_rank] = now.epoch
    return None
