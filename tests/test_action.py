"""`action.yml`: run as a runner would, step by step, in a user's repository.

And what docs/gate.md shows of it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.cli.commands import COMMANDS
from tests.kit.commands import environment
from tests.kit.pull_requests import ENGINE, NAMES, POLICY, SCENARIO, Keys
from tests.kit.repositories import git, write
from tests.kit.runner import ACTION, Runner, action

DOCS = ACTION.parent / "docs" / "gate.md"
PINNED = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40}")
OURS = "OWNER/rankproof@COMMIT"
STEPS = action()["runs"]["steps"]
SCRIPTS = [step for step in STEPS if "run" in step]
INSTALL = "Install Rankproof"


def workflows() -> list[dict[str, Any]]:
    """The workflows that docs/gate.md shows."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    return [parsed for block in blocks if "jobs" in (parsed := yaml.safe_load(block))]


@pytest.mark.parametrize("step", SCRIPTS, ids=lambda step: step["name"])
def test_inputs_reach_the_shell_through_the_environment_alone(step: dict[str, Any]) -> None:
    """No expression stands in a script, every variable of a script is set, and bash can read it."""
    assert "${{" not in step["run"]
    assert step["shell"] == "bash"
    subprocess.run(["bash", "-n"], input=step["run"], text=True, check=True)
    own = set(
        re.findall(r"^\s*([a-z]+)=|for ([a-z]+) |read -r ([a-z]+)", step["run"], re.MULTILINE)
    )
    runners = {"RUNNER_TEMP", "GITHUB_ACTION_PATH", "GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_RUN_ID"}
    known = {*step["env"], *runners, *(name for names in own for name in names if name)}
    used = set(re.findall(r"\$\{?([A-Za-z_]+)", step["run"]))
    assert used <= known, used - known


def test_every_input_is_used_and_none_is_asked_for_in_vain() -> None:
    """Inputs and the expressions that name them are the same set.

    Outputs name steps that there are.
    """
    text = ACTION.read_text()
    assert set(re.findall(r"inputs\.([a-z-]+)", text)) == set(action()["inputs"])
    assert set(re.findall(r"steps\.([a-z]+)\.", text)) <= {step.get("id") for step in STEPS}


@pytest.mark.parametrize(
    "step", [step for step in STEPS if "uses" in step], ids=lambda step: step["name"]
)
def test_actions_of_others_are_pinned(step: dict[str, Any]) -> None:
    """By commit: a tag can be moved."""
    assert PINNED.fullmatch(step["uses"])


@pytest.mark.parametrize("workflow", workflows(), ids=lambda workflow: workflow["name"])
def test_the_workflows_of_the_docs_call_what_there_is(workflow: dict[str, Any]) -> None:
    """Our action with inputs that it has, others' by commit, and commands that exist."""
    uses = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert any(step.get("uses") == OURS for step in uses)
    for step in uses:
        if step.get("uses") == OURS:
            assert step.get("with", {}).keys() <= action()["inputs"].keys()
            assert all(isinstance(value, str) for value in step.get("with", {}).values())
        elif "uses" in step:
            assert PINNED.fullmatch(step["uses"])
        else:
            assert set(re.findall(r"rankproof (\w+)", step["run"])) <= set(COMMANDS)
    for job in workflow["jobs"].values():
        assert set([job["needs"]] if "needs" in job else []) <= workflow["jobs"].keys()
        # Whoever holds the key does not decide.
        texts = [str(step.get("with", {})) for step in job["steps"]]
        assert not (
            any("secrets." in text for text in texts)
            and any("'gate': 'true'" in text for text in texts)
        )


def test_the_docs_name_every_input() -> None:
    """The table of inputs leaves none out, and outputs are named."""
    text = DOCS.read_text()
    for name in [*action()["inputs"], *action()["outputs"]]:
        assert f"`{name}`" in text, name


# -- run ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runner's temporary folder in which the first step has installed Rankproof from this
    checkout.
    """
    temp = tmp_path_factory.mktemp("runner")
    home = tmp_path_factory.mktemp("home")
    runner = Runner(
        ACTION.parent, temp, temp, {"run_id": "1", "run_attempt": "1"}, pip_environment(home)
    )
    good = runner.run(run="false", python=sys.executable)
    if not good and re.search(
        "No matching distribution|Could not fetch URL|Connection", runner.log[INSTALL]
    ):
        pytest.skip("pip gets nothing here")
    assert good, runner.log
    assert runner.log[INSTALL].endswith("rankproof 0.1.0\n")
    return temp


def pip_environment(home: Path) -> dict[str, str]:
    import os

    pip = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("PIP_", "SSL_", "HTTP", "http"))
    }
    variables = environment(home, **pip)
    del variables["PYTHONPATH"]
    return variables


@pytest.fixture
def job(installed: Path, tmp_path: Path) -> Callable[..., Runner]:
    """A job in a user's clone, at a commit of theirs, where the program is installed already."""

    def make(checkout: Path, *, attempt: int = 1, run: str = "77") -> Runner:
        head = git(checkout, "rev-parse", "HEAD")
        github = {"run_id": run, "run_attempt": str(attempt), "sha": head}
        (tmp_path / "store").mkdir(exist_ok=True)
        return Runner(
            checkout, installed, tmp_path / "store", github, pip_environment(tmp_path / "home")
        )

    return make


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """A key pair for each name."""
    made = Keys(tmp_path_factory.mktemp("keys"))
    for name in NAMES:
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(made.path(name))], check=True
        )
    return made


@pytest.fixture
def clone(tmp_path: Path, keys: Keys) -> Callable[[str], Path]:
    """Clones of a user's repository, which has a scenario, an engine in shell, and a policy that
    trusts `ci`.
    """
    origin = tmp_path / "origin"
    origin.mkdir()
    git(origin, "init", "-q", "-b", "main")
    write(
        origin,
        {
            ".gitignore": "/results/\n",
            ".rankproof/policy.yaml": POLICY,
            ".rankproof/allowed_signers": (
                keys.line("alice") + keys.line("ci") + keys.line("ci-two") + keys.line("release")
            ),
            "scenarios/words/scenario.yaml": SCENARIO,
            "engine/rank.sh": ENGINE,
        },
    )
    git(origin, "add", "-A")
    git(origin, "commit", "-qm", "first")

    def make(name: str) -> Path:
        git(tmp_path, "clone", "-q", str(origin), name)
        return tmp_path / name

    return make


RUN = (INSTALL,)


@pytest.mark.slow
@pytest.mark.whole
def test_a_push_is_run_signed_uploaded_and_gated(
    job: Callable[..., Runner], clone: Callable[[str], Path], keys: Keys
) -> None:
    """One job signs and uploads; another, with nothing but the artifact and its own clone, opens
    the gate.
    """
    signing = job(clone("first"))
    assert signing.run(key=keys.path("ci").read_text(), leave_out=RUN), signing.log
    assert signing.outputs == {"code": "0", "gate-code": ""}
    assert not (signing.temp / "rankproof-key").exists()
    assert (signing.store / "rankproof-results-1" / "words").is_dir()
    gating = job(clone("second"))
    assert gating.run(run="false", gate="true", leave_out=RUN), gating.log
    assert "gate OPEN" in gating.log["Ask the gate"]
    assert "the signed report contains 'run 77'" in gating.log["Ask the gate"]
    assert gating.outputs == {"code": "", "gate-code": "0"}
    # The results of another workflow run are not this one's.
    later = job(clone("third"), run="78")
    assert not later.run(run="false", gate="true", leave_out=RUN)
    assert "it was made for a different request" in later.log["Ask the gate"]
    assert later.outputs["gate-code"] == "1"


@pytest.mark.slow
@pytest.mark.whole
def test_a_pull_request_has_no_key_and_opens_no_gate(
    job: Callable[..., Runner], clone: Callable[[str], Path]
) -> None:
    """Its reports are unsigned, which the log says.

    The verdict counts for the job, and the gate refuses them.
    """
    runner = job(clone("pull"))
    assert not runner.run(gate="true", leave_out=RUN)
    assert runner.codes["Run the scenarios"] == 0
    assert "::notice title=rankproof::no key was given" in runner.log["Run the scenarios"]
    assert runner.outputs == {"code": "0", "gate-code": "3"}
    assert "UNSIGNED" in runner.log["Ask the gate"]


@pytest.mark.slow
@pytest.mark.whole
def test_a_fail_is_uploaded_and_ends_the_job(
    job: Callable[..., Runner], clone: Callable[[str], Path], keys: Keys
) -> None:
    """A candidate that fails makes the step fail with its code.

    The results are uploaded, and the gate stays closed.
    """
    checkout = clone("broken")
    write(checkout, {"engine/rank.sh": ENGINE.replace('\\"$1\\"', '\\"no\\"')})
    git(checkout, "commit", "-qam", "break it")
    runner = job(checkout, attempt=2)
    assert not runner.run(
        key=keys.path("ci").read_text(), gate="true", trusted_ref="origin/main", leave_out=RUN
    )
    assert runner.outputs == {"code": "1", "gate-code": "1"}
    assert list((runner.store / "rankproof-results-2" / "words").iterdir())


@pytest.mark.slow
@pytest.mark.whole
def test_scenarios_and_overrides_are_one_a_line(
    job: Callable[..., Runner], clone: Callable[[str], Path]
) -> None:
    """Several of each reach the command, and no artifact is uploaded where none is named."""
    runner = job(clone("lines"))
    overrides = "trials.candidate=6\n\ntrials.control=6\n"
    assert runner.run(
        scenarios="scenarios/words\n", set=overrides, artifact="", challenge="none", leave_out=RUN
    )
    (record,) = (runner.checkout / "results").glob("words/*-*/evidence/run.json")
    assert re.search(
        r'"overrides": \[\s*"trials.candidate=6",\s*"trials.control=6"\s*\]', record.read_text()
    )
    assert '"challenge": null' in record.read_text()
    assert list(runner.store.iterdir()) == []


HOSTILE = (
    "$(touch pwned)",
    '"; touch pwned; "',
    "`touch pwned`",
    "--key=/dev/null",
    "x\n--unsigned",
    "'; touch pwned #",
)


RUN_INPUTS = ("scenarios", "set", "candidate", "control", "repo", "challenge", "results")
GATE_INPUTS = ("trusted_ref", "policy", "challenge", "results")
# Keeps what it was given, each word between two NULs.
TELLING = """#!/bin/sh
printf '\\0%s\\0' "$@" >> "$RUNNER_TEMP/given"
exit 64
"""


@pytest.fixture
def told(tmp_path: Path, clone: Callable[[str], Path]) -> Runner:
    """A job whose `rankproof` writes its arguments into a file, and ends with 64."""
    temp, program = tmp_path / "temp", tmp_path / "bin" / "rankproof"
    program.parent.mkdir()
    program.write_text(TELLING)
    program.chmod(0o755)
    temp.mkdir()
    (temp / "GITHUB_PATH").write_text(f"{program.parent}\n")
    (tmp_path / "store").mkdir()
    checkout = clone("hostile")
    github = {"run_id": "77", "run_attempt": "1", "sha": git(checkout, "rev-parse", "HEAD")}
    return Runner(checkout, temp, tmp_path / "store", github, pip_environment(tmp_path / "home"))


def given(runner: Runner) -> list[str]:
    """The arguments that `rankproof` was called with since it was asked last.

    None where it was not called.
    """
    file = runner.temp / "given"
    text = file.read_text() if file.exists() else ""
    file.unlink(missing_ok=True)
    return text.removeprefix("\0").removesuffix("\0").split("\0\0") if text else []


@pytest.mark.parametrize("text", HOSTILE)
def test_what_an_input_holds_is_one_argument_and_never_run(told: Runner, text: str) -> None:
    """Whatever stands in all inputs at once, each is one argument as it is: nothing is executed, no
    option smuggled.
    """
    lines = text.splitlines()
    assert not told.run(**dict.fromkeys(RUN_INPUTS, text), artifact="", leave_out=RUN), told.log
    arms = [f"--{name}={text}" for name in ("repo", "candidate", "control")]
    overrides = [f"--set={line}" for line in lines]
    assert given(told) == [
        *(
            "run",
            f"--results={text}",
            f"--challenge={text}",
            *overrides,
            *arms,
            "--unsigned",
            "--",
            *lines,
        )
    ]
    assert not told.run(
        **dict.fromkeys(GATE_INPUTS, text), run="false", gate="true", leave_out=RUN
    ), told.log
    head = f"--commit={told.github['sha']}"
    asked = [head, f"--trusted-ref={text}", f"--policy={text}", f"--challenge={text}"]
    assert given(told) == ["gate", *asked, "--", text]
    # A commit that is none is not fetched, and the gate is not asked.
    assert not told.run(commit=text, run="false", gate="true", leave_out=RUN), told.log
    assert not told.run(extras=text, run="false")
    assert told.codes[INSTALL] == 64
    assert given(told) == []
    assert not list(told.checkout.rglob("pwned"))


@pytest.mark.slow
@pytest.mark.whole
def test_what_an_input_holds_is_refused_by_the_command(
    job: Callable[..., Runner], clone: Callable[[str], Path]
) -> None:
    """The installed command takes none of it: for each input another of the texts, so that each has
    its turn.
    """
    runner, texts = job(clone("hostile")), cycle(HOSTILE)
    for name, text in zip(
        ("scenarios", "set", "candidate", "control", "repo"), texts, strict=False
    ):
        assert not runner.run(**{name: text}, artifact="", leave_out=RUN), (name, runner.log)
        assert runner.codes["Run the scenarios"] in (2, 64), (name, runner.log)
    for name, text in zip(
        ("challenge", "commit", "trusted_ref", "policy", "results"), texts, strict=False
    ):
        assert not runner.run(**{name: text}, run="false", gate="true", leave_out=RUN), (
            name,
            runner.log,
        )
    assert not list(runner.checkout.rglob("pwned"))
