"""Files that nobody vouches for: refused with a reason, within limits, and nothing is written."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.tokenizer import TokenizerError, Unidentifiable, Unreadable, identify, identify_folder
from harness.tokenizer.files import read_object
from tests.tokenizer.making import CONFIG, Raw, raw, tokenizer, write_folder

pytestmark = pytest.mark.slow  # together they take more than the inner loop has

KIB = 1024  # what ru_maxrss counts in
GOOD = json.dumps(raw("byte_level"))


def with_(**fields: Any) -> bytes:
    """A good tokenizer.json with other fields."""
    return json.dumps(raw("byte_level") | fields).encode()


def split_at(pattern: str) -> Raw:
    """A pre-tokenizer that splits at a regular expression."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def replacing(text: str, by: str) -> Raw:
    """A normalizer that replaces a text."""
    return {"type": "Replace", "pattern": {"String": text}, "content": by}


def with_token(token: str, index: int) -> bytes:
    """A good tokenizer.json with another token in its vocabulary."""
    made = copy.deepcopy(raw("byte_level"))
    made["model"]["vocab"][token] = index
    return json.dumps(made).encode()


def with_added(token: str, index: int) -> bytes:
    """A good tokenizer.json with another added token."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return with_(
        added_tokens=[
            *raw("byte_level")["added_tokens"],
            {"id": index, "content": token, "special": True} | flags,
        ]
    )


BAD: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "blank": (b" \n", "is empty"),
    "truncated": (GOOD.encode()[: len(GOOD) // 2], "delimiter"),
    "NUL at the end": (GOOD.encode() + bytes(512), "NUL bytes"),
    "a duplicate key": (
        GOOD.replace('"model": {', '"model": {"type": "BPE", ').encode(),
        "'type' appears twice",
    ),
    "a duplicate token": (
        GOOD.replace('"vocab": {', '"vocab": {"a": 900, ').encode(),
        "'a' appears twice",
    ),
    "nested deeply": (b'{"model": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested deeper"),
    "not UTF-8": (GOOD.encode()[:40] + b"\xff" + GOOD.encode()[40:], "invalid UTF-8 at byte 40"),
    "not a number": (
        GOOD.replace('"dropout": null', '"dropout": NaN').encode(),
        "NaN is not a JSON number",
    ),
    "a list": (b"[]", "must be a JSON object"),
    "no model": (b'{"version": "1.0"}', "has no model"),
    "a merge of nothing": (
        GOOD.replace('"merges": [', '"merges": [["zz", "yy"], ').encode(),
        "out of vocabulary",
    ),
    "two tokens with one id": (with_token("zz", 5), "share the id 5"),
    "an id of 2^32 - 1": (with_token("zz", 2**32 - 1), "outside the vocabulary of every model"),
    "an added token that takes another's id": (with_added("<zz>", 5), "share the id 5"),
    "an added token of 2^32 - 1": (
        with_added("<zz>", 2**32 - 1),
        "outside the vocabulary of every model",
    ),
    "an added token with two ids": (with_added("a", 4711), "has two ids"),
    "a broken pattern": (with_(pre_tokenizer=split_at("(")), "Oniguruma error"),
    "a table that panics": (
        with_(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        "panicked",
    ),
    "a chunk of nothing": (with_(pre_tokenizer={"type": "FixedLength", "length": 0}), "panicked"),
    "a stride that panics": (
        with_(
            truncation={
                "direction": "Right",
                "max_length": 2,
                "strategy": "LongestFirst",
                "stride": 5,
            }
        ),
        "panicked",
    ),
    "a template that panics": (
        with_(
            post_processor={
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "x", "type_id": 0}}],
                "pair": [],
                "special_tokens": {},
            }
        ),
        "panicked",
    ),
    "more memory than there is": (
        with_(
            padding={
                "strategy": {"Fixed": 4_000_000_000},
                "direction": "Left",
                "pad_to_multiple_of": None,
                "pad_id": 0,
                "pad_type_id": 0,
                "pad_token": "x",
            }
        ),
        "SIGABRT",
    ),
}


def refusal(path: Path, **limits: int) -> str:
    """Why a path is refused."""
    with pytest.raises(Unreadable) as caught:
        identify_folder(path, **limits)
    return str(caught.value)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_with_its_reason(name: str, tmp_path: Path) -> None:
    """A damaged or malicious tokenizer.json is refused with its path and the reason, and the folder
    stays as it was.
    """
    content, reason = BAD[name]
    file = tmp_path / "tokenizer.json"
    file.write_bytes(content)
    said = refusal(tmp_path)
    assert reason in said
    assert str(tmp_path) in said
    assert [one.name for one in tmp_path.iterdir()] == ["tokenizer.json"]
    assert file.read_bytes() == content


def test_a_gigabyte_is_refused_unread(tmp_path: Path) -> None:
    """A file of a gigabyte is refused by its size."""
    with (tmp_path / "tokenizer.json").open("wb") as file:
        file.truncate(1 << 30)
    assert "has more than 134217728 bytes" in refusal(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited on Linux only")
def test_memory_is_bounded(tmp_path: Path) -> None:
    """A file that needs more memory than allowed is refused, and its reader never held more than
    that.
    """
    (tmp_path / "tokenizer.json").write_bytes(b'{"a": [' + b"[]," * 3_000_000 + b"[]]}")
    # Asked by a small process: what a child holds before it runs its own program is its parent's.
    code = (
        "import resource, sys; from harness.tokenizer import Unreadable, identify_folder\ntry:"
        " identify_folder(sys.argv[1], memory=200 << 20)\nexcept Unreadable as error:"
        " print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, error)"
    )
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, str(tmp_path)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout
    assert "needs more memory" in said
    assert int(said.split()[0]) * KIB <= 200 << 20


@pytest.mark.slow
def test_time_is_bounded(tmp_path: Path) -> None:
    """A tokenizer that never comes to an end with a text is given up."""
    slow = {
        "type": "Sequence",
        "normalizers": [
            replacing("a", "a" * 60),
            replacing("a", "a" * 60),
            replacing("a", "b" * 40),
        ],
    }
    (tmp_path / "tokenizer.json").write_bytes(with_(normalizer=slow))
    assert any(
        word in refusal(tmp_path, seconds=1)
        for word in ("reading was stopped", "CPU time", "SIGABRT", "SIGKILL")
    )


def test_a_catastrophic_pattern_ends(tmp_path: Path) -> None:
    """A regular expression of exponential cost ends within the limits, in an identity or a
    refusal.
    """
    (tmp_path / "tokenizer.json").write_bytes(
        with_(pre_tokenizer=split_at("(.*)*(.*)*(.*)*(x+x+)+(.*)*[^x]{9}Z"))
    )
    try:
        outcome = identify_folder(tmp_path, seconds=20).parts["probe ids"]
    except Unreadable as error:
        outcome = str(error)
    assert "error" in outcome or str(tmp_path) in outcome


@pytest.mark.parametrize(
    "target", ["/etc/hostname", "../outside.json", "tokenizer.json", "nowhere", "/dev/zero"]
)
def test_a_link_out_of_the_folder_is_refused(target: str, tmp_path: Path) -> None:
    """A tokenizer.json that is a link to elsewhere, to itself or to nothing is refused."""
    (tmp_path / "outside.json").write_text(GOOD)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "tokenizer.json").symlink_to(target)
    assert str(folder) in refusal(folder)


def test_a_link_of_the_hubs_cache_is_followed(tmp_path: Path) -> None:
    """A snapshot of the hub's cache, whose files are links into blobs, is read."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "abc").write_text(GOOD)
    snapshot = tmp_path / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (snapshot / "tokenizer.json").symlink_to("../../blobs/abc")
    assert identify_folder(snapshot).semantic == identify(tokenizer(raw("byte_level"))).semantic


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused(make: Callable[[Path], None], tmp_path: Path) -> None:
    """A pipe or a folder named tokenizer.json is refused, and nobody waits for it."""
    make(tmp_path / "tokenizer.json")
    assert str(tmp_path) in refusal(tmp_path)


def test_templates_elsewhere_are_refused(tmp_path: Path) -> None:
    """A folder of templates that is a link out of the repository is refused."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.jinja").write_text("secret")
    folder = write_folder(tmp_path / "model", content=raw("byte_level"), config=CONFIG)
    (folder / "additional_chat_templates").symlink_to(tmp_path / "other")
    assert "to a path outside" in refusal(folder)


def test_names_in_the_configuration_are_not_opened(tmp_path: Path) -> None:
    """A path in tokenizer_config.json is a setting, and no file is read for it."""
    plain = write_folder(tmp_path / "a", content=raw("byte_level"), config=CONFIG)
    named = write_folder(
        tmp_path / "b",
        content=raw("byte_level"),
        config=CONFIG | {"vocab_file": "../../../etc/passwd"},
    )
    assert identify_folder(plain).semantic == identify_folder(named).semantic


@pytest.mark.parametrize(
    "config",
    [
        {"eos_token": 5},
        {"eos_token": {"content": None}},
        {"added_tokens_decoder": []},
        {"added_tokens_decoder": {"x": {}}},
        {"added_tokens_decoder": {"5": {"content": "a", "lstrip": "yes"}}},
        {"extra_special_tokens": 5},
        {"extra_special_tokens": [[]]},
        {"chat_template": 5},
        {"chat_template": [{"name": "a"}]},
        {"eos_token": "\ud800"},
    ],
    ids=str,
)
def test_a_bad_configuration_is_refused(config: Raw, tmp_path: Path) -> None:
    """A tokenizer_config.json with values of the wrong sort is refused by name."""
    folder = write_folder(tmp_path, content=raw("byte_level"), config=config)
    assert str(folder) in refusal(folder)


@pytest.mark.parametrize("path", ["", "\0", "nowhere", "/dev/null", "\udcff", "x" * 5000])
def test_a_path_that_is_none_is_refused(path: str) -> None:
    """What names no tokenizer is refused, whatever characters it has."""
    with pytest.raises(Unreadable):
        identify_folder(path)


def test_a_message_cannot_steer_a_terminal(tmp_path: Path) -> None:
    """Names from an untrusted folder are escaped in the message."""
    (tmp_path / "\x1b[2J.txt").write_text("")
    assert "\x1b" not in refusal(tmp_path)


def test_an_object_that_panics_is_an_ordinary_error() -> None:
    """A panic of the library inside `identify` arrives as our error, not as a BaseException."""
    content = raw("byte_level") | {"pre_tokenizer": {"type": "FixedLength", "length": 0}}
    with pytest.raises(Unidentifiable, match="panicked"):
        identify(tokenizer(content))


@pytest.mark.slow
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    content=st.one_of(
        st.binary(max_size=200), st.integers(0, len(GOOD)).map(lambda at: GOOD.encode()[:at])
    )
)
def test_any_bytes_are_an_object_or_a_refusal(content: bytes, tmp_path: Path) -> None:
    """Reading never fails in another way than by `Unreadable`."""
    file = tmp_path / "tokenizer.json"
    file.write_bytes(content)
    try:
        outcome: object = read_object(file, inside=tmp_path)[0]
    except Unreadable as error:
        outcome = str(error)
    assert isinstance(outcome, dict) or str(file) in str(outcome)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_value_of_another_sort_is_an_identity_or_an_error(data: st.DataObject) -> None:
    """Whatever stands at a place of tokenizer.json, the outcome is an identity or a
    TokenizerError.
    """
    content = copy.deepcopy(raw(data.draw(st.sampled_from(["byte_level", "wordpiece", "unigram"]))))
    held: Any = content
    while True:
        keys = list(held) if isinstance(held, dict) else list(range(min(len(held), 5)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(held[key], (dict, list)) or not held[key] or data.draw(st.booleans()):
            break
        held = held[key]
    junk = [None, True, 0, -1, 1.5, "", "x", [], {}, [None], {"type": "Sequence"}, 10**18]
    held[key] = data.draw(st.sampled_from(junk))
    try:
        made = tokenizer(content)
    except BaseException as error:
        if type(error).__name__ not in {"Exception", "PanicException"}:
            raise
        return
    try:
        identify(made)
    except TokenizerError:
        return
