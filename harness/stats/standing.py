"""Where the ranks of a hung trial stood, as a reader wants it: rank by rank, call by call."""

from __future__ import annotations

from typing import Literal

from harness.forms.model import Model
from harness.history import History
from harness.stats.hang import LineOf, text_of, threads_at

FRAMES_SHOWN = 12
# What the harness notes where it stopped a world that had not ended by itself.
HUNG = ("world.deadline", "world.still", "world.unproved")


class Standing(Model):
    """One rank: the line of the event that shows it, and its calls, innermost first, one text each."""

    rank: int
    line: int
    calls: list[str]


class HungTrial(Model):
    """The first trial of an arm whose world had to be stopped: where each of its ranks stood, and how that was proved.

    `proof` says for how long nothing moved, or why that is not proved; it is empty where no hang was to be proved.
    """

    arm: Literal["candidate", "control"]
    index: int
    evidence: str
    proof: str
    line: int | None
    ranks: list[Standing]


def hung_trial(
    arm: Literal["candidate", "control"], history: History, *, index: int, evidence: str, line_of: LineOf
) -> HungTrial | None:
    """Where the ranks of a trial stood, or None where the trial ended by itself."""
    if not any(history.noted(name) for name in HUNG):
        return None
    proof, line = "", None
    if proved := history.noted("world.still"):
        values = proved[0].event.values
        verb = "was silent" if values.get("spins") is True else "stood still"
        proof, line = f"The world {verb} for {values.get('seconds')} s.", proved[0].line
    if unproved := history.noted("world.unproved"):
        proof, line = f"That it hangs is not proved: {unproved[0].event.values.get('why')}.", unproved[0].line
    ranks = [standing for rank in range(history.size) if (standing := _standing(history, rank, line_of)) is not None]
    return HungTrial(arm=arm, index=index, evidence=evidence, proof=proof, line=line, ranks=ranks)


def _standing(history: History, rank: int, line_of: LineOf) -> Standing | None:
    seen = next((one for one in history.noted("rank.stack", rank) if one.event.values.get("sample") == 1), None)
    if seen is None:
        return None
    calls: list[str] = []
    for number, thread in enumerate(threads_at(history, rank, 1)):
        calls += [f"thread {number}:"] if number else []
        for frame in thread[:FRAMES_SHOWN]:
            text = text_of(frame, line_of) if frame.get("subject") is True else None
            calls.append(
                f"{frame.get('file')}:{frame.get('line')} in {frame.get('function')}" + (f": {text}" if text else "")
            )
    return Standing(rank=rank, line=seen.line, calls=calls) if calls else None
