"""Arms with an environment of their own: two versions of a library compared, and proof of which one
ran.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.reason import Skip, SkipCode
from harness.record.assemble import assemble
from harness.record.model import RecordError
from harness.stats.arm_code import JudgedEnvironment, environment_unproven
from tests.kit import forge, wheels
from tests.kit.commands import Ran, needs_packages

Run = Callable[..., Ran]
Write = Callable[..., Path]
SUBJECT = """
import sys

import greeting


def check(context):
    context.emit("greeted", text=greeting.TEXT, file=greeting.__file__.rpartition("site-packages/")[2])
    for name in ("pydantic", "yaml", "torch", "filelock", "harness_only"):
        try:
            __import__(name)
        except ImportError:
            continue
        raise RuntimeError(f"{name} of the harness can be imported")
    assert greeting.TEXT == "hello"
    context.emit("checked", prefix=sys.prefix == sys.base_prefix)
"""
SCENARIO = """
schema: 1
id: greeting
title: The greeting is right since 2.0
question: Does greeting 2.0 greet as it should on every rank?
subject:
  entry: subject:check
  candidate: {environment: {packages: {greeting: "2.0"}}}
  control:
    environment: {packages: {greeting: "1.0"}}
    must_fail: {check: checked, ranks: every, error: AssertionError, source: assert greeting.TEXT == "hello"}
matrix: {ranks: [2], backend: [none]}
world: {deadline: 30s}
seed: "7"
trials: {candidate: 5, control: 2, accept: {failure_rate_below: 50%}}
checks:
  - {id: checked, kind: event, ranks: every, event: checked}
  - {id: file, kind: equal, ranks: every, value: greeted.file, to: greeting.py}
"""
FILES = {"scenario.yaml": SCENARIO, "subject.py": SUBJECT}


@pytest.mark.long
@pytest.mark.parametrize("start", ["warm", "fresh"])
def test_two_versions_of_a_library_are_compared(
    scenario: Write, rankproof: Run, offered: dict[str, str], tmp_path: Path, start: str
) -> None:
    """Each arm runs in its own environment, the report names both tables, and verification judges
    them again.
    """
    ran = rankproof("run", str(scenario(FILES)), "--set", f"world.start={start}", env=offered)
    assert ran.code == 0, ran.out + ran.err
    record = ran.record
    assert (record.judgement.verdict, record.run.start) == ("PASS", start)
    arms = record.run.environments
    assert {name: arm.versions for name, arm in arms.items()} == {
        "candidate": {"greeting": "2.0", "word": "1.2"},
        "control": {"greeting": "1.0", "word": "1.2"},
    }
    wheel = tmp_path / "wheels" / "greeting-2.0-py3-none-any.whl"
    assert arms["candidate"].packages[0].wheel == hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert record.changed == ["-greeting 1.0", "+greeting 2.0"]
    assert not [cell.outside for cell in record.judgement.cells if cell.outside]
    report = (ran.folder / "report.md").read_text()
    assert "greeting" in report.partition("## This run")[2].partition("\n## ")[0]
    everything = b"".join(path.read_bytes() for path in ran.folder.rglob("*") if path.is_file())
    assert str(tmp_path).encode() not in everything
    verified = rankproof("verify", str(ran.folder), "--signer", fingerprint(ran))
    assert verified.code == 0, verified.out + verified.err
    again = rankproof(
        "run", str(scenario(FILES)), "--try", "--set", f"world.start={start}", env=offered
    )
    assert "  candidate: passed, in " in again.out
    assert "making" in ran.err
    assert "making" not in again.err


def fingerprint(ran: Ran) -> str:
    return next(word for word in ran.out.split() if word.startswith("SHA256:"))


@pytest.mark.slow
@pytest.mark.whole
def test_an_arm_beside_one_in_the_harness_environment(
    scenario: Write, rankproof: Run, offered: dict[str, str]
) -> None:
    """One arm may have an environment and the other the harness' own.

    That alone sets them apart.
    """
    text = """
def check(context):
    import importlib.util
    assert importlib.util.find_spec("greeting")
    context.emit("checked")
"""
    yaml = SCENARIO.replace('    environment: {packages: {greeting: "1.0"}}\n', "")
    yaml = yaml.replace(
        'source: assert greeting.TEXT == "hello"',
        'source: assert importlib.util.find_spec("greeting")',
    )
    yaml = yaml.replace(
        "  - {id: file, kind: equal, ranks: every, value: greeted.file, to: greeting.py}\n", ""
    )
    folder = scenario({"scenario.yaml": yaml, "subject.py": text})
    ran = rankproof("run", str(folder), "--set", "world.start=fresh", env=offered)
    assert ran.code == 0, ran.out + ran.err
    assert ran.record.changed[:2] == [
        "-in the environment of the harness",
        "+in an environment of its own",
    ]
    assert list(ran.record.run.environments) == ["candidate"]


@pytest.mark.slow
@pytest.mark.whole
def test_what_cannot_be_had_is_skipped_and_said(
    scenario: Write, rankproof: Run, offered: dict[str, str], tmp_path: Path
) -> None:
    """Without the interpreter or the package the cells are SKIPPED with the reason, and nothing
    runs elsewhere.
    """
    folder = str(scenario(FILES))
    no_python = rankproof(
        "run", folder, "--set", "subject.control.environment.python=3.99", env=offered
    )
    assert no_python.code == 2
    (cell,) = no_python.record.judgement.cells
    assert cell.verdict == "SKIPPED"
    assert str(cell.reasons[0]).startswith(
        "environment of the control: Python 3.99 was not found on this machine ("
    )
    verified = rankproof("verify", str(no_python.folder), "--signer", fingerprint(no_python))
    assert verified.code == 0, verified.out + verified.err

    shutil.rmtree(tmp_path / "wheels")
    (tmp_path / "wheels").mkdir()
    shutil.rmtree(tmp_path / "cache")
    offline = rankproof("run", folder, env=offered)
    assert offline.code == 2
    (cell,) = offline.record.judgement.cells
    assert (cell.verdict, cell.candidate) == ("SKIPPED", None)
    why = "greeting==2.0 is not available, because it is not in the cache and pip cannot find it"
    assert [str(one) for one in cell.reasons] == [f"environment of the candidate: {why}"]


@pytest.mark.long
def test_a_released_transformers_beside_the_installed_one(
    scenario: Write, rankproof: Run, kept_environments: dict[str, str]
) -> None:
    """A real library of an older version loads in its arm from the arm's environment, with its own
    dependencies.
    """
    text = """
def check(context):
    import sys
    import tokenizers
    import transformers
    own = all(module.__file__.startswith(sys.prefix) for module in (tokenizers, transformers))
    context.emit("loaded", own=own, transformers=transformers.__version__, tokenizers=tokenizers.__version__)
    assert transformers.__version__ != "5.5.0"
    context.emit("checked")
"""
    # Those of scenarios/tokenizer-backend-under-quota, which are made anyway.
    released = (
        'packages: {transformers: "5.5.0", huggingface_hub: "1.9.0", tokenizers: "0.22.2",'
        ' protobuf: "6.33.2"}'
    )
    yaml = SCENARIO.replace('packages: {greeting: "1.0"}', released)
    yaml = yaml.replace('{environment: {packages: {greeting: "2.0"}}}', "{}")
    yaml = yaml.replace(
        'assert greeting.TEXT == "hello"', 'assert transformers.__version__ != "5.5.0"'
    )
    yaml = yaml.replace("greeted.file, to: greeting.py", "loaded.own, to: true")
    ran = rankproof(
        "run", str(scenario({"scenario.yaml": yaml, "subject.py": text})), env=kept_environments
    )
    needs_packages(ran)
    assert ran.code == 0, ran.out + ran.err
    versions = ran.record.run.environments["control"].versions
    assert (versions["transformers"], versions["tokenizers"]) == ("5.5.0", "0.22.2")
    assert not {"torch", "pip", "pytest", "mlx"} & versions.keys()
    assert ran.record.run.start == "warm"


# -- proof -------------------------------------------------------------------------------------

FACTS = "evidence/run.json"


def other_version(facts: dict[str, Any]) -> None:
    facts["environments"]["control"]["packages"][0]["version"] = "2.0"


def other_files(facts: dict[str, Any]) -> None:
    facts["environments"]["candidate"]["packages"][0]["record"] = "0" * 64


def other_python(facts: dict[str, Any]) -> None:
    facts["environments"]["candidate"]["python"] = "3.99.0"


def no_environment(facts: dict[str, Any]) -> None:
    del facts["environments"]["control"]


def swapped(facts: dict[str, Any]) -> None:
    made = facts["environments"]
    made["candidate"], made["control"] = made["control"], made["candidate"]


def leave_records_out(facts: dict[str, Any], name: str) -> None:
    """State that no RECORD of a package was found after the trials."""
    for environment in facts["environments"].values():
        for package in environment["packages"]:
            if package["name"] == name:
                facts["texts_left"][package["record"]] = None


@pytest.mark.long
def test_a_run_that_tells_other_environments_is_not_judged_the_same(
    scenario: Write, rankproof: Run, offered: dict[str, str], tmp_path: Path
) -> None:
    """What the run says was installed must be what the scenario asks for and what every rank found
    in itself.
    """
    ran = rankproof("run", str(scenario(FILES)), env=offered)
    assert ran.code == 0, ran.out + ran.err
    evidence = [
        name
        for name in forge.names(ran.folder)
        if name.startswith("evidence/") and "/figures/" not in name and not name.endswith(".RECORD")
    ]

    def verdict(change: Callable[[dict[str, Any]], None]) -> str:
        facts = json.loads((ran.folder / FACTS).read_text())
        change(facts)
        leave_records_out(facts, "greeting")
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(ran.folder, tmp_path / "copy")
        (tmp_path / "copy" / FACTS).write_text(json.dumps(facts))
        forge.rebind(tmp_path / "copy")
        try:
            record = assemble(lambda name: (tmp_path / "copy" / name).read_bytes(), evidence)
        except RecordError as error:
            return str(error)
        return f"{record.judgement.verdict}: {'; '.join(record.judgement.reasons)}"

    assert verdict(lambda _facts: None) == "PASS: "
    assert "the control's environment does not meet the scenario's requirements" in verdict(
        other_version
    )
    assert (
        "candidate: greeting 2.0 was installed, but a rank found 2.0 or different files of it"
        in verdict(other_files)
    )
    assert "not in Python 3.99.0" in verdict(other_python)
    assert "ran, but the control's environment was never created" in verdict(no_environment)
    assert "environment does not meet the scenario's requirements" in verdict(swapped)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (None, "did not run in the arm's environment"),
        ({"apart": False}, "did not run in the arm's environment"),
        ({"python": "3.12.1"}, "ran in cpython 3.12.1, not in Python 3.13.0"),
        ({"packages": {"it": None}}, "a rank found no such package"),
        ({"packages": {"it": {"version": "1.1", "record": "r"}}}, "a rank found 1.1"),
        ({"packages": {"it": {"version": "1.0", "record": "other"}}}, "or different files of it"),
        ({"packages": "all of them"}, "a rank found no such package"),
    ],
)
def test_a_rank_that_ran_elsewhere_is_not_proof(told: dict[str, Any] | None, why: str) -> None:
    """Whatever a rank tells that is not its arm's environment makes it unproved which code ran."""
    made = JudgedEnvironment(
        digest="d", python="3.13.0", implementation="cpython", named={"it": ("1.0", "r")}
    )
    right = {
        "python": "3.13.0",
        "implementation": "cpython",
        "apart": True,
        "packages": {"it": {"version": "1.0", "record": "r"}},
    }
    assert not list(environment_unproven("control", made, right))
    assert why in "; ".join(
        environment_unproven("control", made, None if told is None else {**right, **told})
    )
    assert list(environment_unproven("control", None, right))


@pytest.mark.slow
@pytest.mark.whole
def test_ranks_that_change_their_environment_spoil_the_run(
    scenario: Write, rankproof: Run, offered: dict[str, str]
) -> None:
    """A rank that writes into its environment ends the run without a signature.

    The next run makes it again.
    """
    meddling = SUBJECT.replace(
        "def check(context):\n",
        "def check(context):\n    from pathlib import Path\n"
        "    Path(greeting.__file__).write_text('TEXT = 1')\n   "
        " Path(greeting.__file__).unlink()\n",
    )
    ran = rankproof(
        "run",
        str(scenario({**FILES, "subject.py": meddling})),
        "--set",
        "matrix.ranks=[1]",
        env=offered,
    )
    assert ran.code == 2
    assert "changed during the run; run it again" in ran.err
    again = rankproof("run", str(scenario(FILES)), env=offered)
    assert again.code == 0, again.err
    assert "has changed since it was made" in again.err


@pytest.mark.long
def test_an_environment_whose_import_starts_a_thread_starts_fresh(
    scenario: Write, rankproof: Run, offered: dict[str, str]
) -> None:
    """A server that would not be safe to fork is not used: every rank of the run starts fresh, as
    the record says.
    """
    folder = Path(offered["PIP_FIND_LINKS"])
    thread = (
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    wheels.write(folder, "tokenizers", "0.1", thread)
    yaml = SCENARIO.replace('greeting: "2.0"', 'greeting: "2.0", tokenizers: "0.1"')
    ran = rankproof("run", str(scenario({**FILES, "scenario.yaml": yaml})), env=offered)
    assert ran.code == 0, ran.out + ran.err
    assert ran.record.run.start == "fresh"


@pytest.mark.whole
@pytest.mark.slow
def test_the_backends_library_must_be_in_the_environment(
    scenario: Write, rankproof: Run, offered: dict[str, str]
) -> None:
    """gloo without torch in an arm's environment is a note of lint and a skipped cell, though the
    harness has torch.
    """
    folder = str(scenario(FILES))
    linted = rankproof("lint", folder, "--set", "matrix.backend=[gloo]", env=offered)
    assert linted.code == 0
    assert "environment: lacks torch, which the backend gloo needs" in linted.out
    ran = rankproof("run", folder, "--set", "matrix.backend=[gloo]", env=offered)
    assert ran.code == 2
    why = (
        "backend gloo: torch is not in the environment of the candidate; add it to"
        " environment.packages"
    )
    assert ran.record.judgement.cells[0].reasons == [Skip(SkipCode.BACKEND_LIBRARY, why)]
