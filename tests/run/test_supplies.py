"""Environments from more than an index: extras, files of requirements, git checkouts, torch for the CPU."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.forms.distribution import wheel_digest
from harness.forms.wheel import evident, pack
from harness.record.assemble import assemble
from harness.record.model import RecordError
from harness.run.arms.revision import RevisionError
from harness.run.environments import cache, supply
from harness.run.environments.cache import ArmEnvironment, provide
from harness.run.environments.checkout import find
from harness.run.environments.pip import EnvironmentProblem
from harness.run.environments.supply import Supply, supplied
from harness.scenario import Environment, ScenarioError, parse_scenario
from harness.scenario.environment import Checkout
from tests import forge
from tests.run import checkouts, wheels
from tests.run.conftest import Ran
from tests.run.test_environments import FACTS, fingerprint

Run = Callable[..., Ran]
Write = Callable[..., Path]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def found(wanted: Environment, folder: Path) -> Supply:
    return Supply(checkouts={name: find(name, given, folder=folder) for name, given in wanted.checkouts.items()})


def lines(folder: Path, *names: str) -> str:
    """A file of requirements of wheels in a folder, each as NAME-VERSION."""
    return "".join(
        f"{name.replace('-', '==')} --hash=sha256:{sha256(folder / f'{name}-py3-none-any.whl')}\n" for name in names
    )


# -- extras and requirements -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.whole
def test_an_extra_brings_what_it_stands_for(offered: dict[str, str]) -> None:
    """An extra installs its packages, and one that the package does not have is an error, not a smaller environment."""
    folder = Path(offered["PIP_FIND_LINKS"])
    wheels.write(folder, "able", "1.0", "", extras={"more": "word"})
    assert provide(Environment(packages={"able": "1.0"})).facts.versions == {"able": "1.0"}
    made = provide(Environment(packages={"able[more]": "1.0"}))
    assert (made.facts.versions, made.named) == ({"able": "1.0", "word": "1.2"}, ("able",))
    with pytest.raises(EnvironmentProblem, match=r"^able 1\.0 has no extra moar: write one that it has, or none$"):
        provide(Environment(packages={"able[moar]": "1.0"}))


@pytest.mark.slow
@pytest.mark.whole
def test_a_file_of_requirements_is_all_that_is_installed(offered: dict[str, str]) -> None:
    """By hash and complete: a line too few, another file of the same version, each stops the run by name."""
    folder = Path(offered["PIP_FIND_LINKS"])
    asked = Environment(requirements="r.txt")

    def given(text: str) -> Supply:
        return supplied(text.encode(), name="r.txt")

    whole = lines(folder, "greeting-2.0", "word-1.2")
    made = provide(asked, given(whole))
    assert (made.facts.versions, made.named) == ({"greeting": "2.0", "word": "1.2"}, ("greeting", "word"))
    assert made.facts.requirements == hashlib.sha256(whole.encode()).hexdigest()
    told: list[str] = []
    assert provide(asked, given(whole), says=told.append) == made
    assert not told
    provide(asked, given(f"# another file\n{whole}"), says=told.append)
    assert told[0].startswith("making an environment")
    with pytest.raises(EnvironmentProblem, match=r"lacks word\S*, which greeting==2\.0 needs: add it"):
        provide(asked, given(lines(folder, "greeting-2.0")))
    wheels.write(folder, "word", "1.2", "WORD = 'hullo'\n")
    with pytest.raises(EnvironmentProblem, match=r"word==1\.2 is offered here as another file than was pinned"):
        provide(asked, given(f"{whole}\n# made again\n"))


@pytest.mark.slow
@pytest.mark.whole
def test_torch_that_would_bring_cuda_is_refused(offered: dict[str, str]) -> None:
    """On the CPU the build for it is taken where pip finds one; else nothing is installed, and what to do is said."""
    folder = Path(offered["PIP_FIND_LINKS"])
    wheels.write(folder, "torch", "9.0", "", requires=["nvidia-cublas", "triton"])
    wheels.write(folder, "nvidia_cublas", "13.0", "")
    wheels.write(folder, "triton", "3.0", "")
    wheels.write(folder, "uses", "1.0", "", requires=["torch"])
    for wanted in ({"torch": "9.0"}, {"uses": "1.0"}):
        told: list[str] = []
        with pytest.raises(EnvironmentProblem) as refused:
            provide(Environment(packages=wanted, torch="cpu"), says=told.append)
        assert str(refused.value).startswith(
            "torch 9.0 would bring nvidia-cublas 13.0, triton 3.0 to a run on the CPU; nothing was installed. Have pip"
        )
        assert str(refused.value).endswith("or take what there is: environment.torch: any")
        assert [text.partition(" ")[0] for text in told] == ["making"]
    assert all(one.description is None for one in cache.cached())
    anything = provide(Environment(packages={"torch": "9.0"}, torch="any"))
    assert set(anything.facts.versions) == {"torch", "nvidia-cublas", "triton"}
    wheels.write(folder, "torch", "9.0+cpu", "")
    made = provide(Environment(packages={"torch": "9.0"}, torch="cpu"))
    assert made.facts.versions == {"torch": "9.0+cpu"}
    # Of a dependency the version that Rankproof itself runs with is preferred, whatever is newer.
    wheels.write(folder, "torch", "2.13.0+cpu", "")
    assert provide(Environment(packages={"uses": "1.0"}, torch="cpu")).facts.versions["torch"] == "2.13.0+cpu"


# -- checkouts ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.whole
def test_a_package_is_built_from_a_commit(offered: dict[str, str], tmp_path: Path) -> None:
    """What is committed is built, not what lies there; one tree is built once, whatever it is called, to one wheel."""
    repository = tmp_path / "own"
    first = checkouts.write(repository, "own", "1.0", "NUMBER = 1\n", requires="word", tag="v1")
    second = checkouts.write(repository, "own", "1.0", "NUMBER = 2\n", requires="word")
    (repository / "own" / "__init__.py").write_text("NUMBER = 3\n")
    index = (repository / ".git" / "index").read_bytes()

    def make(rev: str | None) -> tuple[ArmEnvironment, list[str]]:
        told: list[str] = []
        wanted = Environment(packages={"own": Checkout(path="own", rev=rev)})
        return provide(wanted, found(wanted, tmp_path), says=told.append), told

    (head, told), (old, _) = make(None), make("v1")
    caution = "what is not committed in its repository has no part in it"
    assert told[0] == f"own from own at HEAD (commit {second[:12]}): {caution}"
    assert told[1].endswith(f"own at commit {second[:12]}")
    assert told[2].startswith("installing 2 packages, ")
    facts = head.facts.checkouts["own"]
    assert (facts.repo, facts.rev, facts.commit, facts.folder, facts.changed) == ("own", "HEAD", second, "", True)
    assert facts.tree == checkouts.git(repository, "rev-parse", f"{second}^{{tree}}")
    assert facts.files == {"own/__init__.py": hashlib.sha256(b"NUMBER = 2\n").hexdigest()}
    assert old.facts.checkouts["own"].commit == first
    assert [sha256(wheel) for wheel in head.wheels] == [head.facts.packages[0].wheel]
    assert head.facts.content != old.facts.content
    named, told = make(second)
    assert [text.partition(": ")[2] for text in told] == [caution], "made already, and said each time"
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
def test_what_cannot_be_built_is_said(offered: dict[str, str], tmp_path: Path) -> None:
    """A folder that is no repository, no such revision, no package, a build that fails, another package than named."""
    repository = tmp_path / "own"
    checkouts.write(repository, "own", "1.0", "", alter="raise RuntimeError('no compiler is here')")

    def problem(**given: str) -> str:
        name = given.pop("name", "own")
        wanted = Environment(packages={name: Checkout.model_validate(given)})
        with pytest.raises((EnvironmentProblem, RevisionError)) as refused:
            provide(wanted, found(wanted, tmp_path))
        return str(refused.value)

    assert problem(path="gone").startswith("repo gone is not a folder")
    assert problem(path="own", rev="v9").startswith("rev v9 names no commit of own")
    assert problem(path="own/own").startswith("own/own holds no pyproject.toml and no setup.py at HEAD")
    said = problem(path="own")
    assert said.startswith("own from own at HEAD (commit ")
    assert said.endswith("cannot be built: RuntimeError: no compiler is here")
    assert str(tmp_path) not in said
    checkouts.write(repository, "own", "1.0", "")
    assert problem(path="own", name="other").endswith("is own 1.0: name it own in environment.packages")


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
BY_FILE = SCENARIO.replace("{packages: {own: {path: ../own}}}", "{requirements: new.txt}").replace(
    "{packages: {own: {path: ../own, rev: v1}}}", "{requirements: old.txt}"
)


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
    facts["provenance"] = None


WHEEL = "evidence/environment/candidate/own-1.0-py3-none-any.whl"
RECORD = "own-1.0.dist-info/RECORD"


def evidence_of(ran: Ran) -> list[str]:
    return [name for name in forge.names(ran.folder) if name.startswith("evidence/") and "/figures/" not in name]


def committed(folder: Path) -> str:
    """Commit the package of the scenario twice; the id of the second commit."""
    checkouts.write(folder, "own", "1.0", "NUMBER = 1\n", tag="v1")
    return checkouts.write(folder, "own", "1.0", "NUMBER = 2\n")


@pytest.mark.slow
@pytest.mark.whole
def test_two_commits_of_a_package_are_compared(
    scenario: Write, rankproof: Run, offered: dict[str, str], tmp_path: Path
) -> None:
    """The report names both commits, and the run is made again where neither repository nor scenario is."""
    head = committed(tmp_path / "own")
    folder = scenario(FILES)
    ran = rankproof("run", str(folder), env=offered)
    assert ran.code == 0, ran.out + ran.err
    assert f"+own 1.0 (commit {head[:12]})" in ran.record.changed
    report = (ran.folder / "report.md").read_text()
    assert f"candidate: own was built from ./own at HEAD: commit {head}, tree " in report.replace("\\", "")
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
    assert f", own at commit {head[:12]}: in the cache already" in dry.out


@pytest.mark.slow
@pytest.mark.whole
def test_a_forged_checkout_is_refused(scenario: Write, rankproof: Run, offered: dict[str, str], tmp_path: Path) -> None:
    """Another revision, tree or wheel than the evidence and the ranks tell never ends as PASS."""
    head = committed(tmp_path / "own")
    ran = rankproof("run", str(scenario(FILES)), env=offered)
    assert ran.code == 0, ran.out + ran.err

    def verdict(change: Callable[[dict[str, Any]], None], *, kept: bytes | None = None) -> str:
        facts = json.loads((ran.folder / FACTS).read_text())
        change(facts)
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(ran.folder, copy)
        (copy / FACTS).write_text(json.dumps(facts))
        if kept is not None:
            (copy / WHEEL).write_bytes(kept)
        forge.rebind(copy)
        try:
            record = assemble(lambda name: (copy / name).read_bytes(), evidence_of(ran))
        except RecordError as error:
            return str(error)
        return f"{record.judgement.verdict}: {'; '.join(map(str, record.judgement.reasons))} {record.judgement}"

    assert verdict(lambda _facts: None).startswith("PASS: ")
    assert "own was built from v1, not from the scenario's" in verdict(other_revision)
    changed = f"own/__init__.py is not as commit {head[:12]} has it: the build of own 1.0 changed it"
    assert changed in verdict(other_tree).partition(" verdict=")[0]
    assert f"made by the build of own, in no file of commit {head[:12]}" in verdict(no_such_file)
    assert "does not account for: evidence/environment/candidate/own-1.0-py3-none-any.whl" in verdict(no_checkout)
    assert "is not the wheel that own was installed from" in verdict(other_wheel)
    assert "the run does not tell what ranks loaded of it" in verdict(silent)

    files = evident((ran.folder / WHEEL).read_bytes())
    text = "NUMBER = 2 # other\n"
    line = f"own/__init__.py,sha256={wheels.digest(text)},{len(text)}"
    listed = [line if one.startswith("own/__init__") else one for one in files[RECORD].decode().splitlines()]
    other = {**files, "own/__init__.py": text.encode()}
    whole = pack({**other, RECORD: ("\n".join(listed) + "\n").encode()})
    assert "is not a wheel as runs keep them" in verdict(installed_from(b"x"), kept=b"x")
    assert "has other files than own that was installed" in verdict(installed_from(whole), kept=whole)
    digest = wheel_digest(evident(whole)[RECORD].decode())
    found = "own 1.0 was installed, a rank found 1.0 or other files of it"
    assert found in verdict(installed_from(whole, record=digest), kept=whole)
    missing = "own/__init__.py is not in the wheel that was built of own 1.0"
    assert missing in verdict(installed_from(pack(other)), kept=pack(other))


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
    """Cells are SKIPPED where a checkout needs what nobody offers; a reproduction says what is missing, and where."""
    checkouts.write(tmp_path / "own", "own", "1.0", "NUMBER = 1\n", requires="nowhere", tag="v1")
    ran = rankproof("run", str(scenario(FILES)), env=offered)
    assert ran.code == 2, ran.out + ran.err
    (cell,) = ran.record.judgement.cells
    assert [str(reason) for reason in cell.reasons] == [
        "environment of the candidate: nowhere cannot be had: it is not in the cache, and pip finds no version of it"
    ]
    signer = ("--signer", fingerprint(ran), "--results", str(tmp_path / "again"))
    missing = rankproof("reproduce", str(ran.folder), *signer, "--from-evidence", "--dry-run", env=offered)
    assert missing.code == 2
    assert "CANNOT TELL: package own of the candidate was to be built from HEAD of a checkout, and the run never" in (
        missing.out
    )


@pytest.mark.slow
@pytest.mark.whole
def test_a_file_of_requirements_is_evidence(
    scenario: Write, rankproof: Run, offered: dict[str, str], tmp_path: Path
) -> None:
    """It is kept, judged again, and travels; one with a range ends the run with its line before anything is made."""
    folder = Path(offered["PIP_FIND_LINKS"])
    wheels.write(folder, "own", "1.0", "NUMBER = 1\n", requires=["word"])
    wheels.write(folder, "own", "2.0", "NUMBER = 2\n", requires=["word"])
    pinned = {"new.txt": lines(folder, "own-2.0", "word-1.2"), "old.txt": lines(folder, "own-1.0", "word-1.2")}
    place = scenario({**FILES, "scenario.yaml": BY_FILE, **pinned})
    ran = rankproof("run", str(place), env=offered)
    assert ran.code == 0, ran.out + ran.err
    assert ran.record.changed == ["-own 1.0", "+own 2.0"]
    kept = ran.folder / "evidence" / "environment" / "candidate" / "requirements.txt"
    assert kept.read_text() == pinned["new.txt"]
    verified = rankproof("verify", str(ran.folder), "--signer", fingerprint(ran))
    assert verified.code == 0, verified.out + verified.err
    evidence = [name for name in forge.names(ran.folder) if name.startswith("evidence/") and "/figures/" not in name]

    def judged(text: str, *, told: bool) -> str:
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(ran.folder, copy)
        (copy / kept.relative_to(ran.folder)).write_text(text)
        if told:
            facts = json.loads((copy / FACTS).read_text())
            facts["environments"]["candidate"]["requirements"] = hashlib.sha256(text.encode()).hexdigest()
            (copy / FACTS).write_text(json.dumps(facts))
        with pytest.raises(RecordError) as refused:
            assemble(lambda name: (copy / name).read_bytes(), evidence)
        return str(refused.value)

    other = pinned["new.txt"].replace("word==1.2", "word==1.3")
    assert "is not the scenario's, or not the one that is kept" in judged(other, told=False)
    assert "word 1.3 was asked for, 1.2 is there" in judged(other, told=True)
    assert "word 1.2 is there, which nobody asked for" in judged(pinned["new.txt"].splitlines()[0], told=True)
    assert "cannot be read again" in judged("own>=1\n", told=True)

    (place / "new.txt").write_text("own>=2\n")
    stopped = rankproof("run", str(place), env=offered)
    assert stopped.code == 64
    assert "new.txt:1:1: does not pin one version of own; write own==…" in stopped.err
    linted = rankproof("lint", str(place), env=offered)
    assert (linted.code, "new.txt:1:1: does not pin one version of own" in linted.out + linted.err) == (64, True)
    (place / "new.txt").unlink()
    assert "new.txt:1:1: cannot be read" in rankproof("run", str(place), env=offered).err


def test_supplies_are_found_before_anything_is_made(tmp_path: Path) -> None:
    """A file of requirements that is not there, or is a folder, is refused at its place; so is a checkout."""
    parsed = parse_scenario(BY_FILE.encode(), name="s.yaml")
    with pytest.raises(ScenarioError, match=r"new\.txt:1:1: cannot be read"):
        supply.of_scenario(parsed, folder=tmp_path)
    (tmp_path / "new.txt").mkdir()
    with pytest.raises(ScenarioError, match=r"new\.txt:1:1: cannot be read"):
        supply.of_scenario(parsed, folder=tmp_path)
    with pytest.raises(RevisionError, match=r"repo \./own is not a folder"):
        supply.of_scenario(parse_scenario(SCENARIO.encode(), name="s.yaml"), folder=tmp_path)
