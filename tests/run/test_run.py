"""From a scenario file to a verified report, with real ranks."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.events import Event
from tests.kit.commands import MEETING, MEETING_SUBJECT, SCENARIO, SUBJECT, Ran, run_command
from tests.kit.repositories import commit, git

pytestmark = pytest.mark.slow

Run = Callable[..., Ran]
Write = Callable[..., Path]


def events(ran: Ran) -> list[list[Event]]:
    files = sorted(ran.folder.glob("evidence/*/*/events.jsonl"))
    return [[Event.parse(line) for line in file.read_text().splitlines()] for file in files]


def verify_line(ran: Ran) -> list[str]:
    found = re.search(r"verify: .*?(verify) (\S+) (--signer \S+)", ran.out)
    assert found is not None, ran.out
    return ["verify", str(ran.folder / "report.md"), *found[3].split()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A run of three ranks in a group, forked from a warm server, that look around: read by several
    tests.
    """
    place = tmp_path_factory.mktemp("whole")
    spy = MEETING_SUBJECT.replace(
        "    assert thing",
        "    import os, sys\n    seen = [__file__, os.getcwd(), *sys.argv, *sys.path,"
        " *map('='.join, os.environ.items())]\n    context.emit('seen', control='control' in '"
        " '.join(seen), candidate='candidate' in ' '.join(seen))\n    assert thing",
    )
    (place / "scenario").mkdir()
    (place / "scenario" / "scenario.yaml").write_text(MEETING.replace("ranks: [2]", "ranks: [3]"))
    (place / "scenario" / "subject.py").write_text(spy)
    return run_command(place, "run", "scenario", env={"MY_API_KEY": "s3cret-value"})


def test_a_fix_beside_its_bug_is_a_pass_that_verifies(whole: Ran, rankproof: Run) -> None:
    """The candidate passes, the control fails as required, exit code 0, and the printed line verifies
    the report.
    """
    ran = whole
    assert ran.code == 0, ran.out + ran.err
    assert ran.record.judgement.verdict == "PASS"
    verified = rankproof(*verify_line(ran))
    assert verified.code == 0, verified.out
    assert "judged     ok" in verified.out
    assert "rendered   ok" in verified.out


@pytest.mark.whole
def test_a_report_that_no_key_could_sign_is_no_pass(
    scenario: Write, rankproof: Run, tmp_path: Path
) -> None:
    """Without a place to keep a key, run and reproduce end with 2 and say so; --unsigned asks for
    that.
    """
    (tmp_path / "file").touch()
    nowhere = {"HOME": str(tmp_path / "file")}
    ran = rankproof("run", str(scenario()), "--set", "trials.candidate=5", env=nowhere)
    assert (ran.code, ran.record.judgement.verdict) == (2, "PASS"), ran.out + ran.err
    assert ran.err.endswith(
        "UNSIGNED (exit code 2), because there was no key to sign with. Name one with --key, or"
        " accept this with --unsigned\n"
    )
    places = (str(ran.folder), "--results", str(tmp_path / "more"))
    again = ("reproduce", *places, "--i-trust-this-file", "--from-evidence")
    assert rankproof(*again, env=nowhere).code == 2
    wanted = rankproof(*again, "--unsigned", env=nowhere)
    assert wanted.code == 0, wanted.out + wanted.err
    assert "no key to sign with" not in wanted.err


def test_a_run_that_could_not_be_signed_does_not_begin(
    scenario: Write, rankproof: Run, tmp_path: Path
) -> None:
    """A named key that is not there, and a machine without ssh-keygen, are 64 before anything
    runs.
    """
    place = str(scenario())
    tools = tmp_path / "tools"
    tools.mkdir()
    git_here = shutil.which("git")
    assert git_here is not None
    (tools / "git").symlink_to(git_here)
    named = rankproof("run", place, "--key", str(tmp_path / "nowhere"))
    bare = rankproof("run", place, env={"PATH": str(tools)})
    assert (named.code, bare.code) == (64, 64)
    assert "create a key with ssh-keygen" in named.err
    assert "ssh-keygen is not on the PATH" in bare.err
    assert not named.results.exists() or not list(named.results.iterdir())


def test_the_printed_command_runs_the_same_scenario_in_a_clone(
    scenario: Write, rankproof: Run, tmp_path: Path
) -> None:
    """A folder may hold several scenarios: the report and the text for an issue name the file."""
    folder = scenario()
    other = (folder / "scenario.yaml").read_text().replace("id: meet", "id: again")
    (folder / "again.yaml").write_text(other)
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path, {".gitignore": "/home/\n/results/\n"})
    ran = rankproof("run", "scenario/again.yaml", "--set", "trials.control=3")
    assert ran.code == 0, ran.out + ran.err
    printed = re.findall(
        r"^(rankproof run .*?) +#", (ran.folder / "report.md").read_text(), re.MULTILINE
    )
    assert printed == ["rankproof run scenario/again.yaml --set trials.control=3"]
    assert printed[0] in rankproof("show", "--issue", str(ran.folder)).out
    git(tmp_path, "clone", "-q", ".", "clone")
    again = rankproof(*shlex.split(printed[0])[1:], cwd=tmp_path / "clone")
    assert again.code == 0, again.out + again.err
    assert again.record.scenario.id == "again"
    assert not (again.results / "meet").exists()
    runs = [path for path in (again.results / "again").glob("*Z-*") if not path.is_symlink()]
    assert len(runs) == 2


def test_the_first_run_in_a_repository_is_of_a_clean_tree(
    scenario: Write, rankproof: Run, tmp_path: Path
) -> None:
    """A run's own results do not make the commit that it tests "changed since", though git ignores
    none of them.
    """
    scenario()
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path, {".gitignore": "/home/\n", "results/README.md": "Ours.\n"})
    ran = rankproof("run", "scenario", "--set", "trials.candidate=5")
    assert ran.code == 0, ran.out + ran.err
    assert (ran.record.run.source.dirty, ran.record.run.source.untracked) == (False, 0)
    assert git(tmp_path, "status", "--porcelain", "--untracked-files=all").startswith("?? results/")


def test_every_rank_is_a_process_of_its_own(whole: Ran) -> None:
    """Each trial's evidence holds as many distinct pids as ranks, told by the server, none of them
    the harness's.
    """
    assert len(events(whole)) == 7
    for trial in events(whole):
        pids = [
            event.pid for event in trial if event.name == "rank.started" and event.by == "server"
        ]
        assert len(set(pids)) == 3
        assert whole.record.run.harness_pid not in pids
        assert not set(pids) & set(whole.record.run.server_pids)


def test_a_candidate_that_fails_is_a_fail(scenario: Write, rankproof: Run) -> None:
    """Swapping the arms' meaning turns the verdict: the broken code as candidate is FAIL, exit code
    1.
    """
    text = SCENARIO.replace(
        "candidate: {with: {broken: false}}", "candidate: {with: {broken: true, again: 1}}"
    )
    ran = rankproof(
        "run",
        str(
            scenario(
                {
                    "scenario.yaml": text,
                    "subject.py": SUBJECT.replace("broken)", "broken, again=0)"),
                }
            )
        ),
    )
    assert ran.code == 1, ran.out + ran.err
    cell = ran.record.judgement.cells[0]
    assert cell.candidate is not None
    assert cell.candidate.trials[0].first is not None
    assert cell.candidate.trials[0].first.rank == 1


def test_a_control_that_does_not_fail_is_inconclusive(scenario: Write, rankproof: Run) -> None:
    """A control that passes proves nothing: exit code 2, and the report shows what it did
    instead.
    """
    ran = rankproof(
        "run", str(scenario({"subject.py": SUBJECT.replace("broken and context.rank", "False")}))
    )
    assert ran.code == 2
    assert "Other outcomes of its trials" in (ran.folder / "report.md").read_text()


def test_another_file_can_be_the_control(scenario: Write, rankproof: Run) -> None:
    """`file` takes the place of the entry's module, and the report shows the difference between the
    two.
    """
    fixed = SUBJECT.replace(", *, broken", "").replace("None if broken and context.rank else ", "")
    broken = fixed.replace('"thing"\n', 'None if context.rank else "thing"\n', 1)
    text = SCENARIO.replace("candidate: {with: {broken: false}}", "candidate: {}").replace(
        "with: {broken: true}", "file: before.py"
    )
    ran = rankproof(
        "run", str(scenario({"scenario.yaml": text, "subject.py": fixed, "before.py": broken}))
    )
    assert ran.code == 0, ran.out + ran.err
    assert any(line.startswith("-") and "context.rank" in line for line in ran.record.changed)


def test_code_from_elsewhere_is_inconclusive(scenario: Write, rankproof: Run) -> None:
    """A subject that hands its module's name to another file is found out by what its ranks
    loaded.
    """
    sneaky = (
        "import json, sys\nsys.modules[__name__] = json\njson.meet = lambda context, **_:"
        " context.emit('met')\n"
    )
    ran = rankproof("run", str(scenario({"subject.py": sneaky})))
    assert ran.code == 2
    assert "the run does not prove which code ran" in ran.out


def test_a_subject_can_live_in_another_folder(scenario: Write, rankproof: Run) -> None:
    """`subject.path` takes the code from beside the scenario, and a package works as an entry."""
    text = SCENARIO.replace("entry: subject:meet", "entry: pkg.inner:meet\n  path: ../code")
    folder = scenario(
        {"scenario.yaml": text, "../code/pkg/__init__.py": "", "../code/pkg/inner.py": SUBJECT}
    )
    ran = rankproof("run", str(folder))
    assert ran.code == 0, ran.out + ran.err
    assert set(ran.record.arms["candidate"].files) == {"pkg/__init__.py", "pkg/inner.py"}


def test_an_axis_is_an_argument(scenario: Write, rankproof: Run) -> None:
    """A further axis makes cells of its own and reaches the subject as an argument."""
    text = SCENARIO.replace(
        "matrix: {ranks: [2], backend: [none]}",
        "matrix: {ranks: [2], backend: [none], size: [1, 2]}",
    )
    subject = SUBJECT.replace("broken)", "broken, size)").replace(
        "thing=thing", "thing=thing, size=size"
    )
    ran = rankproof("run", str(scenario({"scenario.yaml": text, "subject.py": subject})))
    assert ran.code == 0, ran.out + ran.err
    sizes = {
        event.values["size"] for trial in events(ran) for event in trial if event.name == "met"
    }
    assert sizes == {1, 2}


def test_a_backend_that_is_not_there_is_skipped_and_counts_for_nothing(
    scenario: Write, rankproof: Run
) -> None:
    """A cell that cannot run is SKIPPED with its reason.

    A scenario with nothing else is INCONCLUSIVE.
    """
    ran = rankproof("run", str(scenario()), "--set", "matrix.backend=[nccl]")
    assert ran.code == 2
    assert ran.record.judgement.cells[0].verdict == "SKIPPED"
    assert "was skipped" in (ran.folder / "report.md").read_text()


def test_needs_that_are_not_met_skip(scenario: Write, rankproof: Run) -> None:
    """A machine without what the scenario needs does not run it, and says what is missing."""
    ran = rankproof("run", str(scenario({"scenario.yaml": SCENARIO + "needs: {memory: 100TiB}\n"})))
    assert ran.code == 2
    assert "of memory, but this machine has" in ran.err


@pytest.mark.whole
def test_two_runs_at_once_both_finish(scenario: Write, tmp_path: Path) -> None:
    """Two runs into one results folder at the same time both end with a report that verifies."""
    import subprocess

    from tests.kit.commands import command, environment

    folder = scenario()
    started = [
        subprocess.Popen(
            command("run", str(folder), "--results", str(tmp_path / "results")),
            env=environment(tmp_path / "home"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], outputs
    assert (
        len([path for path in (tmp_path / "results" / "meet").iterdir() if path.name != "latest"])
        == 2
    )


def test_an_input_is_given_by_digest(scenario: Write, rankproof: Run) -> None:
    """A pinned input that differs stops the run with one line; the right one reaches the ranks."""
    text = SCENARIO + 'inputs: {data: {path: data.txt, sha256: "' + "0" * 64 + '"}}\n'
    subject = SUBJECT.replace("    thing =", "    open(context.inputs['data']).read()\n    thing =")
    folder = scenario({"scenario.yaml": text, "subject.py": subject, "data.txt": "hello"})
    refused = rankproof("run", str(folder))
    assert refused.code == 2
    assert "the scenario pins 0000" in refused.err
    assert "Traceback" not in refused.err
    found = re.search(r"has sha256 ([0-9a-f]{64})", refused.err)
    assert found is not None
    (folder / "scenario.yaml").write_text(text.replace("0" * 64, found[1]))
    assert rankproof("run", str(folder)).code == 0


@pytest.mark.whole
def test_seeds_are_the_scenarios_and_differ_by_rank(scenario: Write, rankproof: Run) -> None:
    """Two runs, and both arms of one, give a rank the same random numbers, and no two ranks of a
    trial the same.
    """
    subject = SUBJECT.replace(
        "    assert thing",
        "    import random\n    context.emit('drew', number=random.random())\n    assert thing",
    )
    folder = scenario({"subject.py": subject})

    def drawn() -> list[list[float]]:
        ran = rankproof(
            "run", str(folder), "--set", "trials.candidate=2", "--set", "trials.control=2"
        )
        return [
            [
                event.values["number"]
                for event in sorted(trial, key=lambda e: e.rank or 0)
                if event.name == "drew"
            ]
            for trial in events(ran)
        ]

    first, second = drawn(), drawn()
    assert len(first) == 4
    assert first == second
    assert first[:2] == first[2:]
    assert all(len(set(trial)) == 2 for trial in first)


def test_a_subject_cannot_tell_its_arm_from_where_it_lies(whole: Ran) -> None:
    """Nothing a rank sees names its arm: not its path, its folder, its arguments or its
    environment.
    """
    seen = [event.values for trial in events(whole) for event in trial if event.name == "seen"]
    assert seen == [{"control": False, "candidate": False}] * 21


def test_a_subject_that_kills_what_watches_it_fails(scenario: Write, rankproof: Run) -> None:
    """A failing rank that kills its keeper so that nobody sees its end is a FAIL, however many
    voids are allowed.
    """
    subject = SUBJECT.replace(
        "    assert thing",
        "    import os\n    if context.rank: os.kill(os.getppid(), 9)\n    assert thing",
    )
    folder = scenario({"subject.py": subject})
    ran = rankproof("run", str(folder), "--set", "trials.max_voids=50")
    assert ran.code == 1, ran.out + ran.err


def test_no_path_and_no_secret_of_this_machine_is_in_the_results(whole: Ran) -> None:
    """Neither the home folder nor a variable outside the allow-list gets into any file of a run."""
    for path in whole.folder.rglob("*"):
        if path.is_file():
            text = path.read_bytes()
            assert b"s3cret-value" not in text
            if path.name.endswith((".json", ".md")):
                assert str(whole.results.parent).encode() not in text, path
