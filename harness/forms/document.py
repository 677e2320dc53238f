"""YAML text as a plain tree, with the position of every key and value.

The tree is built from PyYAML's events, not by its constructors: events need no recursion, nothing
is expanded, and the limits stop a hostile file before it costs anything. Of plain scalars only
``null``, ``~`` and the empty one, ``true`` and ``false``, and JSON numbers are special. Everything
else is text, so ``no``, ``on``, ``017`` and ``12:30`` stay what they look like.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn, TypeAlias

import yaml
from yaml.events import (
    AliasEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
)

from harness.forms.problem import Path, Problem, ScenarioError, key_path, shown
from harness.forms.source import decode, refused_characters
from harness.forms.text import printable

DEPTH_LIMIT = 20
NODE_LIMIT = 10_000
WHOLE_LIMIT = 2**53 - 1
"""Largest whole number that every JSON reader keeps exactly."""

CLOSING = {"{": "}", "[": "]"}
NULL = {"", "~", "null"}
TRUTH = {"true": True, "false": False}
WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")

DISPUTED = re.compile(
    r"[\t\r\x85\u2028\u2029\ufeff]|^(---|%)|(^|[\s\[{,:])\?|[|>][-+0-9]*#", re.MULTILINE
)
"""What the two parsers of YAML treat differently: tabs, other line ends, marks of a document, `?`,
`|#` and `>#`.
"""

Tree: TypeAlias = Any
"""dict[str, Tree] | list[Tree] | str | int | float | bool | None"""


class Mark(NamedTuple):
    """Place: file, and line and column from 1."""

    file: str
    line: int
    column: int


@dataclass(slots=True)
class Marks:
    """Places of all keys and values of a document, by path."""

    root: Mark
    values: dict[Path, Mark] = field(default_factory=dict)
    keys: dict[Path, Mark] = field(default_factory=dict)

    def value(self, path: Path) -> Mark:
        """Return where a value starts.

        For one that is not there, the place of what should hold it.
        """
        while path not in self.values and path:
            path = path[:-1]
        return self.values.get(path, self.root)

    def key(self, path: Path) -> Mark:
        """Return where a key stands; for an item of a list, where the item starts."""
        return self.keys.get(path) or self.value(path)

    def problem(self, path: Path, message: str, *, at_key: bool = False, **more: Any) -> Problem:
        """Build a problem at the place of a path."""
        mark = self.key(path) if at_key else self.value(path)
        return Problem(
            mark.file,
            mark.line,
            mark.column,
            key_path(path),
            more.pop("found", ""),
            message,
            **more,
        )


@dataclass(slots=True)
class Document:
    """Parsed file: its tree, its marks, the problems that did not stop parsing, and paths whose
    value is unknown.
    """

    tree: Tree
    marks: Marks
    problems: list[Problem]
    holes: set[Path]


def parse_document(data: bytes, *, name: str) -> Document:
    """Parse the bytes of a file.

    Raises ScenarioError where nothing can be said about the rest (encoding, syntax, limits). What
    can be passed over (duplicate keys, anchors, tags, …) comes back in ``Document.problems``.
    """
    return _built(decode(data, name=name), Mark(name, 1, 1), flow_only=False)


def parse_value(text: str, *, at: Mark) -> Document:
    """Parse the value of an override: one scalar or one flow collection, with the restrictions of a
    file.
    """
    if problems := refused_characters(text, name=at.file):
        raise ScenarioError(
            [
                Problem(p.file, at.line, at.column + p.column - 1, "", p.found, p.message)
                for p in problems
            ]
        )
    return _built(text, at, flow_only=True)


def _built(text: str, origin: Mark, *, flow_only: bool) -> Document:
    """Parse with libyaml where it is there and finds nothing wrong, else with the parser in Python.

    libyaml takes a twentieth of the time. Its messages are others, and it reads a few texts that
    the other one refuses: so every text with a problem, or with something that they treat
    differently, is read in Python.
    """
    fast = getattr(yaml, "CSafeLoader", None)
    if fast is not None and DISPUTED.search(text) is None:
        try:
            document = _Builder(text, origin, flow_only=flow_only, loader=fast).build()
        except (ScenarioError, yaml.YAMLError, ValueError, OverflowError):
            document = None
        if document is not None and not document.problems:
            return document
    return _Builder(text, origin, flow_only=flow_only, loader=yaml.SafeLoader).build()


@dataclass(slots=True)
class _Frame:
    """Collection that is still open. ``path`` is None for one that is read but not kept;
    ``bracket`` opened it.
    """

    node: dict[str, Tree] | list[Tree]
    path: Path | None
    mark: Mark
    bracket: str
    key_next: bool = True
    slot: Path | None = None


class _Builder:
    def __init__(self, text: str, origin: Mark, *, flow_only: bool, loader: Any) -> None:
        self.text = text
        self.origin = origin
        self.flow_only = flow_only
        self.loader = loader
        self.document = Document(None, Marks(origin), [], set())
        self.stack: list[_Frame] = []
        self.nodes = 0
        self.documents = 0

    def build(self) -> Document:
        loader = self.loader(self.text)
        try:
            while loader.check_event():
                self.take(loader.get_event())
        except yaml.MarkedYAMLError as error:
            self.syntax(error)
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            # PyYAML lets some of its own slips through, such as chr() of "\U00110000".
            if self.loader is not yaml.SafeLoader:
                raise
            self.fatal(
                self.mark(loader.line, loader.column),
                f"is not valid YAML ({printable(str(error))})",
            )
        finally:
            loader.dispose()
        return self.document

    def take(self, event: Event) -> None:
        match event:
            case NodeEvent():  # first, because most are
                self.demand_undisputed(event)
                self.take_node(event)
            case MappingEndEvent() | SequenceEndEvent():
                self.stack.pop()
            case DocumentStartEvent():
                self.begin(event)

    def demand_undisputed(self, event: NodeEvent) -> None:
        """Within brackets libyaml takes a `?` into a plain text, and places a missing value
        elsewhere.
        """
        if self.loader is yaml.SafeLoader or not isinstance(event, ScalarEvent) or event.style:
            return
        if (not event.value or "?" in event.value) and any(frame.bracket for frame in self.stack):
            raise ValueError("the two YAML parsers read this differently")

    def begin(self, event: DocumentStartEvent) -> None:
        self.documents += 1
        mark = self.start(event)
        if self.documents > 1:
            self.fatal(
                mark,
                (
                    "starts a second document, but a file may contain only one document; remove the"
                    ' line "---"'
                ),
            )
        if event.version or event.tags:
            self.add(mark, "has a YAML directive; remove the line that starts with %")

    def take_node(self, event: NodeEvent) -> None:
        mark = self.start(event)
        self.nodes += 1
        if self.nodes > NODE_LIMIT:
            self.fatal(
                mark, f"contains more than {NODE_LIMIT} values; move data into separate files"
            )
        frame = self.stack[-1] if self.stack else None
        if frame is not None and isinstance(frame.node, dict) and frame.key_next:
            self.take_key(frame, event, mark)
            return
        path = self.place(frame)
        if path is not None:
            self.document.marks.values[path] = mark
        self.refuse_node_properties(event, mark, path)
        if isinstance(event, AliasEvent):
            if path is not None:
                self.document.holes.add(path)
            self.put(frame, path, None)
        elif isinstance(event, ScalarEvent):
            self.put(frame, path, self.scalar(event, mark, path))
        elif isinstance(event, CollectionStartEvent):
            if self.flow_only and frame is None and not event.flow_style:
                self.fatal(
                    mark, 'contains more than one value; put a string with ": " or "- " in quotes'
                )
            self.open(event, mark, frame, path)

    def take_key(self, frame: _Frame, event: NodeEvent, mark: Mark) -> None:
        frame.key_next = False
        frame.slot = None
        parent = frame.path if frame.path is not None else ()
        self.refuse_node_properties(event, mark, parent)
        if isinstance(event, CollectionStartEvent):
            self.add(mark, "has a list or a mapping as a key; use a string", parent)
            self.open(event, mark, None, None)
            return
        if not isinstance(event, ScalarEvent):
            return
        key = event.value
        if event.implicit[0] and not event.style:  # libyaml writes a plain style as an empty text
            if key == "<<":
                self.add(mark, "has a merge key; write the keys out", parent)
                return
            if key in NULL or key in TRUTH or NUMBER.fullmatch(key):
                shown_key = printable(key) or "nothing"
                self.add(
                    mark,
                    "has a key that is not a string; put it in quotes",
                    parent,
                    found=shown_key,
                )
                return
        if not self.encodable(key, mark, parent):
            return
        if frame.path is None or not isinstance(frame.node, dict):
            return
        path = (*frame.path, key)
        if key in frame.node:
            first = self.document.marks.keys[path]
            message = f"appears twice (first in line {first.line}, column {first.column}); keep one"
            self.add(mark, message, path)
            return
        self.document.marks.keys[path] = mark
        frame.node[key] = None
        frame.slot = path

    def place(self, frame: _Frame | None) -> Path | None:
        """Return the path of the value that comes next, or None where it is not kept."""
        if frame is None:
            return ()
        if isinstance(frame.node, list):
            return None if frame.path is None else (*frame.path, len(frame.node))
        frame.key_next = True
        return frame.slot

    def put(self, frame: _Frame | None, path: Path | None, value: Tree) -> None:
        if frame is None:
            if path is not None:
                self.document.tree = value
        elif isinstance(frame.node, list):
            frame.node.append(value)
        elif path is not None:
            frame.node[str(path[-1])] = value

    def open(
        self, event: CollectionStartEvent, mark: Mark, frame: _Frame | None, path: Path | None
    ) -> None:
        if len(self.stack) >= DEPTH_LIMIT:
            self.fatal(mark, f"is nested deeper than {DEPTH_LIMIT} levels")
        node: dict[str, Tree] | list[Tree] = {} if isinstance(event, MappingStartEvent) else []
        self.put(frame, path, node)
        bracket = ""
        place = event.start_mark
        if place is not None and event.flow_style:
            # A single pair in a list is a mapping that nothing opens.
            first = self.text[place.index : place.index + 1]
            bracket = first if first in CLOSING else ""
        self.stack.append(_Frame(node, path, mark, bracket))

    def scalar(self, event: ScalarEvent, mark: Mark, path: Path | None) -> Tree:
        text: str = event.value
        if event.style:
            return text if self.encodable(text, mark, path or ()) else ""
        if text in NULL:
            return None
        if text in TRUTH:
            return TRUTH[text]
        if NUMBER.fullmatch(text) is None:
            return text
        number = self.number(text)
        if number is None:
            message = (
                f"is a number that JSON cannot represent exactly (at most {WHOLE_LIMIT}); quote it"
                " to make it a string"
            )
            self.add(mark, message, path or (), found=printable(text))
            if path is not None:
                self.document.holes.add(path)
        return number

    @staticmethod
    def number(text: str) -> int | float | None:
        if WHOLE.fullmatch(text):
            # Counted before it is read: Python refuses to read whole numbers of thousands of
            # digits.
            whole = int(text) if len(text) <= 20 else WHOLE_LIMIT + 1
            return whole if abs(whole) <= WHOLE_LIMIT else None
        number = float(text)
        return number if math.isfinite(number) else None

    def refuse_node_properties(self, event: NodeEvent, mark: Mark, path: Path | None) -> None:
        if isinstance(event, AliasEvent):
            self.add(mark, "is an alias; write the value out", path or (), found=f"*{event.anchor}")
            return
        if event.anchor is not None:
            self.add(
                mark,
                "has an anchor; remove it and write the values out",
                path or (),
                found=f"&{event.anchor}",
            )
        tag = getattr(event, "tag", None)
        if tag is not None:
            self.add(
                mark,
                "has a tag; remove it (quotes make a string)",
                path or (),
                found=str(tag),
            )

    def encodable(self, text: str, mark: Mark, path: Path) -> bool:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            self.add(
                mark,
                "contains half of a surrogate pair; write the whole character",
                path,
                found=shown(text),
            )
            return False
        return True

    def syntax(self, error: yaml.MarkedYAMLError) -> NoReturn:
        place = error.problem_mark or error.context_mark
        mark = self.origin if place is None else self.mark(place.line, place.column)
        problem = error.problem or error.context or "it cannot be read"
        self.unclosed(mark, ends="end" in problem and "stream" in problem, quote=error.context_mark)
        context = f" {error.context}" if error.context and error.problem else ""
        self.fatal(
            mark, f"is not valid YAML{context}: {printable(problem, limit=120)}{_advice(problem)}"
        )

    def unclosed(self, mark: Mark, *, ends: bool, quote: yaml.error.Mark | None) -> None:
        """Report what is open where it was opened: it is met lines later, on one that nothing is
        wrong with.
        """
        opened = "" if quote is None else self.text[quote.index : quote.index + 1]
        if ends and quote is not None and opened in ("'", '"'):
            self.fatal(
                self.mark(quote.line, quote.column),
                f"is not valid YAML: {opened} is opened here but never closed",
            )
        frame = next((frame for frame in reversed(self.stack) if frame.bracket), None)
        if frame is not None and (ends or mark.line > frame.mark.line):
            before = "the end" if ends else f"line {mark.line}, column {mark.column}"
            sign = CLOSING[frame.bracket] + ("" if ends else " or a comma")
            self.fatal(
                frame.mark,
                f"is not valid YAML: {frame.bracket} is opened here, but {sign} is missing before"
                f" {before}",
            )

    def mark(self, line: int, column: int) -> Mark:
        """Place a PyYAML mark, which counts from 0, in the file or in the override."""
        shift = self.origin.column if line == 0 else 1
        return Mark(self.origin.file, self.origin.line + line, column + shift)

    def start(self, event: Event) -> Mark:
        place = event.start_mark
        return self.origin if place is None else self.mark(place.line, place.column)

    def add(self, mark: Mark, message: str, path: Path = (), *, found: str = "") -> None:
        self.document.problems.append(
            Problem(mark.file, mark.line, mark.column, key_path(path), found, message)
        )

    def fatal(self, mark: Mark, message: str) -> NoReturn:
        raise ScenarioError(
            [*self.document.problems, Problem(mark.file, mark.line, mark.column, "", "", message)]
        )


def _advice(problem: str) -> str:
    """Say what usually helps, where PyYAML only says what it met."""
    if "mapping values are not allowed" in problem:
        return '; check the indentation, and put a string with ": " in quotes'
    if "cannot start any token" in problem:
        return "; put a string that starts with this character in quotes"
    if "expected <block end>" in problem or "could not find expected ':'" in problem:
        return "; check the indentation and that every key ends in a colon"
    return ""
