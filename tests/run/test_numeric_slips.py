"""A control that slips in what it keeps has compared nothing, and buys no PASS: each slip in a real
run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.reason import DeviationCode, VerdictCode
from tests.kit.commands import Ran, run_command

pytestmark = pytest.mark.slow

SUBJECT = """
import numpy as np

def right():
    return np.random.default_rng(7).standard_normal((6, 16)).astype("float32") * 4

def keep(context, *, slip):
    it = right()
    slip = slip if context.rank else "none"
    if slip == "wrong":
        it[2] = it[2][::-1]
    if slip == "early":
        return
    if slip == "nothing":
        context.emit("said", it=None, total=None)
        return
    name = "logit" if slip == "name" else "logits"
    kept = {
        "all-nan": lambda: np.full_like(it, np.nan),
        "one-nan": lambda: np.where(np.arange(96).reshape(6, 16) == 5, np.nan, it).astype("float32"),
        "overflow": lambda: np.where(it > 0, np.inf, it).astype("float32"),
        "transposed": lambda: it.T,
        "flat": lambda: it.reshape(-1),
        "cut": lambda: it[:5],
        "deeper": lambda: it[None],
        "one-row": lambda: it[2],
        "scalar": lambda: np.float32(it.sum()),
        "empty": lambda: it[:0],
        "double": lambda: it.astype("float64") + 1,
        "half": lambda: it.astype("float16") + 1,
        "integer": lambda: (it + 2).astype("int32"),
        "bool": lambda: it > 0,
        "text": lambda: b"no array",
    }.get(slip, lambda: it)()
    context.keep(name, kept)
    if slip != "unsaid":
        said = it.tolist() if not isinstance(kept, np.ndarray) or not np.isfinite(kept).all() else kept.tolist()
        key = "its" if slip == "name" else "it"
        context.emit("said", **{key: said, "total": "1.5" if slip == "text" else 1.5})
"""
SCENARIO = """
schema: 1
id: slips
title: Every rank has the logits
question: Does every rank hold the same logits?
subject:
  entry: subject:keep
  candidate: {{with: {{slip: none}}}}
  control:
    must_fail: {{check: same, ranks: [1]{more}}}
matrix: {{ranks: [2], backend: [none], slip: [{slips}]}}
world: {{deadline: 30s}}
seed: "7"
trials: {{candidate: 5, control: 2, accept: {{failure_rate_below: 50%}}}}
checks:
  - {{id: same, ranks: nonzero, {check}}}
"""
CLOSE = "kind: close, artefact: logits, against: 0, atol: 0.25"
DISTRIBUTION = "kind: distribution, artefact: logits, against: 0, kl: 0.001"
VALUE = "kind: close, value: said.it, against: 0, atol: 0.25"
SLIPS = (
    "name, early, all-nan, one-nan, overflow, transposed, flat, cut, deeper, one-row, scalar,"
    " empty, double, half, integer, bool, text"
)


def ran(
    tmp_path: Path, check: str, slips: str, *, more: str = "", options: tuple[str, ...] = ()
) -> Ran:
    """The run of a control with each of these slips, a cell each."""
    folder = tmp_path / "scenario"
    folder.mkdir(parents=True)
    text = SCENARIO.format(check=check, slips=slips, more=more)
    # Of an axis both arms are given the value, and the candidate has no slip.
    (folder / "scenario.yaml").write_text(
        text.replace("{with: {slip: none}}", "{with: {healthy: true}}")
    )
    (folder / "subject.py").write_text(
        SUBJECT.replace("*, slip)", "*, slip, healthy=False)").replace(
            "if context.rank else", "if context.rank and not healthy else"
        )
    )
    return run_command(tmp_path, "run", str(folder), *options)


# Too few for a PASS: what is asked is the verdict's own reason.
FEW = ("--set", "trials.candidate=1", "--set", "trials.control=1")


def compare_nothing(tmp_path: Path, check: str, slips: str) -> None:
    """A wrong number is a PASS; none of the slips is a failure as required, each for want of a
    comparison.
    """
    assert words(ran(tmp_path / "wrong", check, "wrong")) == {"wrong": ("PASS", set())}
    found = ran(tmp_path, check, slips, options=FEW)
    slipped = ("INCONCLUSIVE", {DeviationCode.NOT_COMPARED})
    assert words(found) == dict.fromkeys(slips.split(", "), slipped)
    for cell in found.record.judgement.cells:
        assert VerdictCode.CONTROL_NOT_AS_STATED in {reason.code for reason in cell.reasons}


def words(found: Ran) -> dict[str, tuple[str, set[str]]]:
    """By slip, the verdict, and the codes of what the control did instead of failing as required."""
    told: dict[str, tuple[str, set[str]]] = {}
    for cell in found.record.judgement.cells:
        assert cell.control is not None
        told[cell.id.rpartition("slip=")[2]] = (
            cell.verdict,
            {str(one.code) for one in cell.control.otherwise},
        )
    return told


@pytest.mark.whole
@pytest.mark.parametrize(
    "check",
    [
        pytest.param(CLOSE, id="close"),
        pytest.param(DISTRIBUTION, id="distribution", marks=pytest.mark.whole),
    ],
)
def test_a_slip_in_what_a_control_keeps_is_no_failure_as_stated(tmp_path: Path, check: str) -> None:
    """Another name, shape, dtype, nothing, NaN: INCONCLUSIVE for want of a comparison.

    A wrong number is a PASS.
    """
    of_dtype = {"double", "half", "integer", "bool"} if check is DISTRIBUTION else set()
    slips = ", ".join(one for one in SLIPS.split(", ") if one not in of_dtype)
    compare_nothing(tmp_path, check, slips)


@pytest.mark.whole
def test_a_slip_in_what_a_control_reports_is_no_failure_as_stated(tmp_path: Path) -> None:
    """The same of values of events: unsaid, nothing, under another key, of another shape."""
    slips = "name, early, nothing, unsaid, transposed, flat, cut, deeper, one-row, empty"
    compare_nothing(tmp_path, VALUE, slips)


@pytest.mark.parametrize(
    "check",
    [
        "kind: equal, value: said.it, against: 0",
        "kind: equal, value: said.total, to: 1.5",
        "kind: at-most, value: said.total, to: 2",
        "kind: at-least, value: said.total, to: 1",
    ],
    ids=["equal", "equal-to", "at-most", "at-least"],
)
@pytest.mark.whole
def test_whoever_does_not_report_is_not_wrong(tmp_path: Path, check: str) -> None:
    """A value that was not reported was not compared, by whichever check."""
    told = words(ran(tmp_path, check, "early, unsaid"))
    assert told == dict.fromkeys(
        ("early", "unsaid"), ("INCONCLUSIVE", {DeviationCode.NOT_COMPARED})
    )


@pytest.mark.long
def test_what_is_stated_to_be_missing_of_another_shape_or_not_finite_is_a_pass(
    tmp_path: Path,
) -> None:
    """Each where it is stated, and the report says so.

    Where something else fails instead it is INCONCLUSIVE.
    """
    slips = "name, early, all-nan, one-nan, transposed, empty, wrong"
    stated = {
        "missing": {"name", "early"},
        "shape": {"transposed", "empty"},
        "nonfinite": {"all-nan", "one-nan"},
    }
    for want, passing in stated.items():
        (tmp_path / want).mkdir()
        found = ran(tmp_path / want, CLOSE, slips, more=f", {want}: true")
        told = words(found)
        assert {slip for slip, (verdict, _) in told.items() if verdict == "PASS"} == passing, want
        assert told["wrong"] == ("INCONCLUSIVE", {DeviationCode.NOT_COMPARED})
        words_of = {
            "missing": "do not report or keep",
            "shape": "have a different shape",
            "nonfinite": "is NaN or infinite",
        }
        assert words_of[want] in str(found.record.scenario.must_fail)
