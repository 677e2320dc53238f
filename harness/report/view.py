"""What a view is, and what it is rendered from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.forms.digest import sha256
from harness.record.model import PATH, Record


@dataclass(frozen=True, kw_only=True)
class Basis:
    """What a view is rendered from, the same for all of them.

    Attributes:
        record: the record.
        manifest_digest: sha256 of `MANIFEST.sha256`, in hex.
        read: gives the bytes of a file of the evidence by its path; figures are among them.
        report: where the signed report is, as a reader of the view finds it.
    """

    record: Record
    manifest_digest: str
    read: Callable[[str], bytes]
    report: str = "report.md"

    @property
    def record_digest(self) -> str:
        """sha256 of `results.json`, in hex."""
        return sha256(self.read(PATH))


@dataclass(frozen=True, kw_only=True)
class View:
    """One view of a record: a file of its own declares it, `harness.report.views` names it.

    A plug-in's view is made and checked where `RANKPROOF_VIEWS` names it, with commas between
    several names.

    Attributes:
        name: what its file is called.
        media_type: of its content.
        checked: whether it is written beside every report, and rendered again, byte for byte, by
            whoever verifies; then it may depend on record, digests and evidence alone.
        render: makes its bytes.
    """

    name: str
    media_type: str
    checked: bool
    render: Callable[[Basis], bytes]
