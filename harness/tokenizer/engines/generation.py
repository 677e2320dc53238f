"""A model file continues a prompt: real tokens from the file's own weights, or the reason why not.

Never a stand-in.

The first engine is transformers, which turns a GGUF file into the model that it came from. What it
would leave out without a word is looked for before (scaled rotary embeddings, types of tensors) and
afterwards (weights that it made up). What it refuses goes to llama.cpp, where llama-cpp-python is
installed: in a process with limits, on the CPU, with the ids of the tokenizer that was proven, and
not of its own.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness.forms.distribution import missing
from harness.forms.text import listed, quoted
from harness.tokenizer.backend import view
from harness.tokenizer.engines import Engine, EngineFailed
from harness.tokenizer.files import READ, read_path
from harness.tokenizer.gguf.reader import Tensor, opened
from harness.tokenizer.loading.library import captured, versions
from harness.tokenizer.problem import TokenizerError, Unreadable

Device = Literal["auto", "cpu", "cuda", "mps"]
Chosen = Literal["auto", "transformers", "llama.cpp"]
# Architectures whose continuation was compared with that of the model that the file was made from,
# in our tests.
COMPARED = frozenset({"llama"})
# That llama.cpp may take to load, and again to run.
_SECONDS = 3600
# Bytes of address space that llama.cpp may take beside the file, mapped and repacked.
_BESIDE_WEIGHTS = 8 << 30
_PART = re.compile(r"-0+1-of-(\d+)\.gguf")
_DROPPED = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")


class EngineRefused(TokenizerError):
    """No engine here can run this file on this device; the message says why, and what to do."""


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """A prompt's continuation by a model.

    Attributes:
        prompt_ids: what it was given.
        ids: what it gave, greedily.
        text: the same as text.
        engine: name and version.
        asked, device: the device that was asked for, and that of every weight while it ran.
        why: how the device was chosen.
        load_seconds, run_seconds: on the clock.
        remarks: what a reader should know.
    """

    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    text: str
    engine: str
    asked: Device
    device: str
    why: str
    load_seconds: float
    run_seconds: float
    remarks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Ran:
    """One run of an engine; fields as in `Continuation`."""

    ids: list[int]
    engine: str
    device: str
    why: str
    load_seconds: float
    run_seconds: float
    remarks: tuple[str, ...]


# What is run, with which proven bytes, and where: each comes from an option of `rankproof tokenizer
# infer`.
def continued(
    model: Path,
    *,
    tokenizer: Path,
    read: Mapping[str, str],
    prompt: str,
    most: int,
    device: Device = "auto",
    reason: str = "",
    engine: Chosen = "auto",
) -> Continuation:
    """Continue a prompt, taking the likeliest token each time.

    Args:
        model: a GGUF file.
        tokenizer: a tokenizer.json that is proven to be the model's, or a folder that holds one,
            which is read with all that belongs to it.
        read: sha256 by path of the bytes that were proven; no others are used.
        prompt: the text.
        most: tokens to make at the most; fewer where the model ends by itself.
        device: where; `auto` takes a GPU where there is one.
        reason: who asked for that device, for the answer.
        engine: which one; `auto` takes transformers, and llama.cpp for what that refuses.

    Raises:
        EngineRefused: no engine here can run it there.
        Unreadable: the model or the tokenizer cannot be read.
    """
    if lacks := missing("tokenizers"):
        raise EngineRefused(f"no engine on this machine can run {model}: {lacks}")
    file = tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer
    if file.suffix != ".json":
        raise EngineRefused(
            f"{file}: engines need token ids, which can only be created with a tokenizer.json; use"
            " one"
        )
    READ.clear()
    backend = read_path(tokenizer).backend
    if dict(read) != READ:
        raise Unreadable(
            f"{tokenizer}: a file changed after the tokenizer was proven to belong to the model; try"
            " again"
        )
    # As it was compared: with the tokens that other files of the folder add, and nothing cut or
    # filled up.
    encoder: Any = view(backend)
    given = encoder.encode(prompt).ids
    if not given:
        raise EngineRefused(
            f"{quoted(prompt)} encodes to no tokens with {file}; use a longer prompt"
        )
    ran = _run(model, given, most=most, device=device, reason=reason, engine=engine)
    return Continuation(
        prompt_ids=tuple(given),
        ids=tuple(ran.ids),
        text=encoder.decode(ran.ids, skip_special_tokens=False),
        engine=ran.engine,
        asked=device,
        device=ran.device,
        why=ran.why,
        load_seconds=ran.load_seconds,
        run_seconds=ran.run_seconds,
        remarks=ran.remarks,
    )


def _run(
    model: Path, given: list[int], *, most: int, device: Device, reason: str, engine: Chosen
) -> _Ran:
    if engine == "llama.cpp":
        return _llama_cpp(model, given, most=most, device=device, reason=reason, before="")
    try:
        return _transformers(model, given, most=most, device=device, reason=reason)
    except EngineRefused as error:
        if engine == "transformers":
            raise
        first = str(error)
    try:
        return _llama_cpp(model, given, most=most, device=device, reason=reason, before=first)
    except EngineRefused as error:
        raise EngineRefused(f"{first}; {error}") from None


def _llama_cpp(
    model: Path, given: list[int], *, most: int, device: Device, reason: str, before: str
) -> _Ran:
    by = f" ({reason})" if reason else ""
    if device not in {"auto", "cpu"}:
        raise EngineRefused(
            f"device {device} was requested{by}, but llama.cpp runs only on the cpu; request cpu or"
            " auto"
        )
    if importlib.util.find_spec("llama_cpp") is None:
        raise EngineRefused("llama.cpp is not installed; run pip install llama-cpp-python")
    remarks = [f"transformers was not used: {before}"] if before else []
    if (name := _contents(model)[0]) not in COMPARED:
        remarks.append(
            f"llama.cpp's results for {name} files were not compared with the original models"
        )
    memory = 2 * _bytes(model) + _BESIDE_WEIGHTS
    begun = time.monotonic()
    try:
        with Engine(
            str(model),
            name="llama.cpp model",
            memory=memory,
            seconds=_SECONDS,
            threads=os.cpu_count() or 1,
        ) as running:
            loaded = time.monotonic()
            ids, buffers = running.continued(given, most)
    except EngineFailed as error:
        raise EngineRefused(f"llama.cpp cannot run it: {error}") from None
    if not buffers or (
        elsewhere := [buffer for buffer in buffers if not buffer.startswith(("CPU", "AMX"))]
    ):
        where = listed(elsewhere) if buffers else "a device that llama.cpp does not report"
        raise EngineRefused(
            f"device {device} was requested{by}, but llama.cpp placed weights or results on {where},"
            " so its output was discarded"
        )
    return _Ran(
        ids=ids,
        engine=running.about,
        device="cpu",
        why=f"as requested{by}" if device == "cpu" else "llama.cpp runs only on the cpu",
        load_seconds=loaded - begun,
        run_seconds=time.monotonic() - loaded,
        remarks=tuple(remarks),
    )


def _bytes(model: Path) -> int:
    """Of the file, or of all its parts."""
    parts = [model]
    if part := _PART.search(model.name):
        pattern = f"{glob.escape(model.name[: part.start()])}-*-of-{part[1]}.gguf"
        parts = list(model.parent.glob(pattern))
    return sum(file.stat().st_size for file in parts)


def _transformers(model: Path, given: list[int], *, most: int, device: Device, reason: str) -> _Ran:
    remarks = _refuse_what_would_be_wrong(model)
    import torch

    place, why = _device(torch, device, reason)
    begun = time.monotonic()
    network = _loaded(torch, model).to(place)
    loaded = time.monotonic()
    network.eval()
    used = sorted({str(each.device.type) for each in network.parameters()})
    if used != [place]:
        raise EngineRefused(
            f"the weights are on {listed(used)} instead of the device {place}, so nothing was run"
        )
    with torch.inference_mode():
        ids = torch.tensor([given], device=place)
        out = network.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=most
        )
    return _Ran(
        ids=[int(token) for token in out[0, len(given) :]],
        engine=f"transformers {versions().get('transformers', '?')}",
        device=place,
        why=why,
        load_seconds=loaded - begun,
        run_seconds=time.monotonic() - loaded,
        remarks=tuple(remarks),
    )


def _contents(model: Path) -> tuple[str, tuple[Tensor, ...]]:
    """Return the architecture that a file names, and its tensors.

    Raises:
        Unreadable: it cannot be read.
    """
    with opened(model) as file:
        named = file.value("general.architecture")
        tensors = tuple(file.tensors.values())
    return named.decode(errors="backslashreplace") if isinstance(named, bytes) else "", tensors


def _refuse_what_would_be_wrong(model: Path) -> list[str]:
    """Look for what transformers would leave out, before anything is loaded.

    What is worth saying all the same.
    """
    if lacks := missing("torch", "transformers"):
        raise EngineRefused(f"transformers cannot run {model}: {lacks}")
    if importlib.util.find_spec("gguf") is None:
        raise EngineRefused(
            f"transformers cannot run {model}, because it needs the package gguf to read weights;"
            " run pip install gguf"
        )
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

    name, tensors = _contents(model)
    if name not in GGUF_SUPPORTED_ARCHITECTURES:
        raise EngineRefused(
            f"transformers cannot run {model}, because its architecture is {quoted(name)}, and"
            f" transformers can read only {listed(sorted(GGUF_SUPPORTED_ARCHITECTURES))} from GGUF"
            " files (the model's own engine, such as bitnet.cpp, may run it; compare its ids with"
            " `rankproof tokenizer parity`)"
        )
    if unknown := sorted({tensor.type for tensor in tensors if tensor.type.startswith("type ")}):
        raise EngineRefused(
            f"transformers cannot run {model}, because its weights have the unsupported types"
            f" {listed(unknown)}"
        )
    if dropped := [tensor.name for tensor in tensors if tensor.name in _DROPPED]:
        raise EngineRefused(
            f"transformers cannot run {model} correctly, because it ignores {dropped[0]} and"
            " therefore does not scale the rotary embedding"
        )
    if name in COMPARED:
        return []
    return [f"transformers' results for {name} files were not compared with the original models"]


def _device(torch: Any, asked: Device, reason: str) -> tuple[str, str]:
    has = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    by = f" ({reason})" if reason else ""
    if asked == "auto":
        place = next(name for name, there in has.items() if there)
        reason_of_choice = {
            "cuda": "this machine has a GPU",
            "mps": "this machine has a Metal GPU",
            "cpu": "this machine has no GPU",
        }[place]
        return place, reason_of_choice
    if not has[asked]:
        there = listed([name for name, is_there in has.items() if is_there])
        raise EngineRefused(
            f"device {asked} was requested{by}, but this machine has only {there}; request {there}"
            " or auto"
        )
    return asked, f"as requested{by}"


def _loaded(torch: Any, model: Path) -> Any:
    from transformers import AutoModelForCausalLM

    load: Any = AutoModelForCausalLM.from_pretrained
    with captured():
        try:
            network, report = load(
                str(model.parent),
                gguf_file=model.name,
                output_loading_info=True,
                local_files_only=True,
                dtype=torch.float32,
            )
        except Exception as error:
            said = f"{type(error).__name__}: {str(error)[:300]}"
            raise EngineRefused(f"transformers cannot load {model}: {said}") from error
    # What the file lacks is filled with random numbers, and a warning: its tokens would be
    # nobody's.
    for what, keys in (
        ("has no", report.get("missing_keys")),
        ("has a different shape for", report.get("mismatched_keys")),
    ):
        if keys:
            names = sorted(str(key[0] if isinstance(key, tuple) else key) for key in keys)
            raise EngineRefused(
                f"{model} {what} {listed(names[:3])}, which transformers would initialize at"
                " random, so it was not run"
            )
    return network
