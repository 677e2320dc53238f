"""The views of a record, by the names of their files: adding one is adding its file and its line
here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from harness.forms import manifest
from harness.record.model import PATH
from harness.registry import Registry
from harness.report import junit, page, step_summary
from harness.report.view import View

ASKED = "RANKPROOF_VIEWS"
VIEWS: Registry[View] = Registry(
    "rankproof.views",
    View,
    {view.name: view for view in (page.VIEW, junit.VIEW, step_summary.VIEW)},
    taken=("evidence", "report.md", PATH, manifest.NAME, "attestation.dsse.json"),
)


def checked() -> Mapping[str, View]:
    """The views that are beside a report and are checked with it: our own, and those of plug-ins
    that were asked for.

    Nothing in a scenario names a view, so RANKPROOF_VIEWS does, with names separated by commas.
    """
    asked = [name for name in os.environ.get(ASKED, "").split(",") if name in VIEWS]
    own = [view for view in VIEWS.ours.values() if view.checked]
    return {view.name: view for view in (*own, *(VIEWS[name] for name in asked)) if view.checked}
