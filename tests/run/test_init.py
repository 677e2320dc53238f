"""`rankproof init`: what it writes lints clean and runs, whatever the answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.run.init import Answers, InitError, ignore_results, write
from harness.scenario import ScenarioError, load_scenario, schema_text
from tests.kit.commands import Ran
from tests.kit.repositories import git

Run = Callable[..., Ran]
FEW = ("--set", "trials.candidate=5", "--set", "trials.accept.failure_rate_below=60%")
LINES = {
    "raise": (
        "--error",
        "ValueError",
        "--source",
        'raise ValueError("no cache")',
        "--failing",
        "[1]",
    ),
    "own error": ("--error", "CacheMiss", "--source", 'raise CacheMiss("x")', "--failing", "every"),
    "cannot be played": ("--error", "KeyError", "--source", "value = table[key]"),
    "assert of something else": ("--source", "assert cache.ready"),
    "an error alone": ("--error", "CacheMiss"),
    "an error of five arguments": ("--error", "UnicodeDecodeError"),
    "odd words": (
        "--title",
        'He said: "it: works" # really',
        "--question",
        "¿Funciona? 日本語 {x}",
    ),
}


def initialized(rankproof: Run, folder: str, *words: str) -> str:
    """A folder that is written for these answers, and lints clean."""
    made = rankproof("init", folder, "--ranks", "2", *words)
    assert made.code == 0, made.err
    assert rankproof("lint", folder).code == 0
    return folder


@pytest.mark.slow
@pytest.mark.whole
def test_it_lints_clean_and_runs_to_a_pass(rankproof: Run) -> None:
    """Without an answer, the folder is a scenario whose control fails as required, unchanged."""
    ran = rankproof("run", initialized(rankproof, "my-fix"), *FEW)
    assert ran.code == 0, ran.out + ran.err


@pytest.mark.long
def test_whatever_is_answered_lints_clean_and_runs_to_a_pass(
    rankproof: Run, tmp_path: Path
) -> None:
    """All answers are run by one command, without the group, which is the same in each of them."""
    folders = []
    for number, words in enumerate(LINES.values()):
        folder = initialized(rankproof, f"fix-{number}", *words)
        subject = tmp_path / folder / "subject.py"
        text = subject.read_text()
        assert text.count("    context.group.barrier()\n") == 1
        subject.write_text(text.replace("    context.group.barrier()\n", ""))
        folders.append(folder)
    ran = rankproof("run", *folders, *FEW, "--set", "matrix.backend=[none]")
    assert ran.code == 0, ran.out + ran.err
    assert len(list(ran.results.iterdir())) >= len(LINES)


def test_a_folder_with_files_is_left_alone(tmp_path: Path) -> None:
    """Nothing is overwritten."""
    (tmp_path / "mine").write_text("keep")
    with pytest.raises(InitError, match="not an empty folder"):
        write(tmp_path, Answers(id="it", title="t", question="q"))
    assert (tmp_path / "mine").read_text() == "keep"


def test_an_answer_that_no_scenario_can_hold_writes_nothing(tmp_path: Path) -> None:
    """A rank that no world has is told with its place, before anything is written."""
    with pytest.raises(ScenarioError):
        write(tmp_path / "it", Answers(id="it", title="t", question="q", failing="[9]"))
    assert not (tmp_path / "it").exists()
    with pytest.raises(InitError, match="lower-case"):
        write(tmp_path / "it", Answers(id="It's", title="t", question="q"))


@pytest.mark.parametrize("kind", ["error", "hang", "program", "package"])
def test_what_is_written_can_be_read_by_an_editor(tmp_path: Path, kind: Any) -> None:
    """The schema line names a file that is there: this version's, or the one that lay there
    before.
    """
    answers = Answers(
        id="it",
        title="t",
        question="q",
        kind=kind,
        package="greeting",
        candidate="2.0",
        control="1.0",
    )
    written = write(tmp_path / "scenarios" / "it", answers)
    named = (
        (tmp_path / "scenarios" / "it" / "scenario.yaml")
        .read_text()
        .partition("$schema=")[2]
        .partition("\n")[0]
    )
    place = (tmp_path / "scenarios" / "it" / named).resolve()
    assert place.read_text() == schema_text()
    assert place in [path.resolve() for path in written]
    place.write_text("{}")
    assert place not in [
        path.resolve() for path in write(tmp_path / "scenarios" / "other", answers)
    ]
    assert place.read_text() == "{}"
    assert load_scenario(tmp_path / "scenarios" / "it").scenario.id == "it"


@pytest.mark.parametrize("before", [None, "*.pyc", "*.pyc\n"])
def test_results_are_ignored_where_nothing_says_so(tmp_path: Path, before: str | None) -> None:
    """One line is added to the folder's .gitignore, once; what stood there stays."""
    git(tmp_path, "init", "--quiet")
    file = tmp_path / ".gitignore"
    if before is not None:
        file.write_text(before)
    assert ignore_results(tmp_path) == file
    assert file.read_text().startswith(before or "# The results")
    assert "\n/results/\n" in file.read_text()
    text = file.read_text()
    assert ignore_results(tmp_path) is None
    assert file.read_text() == text
    (tmp_path / "results" / "run").mkdir(parents=True)
    (tmp_path / "results" / "run" / "report.md").write_text("x")
    assert "results" not in git(tmp_path, "status", "--short")


def test_a_gitignore_that_says_so_and_no_repository_are_left_alone(tmp_path: Path) -> None:
    """`results` ignored in another way needs no second line.

    Outside of a repository nothing is written.
    """
    assert ignore_results(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    git(tmp_path, "init", "--quiet")
    (tmp_path / ".gitignore").write_text("/res*/*\n!/results/README.md\n")
    assert ignore_results(tmp_path) is None
    below = tmp_path / "below"
    below.mkdir()
    assert ignore_results(below) == below / ".gitignore"


@pytest.mark.slow
def test_the_command_says_what_it_wrote(rankproof: Run, tmp_path: Path) -> None:
    """Scenario, subject, schema and .gitignore are named, the last only where it was written."""
    git(tmp_path, "init", "--quiet")
    made = rankproof("init", "scenarios/one", "--program")
    assert made.code == 0, made.err
    for name in (
        "scenarios/one/scenario.yaml",
        "scenarios/one/rank.sh",
        "scenarios/scenario.schema.json",
        ".gitignore",
    ):
        assert f"wrote {name}" in made.out
        assert (tmp_path / name).is_file()
    again = rankproof("init", "scenarios/two", "--program")
    assert ".gitignore" not in again.out
    assert "schema" not in again.out


@pytest.mark.parametrize("name", ["123", "1e3", "0x1f", "true", "null", "on", "a1"])
def test_a_name_stays_a_text(tmp_path: Path, name: str) -> None:
    """YAML reads some names as numbers or truths unless they are quoted."""
    write(tmp_path / "it", Answers(id=name, title="t", question="q"))
    assert load_scenario(tmp_path / "it").scenario.id == name


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"error": "torch.OutOfMemoryError"}, "without its module"),
        ({"error": "class"}, "not a valid exception name"),
        ({"error": "SystemExit"}, "without an error"),
        ({"title": "\udcff"}, "not UTF-8"),
        ({"title": "t" * 81}, "--title has 81 characters"),
        ({"question": "q" * 201}, "--question has 201 characters"),
    ],
)
def test_an_answer_that_could_not_be_played_is_refused(
    tmp_path: Path, answers: dict[str, str], message: str
) -> None:
    """What would not run as it is, or cannot be written, is told before anything is written."""
    with pytest.raises(InitError, match=message):
        write(tmp_path / "it", Answers(id="it", **{"title": "t", "question": "q", **answers}))
    assert not (tmp_path / "it").exists()


@pytest.mark.slow
@pytest.mark.whole
def test_a_hang_is_written_run_and_verified(rankproof: Run, tmp_path: Path) -> None:
    """`init --hang` writes a deadlock that is proved as one.

    The report shows where each rank stood, and verifies.
    """
    assert rankproof("init", "my-hang", "--hang", "--ranks", "2").code == 0
    assert rankproof("lint", "my-hang").code == 0
    ran = rankproof("run", "my-hang", *FEW, "--set", "trials.control=2")
    assert ran.code == 0, ran.out + ran.err
    report = (ran.folder / "report.md").read_text()
    assert "The world stood still for 10" in report
    assert "one trial stood still for 10 s, one for 2" in report
    assert " in check: dist.all_reduce(total)" in report
    signer = ran.out.rpartition("--signer ")[2].strip()
    assert rankproof("verify", str(ran.folder / "report.md"), "--signer", signer).code == 0


@pytest.mark.slow
@pytest.mark.parametrize("failing", ["nonzero", "every", "[1, 2]"])
def test_a_program_is_written_and_run(rankproof: Run, failing: str) -> None:
    """`init --program` writes a shell program whose control ends as required on the ranks that are
    asked for.
    """
    made = rankproof("init", "my-program", "--program", "--ranks", "3", "--failing", failing)
    assert made.code == 0, made.err
    assert rankproof("lint", "my-program").code == 0
    ran = rankproof("run", "my-program", *FEW)
    assert ran.code == 0, ran.out + ran.err


@pytest.mark.long
def test_two_releases_of_a_package_are_written_and_run(
    rankproof: Run, offered: dict[str, str]
) -> None:
    """`init --package` writes a scenario whose arms differ in one release.

    It tells them apart and passes.
    """
    releases = ("--candidate", "2.0", "--control", "1.0")
    assert (
        rankproof("init", "my-package", "--package", "greeting", *releases, "--ranks", "2").code
        == 0
    )
    assert rankproof("lint", "my-package").code == 0
    ran = rankproof("run", "my-package", *FEW, env=offered)
    assert ran.code == 0, ran.out + ran.err
    versions = {
        arm: facts.versions["greeting"] for arm, facts in ran.record.run.environments.items()
    }
    assert versions == {"candidate": "2.0", "control": "1.0"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--hang", "--error", "ValueError"),
            "--error is for a bug that raises; remove this option, or remove --hang",
        ),
        (("--program", "--source", "x"), "--source is for a bug that raises"),
        (
            ("--hang", "--failing", "every"),
            "--failing is for a bug that ends the ranks where it shows",
        ),
        (("--control", "1.0"), "--control is for --package; remove this option\n"),
        (("--package", "filelock"), "--package filelock needs --control VERSION"),
        (("--package", "no-such-package", "--control", "1.0"), "needs --candidate VERSION"),
        (
            ("--package", "a b", "--candidate", "2.0", "--control", "1.0"),
            "must be the name of a package",
        ),
        (("--hang", "--program"), "not allowed with"),
    ],
)
def test_flags_that_do_not_go_together(
    rankproof: Run, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    """What a kind of bug does not have is refused, and nothing is written."""
    made = rankproof("init", "mine", *words)
    assert made.code == 64
    assert message in made.err
    assert not (tmp_path / "mine").exists()
