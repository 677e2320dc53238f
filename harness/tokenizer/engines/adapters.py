"""Adapters of engines: small classes that the process with limits makes and asks."""

from __future__ import annotations

import ctypes
import json
import os
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from harness.tokenizer.backend import view
from harness.tokenizer.files import read_path

Mode = Literal["plain", "special", "around"]
MODES: tuple[Mode, ...] = get_args(Mode)
Ids = list[int]


class Adapter(Protocol):
    """An engine with one tokenizer.

    Attributes:
        about: the engine with its version.
        modes: those that it has.
    """

    about: str
    modes: tuple[Mode, ...]

    def encode(self, text: str, mode: Mode) -> Ids:
        """Return the ids of a text; raises where the engine refuses it."""

    def decode(self, ids: Ids) -> str:
        """Return the text of ids; raises where the engine does not tell."""

    def tokens(self) -> list[str]:
        """Every token as the text that it stands for, as far as it is text.

        Empty where the engine does not tell.
        """

    def special(self) -> list[str]:
        """Special and added tokens, as far as the engine tells them."""


class TokenizersLibrary:
    """The tokenizers library on files, as transformers would load them."""

    modes = MODES

    def __init__(self, where: str) -> None:
        import tokenizers

        backend = read_path(Path(where)).backend
        self.about = f"tokenizers {tokenizers.__version__}"
        self._parsing = view(backend, encode_special_tokens=False)
        self._plain = view(backend, encode_special_tokens=True)

    def encode(self, text: str, mode: Mode) -> Ids:
        """Return the ids of a text."""
        asked = self._plain if mode == "plain" else self._parsing
        return list(asked.encode(text, add_special_tokens=mode == "around").ids)

    def decode(self, ids: Ids) -> str:
        """Return the text, with special tokens in it."""
        return str(self._parsing.decode(ids, skip_special_tokens=False))

    def tokens(self) -> list[str]:
        """Tokens as decoded."""
        count = self._parsing.get_vocab_size(with_added_tokens=False)
        return [
            str(self._parsing.decode([index], skip_special_tokens=False)) for index in range(count)
        ]

    def special(self) -> list[str]:
        """Return the added tokens."""
        return [str(token.content) for token in self._parsing.get_added_tokens_decoder().values()]


class SentencePieceLibrary:
    """The sentencepiece library on a model file.

    It reads no special token in a text, and puts none around it.
    """

    modes: tuple[Mode, ...] = ("plain",)

    def __init__(self, where: str) -> None:
        import sentencepiece

        self.about = f"sentencepiece {sentencepiece.__version__}"
        self._processor = sentencepiece.SentencePieceProcessor(model_file=where)

    def encode(self, text: str, mode: Mode) -> Ids:  # noqa: ARG002 - it has one
        """Return the ids of a text."""
        return list(self._processor.encode(text))

    def decode(self, ids: Ids) -> str:
        """Return the text."""
        return str(self._processor.decode(ids))

    def tokens(self) -> list[str]:
        """Pieces with spaces for their marks."""
        size = self._processor.vocab_size()
        return [self._processor.id_to_piece(index).replace("▁", " ") for index in range(size)]

    def special(self) -> list[str]:
        """Control pieces: they are text here, and tokens elsewhere."""
        size = self._processor.vocab_size()
        return [
            self._processor.id_to_piece(index)
            for index in range(size)
            if self._processor.is_control(index)
        ]


SERVER_SECONDS = 30
# Bytes of an answer.
MOST_ANSWER = 16 << 20


class TokenizeServer:
    """A server with `/tokenize` (llama.cpp's, vLLM, SGLang and others).

    It is asked for nothing but ids.
    """

    modes: tuple[Mode, ...] = ("special", "around")

    def __init__(self, where: str) -> None:
        # Straight to the server: a proxy would be another party to the answer.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._address = (
            where if where.rstrip("/").endswith("/tokenize") else f"{where.rstrip('/')}/tokenize"
        )
        self.encode("a", "special")
        self.about = f"the server at {where}"

    def encode(self, text: str, mode: Mode) -> Ids:
        """The ids of a text. Each server takes the names that it knows, and passes over the
        others.
        """
        around = mode == "around"
        asked = {
            "content": text,
            "prompt": text,
            "inputs": text,
            "add_special": around,
            "add_special_tokens": around,
        }
        body = json.dumps(asked | {"parse_special": True}).encode()
        # Http or https, as `engine_of` demands.
        request = urllib.request.Request(  # noqa: S310
            self._address, data=body, headers={"Content-Type": "application/json"}
        )
        try:
            with self._opener.open(request, timeout=SERVER_SECONDS) as answer:
                content = answer.read(MOST_ANSWER + 1)
        except urllib.error.HTTPError as error:
            raise ValueError(
                f"{self._address} answered {error.code}: {error.read(200)!r}"
            ) from None
        if len(content) > MOST_ANSWER:
            raise ValueError(f"{self._address} sent a response larger than {MOST_ANSWER} bytes")
        return _ids_of_answer(json.loads(content), self._address)

    def decode(self, ids: Ids) -> str:
        """Never: a server is asked for ids alone."""
        raise ValueError(
            f"{self._address} is used only to encode, so it cannot decode {len(ids)} ids"
        )

    def tokens(self) -> list[str]:
        """Nothing: a server does not tell."""
        return []

    def special(self) -> list[str]:
        """Nothing: a server does not tell."""
        return []


def _ids_of_answer(answer: Any, address: str) -> Ids:
    rows = answer.get("tokens", answer.get("token_ids")) if isinstance(answer, dict) else answer
    if isinstance(rows, list) and len(rows) == 1 and isinstance(rows[0], list):
        rows = rows[0]
    if isinstance(rows, list):
        given = [row.get("id") if isinstance(row, dict) else row for row in rows]
        ids = [row for row in given if isinstance(row, int) and not isinstance(row, bool)]
        if len(ids) == len(given):
            return ids
    raise ValueError(f"{address} did not answer with a list of ids: {str(answer)[:200]!r}")


_CONTROL = 1 << 3
_USER_DEFINED = 1 << 4


class LlamaCpp:
    """llama.cpp on the tokenizer inside a GGUF file.

    No tensor is read: the vocabulary alone is loaded.
    """

    modes = MODES

    def __init__(self, where: str) -> None:
        # Whoever wants it installs it: it is in no extra.
        import llama_cpp  # type: ignore[import-not-found]

        self._library: Any = llama_cpp
        self.about = f"llama.cpp of llama-cpp-python {llama_cpp.__version__}"
        llama_cpp.llama_backend_init()
        parameters = llama_cpp.llama_model_default_params()
        parameters.vocab_only = True
        parameters.use_mmap = False
        model = llama_cpp.llama_model_load_from_file(where.encode(), parameters)
        if not model:
            raise ValueError(
                "llama.cpp cannot load this file; run `rankproof tokenizer gguf check` to find out"
                " why"
            )
        self._model = model
        self._vocabulary = llama_cpp.llama_model_get_vocab(model)

    def encode(self, text: str, mode: Mode) -> Ids:
        """Return the ids of a text."""
        raw = text.encode()
        room = len(raw) + 16
        while True:
            held = (self._library.llama_token * room)()
            count = self._library.llama_tokenize(
                self._vocabulary, raw, len(raw), held, room, mode == "around", mode != "plain"
            )
            if count >= 0:
                return list(held[:count])
            room = -count

    def decode(self, ids: Ids) -> str:
        """Return the text, with special tokens in it."""
        given = (self._library.llama_token * len(ids))(*ids)
        room = 64
        while True:
            held = ctypes.create_string_buffer(room)
            count = self._library.llama_detokenize(
                self._vocabulary, given, len(ids), held, room, False, True
            )
            if count >= 0:
                return held.raw[:count].decode(errors="replace")
            room = -count

    def tokens(self) -> list[str]:
        """Tokens as llama.cpp writes them."""
        return [
            self._piece(index)
            for index in range(self._library.llama_vocab_n_tokens(self._vocabulary))
        ]

    def special(self) -> list[str]:
        """Control tokens, and those that users defined."""
        ask = self._library.llama_vocab_get_attr
        count = self._library.llama_vocab_n_tokens(self._vocabulary)
        kinds = [(index, ask(self._vocabulary, index)) for index in range(count)]
        return [self._piece(index) for index, kind in kinds if kind & (_CONTROL | _USER_DEFINED)]

    def _piece(self, index: int) -> str:
        held = ctypes.create_string_buffer(1 << 12)
        count = self._library.llama_token_to_piece(
            self._vocabulary, index, held, len(held), 0, True
        )
        return held.raw[: max(0, count)].decode(errors="replace")


_BUFFER = re.compile(r"(\S+) +(?:model|KV|compute) buffer size")
_FLOAT32 = 0
_OFF = 0


class LlamaCppModel:
    """llama.cpp on the weights of a GGUF file, on the CPU. Its tokenizer is never asked."""

    modes: tuple[Mode, ...] = ()

    def __init__(self, where: str) -> None:
        import llama_cpp  # type: ignore[import-not-found,unused-ignore]

        self._library: Any = llama_cpp
        self.about = f"llama.cpp of llama-cpp-python {llama_cpp.__version__}"
        self._buffers: set[str] = set()
        self._complaint = "no reason was reported"
        self._listener = llama_cpp.llama_log_callback(lambda _level, text, _data: self._hear(text))
        llama_cpp.llama_log_set(self._listener, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        parameters = llama_cpp.llama_model_default_params()
        # A list of devices that ends at once: a build with a GPU must not take it.
        self._devices = (ctypes.c_void_p * 1)(None)
        parameters.devices = ctypes.cast(self._devices, ctypes.c_void_p)
        parameters.n_gpu_layers = 0
        self._model = llama_cpp.llama_model_load_from_file(os.fsencode(where), parameters)
        if not self._model:
            raise ValueError(f"llama.cpp cannot load this file: {self._complaint}")
        if llama_cpp.llama_model_has_encoder(self._model):
            raise ValueError("it has an encoder, but only decoder-only models are supported")
        self._vocabulary = llama_cpp.llama_model_get_vocab(self._model)

    def continued(self, ids: Ids, most: int) -> dict[str, list[Any]]:
        """Take the likeliest token each time, until the model ends or there are so many.

        Args:
            ids: of the prompt, at least one.
            most: tokens to make at the most.

        Returns:
            `ids`: the new ones, and `buffers`: where llama.cpp says that weights, cache and results
                lay.

        Raises:
            ValueError: llama.cpp refuses the ids, or has no memory for them.
        """
        rows = self._library.llama_vocab_n_tokens(self._vocabulary)
        if max(ids) >= rows:
            raise ValueError(
                f"id {max(ids)} is out of range, because the model's vocabulary has only {rows}"
                " tokens"
            )
        context = self._context(len(ids), most)
        sampler = self._library.llama_sampler_init_greedy()
        new: Ids = []
        given = ids
        while len(new) < most:
            held = (self._library.llama_token * len(given))(*given)
            if code := self._library.llama_decode(
                context, self._library.llama_batch_get_one(held, len(given))
            ):
                raise ValueError(
                    f"llama.cpp rejects token {len(ids) + len(new)}: llama_decode returned {code}"
                )
            new.append(int(self._library.llama_sampler_sample(sampler, context, -1)))
            if self._library.llama_vocab_is_eog(self._vocabulary, new[-1]):
                break
            given = new[-1:]
        return {"ids": new, "buffers": sorted(self._buffers)}

    def _context(self, given: int, most: int) -> Any:
        parameters = self._library.llama_context_default_params()
        parameters.n_ctx = given + most
        parameters.n_batch = given
        parameters.n_threads = parameters.n_threads_batch = os.cpu_count() or 1
        # In float32, as transformers: by default keys and values are rounded to 16 bits.
        parameters.type_k = parameters.type_v = _FLOAT32
        parameters.flash_attn_type = _OFF
        parameters.offload_kqv = parameters.op_offload = False
        context = self._library.llama_init_from_model(self._model, parameters)
        if not context:
            raise ValueError(
                f"llama.cpp cannot create a context for {given + most} tokens: {self._complaint}"
            )
        return context

    def _hear(self, text: bytes) -> None:
        """Listen to its log: the only place where it says where buffers are, and why it refuses a
        file.
        """
        line = text.decode(errors="replace")
        self._buffers.update(_BUFFER.findall(line))
        if "error" in line:
            self._complaint = line.strip()[:300]
