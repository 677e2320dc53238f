"""The file of a ledger: read back as it was written, and refused where no rank can have written
it.
"""

from __future__ import annotations

import importlib
import os
import random
import struct
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.ledger import file
from harness.ledger.call import CallGroup, NotALedger
from harness.ledger.file import ARTEFACT, HEADER, LARGEST, PART, RECORD, SLOTS, encode, parse
from harness.ledger.inside import book as rank_ledger
from harness.ledger.inside.book import Book
from harness.ledger.outside.account import account
from harness.rank.artefacts import BYTES, FOLDER
from harness.rank.spec import RankSpec
from tests.ledger.made import WORLD, call, digested, ledger, of_sum, part, receive, send

CALLS = (
    call(reduction="sum", state="ended", end=99),
    send(1, tag=3),
    receive(None),
    call("barrier"),
)
WRITTEN = digested(
    ledger(0, *CALLS, undigested=2, undigested_why="why", in_c=True),
    of_sum(1, "sent", -1.5),
    part(2, "sent", 9),
)
DATA = encode(WRITTEN)


@pytest.fixture
def book(tmp_path: Path) -> Book:
    """The ledger of rank 0 of two."""
    (tmp_path / FOLDER).mkdir()
    return book_of(tmp_path)


def book_of(scratch: Path) -> Book:
    """A ledger where the rank of a scratch folder keeps it."""
    return Book(scratch / FOLDER / (ARTEFACT + BYTES), spec(scratch))


def spec(scratch: Path) -> RankSpec:
    known: dict[str, Any] = {"rendezvous": {}, "arguments": {}, "inputs": {}, "env": {}}
    known |= {
        "backend": "gloo",
        "entry": "s:f",
        "folder": str(Path(__file__).parent),
        "seed": 1,
        "gates": (),
    }
    return RankSpec(
        rank=0, size=2, scratch=str(scratch), world=WORLD, events_fd=3, gates_fd=4, **known
    )


def begin(book: Book, operation: str, group: int, shape: int = 0) -> int | None:
    """Write that a call begins which nobody has to tell more of."""
    here, index = sys._getframe(), next(book.counter((group,)))
    return book.begin(
        here, book.text(operation), group, index, -1, 0, 0, shape, 0, 0, rank_ledger.OPEN
    )


def left(tmp_path: Path) -> bytes:
    return (tmp_path / FOLDER / (ARTEFACT + BYTES)).read_bytes()


def test_what_is_written_is_read_back() -> None:
    """A ledger is the same after it was encoded, and encodes to the same bytes."""
    assert parse(DATA) == WRITTEN
    assert encode(parse(DATA)) == DATA
    assert len(DATA) < HEADER.size + 4 * RECORD.size + 2 * PART.size + 200


def test_every_cut_is_refused() -> None:
    """A ledger that ends early is not one, but for digests that are missing as a whole."""
    whole = [len(DATA) - many * PART.size for many in range(3)]
    for length in range(len(DATA)):
        if length not in whole:
            with pytest.raises(NotALedger):
                parse(DATA[:length])
    assert parse(DATA[: whole[1]]).parts == WRITTEN.parts[:1]


@pytest.mark.slow
def test_no_byte_makes_it_raise_anything_else() -> None:
    """Whatever a rank leaves there is a ledger, or is said not to be one: changed bytes, noise,
    huge counts.
    """
    chance = random.Random(7)
    for _ in range(1500):
        data = bytearray(DATA)
        for _ in range(chance.choice((1, 1, 2, 8))):
            data[chance.randrange(len(data))] = chance.choice(
                (0, 1, 0x7F, 0xFF, chance.randrange(256))
            )
        try:
            found = parse(bytes(data))
        except NotALedger:
            continue
        assert parse(encode(found)) == found
        account({0: encode(found)}, size=2, world=WORLD, asked={"x": (0, 1)})
    for noise in (
        b"",
        b"\0" * 100,
        chance.randbytes(5000),
        file.MAGIC,
        file.MAGIC + b"\xff" * LARGEST,
    ):
        with pytest.raises(NotALedger):
            parse(noise)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"operation": "destroy"}, "invalid values"),
        ({"index": 0}, "invalid values"),
        ({"state": "ended", "end": 5, "begin": 6}, "invalid values"),
        ({"operation": "send", "peer": None}, "invalid values"),
        (
            {"group": CallGroup("torch", "0", (1,))},
            "that does not contain both the rank and its peer",
        ),
        (
            {"group": CallGroup("torch", "0", (0,)), "peer": 1},
            "that does not contain both the rank and its peer",
        ),
        ({"group": CallGroup("torch", "0", (0, 7))}, "is not a valid group for world size 2"),
        ({"group": CallGroup("torch", "0", (0, 0))}, "is not a valid group for world size 2"),
    ],
)
def test_a_call_that_cannot_be_is_refused(wrong: dict[str, Any], why: str) -> None:
    """What no rank of that world can have called is not a ledger."""
    odd = replace(WRITTEN.calls[0], **wrong)
    with pytest.raises(NotALedger, match=why):
        parse(encode(replace(WRITTEN, calls=(odd,), made=1)))


def test_texts_are_printable_ascii() -> None:
    """What a rank calls its functions cannot act on a terminal or differ between versions of
    Python.
    """
    odd = replace(WRITTEN.calls[0], site="\x1b[31mü\u202e.py:1 in f" + "x" * 1000)
    (found,) = parse(encode(replace(WRITTEN, calls=(odd,), made=1))).calls
    assert found.site.startswith("\\x1b[31m\\xfc\\u202e.py:1 in f")
    assert len(found.site) == 300
    with pytest.raises(NotALedger, match="its text 1 is malformed"):
        parse(DATA.replace(b"all_reduce", b"all\x1breduce"))


@pytest.mark.whole
def test_a_full_ledger_holds_the_last_calls_and_says_so(book: Book, tmp_path: Path) -> None:
    """Of more calls than it has room for the first are gone, which is counted."""
    group = book.text(CallGroup("torch", "0", (0, 1)).text())
    for _ in range(SLOTS + 10):
        book.end(begin(book, "barrier", group))
    found = parse(left(tmp_path))
    assert (found.made, found.overwritten, found.torn, len(found.calls)) == (
        SLOTS + 10,
        10,
        0,
        SLOTS,
    )
    assert [one.index for one in (found.calls[0], found.calls[-1])] == [11, SLOTS + 10]
    assert parse(encode(found)) == found
    given: Any = account({0: encode(found)}, size=2, world=WORLD, asked={})
    assert (
        given["ranks"][0]["partly"]
        == f"its ledger was full: the first 10 of {SLOTS + 10} calls are no longer in it"
    )


def test_a_record_that_was_cut_off_is_counted(book: Book, tmp_path: Path) -> None:
    """A rank that is killed while one of its threads writes leaves a gap, and the rest."""
    group = book.text(CallGroup("torch", "0", (0, 1)).text())
    for _ in range(3):
        begin(book, "all_reduce", group)
    data = bytearray(left(tmp_path))
    struct.pack_into(
        "<Q", data, rank_ledger.RECORDS_AT + 2 * RECORD.size - file.NUMBER.size, 0
    )  # the number comes last
    found = parse(bytes(data))
    assert ([one.number for one in found.calls], found.torn) == ([1, 3], 1)
    assert parse(encode(found)) == found


def test_threads_take_a_record_each(book: Book, tmp_path: Path) -> None:
    """Calls of eight threads are all there, each once, and counted by group without a gap."""
    group = book.text(CallGroup("torch", "0", (0, 1)).text())

    together = threading.Barrier(8)

    def work() -> None:
        together.wait()
        for number in range(500):
            shape = book.text(str(number % 50))
            book.end(begin(book, "all_reduce", group, shape))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = parse(left(tmp_path))
    assert (found.made, found.torn) == (4000, 0)
    assert sorted(one.index for one in found.calls) == list(range(1, 4001))
    assert {one.thread for one in found.calls} == set(range(8))


def test_a_table_that_is_full_is_said(book: Book, tmp_path: Path) -> None:
    """Places and shapes without room are left out and counted.

    A name that a record needs makes it not observed.
    """
    group = book.text(CallGroup("torch", "0", (0, 1)).text())
    for number in range(5000):
        shape = book.text(f"{number}x" * 8, needed=False)
        book.end(begin(book, "all_reduce", group, shape))
    found = parse(left(tmp_path))
    assert (found.made, found.why) == (5000, "")
    assert found.lost > 1000
    assert found.calls[-1].shape == ""

    def fill() -> None:
        for number in range(2000):
            book.text(CallGroup("torch", f"{number}-" * 20, (0, 1)).text())

    with pytest.raises(ValueError, match="no room"):
        fill()
    book.refuse("anything at all, for which there is no room either " * 3)
    assert parse(left(tmp_path)).why == "the table of its texts is full"


def test_the_first_reason_stays(book: Book, tmp_path: Path) -> None:
    """What was not observed is said once, by what was found first."""
    book.refuse("torch is another\none")
    book.refuse("something else")
    assert parse(left(tmp_path)).why == "torch is another\\none"


def test_a_long_reason_is_cut_off_and_said(book: Book, tmp_path: Path) -> None:
    """An error of a library may be longer than a text of a ledger: its beginning is the reason."""
    book.refuse("a call could not be written: " + "x" * 400)
    book.undigested("its tensor is odd: " + "y" * 400)
    written = parse(left(tmp_path))
    assert written.why.startswith("a call could not be written: xxx")
    assert written.undigested_why.startswith("its tensor is odd: yyy")


def test_a_child_writes_nothing_but_that_it_called(book: Book, tmp_path: Path) -> None:
    """A process that the rank forked shares the file: its calls are counted apart."""
    group = book.text(CallGroup("torch", "0", (0, 1)).text())
    book.end(begin(book, "barrier", group))
    if (child := os.fork()) == 0:
        try:
            book.end(begin(book, "barrier", group))
            book.refuse("a child's reason")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    found = parse(left(tmp_path))
    assert (found.made, found.children, found.why) == (1, 2, "")


def test_no_other_file_takes_its_place(tmp_path: Path) -> None:
    """Where something lies there already, a link for one, no ledger is begun and nothing is written
    through it.
    """
    (tmp_path / FOLDER).mkdir()
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (tmp_path / FOLDER / (ARTEFACT + BYTES)).symlink_to(mine)
    with pytest.raises(FileExistsError):
        book_of(tmp_path)
    assert mine.read_text() == "mine"


@pytest.mark.slow
def test_another_release_of_torch_is_not_observed(
    book: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels whose schema is not the one that is known are not stood before, and the ledger says
    which.
    """
    pytest.importorskip("torch.distributed")
    import torch

    hook = importlib.import_module("harness.ledger.inside.hook_torch")
    known = hook.OPERATIONS["send"]
    monkeypatch.setitem(
        hook.OPERATIONS, "send", replace(known, arguments=known.arguments + ", bool quick=False")
    )
    hook.install(book, torch)()
    why = f"torch {torch.__version__} has a c10d::send that this version does not know"
    assert parse(left(tmp_path)).why == why
    given: Any = account({0: encode(parse(left(tmp_path)))}, size=2, world=WORLD, asked={})
    assert given["ranks"][0]["why"] == f"its calls were not observed: {why}"
    monkeypatch.undo()
    assert not torch._C._dispatch_has_kernel_for_dispatch_key("c10d::send", hook.KEY)
