"""The fields of closed models: texts, names and paths, each clear about what it must be."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, Strict, WithJsonSchema
from pydantic.fields import FieldInfo

from harness.forms.problem import complaint

T = TypeVar("T")


def _distinct(items: tuple[Any, ...]) -> tuple[Any, ...]:
    seen: set[tuple[type, Any]] = set()
    for index, item in enumerate(items):
        if (type(item), item) in seen:
            raise complaint("is in the list twice; keep one", at=index)
        seen.add((type(item), item))
    return items


# Only the list itself is lax: YAML has lists, the models keep tuples. Items stay strict.
Listed = Annotated[tuple[T, ...], Strict(False)]
Distinct = Annotated[tuple[T, ...], Strict(False), Field(min_length=1), AfterValidator(_distinct)]

_WORD: Final = r"[A-Za-z_][A-Za-z0-9_]*"
HUB_PATTERN: Final = "^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)?@[A-Za-z0-9_./-]+$"
_FORMS: dict[str, str] = {}
"""What each pattern asks for, in words."""


def form(pattern: str, words: str, *, most: int | None = None) -> FieldInfo:
    """Make a text match a pattern, with the words that explain it; `most` characters at the
    most.
    """
    _FORMS[pattern] = words
    field: FieldInfo = Field(pattern=pattern, max_length=most)
    return field


def in_words(pattern: str) -> str:
    """Say what a pattern asks for."""
    return _FORMS.get(pattern, f"must match {pattern}")


def _breaks(char: str) -> bool:
    """Say whether a character is a control or ends a line.

    Joiners and direction marks are parts of clean text.
    """
    return unicodedata.category(char) in {"Cc", "Zl", "Zp"}


def _one_line(text: str) -> str:
    if any(_breaks(char) for char in text):
        raise complaint("must be one line without control characters")
    return text


def _paragraph(text: str) -> str:
    if any(_breaks(char) and char != "\n" for char in text):
        raise complaint("must be text without control characters")
    if not text.strip():
        raise complaint("is empty; write the question that the verdict answers")
    return text


def _relative(text: str) -> str:
    _path(text)
    if text.startswith(("/", "~")) or re.match(r"[A-Za-z]:", text):
        raise complaint(
            "must be a path relative to the scenario's folder; another machine has other folders"
        )
    return text


def _inside(text: str) -> str:
    if ".." in _relative(text).split("/"):
        raise complaint("must stay inside the scenario's folder; remove the '..'")
    return text


def _path(text: str) -> str:
    if any(_breaks(char) for char in text) or "\\" in text:
        raise complaint("must be a path with / between folders and without control characters")
    return text


def _repo(text: str) -> str:
    _path(text)
    if "://" in text or re.match(r"[^/]+:", text):
        raise complaint(
            "must be the path of a repository on this machine: nothing is fetched; clone it, name"
            " the clone"
        )
    return text


def _rev(text: str) -> str:
    _one_line(text)
    if text.startswith("-"):
        raise complaint("must be a commit, branch or tag, and none begins with a hyphen")
    return text


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise complaint("must not hold a NUL; the operating system ends a text there")
    return text


Line = Annotated[str, Field(min_length=1), AfterValidator(_one_line)]
# Lengths stand before the validators: pydantic then tells them as lengths of a text, and the JSON
# Schema has them.
Message = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_one_line)]
Title = Annotated[str, Field(min_length=1, max_length=120), AfterValidator(_one_line)]
SeedText = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_one_line)]
Paragraph = Annotated[str, Field(min_length=1, max_length=2000), AfterValidator(_paragraph)]
Plain = Annotated[str, AfterValidator(_no_nul)]

Id = Annotated[
    str,
    form(
        "^[a-z0-9][a-z0-9-]{0,62}$",
        "must be 1 to 63 lower-case letters, digits and hyphens, and not start with a hyphen",
    ),
]
Name = Annotated[
    str,
    form(
        "^[a-z][a-z0-9_-]{0,62}$",
        "must be a lower-case letter, then at most 62 lower-case letters, digits, _ or -",
    ),
]
Argument = Annotated[
    str,
    form(
        "^[A-Za-z_][A-Za-z0-9_-]{0,62}$",
        "must be a letter, then at most 62 letters, digits, _ or -",
    ),
]
Variable = Annotated[
    str, form(f"^{_WORD}$", "must be the name of an environment variable: letters, digits and _")
]
Event = Annotated[
    str,
    form(
        r"^[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$",
        "must be the name of an event: words joined by dots, like tokenizer.ready",
        most=128,
    ),
]
EventValue = Annotated[
    str,
    form(
        r"^[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)+$",
        "must be an event and one of its keys joined by a dot, like decode.text",
        most=192,
    ),
]
Entry = Annotated[
    str,
    form(
        rf"^{_WORD}(\.{_WORD})*:{_WORD}$", "must be module:function, like subject:warm_up", most=255
    ),
]
ExceptionName = Annotated[
    str,
    form(
        rf"^{_WORD}(\.{_WORD})*$",
        "must be the name of an exception type, like AssertionError",
        most=255,
    ),
]
Sha256 = Annotated[
    str, form("^[0-9a-f]{64}$", "must be a sha256: 64 lower-case hexadecimal digits")
]
Hub = Annotated[
    str,
    form(
        HUB_PATTERN,
        "must be a hub id with its revision, like organisation/model@revision",
        most=255,
    ),
]
Relative = Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(_relative)]
Inside = Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(_inside)]
AnyPath = Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(_path)]
Repo = Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(_repo)]
Rev = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(_rev)]


def _scalar(value: Any) -> str | int | float | bool:
    if isinstance(value, str | int | float | bool):
        return value
    raise complaint("must be a text, a number, true or false")


# A validator of its own, not a union: a union would report one error for each of its members.
Scalar = Annotated[
    str | int | float | bool,
    PlainValidator(_scalar),
    WithJsonSchema({"type": ["string", "number", "boolean"]}),
]


def _version(value: Any) -> Any:
    # Literal[1] alone lets true and 1.0 pass: they equal 1.
    if type(value) is not int or value != 1:
        raise complaint(
            "must be 1, the only version of this format",
            suggestion="1" if value in ("1", True) else None,
        )
    return value


SchemaVersion = Annotated[Literal[1], BeforeValidator(_version)]
