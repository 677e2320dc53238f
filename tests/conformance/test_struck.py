"""Rows about an engine whose process is stopped or killed, asked of engines of one process and of
two: a front that speaks HTTP, and a worker behind it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import harness
from harness.conformance.client import Client
from harness.conformance.correct import MODEL
from harness.conformance.engine import EngineProcess, ServedEngine
from harness.conformance.exchange import COMPLETIONS, HTTPExchange, HTTPRequest, post
from harness.conformance.own import PROGRAM, running_own
from harness.conformance.proxy import PASS_THROUGH, ProxyDefect, proxied
from harness.conformance.rows import ROWS
from harness.conformance.rows.row import RowFinding, Setting, drive
from harness.conformance.strike import EngineStrike
from harness.world.control.pool import PortLease

ROOT = str(Path(harness.__file__).parent.parent)
FRONT = f"""
import os, subprocess, sys, threading
sys.path.insert(0, {ROOT!r})
from harness.conformance import defects, proxy
from harness.conformance.correct import LoopbackServer
port, behind, how = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
worker = subprocess.Popen([sys.executable, "-c", {PROGRAM!r}, str(behind)])

def holds(events):
    last = b""
    for last in events:
        yield last
    if last != b"data: [DONE]":
        threading.Event().wait()

defect = {{
    "good": proxy.PASS_THROUGH,
    "says healthy": defects.SAYS_HEALTHY,
    "ends cleanly": defects.ENDS_CLEANLY,
    "holds": proxy.ProxyDefect(does="", stream=holds),
    "exits 0": proxy.PASS_THROUGH,
}}[how]

def watch():
    worker.wait()
    if how == "exits 0":
        os._exit(0)
    if how == "good":
        os._exit(3)

threading.Thread(target=watch, daemon=True).start()
state = {{
    "upstream": f"http://127.0.0.1:{{behind}}", "defect": defect, "timeout_s": 20.0,
    "swap": proxy.Swap(), "crowd": proxy.Crowd(), "turn": threading.Lock(),
    "broken": threading.Event(),
}}
handler = type("FrontHandler", (proxy.ProxyHandler,), state)
LoopbackServer(("127.0.0.1", port), handler).serve_forever()
"""


@contextmanager
def front(room: Path, how: str) -> Iterator[EngineProcess]:
    """An engine of two processes that does one thing wrong, or nothing."""
    with PortLease() as lease:
        port, behind = lease.take(2)
        engine = ServedEngine(
            library="harness",
            arguments=(
                "-c",
                FRONT.replace("{", "{{").replace("}", "}}"),
                "{port}",
                str(behind),
                how,
            ),
            distributions=(),
            # By itself it may answer before its worker does.
            health="/v1/models",
        )
        process = EngineProcess(how, engine, room, port, lambda _: None)
        try:
            process.start()
            ready = Client(process.base, timeout=20)
            while ready.send(post("ready", COMPLETIONS, plain())).status != 200:
                pass
            yield process
        finally:
            process.stop()


def is_crowded() -> bool:
    """Whether a server gets too little of the processors to measure what it uses."""
    return os.getloadavg()[0] > 2 * (os.cpu_count() or 1)


def plain() -> dict[str, object]:
    return {"model": MODEL, "prompt": "a", "max_tokens": 1}


def asked(name: str, process: EngineProcess, base: str, *, timeout: float = 20.0) -> RowFinding:
    """Ask one row once."""
    strike = EngineStrike(process.processes, process.exit_code)
    client = Client(base, timeout=timeout, cpu_seconds=process.cpu_seconds, strike=strike)
    kept: list[HTTPExchange] = []

    def send(requests: list[HTTPRequest]) -> list[HTTPExchange]:
        exchanges = client.together(requests)
        kept.extend(exchanges)
        return exchanges

    setting = Setting(model=MODEL, seed=1, samples=True, tokens=None)
    found = drive(ROWS[name], setting, send)
    if found.word == "CONFORMS":
        assert len(kept) == ROWS[name].requests
    return found


@pytest.mark.whole
@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.needs == "process"])
def test_a_row_about_a_process_conforms_and_sees_its_defect(name: str, tmp_path: Path) -> None:
    """On our correct server, alone, behind a proxy, and behind one with the defect.

    `cancel` measures processor time. On a crowded machine it may be unable to tell, and says so; it
    accuses and acquits nobody wrongly there either.
    """
    row = ROWS[name]
    with running_own(tmp_path / "own") as process:
        for defect in (None, PASS_THROUGH, row.defect):
            if defect is None:
                found = asked(name, process, process.base)
            else:
                with proxied(process.base, defect) as base:
                    found = asked(name, process, base)
            wanted = ("VIOLATES", row.about) if defect is row.defect else ("CONFORMS", "")
            if name == "cancel" and found.word == "CANNOT TELL" and is_crowded():
                continue
            assert (found.word, found.about) == wanted, found.fact
            if name == "kill":
                process.stop()
                process.start()


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="workers end with their front on Linux alone")
@pytest.mark.parametrize(
    ("how", "name", "wanted"),
    [
        ("good", "freeze", ""),
        ("good", "kill", ""),
        ("says healthy", "freeze", "healthy"),
        ("says healthy", "kill", "healthy"),
        ("ends cleanly", "kill", "clean"),
        ("holds", "kill", "hung"),
        ("exits 0", "kill", "exit code"),
    ],
)
def test_the_worker_of_an_engine_is_struck_and_its_front_judged(
    how: str, name: str, wanted: str, tmp_path: Path
) -> None:
    """The busiest process is the worker; what its front then tells clients decides."""
    with front(tmp_path, how) as process:
        found = asked(name, process, process.base, timeout=6.0 if how == "holds" else 20.0)
    word = "VIOLATES" if wanted else "CONFORMS"
    assert (found.word, found.about) == (word, wanted), found.fact
    assert "the busiest of its 2 processes" in found.fact


@pytest.mark.slow
def test_a_stream_that_is_mended_while_its_engine_is_stopped_is_seen(tmp_path: Path) -> None:
    """A front that gives up on a slow worker and ends the stream well has lost its end."""

    def gives_up(events: Iterator[bytes]) -> Iterator[bytes]:
        for number, event in enumerate(events):
            if number == 20:
                break
            yield event
        yield b"data: [DONE]"

    def whole_at_first() -> ProxyDefect:
        streams = 0

        def change(events: Iterator[bytes]) -> Iterator[bytes]:
            nonlocal streams
            streams += 1
            return events if streams == 1 else gives_up(events)

        return ProxyDefect(does="", stream=change)

    with (
        running_own(tmp_path / "own") as process,
        proxied(process.base, ProxyDefect(does="", fresh=whole_at_first)) as base,
    ):
        found = asked("freeze", process, base)
    assert (found.word, found.about) == ("VIOLATES", "text"), found.fact


@pytest.mark.whole
def test_cancel_conforms_where_a_chunk_has_several_events(tmp_path: Path) -> None:
    """How long an answer lasts follows from its text, not from the number of its chunks."""

    def merged(events: Iterator[bytes]) -> Iterator[bytes]:
        held = b""
        for number, event in enumerate(events):
            held += event
            if number % 8 == 7 or event == b"data: [DONE]":
                yield held
                held = b""
            else:
                held += b"\n\n"

    with (
        running_own(tmp_path / "own") as process,
        proxied(process.base, ProxyDefect(does="", stream=merged)) as base,
    ):
        found = asked("cancel", process, base)
    undecided = ["CANNOT TELL"] if is_crowded() else []
    assert found.word in ["CONFORMS", *undecided], found.fact


@pytest.mark.whole
def test_an_answer_that_had_ended_before_tells_nothing(tmp_path: Path) -> None:
    """A server that sends a stream at its end was not struck in the middle of it."""

    def at_its_end(events: Iterator[bytes]) -> Iterator[bytes]:
        yield b"\n\n".join(events)

    with (
        running_own(tmp_path / "own") as process,
        proxied(process.base, ProxyDefect(does="", stream=at_its_end)) as base,
    ):
        for name in ("freeze", "kill"):
            found = asked(name, process, base, timeout=5.0)
            assert (found.word, found.about) == ("CANNOT TELL", "unstruck"), found.fact
