"""Files of every format that a tokenizer comes in, told apart by what they hold; asked in the process with limits."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from harness.forms.digest import sha256
from harness.forms.regular_file import read_regular
from harness.tokenizer.backend import read
from harness.tokenizer.digest import canonical_json, digest_text
from harness.tokenizer.files import READ, identify_files, read_path
from harness.tokenizer.form import (
    ENCODER,
    Form,
    gguf_form,
    sentencepiece_form,
    serialised_form,
    tekken_form,
    tiktoken_form,
)
from harness.tokenizer.form.ranks import LARGEST as LARGEST_RANKS
from harness.tokenizer.form.sentencepiece import LARGEST as LARGEST_MODEL
from harness.tokenizer.gguf.reader import GgufFile, Malformed
from harness.tokenizer.gguf.vocabulary import tokenizer as tokenizer_findings
from harness.tokenizer.identity import Identity
from harness.tokenizer.problem import Unreadable, refused

_RANKED = re.compile(rb"\s*[A-Za-z0-9+/]+={0,2} [0-9]+\r?\n")


def is_serialised(path: Path) -> bool:
    """Whether the tokenizers library reads it: a tokenizer.json, or a folder that holds one."""
    return _format(path) == "tokenizer.json"


def read_form(path: Path) -> Form:
    """The form of a file, or of the tokenizer.json in a folder with what belongs to it.

    Raises:
        Unreadable: it is not there, not allowed, or not a tokenizer.
    """
    format_ = _format(path)
    if format_ == "GGUF":
        return _gguf(path)
    if format_ == "tokenizer.json":
        files = read_path(path)
        pieces = read(files.backend)
        return serialised_form(
            pieces,
            named=None if files.alone else files.named,
            templates=None if files.alone else files.templates,
            encode_special_tokens=bool(files.backend.encode_special_tokens),
        )
    if format_ == "tekken":
        return tekken_form(path, _content(path, LARGEST_RANKS))
    if format_ == "tiktoken":
        return tiktoken_form(path, _content(path, LARGEST_RANKS))
    return sentencepiece_form(path, _content(path, LARGEST_MODEL))


def identify_path(path: Path) -> Identity:
    """The identity of a file of any format: of a tokenizer.json all that the library shows, else what the file says."""
    if is_serialised(path):
        return identify_files(read_path(path))
    form = read_form(path)
    said = {name: "not said" if value is None else value for name, value in form.parts.items()}
    tokens = form.tokens()
    named = {
        f"{name}_token": [tokens[int(value)].decode(errors="backslashreplace"), int(value)]
        for name in ("bos", "eos", "pad")
        if (value := form.parts[name]) is not None and int(value) < len(tokens)
    }
    parts = {
        **said,
        "scope": "file",
        "kind": form.format,
        "encoding": digest_text(canonical_json([form.parts[name] for name in (*ENCODER, "around")])),
        "fingerprint": f"sha256:{form.fingerprint}",
        "names": canonical_json(named),
        "ids": str(form.size),
        "padding": str(form.padding),
    }
    if form.remarks:
        parts["remarks"] = canonical_json(list(form.remarks))
    return Identity.of(parts, depth="full")


def _gguf(file: Path) -> Form:
    try:
        with GgufFile(file) as opened:
            form = gguf_form(opened)
            # Held in memory: the file is closed when they are asked for.
            tokens, merges = form.tokens(), form.merges()
            errors = [one for one in tokenizer_findings(opened) if one.severity == "error"]
    except Malformed as error:
        raise Unreadable(f"{file}: {error}") from None
    except OSError as error:
        raise refused(file, error) from None
    said = tuple(f"{one.where} {one.message}" for one in errors)
    return replace(form, tokens=lambda: tokens, merges=lambda: merges, remarks=(*form.remarks, *said))


def _format(file: Path) -> str:
    if file.name.startswith("tekken") and file.suffix == ".json":
        return "tekken"
    if file.suffix == ".json" or file.is_dir():
        return "tokenizer.json"
    head = _content(file, 256, cut=True)
    if head.startswith(b"GGUF") or file.suffix == ".gguf":
        return "GGUF"
    if file.suffix == ".tiktoken" or _RANKED.match(head):
        return "tiktoken"
    if head[:1] == b"\x0a" or file.suffix == ".model":
        return "SentencePiece"
    if not head:
        raise Unreadable(f"{file}: is empty")
    raise Unreadable(f"{file}: is not a tokenizer.json, GGUF, SentencePiece, tiktoken or tekken file")


def _content(file: Path, limit: int, *, cut: bool = False) -> bytes:
    try:
        content = read_regular(file, limit=limit, cut=cut)
    except OSError as error:
        raise refused(file, error) from None
    if not cut:
        READ[str(file)] = sha256(content)
    return content
