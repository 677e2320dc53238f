"""The process with limits: `python -m harness.tokenizer.child`, with its request on stdin.

It reads files nobody vouches for and answers one question about them, or runs an engine and answers
a line of JSON for each request. It limits itself before it opens anything. A panic, an abort, an
endless regular expression or a stack overflow ends this process and no other. It writes nothing but
its answers. Formats are told apart by what the files hold.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from harness.forms.digest import sha256
from harness.forms.regular_file import read_regular
from harness.tokenizer.backend import read, round_trip
from harness.tokenizer.comparison import compare
from harness.tokenizer.files import READ, identify_files, read_path
from harness.tokenizer.formats import (
    ENCODER,
    Form,
    gguf_form,
    sentencepiece_form,
    serialised_form,
    tekken_form,
    tiktoken_form,
)
from harness.tokenizer.formats.tokenizer_model import LARGEST
from harness.tokenizer.gguf import complaints
from harness.tokenizer.gguf.reader import opened
from harness.tokenizer.gguf.vocabulary import tokenizer as tokenizer_findings
from harness.tokenizer.identity import Identity, canonical_json, digest_text
from harness.tokenizer.objects import ComparedTokenizer, compared_backend
from harness.tokenizer.problem import NotComparable, TokenizerError, Unreadable, first_line, refused

_RANKED = re.compile(rb"\s*[A-Za-z0-9+/]+={0,2} [0-9]+\r?\n")


def is_serialised(path: Path) -> bool:
    """Tell whether the tokenizers library reads it: a tokenizer.json, or a folder that holds
    one.
    """
    return _format(path) == "tokenizer.json"


def read_form(path: Path) -> Form:
    """Return the form of a file, or of the tokenizer.json in a folder with what belongs to it.

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
        return tekken_form(path, _content(path, LARGEST))
    if format_ == "tiktoken":
        return tiktoken_form(path, _content(path, LARGEST))
    return sentencepiece_form(path, _content(path, LARGEST))


def identify_path(path: Path) -> Identity:
    """Return the identity of a file of any format: of a tokenizer.json all that the library shows,
    else what the file says.
    """
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
        "encoding": digest_text(
            canonical_json([form.parts[name] for name in (*ENCODER, "around")])
        ),
        "fingerprint": f"sha256:{form.fingerprint}",
        "names": canonical_json(named),
        "ids": str(form.size),
        "padding": str(form.padding),
    }
    if form.remarks:
        parts["remarks"] = canonical_json(list(form.remarks))
    return Identity.of(parts, depth="full")


def _gguf(path: Path) -> Form:
    with opened(path) as file:
        form = gguf_form(file)
        # Held in memory: the file is closed when they are asked for.
        tokens = form.tokens()
        merges = form.merges()
        errors = [
            f"{row.where} {row.message}"
            for row in tokenizer_findings(file)
            if row.severity == "error"
        ]
    return replace(
        form, tokens=lambda: tokens, merges=lambda: merges, remarks=(*form.remarks, *errors)
    )


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
        raise Unreadable(f"{file}: the file is empty")
    raise Unreadable(
        f"{file}: this is not a tokenizer.json, GGUF, SentencePiece, tiktoken or tekken file"
    )


def _content(file: Path, limit: int, *, cut: bool = False) -> bytes:
    try:
        content = read_regular(file, limit=limit, cut=cut)
    except OSError as error:
        raise refused(file, error) from None
    if not cut:
        READ[str(file)] = sha256(content)
    return content


LARGEST_ANSWER = 8 << 20


def main() -> int:
    """Answer one request about files with one line of JSON, or serve an engine."""
    request = json.loads(sys.stdin.readline())
    if "engine" in request:
        return serve_engine(request)
    limit(memory=request["memory"], seconds=request["seconds"])
    answer = private_output()
    try:
        reply = {"answer": ANSWERS[request["question"]](request)}
    except NotComparable as error:
        reply = {"not comparable": str(error)}
    except Unreadable as error:
        reply = {"refused": str(error), "sort": type(error).__name__}
    except TokenizerError as error:
        reply = {"refused": f"{' or '.join(request['paths'])}: {error}"}
    except MemoryError:
        reply = {
            "refused": (
                f"{request['paths'][0]}: reading it needs more memory than the limit of"
                f" {request['memory']} bytes"
            )
        }
    # A Rust panic is a BaseException, and each of them is an answer.
    except BaseException as error:  # noqa: BLE001
        reply = {"refused": f"{request['paths'][0]}: {type(error).__name__}: {first_line(error)}"}
    text = json.dumps(reply)
    if len(text) > LARGEST_ANSWER:
        text = json.dumps(
            {
                "refused": (
                    f"{request['paths'][0]}: it returns millions of ids for short texts, which no"
                    " real tokenizer does"
                )
            }
        )
    answer.write(text)
    answer.close()
    return 0


def private_output() -> TextIO:
    """Take standard output for answers alone: what libraries print of a panic would be read as part
    of one.
    """
    # A copy of descriptor 1 is kept for answers before 1 and 2 are led to nowhere: libraries in C
    # and Rust write to the numbers, whatever `sys.stdout` is.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="surrogatepass")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    return answers


def _identify(request: dict[str, Any]) -> str:
    return identify_path(Path(request["paths"][0])).to_json()


def _difference(request: dict[str, Any]) -> list[dict[str, Any]]:
    first, second = map(Path, request["paths"])
    # A tokenizer.json says more than the form that every format has: two of them are compared by
    # all of it.
    read_side = _tokenizer if is_serialised(first) and is_serialised(second) else read_form
    return [asdict(row) for row in compare(read_side(first), read_side(second))]


def _tokenizer(path: Path) -> ComparedTokenizer:
    files = read_path(path)
    templates = None if files.alone else files.templates
    return compared_backend(identify_files(files), files.backend, templates=templates)


def _form(request: dict[str, Any]) -> dict[str, Any]:
    form = read_form(Path(request["paths"][0]))
    return {"fingerprint": form.fingerprint, "size": form.size, "read": READ}


def _form_against(request: dict[str, Any]) -> dict[str, Any]:
    model = read_form(Path(request["paths"][0]))
    READ.clear()
    candidate = read_form(Path(request["paths"][1]))
    rows = [asdict(row) for row in compare(model, candidate)]
    return {
        "fingerprint": candidate.fingerprint,
        "size": candidate.size,
        "rows": rows,
        "read": READ,
    }


def _templates(request: dict[str, Any]) -> list[tuple[str, str]]:
    return complaints(request["paths"][0])


ANSWERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "identity": _identify,
    "difference": _difference,
    "form": _form,
    "form against": _form_against,
    "chat templates": _templates,
}


def limit(*, memory: int, seconds: int) -> None:
    """Limit this process: bytes of address space, seconds of CPU time; it may write no file."""
    for kind, limit in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        wanted = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        # MacOS has no limit of address space; time is limited there too.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (wanted, hard))
    # Nothing is written: a file of this process cannot grow. Its answer goes through a pipe.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


# -- engines


def serve_engine(request: dict[str, Any]) -> int:
    """Answer requests to an engine, one line of JSON each, until standard input ends."""
    # Only here: who asks about a file needs no engine, and starts faster without.
    from harness.tokenizer.engines import adapters

    kinds: dict[str, Callable[[str], Any]] = {
        "tokenizers": adapters.TokenizersLibrary,
        "sentencepiece": adapters.SentencePieceLibrary,
        "llama.cpp": adapters.LlamaCpp,
        "llama.cpp model": adapters.LlamaCppModel,
        "server": adapters.TokenizeServer,
    }
    limit(memory=request["memory"], seconds=request["seconds"])
    answers = private_output()
    try:
        adapter = kinds[request["engine"]](request["where"])
        _say(answers, {"about": adapter.about, "modes": adapter.modes})
    # A Rust panic is a BaseException, and each of them is an answer.
    except BaseException as error:  # noqa: BLE001
        _say(answers, {"refused": _words(error)})
        return 0
    for line in sys.stdin:
        question = json.loads(line)
        if "texts" in question:
            _say(answers, [_encoded(adapter, text, question["mode"]) for text in question["texts"]])
        elif "ids" in question:
            continued = partial(adapter.continued, question["ids"], question["most"])
            _say(answers, _or_refused(continued))
        elif "round trip" in question:
            _say(answers, _or_refused(partial(_round_trip, adapter)))
        else:
            _say(answers, {"tokens": adapter.tokens(), "special": adapter.special()})
    return 0


def _encoded(adapter: Any, text: str, mode: Any) -> list[int] | str:
    try:
        ids: list[int] = adapter.encode(text, mode)
    except BaseException as error:  # noqa: BLE001 - as above
        return f"error: {_words(error)}"
    return ids


def _round_trip(adapter: Any) -> dict[str, str]:
    return {
        "parts": round_trip(lambda text: _encoded(adapter, text, adapter.modes[0]), adapter.decode)
    }


def _or_refused(answer: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return answer()
    except BaseException as error:  # noqa: BLE001 - as above
        return {"refused": _words(error)}


def _words(error: BaseException) -> str:
    kind = "" if isinstance(error, (TokenizerError, ValueError)) else f"{type(error).__name__}: "
    return f"{kind}{first_line(error)}"


def _say(answers: Any, answer: Any) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    raise SystemExit(main())
