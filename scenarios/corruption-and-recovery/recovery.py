"""A stream that goes on when a stage ends: rank 0 follows the plan of the library's
RecoveryManager.
"""

from carriers import Bare, Lines
from decoder import LAYERS, Layers, choose, embed
from stages import Stage

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
    TransferFailed,
    TransportLimits,
)


def work(context, *, tokens, carried, wait, told):
    """A stage above rank 0, until the stream is over."""
    lines = (
        Bare(context)
        if carried == "bare"
        else Lines(context, limits=TransportLimits(deadline=4 * wait, silence=0.5))
    )
    stage = Stage(rank=context.rank, size=context.size, lines=lines, tokens=tokens, told=told)
    while True:
        try:
            stage.follow()
            break
        except PeerRestarted as gone:
            lines.transport.renew(gone.peer)
        except TransferFailed:
            others = FallbackCoordinator(
                FolderStore(context.shared), rank=context.rank, size=context.size
            )
            if others.mode is Mode.SINGLE:
                return  # they went on without this stage
            raise
    lines.close()


def recovered(context, *, tokens, carried, wait, told):
    """Rank 0's stream: what it knows is fed again to a stage that came back, or all is computed
    alone.
    """
    lines = (
        Bare(context)
        if carried == "bare"
        else Lines(context, limits=TransportLimits(deadline=wait, silence=0.5))
    )
    stage = Stage(rank=0, size=context.size, lines=lines, tokens=tokens, told=told)

    def restart(mode, number):
        for node in mode.nodes:
            lines.transport.renew(node)
        stage.begin(number)
        stage.lead(until=len(stage.known) - 1)

    def alone(mode, number):
        coordinator = FallbackCoordinator(FolderStore(context.shared), rank=0, size=context.size)
        coordinator.propose(mode.words, position=len(stage.known) - 1)
        decision = coordinator.agree(position=len(stage.known) - 1, timeout=0.5)
        context.emit(
            "fell.back", participants=list(decision.participants), missing=list(decision.missing)
        )
        layers = Layers(0, LAYERS)
        for position in range(tokens):
            token = choose(layers(embed(stage.known[position])))
            if position + 1 == len(stage.known):
                stage.known.append(token)
            elif stage.known[position + 1] != token:
                raise RuntimeError(
                    f"attempt {number}: token {position + 1} is another one on one device"
                )

    def attempted(attempt):
        context.emit(
            "attempt", action=str(attempt.action), outcome=str(attempt.outcome), words=attempt.words
        )

    actions = {RecoveryAction.RESTART_STAGE: restart, RecoveryAction.FALL_BACK: alone}
    manager = RecoveryManager(actions=actions, budget=256, recorded=attempted)
    while True:
        try:
            stage.lead()
            lines.close()
            break
        except TransferFailed as failed:
            if len(stage.known) > tokens:
                break  # who is gone takes no more
            peers = tuple(f"rank {rank}" for rank in range(1, context.size))
            mode = FailureMode(
                failure=FailureClass.PERSISTENT,
                position=len(stage.known) - 1,
                nodes=peers,
                words=str(failed),
            )
            result = manager.recover(mode)
            if not result.recovered:
                raise RuntimeError(result.words) from failed
            if manager.attempts[-1].action is RecoveryAction.FALL_BACK:
                break
    worked = [one.action for one in manager.attempts if one.outcome is RecoveryOutcome.RECOVERED]
    context.emit(
        "recovered",
        restarts=worked.count(RecoveryAction.RESTART_STAGE),
        alone=worked.count(RecoveryAction.FALL_BACK),
    )
    if carried == "library":
        context.emit("carried", **lines.transport.monitor.mended())
    return stage.known[1:]
