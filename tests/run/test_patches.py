"""Patches that make an arm: what is applied, what is refused, and what the record says of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.run.arms.staging import ArmError
from tests.kit.repositories import (
    BROKEN,
    FIXED,
    SCENARIO,
    SUBJECT,
    Staged,
    code,
    commit,
    git,
    make,
    scenario_in,
    write,
)


def test_a_patch_alone_is_applied_to_head(tmp_path: Path, staged: Callable[..., Staged]) -> None:
    """`patch` without `rev` changes what HEAD holds; what is not committed has no part in it."""
    repo = make(tmp_path / "proj")
    folder = scenario_in(repo / "meet", SCENARIO.replace("rev: broken", "patch: revert.patch"))
    folder.joinpath("revert.patch").write_text(git(repo, "diff", "fixed", "broken") + "\n")
    write(repo, {"proj.py": "# not committed\n"})
    arms = staged(folder)
    assert code(arms["control"])["proj.py"] == BROKEN
    facts = arms["control"].revision
    assert facts is not None
    assert (facts.rev, facts.commit) == ("HEAD", git(repo, "rev-parse", "HEAD"))
    assert facts.patch is not None


def test_a_patch_may_add_move_and_remove_files(
    tmp_path: Path, staged: Callable[..., Staged]
) -> None:
    """A patch of several files is applied whole, also where it renames one."""
    repo = make(tmp_path / "proj")
    git(repo, "mv", "README", "docs.txt")
    commit(repo, {"added.py": "x = 1\n"}, tag="moved")
    git(repo, "rm", "-q", "docs.txt")
    folder = scenario_in(
        tmp_path / "meet", SCENARIO.replace("rev: broken", "rev: fixed\n    patch: p.patch")
    )
    folder.joinpath("p.patch").write_text(git(repo, "diff", "-M", "fixed", "moved") + "\n")
    arms = staged(folder, f"subject.candidate.repo={repo}", f"subject.control.repo={repo}")
    assert code(arms["control"]) == {
        "proj.py": FIXED,
        "added.py": "x = 1\n",
        "docs.txt": "read me\n",
        "subject.py": SUBJECT,
    }


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ("no patch at all\n", "not a patch that git can read"),
        (
            (
                "--- a/proj.py\n+++ b/proj.py\n@@ -1,2 +1,2 @@ def\n def other(rank):\n-    return"
                " 1\n+    return 2\n"
            ),
            "proj.py line 1, hunk @@ -1,2 +1,2 @@",
        ),
        ("--- a/gone.py\n+++ b/gone.py\n@@ -1 +1 @@\n-a\n+b\n", "gone.py"),
        ("--- a/../../x\n+++ b/../../x\n@@ -0,0 +1 @@\n+b\n", "x"),
    ],
)
def test_a_patch_that_does_not_apply_names_the_hunk(
    tmp_path: Path, staged: Callable[..., Staged], patch: str, said: str
) -> None:
    """The message says which patch, which commit, which file and which hunk."""
    repo = make(tmp_path / "proj")
    folder = scenario_in(
        repo / "meet", SCENARIO.replace("rev: broken", "rev: broken\n    patch: bad.patch")
    )
    folder.joinpath("bad.patch").write_text(patch)
    with pytest.raises(ArmError) as error:
        staged(folder)
    assert said in str(error.value)


def test_links_in_a_patch_are_not_followed(tmp_path: Path, staged: Callable[..., Staged]) -> None:
    """A patch that adds a link adds nothing to the arm, and one that writes through it is
    refused.
    """
    repo = make(tmp_path / "proj")
    folder = scenario_in(
        repo / "meet", SCENARIO.replace("rev: broken", "rev: broken\n    patch: p.patch")
    )
    link = (
        "diff --git a/out b/out\nnew file mode 120000\n--- /dev/null\n+++ b/out\n@@ -0,0 +1 @@\n+"
        f"{tmp_path}\n\\ No newline at end of file\n"
    )
    folder.joinpath("p.patch").write_text(link)
    assert sorted(code(staged(folder)["control"])) == ["README", "proj.py", "subject.py"]
    through = (
        "diff --git a/out/x b/out/x\nnew file mode 100644\n--- /dev/null\n+++ b/out/x\n@@ -0,0 +1"
        " @@\n+x\n"
    )
    folder.joinpath("p.patch").write_text(link + through)
    with pytest.raises(ArmError, match="does not apply"):
        staged(folder)
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
@pytest.mark.whole
def test_a_patch_in_the_record_is_the_scenarios(tmp_path: Path, rankproof: Any) -> None:
    """The patch is evidence, its digest is in the record, and the verifier works from evidence
    alone.
    """
    repo = make(tmp_path / "proj")
    folder = scenario_in(repo / "meet", SCENARIO.replace("rev: broken", "patch: revert.patch"))
    folder.joinpath("revert.patch").write_text(git(repo, "diff", "fixed", "broken") + "\n")
    ran = rankproof("run", str(folder))
    assert ran.code == 0, ran.out + ran.err
    assert (ran.folder / "evidence/patch/control.patch").read_bytes() == (
        folder / "revert.patch"
    ).read_bytes()
    shutil.rmtree(repo)
    verified = rankproof(
        "verify",
        str(ran.folder / "report.md"),
        "--signer",
        ran.out.split("--signer ")[1].split()[0],
    )
    assert verified.code == 0, verified.out
