"""A search judged again: every part from its own evidence, then the words and the text."""

from __future__ import annotations

from collections.abc import Sequence

from harness.record.assemble import difference
from harness.record.model import PATH, RecordError
from harness.series.search import plan
from harness.series.search.facts import SearchFacts
from harness.series.search.prompts import prompts
from harness.series.search.record import SearchRecord, assemble
from harness.series.search.report import render
from harness.series.series import code
from harness.trust.replay import CannotRender, Read, Replay


class SearchReplay(Replay):
    """All of it for one report of a search. Use once."""

    def __init__(self) -> None:
        super().__init__()
        self.record: SearchRecord | None = None

    def judge(self, read: Read, names: Sequence[str]) -> str | None:
        """Work the record out again, from the evidence of every part."""
        try:
            record = assemble(read, [name for name in names if name != PATH])
        except RecordError as error:
            return str(error)
        if (found := difference(read(PATH), record.encode())) is not None:
            return found
        other = _other_plan(record.facts)
        if other and record.facts.code == code():
            return f"it says that this very code made it, which would have planned otherwise: {other}"
        self.record = record
        # Whoever signs could leave out a part or a prompt, or ask less of one, and say that other code did: what this
        # version would plan is said beside.
        self.arrays = f"its plan is not the one of this version: {other}" if other else "its plan is this version's"
        if not all(part.arrays for part in record.facts.parts):
            self.arrays += "; logits and weights are not in its evidence: how far they lie apart is as the signer says"
        return None

    def render(self, read: Read, manifest_digest: str) -> bytes:
        """Render the body from the record."""
        return render(self._record(read), manifest_digest=manifest_digest)

    def signer(self, read: Read) -> str | None:
        """The key that the record names."""
        signer = self._record(read).facts.signer
        return None if signer is None else signer.key

    def _record(self, read: Read) -> SearchRecord:
        if self.record is None:
            try:
                self.record = SearchRecord.decode(read(PATH))
            except RecordError as error:
                raise CannotRender(str(error)) from None
        return self.record


def _other_plan(facts: SearchFacts) -> str:
    """How its plan differs from what this version would make of the same models; empty where it does not."""
    try:
        arrays = any(part.arrays for part in facts.parts)
        own = {part.name: part for part in plan.parts(plan.chosen(list(facts.models)), arrays=arrays)}
    except plan.Nothing as error:
        return f"this version cannot plan such a search: {error}"
    theirs = {part.name: part for part in facts.parts}
    odd = sorted(name for name in own.keys() | theirs.keys() if own.get(name) != theirs.get(name))
    odd += ["the prompts"] if facts.prompts != prompts() else []
    odd += ["the code of the ranks"] if facts.subject != plan.subject() else []
    return f"it asks otherwise of {', '.join(odd[:3])}" if odd else ""
