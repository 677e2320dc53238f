"""Arms laid out from a repository's history: what is staged, what is refused, and that nothing of
the user's runs.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.cli import run, running
from harness.record.facts import RevisionFacts
from harness.run.arms.provenance import origins
from harness.run.arms.staging import ArmError, StagedArm
from harness.scenario import ScenarioError, load_scenario
from tests.kit.commands import ROOT
from tests.kit.repositories import (
    BROKEN,
    FIXED,
    SCENARIO,
    SUBJECT,
    Staged,
    arm_with_traps,
    code,
    commit,
    content,
    git,
    make,
    scenario_in,
    write,
)


def test_each_arm_is_its_revision_below_the_scenarios_subject(
    tmp_path: Path, staged: Callable[..., Staged]
) -> None:
    """Code under test comes from each arm's commit, the subject beside the scenario is laid over
    both.
    """
    repo = make(tmp_path / "proj repo")
    arms = staged(scenario_in(repo / "scenarios" / "meet"))
    assert code(arms["candidate"]) == {
        "proj.py": FIXED,
        "subject.py": SUBJECT,
        "README": "read me\n",
    }
    assert code(arms["control"]) == {
        "proj.py": BROKEN,
        "subject.py": SUBJECT,
        "README": "read me\n",
    }
    facts = arms["control"].revision
    assert facts is not None
    assert (facts.commit, facts.tree) == (
        git(repo, "rev-parse", "broken"),
        git(repo, "rev-parse", "broken^{tree}"),
    )
    assert (facts.repo, facts.rev, facts.folder) == (None, "broken", "")


def test_no_program_of_the_repository_runs_and_its_git_folder_stays_as_it_is(
    tmp_path: Path, staged: Callable[..., Staged]
) -> None:
    """Hooks, smudge filters and monitors stay silent, and every file of the repository is byte for
    byte the same.
    """
    repo = make(tmp_path / "proj")
    folder = scenario_in(
        tmp_path / "meet", SCENARIO.replace("rev: fixed", "rev: fixed, patch: p.patch")
    )
    folder.joinpath("p.patch").write_text(patch_of(repo, "proj.py", FIXED + "\nMORE = 1\n"))
    tripped = tmp_path / "tripped"
    arm_with_traps(repo, tripped)
    before = content(repo)
    arms = staged(folder, f"subject.candidate.repo={repo}", f"subject.control.repo={repo}")
    assert code(arms["candidate"])["proj.py"] == FIXED + "\nMORE = 1\n"
    assert content(repo) == before
    assert not tripped.exists()


def patch_of(repo: Path, file: str, text: str) -> str:
    """The patch that turns a file of HEAD into `text`."""
    before = (repo / file).read_text()
    (repo / file).write_text(text)
    made = git(repo, "diff") + "\n"
    (repo / file).write_text(before)
    return made


@pytest.mark.parametrize("kind", ["bare", "worktree", "shallow", "detached", "subfolder"])
def test_every_kind_of_repository_will_do(
    tmp_path: Path, staged: Callable[..., Staged], kind: str
) -> None:
    """Bare, linked, shallow and detached repositories, and a folder inside one, give the same
    code.
    """
    origin = make(tmp_path / "origin")
    repo = tmp_path / "other"
    match kind:
        case "bare":
            git(tmp_path, "clone", "-q", "--bare", str(origin), str(repo))
        case "worktree":
            git(origin, "worktree", "add", "-q", "--detach", str(repo), "broken")
        case "shallow":
            git(tmp_path, "clone", "-q", "--depth", "2", f"file://{origin}", str(repo))
        case "detached":
            git(tmp_path, "clone", "-q", str(origin), str(repo))
            git(repo, "checkout", "-q", "--detach", "broken")
        case "subfolder":
            commit(origin, {"deep/er/file": "x"})
            repo = origin / "deep" / "er"
    folder = scenario_in(tmp_path / "meet")
    arms = staged(folder, f"subject.candidate.repo={repo}", f"subject.control.repo={repo}")
    assert code(arms["candidate"])["proj.py"] == FIXED
    assert code(arms["control"])["proj.py"] == BROKEN


def test_repo_alone_leaves_the_revisions_that_the_scenario_states(
    tmp_path: Path, staged: Callable[..., Staged]
) -> None:
    """`--repo` says where the code lies.

    Which commits of it are held against one another the scenario says.
    """
    repo, folder = make(tmp_path / "proj"), scenario_in(tmp_path / "meet")
    parser = argparse.ArgumentParser()
    run.arguments(parser)
    arms = staged(folder, *running.revisions(parser.parse_args([str(folder), "--repo", str(repo)])))
    assert (code(arms["candidate"])["proj.py"], code(arms["control"])["proj.py"]) == (FIXED, BROKEN)
    given = parser.parse_args([str(folder), "--repo", str(repo), "--control", "fixed"])
    assert code(staged(folder, *running.revisions(given))["control"])["proj.py"] == FIXED


def test_a_scenario_that_only_one_revision_holds_is_no_difference(
    tmp_path: Path, staged: Callable[..., Staged]
) -> None:
    """The scenario's own folder, committed or not, has no part in what the arms are compared by."""
    repo = make(tmp_path / "proj")
    folder = scenario_in(repo / "scenarios" / "meet")
    commit(repo, {}, tag="more")
    for override in ("subject.candidate.rev=more", "subject.candidate={}"):
        arms = staged(folder, override, "subject.control.rev=fixed")
        assert code(arms["candidate"]) == code(arms["control"])


def test_the_scenarios_folder_is_the_code_only_where_it_differs(
    tmp_path: Path, staged: Callable[..., Staged]
) -> None:
    """A committed subject that is the same everywhere tests the code around it.

    One that changed is the code itself.
    """
    repo = make(tmp_path / "proj")
    folder = scenario_in(repo / "scenarios" / "meet")
    commit(repo, {"proj.py": BROKEN}, tag="first")
    commit(repo, {"proj.py": FIXED}, tag="second")
    revisions = ("subject.candidate.rev=second", "subject.control.rev=first")
    arms = staged(folder, *revisions)
    assert (code(arms["candidate"])["proj.py"], code(arms["control"])["proj.py"]) == (FIXED, BROKEN)
    commit(repo, {"scenarios/meet/subject.py": "# changed\n"}, tag="third")
    arms = staged(folder, "subject.candidate.rev=third", "subject.control.rev=second")
    assert code(arms["candidate"])["subject.py"] == "# changed\n"
    assert set(code(arms["control"])) == {"scenario.yaml", "subject.py"}


def test_git_variables_of_a_hook_do_not_point_elsewhere(
    tmp_path: Path, staged: Callable[..., Staged], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run started by another repository's hook still reads the repository that was named."""
    other = make(tmp_path / "another", module="wrong.py")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    arms = staged(scenario_in(make(tmp_path / "proj") / "meet"))
    assert "proj.py" in code(arms["candidate"])


def test_the_working_tree_can_be_compared_with_a_revision(
    tmp_path: Path, staged: Callable[..., Staged]
) -> None:
    """An arm without a revision runs the same folder as it stands, uncommitted changes included,
    ignored files not.
    """
    repo = make(tmp_path / "proj")
    write(
        repo,
        {
            "proj.py": FIXED + "# not committed\n",
            ".gitignore": "junk/\n",
            "junk/big": "x",
            "new.py": "1\n",
        },
    )
    arms = staged(
        scenario_in(repo / "meet", SCENARIO.replace("candidate: {rev: fixed}", "candidate: {}"))
    )
    found = code(arms["candidate"])
    assert found["proj.py"].endswith("# not committed\n")
    assert "new.py" in found
    assert "junk/big" not in found
    assert arms["candidate"].revision is None


@pytest.mark.parametrize(
    ("rev", "said"),
    [
        ("fxied", "did you mean fixed?"),
        (
            "0123456",
            (
                "is not a commit in the scenario's repository; to use another repository, pass"
                " --repo PATH"
            ),
        ),
        ("fixed:proj.py", "is not a commit"),
        ("broken..fixed", "is not a commit"),
        (
            "twice",
            "ambiguous in the scenario's repository; write refs/heads/twice or refs/tags/twice",
        ),
    ],
)
def test_a_revision_that_cannot_be_had_is_named(
    tmp_path: Path, staged: Callable[..., Staged], rev: str, said: str
) -> None:
    """A revision that is not there, is not a commit or could be two stops the run, and says what is
    near.
    """
    repo = make(tmp_path / "proj")
    git(repo, "branch", "twice", "broken")
    git(repo, "tag", "twice", "fixed")
    folder = scenario_in(repo / "meet")
    with pytest.raises(ArmError) as error:
        staged(folder, f"subject.control.rev={rev}")
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("rev", "--exec=touch x", "hyphen"),
        ("repo", "https://example.org/a.git", "Rankproof does not fetch repositories"),
        ("repo", "git@example.org:a.git", "Rankproof does not fetch repositories"),
        ("repo", "ext::sh -c touch% x", "Rankproof does not fetch repositories"),
    ],
)
def test_addresses_and_options_are_refused_before_git_sees_them(
    tmp_path: Path, key: str, value: str, said: str
) -> None:
    """A revision is never taken for an option, and a repository is a path of this machine."""
    folder = scenario_in(tmp_path / "meet")
    with pytest.raises(ScenarioError) as error:
        load_scenario(folder, overrides=[f"subject.control.{key}={value}"])
    assert said in str(error.value)


def test_an_abbreviated_commit_stays_a_text(tmp_path: Path) -> None:
    """`--set subject.control.rev=1234567` is a revision, not a number."""
    loaded = load_scenario(
        scenario_in(tmp_path / "meet"), overrides=["subject.control.rev=1234567"]
    )
    assert loaded.scenario.subject.control is not None
    assert loaded.scenario.subject.control.rev == "1234567"


def test_a_folder_that_is_no_repository_is_named(
    tmp_path: Path, staged: Callable[..., Staged]
) -> None:
    """Neither a folder without git nor one that is not there is taken for the repository around
    it.
    """
    (tmp_path / "empty").mkdir()
    folder = scenario_in(make(tmp_path / "proj") / "meet")
    for place, said in (("empty", "not a git repository"), ("gone", "is not a folder")):
        with pytest.raises(ArmError, match=said):
            staged(folder, f"subject.control.repo={tmp_path / place}")


def test_submodules_and_pointers_of_lfs_are_named(
    tmp_path: Path, staged: Callable[..., Staged]
) -> None:
    """Code that lies elsewhere stops the run with its path, but only where it is part of what is
    staged.
    """
    repo, other = make(tmp_path / "proj"), make(tmp_path / "other")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "third")
    commit(repo, {}, tag="submodule")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 9\n"
    git(repo, "rm", "-q", "third")
    commit(repo, {"weights.bin": pointer, "src/proj.py": FIXED}, tag="lfs")
    folder = scenario_in(repo / "meet")
    for rev, said in (
        ("submodule", "third is a submodule"),
        ("lfs", "weights.bin .* Git LFS pointer"),
    ):
        with pytest.raises(ArmError, match=said):
            staged(folder, f"subject.control.rev={rev}")
    text = SCENARIO.replace("entry: subject:meet", "entry: subject:meet\n  path: ../src").replace(
        "rev: fixed", ""
    )
    assert "proj.py" in code(
        staged(scenario_in(repo / "meet", text), "subject.control.rev=lfs")["control"]
    )


def test_a_partial_clone_fetches_nothing(tmp_path: Path, staged: Callable[..., Staged]) -> None:
    """Objects that were left out stop the run; the clone stays as it is."""
    origin, repo = make(tmp_path / "origin"), tmp_path / "partial"
    git(origin, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--filter=blob:none", f"file://{origin}", str(repo))
    before = content(repo)
    folder = scenario_in(tmp_path / "meet")
    with pytest.raises(ArmError, match=r"\./partial is a partial clone"):
        staged(folder, f"subject.candidate.repo={repo}", f"subject.control.repo={repo}")
    assert content(repo) == before


@pytest.mark.parametrize("name", ["a\nb.py", "caf\udce9.py"])
def test_a_name_that_cannot_be_written_down_is_refused(
    tmp_path: Path, staged: Callable[..., Staged], name: str
) -> None:
    """A file whose name would break a line of the evidence stops the run, with the name escaped."""
    repo = make(tmp_path / "proj")
    commit(repo, {name: "x = 1\n"}, tag="odd")
    with pytest.raises(ArmError, match="cannot be checked out"):
        staged(scenario_in(repo / "meet"), "subject.candidate.rev=odd")


def test_too_much_code_says_what_to_do(
    tmp_path: Path, staged: Callable[..., Staged], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A revision with more files than an arm may have asks for a narrower folder, before anything
    is read.
    """
    monkeypatch.setattr("harness.run.arms.code.FILES_LIMIT", 1)
    with pytest.raises(ArmError, match=r"subject\.path: the repository contains more than"):
        staged(scenario_in(make(tmp_path / "proj") / "meet"))


def test_a_file_in_both_places_is_no_guess(tmp_path: Path, staged: Callable[..., Staged]) -> None:
    """A file beside the scenario never hides one of the code under test."""
    repo = make(tmp_path / "proj")
    folder = scenario_in(repo / "meet")
    write(folder, {"proj.py": "another\n"})
    with pytest.raises(ArmError, match=r"proj\.py is both"):
        staged(folder)


def test_code_below_src_is_found(tmp_path: Path, staged: Callable[..., Staged]) -> None:
    """A repository with its code in `src` needs no `subject.path`."""
    repo = make(tmp_path / "proj", module="src/proj/__init__.py")
    arms = staged(scenario_in(repo / "meet"))
    assert code(arms["candidate"]) == {"proj/__init__.py": FIXED, "subject.py": SUBJECT}


def test_inputs_and_links_are_not_code(tmp_path: Path, staged: Callable[..., Staged]) -> None:
    """What the scenario names as an input, and what only points elsewhere, is not staged from a
    revision either.
    """
    repo = make(tmp_path / "proj")
    (repo / "link.py").symlink_to("/etc/hostname")
    commit(repo, {"model/weights.json": "{}"}, tag="more")
    arms = staged(scenario_in(repo / "meet"), "subject.candidate.rev=more", inputs=[repo / "model"])
    assert sorted(code(arms["candidate"])) == ["README", "proj.py", "subject.py"]


# -- whole runs --------------------------------------------------------------------------------


@pytest.mark.long
def test_a_revision_against_its_fix_is_a_pass_that_verifies(tmp_path: Path, rankproof: Any) -> None:
    """`--repo`, `--candidate` and `--control` run two commits.

    Report and record name both, and no folder of here.
    """
    repo = make(tmp_path / "my proj")
    tripped = tmp_path / "tripped"
    arm_with_traps(repo, tripped)
    before = content(repo)
    text = SCENARIO.replace("{rev: fixed}", "{}").replace("rev: broken", "with: {}")
    folder = scenario_in(tmp_path / "meet", text.replace("with: {}", "rev: nothing"))
    ran = rankproof(
        "run", str(folder), "--repo", ".", "--candidate", "main", "--control", "main~1", cwd=repo
    )
    assert ran.code == 0, ran.out + ran.err
    assert content(repo) == before
    assert not tripped.exists()
    record = ran.record
    assert record.arms["control"].revision.commit == git(repo, "rev-parse", "broken")
    assert record.arms["candidate"].revision.repo == "./my proj"
    assert any(line.startswith("-") and "None if rank" in line for line in record.changed)
    report = (ran.folder / "report.md").read_text()
    assert git(repo, "rev-parse", "broken") in report
    for file in ran.folder.rglob("*"):
        assert not file.is_file() or str(tmp_path).encode() not in file.read_bytes(), file
    verified = rankproof(
        "verify",
        str(ran.folder / "report.md"),
        "--signer",
        ran.out.split("--signer ")[1].split()[0],
    )
    assert verified.code == 0, verified.out


@pytest.mark.long
def test_two_names_of_one_tree_are_inconclusive(tmp_path: Path, rankproof: Any) -> None:
    """A candidate and a control at the same tree prove nothing, whatever they are called."""
    folder = scenario_in(make(tmp_path / "proj") / "meet")
    for control in ("fixed", "main"):
        few = ("--set", "trials.candidate=1", "--set", "trials.control=1")
        ran = rankproof("run", str(folder), "--candidate", "fixed", "--control", control, *few)
        assert ran.code == 2, ran.out + ran.err
        assert "both arms have the same code" in ran.out


@pytest.mark.long
def test_rankproof_can_be_its_own_subject(tmp_path: Path, rankproof: Any) -> None:
    """An arm that holds a package `harness` runs that package, while the rank's own runtime goes on
    beside it.
    """
    ours = Path(__file__).parents[2] / "harness"
    repo = tmp_path / "self"
    shutil.copytree(ours, repo / "harness", ignore=shutil.ignore_patterns("__pycache__"))
    git(repo, "init", "-q", "-b", "main")
    file = "harness/events.py"
    fixed = (repo / file).read_text()
    commit(repo, {file: fixed + "\nMARK = 'fixed'\n"}, tag="fixed")
    commit(repo, {file: fixed + "\nMARK = None\n"}, tag="broken")
    subject = (
        "from harness import events\nimport harness.stats.rates, sys\n\n"
        "def meet(context):\n    said = events.MARK or context.rank == 0\n    assert said\n"
        "    context.emit('met', file=events.__file__.rpartition('/')[2])\n"
    )
    warm = SCENARIO.replace(", start: fresh", "")
    ran = rankproof("run", str(scenario_in(tmp_path / "meet", warm, subject)), "--repo", str(repo),
                    "--candidate", "fixed", "--control", "broken")  # fmt: skip
    assert ran.code == 0, ran.out + ran.err
    assert ran.record.run.start == "fresh"


def test_traps_are_traps(tmp_path: Path) -> None:
    """What the tests above call a trap does leave its mark when git checks files out."""
    repo = make(tmp_path / "proj")
    tripped = tmp_path / "tripped"
    arm_with_traps(repo, tripped)
    with contextlib.suppress(subprocess.CalledProcessError):
        git(repo, "checkout", "-q", "broken")
    assert tripped.exists()


def test_the_tool_is_not_the_subject_of_a_scenario_about_another_repository(tmp_path: Path) -> None:
    """Scenarios that ship with Rankproof, installed from its clone, may be about other code: that
    is what is proved.
    """
    repo = make(tmp_path / "proj")
    commit(repo, {"pyproject.toml": '[project]\nname = "proj"\n'}, tag="declares")
    folder = ROOT / "scenarios" / "exo-runner"
    ours = origins(
        load_scenario(folder / "scenario.yaml").scenario,
        folder,
        {"candidate": StagedArm(folder, {})},
    )
    if "rankproof" not in ours["candidate"].declared:
        pytest.skip("Rankproof is not installed from this clone")
    given = [
        f"subject.{arm}.{key}"
        for arm in ("candidate", "control")
        for key in (f"repo={repo}", "rev=declares")
    ]
    loaded = load_scenario(folder / "scenario.yaml", overrides=given)
    facts = RevisionFacts(
        repo="./proj",
        rev="declares",
        commit=git(repo, "rev-parse", "HEAD"),
        tree="0" * 40,
        patch=None,
        folder="",
    )
    theirs = origins(loaded.scenario, folder, {"candidate": StagedArm(folder, {}, revision=facts)})
    assert set(theirs["candidate"].declared) == {"proj"}
    mine = load_scenario(
        folder / "scenario.yaml",
        overrides=[f"subject.candidate.repo={ROOT}", "subject.candidate.rev=HEAD"],
    )
    head = facts.model_copy(update={"commit": git(ROOT, "rev-parse", "HEAD")})
    named = origins(mine.scenario, folder, {"candidate": StagedArm(folder, {}, revision=head)})
    assert "rankproof" in named["candidate"].declared
