"""`rankproof tokenizer fetch` and `cache`, as a user calls them, with the variables of
BitNet.rs.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli import FAIL, PASS, USAGE, main, tokenizer
from harness.forms.variables import switch
from tests.tokenizer.loading.hubs import COMMIT, FakeHub, hang_up, send


def fetch(fake: FakeHub, *more: str) -> int:
    given = () if "--deadline" in more else ("--deadline", "5s")
    return main(["tokenizer", "fetch", *more, "--endpoint", fake.endpoint, *given])


def test_fetch_prints_where_the_files_lie(
    fake: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last line is the folder.

    A second fetch of the same commit makes no request, and JSON says so.
    """
    assert fetch(fake, "org/name") == PASS
    folder = Path(capsys.readouterr().out.splitlines()[-1])
    assert (folder / "tokenizer.json").read_bytes() == fake.files["tokenizer.json"]
    assert fetch(fake, f"org/name@{COMMIT}", "--json") == PASS
    row = json.loads(capsys.readouterr().out)
    assert (row["requests"], row["received"], row["folder"]) == (0, 0, str(folder))
    assert fetch(fake, "org/name@main", "--revision", "main") == USAGE
    assert fetch(fake) == USAGE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "answer", "code"),
    [
        ("/main", lambda handler: send(handler, b"", status=404), tokenizer.ABSENT),
        ("/main", lambda handler: send(handler, b"", status=403), tokenizer.NO_LOGIN),
        (
            "/main",
            lambda handler: send(handler, b"", status=429, Retry_After="3600"),
            tokenizer.RATE,
        ),
        ("/main", lambda handler: send(handler, b"", status=500), tokenizer.NETWORK),
        ("/main", lambda handler: send(handler, b"<html>sign in</html>"), tokenizer.BYTES),
        ("/tokenizer.json", hang_up, tokenizer.NETWORK),
        ("/tokenizer.json", lambda handler: send(handler, b"{}"), tokenizer.BYTES),
        (
            "/tokenizer.json",
            lambda handler: send(handler, b"x", Content_Encoding="gzip"),
            tokenizer.NETWORK,
        ),
    ],
    ids=["no repository", "gated", "rate", "down", "portal", "reset", "wrong bytes", "compressed"],
)
def test_each_failure_has_its_exit_code(
    fake: FakeHub, capsys: pytest.CaptureFixture[str], end: str, answer: object, code: int
) -> None:
    """A script tells by the exit code what to do: log in, wait, free space, try again.

    No snapshot is left.
    """
    fake.replace[end] = answer  # type: ignore[assignment]
    # What is asked for ever ends at the deadline; the others end by themselves, after three
    # requests.
    assert (
        fetch(fake, "org/name", "--deadline", "600ms" if code == tokenizer.NETWORK else "20s")
        == code
    )
    assert "rankproof tokenizer fetch: http" in capsys.readouterr().err
    assert main(["tokenizer", "cache", "ls"]) == PASS
    assert capsys.readouterr().out == ""


def test_bytes_beyond_the_cap_are_not_fetched(
    fake: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    """--max-bytes is held against the listing, before a byte is fetched.

    The same size without a unit is refused.
    """
    assert fetch(fake, "org/name", "--file", "model.safetensors", "--max-bytes", "100B") == USAGE
    assert (
        "model.safetensors has 700 bytes, but a tokenizer file may have at most 100"
        in capsys.readouterr().err
    )
    assert not [path for path in fake.paths if "/resolve/" in path]
    with pytest.raises(SystemExit):
        fetch(fake, "org/name", "--max-bytes", "100")


@pytest.mark.slow
def test_the_variables_of_bitnet_are_read_by_one_rule(
    fake: FakeHub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """=0 is off and =1 is on, everywhere; the cache and the time are theirs.

    What is neither is an error.
    """
    monkeypatch.delenv("RANKPROOF_TOKENIZERS")
    monkeypatch.setenv("BITNET_CACHE_DIR", str(tmp_path / "theirs"))
    monkeypatch.setenv("BITNET_OFFLINE", "0")
    monkeypatch.setenv("BITNET_UNHEARD_OF", "1")
    assert fetch(fake, "org/name") == PASS
    said = capsys.readouterr()
    assert str(tmp_path / "theirs" / "tokenizers") in said.out
    assert "BITNET_UNHEARD_OF is ignored" in said.err
    monkeypatch.setenv("BITNET_OFFLINE", "1")
    before = len(fake.paths)
    assert fetch(fake, "org/name") == tokenizer.NETWORK
    assert "offline forbids requests" in capsys.readouterr().err
    assert fetch(fake, f"org/name@{COMMIT}") == PASS
    assert len(fake.paths) == before
    monkeypatch.setenv("BITNET_OFFLINE", "perhaps")
    assert fetch(fake, "org/name") == USAGE
    assert "BITNET_OFFLINE is 'perhaps'" in capsys.readouterr().err
    monkeypatch.setenv("BITNET_OFFLINE", "off")
    monkeypatch.setenv("BITNET_DOWNLOAD_TIMEOUT", "1")
    fake.replace["/main"] = lambda handler: send(handler, b"", status=503)
    assert (
        main(["tokenizer", "fetch", "org/name", "--endpoint", fake.endpoint]) == tokenizer.NETWORK
    )
    assert "deadline of 1 s" in capsys.readouterr().err
    monkeypatch.setenv("BITNET_DOWNLOAD_TIMEOUT", "10 minutes")
    assert main(["tokenizer", "fetch", "org/name", "--endpoint", fake.endpoint]) == USAGE


def test_a_switch_has_two_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual words are on or off in any case, nothing is off, and any other word is an error."""
    for words, is_on in (
        (("1", "on", "TRUE", "Yes", " 1 "), True),
        (("0", "off", "False", "no", ""), False),
    ):
        for word in words:
            monkeypatch.setenv("A_SWITCH", word)
            assert switch("A_SWITCH") is is_on
    assert switch("NOT_SET") is False
    with pytest.raises(ValueError, match="A_SWITCH is 'ja'"):
        switch("A_SWITCH", {"A_SWITCH": "ja"})


def test_cache_commands(fake: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    """ls lists, verify finds a changed byte without a request, quarantine puts it aside, prune
    leaves what is new.
    """
    assert fetch(fake, "org/name") == PASS
    folder = Path(capsys.readouterr().out.splitlines()[-1])
    asked = len(fake.paths)
    assert main(["tokenizer", "cache", "ls"]) == PASS
    assert f"org/name@{COMMIT}\n    5 files" in capsys.readouterr().out
    verify = ["tokenizer", "cache", "verify", "--offline"]
    assert main(verify) == PASS
    (folder / "chat_template.jinja").write_bytes(b"{{ massages }}")
    assert main(verify) == FAIL
    assert "chat_template.jinja has different bytes" in capsys.readouterr().out
    assert main(["tokenizer", "cache", "prune", "--older-than", "30d"]) == PASS
    assert main(["tokenizer", "cache", "quarantine"]) == PASS
    assert "put aside" in capsys.readouterr().out
    assert not folder.exists()
    assert main(verify) == PASS
    assert len(fake.paths) == asked
    assert main(["tokenizer", "cache", "path"]) == PASS
    assert capsys.readouterr().out.strip().endswith("cache")
