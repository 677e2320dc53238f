"""The page of the design's words names what exists: classes, arguments, results and tests."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import harness._integrity
from harness.run import distributed_inference
from tests.docs.pages import ROOT

PACKAGE = ROOT / "packages" / "integrity"
PAGE = PACKAGE / "docs" / "seed.md"
ROW = re.compile(r"^\| (?P<design>[^|]+) \| (?P<there>[^|]*)\| `(?P<test>[^|`]+)` \|$")
NAME = re.compile(
    r"(?P<is_awaited>await )?(?P<name>[\w.]+)(?:\((?P<given>[\w, ]*)\))?(?: -> (?P<result>\w+))?"
)
SPAN = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Row:
    """One word of the design.

    Attributes:
        design: as the design has it.
        name: what is to exist: the design's own, or the first one in the second column.
        test: what shows it.
    """

    design: str
    name: str
    test: str


def rows(text: str) -> Iterator[Row]:
    """The rows of every table of a page."""
    for line in text.splitlines():
        if line.startswith("|") and not re.match(r"\| (---|the design) \|", line):
            found = ROW.match(line)
            assert found is not None, line
            other = SPAN.match(found["there"])
            named = other or SPAN.match(found["design"])
            assert named is not None, f"{line}: it names nothing"
            yield Row(found["design"].strip("`"), named[1], found["test"])


ROWS = list(rows(PAGE.read_text(encoding="utf-8")))


def member(name: str) -> Any:
    """What a dotted name stands for; a field without a default is what its class says of it.

    Raises:
        LookupError: there is nothing of that name.
    """
    first, *rest = name.split(".")
    if first == "harness":
        return _member_of_module(name)
    homes = [home for home in (harness._integrity, distributed_inference) if hasattr(home, first)]
    if not homes:
        raise LookupError(f"there is no {first}")
    thing = getattr(homes[0], first)
    for part in rest:
        fields = {key for kind in inspect.getmro(thing) for key in inspect.get_annotations(kind)}
        if part not in fields and not hasattr(thing, part):
            raise LookupError(f"{thing.__name__} has no {part}")
        thing = getattr(thing, part, part)
    return thing


def _member_of_module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, last = name.rpartition(".")
        thing = getattr(importlib.import_module(module), last, None)
        if thing is None:
            raise LookupError(f"{module} has no {last}") from None
        return thing


def wrong_name(written: str) -> str:
    """What is wrong with a name; empty where it exists as it is written."""
    found = NAME.fullmatch(written)
    if found is None:
        return f"{written} is not a name"
    try:
        thing = member(found["name"])
    except LookupError as error:
        return str(error)
    if bool(found["is_awaited"]) is not inspect.iscoroutinefunction(thing):
        return f"{written}: the page and the code differ in whether it is awaited"
    if found["given"] is None:
        return ""
    signature = inspect.signature(thing)
    lacking = set(filter(None, found["given"].split(", "))) - set(signature.parameters)
    if lacking:
        return f"{written}: it does not take {', '.join(sorted(lacking))}"
    if found["result"] and found["result"] not in re.findall(
        r"\w+", str(signature.return_annotation)
    ):
        return f"{written}: it gives {signature.return_annotation}"
    return ""


@cache
def names_in(path: Path) -> frozenset[str]:
    """The names of a file's tests."""
    if not path.is_file():
        return frozenset()
    names = set[str]()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(name for name in names if name.lower().startswith("test"))


def wrong_test(written: str) -> str:
    """What is wrong with a test that is named; empty where it exists."""
    path, _, name = written.partition("::")
    where = ROOT / path if "/" in path else PACKAGE / "tests" / path
    return "" if name in names_in(where) else f"there is no test {written}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.design)
def test_each_word_of_the_design_exists_and_has_a_test(row: Row) -> None:
    """The name is there, takes the arguments and gives the result that the page says, and so is its
    test.
    """
    assert wrong_name(row.name) == ""
    assert wrong_test(row.test) == ""


def test_no_word_is_listed_twice() -> None:
    """Each has one row, and they are as many as the design names."""
    words = [row.design for row in ROWS]
    assert len(set(words)) == len(words)
    assert len(words) == WORDS


# A row that is lost is a word of the design that nobody looks for any more.
WORDS = 96

FAULTS: dict[str, tuple[Callable[[str], str], str]] = {
    "TokenValidators": (wrong_name, "there is no TokenValidators"),
    "ValidationResult.score": (wrong_name, "ValidationResult has no score"),
    "harness.run.run.Ended": (wrong_name, "has no Ended"),
    "TokenValidator.validate_token(chunk)": (wrong_name, "does not take chunk"),
    "CorruptionDetector.analyze_output(text) -> CorruptionReport": (
        wrong_name,
        "it gives CorruptionAnalysis",
    ),
    "DistributedBarrier.validate_sync_state()": (wrong_name, "whether it is awaited"),
    "await TokenValidator.validate_token(token)": (wrong_name, "whether it is awaited"),
    "TokenValidator!": (wrong_name, "is not a name"),
    "test_tokens.py::test_nothing": (wrong_test, "there is no test"),
    "test_nothing.py::test_a_token_comes_as_it_was_sent": (wrong_test, "there is no test"),
    "test_tokens.py::chunk": (wrong_test, "there is no test"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_word_that_does_not_exist_is_found(fault: str) -> None:
    """Another name, argument, result or test is named; so the tests above can fail."""
    check, words = FAULTS[fault]
    assert words in check(fault)


def test_a_row_without_a_test_is_refused() -> None:
    """Every row has three columns, and a test in the last one."""
    with pytest.raises(AssertionError):
        list(rows("| `TokenValidator` | | |"))
    with pytest.raises(AssertionError, match="it names nothing"):
        list(rows("| token validation | in words | `test_tokens.py::test_x` |"))
