"""Forgeries by somebody who holds an allowed key, and subjects that help themselves: none is a
verified PASS.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.record.witness import CONTRADICTIONS
from harness.trust.key import find_signer
from tests.kit import forge
from tests.kit.commands import MEETING, SCENARIO, SUBJECT, Ran, run_command

pytestmark = pytest.mark.slow

Run = Callable[..., Ran]
Write = Callable[..., Path]
RUN = "evidence/run.json"
CELL = "evidence/ranks-2-backend-none"


class Forger:
    """A finished run in the hands of somebody who can sign it again."""

    def __init__(self, ran: Ran) -> None:
        self.folder = ran.folder
        self._key = ran.results.parent / "home/.local/share/rankproof/signing_key"

    @property
    def signer(self) -> str:
        return find_signer(explicit=str(self._key)).fingerprint

    def facts(self, **changes: Any) -> None:
        """Change the facts of the run, in the evidence and in the record."""
        forge.facts(self.folder, **changes)
        forge.record(
            self.folder,
            lambda record: record.update(run=json.loads((self.folder / RUN).read_text())),
        )

    def record(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change the record."""
        forge.record(self.folder, change)

    def sign(self) -> None:
        """Write manifest, text and signature as the program would."""
        forge.sign(self.folder, self._key)


def outcome(forger: Forger) -> None:
    forger.record(lambda record: _trial(record, "control").update(outcome="pass"))


def seed(forger: Forger) -> None:
    forger.record(lambda record: _trial(record, "candidate").update(seed="1"))


def reasons(forger: Forger) -> None:
    forger.record(
        lambda record: _cell(record).update(
            reasons=[{"code": "verdict:no-control", "text": "looks good"}]
        )
    )


def excerpt(forger: Forger) -> None:
    forger.record(
        lambda record: _cell(record)["samples"]["control"]["printed"][0].update(text="all fine")
    )


def figure(forger: Forger) -> None:
    path = forger.folder / "evidence/figures/trials.svg"
    path.write_text(path.read_text().replace("#cf222e", "#2da44e"))


def another_appendix(forger: Forger) -> None:
    (forger.folder / "appendix.md").write_text("# Appendix: Ranks meet\n\nAll is well.\n")


def no_appendix(forger: Forger) -> None:
    (forger.folder / "appendix.md").unlink()


def worst_finding(forger: Forger) -> None:
    forger.record(lambda record: _cell(record)["worst"][0].update(shown="met", share=0.01))


def notice(forger: Forger) -> None:
    made_up = {"text": "All is well.", "trials": 6, "path": RUN, "line": 1}
    forger.record(lambda record: record["judgement"]["notices"].append(made_up))


def dropped_trial(forger: Forger) -> None:
    shutil.rmtree(forger.folder / CELL / "candidate-00005")
    forger.record(lambda record: _cell(record)["candidate"]["trials"].pop())
    forger.record(lambda record: record["run"]["cells"][0].update(candidate=5))
    facts = json.loads((forger.folder / RUN).read_text())
    facts["cells"][0]["candidate"] = 5
    (forger.folder / RUN).write_text(json.dumps(facts))


def another_time(forger: Forger) -> None:
    forger.facts(made="2020-01-01T00:00:00Z")


def another_start(forger: Forger) -> None:
    forger.facts(start="fresh")


def another_host(forger: Forger) -> None:
    forger.facts(environment={"host": "000000000000"})


def skipped_cell(forger: Forger) -> None:
    shutil.rmtree(forger.folder / CELL)
    skipped = {"code": "skip:machine-cores", "text": "needs more cores than this machine has"}
    forger.facts(
        cells=[{"id": "ranks=2,backend=none", "skipped": skipped, "candidate": 0, "control": 0}]
    )


def one_trial_many_times(forger: Forger) -> None:
    one = (forger.folder / CELL / "candidate-00000/events.jsonl").read_bytes()
    for index in range(1, 6):
        (forger.folder / CELL / f"candidate-0000{index}/events.jsonl").write_bytes(one)


def renamed_copies(forger: Forger) -> None:
    one = (forger.folder / CELL / "candidate-00000/events.jsonl").read_text()
    for index in range(1, 6):
        path = forger.folder / CELL / f"candidate-0000{index}/events.jsonl"
        begin = json.loads(path.read_text().splitlines()[0])
        first = json.loads(one.splitlines()[0])
        copied = json.dumps({**begin, "ns": first["ns"]}, separators=(",", ":"))
        path.write_text(one.replace(one.splitlines()[0], copied))


def swapped_arms(forger: Forger) -> None:
    shutil.copy(
        forger.folder / CELL / "candidate-00000/events.jsonl",
        forger.folder / CELL / "control-00000/events.jsonl",
    )


def extra_file(forger: Forger) -> None:
    (forger.folder / "evidence/approved-by-qa.txt").write_text("yes")


FORGERIES = (
    outcome,
    seed,
    reasons,
    excerpt,
    figure,
    another_appendix,
    no_appendix,
    worst_finding,
    notice,
    dropped_trial,
    another_time,
    another_start,
    another_host,
    skipped_cell,
    one_trial_many_times,
    renamed_copies,
    swapped_arms,
    extra_file,
)


def _cell(record: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = record["judgement"]["cells"][0]
    return found


def _trial(record: dict[str, Any], arm: str) -> dict[str, Any]:
    found: dict[str, Any] = _cell(record)[arm]["trials"][0]
    return found


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One honest run, to be forged again and again."""
    root = tmp_path_factory.mktemp("original")
    folder = root / "scenario"
    folder.mkdir()
    (folder / "scenario.yaml").write_text(SCENARIO.replace("candidate: 5,", "candidate: 6,"))
    (folder / "subject.py").write_text(SUBJECT)
    ran = run_command(root, "run", str(folder))
    assert ran.code == 0, ran.err
    return ran


@pytest.fixture
def forger(original: Ran, tmp_path: Path) -> Forger:
    """Somebody with a copy of it, who has signed it again."""
    root = tmp_path / "copy"
    shutil.copytree(original.results.parent, root, symlinks=True)
    found = Forger(Ran(0, "", "", root / "results"))
    found.sign()
    return found


def test_what_was_signed_again_unchanged_is_accepted(forger: Forger, rankproof: Run) -> None:
    """The forger's pen is good: what it writes without a forgery verifies."""
    honest = rankproof("verify", str(forger.folder / "report.md"), "--signer", forger.signer)
    assert honest.code == 0, honest.out


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forged: forged.__name__)
def test_what_was_edited_and_signed_again_is_refused(
    forger: Forger, rankproof: Run, forge: Callable[[Forger], None]
) -> None:
    """Editing record or evidence, and signing manifest and text again with the allowed key, is
    refused at that step.
    """
    forge(forger)
    forger.sign()
    refused = rankproof("verify", str(forger.folder / "report.md"), "--signer", forger.signer)
    assert refused.code == 3
    assert any(word in refused.out for word in ("JUDGED DIFFERENTLY", *CONTRADICTIONS)), refused.out


@pytest.mark.parametrize(
    "broken", ["import nosuchlib", "def meat(context, **_): pass\nimport nosuchlib"]
)
def test_a_control_that_cannot_be_loaded_is_no_control(
    scenario: Write, rankproof: Run, broken: str
) -> None:
    """A typing mistake in the control fails every check, and proves nothing about the bug."""
    text = SCENARIO.replace("with: {broken: true}", "file: old.py").replace(
        "ranks: nonzero, error: AssertionError, source: assert thing", "ranks: every"
    )
    ran = rankproof("run", str(scenario({"scenario.yaml": text, "old.py": broken})))
    assert ran.code == 2
    assert "ended with an error that is not in must_fail" in ran.out


def test_a_control_that_cannot_be_called_is_no_control(scenario: Write, rankproof: Run) -> None:
    """An argument that the entry does not take, and that no look at it shows, ends every rank: that
    is not the bug.
    """
    text = SCENARIO.replace(
        "with: {broken: true}", "with: {broken: true}\n    file: old.py"
    ).replace("ranks: nonzero, error: AssertionError, source: assert thing", "ranks: every")
    old = (
        "class Meet:\n    __signature__ = 3\n    def __call__(self, context, *, other): pass\nmeet"
        " = Meet()\n"
    )
    ran = rankproof("run", str(scenario({"scenario.yaml": text, "old.py": old})))
    assert ran.code == 2
    assert "ended with an error that is not in must_fail: TypeError" in ran.out


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("thing = undefined", "ended with an error that is not in must_fail: NameError"),
        ("import os; os._exit(3)", "ended with a signal or code that is not in must_fail: code 3"),
        ("thing = 0", ""),
        ("thing = 0; context.emit('thing', value=thing); thing = undefined", ""),
    ],
)
def test_a_control_that_slips_before_its_wrong_value(
    scenario: Write, rankproof: Run, line: str, why: str
) -> None:
    """Where a wrong value is stated and no error, some rank must have reported a wrong value."""
    text = SCENARIO.replace("with: {broken: true}", "file: old.py").replace(
        "check: met, ranks: nonzero, error: AssertionError, source: assert thing",
        "check: thing, ranks: every",
    )
    text += "  - {id: thing, kind: equal, ranks: every, value: thing.value, to: 1}\n"
    code = (
        "def meet(context, **_):\n    thing = 1\n    LINE\n    context.emit('thing', value=thing)\n"
    )
    code += "    context.emit('met')\n"
    files = {
        "scenario.yaml": text,
        "subject.py": code.replace("LINE", "pass"),
        "old.py": code.replace("LINE", line),
    }
    ran = rankproof("run", str(scenario(files)))
    assert ran.code == (2 if why else 0), ran.out + ran.err
    assert why in ran.out


@pytest.mark.whole
def test_what_a_trial_writes_beside_its_code_is_not_what_the_next_one_reads(
    scenario: Write, rankproof: Run
) -> None:
    """A data file that a subject rewrites in its own folder is as it was in the next trial, and in
    the evidence.
    """
    subject = SUBJECT.replace(
        "    assert thing",
        "    import pathlib\n"
        "    path = pathlib.Path(__file__).with_name('data.txt')\n"
        "    context.group.barrier()\n"
        "    context.emit('read', data=path.read_text())\n"
        "    context.group.barrier()\n"
        "    path.write_text('changed')\n"
        "    assert thing",
    )
    ran = rankproof(
        "run",
        str(scenario({"scenario.yaml": MEETING, "subject.py": subject, "data.txt": "as it was"})),
    )
    assert ran.code == 0, ran.out + ran.err
    for file in ran.folder.glob("evidence/*/*/events.jsonl"):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert {line["values"]["data"] for line in lines if line["name"] == "read"} == {"as it was"}
    assert (ran.folder / "evidence/source/candidate/data.txt").read_text() == "as it was"


def test_code_from_outside_is_nobodys(scenario: Write, rankproof: Run, tmp_path: Path) -> None:
    """A module that is put on the path by hand proves nothing: INCONCLUSIVE, with its digest in the
    evidence.
    """
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    (outside / "real_code.py").write_text("THING = 'thing'\n")
    subject = SUBJECT.replace(
        "    thing =",
        f"    import sys\n    sys.path.insert(0, {str(outside)!r})\n    import real_code\n   "
        " thing =",
    )
    ran = rankproof("run", str(scenario({"subject.py": subject})))
    assert ran.code == 2, ran.out + ran.err
    assert "real_code.py came from outside, but the repository has" in str(
        ran.record.judgement.reasons[0]
    )
    digest = hashlib.sha256((outside / "real_code.py").read_bytes()).hexdigest()
    assert any(digest in file.read_text() for file in ran.folder.glob("evidence/loaded/*.json"))
