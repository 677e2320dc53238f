"""llama.cpp by way of llama-cpp-python, on the weights of a GGUF file, on the CPU: ids in, the likeliest ids out."""

from __future__ import annotations

import ctypes
import os
import re
from typing import Any

from harness.tokenizer.engines.adapter import Ids, Mode

_BUFFER = re.compile(r"(\S+) +(?:model|KV|compute) buffer size")
_FLOAT32 = 0
_OFF = 0


class LlamaCppModel:
    """What llama.cpp does with the weights of a GGUF file. Its tokenizer is never asked."""

    modes: tuple[Mode, ...] = ()

    def __init__(self, where: str) -> None:
        import llama_cpp  # type: ignore[import-not-found,unused-ignore]

        self._library: Any = llama_cpp
        self.about = f"llama.cpp of llama-cpp-python {llama_cpp.__version__}"
        self._buffers: set[str] = set()
        self._complaint = "it does not say why"
        self._listener = llama_cpp.llama_log_callback(lambda _level, text, _data: self._hear(text))
        llama_cpp.llama_log_set(self._listener, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        parameters = llama_cpp.llama_model_default_params()
        # A list of devices that ends at once: a build with a GPU must not take it.
        self._devices = (ctypes.c_void_p * 1)(None)
        parameters.devices, parameters.n_gpu_layers = ctypes.cast(self._devices, ctypes.c_void_p), 0
        self._model = llama_cpp.llama_model_load_from_file(os.fsencode(where), parameters)
        if not self._model:
            raise ValueError(f"llama.cpp does not load this file: {self._complaint}")
        if llama_cpp.llama_model_has_encoder(self._model):
            raise ValueError("it has an encoder, and only models that continue a text are run here")
        self._vocabulary = llama_cpp.llama_model_get_vocab(self._model)

    def continued(self, ids: Ids, most: int) -> dict[str, list[Any]]:
        """Take the likeliest token each time, until the model ends or there are so many.

        Args:
            ids: of the prompt, at least one.
            most: tokens to make at the most.

        Returns:
            `ids`: the new ones, and `buffers`: where llama.cpp says that weights, cache and results lay.

        Raises:
            ValueError: llama.cpp refuses the ids, or has no memory for them.
        """
        rows = self._library.llama_vocab_n_tokens(self._vocabulary)
        if max(ids) >= rows:
            raise ValueError(f"id {max(ids)} has no row: the model has {rows}")
        context, sampler = self._context(len(ids), most), self._library.llama_sampler_init_greedy()
        new: Ids = []
        given = ids
        while len(new) < most:
            held = (self._library.llama_token * len(given))(*given)
            if code := self._library.llama_decode(context, self._library.llama_batch_get_one(held, len(given))):
                raise ValueError(f"llama.cpp refuses token {len(ids) + len(new)}: llama_decode gave {code}")
            new.append(int(self._library.llama_sampler_sample(sampler, context, -1)))
            if self._library.llama_vocab_is_eog(self._vocabulary, new[-1]):
                break
            given = new[-1:]
        return {"ids": new, "buffers": sorted(self._buffers)}

    def _context(self, given: int, most: int) -> Any:
        parameters = self._library.llama_context_default_params()
        parameters.n_ctx, parameters.n_batch = given + most, given
        parameters.n_threads = parameters.n_threads_batch = os.cpu_count() or 1
        # In float32, as transformers: by default keys and values are rounded to 16 bits.
        parameters.type_k = parameters.type_v = _FLOAT32
        parameters.flash_attn_type = _OFF
        parameters.offload_kqv = parameters.op_offload = False
        context = self._library.llama_init_from_model(self._model, parameters)
        if not context:
            raise ValueError(f"llama.cpp has no room for {given + most} tokens: {self._complaint}")
        return context

    def _hear(self, text: bytes) -> None:
        """What it logs: the only place where it says where something lies, and why it refuses a file."""
        line = text.decode(errors="replace")
        self._buffers.update(_BUFFER.findall(line))
        if "error" in line:
            self._complaint = line.strip()[:300]
