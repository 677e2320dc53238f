"""The process that reads files nobody vouches for: `python -m harness.tokenizer.child`, asked over stdin.

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
    asked = json.loads(sys.stdin.read())
    _limit(memory=asked["memory"], seconds=asked["seconds"])
    # What the library prints of a panic is repeated in the answer.
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="surrogatepass")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    try:
        made = {"answer": ANSWERS[asked["question"]](asked)}
    except NotComparable as error:
        made = {"not comparable": str(error)}
    except Unreadable as error:
        made = {"refused": str(error)}
    except TokenizerError as error:
        made = {"refused": f"{' or '.join(asked['paths'])}: {error}"}
    except MemoryError:
        made = {"refused": f"{asked['paths'][0]}: needs more memory than the {asked['memory']} bytes it may have"}
    except BaseException as error:  # noqa: BLE001 - a Rust panic is a BaseException, and each of them must be told
        made = {"refused": f"{asked['paths'][0]}: {type(error).__name__}: {first_line(error)}"}
    text = json.dumps(made)
    if len(text) > LARGEST_ANSWER:
        text = json.dumps({"refused": f"{asked['paths'][0]}: gives short texts millions of ids; that is no tokenizer"})
    answer.write(text)
    answer.close()
    return 0


def _identify(asked: dict[str, Any]) -> str:
    from harness.tokenizer.repository import read_path
    from harness.tokenizer.repository_identity import identify_repository

    return identify_repository(read_path(Path(asked["paths"][0]))).to_json()


def _difference(asked: dict[str, Any]) -> list[dict[str, Any]]:
    from harness.tokenizer.difference import between
    from harness.tokenizer.repository import read_path
    from harness.tokenizer.repository_identity import identify_repository
    from harness.tokenizer.subject import on_backend

    sides = []
    for path in asked["paths"]:
        found = read_path(Path(path))
        templates = None if found.alone else found.templates
        sides.append(on_backend(identify_repository(found), found.backend, templates=templates))
    return [asdict(one) for one in between(*sides)]


ANSWERS: dict[str, Callable[[dict[str, Any]], Any]] = {"identity": _identify, "difference": _difference}


def _limit(*, memory: int, seconds: int) -> None:
    for kind, limit in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(kind)[1]
        wanted = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        with contextlib.suppress(ValueError, OSError):  # macOS has no limit of address space; time is limited there too
            resource.setrlimit(kind, (wanted, hard))
    # Nothing is written: a file of this process cannot grow. Its answer goes through a pipe.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


if __name__ == "__main__":
    raise SystemExit(main())
