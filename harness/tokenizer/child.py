"""The process that reads files nobody vouches for: `python -m harness.tokenizer.child`, with its request on stdin.

It limits itself before it opens anything. A panic, an endless regular expression or a stack overflow ends this process
and no other. It writes nothing but its answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.tokenizer.problem import NotComparable, TokenizerError, Unreadable, first_line

LARGEST_ANSWER = 8 << 20


def main() -> int:
    """Answer one request with one line of JSON."""
    request = json.loads(sys.stdin.read())
    limit(memory=request["memory"], seconds=request["seconds"])
    # What the library prints of a panic is repeated in the answer.
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="surrogatepass")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    try:
        made = {"answer": ANSWERS[request["question"]](request)}
    except NotComparable as error:
        made = {"not comparable": str(error)}
    except Unreadable as error:
        made = {"refused": str(error), "sort": type(error).__name__}
    except TokenizerError as error:
        made = {"refused": f"{' or '.join(request['paths'])}: {error}"}
    except MemoryError:
        made = {"refused": f"{request['paths'][0]}: needs more memory than the {request['memory']} bytes it may have"}
    except BaseException as error:  # noqa: BLE001 - a Rust panic is a BaseException, and each of them is an answer
        made = {"refused": f"{request['paths'][0]}: {type(error).__name__}: {first_line(error)}"}
    text = json.dumps(made)
    if len(text) > LARGEST_ANSWER:
        text = json.dumps(
            {"refused": f"{request['paths'][0]}: gives short texts millions of ids, and no tokenizer does"}
        )
    answer.write(text)
    answer.close()
    return 0


def _identify(request: dict[str, Any]) -> str:
    from harness.tokenizer.formats import identify_path

    return identify_path(Path(request["paths"][0])).to_json()


def _difference(request: dict[str, Any]) -> list[dict[str, Any]]:
    from harness.tokenizer.difference import between
    from harness.tokenizer.files import identify_files, read_path
    from harness.tokenizer.form import compared
    from harness.tokenizer.formats import is_serialised, read_form
    from harness.tokenizer.subject import on_backend

    if not all(is_serialised(Path(path)) for path in request["paths"]):
        return [asdict(one) for one in compared(*(read_form(Path(path)) for path in request["paths"]))]
    sides = []
    for path in request["paths"]:
        files = read_path(Path(path))
        templates = None if files.alone else files.templates
        sides.append(on_backend(identify_files(files), files.backend, templates=templates))
    return [asdict(one) for one in between(*sides)]


def _form(request: dict[str, Any]) -> dict[str, Any]:
    from harness.tokenizer.files import READ
    from harness.tokenizer.formats import read_form

    form = read_form(Path(request["paths"][0]))
    return {"fingerprint": form.fingerprint, "size": form.size, "read": READ}


def _form_against(request: dict[str, Any]) -> dict[str, Any]:
    from harness.tokenizer.files import READ
    from harness.tokenizer.form import compared
    from harness.tokenizer.formats import read_form

    model = read_form(Path(request["paths"][0]))
    READ.clear()
    candidate = read_form(Path(request["paths"][1]))
    rows = [asdict(one) for one in compared(model, candidate)]
    return {"fingerprint": candidate.fingerprint, "size": candidate.size, "rows": rows, "read": READ}


def _templates(request: dict[str, Any]) -> list[tuple[str, str]]:
    from harness.tokenizer.gguf.template import complaints

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
    for kind, limit in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(kind)[1]
        wanted = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        with contextlib.suppress(ValueError, OSError):  # macOS has no limit of address space; time is limited there too
            resource.setrlimit(kind, (wanted, hard))
    # Nothing is written: a file of this process cannot grow. Its answer goes through a pipe.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


if __name__ == "__main__":
    raise SystemExit(main())
