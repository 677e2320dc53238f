"""The names that the guide of BitNet.rs gives to commands: each runs the command that does what it promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli import PASS, USAGE, main
from harness.cli.tokenizer import DAMAGED
from tests.tokenizer.gguf.writing import bpe


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "model.gguf").write_bytes(bpe().bytes())
    return tmp_path / "model.gguf"


def test_the_guides_names_run(model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """compat-check and inspect-gguf are gguf's own commands; crossval asks for what it needs, or for BITNET_GGUF."""
    assert main(["inspect-gguf", str(model)]) == PASS
    assert "general.architecture" in capsys.readouterr().out
    assert main(["compat-check", str(model), "--show-kv", "--kv-limit", "20", "--strict"]) == PASS
    said = capsys.readouterr().out
    assert "general.architecture" in said
    assert said.endswith("nothing is wrong\n")
    model.write_bytes(model.read_bytes()[:200])
    assert main(["compat-check", str(model)]) == DAMAGED
    monkeypatch.delenv("BITNET_GGUF", raising=False)
    assert main(["crossval", "--tokenizer-only"]) == USAGE
    assert "BITNET_GGUF" in capsys.readouterr().err
    monkeypatch.setenv("BITNET_GGUF", str(model))
    assert main(["crossval", "--tokenizer-only", "--texts", "9"]) == DAMAGED
    assert main(["pre-download-tokenizers", "--model-dir", str(model.parent), "--offline"]) == DAMAGED
    assert main(["crossval"]) == USAGE
