"""What the format knows and this version cannot do: one list, from which whoever adds a thing deletes its line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.scenario.document import Document, Tree
from harness.scenario.problem import Path, Problem, shown

MESSAGE = "is not in this version yet"


@dataclass(frozen=True, slots=True)
class NotYet:
    """One thing that is not there yet: a key (``*`` stands for any item), or a key with one certain value."""

    path: tuple[str, ...]
    instead: str
    value: str | None = None


NOT_YET: tuple[NotYet, ...] = (NotYet(("subject", "use"), "name a function with entry"),)


def not_yet(document: Document) -> Iterator[Problem]:
    """Find everything in a document that this version cannot do."""
    for thing in NOT_YET:
        for path, value in _matches(document.tree, thing.path):
            if value is None or (thing.value is not None and value != thing.value):
                continue
            found = shown(value) if thing.value is not None else ""
            message = f"{MESSAGE}; {thing.instead}"
            yield document.marks.problem(path, message, at_key=thing.value is None, found=found, kind="not-yet")


def _matches(tree: Tree, pattern: tuple[str, ...], here: Path = ()) -> Iterator[tuple[Path, Tree]]:
    if not pattern:
        yield here, tree
    elif pattern[0] == "*" and isinstance(tree, list):
        for index, item in enumerate(tree):
            yield from _matches(item, pattern[1:], (*here, index))
    elif isinstance(tree, dict) and pattern[0] in tree:
        yield from _matches(tree[pattern[0]], pattern[1:], (*here, pattern[0]))
