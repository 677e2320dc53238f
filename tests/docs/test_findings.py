"""The page of findings is written from the bundles, and each bundle is one that a maintainer can
use.
"""

from __future__ import annotations

import importlib.util
import sys

import pytest

from harness.run.environments.releases import order
from tests.docs.pages import ROOT

SPEC = importlib.util.spec_from_file_location("findings_page", ROOT / "docs" / "findings.py")
assert SPEC is not None
assert SPEC.loader is not None
PAGE = importlib.util.module_from_spec(SPEC)
sys.modules["findings_page"] = PAGE
SPEC.loader.exec_module(PAGE)


@pytest.fixture(scope="module")
def found() -> list[object]:
    """Every bundle's finding."""
    listed: list[object] = PAGE.bundles()
    return listed


def test_the_page_is_what_the_bundles_say(found: list[object]) -> None:
    """docs/findings/README.md is what docs/findings.py writes."""
    page = (ROOT / "docs" / "findings" / "README.md").read_text(encoding="utf-8")
    assert page == PAGE.page(found), "run nox -s docs"


def test_a_bundle_without_a_finding_is_refused(found: list[object]) -> None:
    """Every bundle there has a finding that is shown, with the version that was at fault."""
    assert len(found) >= 5
    for one in found:
        finding = one.finding  # type: ignore[attr-defined]
        assert finding.runs["control"].code == 1, one
        assert finding.runs["control"].version, one


def test_a_fix_is_later_than_the_defect(found: list[object]) -> None:
    """The first fixed release is later than every affected version."""
    for one in found:
        stated = one.finding.stated  # type: ignore[attr-defined]
        if stated.right is not None:
            assert order(stated.right) > max(map(order, stated.at_fault)), one
