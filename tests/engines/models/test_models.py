"""The models that are made here: the same bytes everywhere, whole in the cache, and loaded by those
who shall.
"""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness.engines.models import (
    MODELS,
    ModelError,
    cached,
    describe,
    digest,
    draw,
    files,
    safetensors,
    write,
)
from harness.engines.models.catalogue import EXPERTS, HEADS, KV_HEADS, DrawnTensor
from harness.engines.models.vocabulary import SIZE
from harness.forms.digest import fold, sha256_of
from tests.engines.models.pinned import DIGESTS


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_the_same_bytes_everywhere(name: str) -> None:
    """Its digest is pinned: another one is another model, and old reports could not be
    reproduced.
    """
    assert digest(name) == DIGESTS[name]


def test_numbers_are_ours() -> None:
    """They follow from name and seed alone, differ from tensor to tensor, and deviate as asked."""
    tensor = DrawnTensor(shape=(100, 100), deviation=0.5, middle=1.0)
    one = draw("a", tensor, seed=1)
    assert (one == draw("a", tensor, seed=1)).all()
    assert (one != draw("b", tensor, seed=1)).any()
    assert (one != draw("a", tensor, seed=2)).any()
    assert one.dtype.name == "float32"
    assert abs(float(one.mean()) - 1.0) < 0.02
    assert abs(float(one.std()) - 0.5) < 0.01
    assert float(draw("a", DrawnTensor(shape=(2,), deviation=0.5), seed=1)[0]) == 0.3744213581085205


def test_a_file_of_ours_is_read_by_the_library(tmp_path: Path) -> None:
    """safetensors reads back every array that we wrote."""
    from safetensors.numpy import load_file

    arrays = {
        name: draw(name, DrawnTensor(shape=shape, deviation=1.0), seed=1)
        for name, shape in {"b": (3, 5), "a": (7,)}.items()
    }
    (tmp_path / "x.safetensors").write_bytes(safetensors(arrays))
    found = load_file(tmp_path / "x.safetensors")
    assert found.keys() == arrays.keys()
    assert all((found[name] == arrays[name]).all() for name in arrays)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "llama-2-kv"])
def test_two_three_and_four_ranks_are_legal(name: str) -> None:
    """All that is split is divisible by 12, and there is a layer for each of four ranks."""
    config = MODELS[name].config()
    sizes = [
        config.get(key, 12)
        for key in ("num_key_value_heads", "n_head", "num_local_experts", "num_experts")
    ]
    sizes += [
        config.get(key, 12)
        for key in ("hidden_size", "n_embd", "intermediate_size", "moe_intermediate_size")
    ]
    assert {size % 12 for size in (*sizes, SIZE, HEADS, KV_HEADS, EXPERTS)} == {0}
    assert config.get("num_hidden_layers", config.get("n_layer")) >= 4


def test_a_cached_model_is_made_once_and_checked(tmp_path: Path) -> None:
    """The second one finds what the first one made.

    A folder that was changed, or cut off, is made anew.
    """
    place = cached("llama", cache=tmp_path)
    before = (place / "config.json").stat().st_mtime_ns
    assert cached("llama", cache=tmp_path) == place
    assert (place / "config.json").stat().st_mtime_ns == before
    assert fold({path.name: sha256_of(path) for path in place.iterdir()}) == DIGESTS["llama"]
    for name in ("config.json", "tokenizer.json"):
        (place / name).write_text("{}")
        again = cached("llama", cache=tmp_path)
        assert fold({path.name: sha256_of(path) for path in again.iterdir()}) == DIGESTS["llama"]


@pytest.mark.slow
def test_a_maker_that_is_killed_leaves_nothing_that_counts(tmp_path: Path) -> None:
    """Killed before the manifest is written, it leaves a folder that nobody takes for a model."""
    code = (
        "import os, signal, sys; from pathlib import Path; import harness.engines.models as m\n"
        "m.manifest.encode = lambda _digests: os.kill(os.getpid(), signal.SIGKILL)\n"
        "m.cached('llama', cache=Path(sys.argv[1]))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert any(tmp_path.rglob("model.safetensors"))
    place = cached("llama", cache=tmp_path)
    assert fold({path.name: sha256_of(path) for path in place.iterdir()}) == DIGESTS["llama"]


@pytest.mark.slow
def test_makers_at_the_same_time_agree(tmp_path: Path) -> None:
    """Four processes that want a model at once all get the whole of it."""
    code = (
        "import sys, pathlib; from harness.engines.models import cached; "
        "print(cached('gpt2', cache=pathlib.Path(sys.argv[1])))"
    )
    makers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    places = {maker.communicate()[0].strip() for maker in makers}
    assert [maker.returncode for maker in makers] == [0] * 4
    (place,) = places
    assert fold({path.name: sha256_of(path) for path in Path(place).iterdir()}) == DIGESTS["gpt2"]


def test_what_cannot_be_made_is_said(tmp_path: Path) -> None:
    """An unknown name and a folder that holds something are named, and nothing is written over."""
    with pytest.raises(ModelError, match="'lama': this model does not exist; the models are llama"):
        cached("lama", cache=tmp_path)
    with pytest.raises(ModelError, match="this model does not exist"):
        files("lama")
    (tmp_path / "kept").write_text("mine")
    with pytest.raises(ModelError, match="already exists"):
        write("llama", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_description_is_of_the_files(tmp_path: Path) -> None:
    """Architecture, sizes, parameters and the digest come from the folder.

    One that is damaged is named.
    """
    folder = write("minimax", tmp_path / "model")
    told = describe(folder)
    assert (told["architecture"], told["layers"], told["KV heads"], told["experts"]) == (
        "MiniMaxM2ForCausalLM",
        4,
        12,
        12,
    )
    assert (told["tensors"], told["head"], told["sha256"]) == (187, "untied", DIGESTS["minimax"])
    data = (folder / "model.safetensors").read_bytes()
    assert told["parameters"] * 4 == len(data) - 8 - int.from_bytes(data[:8], "little")
    (folder / "model.safetensors").write_bytes(data[:-4])
    with pytest.raises(ModelError, match=r"model\.safetensors is truncated: it has \d+ bytes"):
        describe(folder)
    (folder / "model.safetensors").write_bytes(data[:100])
    with pytest.raises(ModelError, match=r"model\.safetensors is not a readable safetensors file"):
        describe(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="contains no safetensors files"):
        describe(folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(ModelError, match="is not a JSON object"):
        describe(folder)


def test_experts_are_counted_by_whatever_name_they_have(tmp_path: Path) -> None:
    """GLM's configuration calls them routed ones: a description said that it has none."""
    description = describe(write("glm4-moe", tmp_path / "model"))
    assert (description["experts"], description["heads"]) == (EXPERTS, HEADS)


@pytest.mark.slow
def test_both_tokenizers_are_one(tmp_path: Path) -> None:
    """transformers and mlx-lm give the same ids, every text returns, and the chat template is
    there.
    """
    from mlx_lm.utils import load_tokenizer
    from transformers import AutoTokenizer

    folder = write("qwen2", tmp_path / "model")
    theirs, mlx = AutoTokenizer.from_pretrained(folder), load_tokenizer(folder)
    # A class that adds a token of its own would give ids that no embedding has.
    assert len(theirs) == SIZE
    for text in ("the quick brown fox", "héllo 世界 🙂", " two  spaces\n"):
        assert theirs.encode(text) == mlx.encode(text)
        assert theirs.decode(theirs.encode(text)) == text
    shown = theirs.apply_chat_template(
        [{"role": "user", "content": "hello"}], tokenize=False, add_generation_prompt=True
    )
    assert shown == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"


def test_what_a_configuration_says_is_described_as_it_says_it(tmp_path: Path) -> None:
    """A list of heads, one for each stage of an encoder, stays a list."""
    folder = write("llama", tmp_path / "model")
    config = json.loads((folder / "config.json").read_bytes())
    config["num_attention_heads"] = [1, 2, 5, 8]
    (folder / "config.json").write_text(json.dumps(config))
    assert describe(folder)["heads"] == [1, 2, 5, 8]


def test_a_file_that_is_a_link_to_nothing_is_named_with_what_to_do(tmp_path: Path) -> None:
    """An interrupted download leaves such a link in the hub's cache."""
    folder = write("llama", tmp_path / "model")
    (folder / "other.safetensors").symlink_to("blobs/missing")
    with pytest.raises(ModelError, match=r"other\.safetensors is not .* fetch it again"):
        describe(folder)


@pytest.mark.slow
def test_the_command_lists_makes_and_describes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`rankproof models` does the three, and says what it cannot do."""
    from harness.cli import main

    assert main(["models", "list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(MODELS)
    assert main(["models", "make", "llama", "--out", str(tmp_path / "made")]) == 0
    capsys.readouterr()
    assert main(["models", "describe", str(tmp_path / "made"), "--json"]) == 0
    printed = capsys.readouterr()
    assert "trying mlx-pipeline with the files of made (engine 6 of 6)" in printed.err
    told = json.loads(printed.out)
    assert told["sha256"] == DIGESTS["llama"]
    assert told["engines"]["mlx-pipeline"]["2"].endswith(
        "has no pipeline for llama; use mlx-tensor"
    )
    assert main(["models", "make", "lama", "--out", str(tmp_path / "other")]) == 64
    assert main(["models", "describe", str(tmp_path)]) == 64
    assert "no readable config.json" in capsys.readouterr().err


def test_what_takes_long_is_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of `models describe` is named on standard error at once, and again with its time while
    it goes on.
    """
    from harness.cli import models

    said: list[str] = []
    twice = threading.Event()

    class Heard(io.StringIO):
        def write(self, text: str) -> int:
            said.append(text)
            if " s\n" in "".join(said):
                twice.set()
            return len(text)

    monkeypatch.setattr(models, "EVERY", 0.001)
    monkeypatch.setattr("sys.stderr", Heard())
    with models._said("trying hf-single"):
        assert said[0] == "rankproof models: trying hf-single"
        assert twice.wait(30)
    assert "rankproof models: trying hf-single: 0 s" in "".join(said)
