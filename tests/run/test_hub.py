"""A hub for a scenario's ranks: real ranks, a real hub, and faults proved by its log."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.commands import Ran
from tests.run.test_faults import sign_again, signer

pytestmark = pytest.mark.slow

Run = Callable[..., Ran]
Write = Callable[..., Path]
SUBJECT = """
import tempfile

def load(context, *, times=1):
    from transformers import AutoTokenizer
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(times):
            tokenizer = AutoTokenizer.from_pretrained("rankproof/gpt2", cache_dir=cache)
    context.emit("loaded", ids=tokenizer.encode("hello"), template=bool(tokenizer.chat_template))
    assert tokenizer.chat_template, "no chat template"
"""
# Asks the hub for the same files without a tokenizer: fresh ranks that import transformers take
# seconds each.
FILES_ALONE = """
import tempfile

def load(context, *, times=1):
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError
    template = "there"
    with tempfile.TemporaryDirectory() as cache:
        hf_hub_download("rankproof/gpt2", "tokenizer.json", cache_dir=cache)
        try:
            hf_hub_download("rankproof/gpt2", "chat_template.jinja", cache_dir=cache)
        except EntryNotFoundError:
            template = None
    context.emit("loaded")
    assert template, "no chat template"
"""
SCENARIO = """
schema: 1
id: hubbed
title: A lost template is missed
question: Does a rank miss a chat template that the hub did not find?
role: upstream
inputs: {repositories: {path: repositories}}
hub: {serve: repositories}
subject:
  entry: subject:load
  control:
    must_fail: {check: ended, ranks: RANKS, error: AssertionError, message: no chat template}
matrix: {ranks: [2], backend: [none]}
world: {deadline: 60s}
trials: {candidate: 5, control: 5, accept: {failure_rate_below: 50%}}
faults:
  - {id: gone, kind: hub, arm: control, ranks: RANKS, role: chat_template, answer: {kind: missing}}
checks:
  - {id: loaded, kind: event, ranks: every, event: loaded}
  - {id: asked, kind: requests, ranks: every, role: tokenizer.json, at_least: 1, at_most: 2}
  - {id: ended, kind: exit, ranks: every, code: 0}
measure:
  - {id: requests, probe: requests, against: control}
  - {id: received, probe: received}
"""


@pytest.fixture
def repositories(scenario: Write) -> Write:
    """A scenario folder with a repository to serve."""
    from harness.hub.layouts import repository_files

    def write(text: str, subject: str = SUBJECT) -> Path:
        files = {"scenario.yaml": text, "subject.py": subject}
        folder = scenario(files)
        for path, data in repository_files("gpt2").items():
            target = folder / "repositories" / "rankproof" / "gpt2" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        template = folder / "repositories" / "rankproof" / "gpt2" / "chat_template.jinja"
        template.write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
        return folder

    return write


def events(ran: Ran, arm: str, index: int) -> list[dict[str, object]]:
    folder = ran.folder / "evidence" / ran.record.judgement.cells[0].slug / f"{arm}-{index:05d}"
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


@pytest.mark.long
def test_the_hubs_log_proves_a_fault_and_counts_requests(
    repositories: Write, rankproof: Run
) -> None:
    """Warm ranks, one hub: the control loses its template, each request is of the rank that made
    it; verify agrees.
    """
    text = SCENARIO.replace("RANKS", "every").replace("control: 5", "control: 2")
    ran = rankproof("run", str(repositories(text)))
    assert ran.code == 0, ran.out + ran.err
    cell = ran.record.judgement.cells[0]
    assert (cell.verdict, cell.reasons) == ("PASS", [])
    assert ran.record.run.start == "warm"
    assert cell.control is not None
    strikes = [strike for trial in cell.control.trials for strike in trial.strikes]
    assert len(strikes) == 4
    assert all(strike.proved and "got 404" in strike.description for strike in strikes)
    told = events(ran, "control", 0)
    requests = [event for event in told if event["name"] == "hub.request"]
    assert {event["rank"] for event in requests} == {0, 1}
    assert told.index(requests[0]) > next(
        i for i, event in enumerate(told) if event["name"] == "hub.begin"
    )
    rows = {(row.id, row.rank): row for row in cell.measured}
    assert rows["requests", 0].unit == "requests"
    assert rows["requests", 0].arms["candidate"].median > 5
    assert rows["received", 1].arms["candidate"].median > 1000
    impact = (
        (ran.folder / "appendix.md")
        .read_text()
        .partition("## Measured on every rank\n")[2]
        .partition("\n## ")[0]
    )
    assert " B " not in next(
        line for line in impact.splitlines() if "requests: requests to the hub | 0" in line
    )
    assert " KiB " in next(
        line for line in impact.splitlines() if "received: bytes received from the hub | 0" in line
    )
    verified = rankproof("verify", str(ran.folder / "report.md"), "--signer", signer(ran))
    assert verified.code == 0, verified.out

    log = ran.folder / "evidence" / cell.slug / "control-00001" / "events.jsonl"
    whole = log.read_text()
    request = next(line for line in whole.splitlines(keepends=True) if '"rules":["gone"]' in line)
    for altered in (whole.replace(request, ""), whole.replace('"rules":["gone"]', '"rules":[]')):
        log.write_text(altered)
        sign_again(ran)
        refused = rankproof("verify", str(ran.folder / "report.md"), "--signer", signer(ran))
        assert refused.code == 3
        # Without any proof the trial is void, and no other was made in its place; else one request
        # less is counted.
        assert "TRIALS NOT PLANNED" in refused.out or "JUDGED DIFFERENTLY" in refused.out


@pytest.mark.whole
def test_a_fault_for_certain_ranks_strikes_those_alone(repositories: Write, rankproof: Run) -> None:
    """Each rank then has an address of its own, from the start of its interpreter.

    Rank 0 keeps its template.
    """
    text = SCENARIO.replace("RANKS", "[1]").replace(
        "candidate: 5, control: 5", "candidate: 2, control: 2"
    )
    ran = rankproof("run", str(repositories(text, FILES_ALONE)))
    cell = ran.record.judgement.cells[0]
    assert ran.record.run.start == "fresh"
    assert cell.control is not None
    assert [trial.as_stated for trial in cell.control.trials] == [
        True,
        True,
    ], cell.control.otherwise
    assert [(strike.rank, strike.proved) for strike in cell.control.trials[0].strikes] == [
        (1, True)
    ]
    clients = {
        (event["rank"], event["values"]["client"])  # type: ignore[index]
        for event in events(ran, "control", 1)
        if event["name"] == "hub.request"
    }
    assert clients == {(0, "rank-0"), (1, "rank-1")}


@pytest.mark.long
def test_a_fault_that_struck_nothing_voids_the_trial(repositories: Write, rankproof: Run) -> None:
    """A rule for requests that nobody made has no proof, and a candidate that passed beside it does
    not count.
    """
    text = (
        SCENARIO.replace("RANKS", "every")
        .replace("arm: control, ", "")
        .replace("role: chat_template", "role: refs")
    )
    text = text.replace("    must_fail", "    with: {times: 2}\n    must_fail")
    text = text.replace("candidate: 5, control: 5", "candidate: 1, control: 1").replace(
        "60s", "60s, start: fresh"
    )
    ran = rankproof("run", str(repositories(text, FILES_ALONE)))
    cell = ran.record.judgement.cells[0]
    assert cell.candidate is not None
    assert cell.candidate.counted == 0
    assert "none of its 4 requests to the hub was affected" in str(cell.candidate.trials[0].void)


def test_a_folder_that_is_no_hub_stops_before_any_rank(repositories: Write, rankproof: Run) -> None:
    """What cannot be served is said, and every trial is void for it."""
    text = SCENARIO.replace("RANKS", "every").replace(
        "candidate: 5, control: 5", "candidate: 1, control: 1"
    )
    folder = repositories(text.replace("60s", "60s, start: fresh"), FILES_ALONE)
    (folder / "repositories" / "rankproof").rename(folder / "repositories" / "not a name")
    ran = rankproof("run", str(folder))
    cell = ran.record.judgement.cells[0]
    assert cell.verdict == "INCONCLUSIVE"
    assert any("the hub could not be started" in str(reason) for reason in cell.reasons), (
        cell.reasons
    )
