"""What a rank tells about a load: bounded, true to what happened, and without a trace of its
own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.tokenizer import observe

ROOT = Path(__file__).parents[2]
EVENT_LIMIT = 256 * 1024


def caught(work: Callable[[], None]) -> Exception:
    """Run something that raises and hand back what it raised."""
    try:
        work()
    except Exception as error:  # noqa: BLE001
        return error
    raise AssertionError("nothing was raised")


def refuse() -> None:
    json.loads("{")


def test_a_chain_tells_how_its_links_are_tied() -> None:
    """Cause, context and suppressed context are distinguished, each link with its deepest frame."""

    def caused() -> None:
        try:
            refuse()
        except ValueError as error:
            raise OSError("no vocabulary") from error

    def handled() -> None:
        try:
            caused()
        except OSError:
            raise KeyError("later")  # noqa: B904

    def hidden() -> None:
        try:
            handled()
        except KeyError:
            raise RuntimeError("alone") from None

    links = observe.chain(caught(hidden))
    assert [(link["by"], link["type"]) for link in links] == [
        ("raised", "RuntimeError"), ("suppressed", "KeyError"), ("context", "OSError"), ("cause", "JSONDecodeError"),
    ]  # fmt: skip
    assert links[0]["deepest"].endswith(":hidden")
    assert links[3]["deepest"].startswith("json/decoder.py:")
    assert str(ROOT) not in json.dumps(links)


def test_an_exception_raised_after_the_handler_has_no_trace_of_it() -> None:
    """What was swallowed before a second attempt is in no chain: that is why the logs are kept as
    well.
    """

    def second_attempt() -> None:
        with contextlib.suppress(ValueError):
            refuse()
        raise NotImplementedError

    assert [link["type"] for link in observe.chain(caught(second_attempt))] == [
        "NotImplementedError"
    ]


def test_a_chain_that_loops_or_never_ends_is_bounded() -> None:
    """A loop of causes and a chain of thousands end, and messages are cut."""
    first, second = ValueError("x" * 100_000), OSError("y")
    first.__cause__, second.__cause__ = second, first
    assert len(observe.chain(first)) == 2
    long: Exception = ValueError("first")
    for _ in range(5000):
        new = ValueError("x" * 1000)
        new.__cause__ = long
        long = new
    assert len(json.dumps(observe.chain(long))) < EVENT_LIMIT / 10


@pytest.fixture
def library() -> Iterator[logging.Logger]:
    """A logger as transformers has one: it writes warnings to stderr and passes nothing on."""
    logger = logging.getLogger("library")
    printed: list[str] = []
    handler = logging.StreamHandler()
    handler.emit = lambda record: printed.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.WARNING)
    logger.printed = printed  # type: ignore[attr-defined]
    yield logger
    logger.removeHandler(handler)


def test_debug_messages_are_kept_and_nothing_more_is_printed(library: logging.Logger) -> None:
    """The swallowed error is in the log, the user sees what was seen before, and everything is put
    back.
    """
    before = list(library.handlers)
    with observe.Logs(("library",), hide="/a/cache") as logs:
        library.debug(
            "Failed to use it: %s", "429 for 0b0e6a1c-2f54-4e0e-9a3a-5d2b6a1f0001 in /a/cache/blob"
        )
        library.getChild("part").warning("a warning")
    library.debug("later")
    values = logs.messages()
    assert [(row["level"], row["message"]) for row in values["messages"]] == [
        ("DEBUG", "Failed to use it: 429 for … in …/blob"), ("WARNING", "a warning"),
    ]  # fmt: skip
    assert library.printed == ["a warning"]  # type: ignore[attr-defined]
    assert (library.level, library.handlers) == (logging.WARNING, before)
    assert {handler.level for handler in before} == {logging.NOTSET}


def test_a_message_keeps_the_exception_that_was_being_handled(library: logging.Logger) -> None:
    """What a handler swallows after it wrote a line is kept with that line, down to the first
    cause.
    """
    with observe.Logs(("library",)) as logs:
        try:
            try:
                refuse()
            except ValueError as error:
                raise OSError("not corrupted") from error
        except OSError as error:
            library.debug("Failed to use it: %s", error)
        library.debug("after it")
    swallowed, after = logs.messages()["messages"]
    assert [link["type"] for link in swallowed["handling"]] == ["OSError", "JSONDecodeError"]
    assert "handling" not in after


@pytest.mark.whole
@pytest.mark.slow
def test_many_messages_stay_small(library: logging.Logger) -> None:
    """Of ten thousand different messages the first and the last are kept, equal ones are counted,
    and it is small.
    """
    with observe.Logs(("library",)) as logs:
        for number in range(10_000):
            if number == 5000:
                library.debug("Failed to use TokenizersBackend: 429")
            library.debug("message %d %s", number, "x" * 5000)
            library.debug("the same")
        library.debug("does not fit %d", "text")
    values = logs.messages()
    messages = {row["message"][:14].strip(): row["times"] for row in values["messages"]}
    assert messages["the same"] == 10_000
    assert "Failed to use" in messages
    assert "message 0 xxxx" in messages
    assert "does not fit %" in messages
    assert values["dropped"] > 9000
    assert len(json.dumps(values)) < EVENT_LIMIT / 4


def test_a_cache_tells_damage_and_leftovers(tmp_path: Path) -> None:
    """A blob that does not hold what its name says is found, as are marks of missing files, parts
    and locks.
    """
    repository = tmp_path / "models--a--b"
    good, text = b"good", b"text"
    git = hashlib.sha1(b"blob 4\0" + text, usedforsecurity=False).hexdigest()
    files = {
        f"blobs/{hashlib.sha256(good).hexdigest()}": good,
        f"blobs/{git}": text,
        f"blobs/{'0' * 64}": good,
        f"blobs/{'1' * 40}": text,
        f"blobs/{'2' * 40}.incomplete": b"",
        ".no_exist/abc/tokenizer.model": b"",
        "refs/main": b"abc",
        "snapshots/abc/tokenizer.json": good,
    }
    for name, data in files.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_bytes(data)
    (tmp_path / ".locks").mkdir()
    (tmp_path / ".locks" / "x.lock").touch()
    values = observe.cache(tmp_path)
    assert values["wrong"] == [f"models--a--b/blobs/{'0' * 64}", f"models--a--b/blobs/{'1' * 40}"]
    assert (values["blobs"], values["refs"]) == (4, ["models--a--b/refs/main abc"])
    assert [len(values[name]) for name in ("incomplete", "no_exist", "locks", "files")] == [
        1,
        1,
        1,
        1,
    ]
    for number in range(500):
        (repository / "snapshots" / "abc" / f"{number}.txt").touch()
    values = observe.cache(tmp_path)
    assert (len(values["files"]), values["files_more"]) == (observe.NAMES, 501 - observe.NAMES)
    assert observe.cache(tmp_path / "nowhere")["blobs"] == 0


def test_secrets_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a token only that it is set."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    values = observe.versions()
    assert values["variables"]["HF_TOKEN"] == "is set"  # noqa: S105
    assert values["variables"]["HF_HUB_OFFLINE"] == "1"
    assert "hf_secret" not in json.dumps(values)
    assert values["packages"]["tokenizers"]


def test_an_object_that_refuses_is_described_all_the_same() -> None:
    """What an object raises when it is asked is part of its description."""

    class Broken:
        def __len__(self) -> int:
            raise NotImplementedError

    values = observe.describe(Broken())
    assert (values["class"], values["length"]["error"], values["ids"]["error"]) == (
        "Broken", "NotImplementedError", "AttributeError",
    )  # fmt: skip


def test_it_needs_the_standard_library_only() -> None:
    """It can be imported in a rank whose environment holds nothing of ours."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import harness.tokenizer.observe as o;"
        " o.versions()"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", code, str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
