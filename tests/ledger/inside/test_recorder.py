"""The recorder in C: it writes the calls that were met before, and leaves every other one to
Python.
"""

from __future__ import annotations

import itertools
import mmap
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest

from harness.ledger.file import RECORD, SLOTS
from harness.ledger.inside.book import OPEN, STARTED, module_of, recorder_of
from harness.world.control.rank_environment import compiled_recorder

pytestmark = pytest.mark.skipif(
    not compiled_recorder(), reason="there is no compiler, or no header of Python's"
)
AT = 64
FLOAT, INT = object(), object()


class Kept:
    """A recorder with one operation, of which one call was kept: its record, as Python wrote it."""

    def __init__(self) -> None:
        self.map = mmap.mmap(-1, AT + SLOTS * RECORD.size)
        self.numbers, self.index = itertools.count(1), itertools.count(1)
        self.passed: dict[int, bool] = {}
        found = recorder_of(
            module_of(compiled_recorder()),
            (self.map, self.numbers, self.passed, AT, SLOTS, RECORD.size),
        )
        assert found is not None
        self.recorder, self.ranks = found, {0: 0, 1: 1}
        self.members: dict[Any, Any] = {"group": self.ranks}
        found.look(self.members)
        self.operation = found.operation(lambda boxed: boxed, None, None, 0, 1, 2, 3)
        self.standing = (step for step in range(2))  # its frame stays on one instruction
        self.frame, self.known = self.standing.gi_frame, ("count", "members", "")
        number, index = next(self.numbers), next(self.index)
        RECORD.pack_into(self.map, AT, 5, 0, 6, index, 1, 7, 1, 2, 3, 4, 5, 0, 0, OPEN, number)
        self.operation.remember(self.frame, self.given(), OPEN, AT, self.index, self.known)

    def given(
        self,
        *,
        shape: Any = (2, 3),
        dtype: Any = FLOAT,
        group: Any = "group",
        peer: Any = 1,
        tag: Any = 7,
    ) -> Any:
        return [SimpleNamespace(shape=shape, dtype=dtype)], group, peer, tag

    def record(self, at: int) -> Any:
        return RECORD.unpack_from(self.map, at)


def test_a_call_that_was_met_is_written_with_a_time_index_and_number_of_its_own() -> None:
    """The rest is as Python wrote it, and the last of more than there is room for take the places
    of the first.
    """
    kept = Kept()
    for _ in range(SLOTS + 2):
        found = kept.operation.write(kept.frame, kept.given(), OPEN)
        assert found is not None
    at, known = found
    assert known is kept.known
    begin, *rest, number = kept.record(at)
    assert (at, number) == (AT + 2 * RECORD.size, SLOTS + 3)
    assert (begin > 5, rest) == (True, [0, 6, SLOTS + 3, 1, 7, 1, 2, 3, 4, 5, 0, 0, OPEN])
    kept.recorder.end(at)
    assert kept.record(at)[1] >= begin


@pytest.mark.parametrize(
    "other",
    [
        *(
            {"shape": (3, 2)},
            {"shape": (6,)},
            {"dtype": INT},
            {"peer": 0},
            {"tag": 8},
            {"tag": 2**80},
            {"tag": "7"},
        ),
        {"group": "another"},
    ],
)
def test_whatever_differs_is_left_to_python(other: dict[str, Any]) -> None:
    """Nothing is written, and no number is used up."""
    kept = Kept()
    kept.members["another"] = {0: 1, 1: 0}
    before = bytes(kept.map)
    assert kept.operation.write(kept.frame, kept.given(**other), OPEN) is None
    assert kept.operation.write(kept.frame, kept.given(), STARTED) is None
    assert kept.operation.write(kept.frame, (kept.given()[0] * 2, *kept.given()[1:]), OPEN) is None
    assert kept.operation.write(kept.frame, kept.given()[:2], OPEN) is None
    assert kept.operation.write(sys._getframe(), kept.given(), OPEN) is None
    assert bytes(kept.map) == before
    assert kept.operation.write(kept.frame, kept.given(), OPEN) is not None
    kept.recorder.stop()  # as in a process that the rank forked
    assert kept.operation.write(kept.frame, kept.given(), OPEN) is None
    assert next(kept.numbers) == 3


def test_a_group_of_other_members_is_not_the_one_that_was_met() -> None:
    """The only group that there is was made anew: Python has to say who is in it."""
    kept = Kept()
    kept.members["group"] = {0: 0, 1: 1}
    assert kept.operation.write(kept.frame, kept.given(), OPEN) is None


def test_more_code_of_libraries_than_it_holds_leaves_all_to_python() -> None:
    """A frame that is passed is never taken for the caller: another one may stand behind it the
    next time.
    """
    kept, standing = Kept(), []
    for number in range(1025):
        # Each call has one place among 512, by addresses, and the other's call may have taken it.
        kept.operation.remember(kept.frame, kept.given(), OPEN, AT, kept.index, kept.known)
        assert kept.operation.write(kept.frame, kept.given(), OPEN) is not None
        one = FunctionType(library.__code__.replace(co_name=f"f{number}"), {})()
        next(one)
        standing.append(one)
        kept.passed[id(one.gi_code)] = True
        kept.operation.remember(one.gi_frame, kept.given(), OPEN, AT, kept.index, kept.known)
    kept.operation.remember(kept.frame, kept.given(), OPEN, AT, kept.index, kept.known)
    assert kept.operation.write(kept.frame, kept.given(), OPEN) is None
    assert kept.operation.write(one.gi_frame, kept.given(), OPEN) is None


def library() -> Iterator[None]:
    yield


def test_without_a_compiler_python_writes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is compiled_recorder once, found again where there is no compiler, and what was not made for this
    is not loaded.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = compiled_recorder.__wrapped__()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert made.startswith(str(tmp_path))
    assert compiled_recorder.__wrapped__() == made
    records = (mmap.mmap(-1, 4096), itertools.count(1), {}, 0, 2, RECORD.size)
    assert recorder_of(module_of(made), records) is not None
    assert recorder_of(module_of(made), (*records[:-1], RECORD.size + 1)) is None
    assert recorder_of(module_of(made), (*records[:-2], 4096, RECORD.size)) is None
    assert module_of(made.replace("cpython-", "cpython-9")) is None
    Path(other := made.replace("recorder-", "other-")).write_bytes(b"not one")
    assert module_of(other) is None
    Path(made).unlink()
    assert compiled_recorder.__wrapped__() == ""
    assert recorder_of(module_of(""), records) is None
    assert "recorder" not in sys.modules
