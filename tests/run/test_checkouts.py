"""Packages of arms that are built from a git checkout: which commit, which wheel, and what a forger
tries.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.forms.distribution import evident_wheel, pack_wheel, wheel_digest
from harness.record.assemble import assemble
from harness.record.model import RecordError
from harness.run.arms.code import RevisionError
from harness.run.environments.cache import ReadyEnvironment, provide
from harness.run.environments.pip import EnvironmentProblem
from harness.run.environments.supply import Supply, find, supplied
from harness.scenario import Environment
from harness.scenario.environment import Checkout
from tests.kit import forge, wheels
from tests.kit.commands import Ran
from tests.run import checkouts
from tests.run.test_environments import FACTS, fingerprint, leave_records_out

Run = Callable[..., Ran]
Write = Callable[..., Path]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def found(wanted: Environment, folder: Path) -> Supply:
    return Supply(
        checkouts={
            name: find(name, given, folder=folder) for name, given in wanted.checkouts.items()
        }
    )


@pytest.mark.long
def test_a_package_is_built_from_a_commit(offered: dict[str, str], tmp_path: Path) -> None:
    """What is committed is built, not what lies there.

    One tree is built once, whatever it is called, to one wheel.
    """
    repository = tmp_path / "own"
    first = checkouts.write(repository, "own", "1.0", "NUMBER = 1\n", requires="word", tag="v1")
    second = checkouts.write(repository, "own", "1.0", "NUMBER = 2\n", requires="word")
    (repository / "own" / "__init__.py").write_text("NUMBER = 3\n")
    index = (repository / ".git" / "index").read_bytes()

    def make(rev: str | None) -> tuple[ReadyEnvironment, list[str]]:
        told: list[str] = []
        wanted = Environment(packages={"own": Checkout(path="own", rev=rev)})
        return provide(wanted, found(wanted, tmp_path), says=told.append), told

    (head, told), (old, _) = make(None), make("v1")
    caution = "uncommitted changes in its repository are not built"
    assert told[0] == f"own from own at HEAD (commit {second[:12]}): {caution}"
    assert told[1].endswith(f"own at commit {second[:12]}")
    assert told[2].startswith("installing 2 packages, ")
    facts = head.facts.checkouts["own"]
    assert (facts.repo, facts.rev, facts.commit, facts.folder, facts.changed) == (
        "own",
        "HEAD",
        second,
        "",
        True,
    )
    assert facts.tree == checkouts.git(repository, "rev-parse", f"{second}^{{tree}}")
    assert facts.files == {"own/__init__.py": hashlib.sha256(b"NUMBER = 2\n").hexdigest()}
    assert (old.facts.checkouts["own"].commit, old.facts.checkouts["own"].changed) == (first, False)
    assert [sha256(wheel) for wheel in head.wheels] == [head.facts.packages[0].wheel]
    assert head.facts.content != old.facts.content
    named, told = make(second)
    assert [text.partition(": ")[2] for text in told] == [caution], (
        "made already, and said each time"
    )
    assert named.facts.checkouts["own"].rev == second
    assert (named.python, named.facts.content) == (head.python, head.facts.content)
    before = sha256(head.wheels[0])
    shutil.rmtree(tmp_path / "cache")
    again, _ = make(None)
    # The backend writes the time into its wheel, and the wheel that is kept does not hold it.
    assert (again.facts, sha256(again.wheels[0])) == (head.facts, before)
    assert (repository / ".git" / "index").read_bytes() == index
    assert not list(repository.rglob("*.egg-info")) + list(repository.rglob("build"))


@pytest.mark.slow
@pytest.mark.whole
def test_a_checkout_beside_a_file_of_requirements(offered: dict[str, str], tmp_path: Path) -> None:
    """Its dependencies are those of the file, each by hash.

    One that the file lacks stops the run by name.
    """
    checkouts.write(tmp_path / "own", "own", "1.0", "NUMBER = 1\n", requires="word")
    wanted = Environment(packages={"own": Checkout(path="own")}, requirements="r.txt")
    word = sha256(Path(offered["PIP_FIND_LINKS"]) / "word-1.2-py3-none-any.whl")
    given = supplied(f"word==1.2 --hash=sha256:{word}\n".encode(), name="r.txt")
    built = found(wanted, tmp_path).checkouts
    made = provide(wanted, replace(given, checkouts=built))
    assert (made.facts.versions, made.named) == ({"own": "1.0", "word": "1.2"}, ("own", "word"))
    greeting = sha256(Path(offered["PIP_FIND_LINKS"]) / "greeting-1.0-py3-none-any.whl")
    other = supplied(f"greeting==1.0 --hash=sha256:{greeting}\n".encode(), name="r.txt")
    with pytest.raises(
        EnvironmentProblem, match=r"the requirements file lacks word\S*, which (own|greeting)"
    ):
        provide(wanted, replace(other, checkouts=built))


@pytest.mark.slow
@pytest.mark.whole
def test_what_cannot_be_built_is_said(offered: dict[str, str], tmp_path: Path) -> None:
    """A folder that is not a repository, no such revision, no package, a build that fails, another
    package.
    """
    repository = tmp_path / "own"
    checkouts.write(repository, "own", "1.0", "", alter="raise RuntimeError('no compiler is here')")

    def problem(**given: str) -> str:
        name = given.pop("name", "own")
        wanted = Environment(packages={name: Checkout.model_validate(given)})
        with pytest.raises((EnvironmentProblem, RevisionError)) as refused:
            provide(wanted, found(wanted, tmp_path))
        return str(refused.value)

    assert problem(path="gone").startswith("repo gone is not a folder")
    assert problem(path="own", rev="v9").startswith("rev v9 is not a commit in own")
    assert problem(path="own/own").startswith(
        "own/own has no pyproject.toml and no setup.py at revision HEAD"
    )
    said = problem(path="own")
    assert said.startswith("own from own at HEAD (commit ")
    assert said.endswith("cannot be built: RuntimeError: no compiler is here")
    assert str(tmp_path) not in said
    checkouts.write(repository, "own", "1.0", "")
    assert problem(path="own", name="other").endswith(
        "builds the package own 1.0; list it as own in environment.packages"
    )


SUBJECT = """
import own


def check(context):
    assert own.NUMBER == 2
    context.emit("checked", number=own.NUMBER)
"""
SCENARIO = """
schema: 1
id: own-number
title: The number is right
question: Does own give the right number on every rank?
subject:
  entry: subject:check
  environment: {packages: {own: {path: ../own}}}
  candidate: {}
  control:
    environment: {packages: {own: {path: ../own, rev: v1}}}
    must_fail: {check: checked, ranks: every, error: AssertionError, source: assert own.NUMBER == 2}
matrix: {ranks: [2], backend: [none]}
world: {deadline: 30s}
seed: "7"
trials: {candidate: 5, control: 5, accept: {failure_rate_below: 50%}}
checks:
  - {id: checked, kind: event, ranks: every, event: checked}
"""
FILES = {"scenario.yaml": SCENARIO, "subject.py": SUBJECT}


def built_of(facts: dict[str, Any]) -> dict[str, Any]:
    own: dict[str, Any] = facts["environments"]["candidate"]["checkouts"]["own"]
    return own


def other_revision(facts: dict[str, Any]) -> None:
    built_of(facts)["rev"] = "v1"


def other_tree(facts: dict[str, Any]) -> None:
    built_of(facts)["files"] = {"own/__init__.py": "0" * 64}


def no_such_file(facts: dict[str, Any]) -> None:
    built_of(facts)["files"] = {}


def no_checkout(facts: dict[str, Any]) -> None:
    facts["environments"]["candidate"]["checkouts"] = {}


def other_wheel(facts: dict[str, Any]) -> None:
    facts["environments"]["candidate"]["packages"][0]["wheel"] = "0" * 64


def silent(facts: dict[str, Any]) -> None:
    facts["provenance"].pop("candidate")


WHEEL = "evidence/environment/candidate/own-1.0-py3-none-any.whl"
RECORD = "own-1.0.dist-info/RECORD"


def evidence_of(ran: Ran) -> list[str]:
    return [
        name
        for name in forge.names(ran.folder)
        if name.startswith("evidence/") and "/figures/" not in name
    ]


def committed(folder: Path) -> str:
    """Commit the package of the scenario twice; the id of the second commit."""
    checkouts.write(folder, "own", "1.0", "NUMBER = 1\n", tag="v1")
    return checkouts.write(folder, "own", "1.0", "NUMBER = 2\n")


@pytest.mark.slow
@pytest.mark.whole
def test_two_commits_of_a_package_are_compared(
    scenario: Write, rankproof: Run, offered: dict[str, str], tmp_path: Path
) -> None:
    """The report names both commits, and the run is made again where neither repository nor
    scenario is.
    """
    head = committed(tmp_path / "own")
    folder = scenario(FILES)
    ran = rankproof("run", str(folder), env=offered)
    assert ran.code == 0, ran.out + ran.err
    assert f"+own 1.0 (commit {head[:12]})" in ran.record.changed
    report = (ran.folder / "report.md").read_text()
    appendix = (ran.folder / "appendix.md").read_text()
    assert "-NUMBER = 1\n+NUMBER = 2\n" in appendix, "the module that differs, line by line"
    assert "| `own/__init__.py` | 1 line removed, 1 added | all ranks |" in report
    assert f"candidate: own was built from ./own at HEAD: commit {head}, tree " in report.replace(
        "\\", ""
    )
    assert {name for name in evidence_of(ran) if "/environment/" in name} == {
        f"evidence/environment/{arm}/own-1.0-py3-none-any.whl" for arm in ("candidate", "control")
    }
    everything = b"".join(path.read_bytes() for path in ran.folder.rglob("*") if path.is_file())
    assert str(tmp_path).encode() not in everything
    verified = rankproof("verify", str(ran.folder), "--signer", fingerprint(ran))
    assert verified.code == 0, verified.out + verified.err

    bundle = tmp_path / "own.tar.xz"
    packed = rankproof("bundle", str(ran.folder), "--out", str(bundle), env=offered)
    assert packed.code == 0, packed.out + packed.err
    for gone in (tmp_path / "own", folder, tmp_path / "cache"):
        shutil.rmtree(gone)
    signer = ("--signer", fingerprint(ran), "--results", str(tmp_path / "again"))
    dry = rankproof("reproduce", str(bundle), *signer, "--dry-run", env=offered)
    assert dry.code == 0, dry.out + dry.err
    assert "environment of the candidate: would install 1 package, " in dry.out
    assert not list((tmp_path / "cache").glob("*/stamp.json"))
    again = rankproof("reproduce", str(bundle), *signer, "--jobs", "1", env=offered)
    assert (again.code, "REPRODUCED" in again.out) == (0, True), again.out + again.err
    dry = rankproof("reproduce", str(bundle), *signer, "--dry-run", env=offered)
    assert f", own at commit {head[:12]}: already in the cache" in dry.out


@pytest.mark.slow
@pytest.mark.whole
def test_a_forged_checkout_is_refused(
    scenario: Write, rankproof: Run, offered: dict[str, str], tmp_path: Path
) -> None:
    """Another revision, tree or wheel than the evidence and the ranks tell never ends as PASS."""
    head = committed(tmp_path / "own")
    ran = rankproof("run", str(scenario(FILES)), env=offered)
    assert ran.code == 0, ran.out + ran.err

    def verdict(change: Callable[[dict[str, Any]], None], *, kept: bytes | None = None) -> str:
        facts = json.loads((ran.folder / FACTS).read_text())
        change(facts)
        leave_records_out(facts, "own")
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(ran.folder, copy)
        (copy / FACTS).write_text(json.dumps(facts))
        if kept is not None:
            (copy / WHEEL).write_bytes(kept)
        forge.rebind(copy)
        try:
            names = [name for name in evidence_of(ran) if not name.endswith(".RECORD")]
            record = assemble(lambda name: (copy / name).read_bytes(), names)
        except RecordError as error:
            return str(error)
        return (
            f"{record.judgement.verdict}: {'; '.join(map(str, record.judgement.reasons))}"
            f" {record.judgement}"
        )

    assert verdict(lambda _facts: None).startswith("PASS: ")
    assert "own was built from v1, not from the scenario's revision" in verdict(other_revision)
    changed = (
        f"own/__init__.py differs from commit {head[:12]}, because the build of own 1.0 changed it"
    )
    assert changed in verdict(other_tree).partition(" verdict=")[0]
    assert f"made by the build of own, in no file of commit {head[:12]}" in verdict(no_such_file)
    assert (
        "does not account for the file evidence/environment/candidate/own-1.0-py3-none-any.whl"
        in verdict(no_checkout)
    )
    assert "is not the wheel that own was installed from" in verdict(other_wheel)
    assert "does not record what the repository contained for each arm" in verdict(silent)

    files = evident_wheel((ran.folder / WHEEL).read_bytes())
    text = b"NUMBER = 2 # other\n"
    line = f"own/__init__.py,sha256={wheels.digest(text)},{len(text)}"
    listed = [
        line if one.startswith("own/__init__") else one
        for one in files[RECORD].decode().splitlines()
    ]
    other = {**files, "own/__init__.py": text}
    whole = pack_wheel({**other, RECORD: ("\n".join(listed) + "\n").encode()})
    assert "is not a wheel in the format that is stored with a run" in verdict(
        installed_from(b"x"), kept=b"x"
    )
    assert "differ from the files of the installed own" in verdict(
        installed_from(whole), kept=whole
    )
    digest = wheel_digest(evident_wheel(whole)[RECORD].decode())
    found = "own 1.0 was installed, but a rank found 1.0 or different files of it"
    assert found in verdict(installed_from(whole, record=digest), kept=whole)
    missing = "own/__init__.py is not in the wheel that was built from own 1.0"
    assert missing in verdict(installed_from(pack_wheel(other)), kept=pack_wheel(other))


def installed_from(wheel: bytes, *, record: str | None = None) -> Callable[[dict[str, Any]], None]:
    def change(facts: dict[str, Any]) -> None:
        package = facts["environments"]["candidate"]["packages"][0]
        package["wheel"] = hashlib.sha256(wheel).hexdigest()
        package["record"] = record or package["record"]

    return change


@pytest.mark.slow
@pytest.mark.whole
def test_a_package_that_was_never_built_cannot_be_brought_along(
    scenario: Write, rankproof: Run, offered: dict[str, str], tmp_path: Path
) -> None:
    """Cells are SKIPPED where a checkout needs what nobody offers.

    A reproduction says what is missing, and where.
    """
    checkouts.write(tmp_path / "own", "own", "1.0", "NUMBER = 1\n", requires="nowhere", tag="v1")
    ran = rankproof("run", str(scenario(FILES)), env=offered)
    assert ran.code == 2, ran.out + ran.err
    (cell,) = ran.record.judgement.cells
    assert [str(reason) for reason in cell.reasons] == [
        (
            "environment of the candidate: nowhere is not available, because it is not in the"
            " cache and pip cannot find it"
        )
    ]
    signer = ("--signer", fingerprint(ran), "--results", str(tmp_path / "again"))
    missing = rankproof(
        "reproduce", str(ran.folder), *signer, "--from-evidence", "--dry-run", env=offered
    )
    assert missing.code == 2
    assert (
        "CANNOT TELL: package own of the candidate comes from HEAD of a checkout, but the run"
        " never built it, because its cells were skipped; it cannot be built from the report, so"
        " run the scenario again next to that checkout" in missing.out
    )
