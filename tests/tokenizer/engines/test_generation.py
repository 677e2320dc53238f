"""`rankproof tokenizer infer`: a GGUF in, tokens of its own weights out, or the reason why not."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from harness.cli import FAIL, PASS, USAGE, main
from harness.cli.infer import ENGINE
from harness.cli.tokenizer import STRICT
from tests.tokenizer.formats.conversion import llama_3, of_serialised
from tests.tokenizer.gguf_models import tiny_llama, tokenizer_of_it

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("gguf") is None, reason="gguf is not installed"),
]


def infer(model: Path, *more: str) -> int:
    return main(["tokenizer", "infer", "--model", str(model), "--prompt", "hello there", *more])


@pytest.mark.whole
def test_the_tokens_are_those_of_the_model_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ids from the GGUF file are those that the model it was written from gives.

    The device is said both ways.
    """
    import torch

    model = tmp_path / "tiny.gguf"
    whole = tiny_llama(model)
    tokenizer_of_it(tmp_path)
    monkeypatch.setenv("BITNET_FORCE_CPU", "1")
    assert infer(model, "--max-tokens", "8", "--json") == PASS
    row = json.loads(capsys.readouterr().out.splitlines()[-1])
    ids = torch.tensor([row["prompt_ids"]])
    with torch.inference_mode():
        expected = whole.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=8
        )
    assert row["ids"] == expected[0, ids.shape[1] :].tolist()
    assert (row["asked"], row["device"], row["why"]) == (
        "cpu",
        "cpu",
        "as requested (BITNET_FORCE_CPU=1)",
    )
    monkeypatch.setenv("BITNET_FORCE_CPU", "0")
    if not torch.cuda.is_available():
        assert infer(model, "--device", "cuda") == ENGINE
        assert "device cuda was requested, but this machine has only cpu" in capsys.readouterr().err


@pytest.mark.whole
def test_weights_that_are_missing_are_not_made_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file without one of its layers' weights is refused: transformers fills it with random
    numbers and goes on.
    """
    tiny_llama(tmp_path / "tiny.gguf", without="blk.1.attn_q.weight")
    tokenizer_of_it(tmp_path)
    assert infer(tmp_path / "tiny.gguf") == ENGINE
    assert (
        "has no model.layers.1.self_attn.q_proj.weight, which transformers would initialize at random"
        in capsys.readouterr().err
    )


@pytest.mark.whole
def test_llama_cpp_gives_the_tokens_of_the_model_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What transformers refuses llama.cpp runs: it is named, and gives the model's own ids, if no
    weight is missing.
    """
    pytest.importorskip("llama_cpp")
    import torch

    model = tmp_path / "tiny.gguf"
    whole = tiny_llama(model, frequencies=True)
    tokenizer_of_it(tmp_path)
    assert infer(model, "--engine", "transformers") == ENGINE
    assert "leaves rope_freqs.weight out" in capsys.readouterr().err
    assert infer(model, "--max-tokens", "8", "--json") == PASS
    row = json.loads(capsys.readouterr().out.splitlines()[-1])
    ids = torch.tensor([row["prompt_ids"]])
    with torch.inference_mode():
        expected = whole.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=8
        )
    assert row["ids"] == expected[0, ids.shape[1] :].tolist()
    assert row["engine"].startswith("llama.cpp")
    assert "transformers was not used" in row["remarks"][0]
    assert (row["asked"], row["device"], row["why"]) == (
        "auto",
        "cpu",
        "llama.cpp runs only on the cpu",
    )
    assert infer(model, "--engine", "llama.cpp", "--device", "cuda") == ENGINE
    assert (
        "device cuda was requested, but llama.cpp runs only on the cpu" in capsys.readouterr().err
    )
    tiny_llama(model, without="blk.1.attn_q.weight")
    assert infer(model, "--engine", "llama.cpp") == ENGINE
    assert "blk.1.attn_q.weight" in capsys.readouterr().err


@pytest.mark.whole
def test_the_tokenizer_inside_a_model_is_offered_and_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that names no repository is run with its own tokenizer, which gives the ids of the
    one it came from.
    """
    model = tmp_path / "models" / "tiny.gguf"
    model.parent.mkdir()
    tiny_llama(model)
    assert infer(model) == STRICT
    assert "--tokenizer inside uses it" in capsys.readouterr().err
    rows = []
    for given in ("inside", str(tokenizer_of_it(tmp_path / "its"))):
        assert infer(model, "--tokenizer", given, "--max-tokens", "4", "--json") == PASS
        rows.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
    assert rows[0]["tokenizer"] == "from inside the model"
    assert [rows[0][key] for key in ("prompt_ids", "ids", "text")] == [
        rows[1][key] for key in ("prompt_ids", "ids", "text")
    ]


def test_nothing_stands_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a tokenizer that is proven, with another one, with a mock, or for an unknown engine
    nothing is run.
    """
    model = tmp_path / "model.gguf"
    made = of_serialised(llama_3())
    model.write_bytes(made.bytes())
    assert infer(model) == STRICT
    assert "no tokenizer is proven to belong to the model" in capsys.readouterr().err
    other = llama_3()
    other["model"]["merges"] = other["model"]["merges"][:-1]
    (tmp_path / "other.json").write_text(json.dumps(other))
    assert infer(model, "--tokenizer", str(tmp_path / "other.json")) == FAIL
    assert infer(model, "--allow-mock") == USAGE
    assert (
        infer(model, "--tokenizer", "https://huggingface.co/org/name/resolve/main/tokenizer.json")
        == USAGE
    )
    made.keys["general.architecture"] = ("string", "bitnet-b1.58")
    model.write_bytes(made.bytes())
    assert infer(model, "--tokenizer", str(tokenizer_of_it(tmp_path / "its"))) == ENGINE
    said = capsys.readouterr().err
    assert 'its architecture is "bitnet-b1.58"' in said
    assert "tokenizer parity" in said
    if importlib.util.find_spec("llama_cpp") is None:
        assert "; llama.cpp is not installed; run pip install llama-cpp-python" in said
        assert infer(model, "--tokenizer", str(tmp_path / "its"), "--engine", "llama.cpp") == ENGINE
