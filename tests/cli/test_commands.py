"""The commands as a user calls them."""

from __future__ import annotations

import importlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.cli import main
from harness.cli.arguments import load_all, wanted
from harness.cli.commands import COMMANDS, GROUPS, MODULES, parser
from harness.faults import KINDS
from harness.scenario import schema_text
from tests.kit import command_server
from tests.kit.commands import command, environment

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "transformers", "mlx", "numpy")


def ours(
    *arguments: str, cwd: Path = ROOT, before: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    env = environment(Path(os.environ["HOME"]))
    if not before:
        return command_server.run(*arguments, cwd=cwd, env=env)
    return subprocess.run(
        [*before, *command(*arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=env,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def processor_time(*arguments: str) -> float:
    """User and system seconds of one interpreter that is started with these arguments."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [sys.executable, *arguments], capture_output=True, cwd=ROOT, env=environment, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_answers_at_once() -> None:
    """`rankproof --help` takes at most 2.2 times the processor time of an interpreter that imports
    argparse.
    """
    # In turn, and the least of each: one machine needs 0.03 s for the interpreter, the next one
    # 0.05.
    help_seconds = []
    interpreter_seconds = []
    for _ in range(5):
        interpreter_seconds.append(processor_time("-c", "import argparse"))
        help_seconds.append(processor_time("-m", "harness.cli", "--help"))
    assert min(help_seconds) <= 2.2 * min(interpreter_seconds)


def test_no_command_loads_an_engine() -> None:
    """Importing any command, one after the other, loads neither torch nor transformers nor mlx nor
    numpy.
    """
    commands = [
        "cli",
        *(f"cli.{name}" for name in ("run", "reports", "scenarios", "lists", "series", "machines")),
        # What `show` and `compare` import when they are called.
        "report.terminal",
        "report.issue",
        "reproduce.comparison",
    ]
    code = (
        f"import importlib, sys\nfor command in {commands}:\n   "
        " importlib.import_module(f'harness.{command}')\n    print(command, [name for name in"
        f" {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.splitlines() == [f"{command} []" for command in commands]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_arguments_beside_its_main(command: str) -> None:
    """The module of each command adds its arguments.

    The usage of the whole command line is the same without them.
    """
    module = importlib.import_module(f"harness.cli.{MODULES.get(command, command)}")
    made = parser(command, module.arguments)
    assert callable(module.main)
    assert made.format_usage() == parser().format_usage()
    assert made.format_help() == parser().format_help()


@pytest.mark.parametrize(
    "words", [[], ["nothing"], ["--version", "verify"], ["ver"], ["-x", "verify"]]
)
def test_other_words_meet_the_whole_command_line(words: list[str]) -> None:
    """What begins with no command is answered by all of them: by the version, or by the usage."""
    done = ours(*words)
    assert (done.returncode, done.stderr[:17]) == (
        (0, "") if "--version" in words else (64, "usage: rankproof ")
    )


def test_schema_prints_the_exported_schema() -> None:
    """`rankproof list schema` prints what lies in scenarios/ for editors."""
    done = ours("list", "schema")
    assert (done.returncode, done.stdout) == (0, schema_text())
    assert done.stdout == (ROOT / "scenarios" / "scenario.schema.json").read_text()
    json.loads(done.stdout)


@pytest.mark.slow
def test_the_shipped_scenarios_lint_clean() -> None:
    """`rankproof lint` has nothing against the scenarios we ship.

    Of what would stop a run, at most a repository's.
    """
    done = ours("lint")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(": ok") == len(list((ROOT / "scenarios").rglob("*.yaml")))
    stops = [line for line in done.stdout.splitlines() if "would stop" in line]
    assert [
        line for line in stops if not line.endswith("; to use another repository, pass --repo PATH")
    ] == []


@pytest.mark.slow
def test_lint_names_every_problem_and_ends_with_64(tmp_path: Path) -> None:
    """Problems go to stderr with file, line and column; other files are still read."""
    (tmp_path / "bad.yaml").write_text("schema: 1\nid: It\ntitel: x\n")
    others = ROOT / "scenarios" / "tokenizer-on-every-rank"
    done = ours("lint", str(tmp_path), str(others))
    assert done.returncode == 64
    assert f"{tmp_path}/bad.yaml:3:1" in done.stderr
    assert done.stdout.count(": ok") == len(list(others.rglob("*.yaml"))) > 0


@pytest.mark.slow
def test_lint_says_what_would_stop_a_run(tmp_path: Path) -> None:
    """Missing code is a note, not a mistake of the file."""
    (tmp_path / "scenario.yaml").write_text(
        (ROOT / "docs" / "examples" / "checks" / "scenario.yaml").read_text()
    )
    done = ours("lint", str(tmp_path))
    assert done.returncode == 0
    assert "note: a run would stop: subject.entry: " in done.stdout


@pytest.mark.slow
def test_code_that_cannot_be_read(tmp_path: Path) -> None:
    """A file of the subject's folder that may not be read is named, by lint and by the run that it
    stops.
    """
    humble = []
    if os.geteuid() == 0:  # who is refused nothing, unless that right is given up
        if shutil.which("setpriv") is None:
            pytest.skip("as root this needs setpriv")
        rights = "-dac_override,-dac_read_search"
        humble = ["setpriv", "--bounding-set", rights, "--inh-caps", rights]
    (tmp_path / "scenario.yaml").write_text(
        (ROOT / "docs" / "examples" / "checks" / "scenario.yaml").read_text()
    )
    (tmp_path / "subject.py").write_text("def run(context): pass\n")
    (tmp_path / "secret.py").touch(mode=0)
    said = "subject.path: secret.py cannot be read (Permission denied); make it readable"
    lint = ours("lint", str(tmp_path), before=humble)
    assert (lint.returncode, lint.stderr) == (0, "")
    assert f"note: a run would stop: {said}" in lint.stdout
    run = ours(
        "run", str(tmp_path), "--results", str(tmp_path / "results"), "--unsigned", before=humble
    )
    assert run.returncode == 2
    assert said in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.slow
def test_run_with_a_bad_scenario_runs_nothing(tmp_path: Path) -> None:
    """One unreadable file among several stops the run before anything is started."""
    (tmp_path / "bad.yaml").write_text("schema: 1\n")
    other = ROOT / "scenarios" / "late-rank"
    done = ours("run", str(tmp_path), str(other), "--results", str(tmp_path / "results"))
    assert done.returncode == 64
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    "arguments",
    [(), ("fly",), ("run", "--jobs", "0"), ("run", "--jobs", "x"), ("verify",), ("run", "nowhere")],
)
def test_bad_usage_ends_with_64(arguments: tuple[str, ...]) -> None:
    """Bad usage is told on stderr without a traceback."""
    done = ours(*arguments)
    assert done.returncode == 64
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_a_bug_of_ours_ends_with_70(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What no command expects is told apart from every verdict, with its traceback."""

    def broken(_options: object) -> int:
        raise ZeroDivisionError("a slip")

    monkeypatch.setattr("harness.cli.lists.main", broken)
    assert main(["list", "schema"]) == 70
    assert "ZeroDivisionError: a slip" in capsys.readouterr().err


def test_list_shows_cells_and_trials() -> None:
    """`rankproof list` shows each scenario's role, cells and numbers of trials."""
    done = ours("list")
    assert done.returncode == 0
    assert "ranks=4,backend=gloo: 59 + 5 trials" in done.stdout
    assert "self-test, expects INCONCLUSIVE" in done.stdout


def test_show_and_verify_of_what_is_not_there(tmp_path: Path) -> None:
    """A missing run is one line for `show`, and NO REPORT for `verify`."""
    shown = ours("show", str(tmp_path))
    assert shown.returncode == 64
    assert "give the folder of a finished run" in shown.stderr
    verified = ours("verify", str(tmp_path / "report.md"), "--signer", "SHA256:" + "x" * 43)
    assert verified.returncode == 3
    assert "NO REPORT" in verified.stdout


def test_faults_lists_every_kind_with_what_it_needs_and_whether_it_can_run() -> None:
    """`rankproof list faults` names all kinds, and says of each what it does, needs, and whether it can
    run here.
    """
    done = ours("list", "faults")
    assert done.returncode == 0
    kinds = [line for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert kinds == list(KINDS)
    can_run = [kind for kind, model in KINDS.items() if not model.refusal()]
    assert done.stdout.count("needs: ") == len(kinds)
    assert done.stdout.count("here:  yes") == len(can_run)
    assert done.stdout.count("here:  no: ") == len(kinds) - len(can_run)


def test_a_fault_that_cannot_run_here_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a system that does not tell when a process stops, `pause` is refused with that reason."""
    from harness.cli import main

    monkeypatch.delattr(os, "WCONTINUED")
    assert main(["list", "faults"]) == 0
    assert (
        "here:  no: this system does not report when a process is stopped"
        in capsys.readouterr().out
    )


def test_what_runs_on_demand_is_run_where_it_is_named(tmp_path: Path) -> None:
    """`on-demand` needs its file or folder named, `sweep` its file.

    A folder further up, or no name, runs neither.
    """
    text = (ROOT / "scenarios" / "late-rank" / "scenario.yaml").read_text()
    assert "tags: [release-gate]" in text
    for name, tags in {
        "always": "[]",
        "asked": "[on-demand]",
        "swept": "[on-demand, sweep]",
    }.items():
        path = tmp_path / "all" / "folder" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            text.replace("id: late-rank", f"id: {name}").replace("[release-gate]", tags)
        )
    every, folder = tmp_path / "all", tmp_path / "all" / "folder"

    def runs(*paths: Path) -> list[str]:
        loaded, problems = load_all(paths, ())
        assert (len(loaded), problems) == (3 if paths[0].suffix != ".yaml" else len(paths), 0)
        return [found.scenario.id for found in wanted(loaded, paths)]

    assert runs(every) == ["always"]
    assert runs(folder) == ["always", "asked"]
    assert runs(every / ".." / "all" / "folder") == ["always", "asked"]
    assert runs(folder / "swept.yaml") == ["swept"]
    assert runs(folder / "asked.yaml", folder / "swept.yaml") == ["asked", "swept"]


@pytest.mark.slow
def test_a_folder_that_was_removed_is_no_bug_of_ours(tmp_path: Path) -> None:
    """A shell may stand in a folder that somebody deleted: the answer says so."""
    gone = tmp_path / "gone"
    gone.mkdir()
    code = (
        f"import os, sys; os.rmdir({str(gone)!r}); from harness.cli import main;"
        " sys.exit(main(['doctor', '--quick']))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=gone, env=environment, check=False
    )
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr == "rankproof: the current folder was removed; change to another one\n"


def test_an_override_that_is_no_text_is_told(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 are a mistake with a place, not a traceback."""
    scenario = str(ROOT / "scenarios" / "late-rank")
    command = [
        sys.executable,
        "-m",
        "harness.cli",
        "run",
        scenario,
        "--results",
        str(tmp_path),
        "--set",
        b"title=\xff",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 64
    assert "--set:1:1: is not UTF-8" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["matrix", "search", "operators"])
def test_no_key_is_made_for_what_cannot_be_gone_on_with(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--resume` looks at the folder before it makes a key."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(home))
    done = ours("lab", command, "--resume", str(tmp_path / "nothing"))
    assert done.returncode == 2
    assert f"is not the folder of an unfinished `rankproof lab {command}`" in done.stderr
    assert [path for path in home.rglob("*") if path.is_file()] == []


@pytest.mark.slow
@pytest.mark.parametrize("place", ["/proc/nope", "/dev/null/x", "a" * 300])
def test_layouts_that_cannot_be_written_are_a_mistake_of_the_call(place: str) -> None:
    """A path that cannot be written is named with the reason, and is not a bug of ours."""
    done = ours("lab", "hub", "layouts", "--out", place)
    assert done.returncode == 64
    assert place[:20] in done.stderr
    assert "Traceback" not in done.stderr


def test_the_first_page_names_every_command_in_four_groups() -> None:
    """What is behind another command, or has BitNet's name, is on no first page; it has at most 40
    lines of 80 columns.
    """
    done = ours("--help")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    shown = [line.split()[0] for line in lines if re.match("  [a-z]+ {2,}", line)]
    assert shown == [name for group in GROUPS.values() for name in group]
    behind = {name.split()[0] for name in COMMANDS if " " in name}
    hidden = {name for name in COMMANDS if COMMANDS[name][0].startswith("BitNet's")}
    assert set(shown) == {name for name in COMMANDS if " " not in name} - hidden | behind


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("faults",), "rankproof list faults"),
        (("matrix", "--sample"), "rankproof lab matrix"),
        (("gguf", "check", "x"), "rankproof tokenizer gguf"),
        (("verfy", "x"), "rankproof verify"),
        (("lab", "serch"), "rankproof lab search"),
    ],
)
def test_a_word_that_is_no_command_gets_the_one_that_was_meant(
    words: tuple[str, ...], meant: str
) -> None:
    """Behind another command, or spelt alike."""
    done = ours(*words)
    assert done.returncode == 64
    assert f"did you mean `{meant}`?" in done.stderr


def test_a_path_may_have_the_name_of_a_command(tmp_path: Path) -> None:
    """`list ./faults` lists scenarios of that folder."""
    (tmp_path / "faults").mkdir()
    done = ours("list", "./faults", cwd=tmp_path)
    assert "no scenario file" in done.stderr
