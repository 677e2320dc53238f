"""A matrix judged again: every part from its own evidence, then the counts, the picture and the text."""

from __future__ import annotations

from collections.abc import Sequence

from harness.record.assemble import difference
from harness.record.model import PATH, RecordError
from harness.series.matrix import figure, plan
from harness.series.matrix.facts import STANDARD, MatrixFacts
from harness.series.matrix.record import MatrixRecord, assemble
from harness.series.matrix.report import render
from harness.series.series import code
from harness.trust.replay import CannotRender, Read, Replay

LEFT_OUT = {"without": "what has no case", "unused": "which checks no case needs"}


class MatrixReplay(Replay):
    """All of it for one report of a matrix. Use once."""

    def __init__(self, record: MatrixRecord | None = None) -> None:
        super().__init__()
        self.record = record

    def judge(self, read: Read, names: Sequence[str]) -> str | None:
        """Count again, from the evidence of every part."""
        evidence = [name for name in names if name not in (PATH, figure.PATH)]
        try:
            record = assemble(read, evidence)
        except RecordError as error:
            return str(error)
        if (found := difference(read(PATH), record.encode())) is not None:
            return found
        if figure.PATH not in names or read(figure.PATH) != figure.draw(record):
            return f"{figure.PATH} is not what the record draws"
        if why := refusal(record.facts):
            return why
        self.record = record
        # A matrix takes hours, and its evidence stands for the version that made it. But whoever signs could leave a
        # case out, or state less of it, and say that other code did: so what this version would plan is said beside.
        other = other_plan(record.facts)
        self.arrays = f"its plan is not the one of this version: {other}" if other else "its plan is this version's"
        return None

    def render(self, read: Read, manifest_digest: str) -> bytes:
        """Render the body from the record."""
        return render(self._record(read), manifest_digest=manifest_digest)

    def signer(self, read: Read) -> str | None:
        """The key that the record names."""
        signer = self._record(read).facts.signer
        return None if signer is None else signer.key

    def _record(self, read: Read) -> MatrixRecord:
        if self.record is None:
            try:
                self.record = MatrixRecord.decode(read(PATH))
            except RecordError as error:
                raise CannotRender(str(error)) from None
        return self.record


def refusal(facts: MatrixFacts) -> str:
    """Why a plan cannot be what it says: this very code made it, and would have planned otherwise."""
    if facts.code != code() or not (other := other_plan(facts)):
        return ""
    return f"it says that this very code made it, which would have planned otherwise: {other}"


def other_plan(facts: MatrixFacts) -> str:
    """How its plan differs from what this version would make of the same question; empty where it does not."""
    try:
        own = plan.planned(
            only=facts.only, backends=facts.backends, sample=facts.sample, seeds=facts.seeds, seed=facts.seed
        )
    except plan.Nothing as error:
        return f"this version cannot plan such a matrix: {error}"
    ours = {part.name: part for part in own["parts"]}
    theirs = {part.name: part for part in facts.parts}
    other = [name for name in ours if name in theirs and ours[name] != theirs[name]]
    other += [name for name, digest in own["subjects"].items() if facts.subject_of(name) not in (None, digest)]
    other += [STANDARD] if own["subject"] != facts.subject else []
    left = [words for key, words in LEFT_OUT.items() if own[key] != getattr(facts, key)]
    told = [
        f"{what} {', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
        for what, names in (
            ("it lacks", sorted(ours.keys() - theirs.keys())),
            ("it has beside", sorted(theirs.keys() - ours.keys())),
            ("it asks otherwise of", other),
            ("it says otherwise", left),
        )
        if names
    ]
    return "; ".join(told)
