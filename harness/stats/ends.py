"""How each rank of a trial ended, as what and in words: by itself, by a fault, by the harness, by
an error it raised.

The judge of a control reads causes from these. A rank that raised ended when it raised; one that
was killed, when the process that forked it saw it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.backends import KINDS as BACKENDS
from harness.checks.finding import canonical
from harness.faults.proof import STRUCK, noted
from harness.forms.strict_json import JSON
from harness.forms.text import bounded
from harness.history import MACHINE_ENDED, MACHINE_LOST, SLIPS, History, ended, machine_called
from harness.reason import DeviationCode, Void, VoidCode
from harness.scenario import End

# Codes with which a shell says that a program is not there.
NOT_STARTED = frozenset({126, 127})
TEXT_LIMIT = 300


@dataclass(frozen=True, kw_only=True)
class RankEnd:
    """One rank's end.

    Attributes:
        rank: the rank.
        ns: when, on CLOCK_MONOTONIC.
        error: what it raised, as `rank.error` says; None where it raised nothing.
        code: exit code, None for a signal.
        signal: name of the signal that ended it, else empty.
        returned: whether its subject came to its end.
        stopped: whether the harness stopped it.
        fault: the fault that provably ended it, else empty.
        peer_gone: whether it raised what its backend raises where another rank is gone, or
            something caused by that.
    """

    rank: int
    ns: int
    error: Mapping[str, JSON] | None
    code: int | None
    signal: str
    returned: bool
    stopped: bool
    fault: str
    peer_gone: bool

    @property
    def is_clean(self) -> bool:
        """Return whether it came to its end by itself and nothing went wrong."""
        return self.returned and self.code == 0 and self.error is None and not self.stopped

    @property
    def is_slip(self) -> bool:
        """Return whether it ended by what a typing mistake does: an error of a certain class, a
        program that is not there.
        """
        if self.error is None:
            return self.code in NOT_STARTED
        return not SLIPS.isdisjoint(classes(self.error)) or raised_by_runtime(self.error)

    def differs(self, stated: End) -> tuple[DeviationCode, str] | None:
        """In what it ended otherwise than a scenario states, as a word and as the end of a
        sentence; None: in nothing.

        Args:
            stated: by which error, signal or code it has to end; one that says nothing is ended by
                nothing.
        """
        if stated.signal is not None:
            return (
                None
                if self.signal == stated.signal
                else (DeviationCode.OTHER_SIGNAL, f"was not ended by {stated.signal}")
            )
        if stated.code is not None:
            return (
                None
                if self.code == stated.code
                else (DeviationCode.OTHER_EXIT_CODE, f"did not exit with code {stated.code}")
            )
        if self.error is None:
            return DeviationCode.OTHER_ERROR, f"did not raise {stated.error or 'anything'}"
        if raised_by_runtime(self.error):
            return DeviationCode.SLIP, "was refused by its own context"
        if stated.error is not None and self.error.get("type") != stated.error:
            return DeviationCode.OTHER_ERROR, f"did not raise {stated.error}"
        if stated.source is not None and source_of(self.error, stated.file) != stated.source:
            place = f" in {stated.file}" if stated.file is not None else ""
            return DeviationCode.OTHER_SOURCE, f"did not fail at {stated.source!r}{place}"
        if stated.message is not None and stated.message not in str(self.error.get("message")):
            return DeviationCode.OTHER_MESSAGE, f"did not have the message {stated.message!r}"
        # A line or a text alone is not a type: there anything may be raised, a slip too.
        if stated.error is None and self.is_slip:
            return (
                DeviationCode.SLIP,
                "failed with a typing mistake, whose type is not in must_fail",
            )
        return None


def source_of(error: Mapping[str, JSON], file: str | None) -> JSON:
    """Return the source line at which a rank failed: of its last frame inside the subject, or in a
    library's file.
    """
    if file is None:
        return error.get("source")
    frames = error.get("frames")
    inside = [
        frame
        for frame in (frames if isinstance(frames, list) else ())
        if isinstance(frame, dict) and frame.get("file") == file and frame.get("subject") is False
    ]
    return inside[-1].get("source") if inside else None


def classes(error: Mapping[str, JSON]) -> tuple[str, ...]:
    """Names of an exception's class and of those it descends from."""
    ancestors = error.get("mro")
    known = tuple(map(str, ancestors)) if isinstance(ancestors, list) else ()
    return (str(error.get("type")), *known)


def raised_by_runtime(error: Mapping[str, JSON]) -> bool:
    """Return whether the rank's own runtime raised it: an event that cannot be emitted is a slip of
    whoever emits it.
    """
    return error.get("ours") is True


def ends(history: History, *, faults: Mapping[int, str]) -> dict[int, RankEnd]:
    """Return the end of every rank that ended.

    Args:
        history: the trial's events.
        faults: rank to the fault that provably ended it.
    """
    backend = str(history.about().get("backend"))
    stopped = {
        rank
        for seen in history.noted("world.stopped")
        for rank in listed(seen.event.values.get("ranks"))
    }
    by_rank = {}
    for rank in range(history.size):
        error = history.error(rank)
        end = history.exit(rank)
        if error is None and end is None:
            continue
        values = end.event.values if end is not None else {}
        code = values.get("code")
        signal = values.get("signal")
        ns = min(seen.event.ns for seen in (error, end) if seen is not None)
        if (
            rank in faults
            and (struck := noted(history, STRUCK, fault=faults[rank], rank=rank)) is not None
        ):
            ns = struck.event.ns
        by_rank[rank] = RankEnd(
            rank=rank,
            ns=ns,
            error=error.event.values if error is not None else None,
            code=code if isinstance(code, int) else None,
            signal=str(signal or ""),
            returned=history.returned(rank) is not None,
            stopped=rank in stopped,
            fault=faults.get(rank, ""),
            peer_gone=error is not None and _tells_of_a_peer(error.event.values, backend),
        )
    return by_rank


def _tells_of_a_peer(error: Mapping[str, JSON], backend: str) -> bool:
    """Return whether an error, or one that it was raised from, is one of its backend's for a peer
    that is gone.
    """
    known = BACKENDS.get(backend)
    if known is None:
        return False
    causes = error.get("causes")
    below = (
        [cause for cause in causes if isinstance(cause, dict)] if isinstance(causes, list) else []
    )
    chain = [(classes(raised), str(raised.get("message"))) for raised in (error, *below)]
    # Whatever the backend is, ranks may talk over sockets of their own.
    kinds = (known, BACKENDS["none"])
    return any(
        kind.properties.says_that_a_peer_is_gone(types, message)
        for types, message in chain
        for kind in kinds
    )


def listed(value: JSON) -> list[JSON]:
    """Return a list of an event's values; nothing where it is none."""
    return value if isinstance(value, list) else []


def how_it_ended(history: History, rank: int) -> str:
    """How a rank ended: what it raised and where, or its code or signal."""
    if (error := history.error(rank)) is not None:
        values = error.event.values
        message = f": {values['message']}" if values.get("message") else ""
        place = f" at {values['source']!r}" if values.get("source") else ""
        return short(f"{values.get('type')}{_missed(history, rank)}{message}{place}")
    if (end := history.exit(rank)) is not None:
        how = ended(end.event.values)
        gone = _machine_gone(history, rank)
        if gone:
            return short(f"{gone}; the rank ended with {how}")
        if end.event.values.get("signal") == "SIGKILL" and not history.noted("world.stopped"):
            how += " from outside the harness (the kernel, out of memory, or another process)"
        return (
            how
            if history.is_of_programs or history.returned(rank)
            else f"{how} before the subject returned"
        )
    return short(_machine_gone(history, rank)) or "its exit was not observed"


def _machine_gone(history: History, rank: int) -> str:
    """Return what became of the machine of a rank, if control lost it or it ended its ranks by
    itself.

    Else empty.
    """
    machine = machine_called(history, rank)
    if machine is None:
        return ""
    for name, words in ((MACHINE_LOST, "was lost"), (MACHINE_ENDED, "ended its ranks by itself")):
        for seen in history.noted(name):
            if seen.event.values.get("machine") == machine:
                return f"its machine {machine} {words}: {seen.event.values.get('why')}"
    return ""


def _missed(history: History, rank: int) -> str:
    """That the user's own cache has the model that a rank did not find, and what to do."""
    if not (events := history.noted("cache.missed", rank)):
        return ""
    values = events[0].event.values
    models = values.get("models")
    named = ", ".join(map(str, models)) if isinstance(models, list) else ""
    home = ", or set world.home: shared" if values.get("in_home") else ""
    return f" ({named}: only in the user's own cache; list it in inputs{home})"


def harness_error(history: History) -> Void | None:
    """Return what went wrong in the harness, if anything."""
    if not (broken := history.noted("harness.error")):
        return (
            None
            if history.noted("world.end")
            else Void(VoidCode.NO_END, "its event log has no end")
        )
    values = broken[0].event.values
    return Void(VoidCode.HARNESS_ERROR, short(f"{values.get('type')}: {values.get('message')}"))


def shown(value: JSON, limit: int = TEXT_LIMIT) -> str:
    """Return a value of an event as a reader wants it: text as it is, names and values in words,
    the rest as JSON.
    """
    if isinstance(value, str):
        return short(value, limit)
    if isinstance(value, dict) and all(
        isinstance(inner, str | int | float) for inner in value.values()
    ):
        return short(", ".join(f"{key} {inner}" for key, inner in value.items()), limit)
    return short(canonical(value), limit)


def short(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return at most 300 characters of a text, or so many, and how many were left out."""
    return bounded(text, limit)
