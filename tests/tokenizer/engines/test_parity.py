"""Engines in processes of their own: the same ids on the same texts, the shortest text that
differs, golden files.
"""

from __future__ import annotations

import http.server
import json
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from harness.cli import main
from harness.hub.layouts.files import llama_model
from harness.tokenizer.engines import Engine, EngineFailed, engine_of
from harness.tokenizer.engines.parity import (
    changed_ids,
    fixed_texts,
    generated_texts,
    parity,
    read_golden,
    record_golden,
    shortest,
    write_golden,
)
from harness.tokenizer.formats import sentencepiece_form
from harness.tokenizer.problem import Absent
from tests.tokenizer.formats.conversion import llama_3, of_pieces, of_serialised
from tests.tokenizer.formats.test_formats import with_merges


def write_json(folder: Path, name: str, content: Any) -> str:
    (folder / name).write_text(json.dumps(content))
    return str(folder / name)


def by_merges() -> Any:
    """A tokenizer that goes by its merges alone."""
    content = llama_3()
    content["model"]["ignore_merges"] = False
    return content


def without_a_merge() -> Any:
    """The same, which does not make its last token any more."""
    content = by_merges()
    del content["model"]["merges"][-1]
    return content


def test_a_seed_says_the_texts_again() -> None:
    """The same seed gives the same texts, another one gives others, and none is cut in half."""
    made = generated_texts(300, seed=7, tokens=["ab", "c"], special=["<s>"])
    assert made == generated_texts(300, seed=7, tokens=["ab", "c"], special=["<s>"])
    assert made != generated_texts(300, seed=8, tokens=["ab", "c"], special=["<s>"])
    assert all(
        letter < "\ud800" or letter > "\udfff"
        for text in (*made, *fixed_texts())
        for letter in text
    )


@pytest.mark.parametrize(
    ("text", "wanted", "left"),
    [
        ("aaaa x bbbb y cccc", "xy", "xy"),
        ("x" * 100, "x", "x"),
        ("-" * 64 + "é", "é", "é"),
        ("ab" * 40, "bb", "bb"),
    ],
)
def test_a_text_is_shortened_until_nothing_can_go(text: str, wanted: str, left: str) -> None:
    """What is left differs, and without any one of its characters it does not."""

    def differ(texts: Sequence[str]) -> list[bool]:
        found = []
        for one in texts:
            rest = iter(one)
            found.append(all(letter in rest for letter in wanted))
        return found

    assert shortest(text, differ) == left


def test_an_engine_is_chosen_by_what_the_file_is(tmp_path: Path) -> None:
    """A file that no engine runs here, and one that is not there, are refused with the reason."""
    (tmp_path / "tekken.json").write_text("{}")
    (tmp_path / "a.bin").write_bytes(b"0123")
    (tmp_path / "a.model").write_bytes(b"0123")
    for name, said in (
        ("tekken.json", "no engine supports tekken files"),
        ("a.bin", "no engine supports this file"),
    ):
        with pytest.raises(EngineFailed, match=said):
            engine_of(str(tmp_path / name))
    with pytest.raises(Absent):
        engine_of(str(tmp_path / "b.model"))
    assert engine_of(str(tmp_path / "a.model")) == "sentencepiece"
    assert engine_of("http://127.0.0.1:1/tokenize") == "server"


@pytest.mark.whole
def test_one_lost_merge_is_found_and_shortened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tokenizer without one of the merges differs on a text of two characters, and from itself on
    nothing.
    """
    whole, changed = (
        write_json(tmp_path, "a.json", by_merges()),
        write_json(tmp_path, "b.json", without_a_merge()),
    )
    assert main(["tokenizer", "parity", whole, changed, "--texts", "300"]) == 1
    # The last token is a byte of one character and two of the next.
    assert "    'は晴'\n" in capsys.readouterr().out
    assert main(["tokenizer", "parity", whole, whole, "--texts", "300"]) == 0
    assert "in the modes plain, special, around (seed 0)" in capsys.readouterr().out
    (tmp_path / "corpus.txt").write_bytes(b"\xff")
    assert (
        main(["tokenizer", "parity", whole, whole, "--corpus", str(tmp_path / "corpus.txt")]) == 5
    )
    assert main(["tokenizer", "parity", whole, str(tmp_path / "no.json")]) == 3


@pytest.mark.whole
def test_a_space_at_the_beginning_is_what_metaspace_loses(tmp_path: Path) -> None:
    """sentencepiece and a tokenizer.json that puts no space before a space differ on the space
    alone.
    """
    model = tmp_path / "tokenizer.model"
    model.write_bytes(llama_model(900))
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False}
    made = with_merges(sentencepiece_form(model, model.read_bytes())) | {
        "normalizer": None,
        "pre_tokenizer": space,
    }
    with Engine(str(model)) as first, Engine(write_json(tmp_path, "made.json", made)) as second:
        found = parity(first, second, count=200)
    assert found.modes == ("plain",)
    assert found.mismatch is not None
    assert found.mismatch.text == " "


class Tokenize(http.server.BaseHTTPRequestHandler):
    """`/tokenize` as servers have it, on the tokenizer of the server that holds this."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        made: Tokenizer = self.server.tokenizer  # type: ignore[attr-defined]
        ids = made.encode(asked["content"], add_special_tokens=asked["add_special"]).ids
        body = json.dumps({"tokens": ids}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[http.server.ThreadingHTTPServer]:
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Tokenize)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.mark.whole
def test_a_server_is_asked_like_a_file(server: Any, tmp_path: Path) -> None:
    """A server with the same tokenizer agrees; one that lost a merge is found.

    One that is gone is said.
    """
    file = write_json(tmp_path, "a.json", by_merges())
    address = f"http://127.0.0.1:{server.server_port}"
    for content, differs in ((by_merges(), False), (without_a_merge(), True)):
        server.tokenizer = Tokenizer.from_str(json.dumps(content))
        with Engine(file) as first, Engine(address) as second:
            found = parity(first, second, count=10)
        assert found.modes == ("special", "around")
        assert (found.mismatch is not None) == differs
    with pytest.raises(EngineFailed):
        Engine("http://127.0.0.1:1")


@pytest.mark.whole
def test_an_engine_that_dies_is_said(tmp_path: Path) -> None:
    """An engine that is killed, that does not load or that gives no answer in time is EngineFailed,
    never parity.
    """
    file = write_json(tmp_path, "a.json", llama_3())
    with Engine(file) as engine:
        os.kill(engine._process.pid, signal.SIGKILL)
        with pytest.raises(EngineFailed, match="was killed by SIGKILL"):
            engine.encode(["a"], "plain")
    with Engine(file) as engine:
        # A real-time signal: Python's enumeration of signals has no name for it.
        os.kill(engine._process.pid, signal.SIGRTMIN + 3)
        with pytest.raises(EngineFailed, match=r"was killed by SIGRTMIN\+3"):
            engine.encode(["a"], "plain")
    with Engine(file) as engine:
        os.kill(engine._process.pid, signal.SIGSTOP)
        engine._seconds = 1
        with pytest.raises(EngineFailed, match="did not answer within 1 s"):
            engine.encode(["a"], "plain")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(EngineFailed, match="not JSON"):
        Engine(str(tmp_path / "bad.json"))


@pytest.mark.whole
def test_a_contract_holds_until_an_id_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A golden file is kept by the tokenizer that made it and broken by one that lost a merge,
    which is named.
    """
    golden = str(tmp_path / "golden.json")
    whole, changed = (
        write_json(tmp_path, "a.json", by_merges()),
        write_json(tmp_path, "b.json", without_a_merge()),
    )
    assert (
        main(["tokenizer", "contract", whole, "--golden", golden, "--record", "--texts", "50"]) == 0
    )
    assert main(["tokenizer", "contract", whole, "--golden", golden]) == 0
    capsys.readouterr()
    assert main(["tokenizer", "contract", changed, "--golden", golden]) == 1
    assert "have ids that differ from those of tokenizers" in capsys.readouterr().out
    assert main(["tokenizer", "contract", whole, "--golden", golden, "--record"]) == 64
    contract = read_golden(Path(golden))
    (tmp_path / "a.model").write_bytes(llama_model(700))
    with Engine(str(tmp_path / "a.model")) as pieces:
        with pytest.raises(EngineFailed, match="does not support the encoding mode"):
            changed_ids(pieces, contract)
        write_golden(record_golden(pieces, count=5), tmp_path / "pieces.json")
        assert changed_ids(pieces, read_golden(tmp_path / "pieces.json")) == []
    Path(golden).write_text(Path(golden).read_text().replace('"ids":[', '"ids":[-1,', 1))
    assert main(["tokenizer", "contract", whole, "--golden", golden]) == 5


@pytest.mark.whole
def test_llama_cpp_agrees_with_what_a_file_was_made_from(tmp_path: Path) -> None:
    """llama.cpp, where it is installed, gives the ids of the tokenizer.json and of the model
    file.
    """
    pytest.importorskip("llama_cpp")
    (tmp_path / "bpe.gguf").write_bytes(of_serialised(llama_3()).bytes())
    (tmp_path / "a.model").write_bytes(llama_model(900))
    (tmp_path / "spm.gguf").write_bytes(of_pieces(llama_model(900)).bytes())
    for model, other in (
        ("bpe.gguf", write_json(tmp_path, "a.json", llama_3())),
        ("spm.gguf", tmp_path / "a.model"),
    ):
        with Engine(str(tmp_path / model)) as first, Engine(str(other)) as second:
            found = parity(first, second, count=300)
        assert found.mismatch is None


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize(
    "kind", ["a key twice", "two ids with one token", "a link out", "an unknown split", "cut"]
)
@pytest.mark.parametrize("records", [True, False])
def test_a_contract_takes_what_resolve_takes(kind: str, records: bool, tmp_path: Path) -> None:
    """A tokenizer that `resolve` refuses is neither recorded nor held against a golden file, though
    engines load it.
    """
    golden = tmp_path / "golden.json"
    good = write_json(tmp_path, "good.json", llama_3())
    command = ["tokenizer", "contract", "--golden", str(golden), "--texts", "1"]
    assert main([*command, good, "--record"]) == 0
    text = json.dumps(llama_3())
    bad = tmp_path / "bad.json"
    bad.write_text(text)
    if kind == "a key twice":
        bad.write_text(text[:-1] + ', "version": "1.0"}')
    elif kind == "two ids with one token":
        bad.write_text(text.replace('"vocab": {', '"vocab": {"a": 9999, ', 1))
    elif kind == "a link out":
        bad = tmp_path / "folder"
        bad.mkdir()
        (bad / "tokenizer.json").symlink_to(good)
    else:
        bad = tmp_path / "bad.gguf"
        made = of_serialised(llama_3(), pre="llama-bpe" if kind == "cut" else "new-bpe")
        bad.write_bytes(made.bytes()[: -1 if kind == "cut" else None])
    if records:
        golden.unlink()
        command.append("--record")
    assert main([*command, str(bad)]) == 5
    assert golden.exists() != records
