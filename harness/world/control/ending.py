"""How a world is brought to its end: at its deadline, or some time after its first failure.

First every living rank is asked where it stands, then all are killed; where a hang is to be proved
they are asked twice. Every wait has a bound: a keeper that does not do its part is an error of the
harness.
"""

from __future__ import annotations

import math
import signal
import time
from pathlib import Path

from harness.faults.world_control import WorldControl
from harness.forms.strict_json import JSON
from harness.rank.lifecycle import STACK_SIGNAL, STACKS
from harness.rank.process import inspect
from harness.world.control.capture import Recorder, parse_stacks, read_stack
from harness.world.control.hang import HangWatch, Seen, frames_as_evidence, holding_back
from harness.world.control.launch import Launch
from harness.world.control.ranks import RankStates
from harness.world.control.server_handle import ServerFailed
from harness.world.control.waits import catches

# And for each rank that is asked: they take turns at the processors.
STACKS_WITHIN = 1.0
STACKS_EACH = 0.05
# Who has begun to write is waited for longer: half a stack says that a rank stands where it does
# not.
WRITTEN_WITHIN = 10.0
# How much later than asked for the harness may wake up before the time counts as not its ranks'.
OVERSLEPT = 1.0
QUIET = 0.05
START_WITHIN = 30.0
KILL_WITHIN = 15.0


class Ending:
    """Watches the clock of one world.

    Attributes:
        deadline: CLOCK_MONOTONIC seconds when the world is stopped.
        took_stacks: whether the ranks were asked where they stand.
    """

    def __init__(
        self,
        world: WorldControl,
        states: RankStates,
        *,
        launch: Launch,
        recorder: Recorder,
        scratch: Path,
    ) -> None:
        """Begin to watch.

        Args:
            world: what is ended.
            states: what is known of its ranks.
            launch: what was started; its deadline is counted from now.
            recorder: of the world.
            scratch: the world's folder.
        """
        self._world = world
        self._states = states
        self._scratch = scratch
        self._recorder = recorder
        self._after = launch.watch.deadline
        self._grace = launch.watch.after_failure
        self._begun_at = time.monotonic()
        self.deadline = self._begun_at + launch.watch.deadline
        self._stop_at: float | None = None
        self._stacks_at: float | None = None
        self._last_words_by: float | None = None
        self._why = ""
        self._failed: list[int] = []
        # The signal that asks Python for its stacks would end a program.
        self._has_stacks = not launch.subject.program
        self._sizes: dict[int, int] = {}
        self._held_back: dict[int, frozenset[int]] = {}
        self._rounds = 0
        self._concludes = False
        self._texts: dict[int, list[bytes]] = {}
        # Ranks that loop are asked now and then while they are watched, and go on afterwards.
        self._is_sampling = False
        self._waiting_since = self._begun_at
        self._awake_by = math.inf
        self._watch: HangWatch | None = None
        self._last_words_within = KILL_WITHIN
        self.took_stacks = False

    def prove(self, watch: HangWatch) -> None:
        """End the world as soon as a hang is proved, or cannot be any more.

        A rank that fails first ends nothing.
        """
        self._watch = watch

    def failed(self, rank: int | None = None) -> None:
        """Take the failure of a rank, or of a machine: at the first one, the others' time begins to
        run.
        """
        self._failed += [] if rank is None else [rank]
        if self._stop_at is None and self._watch is None:
            self._stop_at = time.monotonic() + self._grace

    def patience(self) -> float:
        """Seconds until something has to be done without anybody speaking."""
        quiet = self._last_words_by is None and self._stacks_at is not None
        patience = QUIET if quiet else max(0.0, self._next() - time.monotonic())
        self._waiting_since = time.monotonic()
        self._awake_by = self._waiting_since + patience + OVERSLEPT
        return patience

    def judge(self) -> None:
        """Do what the clock demands.

        Raises:
            ServerFailed: the keeper did not start the ranks, did not end them, or did not finish.
        """
        now = time.monotonic()
        if now > self._awake_by:
            # The harness itself was stopped or starved: its ranks may stand at gates that only it
            # can open. When it fell asleep is not known, so they get back all the time since it
            # began to wait.
            slept = now - self._waiting_since
            self._world.note("harness.late", seconds=round(slept, 3))
            self.deadline += slept
            self._stop_at = None if self._stop_at is None else self._stop_at + slept
        if self._last_words_by is None and self._states.is_over():
            # Only the keeper's last words are awaited: it gives what ended ranks left behind some
            # time to go.
            self._last_words_by = now + self._grace + self._last_words_within
        if self._last_words_by is not None:
            if now >= self._last_words_by:
                living = self._states.living()
                which = f"ranks {living} did not end" if living else "the supervisor did not exit"
                raise ServerFailed(f"{which} within {self._grace + self._last_words_within:g} s")
        elif self._stacks_at is not None:
            latest = self._stacks_at + STACKS_WITHIN + STACKS_EACH * len(self._texts)
            quiet = self._stacks_are_quiet()
            if quiet or (now >= latest and (now >= latest + WRITTEN_WITHIN or not self._writing())):
                self._keep_stacks()
                self._go_on()
        elif now >= self.deadline:
            self._world.note("world.deadline", after=self._after, ranks=self._states.living())
            self._take_stacks("deadline")
        elif self._stop_at is not None and now >= self._stop_at:
            self._take_stacks("after-failure")
        elif self._watch is not None and (seen := self._watch.look()) != "moving":
            self._seen(seen, self._watch)
        elif not self._states.started and now >= self._begun_at + START_WITHIN:
            raise ServerFailed(f"no rank was forked within {START_WITHIN:g} s of the request")

    def _seen(self, seen: Seen, watch: HangWatch) -> None:
        if seen == "sample":
            self._sample(watch.looping())
        else:
            self._take_stacks("hang", rounds=2 if seen == "still" else 1)

    def _go_on(self) -> None:
        """Do what comes next when the stacks of a round are kept."""
        if self._is_sampling:
            self._is_sampling = False
            self._stacks_at = None
        elif self._rounds > 0:
            self._ask()
        else:
            self._kill()

    def _next(self) -> float:
        if self._last_words_by is not None:
            return self._last_words_by
        ends = [self.deadline]
        if self._watch is not None:
            ends.append(self._watch.next_look)
        if self._stop_at is not None:
            ends.append(self._stop_at)
        if not self._states.started:
            ends.append(self._begun_at + START_WITHIN)
        return min(ends)

    def _take_stacks(self, why: str, *, rounds: int = 1) -> None:
        """Ask every living rank where it stands, but none that is stopped, or has not begun and
        would die of it.
        """
        self.took_stacks = True
        self._why = why
        self._rounds = rounds
        self._concludes = rounds > 1
        for rank in self._states.living():
            process = inspect(self._states.started[rank])
            state = process.state if process else "gone"
            able = (
                self._has_stacks
                and rank in self._states.begun
                and state not in ("T", "t", "Z", "gone")
            )
            asked = able and catches(self._states.started[rank], STACK_SIGNAL)
            self._world.note("rank.state", rank=rank, state=state, asked=asked)
            if asked:
                self._texts.setdefault(rank, [])
            elif self._watch is not None and rounds > 1:
                self._watch.unasked(rank)
        self._ask()

    def _sample(self, ranks: list[int]) -> None:
        """Ask ranks that loop where they are, and let them go on."""
        if not self._has_stacks or not ranks:
            return
        self.took_stacks = True
        self._is_sampling = True
        self._rounds = 1
        for rank in ranks:
            if rank in self._states.begun and catches(self._states.started[rank], STACK_SIGNAL):
                self._texts.setdefault(rank, [])
        self._ask()

    def _ask(self) -> None:
        self._rounds -= 1
        self._stacks_at = time.monotonic()
        for rank in self._texts:
            if rank not in self._states.exited:
                self._sizes[rank] = -1
                self._held_back[rank] = holding_back(self._states.started[rank], STACK_SIGNAL)
                self._world.signal(STACK_SIGNAL, rank=rank)

    def _keep_stacks(self) -> None:
        """Write down where each rank stands this time, and at last whether its threads stood
        still.
        """
        for rank, texts in self._texts.items():
            known = sum(map(len, texts))
            texts.append((read_stack(self._scratch / f"rank-{rank}" / STACKS) or b"")[known:])
            there = self._recorder.elsewhere.get(rank)
            text = texts[-1].decode("utf-8", "replace")
            stacks = parse_stacks(text if there is None else there.as_here(text))
            threads = frames_as_evidence(
                stacks,
                folder=there.code if there is not None else self._recorder.code,
                shorten=there.shorten if there is not None else self._recorder.shortened,
            )
            self._world.note("rank.stack", rank=rank, sample=len(texts), threads=threads)
            if (
                self._watch is not None
                and self._concludes
                and not stacks
                and rank not in self._states.exited
            ):
                self._watch.unasked(rank)
            is_last = self._rounds == 0 and self._concludes
            if (
                self._watch is not None
                and is_last
                and len(texts) > 1
                and rank not in self._states.exited
            ):
                self._watch.conclude(rank, stacks, folder=self._recorder.code)

    def _stacks_are_quiet(self) -> bool:
        """Return whether every rank that was asked has written its stacks, and none is still
        writing.
        """
        quiet = True
        for rank in self._sizes:
            if rank in self._states.exited:
                continue
            try:
                size = (self._scratch / f"rank-{rank}" / STACKS).stat().st_size
            except OSError:
                size = 0
            known = sum(map(len, self._texts[rank]))
            quiet = quiet and size > known and size == self._sizes[rank]
            self._sizes[rank] = size
        # Asked after the sizes: who has written something is in the handler, or was.
        return quiet and not self._writing()

    def _writing(self) -> bool:
        """Return whether a rank is in the middle of writing its stacks: a busy processor may keep
        it there for long.
        """
        asked = [rank for rank in self._sizes if rank not in self._states.exited]
        return any(
            holding_back(self._states.started[rank], STACK_SIGNAL) - self._held_back[rank]
            for rank in asked
        )

    def _kill(self) -> None:
        self._last_words_by = time.monotonic() + self._grace + self._last_words_within
        # Who had failed by then: the others may be stopped for another reason, a hang or a machine
        # that was lost.
        failed: list[JSON] = [*sorted(self._failed)]
        self._world.note("world.stopped", ranks=self._states.living(), why=self._why, failed=failed)
        self._world.signal(signal.SIGKILL)
