"""Where ranks stand: what Python's faulthandler wrote about every thread, read as frames.

It names a thread by its handle in the C library, and /proc by its number in the kernel. The handle
points to the thread's own record, which holds that number; where in the record is learned from the
main thread, whose number is the process'.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from harness.world.control.waits import PROC, Unreadable, memory

THREAD = re.compile(
    r"^(?:Current thread|Thread) 0x([0-9a-f]+)(?: \[.*\])? \(most recent call first\):$"
)
FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')
# faulthandler itself writes at most 100 of each.
FRAMES_LIMIT = 100
THREADS_LIMIT = 100
RECORD_SIZE = 1024


class Frame(NamedTuple):
    """One call: the file as the interpreter knows it, the line it is at, the function."""

    file: str
    line: int
    function: str


class Stack(NamedTuple):
    """One Python thread, innermost frame first. `handle` is its pthread_t."""

    handle: int
    frames: tuple[Frame, ...]


def parse(text: str) -> list[Stack]:
    """Read what faulthandler wrote once. What is not part of a stack is passed over."""
    threads: list[tuple[int, list[Frame]]] = []
    for line in text.splitlines():
        if thread := THREAD.match(line):
            threads.append((int(thread[1], 16), []))
        elif (frame := FRAME.match(line)) and threads and len(threads[-1][1]) < FRAMES_LIMIT:
            threads[-1][1].append(Frame(frame[1], int(frame[2]), frame[3]))
    return [Stack(handle, tuple(frames)) for handle, frames in threads[:THREADS_LIMIT]]


def inside(frame: Frame, folder: Path) -> str | None:
    """The frame's file relative to a folder, or None where it lies outside of it."""
    root = os.path.realpath(folder) + os.sep
    file = os.path.realpath(frame.file)
    return file[len(root) :] if file.startswith(root) else None


def threads_of(pid: int, stacks: Sequence[Stack]) -> dict[int, int]:
    """The kernel's number of each thread by its handle.

    Raises:
        Unreadable: the C library's records cannot be read, or hold no such number.
    """
    tids = {int(entry.name) for entry in (PROC / str(pid) / "task").iterdir()}
    records = {stack.handle: memory(pid, stack.handle, RECORD_SIZE) for stack in stacks}
    for offset in range(0, RECORD_SIZE, 4):
        numbers = {
            handle: int.from_bytes(record[offset : offset + 4], "little")
            for handle, record in records.items()
        }
        values = list(numbers.values())
        if pid in values and len(set(values)) == len(values) and tids.issuperset(values):
            return numbers
    raise Unreadable(f"which threads of process {pid} these stacks belong to cannot be told here")
