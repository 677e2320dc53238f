"""The tokenizer inside a model, written out: the same ids as the one that the model was made from,
or refused.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from harness.hub.layouts.files import llama_model
from harness.tokenizer import Unreadable
from harness.tokenizer.discovery import resolve
from harness.tokenizer.engines.parity import fixed_texts, generated_texts
from harness.tokenizer.formats.gguf import written_out
from harness.tokenizer.gguf.known import SPLITS
from tests.tokenizer.formats.conversion import change, llama_3, of_pieces, of_serialised

ONE_OF_EACH = {split: name for name, split in SPLITS.items()}


def test_the_ids_are_those_of_the_original(tmp_path: Path) -> None:
    """What is written out gives the ids of the tokenizer.json that the model was made from, text by
    text.
    """
    (tmp_path / "model.gguf").write_bytes(of_serialised(llama_3()).bytes())
    ours = Tokenizer.from_str(written_out(tmp_path / "model.gguf").decode())
    theirs = Tokenizer.from_str(json.dumps(llama_3()))
    tokens, special = list(llama_3()["model"]["vocab"]), ["<|begin|>", "<|end|>"]
    texts = [*fixed_texts(), *generated_texts(500, seed=3, tokens=tokens, special=special)]
    assert len(texts) > 500
    for around in (False, True):
        for text in texts:
            expected = theirs.encode(text, add_special_tokens=around).ids
            assert ours.encode(text, add_special_tokens=around).ids == expected, text


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("split", ONE_OF_EACH)
def test_each_split_that_is_known_is_proven(split: str, tmp_path: Path) -> None:
    """What is written out holds, id by id and with its split, what the model holds."""
    (tmp_path / "model.gguf").write_bytes(of_serialised(llama_3(), pre=ONE_OF_EACH[split]).bytes())
    (tmp_path / "tokenizer.json").write_bytes(written_out(tmp_path / "model.gguf"))
    found = resolve(tmp_path / "model.gguf", tokenizer=tmp_path / "tokenizer.json")
    assert found.proven, found.candidates


def test_nothing_is_guessed(tmp_path: Path) -> None:
    """Another kind of vocabulary, a split whose patterns are not known, and a file without a
    tokenizer are refused.
    """
    file = tmp_path / "model.gguf"
    without = of_serialised(llama_3())
    without.keys["tokenizer.ggml.model"] = ("string", "none")
    for made, said in (
        (of_pieces(llama_model(900)), "a model other than byte-level BPE"),
        (of_serialised(llama_3(), pre="deepseek-llm"), 'the split "deepseek-llm"'),
        (of_serialised(llama_3(), pre="new-bpe"), 'the split "new-bpe"'),
        (without, "contains no tokenizer"),
    ):
        file.write_bytes(made.bytes())
        with pytest.raises(Unreadable, match=said):
            written_out(file)


@pytest.mark.slow
@pytest.mark.whole
def test_what_cannot_be_written_is_not_proven(tmp_path: Path) -> None:
    """Two ids with one text cannot both be in a tokenizer.json: what is written out then is another
    tokenizer.
    """
    made = of_serialised(llama_3())
    change(made, "tokens", 6, made.keys["tokenizer.ggml.tokens"][1][5])
    (tmp_path / "model.gguf").write_bytes(made.bytes())
    (tmp_path / "tokenizer.json").write_bytes(written_out(tmp_path / "model.gguf"))
    with pytest.raises(Unreadable, match=r"tokenizer\.json"):
        resolve(tmp_path / "model.gguf", tokenizer=tmp_path / "tokenizer.json")
