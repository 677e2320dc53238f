"""A report that is not reproduced: which one thing makes the difference? And does the answer hang
on the seeds?
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

from harness.record.facts import ChangeFacts
from harness.record.model import Record
from harness.record.reproduced import Here, differences, is_shown
from harness.reproduce.passes import OneChange, Walk, joint, walk, word
from harness.reproduce.report_copy import open_report
from harness.scenario.plan import derive_seed
from harness.trust.signers import SignerPolicy
from tests.kit.forge import resign
from tests.kit.people import RANK, SCENARIO, Person, Ran
from tests.reproduce.test_reproduce import WORDS, Project, made

# Each makes a run and reproduces it several times.
pytestmark = [pytest.mark.slow, pytest.mark.whole]
# The candidate fails where the condition holds, at another line than the control.
CONDITION = r"""
if CONDITION && [ "$fixed" = yes ]; then
    printf '{"event": "rank.error", "values": {"type": "Odd", "message": "odd", "source": "the odd line"}}\n' >&3
    exit 1
fi
"""
START = "read -r _ <&4\n"
ALIKE = "(it was the same in both runs)"


def odd(project: Project, condition: str, *, rank: str = RANK, scenario: str = SCENARIO) -> Path:
    """A project whose candidate fails on every rank where a condition of the shell holds."""
    rank = rank.replace(START, START + CONDITION.replace("CONDITION", condition))
    return project({f"{WORDS}/rank.sh": rank, f"{WORDS}/scenario.yaml": scenario})


def runs(person: Person) -> list[Path]:
    """Every run of a person, the oldest first."""
    reports = [
        path
        for path in (person.results / "words").glob("*/report.md")
        if not path.parent.is_symlink()
    ]
    return [path.parent for path in sorted(reports, key=lambda path: path.stat().st_mtime_ns)]


def record(folder: Path) -> Record:
    return Record.decode((folder / "results.json").read_bytes())


def lines(ran: Ran, start: str) -> list[str]:
    return [line.strip() for line in ran.out.splitlines() if line.strip().startswith(start)]


def varied(person: Person) -> dict[str, Record]:
    """The second passes of a person, by what they change."""
    found = [record(folder) for folder in runs(person)]
    return {
        one.run.reproduces.varied.what: one
        for one in found
        if one.run.reproduces is not None and one.run.reproduces.varied is not None
    }


def test_the_variable_that_makes_the_difference_is_named(
    ann: Person, bob: Person, project: Project
) -> None:
    """One change per run, each signed: TZ flips the answer, threads and worlds at a time do not.

    The rest is listed.
    """
    place = odd(project, '[ "$TZ" = Etc/GMT-1 ]')
    report = ann.send(
        bob, ann("run", WORDS, cwd=place, env={"TZ": "Etc/GMT-1", "OMP_NUM_THREADS": "3"})
    )
    elsewhere = {"TZ": "Etc/GMT-2", "MKL_NUM_THREADS": "7"}
    planned = bob("reproduce", str(report), "--vary", "--dry-run", env=elsewhere)
    assert planned.code == 0, planned.out
    assert "at most 3 runs more, with one change each:" in planned.out
    assert lines(planned, "variable TZ: ") == [
        "variable TZ: Etc/GMT-1 instead of Etc/GMT-2 (as in the first run)"
    ]
    assert not bob.results.exists()

    done = bob("reproduce", str(report), "--vary", env=elsewhere)
    assert done.code == 1, done.out
    (tz,) = lines(done, "variable TZ: Etc/GMT-1 instead of Etc/GMT-2 (as in the first run): ")
    assert "flips it, REPRODUCED, " in tz
    assert "1 single change of 3 made it REPRODUCED:" in done.out
    for what in (f"world.env.OMP_NUM_THREADS: 2 instead of 1 {ALIKE}", "worlds at a time: "):
        (row,) = [line for line in lines(done, what) if ", NOT REPRODUCED, " in line]
        assert "does not flip it" in row
    for out in (planned, done):
        left = set(lines(out, "not varied: "))
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            (one,) = [line for line in left if f"variable {name}: " in line]
            assert "ranks do not inherit it: they have 1" in one

    first, *others = runs(bob)
    assert answer_of(first) == "NOT REPRODUCED"
    assert [answer_of(folder) for folder in others].count("REPRODUCED") == 1
    found = varied(bob)
    assert len(found) == len(others) == 3
    beside = f"sha256:{hashlib.sha256((first / 'report.md').read_bytes()).hexdigest()}"
    of_tz = found["variable TZ"]
    assert of_tz.run.environment.variables["TZ"] == "Etc/GMT-1"
    assert of_tz.run.reproduces is not None
    assert of_tz.run.reproduces.varied is not None
    assert of_tz.run.reproduces.varied.beside == beside
    bob.trusts = [bob.fingerprint]
    for folder in others:
        assert bob("verify", str(folder)).code == 0
        text = (folder / "report.md").read_text()
        assert beside in text
        assert "| the change took effect | [yes](" in text
    (place_of_tz,) = [folder for folder in others if record(folder) == of_tz]
    facts = place_of_tz / "evidence" / "run.json"
    facts.write_text(facts.read_text().replace('"after": "Etc/GMT-1"', '"after": "Etc/GMT-9"'))
    resign(place_of_tz, bob.folder / "home" / ".local" / "share" / "rankproof" / "signing_key")
    assert bob("verify", str(place_of_tz)).code == 3


def answer_of(folder: Path) -> str:
    comparison = record(folder).comparison
    assert comparison is not None
    return comparison.result.answer


def test_a_different_failure_is_explained_as_well(
    ann: Person, bob: Person, project: Project
) -> None:
    """The verdict is the same and the line is not: the walk is made, and names the variable.

    Threads flip it too.
    """
    broken = RANK.replace('"$fixed" != yes', '"$fixed" != never')
    place = odd(project, '{ [ "$TZ" = Etc/GMT-1 ] || [ "$OMP_NUM_THREADS" != 1 ]; }', rank=broken)
    report = ann.send(bob, ann("run", WORDS, cwd=place, env={"TZ": "Etc/GMT-1"}))
    done = bob("reproduce", str(report), "--vary")
    assert answer_of(runs(bob)[0]) == "SAME VERDICT, DIFFERENT FAILURE", done.out
    assert done.code == 1
    assert (
        "variable TZ: Etc/GMT-1 instead of none (as in the first run): flips it, REPRODUCED, "
        in done.out
    )
    assert f"world.env.OMP_NUM_THREADS: 2 instead of 1 {ALIKE}: flips it, REPRODUCED, " in done.out
    assert "2 single changes of 3 made it REPRODUCED:" in done.out


def test_where_nothing_flips_it_that_is_said(ann: Person, bob: Person, project: Project) -> None:
    """A difference that no report holds: every change is tried, none is shown to make it
    REPRODUCED.

    Where the counts exclude nothing, nothing is tried.
    """
    (ann.folder / "home" / "odd").write_text("")
    place = odd(
        project,
        '[ -e "$HOME/odd" ]',
        scenario=SCENARIO.replace("world: {", "world: {home: shared, "),
    )
    report = ann.send(bob, made(ann, place))
    done = bob("reproduce", str(report), "--vary")
    assert done.code == 1, done.out
    assert (
        "2 single changes tried; this does not show that any of them makes it REPRODUCED"
        in done.out
    )
    assert [answer_of(folder) for folder in runs(bob)] == ["NOT REPRODUCED"] * 3
    few = bob("reproduce", str(report), "--vary", "--trials", "1")
    assert few.code == 2, few.out
    assert (
        "vary: skipped: CANNOT TELL, so no difference in the results has been shown yet" in few.out
    )
    assert len(runs(bob)) == 4


@contextmanager
def usable(count: int) -> Iterator[None]:
    """Let this process, and what it starts, use so many processors."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="needs two processors, and Linux",
)
def test_the_number_of_usable_processors_is_varied(
    ann: Person, bob: Person, project: Project
) -> None:
    """A first run on one processor is run again on one of the two here.

    The other way round cannot be.
    """
    place = odd(project, '[ "$(env -u OMP_NUM_THREADS nproc)" = 1 ]')
    with usable(1):
        ran = made(ann, place, "--jobs", "1")
    report = ann.send(bob, ran)
    with usable(2):
        done = bob("reproduce", str(report), "--vary", "--jobs", "1")
    assert "affinity: 1 instead of 2 (as in the first run): flips it, REPRODUCED, " in done.out, (
        done.out
    )
    assert varied(bob)["affinity"].run.environment.affinity == 1
    with usable(2):
        on_two = bob.send(ann, Ran(done.code, done.out, _only(runs(bob)[0])))
    with usable(1):
        planned = ann("reproduce", str(on_two), "--vary", "--dry-run")
    assert (
        "not varied: affinity: 2 then, 1 here: fewer processors can be used on this machine"
        in planned.out
    ), planned.out


def _only(folder: Path) -> Path:
    """A results folder whose latest run is that one."""
    place = folder.parents[2] / "chosen"
    place.mkdir()
    (place / "latest").symlink_to(folder)
    return place


def test_fresh_seeds_are_a_second_pass(ann: Person, bob: Person, project: Project) -> None:
    """The candidate fails with the report's seeds only: each pass has its answer and report, and
    the seeds decide.
    """
    known = "|".join(
        str(derive_seed("7", "words", "ranks=2,backend=none", index, 1)) for index in range(5)
    )
    place = odd(project, f'case "$RANKPROOF_SEED" in {known}) :;; *) false;; esac')
    ran = made(ann, place)
    assert ran.record.judgement.verdict == "FAIL"
    report = ann.send(bob, ran)
    done = bob("reproduce", str(report), "--fresh-seeds")
    assert done.code == 1, done.out
    assert "passes: 2, with the report's seeds and then with fresh seeds" in done.out
    assert (
        "REPRODUCED with the report's seeds, NOT REPRODUCED with fresh ones: THE SEEDS DECIDE"
        in done.out
    )
    first, second = runs(bob)
    assert (answer_of(first), answer_of(second)) == ("REPRODUCED", "NOT REPRODUCED")
    told = record(second).run.reproduces
    assert told is not None
    assert told.varied is not None
    assert (told.varied.before, told.varied.after) == ("7", record(second).scenario.seed)
    assert f"the root '{record(second).scenario.seed}'" in done.out
    assert (
        told.varied.beside
        == f"sha256:{hashlib.sha256((first / 'report.md').read_bytes()).hexdigest()}"
    )
    same = record(first).run.reproduces
    assert same is not None
    assert same.report == told.report
    assert same.varied is None
    bob.trusts = [bob.fingerprint]
    assert [bob("verify", str(folder)).code for folder in (first, second)] == [0, 0]


def test_where_the_seeds_do_not_decide_both_passes_are_reproduced(
    usual: tuple[Person, Ran], bob: Person
) -> None:
    """Both passes end alike: exit code 0, and no word says more than that no sign of it was
    seen.
    """
    ann, ran = usual
    done = bob("reproduce", str(ann.send(bob, ran)), "--fresh-seeds", "--vary")
    assert done.code == 0, done.out
    told = (
        "REPRODUCED with the report's seeds, REPRODUCED with fresh ones: NO SIGN THAT THE SEEDS"
        " DECIDE"
    )
    assert told in done.out
    assert "vary: skipped: REPRODUCED, so there is nothing to explain" in done.out
    assert len(runs(bob)) == 2


@pytest.mark.parametrize(
    "more",
    [
        ("--only-fresh-seeds", "--vary"),
        ("--only-fresh-seeds", "--fresh-seeds"),
        ("--vary", "--source", "."),
        ("--vary", "--candidate", "HEAD"),
    ],
)
def test_wishes_that_exclude_each_other_run_nothing(more: tuple[str, ...], bob: Person) -> None:
    """A walk needs the report's seeds and the report's code."""
    done = bob("reproduce", "report.md", *more)
    assert done.code == 64
    assert "keep one" in done.out


def test_a_word_needs_an_effect_and_a_difference() -> None:
    """A change that nobody sees did nothing.

    What the counts do not tell from the first pass only may have done it.
    """
    assert word(shown=False, answer="REPRODUCED", against="NOT REPRODUCED") == "took no effect"
    assert word(shown=True, answer="REPRODUCED", against="NOT REPRODUCED") == "flips it"
    assert (
        word(shown=True, answer="REPRODUCED", against="SAME VERDICT, DIFFERENT FAILURE")
        == "flips it"
    )
    assert word(shown=True, answer="REPRODUCED", against="CANNOT TELL") == "may flip it"
    assert word(shown=True, answer="REPRODUCED", against="REPRODUCED") == "may flip it"
    assert word(shown=True, answer="CANNOT TELL", against="NOT REPRODUCED") == "cannot tell"
    assert word(shown=True, answer="NOT REPRODUCED", against="REPRODUCED") == "does not flip it"


def test_what_cannot_be_changed_here_is_named_with_the_reason(
    usual: tuple[Person, Ran], tmp_path: Path
) -> None:
    """Another machine in all that matters: what can be set is varied, everything else has a reason,
    nothing is lost.
    """
    opened = open_report(usual[1].report, policy=SignerPolicy(), trust=True, scratch=tmp_path)
    reproduced = opened.reproduced()
    there = reproduced.environment
    here = there.model_copy(
        update={
            **dict.fromkeys(
                ("python", "implementation", "system", "machine", "cpu", "gpu", "variant"),
                "another",
            ),
            "cores": 96,
            "affinity": there.affinity + 1,
            "memory": 1,
            "variables": {"TZ": "UTC", "NCCL_DEBUG": "INFO"},
            "packages": [one.model_copy(update={"version": "0.0.1"}) for one in there.packages],
        }
    )

    def walked(start: Literal["warm", "fresh"] = "fresh", **update: object) -> Walk:
        first = reproduced.model_copy(update=update)
        return walk(
            opened.scenario, first, Here(environment=here, start=start, jobs=1, rankproof="0")
        )

    found = walked(jobs=3, start="warm")
    assert {change.what: change.after for change in found.changes} == {
        "variable TZ": None,
        "affinity": str(there.affinity),
        "worlds at a time": "3",
        "ranks started": "fresh",
        "world.env.OMP_NUM_THREADS": str(there.affinity + 1),
    }
    left = {one.what: one.reason for one in found.left}
    machine = {
        "python",
        "implementation",
        "system",
        "machine",
        "cpu",
        "gpu",
        "variant",
        "cores",
        "rankproof",
    }
    assert machine | {"variable NCCL_DEBUG", "package torch", "package transformers"} <= left.keys()
    assert "this machine cannot change it" not in left.values()
    assert "they do not have it" in left["variable NCCL_DEBUG"]
    known = differences(
        opened.scenario.needs,
        reproduced,
        Here(environment=here, start="fresh", jobs=3, rankproof="0"),
    )
    assert {one.what for one in known if one.group != "rarely matters"} <= left.keys() | {
        change.what for change in found.changes
    }
    assert found.rare == sum(one.group == "rarely matters" for one in known) > 0
    for strange in (0, -1, 10**6):
        assert "worlds at a time" in {one.what for one in walked(jobs=strange).left}
        lying = there.model_copy(update={"affinity": strange, "variables": {"TZ": "a\0b"}})
        assert {"affinity", "variable TZ"} <= {one.what for one in walked(environment=lying).left}


def test_only_what_the_facts_show_took_effect(usual: tuple[Person, Ran]) -> None:
    """The value that a run says it was given is looked for in its own facts, for every kind of
    change.
    """
    run = usual[1].record.run
    environment = run.environment.model_copy(update={"variables": {"TZ": "UTC"}, "affinity": 2})
    overrides = ['seed="x"', "trials.candidate=5", 'seed="y"', 'world.env.OMP_NUM_THREADS="2"']
    run = run.model_copy(
        update={"environment": environment, "overrides": overrides, "jobs": 3, "start": "fresh"}
    )
    values = {
        "seeds": ("y", "x"),
        "world.env.OMP_NUM_THREADS": ("2", "1"),
        "variable TZ": ("UTC", None),
        "variable LANG": (None, "C"),
        "affinity": ("2", "1"),
        "worlds at a time": ("3", "1"),
        "ranks started": ("fresh", "warm"),
    }
    beside = f"sha256:{'0' * 64}"
    for what, (shown, other) in values.items():
        assert is_shown(ChangeFacts(what=what, before=other, after=shown, beside=beside), run), what
        assert not is_shown(
            ChangeFacts(what=what, before=shown, after=other, beside=beside), run
        ), what
    assert not is_shown(ChangeFacts(what="weather", before="rain", after=None, beside=beside), run)


def test_one_answer_of_several_passes() -> None:
    """What refutes goes before what cannot tell, and that before REPRODUCED."""
    assert joint(["REPRODUCED", "REPRODUCED"]) == "REPRODUCED"
    assert joint(["REPRODUCED", "CANNOT TELL"]) == "CANNOT TELL"
    assert joint(["CANNOT TELL", "NOT REPRODUCED"]) == "NOT REPRODUCED"


def test_a_change_is_undone_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that was not there is not there afterwards, one that was has its value, also
    behind an error.
    """
    monkeypatch.setenv("TZ", "Etc/GMT-2")
    monkeypatch.delenv("CXX", raising=False)
    change = OneChange(
        what="variable TZ", before="", after="", why="", variables={"TZ": None, "CXX": "c++"}
    )

    class Broken(Exception):
        pass

    def use() -> None:
        with change.in_force():
            assert "TZ" not in os.environ
            assert os.environ["CXX"] == "c++"
            raise Broken

    with pytest.raises(Broken):
        use()
    assert os.environ["TZ"] == "Etc/GMT-2"
    assert "CXX" not in os.environ
