"""The views of a record, by the names of their files: adding one is adding its file and its line here."""

from __future__ import annotations

from collections.abc import Mapping

from harness.forms import manifest
from harness.plugins import Registry
from harness.record.model import PATH
from harness.report import junit, page, step_summary
from harness.report.view import View

VIEWS: Registry[View] = Registry(
    "rankproof.views",
    View,
    {view.name: view for view in (page.VIEW, junit.VIEW, step_summary.VIEW)},
    taken=("evidence", "report.md", PATH, manifest.NAME, "attestation.dsse.json"),
)


def checked() -> Mapping[str, View]:
    """The views that lie beside a report and are checked with it."""
    return {view.name: view for view in VIEWS.values() if view.checked}
