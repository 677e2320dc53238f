"""The names that the guide of BitNet.rs gives to commands: each runs the command that does what it
promises.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli import PASS, USAGE, main
from harness.cli.tokenizer import DAMAGED, STRICT
from tests.tokenizer.gguf.writing import bpe


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "model.gguf").write_bytes(bpe().bytes())
    return tmp_path / "model.gguf"


def test_the_guides_names_run(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """compat-check and inspect-gguf are gguf's own commands.

    Crossval asks for what it needs, or for BITNET_GGUF.
    """
    assert main(["inspect-gguf", str(model)]) == PASS
    assert "general.architecture" in capsys.readouterr().out
    assert main(["compat-check", str(model), "--show-kv", "--kv-limit", "20", "--strict"]) == PASS
    said = capsys.readouterr().out
    assert "general.architecture" in said
    assert said.endswith("no problems found\n")
    model.write_bytes(model.read_bytes()[:200])
    assert main(["compat-check", str(model)]) == DAMAGED
    monkeypatch.delenv("BITNET_GGUF", raising=False)
    assert main(["crossval", "--tokenizer-only"]) == USAGE
    assert "BITNET_GGUF" in capsys.readouterr().err
    monkeypatch.setenv("BITNET_GGUF", str(model))
    assert main(["crossval", "--tokenizer-only", "--texts", "9"]) == DAMAGED
    assert (
        main(["pre-download-tokenizers", "--model-dir", str(model.parent), "--offline"]) == DAMAGED
    )
    assert main(["crossval"]) == USAGE


def test_the_guides_verify_names_the_command_for_models(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`verify` is for reports; with --model it ends with a sentence that names what looks at
    models.
    """
    for words in (["--model", str(model), "--allow-mock"], ["--allow-mock", f"--model={model}"]):
        with pytest.raises(SystemExit) as caught:
            main(["verify", *words])
        assert caught.value.code == USAGE
        assert f"rankproof tokenizer doctor --models {model}\n" in capsys.readouterr().err


@pytest.mark.parametrize(("value", "code"), [("1", STRICT), ("no", PASS), ("maybe", USAGE)])
def test_resolve_reads_the_guides_variable(
    model: Path, monkeypatch: pytest.MonkeyPatch, value: str, code: int
) -> None:
    """BITNET_STRICT_TOKENIZERS is --strict where it is on, nothing where it is off, and an error
    else.
    """
    monkeypatch.setenv("BITNET_STRICT_TOKENIZERS", value)
    monkeypatch.setenv("BITNET_CACHE_DIR", str(model.parent / "cache"))
    assert main(["tokenizer", "resolve", str(model)]) == code
