"""What changed between the arms: what ranks loaded comes first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from harness.events import Event
from harness.history import History
from harness.record.changed import FILE_LINES, LINES, LOADED_LINES, ChangedCode

# By arm and file: `engine.py` and the long `model.py` are loaded, the first file by its name is
# not.
FILES = {
    "a_download.py": ("old\n" * 300, "new\n" * 300),
    "engine.py": ("wrong\n", "right\n"),
    "model.py": ("before\n" * 300, "after\n" * 300),
    "same.py": ("same\n", "same\n"),
}


def read(path: str) -> bytes:
    arm, _, file = path.removeprefix("evidence/source/").partition("/")
    return FILES[file][arm == "candidate"].encode()


def changed(*loaded: str) -> ChangedCode:
    arms: Any = {
        arm: SimpleNamespace(
            files={file: texts[which] for file, texts in FILES.items()}, arguments="{}"
        )
        for which, arm in enumerate(("control", "candidate"))
    }
    found = ChangedCode(arms, read)
    modules: Any = [{"module": one, "file": one, "sha256": "0" * 64} for one in loaded]
    values = {"entry": "engine.py", "elsewhere": False, "modules": modules}
    event = Event(ns=1, by="rank", rank=0, pid=1, name="subject.loaded", values=values)
    found.hear("evidence/x/candidate-00000/events.jsonl", History([event], size=1))
    return found


def files(lines: list[str]) -> list[str]:
    return [line.removeprefix("+++ candidate/") for line in lines if line.startswith("+++ ")]


def test_what_ranks_loaded_comes_first() -> None:
    """The shortest first; no file takes the place of all others; what nobody loaded is counted."""
    lines = changed("model.py", "engine.py", "same.py").lines([])
    assert files(lines) == ["engine.py", "model.py"]
    assert "+right" in lines
    assert lines[-1].startswith("... (1 more file differs that no rank loaded")
    assert any("more lines" in line for line in lines)
    assert len(lines) <= LOADED_LINES
    assert sum(line in ("-before", "+after") for line in lines) < FILE_LINES


def test_where_nobody_tells_they_come_by_name() -> None:
    """So it is where no rank loaded a file that differs, as of programs."""
    lines = changed().lines([])
    assert files(lines) == ["a_download.py"]
    assert len(lines) == LINES + 1
