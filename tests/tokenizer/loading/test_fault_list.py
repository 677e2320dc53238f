"""What a hub does wrong and what becomes of it: the fault list that tokenizer discovery was judged
by, row by row.

The faults are the local hub's own (docs/hub.md). Rows that a rule cannot make have tests beside:
ranges and kills in test_transfer.py, lies about names and sizes in test_wire.py, proxies in
test_proxies.py, disks and locks in test_snapshot.py and test_processes.py, damaged caches in
test_cache.py.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.cli import PASS, USAGE, main
from harness.cli.tokenizer import (
    ABSENT,
    BYTES,
    DAMAGED,
    FORBIDDEN,
    LOCKED,
    NETWORK,
    NO_SPACE,
    RATE,
    code_of,
)
from harness.hub import Hub, parse_rules
from harness.tokenizer.loading import CacheFailed, LoadError, LockTimeout
from tests.tokenizer.loading.hubs import write

pytestmark = pytest.mark.slow  # each is short; together they take longer than the inner loop has
FILE = "tokenizer.json"


@dataclass(frozen=True)
class Row:
    """A fault, and its intended outcome: the exit code, and how often the file was asked for (None:
    do not care).
    """

    name: str
    answer: str
    code: int
    asked: int | None = None
    when: str = "{}"
    role: str = FILE
    said: str = ""
    deadline: str = "5s"


ROWS = (
    Row("404 for a listed file", "{kind: missing}", ABSENT, 3, said="so this path does not exist"),
    Row("404 once", "{kind: missing}", PASS, 2, when="{times: 1}"),
    Row(
        "500 for ever", "{kind: error, status: 500}", NETWORK, deadline="600ms", said="answered 500"
    ),
    Row("503 twice", "{kind: error, status: 503}", PASS, 3, when="{times: 2}"),
    Row("429, come again soon", "{kind: rate-limit, reset: 0s}", PASS, 2, when="{times: 1}"),
    Row(
        "429, come again in an hour",
        "{kind: rate-limit, reset: 1h}",
        RATE,
        1,
        said="asks to wait 3600 s",
    ),
    Row("429 for the listing", "{kind: rate-limit, reset: 1h}", RATE, 0, role="model_info"),
    Row(
        "hangs before an answer",
        "{kind: latency, for: 20s}",
        NETWORK,
        deadline="500ms",
        said="deadline of 0.5 s",
    ),
    Row(
        "hangs at the first request",
        "{kind: latency, for: 20s}",
        NETWORK,
        0,
        role="model_info",
        deadline="500ms",
    ),
    Row("reset before an answer", "{kind: reset}", PASS, 2, when="{times: 1}"),
    Row("reset for ever", "{kind: reset}", NETWORK, deadline="600ms"),
    Row("closed without an answer", "{kind: close}", PASS, 2, when="{times: 1}"),
    Row("reset in the middle", "{kind: truncate, ending: reset}", PASS, 2, when="{times: 1}"),
    Row("cut in the middle", "{kind: truncate, share: 0.3}", PASS, 2, when="{times: 1}"),
    Row("cut again and again", "{kind: truncate, share: 0.9}", PASS, 4, when="{times: 3}"),
    Row(
        "a wrong length that is consistent",
        "{kind: short}",
        BYTES,
        3,
        said="the listing gives the size",
    ),
    Row("a wrong byte", "{kind: wrong-bytes}", BYTES, 3, said="its bytes have git id"),
    Row("a wrong byte once", "{kind: wrong-bytes}", PASS, 2, when="{times: 1}"),
    Row("an ETag of other bytes", "{kind: wrong-etag}", PASS, 1),
    Row("an ETag that climbs", "{kind: wrong-etag, etag: '../../../../x'}", PASS, 1),
    Row("an ETag of 300 characters", f"{{kind: wrong-etag, etag: {'e' * 300}}}", PASS, 1),
    Row(
        "a page instead of an answer",
        "{kind: wrong-bytes, text: '<html>sign in</html>'}",
        BYTES,
        0,
        role="model_info",
    ),
    Row(
        "an empty listing",
        "{kind: wrong-bytes, text: '[]'}",
        BYTES,
        0,
        role="tree",
        said="disagree",
    ),
)


@pytest.fixture
def folder(small_files: dict[str, bytes], tmp_path: Path) -> Path:
    write(tmp_path / "served" / "org" / "name", small_files)
    return tmp_path / "served"


def fetch(hub: Hub, *more: str) -> int:
    return main(["tokenizer", "fetch", "org/name", "--endpoint", hub.endpoint, *more])


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_a_fault_of_the_hub_has_its_intended_outcome(
    row: Row,
    folder: Path,
    tmp_path: Path,
    small_files: dict[str, bytes],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The file comes whole and right, or the exit code says why not.

    Nothing is written outside of the cache.
    """
    rules = f"""
schema: 1
rules:
  - {{id: fault, role: {row.role}, answer: {row.answer}, when: {row.when}}}
"""
    outside = {path for path in tmp_path.rglob("*") if "cache" not in path.parts}
    with Hub(folder, rules=parse_rules(rules)) as hub:
        code = fetch(hub, "--deadline", row.deadline)
        asked = [request for request in hub.requests() if request.file == FILE]
        struck = [request for request in hub.requests() if request.rules]
    said = capsys.readouterr()
    assert code == row.code, said.err
    # A request that is made to wait is written down when its answer leaves, and nobody waits for
    # that.
    assert struck or "latency" in row.answer
    assert row.said in said.err
    if row.asked is not None:
        assert len(asked) == row.asked
    found = [path for path in (tmp_path / "cache").rglob(FILE) if ".partial" not in str(path)]
    assert [path.read_bytes() for path in found] == ([small_files[FILE]] if code == PASS else [])
    assert {path for path in tmp_path.rglob("*") if "cache" not in path.parts} == outside


def test_what_is_not_json_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that the hub truly has, and that is empty or no JSON, is refused before anybody loads
    it.
    """
    for content in (b"", b'{"a": 1, "a": 2}', b"<html>"):
        (folder / "org" / "name" / FILE).write_bytes(content)
        with Hub(folder) as hub:
            assert fetch(hub) == DAMAGED
        assert f"{FILE} is not strict JSON" in capsys.readouterr().err


def test_what_is_not_there_or_may_not_be_asked(folder: Path) -> None:
    """A repository or a revision that is missing is one class.

    Names that leave their place are bad usage.
    """
    with Hub(folder) as hub:
        assert main(["tokenizer", "fetch", "org/other", "--endpoint", hub.endpoint]) == ABSENT
        assert fetch(hub, "--revision", "v2") == ABSENT
        before = len(hub.requests())
        assert fetch(hub, "--revision", "../../../../x") == USAGE
        assert fetch(hub, "--file", "../../x") == USAGE
        assert len(hub.requests()) == before


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, NO_SPACE),
        (errno.EDQUOT, NO_SPACE),
        (errno.EFBIG, NO_SPACE),
        (errno.EACCES, FORBIDDEN),
        (errno.EROFS, FORBIDDEN),
    ],
)
def test_the_disk_has_its_exit_codes(number: int, code: int) -> None:
    """No space and no right are told apart by what the system said, not by words."""
    error: LoadError = CacheFailed("cannot write")
    error.__cause__ = OSError(number, os.strerror(number))
    assert code_of(error) == code
    assert code_of(LockTimeout("waited", pid=1)) == LOCKED
