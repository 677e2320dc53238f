"""Histories made by hand: what a world of two healthy ranks says, to be broken one piece at a
time.
"""

from __future__ import annotations

from harness.events import Event

HARNESS_PID = 100
MODULES = [{"module": "subject", "file": "subject.py", "sha256": "a" * 64}]


def healthy(size: int = 2) -> list[Event]:
    """Events of a trial in which everything is right.

    Rank r has pid 200 + r, and one event per millisecond.
    """
    told: list[tuple[str, int | None, str, dict[str, object]]] = [
        ("harness", None, "world.begin", {"harness_pid": HARNESS_PID, "size": size})
    ]
    told += [("server", rank, "rank.started", {}) for rank in range(size)]
    for rank in range(size):
        told += [
            ("rank", rank, "rank.begin", {}),
            ("rank", rank, "backend.ready", {"backend": "gloo", "rank": rank, "size": size}),
            (
                "rank",
                rank,
                "subject.loaded",
                {"entry": "subject.py", "elsewhere": False, "modules": MODULES},
            ),
            ("rank", rank, "subject.begin", {}),
            ("rank", rank, "tokenizer.ready", {}),
            ("rank", rank, "decode", {"text": "Hello world", "ids": [1, 2]}),
            ("rank", rank, "subject.end", {}),
        ]
    told += [("server", rank, "rank.exited", {"code": 0, "signal": None}) for rank in range(size)]
    told += [
        ("server", None, "world.survivors", {"count": 0, "processes": []}),
        ("harness", None, "world.end", {}),
    ]
    return [
        Event(
            ns=1_000_000 * number,
            by=by,
            rank=rank,
            pid=None if rank is None else 200 + rank,
            name=name,
            values=values,
        )  # type: ignore[arg-type]
        for number, (by, rank, name, values) in enumerate(told, start=1)
    ]
