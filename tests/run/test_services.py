"""Services of a scenario: real servers beside real ranks, faults on their processes, and evidence
that cannot be told otherwise.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.world.hosts.host import refusal
from tests.kit.commands import Ran
from tests.run.test_faults import sign_again, signer
from tests.run.test_interrupt import GONE_WITHIN, await_nobody, await_sign, start

pytestmark = pytest.mark.slow

Run = Callable[..., Ran]
Write = Callable[..., Path]
SERVER = """
import http.server
import json
import os
import sys

STATED = ("RANK", "WORLD_SIZE", "MASTER_PORT", "MLX_RANK", "MLX_HOSTFILE", "NICE")


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/die":
            os._exit(7)
        self.send_response(200)
        self.end_headers()
        answer = {"text": "wrong" if "--wrong" in sys.argv else "right"}
        if self.path == "/told":
            answer = {"text": json.dumps({name: os.environ.get(name) for name in STATED})}
        if self.path == "/linked":
            answer = {"text": sorted(os.listdir("."))}
        self.wfile.write(json.dumps(answer).encode())


if "--unable" in sys.argv:
    raise SystemExit("there is no model")
if os.environ.get("MLX_RANK", "0") != "0":
    import signal
    signal.pause()
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
CLIENT = """
import json
import os
import urllib.request


def ask(context, path="/"):
    context.emit("request.begin")
    try:
        address = os.environ["RANKPROOF_SERVICE_ENGINE"] + path
        with urllib.request.urlopen(address, timeout=10) as answer:
            text = json.load(answer)["text"]
    except OSError:
        text = "gone"
    context.emit("answer", text=text)
"""
SCENARIO = """
schema: 1
id: served
title: The server gives the right answer
question: Does the server give the right answer?
inputs: {notes: {path: notes.txt}}
services:
  engine:
    program: [python, server.py, "{port}"]
    ready: {http: /health, within: 20s}
subject:
  entry: subject:ask
  control:
    services: {engine: {flags: [--wrong]}}
    must_fail: {check: right, ranks: every}
matrix: {ranks: [1], backend: [none]}
trials: {candidate: 5, control: 5, accept: {failure_rate_below: 50%}}
checks:
  - {id: right, kind: equal, ranks: every, value: answer.text, to: right}
  - {id: engine-serves, kind: served, service: engine}
  - {id: nobody-left, kind: no-survivors}
"""
KEPT = SCENARIO.replace(
    "    ready: {http: /health, within: 20s}\n",
    "    ready: {http: /health, within: 20s}\n    keep: cell\n    starts: 2\n",
).replace("candidate: 5, control: 5", "candidate: 6, control: 4")


@pytest.fixture
def served(scenario: Write, rankproof: Run) -> Callable[..., Ran]:
    """Run a scenario with a server."""

    def run(text: str, *arguments: str, **files: str) -> Ran:
        given = {"scenario.yaml": text, "subject.py": CLIENT, "server.py": SERVER}
        folder = scenario({**given, "notes.txt": "notes", **files})
        return rankproof("run", str(folder), *arguments)

    return run


def events(folder: Path, name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def trial_of(ran: Ran, name: str = "candidate-00000") -> Path:
    return ran.folder / "evidence" / ran.record.judgement.cells[0].slug / name


@pytest.mark.whole
def test_a_server_per_trial_and_a_broken_server_in_the_control(
    served: Callable[..., Ran], rankproof: Run
) -> None:
    """PASS; every start is evidence, the report verifies, and a record without an end is
    refused.
    """
    ran = served(SCENARIO)
    assert ran.code == 0, ran.out + ran.err
    cell = ran.record.judgement.cells[0]
    counts = {(service.arm, service.name): service.starts for service in cell.services}
    assert counts == {("candidate", "engine"): 5, ("control", "engine"): 5}
    assert cell.candidate is not None
    assert cell.candidate.starts is None
    ready = events(trial_of(ran), "events.jsonl")[1]
    processes = events(trial_of(ran), "engine.jsonl")
    started = next(event for event in processes if event["name"] == "rank.started")
    assert ready["name"] == "service.ready"
    assert ready["values"]["pids"] == [started["pid"]]  # type: ignore[index]
    gone = next(event for event in processes if event["name"] == "rank.exited")
    assert gone["values"]["signal"] == "SIGTERM"  # type: ignore[index]
    report = (ran.folder / "report.md").read_text()
    assert "-service engine: python server.py '{port}' --wrong" in report
    assert "one for each trial" in report
    verified = rankproof("verify", str(ran.folder / "report.md"), "--signer", signer(ran))
    assert verified.code == 0, verified.out


@pytest.mark.whole
def test_a_server_that_dies_at_its_first_request_is_named(
    served: Callable[..., Ran], rankproof: Run
) -> None:
    """FAIL, with its exit code; who takes the note of it out of the trial is refused."""
    text = SCENARIO.replace(
        "  control:\n", "  candidate: {with: {path: /die}}\n  control:\n    with: {path: /}\n"
    )
    ran = served(text)
    assert ran.code == 1, ran.out + ran.err
    report = (ran.folder / "report.md").read_text()
    assert "engine exited on its own in 5 trials, with code 7" in report
    assert "engine reported that it was ready, and its process 0 ended" in report
    log = trial_of(ran) / "events.jsonl"
    kept = [line for line in log.read_text().splitlines() if '"service.ended"' not in line]
    log.write_text("".join(f"{line}\n" for line in kept))
    sign_again(ran)
    verified = rankproof("verify", str(ran.folder / "report.md"), "--signer", signer(ran))
    assert verified.code == 3
    assert "the end of process 0 of engine differs from its events" in verified.out


@pytest.mark.whole
def test_a_server_that_is_never_ready_fails_its_trials(served: Callable[..., Ran]) -> None:
    """With its exit code and the last line that it printed."""
    text = SCENARIO.replace('server.py, "{port}"]', 'server.py, "{port}", --unable]')
    ran = served(text)
    assert ran.code == 1, ran.out + ran.err
    report = (ran.folder / "report.md").read_text()
    assert "engine was not ready at 5 starts" in report
    assert "it ended before it was ready: code 1: there is no model" in report


def test_a_program_that_is_not_here_skips_the_cell(served: Callable[..., Ran]) -> None:
    """It is named; nothing is called a failure."""
    ran = served(SCENARIO.replace("[python, server.py", "[no-such-server, server.py"))
    assert ran.code == 2, ran.out + ran.err
    assert "service engine: program no-such-server: it is not in PATH" in ran.out


@pytest.mark.whole
def test_faults_strike_processes_of_a_service(served: Callable[..., Ran], rankproof: Run) -> None:
    """A kill at an event of a rank, proved by the keeper of the service."""
    faults = """
faults:
  - {id: engine-dies, kind: kill, service: engine, ranks: [0], at: request.begin}
"""
    text = SCENARIO.replace("checks:\n", f"{faults[1:]}checks:\n", 1)
    text = text.replace("value: answer.text, to: right", "value: answer.text, to: gone")
    text = text.replace("services: {engine: {flags: [--wrong]}}", "file: blind.py")
    blind = 'def ask(context, path="/"):\n    context.emit("request.begin")\n'
    blind += '    context.emit("answer", text="right")\n'
    ran = served(text, **{"blind.py": blind})
    assert ran.code == 0, ran.out + ran.err
    cell = ran.record.judgement.cells[0]
    assert cell.candidate is not None
    strikes = [strike for trial in cell.candidate.trials for strike in trial.strikes]
    assert {(strike.service, strike.proved) for strike in strikes} == {("engine", True)}
    report = (ran.folder / "report.md").read_text()
    assert "process 0 of engine, sent SIGKILL at request.begin" in report
    assert "engine exited on its own" not in report
    (trial_of(ran) / "engine.jsonl").unlink()
    sign_again(ran)
    verified = rankproof("verify", str(ran.folder / "report.md"), "--signer", signer(ran))
    assert verified.code == 3


@pytest.mark.long
def test_a_server_that_is_paused_answers_later(served: Callable[..., Ran]) -> None:
    """It was stopped while the rank waited for its answer, and continued."""
    fault = "{id: stops, kind: pause, service: engine, ranks: [0], at: request.begin, for: 300ms}"
    text = SCENARIO.replace("checks:\n", f"faults:\n  - {fault}\nchecks:\n", 1)
    ran = served(text)
    assert ran.code == 0, ran.out + ran.err
    tally = ran.record.judgement.cells[0].candidate
    assert tally is not None
    assert all(strike.proved for trial in tally.trials for strike in trial.strikes)
    said = events(trial_of(ran), "events.jsonl")
    moments = {event["name"]: event["ns"] for event in said}
    assert moments["answer"] - moments["request.begin"] >= 300_000_000  # type: ignore[operator]


@pytest.mark.whole
def test_trials_of_a_cell_share_a_server_and_the_bound_is_over_starts(
    served: Callable[..., Ran], rankproof: Run
) -> None:
    """6 trials over 2 starts bound nothing below 77.6 %; a start that is left out is refused."""
    ran = served(KEPT)
    assert ran.code == 2, ran.out + ran.err
    cell = ran.record.judgement.cells[0]
    assert cell.candidate is not None
    assert cell.candidate.starts is not None
    assert (cell.candidate.counted, cell.candidate.starts.counted) == (6, 2)
    assert cell.candidate.upper == pytest.approx(1 - 0.05**0.5)
    assert cell.control is not None
    assert cell.control.p_value == pytest.approx(1 / 6)
    assert any("6 trials over 2 starts of the services" in str(why) for why in cell.reasons)
    # The second start is given the number of the first in one trial of it.
    log = trial_of(ran, "candidate-00005") / "events.jsonl"
    log.write_text(log.read_text().replace('"start":1', '"start":0'))
    sign_again(ran)
    verified = rankproof("verify", str(ran.folder / "report.md"), "--signer", signer(ran))
    assert verified.code == 3


@pytest.mark.whole
def test_a_server_that_dies_is_started_again_and_its_start_stays_failed(
    served: Callable[..., Ran],
) -> None:
    """Each trial ends its server, so there are as many starts as trials, and each of them fails."""
    text = KEPT.replace(
        "  control:\n", "  candidate: {with: {path: /die}}\n  control:\n    with: {path: /}\n"
    )
    ran = served(text)
    assert ran.code == 1, ran.out + ran.err
    tally = ran.record.judgement.cells[0].candidate
    assert tally is not None
    assert tally.starts is not None
    assert (tally.starts.counted, tally.starts.failed) == (6, 6)


@pytest.mark.whole
def test_no_launchers_variables_but_those_of_its_own_processes(served: Callable[..., Ran]) -> None:
    """One process is told of no peers; of two each has its number and a list of addresses."""
    text = SCENARIO.replace(
        "value: answer.text, to: right", "value: answer.text, to: none"
    ).replace("  control:\n", "  candidate: {with: {path: /told}}\n  control:\n")
    text = text.replace("candidate: 5, control: 5", "candidate: 1, control: 1")
    alone = served(text)
    said = events(trial_of(alone), "events.jsonl")
    told = next(event["values"]["text"] for event in said if event["name"] == "answer")  # type: ignore[index]
    assert set(json.loads(told).values()) == {None}
    pair = text.replace("    ready:", "    backend: mlx-ring\n    processes: 2\n    ready:")
    pair = pair.replace("    backend:", '    env: {NICE: "yes"}\n    backend:')
    ran = served(pair)
    said = events(trial_of(ran), "events.jsonl")
    told = next(event["values"]["text"] for event in said if event["name"] == "answer")  # type: ignore[index]
    values = json.loads(told)
    assert (values["MLX_RANK"], values["NICE"]) == ("0", "yes")
    assert values["MLX_HOSTFILE"].endswith(".json")
    assert values["RANK"] is None
    started = [
        event for event in events(trial_of(ran), "engine.jsonl") if event["name"] == "rank.started"
    ]
    assert len(started) == 2


@pytest.mark.whole
def test_a_service_finds_the_inputs_by_name(served: Callable[..., Ran]) -> None:
    """In its working folder."""
    text = SCENARIO.replace("value: answer.text, to: right", "value: answer.text, to: [notes]")
    text = text.replace("  control:\n", "  candidate: {with: {path: /linked}}\n  control:\n")
    text = text.replace("candidate: 5, control: 5", "candidate: 1, control: 1")
    ran = served(text)
    tally = ran.record.judgement.cells[0].candidate
    assert tally is not None
    assert (tally.counted, tally.failed) == (1, 0)


@pytest.mark.long
def test_the_reference_has_one_process_of_each_service(served: Callable[..., Ran]) -> None:
    """Whatever the cell's axis says; it is asked by the candidate's code."""
    text = SCENARIO.replace(
        "value: answer.text, to: right", "value: answer.text, against: reference"
    )
    text = text.replace("  control:\n", "  reference: {}\n  control:\n")
    text = text.replace("backend: [none]}", "backend: [none], processes: [1, 2]}")
    text = text.replace("    ready:", "    backend: mlx-ring\n    ready:")
    ran = served(text)
    assert ran.code == 0, ran.out + ran.err
    second = ran.record.judgement.cells[1]
    place = ran.folder / "evidence" / second.slug
    sizes = [
        sum(event["name"] == "rank.started" for event in events(place / name, "engine.jsonl"))
        for name in ("reference-00000", "candidate-00000")
    ]
    assert sizes == [1, 2]
    unshown = " ".join(ran.record.judgement.unshown)
    assert (
        "A world with one rank does not test anything distributed (ranks=1,backend=none,processes=1)"
        in unshown
    )
    assert "The run did not record whether the processes of engine exchanged anything" in unshown


WAITS = """
import time


def ask(context, path="/"):
    context.emit("answer", text="right")
    time.sleep(600)
"""


@pytest.mark.whole
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for processes in /proc")
@pytest.mark.parametrize("text", [SCENARIO, KEPT], ids=["trial", "cell"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_harness_that_ends_leaves_no_server(
    scenario: Write, tmp_path: Path, short_tmp: Path, text: str, number: signal.Signals
) -> None:
    """SIGKILL or Ctrl-C while a trial runs: neither ranks nor servers are left."""
    files = {"scenario.yaml": text, "subject.py": WAITS, "server.py": SERVER, "notes.txt": "n"}
    process = start(scenario(files), tmp_path, short_tmp)
    await_sign(process, lambda: len(list(short_tmp.glob("rankproof-*/world-*"))) == 2)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert await_nobody(str(short_tmp), within=GONE_WITHIN) == []
    left = [path for path in short_tmp.iterdir() if not path.name.startswith("rankproof-ports")]
    assert left == []


PAIR = """
import http.server
import json
import os
import socket
import sys

RANK = int(os.environ["MLX_RANK"])
ADDRESSES = [ends[0].rsplit(":", 1) for ends in json.load(open(os.environ["MLX_HOSTFILE"]))]
HOST, PORT = ADDRESSES[1]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = "right"
        if self.path == "/":
            try:
                with socket.create_connection((HOST, int(PORT)), timeout=2) as peer:
                    text = peer.recv(16).decode()
            except OSError:
                text = "no peer"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"text": text}).encode())


if RANK == 1:
    listener = socket.create_server((HOST, int(PORT)))
    while True:
        client, _ = listener.accept()
        client.sendall(socket.gethostname().encode())
        client.close()
while True:  # it is ready only when the other process is
    try:
        socket.create_connection((HOST, int(PORT)), timeout=2).close()
        break
    except OSError:
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
ON_HOSTS = SCENARIO.replace(
    "    ready:", "    backend: mlx-ring\n    processes: 2\n    hosts: 2\n    ready:"
).replace("value: answer.text, to: right", "value: answer.text, to: host-1")


@pytest.mark.long
@pytest.mark.skipif(bool(refusal()), reason="test hosts cannot be created on this machine")
def test_processes_of_a_service_are_on_hosts_of_their_own(
    served: Callable[..., Ran], rankproof: Run
) -> None:
    """Process 0 is reached through its door, and reaches process 1 over the wire."""
    text = ON_HOSTS.replace("services: {engine: {flags: [--wrong]}}", "with: {path: /other}")
    ran = served(text, **{"server.py": PAIR})
    assert ran.code == 0, ran.out + ran.err
    told = events(trial_of(ran), "engine.jsonl")
    carried = next(event for event in told if event["name"] == "wire.carried")
    links = carried["values"]["links"]  # type: ignore[index]
    assert {(link["source"], link["target"]) for link in links} == {(0, 1), (1, 0)}
    unshown = " ".join(ran.record.judgement.unshown)
    assert "the processes of engine" not in unshown
    verified = rankproof("verify", str(ran.folder / "report.md"), "--signer", signer(ran))
    assert verified.code == 0, verified.out


@pytest.mark.whole
@pytest.mark.skipif(bool(refusal()), reason="test hosts cannot be created on this machine")
def test_a_link_between_processes_of_a_service_is_cut(served: Callable[..., Ran]) -> None:
    """The wire proves it, and nothing is left of the hosts."""
    fault = "{id: cut, kind: partition, service: engine, ranks: [1], at: request.begin}"
    text = ON_HOSTS.replace("checks:\n", f"faults:\n  - {fault}\nchecks:\n", 1)
    text = text.replace("to: host-1", "to: no peer")
    text = text.replace("services: {engine: {flags: [--wrong]}}", "with: {path: /other}")
    ran = served(text, **{"server.py": PAIR})
    assert ran.code == 0, ran.out + ran.err
    tally = ran.record.judgement.cells[0].candidate
    assert tally is not None
    strikes = [strike for trial in tally.trials for strike in trial.strikes]
    assert len(strikes) == 5
    assert all(strike.proved and "packets" in strike.description for strike in strikes)


@pytest.mark.whole
def test_a_control_whose_server_never_starts_is_no_control(served: Callable[..., Ran]) -> None:
    """Whatever fails then fails for want of a server: a slip in a flag would be a perfect bug."""
    ran = served(SCENARIO.replace("[--wrong]", "[--unable]"))
    assert ran.code == 2, ran.out + ran.err
    cell = ran.record.judgement.cells[0]
    assert any("engine was not ready" in str(reason) for reason in cell.reasons)


DIES_BETWEEN = SERVER.replace(
    "        self.send_response(200)\n",
    """        if self.path == "/health" and os.path.exists("asked"):
            import threading
            threading.Timer(0.05, os._exit, [9]).start()
        if self.path == "/":
            open("asked", "w").close()
        self.send_response(200)
""",
)


@pytest.mark.whole
def test_a_start_that_ends_between_two_trials_has_failed(served: Callable[..., Ran]) -> None:
    """Whether or not a trial saw it, the events of the start tell."""
    ran = served(KEPT, **{"server.py": DIES_BETWEEN})
    assert ran.code == 1, ran.out + ran.err
    tally = ran.record.judgement.cells[0].candidate
    assert tally is not None
    assert tally.starts is not None
    # Where one ends a moment later, in the next trial, that trial fails too.
    assert tally.starts.failed == tally.starts.counted >= 3
    assert "engine exited on its own in" in (ran.folder / "report.md").read_text()


@pytest.mark.long
def test_a_server_of_somebody_else_on_the_port_is_not_the_service(
    served: Callable[..., Ran],
) -> None:
    """The service itself only sleeps; what it started apart from itself answers."""
    sleeps = """
import subprocess
import sys

ANSWERS = '''
import os, sys
if os.fork():
    os._exit(0)
os.setsid()
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
'''
subprocess.run([sys.executable, "-c", ANSWERS, sys.argv[1]], check=True)
import signal
signal.pause()
"""
    text = SCENARIO.replace("within: 20s", "within: 2s")
    text = text.replace("candidate: 5, control: 5", "candidate: 1, control: 1")
    ran = served(text, **{"server.py": sleeps})
    report = (ran.folder / "report.md").read_text()
    assert "another program answers on its port" in report


@pytest.mark.long
def test_a_server_that_drips_headers_for_ever_is_not_ready(served: Callable[..., Ran]) -> None:
    """The time is for the whole answer."""
    drips = """
import socket
import sys
import time

listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    client, _ = listener.accept()
    try:
        while True:
            client.sendall(b"HTTP/1.1 100 Continue\\r\\n\\r\\n")
            time.sleep(0.1)
    except OSError:
        client.close()
"""
    text = SCENARIO.replace("within: 20s", "within: 1s")
    text = text.replace(
        "trials: {candidate: 5, control: 5",
        "world: {deadline: 3s}\ntrials: {candidate: 1, control: 1",
    )
    ran = served(text, **{"server.py": drips})
    assert "it did not answer GET /health within 1 s" in (ran.folder / "report.md").read_text()


@pytest.mark.long
def test_files_of_a_service_lie_beside_a_ready_subject(served: Callable[..., Ran]) -> None:
    """With `use` there is no folder of code but for these."""
    text = SCENARIO.replace("  entry: subject:ask\n", "  use: openai-client\n")
    text = text.replace("value: answer.text, to: right", "value: requests.done.failed, to: 3")
    text = text.replace("candidate: 5, control: 5", "candidate: 1, control: 1")
    ran = served(text)
    services = ran.record.judgement.cells[0].services
    assert [service.unready for service in services] == [0, 0]


def forged(ran: Ran, rankproof: Run, name: str, old: str, new: str) -> str:
    """Change a file of the evidence, sign again, and return what verify says."""
    path = trial_of(ran, "") / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    sign_again(ran)
    verified = rankproof("verify", str(ran.folder / "report.md"), "--signer", signer(ran))
    assert verified.code == 3, verified.out
    path.write_text(text)
    return verified.out


@pytest.mark.whole
def test_what_two_files_tell_of_one_service_is_held_together(
    served: Callable[..., Ran], rankproof: Run
) -> None:
    """Scenario, time, process and readiness: each is refused where the other file differs."""
    ran = served(SCENARIO.replace("candidate: 5, control: 5", "candidate: 2, control: 1"))
    own = "candidate-00000/engine.jsonl"
    trial = "candidate-00000/events.jsonl"
    first = (trial_of(ran, "") / own).read_text().splitlines()[0]
    begun = json.loads(first)["ns"]
    for name, old, new in (
        (own, '"scenario":"served"', '"scenario":"other"'),
        (own, '"size":1', '"size":2'),
        (own, f'"ns":{begun}', f'"ns":{begun + 3_600_000_000_000}'),
        (own, '"name":"rank.exited"', '"name":"rank.left"'),
        (own, '"name":"world.end"', '"name":"world.over"'),
        (trial, '"seconds":', '"seconds":1e9,"then":'),
        (trial, '"is_fresh":true', '"is_fresh":"no"'),
        (trial, '"name":"service.last"', '"name":"service.first"'),
    ):
        out = forged(ran, rankproof, name, old, new)
        assert "engine" in out or "REFUSED" in out
    # A copy of another trial's service.
    place = trial_of(ran, "")
    (place / own).write_text((place / "candidate-00001/engine.jsonl").read_text())
    sign_again(ran)
    verified = rankproof("verify", str(ran.folder / "report.md"), "--signer", signer(ran))
    assert verified.code == 3


@pytest.mark.whole
def test_a_control_may_have_to_fail_by_its_server(served: Callable[..., Ran]) -> None:
    """A check about a service fails on every rank, and so may be what a control must fail."""
    text = SCENARIO.replace("must_fail: {check: right", "must_fail: {check: engine-serves")
    text = text.replace("flags: [--wrong]", "flags: [--unable]")
    ran = served(text)
    assert ran.code == 0, ran.out + ran.err
    report = (ran.folder / "report.md").read_text()
    assert (
        "The control failed as required in 5 of 5 trials: check `engine-serves` failed (" in report
    )
    of_two = text.replace("ranks: [1]", "ranks: [2]").replace(
        "engine-serves, ranks: every", "engine-serves, ranks: [0]"
    )
    ran = served(of_two)
    assert ran.code == 2, ran.out + ran.err
    assert "is about the world, so it fails on every rank instead of rank 0" in ran.out
