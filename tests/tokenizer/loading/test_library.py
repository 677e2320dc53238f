"""What transformers does for us, and what it does not get away with."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness.tokenizer.loading import BuildFailed, IdentityDiffers, SourceRefused, load
from harness.tokenizer.loading.library import captured
from tests.tokenizer.loading.hubs import CODE, write

THREADS = """
import sys, threading
from harness.tokenizer.loading import load
answers = []
barrier = threading.Barrier(8)

def one():
    barrier.wait()
    try:
        answers.append(load(sys.argv[1]).identity.full)
    except BaseException as error:
        answers.append(f"{type(error).__name__}: {error}")

threads = [threading.Thread(target=one) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(set(answers)) == 1 and len(answers) == 8, answers
print(answers[0])
"""

# The audit hook sees every connection and every look-up of a name that this process attempts,
# whatever library does it.
NO_NETWORK = """
import sys
events = []

def watch(event, arguments):
    if event in {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"}:
        events.append((event, arguments[-1] if event == "socket.connect" else arguments))

sys.addaudithook(watch)
from harness.tokenizer.loading import load
for folder in sys.argv[1:]:
    options = {"fix_mistral_regex": True} if "mistral" in folder else None
    load(folder, options=options, trust_remote_code="own" in folder)
assert events == [], events
import socket
try:
    socket.create_connection(("127.0.0.1", 9), timeout=1)
except OSError:
    pass
assert events, "the hook sees nothing"
"""


def python(script: str, *arguments: object) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout.strip()


@pytest.mark.whole
def test_first_loads_in_eight_threads(small_files: dict[str, bytes], tmp_path: Path) -> None:
    """Eight threads whose first act is to load, which is also the first import of transformers, all
    get the same.
    """
    folder = write(tmp_path / "small", small_files)
    assert python(THREADS, folder) == load(folder).identity.full


@pytest.mark.whole
@pytest.mark.slow
def test_building_asks_no_hub(small_files: dict[str, bytes], tmp_path: Path) -> None:
    """No layout makes transformers ask for anything once the files are local, not even with
    fix_mistral_regex.
    """
    vocabulary = {f"word{number}": number for number in range(100_001)} | {"<unk>": 100_001}
    large = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }
    mistral = {
        "config.json": json.dumps({"model_type": "mistral"}).encode(),
        "tokenizer.json": json.dumps(large).encode(),
        "tokenizer_config.json": json.dumps({"tokenizer_class": "PreTrainedTokenizer"}).encode(),
    }
    folders = [
        write(tmp_path / "small", small_files),
        write(tmp_path / "mistral", mistral),
        write(tmp_path / "own", CODE),
    ]
    python(NO_NETWORK, *folders)


@pytest.mark.slow
def test_a_rust_panic_is_a_build_that_failed(small_files: dict[str, bytes], tmp_path: Path) -> None:
    """A panic is no Exception in Python; it does not get past the loader as something else."""
    broken = json.loads(small_files["tokenizer.json"])
    broken["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    folder = write(
        tmp_path / "small", small_files | {"tokenizer.json": json.dumps(broken).encode()}
    )
    with pytest.raises(BuildFailed, match="PanicException: Precompiled") as caught:
        load(folder)
    assert type(caught.value.__cause__).__name__ == "PanicException"


@pytest.mark.slow
def test_an_interrupt_is_not_turned_into_an_error(
    small_files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KeyboardInterrupt and SystemExit pass through as they are."""
    from transformers import PreTrainedTokenizerFast

    folder = write(tmp_path / "small", small_files)
    for kind in (KeyboardInterrupt, SystemExit):

        def raises(*_: object, kind: type[BaseException] = kind, **__: object) -> None:
            raise kind

        monkeypatch.setattr(PreTrainedTokenizerFast, "__init__", raises)
        with pytest.raises(kind):
            load(folder)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", b'{"version": "1.0"'),
        ("tokenizer.json", b""),
        ("tokenizer.json", b"\0" * 64),
        ("tokenizer_config.json", b'{"tokenizer_class": "A", "tokenizer_class": "B"}'),
        ("tokenizer_config.json", b"[]"),
        ("config.json", b"NaN"),
        ("tokenizer.json", None),
    ],
)
def test_files_that_are_none_fail_with_their_cause(
    small_files: dict[str, bytes], tmp_path: Path, name: str, content: bytes | None
) -> None:
    """Truncated, empty, doubled and NUL-filled files are an error that names the folder and keeps
    the cause.
    """
    if content is None:
        content = small_files[name].replace(b'"vocab": {', b'"vocab": {"<s>": 9,', 1)
        assert content != small_files[name]
    folder = write(tmp_path / "small", small_files | {name: content})
    with pytest.raises(BuildFailed, match="small"):
        load(folder)


def test_a_gigabyte_is_refused_unread(small_files: dict[str, bytes], tmp_path: Path) -> None:
    """A tokenizer.json of a gigabyte in a folder is refused by its size, in a child with little
    memory.
    """
    folder = write(tmp_path / "small", small_files)
    with (folder / "tokenizer.json").open("r+b") as stream:
        stream.truncate(2**30)
    script = """
import resource, sys
from harness.tokenizer.loading import SourceRefused, load
resource.setrlimit(resource.RLIMIT_AS, (600 * 2**20,) * 2)
try:
    load(sys.argv[1])
except SourceRefused as error:
    print(error)
"""
    assert "tokenizer.json has 1,073,741,824 bytes" in python(script, folder)


def test_what_the_libraries_say_is_kept(small_files: dict[str, bytes], tmp_path: Path) -> None:
    """Debug lines of this thread are collected with the exceptions they name.

    A handler of the user sees no more.
    """
    seen: list[str] = []

    class Theirs(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    logger = logging.getLogger("transformers")
    theirs = Theirs()
    logger.addHandler(theirs)
    level = logger.level
    try:
        with captured() as outer, captured() as lines:
            try:
                raise ValueError("swallowed")  # noqa: TRY301
            except ValueError:
                logging.getLogger("transformers.somewhere").debug(
                    "Failed to use %s", "it", exc_info=True
                )
            elsewhere = threading.Thread(
                target=logging.getLogger("transformers.x").warning, args=("another thread",)
            )
            elsewhere.start()
            elsewhere.join()
        assert (
            lines
            == outer
            == ["DEBUG transformers.somewhere: Failed to use it [ValueError: swallowed]"]
        )
        logging.getLogger("transformers.somewhere").debug("after")
    finally:
        logger.removeHandler(theirs)
    assert seen == ["another thread"]
    assert logger.level == level


@pytest.mark.whole
@pytest.mark.slow
def test_a_fork_while_others_build_starts_afresh(
    small_files: dict[str, bytes], tmp_path: Path
) -> None:
    """A child forked while a thread imports and builds can load itself, and its loggers are as
    quiet as before.
    """
    script = """
import logging, os, sys, threading
from harness.tokenizer.loading import library, load
load(sys.argv[1])
level = logging.getLogger("transformers").level
inside, go_on = threading.Event(), threading.Event()

def busy():
    with library._IMPORTING, library.captured():
        inside.set()
        go_on.wait()

thread = threading.Thread(target=busy)
thread.start()
inside.wait()
child = os.fork()
if not child:
    load(sys.argv[1])
    os._exit(logging.getLogger("transformers").level != level)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
go_on.set()
thread.join()
assert logging.getLogger("transformers").level == level
sys.exit(status)
"""
    python(script, write(tmp_path / "small", small_files))


@pytest.mark.parametrize(
    "option", ["revision", "cache_dir", "local_files_only", "trust_remote_code", "config"]
)
def test_options_that_decide_where_from_are_refused(
    small_files: dict[str, bytes], tmp_path: Path, option: str
) -> None:
    """What decides where a tokenizer comes from cannot be smuggled past the verification."""
    with pytest.raises(SourceRefused, match=option):
        load(write(tmp_path / "small", small_files), options={option: "x"})


@pytest.mark.slow
def test_options_reach_the_tokenizer(small_files: dict[str, bytes], tmp_path: Path) -> None:
    """Other options are transformers' own business, and change the identity."""
    folder = write(tmp_path / "small", small_files)
    plain, padded = load(folder), load(folder, options={"pad_token": "</s>"})
    assert padded.tokenizer.special_tokens_map["pad_token"] == "</s>"  # noqa: S105 - no password
    assert plain.identity.semantic != padded.identity.semantic


def test_a_folder_that_changes_meanwhile_is_refused(
    small_files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is replaced between its digest and the end of the load is noticed."""
    from transformers import PreTrainedTokenizerFast

    folder = write(tmp_path / "small", small_files)
    real = PreTrainedTokenizerFast.__init__

    def changes(self: object, *given: object, **named: object) -> None:
        (folder / "chat_template.jinja").write_text("other")
        real(self, *given, **named)

    monkeypatch.setattr(PreTrainedTokenizerFast, "__init__", changes)
    with pytest.raises(SourceRefused, match=r"chat_template\.jinja"):
        load(folder)


def test_an_expected_identity_binds(small_files: dict[str, bytes], tmp_path: Path) -> None:
    """An identity or a digest that fits is accepted in every form.

    Another is refused with what differs.
    """
    folder = write(tmp_path / "small", small_files)
    other = write(tmp_path / "other", {**small_files, "chat_template.jinja": b"{{ other }}"})
    found = load(folder).identity
    for expected in (found, found.semantic, found.full, f"sha256:{found.semantic}"):
        assert load(folder, expected=expected).identity == found
    with pytest.raises(IdentityDiffers, match="template"):
        load(other, expected=found)
    with pytest.raises(IdentityDiffers, match=found.semantic):
        load(other, expected=found.semantic)
    with pytest.raises(SourceRefused, match="64 lower-case"):
        load(folder, expected="abc")
