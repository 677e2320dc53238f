"""`rankproof gate` as a release job calls it: exit codes, table, JSON, step summary, annotations,
first policy.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cli.gate import summary, workflow_commands
from harness.gate.decision import Decision, Requirement
from harness.gate.policy import parse_policy
from tests.kit import command_server
from tests.kit.commands import command, environment
from tests.kit.pull_requests import Copy, Place
from tests.kit.repositories import git

Make = Callable[[], Copy]
# The last two are ours: what makes repositories for a hub, and what runs ranks.
HEAVY = (
    *("torch", "transformers", "mlx", "numpy", "huggingface_hub"),
    *("harness.hub.layouts", "harness.world.control.world"),
)


def call(place: Place, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return command_server.run(
        "gate", *arguments, cwd=place.repo, env=environment(place.repo.parent / "home", **env)
    )


@pytest.mark.slow
def test_the_exit_codes(place: Place, copy: Make) -> None:
    """0 open, 1 closed, 2 cannot tell, 3 not verified, 64 usage: each from the command itself, with
    its word.
    """
    closed = call(place)
    assert (closed.returncode, "gate CLOSED" in closed.stdout) == (1, True)
    made = copy().sign()
    opened = call(place, "results/")
    assert (opened.returncode, "gate OPEN" in opened.stdout) == (0, True), (
        opened.stdout + opened.stderr
    )
    made.is_inconclusive()
    place.policy("trials: {control: 1}")
    made.report.write_text("x")
    refused = call(place)
    assert (refused.returncode, "gate NOT VERIFIED" in refused.stdout) == (3, True)
    usage = call(place, "--commit", "nowhere")
    assert (usage.returncode, "nowhere is not a commit in this clone" in usage.stdout) == (64, True)
    absent = call(place, "--trusted-ref", "origin/release")
    assert (absent.returncode, "git fetch origin" in absent.stdout) == (3, True)


@pytest.mark.slow
def test_json_is_closed_and_whole(place: Place, copy: Make) -> None:
    """The JSON is exactly the documented model, alone on stdout, and says what the exit code
    says.
    """
    made = copy().fails().sign()
    done = call(place, "--json")
    found = Decision.model_validate_json(done.stdout)
    assert (found.answer, found.exit, done.returncode) == ("CLOSED", 1, 1)
    assert [one.name for one in found.requirements if one.word != "MET"] == ["failures", "verdict"]
    assert [(one.scenario, one.verdict, one.signer) for one in found.reports] == [
        ("words", "FAIL", "ci")
    ]
    assert Path(found.reports[0].place).name == made.folder.name
    unable = Decision.model_validate_json(call(place, "--json", "--commit", "nowhere").stdout)
    assert (unable.answer, unable.exit, unable.requirements) == ("USAGE", 64, [])
    assert unable.problems


@pytest.mark.slow
def test_on_github(place: Place, copy: Make, tmp_path: Path) -> None:
    """The step summary is appended to, each requirement that is not met is an annotation, and no
    text is a command.
    """
    copy().facts(challenge="x").sign()
    page = tmp_path / "summary.md"
    page.write_text("# before\n")
    done = call(
        place,
        "--challenge",
        "::set-output name=a::b",
        GITHUB_ACTIONS="true",
        GITHUB_STEP_SUMMARY=str(page),
    )
    assert done.returncode == 1
    text = page.read_text()
    assert text.startswith("# before\n")
    assert "## Release gate: CLOSED" in text
    assert "| words | challenge | **REFUSED** |" in text
    lines = done.stdout.splitlines()
    assert lines[0].startswith("::stop-commands::")
    token = lines[0].rpartition("::")[2]
    after = lines[lines.index(f"::{token}::") + 1 :]
    assert [line.split("::")[1] for line in after] == [
        "error title=rankproof gate%3A words%3A challenge%3A REFUSED"
    ]
    unwritable = call(place, GITHUB_STEP_SUMMARY=str(tmp_path))
    assert unwritable.returncode == 0
    assert "cannot write the step summary" in unwritable.stderr


def test_text_of_strangers_stays_text() -> None:
    """Neither markdown nor a workflow command can be written by what a report says."""
    reason = "50% | <img src=x> [x](http://x)\n::error::y"
    found = Decision(
        answer="CLOSED",
        exit=1,
        requirements=[Requirement(scenario="words", name="cells", word="MISSING", reason=reason)],
    )
    (line,) = workflow_commands(found)
    assert "\n" not in line
    assert line.endswith("::50%25 | <img src=x> [x](http://x)%0A::error::y")
    page = summary(found)
    assert "<img" not in page
    assert "[x](" not in page


@pytest.mark.slow
def test_a_first_policy(place: Place, original: Path) -> None:
    """`--init` writes a policy that lints, requires the claims that are there and trusts nobody by
    itself.
    """
    git(place.repo, "rm", "-rq", ".rankproof")
    done = call(place, "--init")
    assert done.returncode == 0, done.stderr
    suggested = (place.repo / ".rankproof/allowed_signers").read_text()
    assert 'namespaces="report@rankproof,attestation@rankproof"' in suggested
    policy = parse_policy((place.repo / ".rankproof/policy.yaml").read_bytes(), name="policy.yaml")
    assert [one.scenario for one in policy.require] == ["words"]
    assert policy.environment.locks == ("locks/cpu.txt",)
    lint = call(place, "--lint")
    assert (lint.returncode, "has no line for" in lint.stderr) == (64, True)
    signers = place.repo / ".rankproof/allowed_signers"
    signers.write_text(place.keys.line("ci").replace("ci ", "ci@example.org ", 1))
    assert call(place, "--lint").returncode == 0
    again = call(place, "--init")
    assert (again.returncode, "already exists" in again.stderr) == (64, True)


@pytest.mark.slow
@pytest.mark.whole
def test_a_challenge_travels_from_the_run_to_the_gate(place: Place) -> None:
    """`run --challenge` signs the text into the report, where a reader and the gate find it."""
    given = (
        "run",
        "scenarios/words",
        "--key",
        str(place.keys.path("ci")),
        "--challenge",
        "release 1.2 (7)",
    )
    done = command_server.run(*given, cwd=place.repo, env=environment(place.repo.parent / "home"))
    assert done.returncode == 0, done.stdout + done.stderr
    report = (place.results / "words/latest/report.md").read_text()
    assert "| challenge | [`release 1.2 (7)`](evidence/run.json) |" in report
    assert call(place, "--challenge", "release 1.2 (7)").returncode == 0
    assert call(place, "--challenge", "release 1.2 (8)").returncode == 1
    for wrong in ("", " x", "a\nb", "x" * 201, "caf\u00e9"):
        assert call(place, "--challenge", wrong).returncode == 64


SAME = """
schema: 1
id: words
title: Two ways say the same
question: Do they?
subject:
  entry: subject:say
  compare:
    a: {with: {way: spelt}}
    b: {with: {way: WAY}}
    defect: {value: said.word, one: character}
matrix: {ranks: [2], backend: [none]}
world: {deadline: 20s, start: fresh}
seed: "7"
trials: {candidate: 4, control: 4, accept: {failure_rate_below: 60%}}
checks:
  - {id: same, kind: equal, ranks: every, value: said.word, against: a}
"""
SAY = """
def say(context, *, way):
    context.emit("said", word="".join(["y", "e", "s"]) if way == "spelt" else {"whole": "yes", "wrong": "no"}[way])
"""


@pytest.mark.slow
@pytest.mark.whole
def test_a_comparison_opens_the_gate_and_one_that_differs_does_not(place: Place) -> None:
    """The report of `compare` is held against a policy as any other: b that gives something else is
    not met.
    """
    for way, code in (("whole", 0), ("wrong", 1)):
        text = SAME.replace("WAY", way)
        files = {"scenarios/words/scenario.yaml": text, "scenarios/words/subject.py": SAY}
        place.propose(files)
        place.trust(files)
        given = ("run", "scenarios/words", "--key", str(place.keys.path("ci")))
        done = command_server.run(
            *given, cwd=place.repo, env=environment(place.repo.parent / "home")
        )
        assert done.returncode == code, done.stdout + done.stderr
        decided = call(place)
        assert decided.returncode == code, decided.stdout + decided.stderr


@pytest.mark.whole
@pytest.mark.parametrize("name", ["gate", "verify"])
def test_no_engine_is_loaded(place: Place, copy: Make, name: str) -> None:
    """Gate and verify answer without torch, transformers, mlx, numpy, the hub or a world of
    ranks.
    """
    made = copy().sign()
    arguments = (
        ["gate"]
        if name == "gate"
        else ["verify", str(made.report), "--allowed-signers", ".rankproof/allowed_signers"]
    )
    code = (
        "import sys\nfrom harness.cli import main\n"
        f"code = main({arguments!r})\n"
        f"print('loaded', sorted(set({HEAVY!r}) & set(sys.modules)), code)"
    )
    done = subprocess.run(
        [*command()[:1], "-c", code],
        cwd=place.repo,
        env=environment(place.repo.parent / "home"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "loaded [] 0", done.stdout + done.stderr


def test_json_keys_are_documented() -> None:
    """Every key of the JSON stands in docs/gate.md."""
    page = (Path(__file__).parents[2] / "docs/gate.md").read_text()
    schema = Decision.model_json_schema()
    keys = {key for part in (schema, *schema["$defs"].values()) for key in part["properties"]}
    assert [key for key in sorted(keys) if f"`{key}`" not in page] == []
