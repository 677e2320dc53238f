"""A second person, another clone, another results folder: is the report reproduced?"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.record.model import Record
from tests.kit.people import RANK, SCENARIO, WORDS, Person, Ran, answer, gone, made
from tests.kit.repositories import commit, git
from tests.run import hub

Project = Callable[..., Path]
Clone = Callable[[Path], Path]
Usual = tuple[Person, Ran]
pytestmark = [pytest.mark.slow, pytest.mark.whole]  # each makes a run and reproduces it
BROKEN = "subject.candidate.with.fixed=not yet"


@pytest.mark.parametrize(("more", "verdict"), [((), "PASS"), (("--set", BROKEN), "FAIL")])
def test_a_report_is_reproduced_on_a_second_clone(
    more: tuple[str, ...], verdict: str, ann: Person, bob: Person, project: Project, clone: Clone
) -> None:
    """PASS and FAIL reports give REPRODUCED without the first clone.

    The reproduction verifies and names the report.
    """
    place = project()
    ran = made(ann, place, *more)
    report, mine = ann.send(bob, ran), clone(place)
    gone(ann, place)
    done = bob("reproduce", str(report), cwd=mine)
    assert done.code == 0, done.out
    assert answer(done) == "REPRODUCED"
    record = done.record
    assert record.judgement.verdict == verdict
    assert record.run.source.commit == git(mine, "rev-parse", "HEAD")
    assert record.run.reproduces is not None
    digest = hashlib.sha256((report / "report.md").read_bytes()).hexdigest()
    assert record.run.reproduces.report == f"sha256:{digest}"
    assert f"sha256:{digest}" in done.report.read_text()
    bob.trusts = [bob.fingerprint]
    assert bob("verify", str(done.folder)).code == 0
    cell = record.comparison.result.cells[0] if record.comparison else None
    assert cell is not None
    assert (cell.same_verdict, cell.same_failure, cell.same_numbers) == (True, "yes", "yes")
    assert git(mine, "status", "--porcelain") == ""


def test_a_change_of_the_subject_is_source_differs(
    ann: Person, bob: Person, project: Project, clone: Clone
) -> None:
    """One changed line, committed or not: nothing runs, the file is named, and --repo runs the
    report's own commit.
    """
    place = project()
    report, mine = ann.send(bob, made(ann, place)), clone(place)
    (mine / WORDS / "rank.sh").write_text(RANK + "# one line more\n")
    changed = bob("reproduce", str(report), cwd=mine)
    assert changed.code == 2
    assert "SOURCE DIFFERS" in changed.out
    assert "rank.sh differs" in changed.out
    assert not bob.results.exists()
    commit(mine, {}, tag="changed")
    assert "SOURCE DIFFERS" in bob("reproduce", str(report), cwd=mine).out
    again = bob("reproduce", str(report), "--repo", ".", cwd=mine)
    assert again.code == 0, again.out
    assert answer(again) == "REPRODUCED"
    assert again.record.run.source.commit == git(mine, "rev-parse", "HEAD~1")


def test_another_scenario_file_is_source_differs(
    ann: Person, bob: Person, project: Project, clone: Clone
) -> None:
    """A weakened scenario in the checkout is named, not run."""
    place = project()
    report, mine = ann.send(bob, made(ann, place)), clone(place)
    (mine / WORDS / "scenario.yaml").write_text(SCENARIO.replace("candidate: 5", "candidate: 4"))
    done = bob("reproduce", str(report), cwd=mine)
    assert done.code == 2
    assert "scenario: no file" in done.out


def test_a_fixed_bug_is_not_reproduced_and_only_with_enough_trials(
    ann: Person, bob: Person, project: Project, clone: Clone
) -> None:
    """Three trials against three cannot tell, and say how many would.

    Enough of them refute the FAIL.
    """
    broken = RANK.replace('"$fixed" != yes', '"$fixed" != never')
    place = project({f"{WORDS}/rank.sh": broken})
    ran = made(
        ann, place, "--set", "trials.candidate=3", "--set", "subject.control.with.fixed=no indeed"
    )
    assert ran.record.judgement.verdict == "FAIL"
    report, mine = ann.send(bob, ran), clone(place)
    commit(mine, {f"{WORDS}/rank.sh": RANK}, tag="fixed")
    few = bob("reproduce", str(report), "--source", ".", cwd=mine)
    assert (few.code, answer(few)) == (2, "CANNOT TELL"), few.out
    assert "more trials like these would settle it" in few.out
    more = few.record.comparison.result.cells[0].more_trials if few.record.comparison else None
    assert more
    assert f"--trials {3 + more}" in few.out
    enough = bob(
        "reproduce",
        str(report),
        "--candidate",
        "fixed",
        "--repo",
        ".",
        "--trials",
        str(3 + more),
        cwd=mine,
    )
    assert (enough.code, answer(enough)) == (1, "NOT REPRODUCED"), enough.out
    assert enough.record.run.reproduces is not None
    assert enough.record.run.reproduces.candidate.startswith("commit")
    bob.trusts = [bob.fingerprint]
    assert bob("verify", str(enough.folder)).code == 0


def test_the_same_verdict_by_another_failure_is_told_apart(
    ann: Person, bob: Person, project: Project, clone: Clone
) -> None:
    """A candidate that fails at another line is not a reproduction of the failure."""
    broken = RANK.replace('"$fixed" != yes', '"$fixed" != never')
    place = project({f"{WORDS}/rank.sh": broken})
    ran = made(ann, place, "--set", "subject.control.with.fixed=no indeed")
    report, mine = ann.send(bob, ran), clone(place)
    (mine / WORDS / "rank.sh").write_text(broken.replace("NoPrompt", "NoTokenizer"))
    done = bob("reproduce", str(report), "--source", ".", cwd=mine)
    assert (done.code, answer(done)) == (1, "SAME VERDICT, DIFFERENT FAILURE"), done.out


def test_a_bundle_is_enough(ann: Person, bob: Person, project: Project) -> None:
    """Without a clone, a bundle of a changed tree runs the code it holds, and with the inputs it
    carries.
    """
    text = SCENARIO.replace(
        "matrix:", "inputs: {words: {path: words.txt}, own: {path: data}}\nmatrix:"
    )
    rank = RANK.replace(
        "fixed=$1", 'fixed=$1\ntest "$(cat "$RANKPROOF_INPUT_WORDS")" = "two words" || exit 3'
    )
    place = project(
        {
            f"{WORDS}/scenario.yaml": text,
            f"{WORDS}/words.txt": "two words\n",
            f"{WORDS}/data/a/b": "b",
        }
    )
    (place / WORDS / "rank.sh").write_text(rank)
    ran = made(ann, place)
    assert ran.record.judgement.verdict == "PASS"
    packed = ann("bundle", str(ran.folder), "--out", str(bob.folder / "sent"), cwd=place)
    assert packed.code == 0, packed.out
    bob.trusts = [ann.fingerprint]
    gone(ann, place)
    done = bob("reproduce", str(bob.folder / "sent"))
    assert done.code == 0, done.out
    assert "the code in the report's evidence" in done.out
    assert done.record.run.source.commit is None


def test_a_changed_tree_is_rebuilt_from_commit_and_patch(
    ann: Person, bob: Person, project: Project, clone: Clone
) -> None:
    """A dirty run is laid out from its commit and its patch.

    Hooks and filters of the repository do not run.
    """
    place = project()
    mine = clone(place)
    (place / WORDS / "rank.sh").write_text(RANK + "# not committed\n")
    report = ann.send(bob, made(ann, place))
    trap = bob.folder / "trap"
    for name in ("post-checkout", "post-index-change", "reference-transaction"):
        hook = mine / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {trap}\n")
        hook.chmod(0o755)
    git(mine, "config", "filter.trap.smudge", f"touch {trap}")
    (mine / ".git" / "info" / "attributes").write_text("* filter=trap\n")
    before = sorted((path, path.stat().st_mtime_ns) for path in (mine / ".git").rglob("*"))
    assert "SOURCE DIFFERS" in bob("reproduce", str(report), "--dry-run", cwd=mine).out
    done = bob("reproduce", str(report), "--repo", str(mine))
    assert done.code == 0, done.out
    assert "and the run's patch" in done.out
    assert done.record.run.source.dirty
    assert not trap.exists()
    assert sorted((path, path.stat().st_mtime_ns) for path in (mine / ".git").rglob("*")) == before


def test_files_git_never_knew_are_named(
    ann: Person, bob: Person, project: Project, clone: Clone
) -> None:
    """A run of an uncommitted scenario cannot be rebuilt from its commit, and the evidence is named
    as the way.
    """
    place = project()
    mine = clone(place)
    (place / "scenarios" / "more").mkdir()
    for name in ("scenario.yaml", "rank.sh"):
        shutil.copy(place / WORDS / name, place / "scenarios" / "more" / name)
    report = ann.send(bob, made(ann, place, scenario="scenarios/more"))
    done = bob("reproduce", str(report), "--repo", str(mine))
    assert done.code == 2
    assert (
        "had 2 files that git did not track; the evidence contains the files that ran" in done.out
    )
    assert bob("reproduce", str(report), "--dry-run", cwd=mine).code == 0


def test_arms_from_revisions_and_patches_are_rebuilt(
    ann: Person, bob: Person, project: Project, clone: Clone
) -> None:
    """Arms that are a revision and a patch of the repository are found in the clone, also where a
    branch has moved.
    """
    place = project(
        {
            "src/rank.sh": RANK.replace('"$fixed" != yes', "0 = 1"),
            f"{WORDS}/rank.sh": "",
            "README": "",
        }
    )
    text = SCENARIO.replace(
        'candidate: {with: {fixed: "yes"}}', "path: ../../src\n  candidate: {rev: main}"
    )
    text = text.replace('with: {fixed: "no"}', "patch: break.patch").replace(', "{fixed}"', "")
    (place / "src" / "rank.sh").write_text(RANK.replace('"$fixed" != yes', "1 = 1"))
    (place / WORDS / "break.patch").write_text(git(place, "diff") + "\n")
    git(place, "checkout", "-q", "src")
    commit(place, {f"{WORDS}/scenario.yaml": text})
    ran = made(ann, place)
    assert ran.record.judgement.verdict == "PASS", ran.out
    report, mine = ann.send(bob, ran), clone(place)
    commit(mine, {"src/rank.sh": "exit 9\n"})
    for more in ((), ("--repo", "."), ("--from-evidence",)):
        done = bob("reproduce", str(report), *more, "--dry-run", cwd=mine)
        assert done.code == 0, done.out
    done = bob("reproduce", str(report), cwd=mine)
    assert done.code == 0, done.out
    assert (
        done.record.run.revisions["candidate"].commit
        == ran.record.run.revisions["candidate"].commit
    )
    bob.trusts = [bob.fingerprint]
    assert bob("verify", str(done.folder)).code == 0


def test_arms_of_another_repository_are_rebuilt(
    ann: Person, bob: Person, project: Project, clone: Clone
) -> None:
    """A run with --repo is compared with that repository's clone.

    Where it is not here, the evidence is used.
    """
    place = project()
    text = (
        SCENARIO.replace(', "{fixed}"', "")
        .replace('{with: {fixed: "yes"}}', "{}")
        .replace('with: {fixed: "no"}\n', "")
    )
    other = ann.folder / "other"
    other.mkdir()
    (other / "scenario.yaml").write_text(text)
    (other / "note.txt").write_text("")
    commit(place, {"rank.sh": RANK.replace('"$fixed" != yes', "1 = 1")}, tag="broken")
    commit(place, {"rank.sh": RANK.replace('"$fixed" != yes', "0 = 1")}, tag="fixed")
    ran = made(
        ann,
        place,
        "--repo",
        str(place),
        "--candidate",
        "fixed",
        "--control",
        "broken",
        scenario=str(other),
    )
    assert ran.record.judgement.verdict == "PASS", ran.out
    report, mine = ann.send(bob, ran), clone(place)
    done = bob("reproduce", str(report), cwd=mine)
    assert done.code == 0, done.out


def test_faults_files_and_measurements_are_reproduced(
    ann: Person, bob: Person, project: Project, clone: Clone
) -> None:
    """A scenario with a fault, another file as its control and a measurement is reproduced with all
    of them.
    """
    text = SCENARIO.replace('{with: {fixed: "yes"}}', "{}").replace(
        'with: {fixed: "no"}', "file: broken.py"
    )
    text = text.replace('program: [sh, rank.sh, "{fixed}"]', "entry: subject:split").replace(
        "{ranks: [2]}", "{ranks: [2], backend: [none]}"
    )
    text = text.replace("source: split it", "source: assert prompt").replace(
        "error: NoPrompt", "error: AssertionError"
    )
    text = text.replace(
        "value: prompt.words, to: 2", "value: prompt.words, to: 2.5, level: numeric, rtol: 0.5"
    )
    text = text.replace("world: {", "world: {start: fresh, ")
    text += "faults:\n  - {id: late, kind: delay, ranks: [1], at: load, for: 20ms}\n"
    text += "measure:\n  - {id: memory, probe: rss, ranks: every, against: control}\n"
    subject = """
        def split(context):
            context.emit("load")
            prompt = "two words"
            assert prompt
            context.emit("prompt", words=2.5)
    """
    subject = subject.replace("\n        ", "\n")
    broken = subject.replace('"two words"', '"two words" if context.rank == 0 else ""')
    place = project(
        {
            f"{WORDS}/scenario.yaml": text,
            f"{WORDS}/subject.py": subject,
            f"{WORDS}/broken.py": broken,
        }
    )
    ran = made(ann, place)
    assert ran.record.judgement.verdict == "PASS", ran.out
    report, mine = ann.send(bob, ran), clone(place)
    done = bob("reproduce", str(report), "--repo", str(mine))
    assert (done.code, answer(done)) == (0, "REPRODUCED"), done.out
    assert done.record.comparison is not None
    failures = done.record.comparison.result.cells[0].arms[1].failures_now
    told = (
        "AssertionError in split of subject.py at 'assert prompt' on rank 1; checks: ended on rank"
        " 1, split on rank 1"
    )
    assert list(failures) == [f"{told}; fault late on rank 1: proved"]


def test_seeds_are_the_same_unless_asked(usual: Usual, bob: Person) -> None:
    """The rerun derives the same seeds; --only-fresh-seeds derives others, and compares no numbers
    by seed.
    """
    ann, ran = usual
    report = ann.send(bob, ran)

    def seeds(record: Record) -> list[str]:
        tally = record.judgement.cells[0].candidate
        return [trial.seed for trial in tally.trials] if tally else []

    same = bob("reproduce", str(report))
    assert seeds(same.record) == seeds(ran.record)
    fresh = bob("reproduce", str(report), "--only-fresh-seeds")
    assert fresh.code == 0, fresh.out
    assert not set(seeds(fresh.record)) & set(seeds(ran.record))
    assert fresh.record.comparison is not None
    assert fresh.record.comparison.result.cells[0].same_numbers == "not compared"


def test_a_reproduction_can_be_reproduced(usual: Usual, bob: Person) -> None:
    """The report of a reproduction is a report like any other."""
    ann, ran = usual
    report = ann.send(bob, ran)
    first = bob("reproduce", str(report))
    bob.trusts = [bob.fingerprint]
    second = bob("reproduce", str(first.folder))
    assert second.code == 0, second.out


def test_ranks_of_gloo_in_a_clone_end_to_end(
    ann: Person, bob: Person, project: Project, clone: Clone
) -> None:
    """Warm ranks joined over gloo: a bundle made in one clone is reproduced in another, down to the
    source line.
    """
    from tests.kit.commands import MEETING, MEETING_SUBJECT

    text = MEETING.replace("control: 2", "control: 5")
    place = project({f"{WORDS}/scenario.yaml": text, f"{WORDS}/subject.py": MEETING_SUBJECT})
    ran = made(ann, place)
    packed = ann("bundle", str(ran.folder), "--out", str(bob.folder / "sent"), cwd=place)
    assert packed.code == 0, packed.out
    mine = clone(place)
    bob.trusts, start = [ann.fingerprint], ran.record.run.start
    gone(ann, place)
    planned = bob("reproduce", str(bob.folder / "sent"), "--vary", "--dry-run", cwd=mine)
    if start == "warm":
        assert "ranks started: fresh instead of warm (it was the same in both runs)" in planned.out
    done = bob("reproduce", str(bob.folder / "sent"), cwd=mine)
    assert (done.code, answer(done)) == (0, "REPRODUCED"), done.out
    assert done.record.comparison is not None
    (failure,) = done.record.comparison.result.cells[0].arms[1].failures_now
    assert failure.startswith("AssertionError in meet of subject.py at 'assert thing' on rank 1")


def test_an_input_of_the_hub_is_found_and_carried(
    ann: Person, bob: Person, project: Project, tmp_path: Path
) -> None:
    """An input of the hub comes from the hub at its commit, or from a bundle without any hub."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "tokenizer.json").write_text("{}\n")
    text = SCENARIO.replace("matrix:", "inputs: {words: {hub: team/tiny@main}}\nmatrix:")
    place = project({f"{WORDS}/scenario.yaml": text})
    with hub.serve("team/tiny", model) as endpoint:
        env = {"HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_XET": "1"}
        ran = ann("run", WORDS, cwd=place, env=env)
        assert ran.record.run.inputs[0].revision == hub.COMMIT, ran.out
        report = ann.send(bob, ran)
        found = bob("reproduce", str(report), "--dry-run", env=env)
        assert found.code == 0, found.out
    shutil.rmtree(bob.folder / "home" / ".cache")
    packed = ann("bundle", str(ran.folder), "--out", str(bob.folder / "sent"), cwd=place)
    assert "only its digest" not in packed.out
    done = bob("reproduce", str(bob.folder / "sent"))
    assert done.code == 0, done.out
