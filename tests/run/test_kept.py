"""What can be kept and compared: files of programs, logits, more than is looked at."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.trust.key import find_signer
from tests.kit.commands import run_command
from tests.run.test_artefacts import SCENARIO, SUBJECT

pytestmark = pytest.mark.slow


@pytest.mark.whole
def test_of_a_file_that_was_not_looked_at_it_is_said(tmp_path: Path) -> None:
    """Of eight thousand artefacts the last is not looked at, which is not the same as not kept."""
    many = SUBJECT.replace(
        'context.keep("total", total)',
        """context.keep("total", total)
    # One rank of one arm: each file costs the rank and the harness time.
    for number in range(8300 if context.rank and not stale else 0):
        context.keep(f"a{number}", b"")""",
    )
    folder = tmp_path / "scenario"
    folder.mkdir()
    (folder / "scenario.yaml").write_text(SCENARIO)
    (folder / "subject.py").write_text(many)
    tried = run_command(tmp_path, "run", str(folder), "--try", "--all")
    assert (
        "total was not kept, or not checked: the rank left 8302 files, but only 8192 are read"
        in tried.out
    )


PROGRAM = """
import os, struct
header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }"
header += b" " * (-(10 + len(header) + 1) % 64) + b"\\n"
os.write(3, b'{"event": "ready"}\\n')
os.read(4, 1)
off = 0.5 if os.environ["RANKPROOF_WITH_STALE"] == "true" and os.environ["RANK"] == "1" else 0.0
with open(os.path.join(os.environ["RANKPROOF_KEEP"], "total.npy"), "wb") as file:
    file.write(b"\\x93NUMPY\\x01\\x00" + struct.pack("<H", len(header)) + header + struct.pack("<2d", 1.0, 2.0 + off))
"""


def test_a_program_puts_a_file_into_its_folder(tmp_path: Path) -> None:
    """In any language: a file of NumPy's format in the folder that RANKPROOF_KEEP names."""
    folder = tmp_path / "scenario"
    folder.mkdir()
    program = SCENARIO.replace("entry: subject:add", f"program: [{sys.executable}, rank.py]")
    (folder / "scenario.yaml").write_text(program)
    (folder / "rank.py").write_text(PROGRAM)
    ran = run_command(tmp_path, "run", str(folder))
    assert ran.code == 0, ran.out + ran.err
    assert (
        "found 2.5, expected 2 (off by 0.5 at \\[1\\]; 1 of 2 elements beyond atol 0.25)"
        in (ran.folder / "report.md").read_text()
    )


LOGITS = """
import numpy as np

def add(context, *, stale):
    logits = np.tile(np.arange(6.0), (3, 1))
    logits[1] += 0.001 * context.rank * np.arange(6)
    if stale and context.rank:
        logits[1, 0] += 9
    context.keep("total", logits)
"""


@pytest.mark.whole
def test_logits_are_compared_as_distributions(tmp_path: Path) -> None:
    """Run, signed and judged again: the position, and the tokens there."""
    scenario = SCENARIO.replace("kind: close", "kind: distribution").replace(
        "atol: 0.25", "kl: 0.01, rank: 1"
    )
    folder = tmp_path / "scenario"
    folder.mkdir()
    (folder / "scenario.yaml").write_text(scenario)
    (folder / "subject.py").write_text(LOGITS)
    ran = run_command(tmp_path, "run", str(folder))
    assert ran.code == 0, ran.out + ran.err
    report = (ran.folder / "report.md").read_text()
    assert "artefact total is not close: KL" in report
    assert "at position 1, allowed: 0.01" in report
    fingerprint = find_signer(
        explicit=str(tmp_path / "home/.local/share/rankproof/signing_key")
    ).fingerprint
    verified = run_command(
        tmp_path, "verify", str(ran.folder / "report.md"), "--signer", fingerprint
    )
    assert (verified.code, "10 array comparisons repeated" in verified.out) == (
        0,
        True,
    ), verified.out
