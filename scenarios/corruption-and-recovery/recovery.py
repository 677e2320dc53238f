"""A stream that goes on when a token is wrong or a stage ends: rank 0 follows the plan of the
library's RecoveryManager.
"""

import keeper
from carriers import Bare, Lines
from decoder import LAYERS, WORDS, Layers, choose, embed
from stages import Stage, WrongToken

from harness._integrity import (
    FailureClass,
    FailureMode,
    FallbackCoordinator,
    FolderStore,
    Mode,
    PeerRestarted,
    RecoveryAction,
    RecoveryManager,
    RecoveryOutcome,
    TokenValidator,
    TransferFailed,
    TransportLimits,
    name_of,
)


class Following:
    """Lines of a stage above rank 0: one to a stage that began again is renewed, and what was to go
    there is sent once more.
    """

    def __init__(self, lines):
        self._lines = lines

    def send(self, data, *, to):
        while True:
            try:
                self._lines.send(data, to=to)
                # A peer that ends before it has the message would be noticed with the next one,
                # and that one waits for what rank 0 makes of this.
                self._lines.transport.flush(to=name_of(to))
            except PeerRestarted as gone:
                self._lines.transport.renew(gone.peer)
            else:
                return

    def receive(self, *, source):
        while True:
            try:
                return self._lines.receive(source=source)
            except PeerRestarted as gone:
                self._lines.transport.renew(gone.peer)


def work(context, *, tokens, carried, wait, told, chosen=None):
    """A stage above rank 0, until the stream is over."""
    lines = (
        Bare(context)
        if carried == "bare"
        else Lines(context, limits=TransportLimits(deadline=4 * wait, silence=0.5))
    )
    stage = Stage(
        rank=context.rank,
        size=context.size,
        lines=lines if carried == "bare" else Following(lines),
        tokens=tokens,
        told=told,
        chosen=chosen,
        strict=carried != "bare",
    )
    try:
        stage.follow()
    except TransferFailed:
        others = FallbackCoordinator(
            FolderStore(context.shared), rank=context.rank, size=context.size
        )
        if others.mode is Mode.SINGLE:
            return  # they went on without this stage
        raise
    lines.close()


class Recovery:
    """What rank 0 does against a failure: the actions of its RecoveryManager.

    Each raises where it did not work, so that the manager takes the next step of its plan. This
    pipeline has no device that could be made anew, so that step is left out.

    Args:
        context: of rank 0.
        stage: its stage.
        lines: that carry its messages.
        wait: seconds in which a stage has to come back.
    """

    def __init__(self, context, stage, lines, *, wait):
        self._context, self._stage, self._lines, self._wait = context, stage, lines, wait
        self._store = FolderStore(context.shared)
        self._ranks = {name_of(rank): rank for rank in range(1, context.size)}
        self._is_back = False  # the stage that ended has begun again already
        self.manager = RecoveryManager(
            actions={
                RecoveryAction.REGENERATE: self.regenerate,
                RecoveryAction.RESTART_STAGE: self.restart,
                RecoveryAction.FALL_BACK: self.fall_back,
            },
            budget=256,
            recorded=self._recorded,
        )

    def mode_of(self, failure):
        """Say what failed, where, and whose it is."""
        position = len(self._stage.known) - 1
        self._is_back = isinstance(failure, PeerRestarted)
        if isinstance(failure, WrongToken):
            return FailureMode(
                failure=FailureClass.TRANSIENT,
                position=position,
                nodes=(name_of(self._context.size - 1),),
                error_type=failure.result.error_type,
                words=str(failure),
            )
        # Where nothing comes any more, any stage of the ring may be the reason.
        return FailureMode(
            failure=FailureClass.PERSISTENT,
            position=position,
            nodes=(failure.peer,) if self._is_back else tuple(self._ranks),
            words=str(failure),
        )

    def regenerate(self, _mode, number):
        """Have one token made again: every stage keeps its process, and forgets one position."""
        self._stage.again(number)

    def restart(self, mode, number):
        """Have the processes ended and started again, and feed all stages what is known."""
        if not self._is_back:
            for node in mode.nodes:
                keeper.ask(self._store, self._ranks[node], number, timeout=self._wait)
        for node in self._ranks:
            self._lines.transport.renew(node)
        self._stage.begin(number)
        self._stage.lead(until=len(self._stage.known) - 1)
        if mode.error_type is not None:
            self._stage.lead(until=len(self._stage.known))  # the token that was wrong

    def fall_back(self, mode, number):
        """Agree on one device with whoever is left, and compute the rest there."""
        known = self._stage.known
        position = len(known) - 1
        coordinator = FallbackCoordinator(self._store, rank=0, size=self._context.size)
        coordinator.propose(mode.words, position=position)
        decision = coordinator.agree(position=position, timeout=0.5)
        self._context.emit(
            "fell.back", participants=list(decision.participants), missing=list(decision.missing)
        )
        layers = Layers(0, LAYERS)
        for at in range(self._stage.tokens):
            token = choose(layers(embed(known[at])))
            if at + 1 == len(known):
                known.append(token)
            elif known[at + 1] != token:
                raise RuntimeError(f"attempt {number}: token {at + 1} is another one on one device")

    def worked(self, action):
        """How often it did."""
        return sum(
            one.action is action and one.outcome is RecoveryOutcome.RECOVERED
            for one in self.manager.attempts
        )

    def _recorded(self, attempt):
        self._context.emit(
            "attempt", action=str(attempt.action), outcome=str(attempt.outcome), words=attempt.words
        )


def recovered(context, *, tokens, carried, wait, told):
    """Rank 0's stream: what it knows is fed again to a stage that came back, or all is computed
    alone.
    """
    lines = (
        Bare(context)
        if carried == "bare"
        else Lines(context, limits=TransportLimits(deadline=wait, silence=0.5))
    )
    check = None if carried == "bare" else TokenValidator(vocabulary=WORDS).validate_id
    stage = Stage(rank=0, size=context.size, lines=lines, tokens=tokens, told=told, check=check)
    recovery = Recovery(context, stage, lines, wait=wait)
    while True:
        try:
            stage.lead()
            lines.close()
            break
        except (TransferFailed, WrongToken) as failed:
            if len(stage.known) > tokens:
                break  # who is gone takes no more
            result = recovery.manager.recover(recovery.mode_of(failed))
            if not result.recovered:
                raise RuntimeError(result.words) from failed
            if result.attempts[-1].action is RecoveryAction.FALL_BACK:
                break
    context.emit(
        "recovered",
        regenerated=recovery.worked(RecoveryAction.REGENERATE),
        restarts=recovery.worked(RecoveryAction.RESTART_STAGE),
        alone=recovery.worked(RecoveryAction.FALL_BACK),
    )
    if carried == "library":
        context.emit("carried", **lines.transport.monitor.mended())
    return stage.known[1:]
