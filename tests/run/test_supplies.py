"""Environments from more than names and versions: extras, files of requirements, torch for the
CPU.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.record.assemble import assemble
from harness.record.model import RecordError
from harness.run.arms.code import RevisionError
from harness.run.environments import cache, supply
from harness.run.environments.cache import provide
from harness.run.environments.pip import EnvironmentProblem
from harness.run.environments.supply import Supply, supplied
from harness.scenario import Environment, ScenarioError, parse_scenario
from tests.kit import wheels
from tests.kit.commands import Ran
from tests.run.test_checkouts import FILES, SCENARIO, evidence_of
from tests.run.test_environments import FACTS, fingerprint

Run = Callable[..., Ran]
Write = Callable[..., Path]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def lines(folder: Path, *names: str) -> str:
    """A file of requirements of wheels in a folder, each as NAME-VERSION."""
    return "".join(
        f"{name.replace('-', '==')} --hash=sha256:{sha256(folder / f'{name}-py3-none-any.whl')}\n"
        for name in names
    )


# -- extras and requirements -------------------------------------------------------------------


@pytest.mark.long
def test_an_extra_brings_what_it_stands_for(offered: dict[str, str]) -> None:
    """An extra installs its packages, and one that the package does not have is an error, not a
    smaller environment.
    """
    folder = Path(offered["PIP_FIND_LINKS"])
    wheels.write(folder, "able", "1.0", "", extras={"more": "word"})
    assert provide(Environment(packages={"able": "1.0"})).facts.versions == {"able": "1.0"}
    made = provide(Environment(packages={"able[more]": "1.0"}))
    assert (made.facts.versions, made.named) == ({"able": "1.0", "word": "1.2"}, ("able",))
    with pytest.raises(
        EnvironmentProblem,
        match=r"^able 1\.0 has no extra moar; use an extra that exists, or remove it$",
    ):
        provide(Environment(packages={"able[moar]": "1.0"}))


@pytest.mark.long
def test_a_file_of_requirements_is_all_that_is_installed(offered: dict[str, str]) -> None:
    """By hash and complete: a line too few, another file of the same version, each stops the run by
    name.
    """
    folder = Path(offered["PIP_FIND_LINKS"])
    asked = Environment(requirements="r.txt")

    def given(text: str) -> Supply:
        return supplied(text.encode(), name="r.txt")

    whole = lines(folder, "greeting-2.0", "word-1.2")
    made = provide(asked, given(whole))
    assert (made.facts.versions, made.named) == (
        {"greeting": "2.0", "word": "1.2"},
        ("greeting", "word"),
    )
    assert made.facts.requirements == hashlib.sha256(whole.encode()).hexdigest()
    told: list[str] = []
    assert provide(asked, given(whole), says=told.append) == made
    assert not told
    provide(asked, given(f"# another file\n{whole}"), says=told.append)
    assert told[0].startswith("making an environment")
    with pytest.raises(
        EnvironmentProblem, match=r"lacks word\S*, which greeting==2\.0 needs; add it"
    ):
        provide(asked, given(lines(folder, "greeting-2.0")))
    wheels.write(folder, "word", "1.2", "WORD = 'hullo'\n")
    with pytest.raises(
        EnvironmentProblem, match=r"word==1\.2 has a sha256 that differs from the pinned sha256"
    ):
        provide(asked, given(f"{whole}\n# made again\n"))


@pytest.mark.long
def test_torch_that_would_bring_cuda_is_refused(offered: dict[str, str]) -> None:
    """On the CPU the build for it is taken where pip finds one.

    Else nothing is installed, and what to do is said.
    """
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
            "torch 9.0 would install nvidia-cublas 13.0, triton 3.0 for a run on the CPU; nothing"
            " was installed. Let pip"
        )
        assert str(refused.value).endswith("Or accept this build with environment.torch: any")
        assert [text.partition(" ")[0] for text in told] == ["making"]
    assert all(one.description is None for one in cache.cached())
    anything = provide(Environment(packages={"torch": "9.0"}, torch="any"))
    assert set(anything.facts.versions) == {"torch", "nvidia-cublas", "triton"}
    wheels.write(folder, "torch", "9.0+cpu", "")
    made = provide(Environment(packages={"torch": "9.0"}, torch="cpu"))
    assert made.facts.versions == {"torch": "9.0+cpu"}
    # Of a dependency the version that Rankproof itself runs with is preferred, whatever is newer.
    wheels.write(folder, "torch", "2.13.0+cpu", "")
    assert (
        provide(Environment(packages={"uses": "1.0"}, torch="cpu")).facts.versions["torch"]
        == "2.13.0+cpu"
    )


BY_FILE = SCENARIO.replace("{packages: {own: {path: ../own}}}", "{requirements: new.txt}").replace(
    "{packages: {own: {path: ../own, rev: v1}}}", "{requirements: old.txt}"
)


@pytest.mark.whole
def test_a_file_of_requirements_is_evidence(
    scenario: Write, rankproof: Run, offered: dict[str, str], tmp_path: Path
) -> None:
    """It is kept, judged again, and travels.

    One with a range ends the run with its line before anything is made.
    """
    folder = Path(offered["PIP_FIND_LINKS"])
    wheels.write(folder, "own", "1.0", "NUMBER = 1\n", requires=["word"])
    wheels.write(folder, "own", "2.0", "NUMBER = 2\n", requires=["word"])
    pinned = {
        "new.txt": lines(folder, "own-2.0", "word-1.2"),
        "old.txt": lines(folder, "own-1.0", "word-1.2"),
    }
    place = scenario({**FILES, "scenario.yaml": BY_FILE, **pinned})
    ran = rankproof("run", str(place), env=offered)
    assert ran.code == 0, ran.out + ran.err
    assert ran.record.changed == ["-own 1.0", "+own 2.0"]
    kept = ran.folder / "evidence" / "environment" / "candidate" / "requirements.txt"
    assert kept.read_text() == pinned["new.txt"]
    verified = rankproof("verify", str(ran.folder), "--signer", fingerprint(ran))
    assert verified.code == 0, verified.out + verified.err

    def judged(text: str, *, told: bool) -> str:
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(ran.folder, copy)
        (copy / kept.relative_to(ran.folder)).write_text(text)
        if told:
            facts = json.loads((copy / FACTS).read_text())
            facts["environments"]["candidate"]["requirements"] = hashlib.sha256(
                text.encode()
            ).hexdigest()
            (copy / FACTS).write_text(json.dumps(facts))
        with pytest.raises(RecordError) as refused:
            assemble(lambda name: (copy / name).read_bytes(), evidence_of(ran))
        return str(refused.value)

    other = pinned["new.txt"].replace("word==1.2", "word==1.3")
    assert "differs from the scenario's or from the saved file" in judged(other, told=False)
    assert "word 1.3 is required, but 1.2 is installed" in judged(other, told=True)
    assert "word 1.2 is installed, but is not among the requirements" in judged(
        pinned["new.txt"].splitlines()[0], told=True
    )
    assert "cannot be read again" in judged("own>=1\n", told=True)

    (place / "new.txt").write_text("own>=2\n")
    stopped = rankproof("run", str(place), env=offered)
    assert stopped.code == 64
    assert "new.txt:1:1: does not pin one version of own; write own==…" in stopped.err
    linted = rankproof("lint", str(place), env=offered)
    assert (
        linted.code,
        "new.txt:1:1: does not pin one version of own" in linted.out + linted.err,
    ) == (64, True)
    (place / "new.txt").unlink()
    assert "new.txt:1:1: cannot be read" in rankproof("run", str(place), env=offered).err


def test_supplies_are_found_before_anything_is_made(tmp_path: Path) -> None:
    """A file of requirements that is not there, or is a folder, is refused at its place.

    So is a checkout.
    """
    parsed = parse_scenario(BY_FILE.encode(), name="s.yaml")
    with pytest.raises(ScenarioError, match=r"new\.txt:1:1: cannot be read"):
        supply.of_scenario(parsed, folder=tmp_path)
    (tmp_path / "new.txt").mkdir()
    with pytest.raises(ScenarioError, match=r"new\.txt:1:1: cannot be read"):
        supply.of_scenario(parsed, folder=tmp_path)
    with pytest.raises(RevisionError, match=r"repo \./own is not a folder"):
        supply.of_scenario(parse_scenario(SCENARIO.encode(), name="s.yaml"), folder=tmp_path)
