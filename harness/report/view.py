"""Views of a record beside the report: what each is rendered from, and which there are."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.forms import manifest
from harness.forms.digest import sha256
from harness.record.model import PATH, Record
from harness.registry import Package, Registry


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
    """One view of a record: a file of its own declares it, `harness.report.view` names it.

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


ASKED = "RANKPROOF_VIEWS"
VIEWS: Registry[View] = Registry(
    "rankproof.views",
    View,
    Package(
        "harness.report",
        {
            "report.html": "html:VIEW",
            "junit.xml": "junit:VIEW",
            "step-summary.md": "issue:VIEW",
        },
    ),
    taken=("evidence", "report.md", "appendix.md", PATH, manifest.NAME, "attestation.dsse.json"),
)


def checked() -> Mapping[str, View]:
    """Name the views that are beside a report and are checked with it: our own, and those of
    plug-ins that were asked for.

    Nothing in a scenario names a view, so RANKPROOF_VIEWS does, with names separated by commas.
    """
    asked = [name for name in os.environ.get(ASKED, "").split(",") if name in VIEWS]
    views = {name: VIEWS[name] for name in (*VIEWS.ours, *asked)}
    return {name: view for name, view in views.items() if view.checked}
