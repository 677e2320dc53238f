"""Whole reports: made of the correct server, verified by whoever has the folder, and refused where
something was changed.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from harness.cli.reports import replay_of
from harness.conformance import run
from harness.conformance.client import Client
from harness.conformance.correct import MODEL, CorrectHandler, serving
from harness.conformance.defects import drops_last_text, in_events, in_whole, removes
from harness.conformance.engine import ENGINES, EngineError, ServedEngine
from harness.conformance.exchange import HTTPRequest, read_lines, write_lines
from harness.conformance.judgement import ON_OWN, ON_SERVER, Where, is_lost, word_of
from harness.conformance.proxy import ProxyDefect, proxied
from harness.conformance.record import (
    LOST,
    UNFINISHED,
    ConformanceRecord,
    RowResult,
    verdict_of,
)
from harness.conformance.record import PATH as FACTS
from harness.conformance.report import first_screen, render
from harness.conformance.rows import ROWS
from harness.conformance.rows.row import ConformanceRow, RowFinding, Word, drive
from harness.conformance.run import (
    ConformanceError,
    ConformanceSettings,
    RowsAsking,
    base_of,
    conform,
    older,
)
from harness.conformance.secret import KeyMask
from harness.forms import manifest
from harness.forms.digest import sha256
from harness.record.model import PATH
from harness.report.terminal import render_terminal
from harness.series.series import FinishedSeries
from harness.trust import footer
from harness.trust.folder import verify_folder
from harness.trust.key import find_signer
from harness.trust.signers import SignerPolicy
from harness.trust.sshsig import NAMESPACE_REPORT
from harness.trust.verification import Verification
from tests.conformance.asking import known_to, odd_server

CORE = ("completion", "stream-is-whole", "max-tokens", "greedy-repeat")
KEY = "sk-Zq7~tOpSeCrEt+v9/0xY"


@pytest.fixture(scope="module")
def correct() -> Iterator[str]:
    with serving() as base:
        yield base


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


def made(
    base: str, results: Path, *, key: Path | None = None, **more: object
) -> FinishedSeries[ConformanceRecord]:
    """A conformance of what is served there."""
    given = {"target": f"{base}/v1", "results": results, "seed": 1, "timeout": 10.0, **more}
    signer = None if key is None else find_signer(explicit=str(key))
    return conform(ConformanceSettings(**given), signer, lambda _: None)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory, key: Path, correct: str) -> Path:
    """A signed report of the core rows, and of one that is refused or violated."""
    with proxied(correct, ProxyDefect(does="", ask=removes("n"))) as base:
        return made(base, tmp_path_factory.mktemp("results"), key=key, rows=(*CORE, "n")).folder


def verified(folder: Path, key: Path) -> Verification:
    public = key.with_suffix(".pub").read_text().split()
    allowed = f'me namespaces="report@rankproof" {public[0]} {public[1]}\n'.encode()
    policy = SignerPolicy(allowed=allowed, allowed_from="test")
    report = folder / "report.md"
    return verify_folder(report, policy=policy, replay=replay_of(report))


def forged(signed: Path, folder: Path, key: Path, change: Callable[[str, bytes], bytes]) -> Path:
    """A copy with changed files, and a manifest, a report and a good signature made of those."""
    shutil.copytree(signed, folder)
    listed = manifest.parse((folder / manifest.NAME).read_bytes())
    for name in listed:
        data = change(name, (folder / name).read_bytes())
        (folder / name).write_bytes(data)
        listed[name] = sha256(data)
    (folder / manifest.NAME).write_bytes(manifest.encode(listed))
    record = ConformanceRecord.decode((folder / PATH).read_bytes())
    body = render(record, manifest_digest=sha256((folder / manifest.NAME).read_bytes()))
    body = change("body", body)
    signature = find_signer(explicit=str(key)).sign(footer.signed_part(body), NAMESPACE_REPORT)
    (folder / "report.md").write_bytes(footer.attach(body, signature))
    return folder


@pytest.mark.whole
def test_a_report_is_verified_by_whoever_has_its_folder(signed: Path, key: Path) -> None:
    """Rows are judged again from the bytes, and the text is rendered again."""
    found = verified(signed, key)
    assert found.ok, found.steps
    assert "its plan matches this version" in str(found.steps)
    record = ConformanceRecord.decode((signed / PATH).read_bytes())
    base = record.facts.server.base
    # The address as a client is given it, readable also where nobody renders the report.
    title = f"# Conformance of `{base}/v1`\n\n**FAIL**: "
    assert (signed / "report.md").read_text().startswith(title)
    assert record.verdict == "FAIL"
    assert [row.name for row in record.of("VIOLATES")] == ["n"]
    assert [row.name for row in record.of("CONFORMS")] == list(CORE)
    page = (Path(__file__).parents[2] / "docs/conformance.md").read_text()
    for row in record.rows:
        files = [*(signed / "evidence/rows" / row.name).glob("*.jsonl")]
        counts = [len(file.read_bytes().splitlines()) for file in files]
        assert len(files) == 3 * len(row.places)
        assert sum(counts) == row.requests
        assert max(counts, default=0) <= ROWS[row.name].requests
        assert list(row.places) in ([], list(ON_SERVER), ["bare", *ON_OWN])
        if row.name == "max-tokens":
            most = 9 * ROWS[row.name].requests
            assert f"`max-tokens` sends {row.requests}\nrequests, not {most}." in page


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "word"),
    [
        ("exchange", "JUDGED DIFFERENTLY"),
        ("request", "JUDGED DIFFERENTLY"),
        ("record", "JUDGED DIFFERENTLY"),
        ("facts", "JUDGED DIFFERENTLY"),
        ("body", "RENDERED DIFFERENTLY"),
    ],
)
def test_what_was_changed_is_refused_under_a_good_signature(
    what: str, word: str, signed: Path, key: Path, tmp_path: Path
) -> None:
    """Whoever signs changed bytes, a changed word, fewer rows, or other prose is refused."""

    def change(name: str, data: bytes) -> bytes:
        if name == "evidence/rows/n/bare-2.jsonl" and what in ("exchange", "request"):
            exchanges = read_lines(data)
            last = exchanges[-1]
            if what == "exchange":
                exchanges[-1] = last.model_copy(update={"status": 400})
            else:
                asked = last.request.model_copy(update={"body": "{}"})
                exchanges[-1] = last.model_copy(update={"request": asked})
            return write_lines(exchanges)
        if name == PATH and what == "record":
            changed = data.replace(
                b'"word": "VIOLATES",\n   "about": "count"', b'"word": "CONFORMS",\n   "about": ""'
            )
            assert changed != data
            return changed
        if name == FACTS and what == "facts":
            facts = json.loads(data)
            facts["asked"].remove("n")
            facts["unasked"]["n"] = "forgotten"
            return (json.dumps(facts, indent=1) + "\n").encode()
        if name == "body" and what == "body":
            return data.replace(b"**FAIL**", b"**PASS**", 1)
        return data

    found = verified(forged(signed, tmp_path / "forged", key, change), key)
    assert not found.ok
    assert found.word == word, found.steps


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1])
def test_a_server_that_keeps_every_promise_passes(correct: str, tmp_path: Path, seed: int) -> None:
    """Whatever the prompts, no row that an address can be asked is violated, the long ones
    included, and its first screen and report are short.
    """
    finished = made(correct, tmp_path, every=True, may_break=True, seed=seed, within=900.0)
    record = finished.record
    assert record.verdict == "PASS", [(row.name, row.word, row.fact) for row in record.rows]
    assert {row.name for row in record.of("NOT ASKED")} == {
        "usage-tokens",
        "chat-template",
        "cancel",
        "freeze",
        "kill",
    }
    assert all(row.control is None or row.control.on == "this server" for row in record.rows)
    screen = render_terminal(first_screen(record), 80).plain.splitlines()
    assert len(screen) <= 36  # a command prints four more
    assert max(map(len, screen)) <= 80
    assert len((finished.folder / "report.md").read_text().splitlines()) <= 150


@pytest.mark.whole
def test_two_servers_are_compared_row_by_row(correct: str, tmp_path: Path, key: Path) -> None:
    """What the older kept and the newer does not comes first, the reverse too, and it verifies."""
    rows = ("n", "echo", "seed")
    with (
        proxied(correct, ProxyDefect(does="", ask=removes("echo"))) as old,
        proxied(correct, ProxyDefect(does="", ask=removes("n"))) as new,
    ):
        before = older(made(old, tmp_path, rows=rows).record)
        finished = made(new, tmp_path, key=key, rows=rows, against=before)
    screen = " ".join(render_terminal(first_screen(finished.record), 80).plain.split())
    assert "CONFORMS only on the older server: n. CONFORMS only on this server: echo." in screen
    changed = [(row.name, word, row.word) for row, word in finished.record.changed()]
    assert changed == [("n", "CONFORMS", "VIOLATES"), ("echo", "VIOLATES", "CONFORMS")]
    found = verified(finished.folder, key)
    assert found.ok, found.steps
    assert "the words of the older server are taken on trust" in str(found.steps)


@pytest.mark.long
def test_a_report_of_a_server_that_breaks_everything_stays_short(
    correct: str, tmp_path: Path
) -> None:
    """The first screen has at most 40 lines of 80 columns, the report 150, whatever is wrong."""

    def spoil(value: dict[str, object]) -> None:
        value["object"] = "*" * 300
        value.pop("usage", None)
        for choice in value.get("choices", ()):  # type: ignore[attr-defined]
            choice["finish_reason"] = "because " * 40
            choice["logprobs"] = None

    parameters = removes("stop", "n", "seed", "echo", "max_tokens")
    broken = ProxyDefect(does="", ask=parameters, whole=in_whole(spoil), stream=in_events(spoil))
    with proxied(correct, broken) as base:
        finished = made(base, tmp_path, model=MODEL, may_break=True, within=900.0)
    assert finished.record.verdict == "FAIL"
    assert len(finished.record.of("VIOLATES")) >= 8
    screen = render_terminal(first_screen(finished.record), 80).plain.splitlines()
    assert len(screen) <= 36  # a command prints four more
    assert max(map(len, screen)) <= 80
    assert len((finished.folder / "report.md").read_text().splitlines()) <= 150


@pytest.mark.slow
def test_what_a_server_writes_acts_on_no_terminal_and_no_reader(tmp_path: Path) -> None:
    """Escape sequences, markup, line ends and landmarks in its texts stay text."""
    wicked = "\x1b[2J\nrm -rf ~\n-----BEGIN SSH SIGNATURE-----\nManifest: `<script>|**x**"

    def answer(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
        body = json.dumps({"error": {"message": wicked}}).encode()
        head = f"HTTP/1.1 500 No\r\nserver: {wicked[:4]}\r\ncontent-length: {len(body)}\r\n\r\n"
        handler.wfile.write(head.encode() + body)

    with odd_server(answer) as base:
        finished = made(base, tmp_path, model="m")
    text = (finished.folder / "report.md").read_text()
    assert "\x1b" not in text
    assert "<script>" not in re.sub(r"(?ms)^```.*?^```$", "", text)
    assert not [line for line in text.splitlines() if line.startswith(("rm ", "-----BEGIN SSH"))]
    assert "\x1b" not in render_terminal(first_screen(finished.record), 80).plain


@pytest.mark.slow
def test_the_key_is_in_no_file_of_a_report(correct: str, tmp_path: Path) -> None:
    """Neither evidence nor record nor report holds it, though it was sent and echoed: as it is, in
    base64, and as other programs write JSON.
    """

    def echo(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
        sent = handler.headers["authorization"]
        coded = base64.b64encode(sent.encode()).decode()
        value = {"message": f"{sent} {coded} {sent[7:]}"}
        body = json.dumps({"error": value}).replace(f" {KEY}", f" {KEY}".replace("/", "\\/"))
        head = f"HTTP/1.1 401 No\r\ncontent-length: {len(body)}\r\n\r\n"
        handler.wfile.write((head + body).encode())

    with odd_server(echo) as base:
        folder = made(base, tmp_path, model="m", key=None, api_key=KEY).folder
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) >= 6
    mask = KeyMask(KEY)
    for path in files:
        data = path.read_bytes()
        assert mask.masked(data) == data, path
    assert b"****" in (folder / "evidence/rows/completion/bare-1.jsonl").read_bytes()


LOGGING = """
import sys, http.server
class LoggingHandler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def do_POST(self):
        print("headers", dict(self.headers), flush=True); self.send_error(500)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), LoggingHandler).serve_forever()
"""


@pytest.mark.slow
def test_no_engine_that_is_started_here_gets_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs none, and what it prints is part of the evidence."""
    chatty = ServedEngine(library="json", arguments=("-c", LOGGING, "{port}"), distributions=())
    monkeypatch.setitem(ENGINES, "chatty", chatty)
    settings = ConformanceSettings(target="chatty", results=tmp_path, api_key=KEY)
    folder = conform(settings, None, lambda _: None).folder
    log = (folder / "evidence/engine.log").read_text()
    assert "headers" in log
    assert "authorization" not in log.lower()


@pytest.mark.parametrize("key", [f"{KEY}\r", f"{KEY}\n", "sk two words", "sk-schlüssel"])
def test_a_key_that_no_header_can_hold_is_refused_without_saying_it(
    correct: str, tmp_path: Path, key: str
) -> None:
    """The library that sends it would write it into its error."""
    with pytest.raises(ConformanceError, match="line end") as refused:
        made(correct, tmp_path, api_key=key)
    assert key.rsplit(maxsplit=1)[-1] not in str(refused.value)


@pytest.mark.whole
def test_where_the_plain_request_is_not_answered_nothing_else_is_asked(tmp_path: Path) -> None:
    """A server that never answers costs three requests, not hundreds."""

    def silent(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
        handler.connection.recv(1)

    with odd_server(silent) as base:
        record = made(base, tmp_path, model="m", timeout=0.5).record
    assert record.verdict == "INCONCLUSIVE"
    assert [row.word for row in record.rows if row.name == "completion"] == ["CANNOT TELL"]
    assert {row.word for row in record.rows if row.name != "completion"} == {"NOT ASKED"}


@pytest.mark.slow
def test_rows_that_no_time_is_left_for_are_not_asked(correct: str, tmp_path: Path) -> None:
    """They are listed with the reason, and core rows that were not asked leave no PASS."""
    record = made(correct, tmp_path, within=0.3).record
    assert record.verdict == "INCONCLUSIVE"
    assert "no time was left after 0.3 s (--within)" in {row.fact for row in record.of("NOT ASKED")}


def fields_of(body: bytes) -> dict[str, Any]:
    found = json.loads(body or b"{}")
    assert isinstance(found, dict)
    return found


@pytest.mark.slow
def test_a_request_in_progress_ends_with_the_time(correct: str, tmp_path: Path) -> None:
    """A server that hangs does not keep anybody longer than `--within`, whatever the timeout."""
    asked = threading.Event()

    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if fields_of(body).get("max_tokens") == 13:
            asked.set()
            handler.connection.recv(1)
        else:
            pass_on(handler, body, correct)

    with odd_server(answer) as base:
        begun = time.monotonic()
        record = made(base, tmp_path, model=MODEL, within=3.0, timeout=60.0).record
    assert asked.is_set()
    assert time.monotonic() - begun < 30
    words = {row.name: row.word for row in record.rows}
    assert (words["completion"], words["stream-is-whole"]) == ("CONFORMS", "NOT ASKED")


@pytest.mark.slow
def test_a_violation_that_was_cut_by_the_time_is_not_passed_over(
    correct: str, tmp_path: Path, key: Path
) -> None:
    """One repetition of a row violated its promise, and the others were not asked: no PASS."""
    count = itertools.count()

    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if fields_of(body).get("logprobs") and next(count):
            handler.connection.recv(1)
        else:
            pass_on(handler, body.replace(b"logprobs", b"ignored"), correct)

    with odd_server(answer) as base:
        finished = made(
            base, tmp_path, key=key, model=MODEL, within=6.0, timeout=60.0, rows=("logprobs",)
        )
    (row,) = (row for row in finished.record.rows if row.name == "logprobs")
    assert row.word == "NOT ASKED"
    assert row.fact.startswith(UNFINISHED)
    assert row.fact.endswith("it was violated in 1 repetition")
    core = [result(name, "CONFORMS", "") for name in CORE]
    assert verdict_of([*core, row]) == "INCONCLUSIVE"
    assert verified(finished.folder, key).ok


@pytest.mark.slow
def test_what_a_server_violated_in_time_is_shown_after_it(
    correct: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control runs on our own server then, and takes none of the time of the other."""
    now = time.monotonic
    jump = 0.0
    real = RowsAsking._at

    def late(self: RowsAsking, row: ConformanceRow, where: Where, files: Any) -> list[RowFinding]:
        nonlocal jump
        found = real(self, row, where, files)
        if row.name == "n":
            jump = 10_000.0
        return found

    monkeypatch.setattr(RowsAsking, "_at", late)
    monkeypatch.setattr(run.time, "monotonic", lambda: now() + jump)
    with proxied(correct, ProxyDefect(does="", ask=removes("n"))) as base:
        record = made(base, tmp_path, rows=("n", "echo"), within=1000.0).record
    words = {row.name: row.word for row in record.rows}
    assert (words["n"], words["echo"]) == ("VIOLATES", "NOT ASKED")


@pytest.mark.slow
def test_progress_says_what_the_report_says(
    correct: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row whose control did not work cannot tell, and its line in the progress says so."""
    passing = ProxyDefect(does="", ask=removes("stop"))
    monkeypatch.setattr("harness.conformance.run.PASS_THROUGH", passing)
    lines: list[str] = []
    settings = ConformanceSettings(
        target=correct, results=tmp_path, seed=1, rows=("stop-string", "chat-stop", "n")
    )
    record = conform(settings, None, lines.append).record
    told = dict(line.split("  ", 1) for line in lines)
    asked = [row for row in record.rows if row.places]
    assert [row.name for row in asked] == list(told)
    for row in asked:
        assert told[row.name].strip().startswith(row.word)
    assert {row.word for row in asked} == {"CONFORMS", "CANNOT TELL"}


@pytest.mark.slow
def test_a_row_that_is_judged_otherwise_at_the_end_is_told(correct: str, tmp_path: Path) -> None:
    """That a server does not repeat its texts may show later than the row that compares them."""
    count = itertools.count()
    hot = False

    def heat(fields: dict[str, Any]) -> dict[str, Any]:
        nonlocal hot
        hot = hot or fields["temperature"] > 1
        return fields

    def unsteady(stream: Iterator[bytes]) -> Iterator[bytes]:
        for event in drops_last_text(stream):
            number = b"%d" % next(count) if hot else b""
            yield event.replace(b'"text": "', b'"text": "' + number)

    lines: list[str] = []
    settings = ConformanceSettings(
        target=correct, results=tmp_path, seed=1, rows=("stream-is-whole", "temperature")
    )
    with proxied(correct, ProxyDefect(does="", ask=heat, stream=unsteady)) as base:
        settings = replace(settings, target=base)
        record = conform(settings, None, lines.append).record
    words = {row.name: row.word for row in record.rows}
    last = {line.split()[0]: line for line in lines}
    assert words["stream-is-whole"] == "CANNOT TELL"
    assert last["stream-is-whole"].split(maxsplit=1)[1].startswith("CANNOT TELL, not VIOLATES: ")


def test_a_text_of_the_server_in_the_progress_acts_on_no_terminal() -> None:
    """Escape sequences in a fact are shown."""
    lines: list[str] = []
    asking = RowsAsking.__new__(RowsAsking)
    asking._account = lines.append
    asking._told = {"n": "VIOLATES"}
    rows = [result("n", "CANNOT TELL", "status 500: \x1b[2J")]
    asking.tell_changed(ConformanceRecord.model_construct(rows=rows))
    assert lines == [f"{'n':<19} CANNOT TELL, not VIOLATES: status 500: \\x1b[2J"]


@pytest.mark.slow
def test_a_row_whose_result_our_proxy_changes_accuses_nobody(
    correct: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the pass-through proxy is not one, every row that conforms bare cannot tell."""
    monkeypatch.setattr(
        "harness.conformance.run.PASS_THROUGH", ProxyDefect(does="", ask=removes("stop"))
    )
    record = made(correct, tmp_path, rows=("stop-string",)).record
    (row,) = (row for row in record.rows if row.name == "stop-string")
    assert row.word == "CANNOT TELL"
    assert "a proxy that changes nothing changed the result" in row.fact
    assert record.verdict == "INCONCLUSIVE"


def test_words_of_repetitions_are_put_together_without_accusing() -> None:
    """VIOLATES takes every repetition; what is mixed cannot be told."""

    def word(*words: str) -> str:
        return word_of([RowFinding(word=one, about="", fact="") for one in words])[0]  # type: ignore[arg-type]

    assert word("VIOLATES", "VIOLATES", "VIOLATES") == "VIOLATES"
    assert word("VIOLATES", "CONFORMS", "VIOLATES") == "CANNOT TELL"
    assert word("CONFORMS", "CONFORMS", "CONFORMS") == "CONFORMS"
    assert word("REFUSES", "REFUSES", "REFUSES") == "REFUSES"
    assert word("REFUSES", "CONFORMS", "CONFORMS") == "CANNOT TELL"
    assert word("CANNOT TELL", "CONFORMS", "CONFORMS") == "CANNOT TELL"


def test_a_server_is_lost_only_where_nothing_answers_any_more() -> None:
    """A server that was dead once and answered later is not lost, nor one that never answered."""

    def lost(*found: tuple[str, str]) -> bool:
        return is_lost([RowFinding(word=word, about=about, fact="") for word, about in found])  # type: ignore[arg-type]

    dead = ("VIOLATES", "dead")
    gone = ("CANNOT TELL", "unanswered")
    assert lost(dead, gone, gone)
    assert lost(dead, dead, gone)
    assert lost(("CONFORMS", ""), dead, gone)
    assert not lost(("CONFORMS", ""), ("CONFORMS", ""), dead)
    assert not lost(("REFUSES", "refused"), dead, gone)
    assert not lost(dead, gone, dead)
    assert not lost(dead, ("CONFORMS", ""), gone)
    assert not lost(gone, dead, gone)
    assert not lost(gone, gone, gone)
    assert not lost(("VIOLATES", "text"), gone, gone)
    assert not lost(dead, ("CANNOT TELL", "busy"), gone)


@pytest.mark.slow
def test_a_server_that_is_lost_for_good_is_accused_by_one_repetition(
    correct: str, tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can ask it a second time, so the one loss counts, and the report says so."""
    monkeypatch.setattr("harness.conformance.rows.row.WAITS_MS", (10, 20))
    with proxied(correct, ROWS["bad-requests"].defect) as base:
        finished = made(
            base, tmp_path, key=key, rows=("bad-requests", "huge-request"), may_break=True
        )
    words = {row.name: row.word for row in finished.record.rows}
    assert (words["bad-requests"], words["huge-request"]) == ("VIOLATES", "CANNOT TELL")
    (row,) = finished.record.of("VIOLATES")
    assert row.count == "1 of 1"
    assert "answered no request of the next repetitions" in row.fact
    assert verified(finished.folder, key).ok


@pytest.mark.slow
def test_a_server_that_is_lost_in_the_second_repetition_is_accused_too(
    tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each client that leaves costs it something, and the third one all."""
    monkeypatch.setattr("harness.conformance.rows.row.WAITS_MS", (10, 20))
    leavers = 0

    class LeakingHandler(CorrectHandler):
        def do_POST(self) -> None:  # noqa: N802 - http.server calls it
            if leavers > 2:
                self._refuse(503, "no free slots")
                return
            super().do_POST()

        def _stream(self, asked: Any) -> None:
            nonlocal leavers
            try:
                super()._stream(asked)
            except ConnectionError:
                leavers += 1
                raise

    with serving(LeakingHandler) as base:
        finished = made(base, tmp_path, key=key, rows=("disconnect",))
    row = next(row for row in finished.record.rows if row.name == "disconnect")
    assert (row.word, row.about, row.count) == ("VIOLATES", "dead", "1 of 2"), row.fact
    assert verified(finished.folder, key).ok


def _seedless() -> ProxyDefect:
    """Return what changes every second answer to a whole request with a seed."""
    count = itertools.count()

    def ask(fields: dict[str, Any]) -> dict[str, Any]:
        is_spoiled = fields.get("seed") is not None and next(count) % 2
        return fields | {"seed": 99} if is_spoiled else fields

    return ProxyDefect(does="", ask=ask)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "defect", "times"),
    [
        ("chat-seed", _seedless(), 2),
        ("seed", _seedless(), 2),
        ("greedy-repeat", ROWS["greedy-repeat"].defect, 5),
    ],
)
def test_a_line_that_has_to_be_sent_several_times_says_so(
    name: str, defect: ProxyDefect, times: int, correct: str, tmp_path: Path
) -> None:
    """Whoever sends it once sees nothing."""
    with proxied(correct, defect) as base:
        finished = made(base, tmp_path, rows=(name,), model=MODEL)
    row = next(row for row in finished.record.rows if row.name == name)
    assert row.word == "VIOLATES", row.fact
    (line,) = row.curls
    assert line.endswith(f"  # send this {times} times")


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("order", ["later: A", "B", "later: A"]),
        ("stop-string", ["without stop", "stop"]),
        ("disconnect", []),
    ],
)
def test_a_finding_has_the_requests_that_it_compared(
    name: str, labels: list[str], correct: str
) -> None:
    """In the order in which they show it; none where the last requests of the row do."""
    compared: list[HTTPRequest] = []
    with proxied(correct, ROWS[name].defect) as base:
        send = Client(base, timeout=5).together
        found = drive(ROWS[name], known_to(name), send, compared)
    assert found.word == "VIOLATES"
    assert [one.label[: len(label)] for one, label in zip(compared, labels, strict=True)] == labels


@pytest.mark.slow
def test_a_server_that_comes_back_is_asked_again(
    correct: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else starts it again: each repetition loses it, and waits until it answers."""
    monkeypatch.setattr("harness.conformance.rows.row.WAITS_MS", (10, 20, 30))
    silent = 0

    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        nonlocal silent
        if b'"max_tokens": -1' in body:
            silent = 3
        if silent:
            silent -= 1
            return
        pass_on(handler, body, correct)

    with odd_server(answer) as base:
        record = made(base, tmp_path, model=MODEL, rows=("bad-requests",), may_break=True).record
    (row,) = record.of("VIOLATES")
    assert row.count == "3 of 3"
    assert "it answered again later" in row.fact


def pass_on(handler: BaseHTTPRequestHandler, body: bytes, base: str) -> None:
    """Answer as another server does."""
    asked = urllib.request.Request(f"{base}{handler.path}", body or None)  # noqa: S310 - loopback
    try:
        with urllib.request.urlopen(asked) as response:  # noqa: S310 - loopback
            status, data = response.status, response.read()
    except urllib.error.HTTPError as error:
        status, data = error.code, error.read()
    handler.send_response(status)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


@pytest.mark.whole
def test_only_a_row_that_compares_texts_of_an_unsteady_mode_is_left_undecided(
    correct: str, tmp_path: Path
) -> None:
    """Streamed chats are sampled: that is a violation itself, chats cannot be compared with them,
    and what completions do wrong is still an accusation.
    """

    def hot(fields: dict[str, object]) -> dict[str, object]:
        is_streamed_chat = fields.get("stream") and "messages" in fields
        return fields | {"temperature": 1.5} if is_streamed_chat else fields

    def drops(events: Iterator[bytes]) -> Iterator[bytes]:
        listed = list(events)
        is_chat = b"chat.completion" in listed[0]
        yield from listed if is_chat else drops_last_text(iter(listed))

    rows = ("temperature", "chat-stop", "stream-is-whole")
    with proxied(correct, ProxyDefect(does="", ask=hot, stream=drops)) as base:
        record = made(base, tmp_path, rows=rows).record
    words = {row.name: (row.word, row.fact) for row in record.rows}
    assert words["temperature"][0] == "VIOLATES", words
    assert "in a streamed chat: temperature 0 returned" in words["temperature"][1]
    assert words["stream-is-whole"][0] == "VIOLATES", words
    assert words["chat-stop"][0] == "CANNOT TELL", words
    assert "streamed" in record.unsteady


@pytest.mark.parametrize(
    ("address", "base"),
    [
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000"),
        ("https://example.org/llm/v1", "https://example.org/llm"),
        ("http://[::1]:80", "http://[::1]:80"),
    ],
)
def test_an_address_is_taken_with_and_without_v1(address: str, base: str) -> None:
    """What follows the host stays, and /v1 goes."""
    assert base_of(address) == base


@pytest.mark.parametrize(
    "address", ["mlx", "ftp://a", "http://", "http://me:secret@a", "http://a:b", "http://a?x", "-x"]
)
def test_what_is_no_address_is_refused_with_what_to_give(address: str) -> None:
    """A name that is no engine, a password in an address, and other slips are told."""
    with pytest.raises(ConformanceError, match=r"engine|--api-key-env"):
        base_of(address)


@pytest.mark.slow
def test_an_engine_that_ends_before_it_is_ready_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its exit code and the last exception that it printed."""
    dying = ServedEngine(
        library="json", arguments=("-c", "raise ValueError('no device')"), distributions=()
    )
    monkeypatch.setitem(ENGINES, "dying", dying)
    settings = ConformanceSettings(target="dying", results=tmp_path)
    with pytest.raises(EngineError, match=r"exit code 1.*ValueError: no device"):
        conform(settings, None, lambda _: None)


def test_an_engine_without_what_its_server_needs_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library is here, and the packages of its server are not."""
    lacking = ServedEngine(
        library="json",
        arguments=(),
        distributions=(),
        serving=("json", "rankproof_has_no_such_module"),
        remedy="pip install 'json[serving]'",
    )
    monkeypatch.setitem(ENGINES, "lacking", lacking)
    with pytest.raises(EngineError, match=r"needs rankproof_has_no_such_module.*json\[serving\]"):
        conform(ConformanceSettings(target="lacking", results=tmp_path), None, lambda _: None)


FRAGILE = """
import sys, http.server
class FragileHandler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def do_POST(self):
        import os; os._exit(7)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), FragileHandler).serve_forever()
"""


@pytest.mark.slow
def test_an_engine_that_cannot_be_started_again_never_passes(
    tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked before is kept, the rest is not asked for that reason, and it verifies."""
    fragile = ServedEngine(library="json", arguments=("-c", FRAGILE, "{port}"), distributions=())
    monkeypatch.setitem(ENGINES, "fragile", fragile)
    monkeypatch.setattr("harness.conformance.engine.STARTS", 2)
    settings = ConformanceSettings(target="fragile", results=tmp_path)
    finished = conform(settings, find_signer(explicit=str(key)), lambda _: None)
    assert finished.record.verdict == "INCONCLUSIVE"
    assert {row.word for row in finished.record.rows} == {"NOT ASKED"}
    assert "could not be started again after completion" in finished.record.rows[0].fact
    assert verified(finished.folder, key).ok


def test_a_server_that_was_lost_does_not_pass() -> None:
    """Where every row that was asked conforms, and the rest could not be asked."""
    core = [result(name, "CONFORMS", "") for name in CORE]
    left = result("n", "NOT ASKED", "only with --all")
    assert verdict_of([*core, left]) == "PASS"
    lost = result("n", "NOT ASKED", f"{LOST} after echo: it ended")
    assert verdict_of([*core, lost]) == "INCONCLUSIVE"


def result(name: str, word: Word, fact: str) -> RowResult:
    """A row that came out so."""
    more = {"promises": "", "requests": 0, "count": "", "evidence": "", "control": None}
    return RowResult(name=name, word=word, about="", fact=fact, curls=[], places={}, **more)  # type: ignore[arg-type]


@pytest.mark.slow
def test_an_engine_that_says_ready_and_dies_at_its_first_request_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its exit code and the row are in the report, and it is started again for the next try."""
    fragile = ServedEngine(library="json", arguments=("-c", FRAGILE, "{port}"), distributions=())
    monkeypatch.setitem(ENGINES, "fragile", fragile)
    settings = ConformanceSettings(target="fragile", results=tmp_path)
    finished = conform(settings, None, lambda _: None)
    server = finished.record.facts.server
    assert (server.starts, len(server.exits)) == (4, 3)
    assert server.exits[0].during == "completion (bare)"
    assert "exit code 7" in server.exits[0].how
    assert finished.record.verdict == "INCONCLUSIVE"
    assert "exit code 7" in (finished.folder / "report.md").read_text()


def asked_of_mlx(
    results: Path, key: Path, *rows: str, within: float
) -> FinishedSeries[ConformanceRecord]:
    """A signed conformance of mlx_lm.server; no rows: all that are not long."""
    settings = ConformanceSettings(
        target="mlx_lm.server", results=results, rows=rows, within=within
    )
    return conform(settings, find_signer(explicit=str(key)), lambda _: None)


@pytest.mark.long
def test_mlx_lm_server_is_asked_and_the_report_verified(tmp_path: Path, key: Path) -> None:
    """The rows that it keeps, breaks and refuses get these words, and no process is left."""
    kept = (*CORE, "usage-tokens", "chat-template")
    broken = ("stream-schema", "chat", "chat-n", "echo")
    finished = asked_of_mlx(tmp_path, key, *kept, *broken, "logprobs", within=600)
    record = finished.record
    assert {row.name for row in record.of("CONFORMS")} == set(kept)
    assert {row.name for row in record.of("VIOLATES")} == set(broken)
    assert {row.name for row in record.of("REFUSES")} == {"logprobs"}
    assert verified(finished.folder, key).ok
    address = urlsplit(record.facts.server.base)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.hostname, address.port))


@pytest.mark.long
def test_mlx_lm_server_is_asked_every_row_and_the_report_verified(
    tmp_path: Path, key: Path
) -> None:
    """Every row that is not long gets an answer: what it breaks is found, and the rest conforms."""
    finished = asked_of_mlx(tmp_path, key, within=600)
    words = {row.name: row.word for row in finished.record.rows}
    kept = ("usage", "usage-tokens", "chat-template", "chat-seed", "seed", "temperature")
    kept += ("chat-messages", "order", "prefix-cache", "long-beside-short", "health")
    for name in (*CORE, *kept):
        assert words[name] == "CONFORMS"
    # They measure time, and a busy machine may leave them undecided.
    for name in ("cancel", "freeze"):
        assert words[name] != "VIOLATES"
    broken = ("json-object", "json-schema", "tools", "batched-prompts", "chat-n")
    schema = ("stream-schema", "chat")
    for name in ("n", "echo", "chat-logprobs", "bad-requests", *broken, *schema):
        assert words[name] == "VIOLATES"
    assert words["logprobs"] == "REFUSES"
    assert verified(finished.folder, key).ok
