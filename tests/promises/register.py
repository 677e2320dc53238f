"""The register of absolute sentences: each with the tests that try to break it, or with why it is
not a promise.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from .sentences import ROOT, Sentence

REGISTERS = sorted(Path(__file__).parent.glob("*.toml"))
KINDS = {
    "error": (
        "names what is wrong with a file, an option, a run or this machine, in place of an answer"
    ),
    "limit": "says what is not known or not shown, so that it claims less and not more",
    "demand": "asks something of the reader or of a file",
    "meaning": "says what a word, a row, a picture or a fragment of a sentence means",
    "around": "describes the code or the tools of the reader, not what Rankproof does",
}
"""Why a sentence is not a promise of Rankproof."""

# Of a sentence, the tests that try to break it, or "KIND: reason".
Judgement = list[str] | str


def read(registers: Iterable[Path] = REGISTERS) -> dict[Sentence, Judgement]:
    """The judgement of each listed sentence."""
    judged: dict[Sentence, Judgement] = {}
    for path in registers:
        for file, sentences in tomllib.loads(path.read_text(encoding="utf-8")).items():
            for text, judgement in sentences.items():
                if Sentence(file, text) in judged:
                    raise ValueError(f"{path.name}: listed twice, in {file}: {text}")
                judged[Sentence(file, text)] = judgement
    return judged


def problems(
    found: Iterable[Sentence], judged: Mapping[Sentence, Judgement], *, root: Path = ROOT
) -> Iterator[str]:
    """What keeps the register from being whole, each with what to do."""
    there = set(found)
    for sentence in there - judged.keys():
        yield (
            f"{sentence.file}: not judged, name the tests that try to break it, or weaken it:"
            f" {sentence.text}"
        )
    for sentence in judged.keys() - there:
        yield f"{sentence.file}: listed, and not in the file any more, remove it: {sentence.text}"
    for sentence, judgement in judged.items():
        for problem in _problems(judgement, root):
            yield f"{sentence.file}: {problem}: {sentence.text}"


def _problems(judgement: Judgement, root: Path) -> Iterator[str]:
    if isinstance(judgement, str):
        kind, _, reason = judgement.partition(": ")
        if kind not in KINDS or not reason.strip():
            yield f"is not a list of tests, nor a reason like 'limit: …' ({', '.join(KINDS)})"
    elif not judgement:
        yield "no test tries to break it"
    else:
        for test in judgement:
            file, _, name = test.partition("::")
            if name not in _tests(root / file):
                yield f"there is no test {test}"
        if all(_is_long(root, test) for test in judgement):
            yield "CI runs none of its tests, because all are marked long"


def _is_long(root: Path, test: str) -> bool:
    """Whether a test is left to the session before a release."""
    file, _, name = test.partition("::")
    path = root / file
    return path.is_file() and name in _long_tests(path)


@cache
def _long_tests(path: Path) -> frozenset[str]:
    """The names of the test functions of a file that are marked long."""
    return frozenset(
        node.name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(mark) == "pytest.mark.long" for mark in node.decorator_list)
    )


@cache
def _tests(path: Path) -> frozenset[str]:
    """The names of the test functions of a file; none where there is no such file."""
    if not path.is_file():
        return frozenset()
    return frozenset(
        re.findall(r"^def (test_\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    )
