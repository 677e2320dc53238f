"""A matrix judged again: every part from its own evidence, then the counts, the picture and the text."""

from __future__ import annotations

from collections.abc import Sequence

from harness.forms.digest import sha256
from harness.matrix import figure, plan
from harness.matrix.facts import MatrixFacts
from harness.matrix.record import MatrixRecord, assemble
from harness.matrix.report import render
from harness.record.assemble import difference
from harness.record.model import PATH, RecordError
from harness.trust.replay import CannotRender, Read, Replay


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
        self.record = record
        self.arrays = _other_plan(record.facts)
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


def _other_plan(facts: MatrixFacts) -> str:
    """How its plan differs from what this version would make of the same question; empty where it does not.

    A matrix takes hours, and its evidence stands for the version that made it. But whoever signs could leave a case
    out, or state less of it: so what this version would have planned is said beside.
    """
    try:
        asked = plan.chosen(only=facts.only, backends=facts.backends, sample=facts.sample)
    except plan.Nothing as error:
        return f"this version cannot plan such a matrix: {error}"
    own = {part.name: part for part in plan.parts(asked, seeds=facts.seeds, seed=facts.seed)}
    theirs = {part.name: part for part in facts.parts}
    lost = sorted(own.keys() - theirs.keys())
    more = sorted(theirs.keys() - own.keys())
    other = sorted(name for name in own.keys() & theirs.keys() if own[name] != theirs[name])
    subject = [plan.SUBJECT] if sha256(plan.subject()) != facts.subject else []
    told = [
        f"{what} {', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
        for what, names in (("it lacks", lost), ("it has beside", more), ("it asks otherwise of", [*other, *subject]))
        if names
    ]
    return f"its plan is not the one of this version: {'; '.join(told)}" if told else "its plan is this version's"
