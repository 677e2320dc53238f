"""Read a rules file: YAML with the place of every key, so that a mistake is named with line and column."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from harness.hub.problem import RulesError
from harness.hub.rules import Rules

SIZE_LIMIT = 1 << 20
EVENT_LIMIT = 20_000
DEPTH_LIMIT = 12
SHOWN = 40

Place = tuple[str | int, ...]
Marks = dict[Place, tuple[int, int]]


def load_rules(path: Path) -> Rules:
    """Read and check a rules file.

    Raises:
        RulesError: every mistake, with file, line, column, key and what to do.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(SIZE_LIMIT + 1)
    except OSError as error:
        raise RulesError((f"{path}: cannot be read: {error.strerror}",)) from error
    return parse_rules(data, name=str(path))


def parse_rules(data: bytes | str, *, name: str = "rules") -> Rules:
    """Check the text of a rules file; see `load_rules`.

    Raises:
        RulesError: every mistake.
    """
    marks: Marks = {(): (1, 1)}
    tree = _Tree(name, marks).read(data)
    try:
        return Rules.model_validate(tree)
    except ValidationError as error:
        problems = sorted(_problem(one, tree, marks) for one in error.errors(include_url=False))
        raise RulesError(tuple(f"{name}:{line}:{column}: {text}" for line, column, text in problems)) from None


class _Tree:
    """Builds plain values from nodes; notes the place of each key and item."""

    def __init__(self, name: str, marks: Marks) -> None:
        self.name, self.marks = name, marks

    def read(self, data: bytes | str) -> Any:
        raw = data.encode() if isinstance(data, str) else data
        if len(raw) > SIZE_LIMIT:
            raise RulesError((f"{self.name}: is larger than {SIZE_LIMIT} bytes",))
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RulesError((f"{self.name}: is not UTF-8 at byte {error.start}",)) from error
        try:
            self._measure(text)
            node = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
            raise RulesError((f"{self.name}{place}: is not valid YAML: {error.problem or error.context}",)) from error
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            raise RulesError((f"{self.name}: is not valid YAML: {_shown(str(error), 200)}",)) from error
        if node is None:
            raise RulesError((f"{self.name}:1:1: is empty; write schema: 1 and rules: [...]",))
        return self._value(node, ())

    def _measure(self, text: str) -> None:
        """Refuse what would cost much to compose: depth, number of nodes, anchors and aliases."""
        depth = 0
        for number, event in enumerate(yaml.parse(text, Loader=yaml.SafeLoader)):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
                self._refuse(event.start_mark, "has an anchor or alias; write the value out")
            if depth > DEPTH_LIMIT:
                self._refuse(event.start_mark, f"is nested deeper than {DEPTH_LIMIT} levels")
            if number > EVENT_LIMIT:
                self._refuse(event.start_mark, f"holds more than {EVENT_LIMIT // 2} values")

    def _refuse(self, mark: Any, message: str) -> None:
        raise RulesError((f"{self.name}:{mark.line + 1}:{mark.column + 1}: {message}",))

    def _value(self, node: Node, place: Place) -> Any:
        self.marks.setdefault(place, (node.start_mark.line + 1, node.start_mark.column + 1))
        if isinstance(node, MappingNode):
            out: dict[str, Any] = {}
            for key, value in node.value:
                if not isinstance(key, ScalarNode) or key.tag not in {
                    "tag:yaml.org,2002:str",
                    "tag:yaml.org,2002:bool",
                }:
                    self._refuse(key.start_mark, "has a key that is not a text; put it in quotes")
                name = str(key.value)
                if name in out:
                    self._refuse(key.start_mark, f"{_dotted((*place, name))}: is given twice; keep one")
                self.marks[(*place, name)] = (key.start_mark.line + 1, key.start_mark.column + 1)
                out[name] = self._value(value, (*place, name))
            return out
        if isinstance(node, SequenceNode):
            return [self._value(item, (*place, index)) for index, item in enumerate(node.value)]
        return self._scalar(node)

    def _scalar(self, node: Node) -> Any:
        """JSON's scalars only: ``no`` and ``12:30`` stay texts, as they look."""
        text = str(node.value)
        if getattr(node, "style", None) is not None:
            return text
        if text in {"true", "false"}:
            return text == "true"
        if text in {"", "~", "null"}:
            return None
        if len(text) > SHOWN:
            return text
        for kind in (int, float):
            try:
                return kind(text) if text[0] in "-0123456789" and "_" not in text else text
            except ValueError:
                continue
        return text


def _problem(error: ErrorDetails, tree: Any, marks: Marks) -> tuple[int, int, str]:
    place = _kept(error["loc"], tree)
    line, column = _mark(place, marks)
    message = _message(error)
    if error["type"] == "extra_forbidden":
        close = difflib.get_close_matches(str(place[-1]), _keys_at(place), n=1)
        message = "is no key of this mapping" + (f'; did you mean "{close[0]}"?' if close else "")
    elif error["type"] == "missing":
        message = "is missing"
    elif error["type"] == "literal_error" and "'" in str(error["ctx"]["expected"]):
        words = re.findall("'([^']*)'", str(error["ctx"]["expected"]))
        close = difflib.get_close_matches(str(error["input"]), words, n=1)
        message = f"must be one of {', '.join(words)}" + (f'; did you mean "{close[0]}"?' if close else "")
    found = error.get("input")
    if isinstance(found, str | int | float | bool) and error["type"] not in {"extra_forbidden", "missing"}:
        message += f"; found {_shown(repr(found))}"
    key = _dotted(place)
    return line, column, f"{key}: {message}" if key else message


def _message(error: ErrorDetails) -> str:
    text = error["msg"].removeprefix("Value error, ")
    return text[0].lower() + text[1:] if text.startswith(("Input", "String", "Tuple")) else text


def _kept(loc: Iterable[str | int], tree: Any) -> Place:
    """Pydantic's location without the tags of unions, which no file holds."""
    place: list[str | int] = []
    here = tree
    rest = list(loc)
    for index, part in enumerate(rest):
        if _has(here, part):
            here = here[part]
        elif index < len(rest) - 1 or not isinstance(here, dict):
            continue
        place.append(part)
    return tuple(place)


def _has(tree: Any, part: str | int) -> bool:
    return part in tree if isinstance(tree, dict) else isinstance(tree, list) and part in range(len(tree))


def _mark(place: Place, marks: Marks) -> tuple[int, int]:
    while place not in marks:
        place = place[:-1]
    return marks[place]


def _keys_at(place: Place) -> list[str]:
    """All keys of the schema: one list is enough to guess what a misspelt key meant."""
    import harness.hub.rules as models

    names: set[str] = set()
    for model in vars(models).values():
        if isinstance(model, type) and issubclass(model, models.Closed):
            names |= {field.alias or name for name, field in model.model_fields.items()}
    return sorted(names - {str(place[-1])})


def _dotted(place: Place) -> str:
    out = ""
    for part in place:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else str(part)
    return out


def _shown(text: str, limit: int = SHOWN) -> str:
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in cut)
