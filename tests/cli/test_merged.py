"""What a run of several scenarios comes to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.cli import FAIL, INCONCLUSIVE, PASS
from harness.cli.running import _merged
from harness.run.run import Finished
from tests.kit.records import cell, record


def ended(role: str, verdict: Any) -> Finished:
    """A run of one scenario that ended so; self-tests expect to PASS."""
    found = record(
        cell(verdict=verdict),
        scenario={"role": role, "expects": "PASS" if role == "self-test" else None},
    )
    return Finished(record=found, folder=Path(), signer=None)


@pytest.mark.parametrize(
    ("ran", "code"),
    [
        ([("claim", "PASS"), ("self-test", "PASS")], PASS),
        ([("claim", "PASS"), ("self-test", "INCONCLUSIVE")], FAIL),
        ([("claim", "PASS"), ("self-test", "SKIPPED")], PASS),
        ([("self-test", "PASS"), ("self-test", "SKIPPED")], PASS),
        ([("self-test", "SKIPPED")], INCONCLUSIVE),
        ([("self-test", "SKIPPED"), ("self-test", "SKIPPED")], INCONCLUSIVE),
        ([("claim", "SKIPPED")], INCONCLUSIVE),
        ([("claim", "SKIPPED"), ("self-test", "PASS")], INCONCLUSIVE),
        ([("claim", "FAIL"), ("self-test", "SKIPPED")], FAIL),
    ],
    ids=str,
)
def test_a_self_test_that_cannot_run_here_merges_with_nothing(
    ran: list[tuple[str, str]], code: int
) -> None:
    """What no machine of this kind can run speaks neither for nor against the tool.

    Alone it is INCONCLUSIVE.
    """
    assert _merged([ended(*one) for one in ran], not_run=0) == code
