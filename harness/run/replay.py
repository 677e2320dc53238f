"""Judging a finished run again, and writing again what was made of it: the same functions that made
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from harness import __version__
from harness.forms.digest import sha256
from harness.forms.strict_json import NotStrict, strict_json
from harness.plugins import PluginFailed
from harness.record import sources
from harness.record.assemble import assemble, difference
from harness.record.facts import FORMAT
from harness.record.facts import PATH as RUN_PATH
from harness.record.model import PATH, Contradiction, Record, RecordError, Unknown
from harness.report.appendix import evidence_among, files_of
from harness.report.report import render
from harness.report.view import VIEWS, Basis, View, checked
from harness.trust import statement
from harness.trust.replay import CannotJudge, CannotRender, Read, Replay
from harness.trust.verification import Refused


class RecordReplay(Replay):
    """All of it for one report: report, statement and views are made from the same bytes, one after
    the other.

    A record that was worked out is byte for byte `results.json`: it is not read once more. Use
    once.

    Attributes:
        record: the record of the run, once it was worked out or read; a run that has just ended
            brings its own.
    """

    makes_statements = True

    def __init__(self, record: Record | None = None) -> None:
        super().__init__()
        self.record = record
        # Each refuses (CannotRender) a record of another format, or one whose views another version
        # drew.
        self.views = {name: partial(self._draw, view) for name, view in checked().items()}

    def judge(self, read: Read, names: Sequence[str]) -> str | None:
        """Work the record out from the evidence, and compare it with `results.json`."""
        record = _judged(read, names, described=self._describe)
        if isinstance(record, str):
            return record
        self.record = record
        return None

    def render(self, read: Read, manifest_digest: str) -> bytes:
        """Render the body from the record."""
        return render(self._record(read), manifest_digest=manifest_digest)

    def signer(self, read: Read) -> str | None:
        """Return the key that the record names."""
        named = self._record(read).run.signer
        return None if named is None else named.key

    def rebuild(self, read: Read, report_digest: str, manifest_digest: str) -> bytes:
        """Return the statement of a run."""
        record = self._record(read)
        source_files = sha256(read(sources.PATH))
        return statement.build(
            record, report=report_digest, manifest=manifest_digest, source_files=source_files
        )

    def _describe(self, arrays: str) -> None:
        self.arrays = arrays

    def _draw(self, view: View, read: Read, manifest_digest: str) -> bytes:
        record = self._record(read)
        # Looks may change between versions, the report's do not.
        if (drawn := record.run.rankproof) != __version__:
            why = (
                f"it was made by rankproof {drawn}, but this is {__version__}; remove it, because"
                " the report does not need it"
            )
            raise CannotRender(why)
        basis = Basis(record=record, manifest_digest=manifest_digest, read=read)
        try:
            with VIEWS.guarded(view.name):
                drawing: object = view.render(basis)
                if not isinstance(drawing, bytes):
                    raise TypeError("its render() did not return bytes")
                return drawing
        except PluginFailed as error:
            raise CannotRender(str(error)) from None

    def _record(self, read: Read) -> Record:
        if self.record is None:
            _demand_format(read, CannotRender)
            try:
                self.record = Record.decode(read(PATH))
            except RecordError as error:
                raise CannotRender(str(error)) from None
        return self.record


def _judged(read: Read, names: Sequence[str], *, described: Callable[[str], None]) -> Record | str:
    """Return the record that the evidence makes, or how it differs from the one that is stated."""
    _demand_format(read, CannotJudge)
    evidence = evidence_among(names)
    try:
        record = assemble(read, evidence, described=described)
    except Unknown as error:
        raise CannotJudge(str(error)) from None
    except Contradiction as error:
        raise Refused(error.word, str(error)) from None
    except RecordError as error:
        return str(error)
    if (differing := difference(read(PATH), record.encode())) is not None:
        return differing
    made = files_of(record, read)
    listed = {*names} - {*evidence, PATH}
    if unknown := listed ^ made.keys():
        return f"the figures and the appendix do not match this record: {min(unknown)}"
    changed = next((path for path in sorted(made) if read(path) != made[path]), None)
    return record if changed is None else f"{changed} differs from the rendering of the record"


def _demand_format(read: Read, problem: type[CannotJudge | CannotRender]) -> None:
    try:
        number = strict_json(read(RUN_PATH))["format"]
    except (NotStrict, KeyError, TypeError):
        raise problem(f"{RUN_PATH} does not state its format") from None
    if number != FORMAT:
        raise problem(f"the record has format {number}, but this version reads {FORMAT}")
