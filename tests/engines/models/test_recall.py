"""The recall model knows its table, and what it answers is nobody else's."""

from __future__ import annotations

import lzma
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.engines.models import MODELS, ModelError, files, write
from harness.engines.models.recall import (
    ANSWER,
    FILLER,
    KEYS,
    LONGEST_FILLER,
    asked,
    key_of,
    prompt_of,
    value_of,
)

SMALLEST = 5.0


def test_every_answer_is_one_keys_own() -> None:
    """Keys and values are all different, and filler holds none of a key's tokens."""
    assert len({key_of(number) for number in range(KEYS)}) == KEYS
    assert [asked(value_of(number)) for number in range(KEYS)] == [
        [number] for number in range(KEYS)
    ]
    assert not set(FILLER) & {token for number in range(KEYS) for token in key_of(number)}
    assert len(prompt_of(7, filler=4)) == len(prompt_of(7)) + 4


def test_weights_that_are_not_the_pinned_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One changed byte of the weights, or of what they are packed in, and no model is made of
    them.
    """
    path, digest = MODELS["recall"].pinned or (tmp_path, "")
    packed = bytearray(path.read_bytes())
    data = bytearray(lzma.decompress(packed))
    assert len(data) < 3 * 2**20
    data[-1] ^= 1
    packed[len(packed) // 2] ^= 1
    other = tmp_path / "model.safetensors.xz"
    monkeypatch.setitem(MODELS, "recall", replace(MODELS["recall"], pinned=(other, digest)))
    for content in (lzma.compress(data), bytes(packed), bytes(packed[:-9]), b""):
        other.write_bytes(content)
        with pytest.raises(ModelError, match="differ from the pinned weights"):
            files("recall")


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_key_is_known_by_a_margin(tmp_path: Path, dtype: str) -> None:
    """Each of three tokens of each of 256 values leads by more than 5, wherever in the prompt the
    key stands.
    """
    import torch
    from transformers import AutoModelForCausalLM

    auto: Any = AutoModelForCausalLM
    model = auto.from_pretrained(write("recall", tmp_path / "recall"), dtype=getattr(torch, dtype))
    for filler in (0, LONGEST_FILLER):
        ids = torch.tensor(
            [[*prompt_of(number, filler=filler), *value_of(number)] for number in range(KEYS)]
        )
        with torch.no_grad():
            logits = model(ids[:, :-1]).logits[:, -ANSWER:].float()
        wanted = ids[:, -ANSWER:, None]
        right, others = (
            logits.gather(-1, wanted)[..., 0],
            logits.scatter(-1, wanted, float("-inf")).amax(-1),
        )
        assert float((right - others).min()) > SMALLEST
