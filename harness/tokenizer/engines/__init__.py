"""Engines that turn text into ids, each in a process of its own with limits: what they do, and not
what files say.

* `engine_of(where)`: which engine runs a file, a folder or a server's address; or why none can
  here.
* `Engine(where)`: the running one; `encode` gives ids, or the error in words, text by text.

A text is encoded in a mode: `plain` (special tokens in it are text), `special` (they are tokens),
`around` (as `special`, with what is put around every text).
"""

from __future__ import annotations

import importlib.util
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness.forms.distribution import missing
from harness.forms.kernel import signal_name
from harness.forms.text import visible
from harness.tokenizer.engines.adapters import Ids, Mode
from harness.tokenizer.isolation import environment
from harness.tokenizer.loading.intact import unchanged
from harness.tokenizer.problem import Absent, TokenizerError, Unreadable

__all__ = ["Engine", "EngineFailed", "engine_of"]


# Bytes of address space.
MEMORY = 4 << 30
# Of CPU time, and on the clock for one answer.
SECONDS = 300
# Texts that are asked for at once.
BATCH = 200
# Bytes of an answer.
LARGEST = 64 << 20


class EngineFailed(TokenizerError):
    """An engine is not here, does not load the tokenizer, died or gave no answer in time."""


def engine_of(where: str) -> str:
    """Return the engine that runs a file, a folder or an address: `tokenizers`, `sentencepiece`,
    `llama.cpp` or `server`.

    Raises:
        Absent: nothing is there.
        EngineFailed: none can, or it is not installed here; the message says what to install.
    """
    if where.startswith(("http://", "https://")):
        return "server"
    path = Path(where)
    if not path.exists():
        raise Absent(f"{where}: this file does not exist")
    if path.is_dir() or path.suffix == ".json":
        if path.name.startswith("tekken"):
            raise EngineFailed(
                f"{where}: no engine supports tekken files; convert it to a tokenizer.json"
            )
        return _installed("tokenizers", where)
    with path.open("rb") as file:
        head = file.read(4)
    if head == b"GGUF":
        if importlib.util.find_spec("llama_cpp") is None:
            raise EngineFailed(
                f"{where}: llama.cpp is not installed; run pip install llama-cpp-python, or pass"
                " the address of a server that runs the model"
            )
        return "llama.cpp"
    if path.suffix == ".model":
        return _installed("sentencepiece", where)
    raise EngineFailed(f"{where}: no engine supports this file type")


def _installed(library: str, where: str) -> str:
    if lacks := missing(library):
        raise EngineFailed(f"{where}: {lacks}")
    return library


class Engine:
    """A running engine. Close it, or use it in a `with`.

    Attributes:
        name: which one it is.
        about: with its version, as it says.
        modes: those that it has.

    Args:
        where: a file, a folder or an address.
        name: the engine; default: `engine_of(where)`.
        memory: bytes of address space.
        seconds: on the clock for one answer, and of CPU time of each thread for all of them.
        threads: how many it may keep busy.

    Raises:
        EngineFailed: it does not load the tokenizer.
        Unreadable: the file is a damaged one of a cache, or changed while the engine read it.
    """

    about: str
    modes: tuple[Mode, ...]

    def __init__(
        self,
        where: str,
        *,
        name: str | None = None,
        memory: int = MEMORY,
        seconds: int = SECONDS,
        threads: int = 1,
    ) -> None:
        self.where = where
        self.name = name or engine_of(where)
        self._seconds = seconds
        on_disk = self.name != "server"
        try:
            with unchanged(Path(where)) if on_disk else nullcontext():
                self._start(where, memory=memory, seconds=seconds * threads)
        except Unreadable:
            # It may have started before the file was found to have changed.
            if hasattr(self, "_process"):
                self.close()
            raise

    def _start(self, where: str, *, memory: int, seconds: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "harness.tokenizer.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Where the libraries of llama.cpp are, if they are not in its package.
            env=environment()
            | {name: os.environ[name] for name in ("LLAMA_CPP_LIB_PATH",) if name in os.environ},
            # Ctrl-C at the terminal reaches us alone: we end the child, and it writes no traceback.
            start_new_session=True,
        )
        self._held = b""
        try:
            answer = self._answer(
                {"engine": self.name, "where": where, "memory": memory, "seconds": seconds}
            )
        except BaseException:
            self.close()
            raise
        self.about = visible(answer["about"])
        self.modes = tuple(answer["modes"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End its process."""
        self._process.kill()
        self._process.communicate()

    def encode(self, texts: Sequence[str], mode: Mode) -> list[Ids | str]:
        """Return the ids of each text, or the error in words.

        Raises:
            EngineFailed: the engine died of one of them, or gave no answer.
        """
        encoded: list[Ids | str] = []
        for begin in range(0, len(texts), BATCH):
            encoded += self._ask({"texts": list(texts[begin : begin + BATCH]), "mode": mode})
        return encoded

    def vocabulary(self) -> tuple[list[str], list[str]]:
        """Its tokens as text, and its special tokens, as far as it tells."""
        answer = self._ask({})
        return answer["tokens"], answer["special"]

    def round_trip(self) -> str:
        """Send the probe corpus there and back.

        The result is written as by `harness.tokenizer.backend.round_trip`.

        Raises:
            EngineFailed: it died, or it does not turn ids into text.
        """
        return str(self._answer({"round trip": True})["parts"])

    def continued(self, ids: Ids, most: int) -> tuple[Ids, list[str]]:
        """New ids of a model, greedily, and the buffers that held it.

        Of the engine `llama.cpp model` alone.

        Raises:
            EngineFailed: it died, or it cannot.
        """
        answer = self._answer({"ids": ids, "most": most})
        return answer["ids"], answer["buffers"]

    def _answer(self, request: dict[str, Any]) -> Any:
        answer = self._ask(request)
        if "refused" in answer:
            raise EngineFailed(f"{self.where}: {visible(answer['refused'])}")
        return answer

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._death() from None
        return json.loads(self._line())

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + self._seconds
        parts = [self._held]
        while b"\n" not in parts[-1]:
            if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise EngineFailed(
                    f"{self.where}: {self.name} did not answer within {self._seconds} s"
                )
            part = os.read(descriptor, 1 << 20)
            if not part:
                raise self._death()
            parts.append(part)
            if sum(map(len, parts)) > LARGEST:
                raise EngineFailed(
                    f"{self.where}: {self.name} sent a response larger than {LARGEST} bytes"
                )
        line, _, self._held = b"".join(parts).partition(b"\n")
        return line

    def _death(self) -> EngineFailed:
        code = self._process.wait()
        how = f"was killed by {signal_name(-code)}" if code < 0 else f"exited with code {code}"
        return EngineFailed(f"{self.where}: {self.name} {how} before it answered")
