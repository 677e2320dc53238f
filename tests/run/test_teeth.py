"""A tolerance that nothing could exceed buys no PASS: the harness tries wrong arrays itself, in
real runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.reason import VerdictCode
from harness.trust.key import find_signer
from tests.kit.commands import Ran, run_command

pytestmark = pytest.mark.slow

SUBJECT = """
import numpy as np

def made(case):
    random = np.random.default_rng(1)
    logits = random.standard_normal((64, 128)).astype("float32") * 4
    rows = np.arange(64)[:, None]
    bits = logits.view(np.uint32) & np.uint32(0xFFFF0000)
    return {
        "logits": logits,
        "zeros": np.zeros((64, 128), "float32"),
        "constant": np.full((64, 128), 3.5, "float32"),
        "rows": np.repeat(logits[:, :1], 128, 1),
        "mostly-nan": np.where(rows == 5, logits, np.nan).astype("float32"),
        "mostly-overflown": np.where(rows % 3 == 0, logits, np.inf).astype("float32"),
        "some-nan": np.where(rows < 20, np.nan, logits).astype("float32"),
        "masked": np.where(np.tril(np.ones((64, 128))), logits, -np.inf).astype("float32"),
        "hidden": logits / 200,
        "softmax": np.exp(random.standard_normal(32000) * 0.1) / 32000,
        "rope": np.cos(np.outer(np.arange(16), 1 / 10000 ** (np.arange(32) / 32))),
        "mask": np.array([1, 1, 1, 0.0]),
        "scalar": np.array([3.2]),
        "whole-numbers": np.arange(64),
        "norms": 1 + random.standard_normal(16) * 1e-3,
        "bfloat16": bits.view(np.float32),
        "one-hot": np.eye(64),
        "ones": np.ones(16),
        "masked-least": np.where(np.tril(np.ones((64, 128))), logits, np.finfo("float32").min),
        "padded": np.where(np.arange(128) < 100, logits, -np.inf).astype("float32"),
        "padded-billion": np.where(np.arange(128) < 100, logits, -1e9).astype("float32"),
        "one-each": np.where(np.arange(128) == rows, logits, -np.inf).astype("float32"),
        "tiled": np.tile(logits[0], 2),
        "outlier": np.where(np.arange(8192).reshape(64, 128) == 300, 5000, logits).astype("float32"),
        "spike": np.where(np.arange(8192).reshape(64, 128) == 300, 1e6, 0).astype("float32"),
    }[case]

def struck(case, *, off, rank):
    it = np.array(made(case))
    if off and rank:
        place = np.unravel_index(np.flatnonzero(np.isfinite(it))[0], it.shape)
        it[place] += np.array(off, it.dtype)
    return it

def keep_each(context, *, cases, off):
    for case in cases:
        context.keep(case, struck(case, off=off, rank=context.rank))

def keep(context, *, case, off):
    it = struck(case, off=off, rank=context.rank)
    context.keep("it", it)
    if it.size < 10000 and np.isfinite(it).all():
        context.emit("said", it=it.tolist())
"""
SCENARIO = """
schema: 1
id: teeth
title: Every rank has the same
question: Does every rank hold the same?
subject:
  entry: subject:keep
  candidate: {{with: {{off: 0}}}}
  control:
    with: {{off: {off}}}
    must_fail: {{check: same, ranks: [1]}}
matrix: {{ranks: [2], backend: [none], case: [{cases}]}}
world: {{deadline: 30s}}
seed: "7"
trials: {{{trials}, accept: {{failure_rate_below: 50%}}}}
checks:
  - {{id: same, ranks: nonzero, against: 0, {check}}}
"""
CLOSE = "kind: close, artefact: it"
VALUE = "kind: close, value: said.it"


ENOUGH = "candidate: 5, control: 2"
ONE_EACH = "candidate: 1, control: 1"


def ran(tmp_path: Path, check: str, cases: str, *, off: float = 1, trials: str = ENOUGH) -> Ran:
    """The run of a check on each of these arrays, a cell each, beside a control with one element
    off.
    """
    folder = tmp_path / "scenario"
    folder.mkdir()
    (folder / "scenario.yaml").write_text(
        SCENARIO.format(check=check, cases=cases, off=off, trials=trials)
    )
    (folder / "subject.py").write_text(SUBJECT)
    return run_command(tmp_path, "run", str(folder))


def verdicts(found: Ran) -> dict[str, str]:
    """By case, the verdict, and whether the check was toothless."""
    told = {}
    for cell in found.record.judgement.cells:
        toothless = any(reason.code == VerdictCode.TOOTHLESS for reason in cell.reasons)
        told[cell.id.rpartition("case=")[2]] = f"{cell.verdict}{' toothless' if toothless else ''}"
    return told


TOOTHLESS = "INCONCLUSIVE toothless"


def one_world(tmp_path: Path, check: str, cases: Sequence[str]) -> Ran:
    """The run of a check on each of these arrays, all kept by the same trials."""
    text = SCENARIO.format(check=check, cases="all", off=1, trials=ENOUGH)
    text = text.partition("checks:")[0].replace("check: same,", f"check: {cases[0]},")
    text = text.replace(", case: [all]", "").replace("subject:keep", "subject:keep_each")
    text = text.replace("{off: ", f"{{cases: [{', '.join(cases)}], off: ")
    rows = [
        f"  - {{id: {case}, ranks: nonzero, against: 0, kind: close, artefact: {case}, {check}}}"
        for case in cases
    ]
    folder = tmp_path / cases[0]
    folder.mkdir()
    (folder / "scenario.yaml").write_text("\n".join([f"{text}checks:", *rows, ""]))
    (folder / "subject.py").write_text(SUBJECT)
    return run_command(tmp_path, "run", str(folder))


@pytest.mark.whole
def test_an_array_that_says_nothing_and_a_tolerance_that_allows_it(tmp_path: Path) -> None:
    """Zeros, one constant, NaN in most rows, numbers below the tolerance: toothless, and it
    verifies.
    """
    dull = ("zeros", "constant", "mostly-nan", "mostly-overflown", "hidden", "softmax", "ones")
    sharp = ("logits", "rows", "some-nan", "masked", "rope", "norms", "bfloat16", "one-hot")
    sharp += ("mask", "scalar", "whole-numbers")
    allowed = "atol: 0.5, nonfinite: allowed"
    good = one_world(tmp_path, allowed, sharp)
    (cell,) = good.record.judgement.cells
    assert (cell.verdict, cell.reasons) == ("PASS", []), good.out
    assert "no array of 8 floats or more was compared" in (good.folder / "report.md").read_text()
    found = one_world(tmp_path, allowed, dull)
    (cell,) = found.record.judgement.cells
    assert cell.verdict == "INCONCLUSIVE"
    assert {reason.code for reason in cell.reasons} == {VerdictCode.TOOTHLESS}
    for case, reason in zip(dull, cell.reasons, strict=True):
        assert f"check {case} " in str(reason)
    report = (found.folder / "report.md").read_text()
    assert "the largest number compared is 0.07864 in size" in report
    key = find_signer(explicit=str(tmp_path / "home/.local/share/rankproof/signing_key"))
    verified = run_command(
        tmp_path, "verify", str(found.folder / "report.md"), "--signer", key.fingerprint
    )
    assert verified.code == 0, verified.out + verified.err


@pytest.mark.long
@pytest.mark.parametrize(
    ("check", "cases", "off", "words"),
    [
        (f"{CLOSE}, atol: 100", "logits", 200, TOOTHLESS),
        (f"{VALUE}, atol: 100", "logits, zeros", 200, TOOTHLESS),
        (f"{CLOSE}, atol: 30", "logits", 31, TOOTHLESS),  # the range of the numbers
        (f"{CLOSE}, atol: 1e-3", "softmax", 0.5, TOOTHLESS),
        (f"{CLOSE}, atol: 0.05", "hidden", 0.1, TOOTHLESS),
        (f"{CLOSE}, rtol: 0.9999", "norms", 1.5, TOOTHLESS),
        (f"{CLOSE}, ulp: 4000000000", "logits", 1, TOOTHLESS),
        ("kind: distribution, artefact: it, kl: 50", "logits, constant, rows", 200, TOOTHLESS),
        ("kind: distribution, artefact: it, rank: 127", "logits", -100, TOOTHLESS),
        (
            "kind: distribution, artefact: it, top: 5, overlap: 1, kl: 60",
            "constant, rows",
            1,
            TOOTHLESS,
        ),
        # A mask is no number that a tolerance could refuse, nor is it the largest one compared.
        (
            f"{CLOSE}, atol: 100, nonfinite: allowed",
            "masked, masked-least, padded-billion, one-each",
            200,
            TOOTHLESS,
        ),
        (f"{CLOSE}, atol: 100", "tiled", 200, TOOTHLESS),
        (f"{VALUE}, atol: 100", "masked-least, padded-billion, tiled", 200, TOOTHLESS),
        ("kind: distribution, artefact: it, kl: 50", "padded, padded-billion", 200, TOOTHLESS),
        (
            f"{CLOSE}, atol: 0.01, nonfinite: allowed",
            "masked, masked-least, padded, one-each, tiled",
            1,
            "PASS",
        ),
        (f"{VALUE}, atol: 0.01", "masked-least, padded-billion, tiled", 1, "PASS"),
        ("kind: distribution, artefact: it, kl: 1e-3", "padded, padded-billion", 20, "PASS"),
        (f"{CLOSE}, rtol: 1e-2", "norms, rope, bfloat16", 0.5, "PASS"),
        (f"{VALUE}, rtol: 1e-2", "norms, rope, scalar", 0.5, "PASS"),
        (f"{CLOSE}, rtol: 2e-2, atol: 0.05", "bfloat16", 1, "PASS"),
        (f"{CLOSE}, atol: 0", "zeros, constant, ones", 1, "PASS"),
        (f"{CLOSE}, atol: 0.01", "hidden", 0.05, "PASS"),
        ("kind: distribution, artefact: it, kl: 1e-3", "logits", 20, "PASS"),
    ],
)
def test_tolerances(tmp_path: Path, check: str, cases: str, off: float, words: str) -> None:
    """What nothing of that size could exceed is toothless.

    A control that fails by less than the scale is tooth. One trial of each arm shows what is
    toothless; that enough trials do not make it a PASS is the promise of the test above.
    """
    trials = ENOUGH if words == "PASS" else ONE_EACH
    found = ran(tmp_path, check, cases, off=off, trials=trials)
    told = verdicts(found)
    assert told == dict.fromkeys(cases.split(", "), words), found.out


@pytest.mark.whole
def test_what_wrong_arrays_leave_open_is_told(tmp_path: Path) -> None:
    """A tolerance that only the control exceeded, elements that never differ, arrays that are
    mostly no numbers.
    """
    cases = {
        "outlier": (
            "Check same accepts every wrong array that the harness tried instead of the right one"
            " (2 arrays, such as rolled by 64 along axis 1). It allows atol 100, and the largest"
            " number compared is 5000 in size. Only the control shows that the check can fail, with a difference of 200"
        ),
        "spike": (
            "Of 8192 elements that check same compares, no tried wrong array differs in more than 2. The others are equal or masked, so this run does not show that they"
            " were computed"
        ),
        "one-each": (
            "More than half of the values that check same compared on rank 1 are NaN or infinite on both sides"
        ),
        "whole-numbers": (
            "No wrong array was tried on check same because no array of 8 floats or more was compared, so this run does not show that atol 100 rejects one"
        ),
    }
    check = f"{CLOSE}, atol: 100, nonfinite: allowed"
    found = ran(tmp_path, check, ", ".join(cases), off=200, trials=ONE_EACH)
    told = found.record.judgement.unshown
    for case, sentence in cases.items():
        assert f"{sentence} (ranks=2,backend=none,case={case})." in told, told
    assert "Only the control shows that the check can" in (found.folder / "report.md").read_text()


def test_a_relative_tolerance_of_one_is_refused(tmp_path: Path) -> None:
    """It would take 0 for any number: an error before anything runs."""
    found = ran(tmp_path, f"{CLOSE}, rtol: 5", "logits")
    assert found.code == 64 or found.code != 0
    assert "checks[0].rtol" in found.out + found.err
    assert not (tmp_path / "results").exists()
