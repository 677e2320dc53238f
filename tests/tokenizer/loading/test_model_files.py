"""Tokenizers of GGUF models: fetched from where a model, or a lock, says they are, and used only
when proven.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cli import FAIL, INCONCLUSIVE, PASS, USAGE, main
from harness.cli.tokenizer import ABSENT, DAMAGED, STRICT
from harness.hub.layouts.files import llama_model
from harness.tokenizer.model_files import models_below, repositories
from tests.tokenizer.formats.conversion import llama_3, of_pieces, of_serialised
from tests.tokenizer.loading.hubs import COMMIT, FakeHub

pytestmark = [pytest.mark.slow, pytest.mark.whole]  # each candidate is read in a process of its own


@pytest.fixture
def served() -> Iterator[FakeHub]:
    """A hub whose org/name has the tokenizer of the models here."""
    hub = FakeHub({"tokenizer.json": json.dumps(llama_3()).encode(), "README.md": b"# it\n"})
    yield hub
    hub.close()


def model(
    folder: Path,
    *,
    name: str = "model.gguf",
    origin: str = "",
    key: str = "general.source.repo_url",
) -> Path:
    made = of_serialised(llama_3())
    if origin:
        made.keys[key] = ("string", origin)
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(made.bytes())
    return folder / name


def for_models(hub: FakeHub, folder: Path, *more: str) -> int:
    return main(
        [
            "tokenizer",
            "fetch",
            "--for-models",
            str(folder),
            "--endpoint",
            hub.endpoint,
            "--deadline",
            "9s",
            *more,
        ]
    )


def test_what_a_model_names_is_fetched_and_proven(
    served: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The repository in the model's own keys is fetched once.

    Its tokenizer counts because all of it is the model's.
    """
    folder = tmp_path / "models"
    model(folder, origin="https://huggingface.co/org/name")
    assert for_models(served, folder, "--strict") == PASS
    said = capsys.readouterr().out
    assert f"org/name@{COMMIT}" in said
    assert "ids, their types and their order are the same as the model's" in said
    asked = len(served.paths)
    assert for_models(served, folder, "--strict", "--offline") == PASS
    assert len(served.paths) == asked
    assert main(["tokenizer", "doctor", "--models", str(folder)]) == PASS
    assert " kept, 0 changed, 0 lost" in capsys.readouterr().out


def test_a_name_is_a_place_to_look_and_no_proof(
    served: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the named repository holds is another tokenizer: it is said, not used, and --strict ends
    with 4.
    """
    other = llama_3()
    vocabulary = other["model"]["vocab"]
    first, second = [text for text in vocabulary if len(text) > 2][:2]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    served.files["tokenizer.json"] = json.dumps(other).encode()
    folder = tmp_path / "models"
    model(folder, origin="org/name", key="general.source.huggingface.repository")
    assert for_models(served, folder, "--strict") == STRICT
    said = capsys.readouterr()
    assert f"org/name@{COMMIT}: " in said.err
    assert "only the tokenizer inside it" in said.out
    runs = importlib.util.find_spec("llama_cpp") is not None
    assert main(["tokenizer", "doctor", "--models", str(folder)]) == (
        PASS if runs else INCONCLUSIVE
    )
    assert (
        "loaded by llama.cpp"
        if runs
        else "llama.cpp is not installed; run pip install llama-cpp-python"
    ) in capsys.readouterr().out
    assert main(["tokenizer", "doctor", "--models", str(folder), "--strict"]) == (
        PASS if runs else FAIL
    )


def test_pieces_are_loaded_by_sentencepiece(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A `.model` beside a model, which has no tokenizer.json, is loaded and asked to give texts
    back.
    """
    pytest.importorskip("sentencepiece")
    pieces = llama_model(900)
    (tmp_path / "model.gguf").write_bytes(of_pieces(pieces).bytes())
    (tmp_path / "tokenizer.model").write_bytes(pieces)
    assert main(["tokenizer", "doctor", "--models", str(tmp_path)]) == PASS
    assert "loaded by sentencepiece" in capsys.readouterr().out


def test_a_lock_of_the_folder_says_what_to_fetch(
    served: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that names nothing gets the tokenizer it was locked with.

    Another model is not the lock's.
    """
    folder = tmp_path / "models"
    file = model(folder)
    lock = folder / "tokenizer.lock.json"
    hub = ["--endpoint", served.endpoint, "--deadline", "9s"]
    locked = [
        "tokenizer",
        "lock",
        "org/name",
        "--revision",
        COMMIT,
        "--model",
        str(file),
        "-o",
        str(lock),
        *hub,
    ]
    assert main(locked) == PASS
    assert "1 model files" in capsys.readouterr().out
    cold = ["--cache", str(tmp_path / "cold")]
    assert for_models(served, folder, "--strict", *cold) == PASS
    assert (
        main(["tokenizer", "verify", "org/name", "--lock", str(lock), "--model", str(file), *hub])
        == PASS
    )
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert (
        main(["tokenizer", "verify", "org/name", "--lock", str(lock), "--model", str(file), *hub])
        == FAIL
    )
    assert "has different bytes from the lock's model.gguf" in capsys.readouterr().out
    changed = of_serialised(llama_3())
    changed.keys["tokenizer.ggml.merges"] = (
        "[string]",
        changed.keys["tokenizer.ggml.merges"][1][:-1],
    )
    file.write_bytes(changed.bytes())
    lock.unlink()
    assert main(locked) == FAIL
    assert "cannot prove that " in capsys.readouterr().err
    assert not lock.exists()


def test_what_is_wrong_with_each_model_is_said(
    served: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A damaged model, a hub that fails and a folder without models each end with their class.

    The others go on.
    """
    folder = tmp_path / "models"
    model(folder, name="a.gguf", origin="org/gone")
    (folder / "b.gguf").write_bytes(b"GGUF" + bytes(60))
    model(folder, name="c-00002-of-00003.gguf")
    assert [path.name for path in models_below(folder)] == ["a.gguf", "b.gguf"]
    served.replace["/main"] = served.replace["/nothing"] = lambda handler: handler.send_error(404)
    assert for_models(served, folder) == DAMAGED
    said = capsys.readouterr()
    assert "org/gone, which the model names" in said.err
    assert "b.gguf" in said.err
    assert main(["tokenizer", "doctor", "--models", str(folder)]) == FAIL
    (tmp_path / "empty").mkdir()
    assert for_models(served, tmp_path / "empty") == USAGE
    assert for_models(served, tmp_path / "nowhere") == USAGE
    assert main(["tokenizer", "resolve", str(folder / "missing.gguf")]) == ABSENT


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("org/name", "org/name"),
        ("https://huggingface.co/org/name", "org/name"),
        ("https://huggingface.co/org/name/tree/main", "org/name"),
        ("https://example.com/org/name", None),
        ("../../etc", None),
        ("a sentence about org/name", None),
        ("file:///etc/passwd", None),
    ],
)
def test_only_names_are_repositories(tmp_path: Path, value: str, name: str | None) -> None:
    """A key that holds no repository of the hub is passed over: a file may say anything of where it
    is from.
    """
    assert list(repositories(model(tmp_path / "models", origin=value))) == ([name] if name else [])
