"""A hub whose every answer a test can hold back or replace: for what no well-behaved hub, and no
fault rule, does.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

COMMIT = "c" * 40
Replacement = Callable[[http.server.BaseHTTPRequestHandler], None]

CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "model_max_length": 512,
}
UNKNOWN = "<unk>"


def small() -> dict[str, bytes]:
    """The files of a small byte-level BPE tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE(unk_token=UNKNOWN))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<unk>", "<s>", "</s>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    made.train_from_iterator(["hello world, hello ranks", "the quick brown fox jumps"] * 9, trainer)
    return {
        "README.md": b"# small\n",
        "additional_chat_templates/tool_use.jinja": b"tools: {{ messages }}",
        "chat_template.jinja": b"{{ messages }}",
        "config.json": json.dumps({"model_type": "llama"}).encode(),
        "model.safetensors": b"weights" * 100,
        "tokenizer.json": made.to_str(pretty=True).encode(),
        "tokenizer_config.json": json.dumps(CONFIG).encode(),
    }


CODE = {
    "tokenization_own.py": (
        b'''"""A tokenizer of bytes, in Python."""
from pathlib import Path

from transformers import PreTrainedTokenizer

from .alphabet import OFFSET


class OwnTokenizer(PreTrainedTokenizer):
    vocab_files_names = {"vocab_file": "own.tiktoken"}

    def __init__(self, vocab_file, **kwargs):
        self.text = Path(vocab_file).read_text(encoding="utf-8")
        super().__init__(**kwargs)

    @property
    def vocab_size(self):
        return 256 + OFFSET

    def get_vocab(self):
        return {chr(0x4E00 + number): number for number in range(256 + OFFSET)} | self.added_tokens_encoder

    def _tokenize(self, text):
        return [chr(0x4E00 + byte + OFFSET) for byte in text.encode()]

    def _convert_token_to_id(self, token):
        return ord(token) - 0x4E00

    def _convert_id_to_token(self, index):
        return chr(0x4E00 + index)

    def convert_tokens_to_string(self, tokens):
        return bytes(ord(token) - 0x4E00 - OFFSET for token in tokens).decode(errors="replace")
'''
    ),
    "alphabet.py": b"OFFSET = 3\n",
    "own.tiktoken": b"one\n",
    "tokenizer_config.json": (
        json.dumps(
            {
                "auto_map": {"AutoTokenizer": ["tokenization_own.OwnTokenizer", None]},
                "tokenizer_class": "OwnTokenizer",
            }
        ).encode()
    ),
    "config.json": json.dumps({"model_type": "own"}).encode(),
}


class FakeHub:
    """Serves `files` as the repository `org/name` at COMMIT; `replace` maps a path's end to who
    answers instead.

    Attributes:
        paths: the path of every request, in order.
        headers: the headers of every request, in order.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = dict(files)
        self.replace: dict[str, Replacement] = {}
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.paths.append(self.path)
                hub.headers.append(dict(self.headers))
                for end, answer in hub.replace.items():
                    if self.path.partition("?")[0].endswith(end):
                        answer(self)
                        return
                hub.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *_: object) -> None:
                """A client that was killed, or left, is what these tests are about."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def tree(self) -> list[dict[str, Any]]:
        """The true listing."""
        return [
            {
                "type": "file",
                "path": path,
                "size": len(content),
                "oid": (
                    hashlib.sha1(
                        b"blob %d\0" % len(content) + content, usedforsecurity=False
                    ).hexdigest()
                ),
            }
            for path, content in sorted(self.files.items())
        ]

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        path = handler.path.partition("?")[0]
        if "/revision/" in path:
            send_json(
                handler,
                {"sha": COMMIT, "siblings": [{"rfilename": name} for name in sorted(self.files)]},
            )
        elif "/tree/" in path:
            send_json(handler, self.tree())
        elif (name := path.partition(f"/resolve/{COMMIT}/")[2]) in self.files:
            send(handler, self.files[name])
        else:
            handler.send_error(404)


def send(
    handler: http.server.BaseHTTPRequestHandler,
    body: bytes,
    *,
    status: int = 200,
    length: int | None = None,
    **headers: str,
) -> None:
    """Send an answer; `length` announces another length than the body has."""
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body) if length is None else length))
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)
    handler.wfile.flush()


def send_json(handler: http.server.BaseHTTPRequestHandler, value: object) -> None:
    send(handler, json.dumps(value).encode())


def hang_up(handler: http.server.BaseHTTPRequestHandler) -> None:
    """Close without an answer."""
    handler.connection.shutdown(socket.SHUT_RDWR)


def write(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Put files into a folder."""
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder
