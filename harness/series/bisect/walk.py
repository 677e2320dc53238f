"""In which order versions are tried, and between which of them the answer changes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

Word = Literal["RIGHT", "AT FAULT", "CANNOT TELL", "NOT TRIED"]
DECIDED = ("RIGHT", "AT FAULT")


class Border(NamedTuple):
    """Two versions with different answers, and the versions between them without an answer."""

    before: str
    after: str
    between: tuple[str, ...]


def walk(
    versions: Sequence[str],
    words: Callable[[], dict[str, Word]],
    ask: Callable[[str], None],
    *,
    every: bool,
) -> None:
    """Try versions, the two ends first, then the one closest to the middle of what is open.

    A version that cannot be told is passed by. Nothing is tried between ends that do not differ.

    Args:
        versions: oldest first.
        words: the word of each version that was tried. It may change: what a version shows is
            judged by the end that is at fault.
        ask: tries a version.
        every: try them all.
    """
    for end in (versions[-1], versions[0]):
        if end not in words():
            ask(end)
        if words()[end] not in DECIDED and not every:
            return
    if every:
        for version in versions:
            if version not in words():
                ask(version)
        return
    while True:
        known = words()
        ends = (known[versions[0]], known[versions[-1]])
        if set(ends) != set(DECIDED):
            return
        # Versions that an earlier bisect tried count too, wherever they are.
        low = max(index for index, one in enumerate(versions) if known.get(one) == ends[0])
        high = next(
            index for index, one in enumerate(versions) if index > low and known.get(one) == ends[1]
        )
        waiting = [index for index in range(low + 1, high) if versions[index] not in known]
        if not waiting:
            return
        ask(versions[min(waiting, key=lambda index: abs(2 * index - low - high))])


def borders(versions: Sequence[str], known: dict[str, Word]) -> list[Border]:
    """Return every place at which the answer changes, oldest first."""
    found: list[Border] = []
    last: int | None = None
    for index, version in enumerate(versions):
        if known.get(version) not in DECIDED:
            continue
        if last is not None and known[versions[last]] != known[version]:
            found.append(Border(versions[last], version, tuple(versions[last + 1 : index])))
        last = index
    return found
