"""A machine that does not play along: paths that cannot be gone, no descriptors, no home.

Never a bug of ours.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.cli import main
from tests.kit.commands import SCENARIO, SUBJECT, environment

SIGNER = ("--signer", "SHA256:" + "x" * 43)
LONG = "x" * 300
EACH = """
import json, sys
from harness.cli import main
codes = []
for words in json.loads(sys.argv[1]):
    try:
        codes.append(main(words))
    except SystemExit as leaving:
        codes.append(leaving.code)
print(json.dumps(codes), file=sys.__stderr__)
"""


def ours(
    before: Sequence[str], words: Sequence[Sequence[str]], folder: Path, **env: str
) -> tuple[list[int], str]:
    """The exit codes of several commands in one process, and what it wrote."""
    home = environment(folder / "home")
    done = subprocess.run(
        [*before, sys.executable, "-c", EACH, json.dumps(words)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={name: value for name, value in {**home, **env}.items() if value != "unset"},
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    *lines, codes = done.stderr.splitlines()
    return json.loads(codes), done.stdout + "\n".join(lines)


def with_rights(rights: str) -> list[str]:
    """Words before a command that take rights from root, who is refused nothing else."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("as root this needs setpriv")
    return ["setpriv", "--bounding-set", rights, "--inh-caps", rights]


@pytest.mark.slow
def test_what_may_not_be_looked_at_is_no_bug_of_ours(tmp_path: Path) -> None:
    """A path in a locked folder is told as that by every command, and so is one that is too long
    for the system.
    """
    (tmp_path / "locked").mkdir(mode=0)
    (tmp_path / "closed").mkdir(mode=0o555)
    words = []
    for place in ("locked/x", "locked", LONG):
        words += [
            ["show", place],
            ["verify", place, *SIGNER],
            ["bundle", place],
            ["lab", "hub", "serve", place],
        ]
        words += [
            ["reproduce", place, *SIGNER],
            ["diff", place, place, *SIGNER],
            ["lint", place],
        ]
        words += [
            ["gate", "--init", "--policy", place],
            ["init", f"{place}/y"],
            ["tokenizer", "lock", place],
        ]
    words += [
        ["lab", "hub", "layouts", "--out", "closed/x", "gpt2"],
        ["lab", "hub", "layouts", "--out", "locked/x", "gpt2"],
    ]
    codes, said = ours(with_rights("-dac_override,-dac_read_search"), words, tmp_path)
    assert [
        (code, given) for code, given in zip(codes, words, strict=True) if code not in (2, 3, 64)
    ] == []
    assert (
        "rankproof show: locked/x: Permission denied: change its permissions, or give another"
        " path" in said
    )
    assert f"rankproof show: {LONG}: File name too long: give another path" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_results_in_a_locked_folder_are_what_the_doctor_names(tmp_path: Path) -> None:
    """The doctor goes on where it may not look, and says that results cannot be written there."""
    (tmp_path / "locked").mkdir(mode=0)
    words = [["doctor", "--quick", "--results", "locked/x"]]
    codes, said = ours(with_rights("-dac_override,-dac_read_search"), words, tmp_path)
    assert codes == [2]
    assert "locked/x can not be written" in said


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("entry: subject:meet", "entry: subject:meet\n  path: loop", 64),
        ("entry: subject:meet", "entry: subject:meet\n  path: loop/inside", 64),
        ("{with: {broken: false}}", "{repo: loop, with: {broken: false}}", 2),
        ("checks:", "inputs: {model: {path: loop/inside}}\nchecks:", 2),
    ],
)
def test_a_scenario_that_names_a_loop_of_links(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, code: int
) -> None:
    """A path of the file that leads round in a circle is a place where nothing is, to `lint` and to
    a run.
    """
    (tmp_path / "scenario.yaml").write_text(SCENARIO.replace(old, new))
    (tmp_path / "subject.py").write_text(SUBJECT)
    (tmp_path / "loop").symlink_to("loop")
    assert main(["lint", str(tmp_path)]) == 0
    assert (
        main(["run", str(tmp_path), "--results", str(tmp_path / "results"), "--unsigned"]) == code
    )
    said = capsys.readouterr()
    assert "does not exist" in said.err or "is not a folder" in said.err
    assert main(["bundle", str(tmp_path / "loop")]) == 64


def test_a_home_of_nobody_is_a_path_like_any(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`~` with a name that no user has stays what it is, in a key, an input and a repository."""
    (tmp_path / "scenario.yaml").write_text(
        SCENARIO.replace("checks:", "inputs: {model: {path: model}}\nchecks:")
    )
    (tmp_path / "subject.py").write_text(SUBJECT)
    run = ["run", str(tmp_path), "--results", str(tmp_path / "results"), "--unsigned"]
    assert main([*run, "--set", "inputs.model=~no-such-user/x"]) == 2
    assert main([*run, "--repo", "~no-such-user/x"]) == 2
    assert main([*run[:-1], "--key", "~no-such-user/x"]) == 64
    assert main(["reproduce", str(tmp_path), "--input", "model=~no-such-user/x", *SIGNER]) in (
        3,
        64,
    )
    assert capsys.readouterr().err.count("~no-such-user/x") >= 2


@pytest.mark.slow
def test_too_few_descriptors_are_told(tmp_path: Path) -> None:
    """Where no file can be opened any more, that is the answer, with where the limits stand."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    limited = ["sh", "-c", f'ulimit -n {min(hard, 5)}; exec "$@"', "sh"]
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    (tmp_path / "subject.py").write_text(SUBJECT)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True
    )
    codes, said = ours(limited, [["run", ".", "--key", "key"]], tmp_path)
    assert codes == [2]
    assert "rankproof run: Too many open files; `rankproof doctor` shows the limits" in said


def test_a_user_whom_the_machine_does_not_know(tmp_path: Path) -> None:
    """Without HOME and without an entry in the list of users, as in some containers, every command
    works.
    """
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become somebody else, with setpriv")
    rights = "+dac_override,+dac_read_search"
    unknown = ["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups"]
    unknown += ["--inh-caps", rights, "--ambient-caps", rights]
    codes, said = ours(
        unknown,
        [["list", "environments"], ["list", "environments", "remove", "x"]],
        tmp_path,
        HOME="unset",
    )
    assert codes == [0, 64]
    assert "Traceback" not in said
