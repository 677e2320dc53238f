"""Overrides: ``--set key.path=value`` changes one value of a scenario for one run, and says so in
the record.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness.forms.document import Document, Mark, Tree, parse_value
from harness.forms.model import HUB_PATTERN
from harness.forms.problem import Path, Problem, ScenarioError, closest, key_path
from harness.forms.text import plural, printable
from harness.forms.validation import allowed_keys
from harness.scenario.environment import bare
from harness.scenario.model import json_schema

FILE = "--set"
"""What problems of overrides name as their file.

Their line is the number of the override, from 1.
"""

LENGTH_LIMIT = 16 * 1024

ARMS: tuple[Path, ...] = (
    ("subject", "candidate"),
    ("subject", "control"),
    ("subject", "compare", "a"),
    ("subject", "compare", "b"),
)
ARM_TEXTS = {(*arm, key) for arm in ARMS for key in ("repo", "rev")}
"""Keys whose value is a text as it stands: an abbreviated commit may look like a number."""

ENVIRONMENTS: list[Path] = [("subject", "environment"), *((*arm, "environment") for arm in ARMS)]
"""Versions are texts too: 5.10 is not 5.1."""

_PLACES = "|".join(re.escape(".".join(map(str, place))) for place in ENVIRONMENTS)
_CHECKOUT = re.compile(rf"({_PLACES})\.packages\.[^.]+\.path")
_PATH = re.compile(r"[^.\[\]=]+(\[[0-9]{1,5}\])*(\.[^.\[\]=]+(\[[0-9]{1,5}\])*)*")


def apply(document: Document, overrides: Sequence[str]) -> None:
    """Change the document's tree and marks; problems are added to the document's."""
    for number, text in enumerate(overrides, start=1):
        try:
            _apply_one(document, text, Mark(FILE, number, 1))
        except ScenarioError as error:
            document.problems += error.problems


def is_repo(key: str) -> bool:
    """Return whether a key names the repository of an arm: its value is a path of this machine."""
    return key.endswith(".repo") and tuple(key.split(".")) in ARM_TEXTS


def is_checkout(key: str) -> bool:
    """Return whether a key names the folder that a package of an environment is built from: a path
    of this machine.
    """
    return _CHECKOUT.fullmatch(key) is not None


def hub_or_path(text: str) -> dict[str, str]:
    """Say what a text given for an input means: a hub id with its revision, or a path."""
    is_hub = not text.startswith((".", "/", "~")) and re.fullmatch(HUB_PATTERN, text) is not None
    return {"hub": text} if is_hub else {"path": text}


def _apply_one(document: Document, text: str, mark: Mark) -> None:
    name, equals, value = text.partition("=")
    if not equals or _PATH.fullmatch(name) is None:
        raise _error(
            mark,
            "",
            "must have the form key.path=value, like trials.candidate=5",
            found=printable(text),
        )
    if len(text) > LENGTH_LIMIT:
        message = f"is longer than {LENGTH_LIMIT} characters; edit the scenario file instead"
        raise _error(mark, "", message)
    # Python's halves of surrogate pairs for other bytes.
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise _error(mark, "", "is not UTF-8; type it again", found=printable(text))
    path = _split(name)
    node = _container(document, path, mark)
    if _is_package(path) and isinstance(node, dict):
        # The package that the file names, however it is written there, and with the extras it has
        # there.
        path = (
            *path[:-1],
            next((key for key in node if bare(key) == bare(str(path[-1]))), path[-1]),
        )
    at = Mark(mark.file, mark.line, len(name) + 2)
    if len(path) == 2 and path[0] == "inputs" and not value.lstrip().startswith("{"):
        part = Document(hub_or_path(value), document.marks, [], set())
        marks: dict[Path, Mark] = {}
    elif _is_text(path) and not value.startswith(("'", '"', "{")):
        part = Document(value, document.marks, [], set())
        marks = {}
    else:
        part = parse_value(value, at=at)
        marks = part.marks.values
    _forget(document, path)
    node[path[-1]] = part.tree
    document.problems += part.problems
    document.holes |= {path + hole for hole in part.holes}
    document.marks.keys[path] = mark
    document.marks.values[path] = at
    document.marks.values |= {path + inner: place for inner, place in marks.items()}
    if marks:
        document.marks.keys |= {path + inner: place for inner, place in part.marks.keys.items()}


def _is_text(path: Path) -> bool:
    places = [(*place, "python") for place in ENVIRONMENTS]
    of_a_checkout = path[-1] in ("path", "rev") and _is_package(path[:-1])
    return path in ARM_TEXTS or path in places or _is_package(path) or of_a_checkout


def _is_package(path: Path) -> bool:
    return path[:-1] in [(*place, "packages") for place in ENVIRONMENTS]


def _split(name: str) -> Path:
    return tuple(
        int(part[1:-1]) if part.startswith("[") else part
        for part in re.findall(r"\[[0-9]+\]|[^.\[\]]+", name)
    )


def _container(document: Document, path: Path, mark: Mark) -> Tree:
    """Walk to the mapping or list that holds the last part, making known mappings that the file
    leaves out.
    """
    node = document.tree
    for depth, part in enumerate(path):
        here = path[:depth]
        if isinstance(node, list):
            if not isinstance(part, int) or part >= len(node):
                count = plural(len(node), "item")
                size = f"has {count}, numbered from [0]" if node else "is empty"
                raise _error(
                    mark,
                    key_path(path[: depth + 1]),
                    f"is not an item of the list, which {size}",
                )
        elif isinstance(node, dict):
            _known(document, here, node, part, mark)
        else:
            raise _error(
                mark,
                key_path(path[: depth + 1]),
                f"cannot be set, because {key_path(here)} is a single value, not a mapping",
            )
        if depth == len(path) - 1:
            break
        if isinstance(node, dict) and node.get(str(part)) is None:
            node[str(part)] = {}
            document.marks.values[(*here, part)] = document.marks.keys[(*here, part)] = mark
            document.holes.discard((*here, part))
        node = node[part]
    return node


def _known(
    document: Document, here: Path, node: dict[str, Tree], part: str | int, mark: Mark
) -> None:
    """Refuse a key that the scenario cannot have: a slip would otherwise change nothing, or make a
    new axis.
    """
    known = allowed_keys(here, document.tree, json_schema(document.tree))
    allowed = sorted({*known, *node}) if here != ("inputs",) else sorted(node)
    free = not known and here != ("inputs",)
    if isinstance(part, int):
        raise _error(
            mark,
            key_path((*here, part)),
            f"cannot be set, because {key_path(here) or 'the scenario'} is not a list",
        )
    if free or part in allowed:
        return
    message = f"is not a known key of the scenario; allowed: {', '.join(allowed) or 'nothing'}"
    raise _error(mark, key_path((*here, part)), message, suggestion=closest(part, allowed))


def _forget(document: Document, path: Path) -> None:
    """Drop what is known about the value that the override replaces."""
    size = len(path)
    for marks in (document.marks.values, document.marks.keys):
        for old in [old for old in marks if old[:size] == path]:
            del marks[old]
    document.holes -= {old for old in document.holes if old[:size] == path}


def _error(
    mark: Mark, key: str, message: str, *, found: str = "", suggestion: str | None = None
) -> ScenarioError:
    return ScenarioError(
        [Problem(mark.file, mark.line, mark.column, key, found, message, suggestion)]
    )
