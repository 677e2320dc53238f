"""Closed models of files that people or programs write, and their fields.

A model says what a mapping of the file holds, and nothing else. A field is clear about what it must
be: a text, a name, a path, a set of ranks.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    Strict,
    ValidationError,
    WithJsonSchema,
)
from pydantic.fields import FieldInfo

from harness.forms.problem import closest, complaint
from harness.forms.strict_json import strict_json
from harness.forms.text import numbered
from harness.forms.units import written


class Model(BaseModel):
    """Unknown keys are errors, nothing is converted, no number is NaN or infinite, nothing changes
    afterwards.
    """

    # Built at first use: commands that read no such file should not wait for its validators.
    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, defer_build=True
    )


M = TypeVar("M", bound=Model)


def demand_one(model: M, *names: str, nothing: str) -> M:
    """Demand that exactly one of these fields is given; `nothing` is what to say where none is.

    Raises:
        PydanticCustomError: none is, or more than one.
    """
    given = [name for name in names if getattr(model, name) is not None]
    if not given:
        raise complaint(nothing)
    if len(given) > 1:
        what = f"{', '.join(names[:-1])} and {names[-1]}"
        raise complaint(f"cannot be combined with {given[0]}; keep one of {what}", at=given[1])
    return model


def parse_json(model: type[M], text: bytes) -> M:
    """Read a model from strict JSON.

    Raises:
        ValueError: not strict JSON, or not this model; the message names the first place.
    """
    try:
        return model.model_validate(strict_json(text))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise ValueError(f"{place}: {first['msg']}") from None


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
            "must be a path relative to the scenario's folder, because this path does not exist on"
            " other machines"
        )
    return text


def _inside(text: str) -> str:
    if ".." in _relative(text).split("/"):
        raise complaint("must stay inside the scenario's folder; remove the '..'")
    return text


def _path(text: str) -> str:
    if any(_breaks(char) for char in text) or "\\" in text:
        raise complaint(
            "must be a path that separates folders with / and contains no backslash or control"
            " character"
        )
    return text


def _repo(text: str) -> str:
    _path(text)
    if "://" in text or re.match(r"[^/]+:", text):
        raise complaint(
            "must be the path of a repository on this machine, because Rankproof does not fetch"
            " repositories; clone it, and set this to the clone"
        )
    return text


def _rev(text: str) -> str:
    _one_line(text)
    if text.startswith("-"):
        raise complaint("must be a commit, branch or tag, and must not begin with a hyphen")
    return text


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise complaint(
            "must not contain a NUL character, because the operating system ends a string there"
        )
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
        "must have 1 to 63 lower-case letters, digits and hyphens, and must not start with a"
        " hyphen",
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
    str, form("^[0-9a-f]{64}$", "must be a sha256 of 64 lower-case hexadecimal digits")
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
    raise complaint("must be a string, a number, true or false")


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
            "must be 1, because this format has only version 1",
            suggestion="1" if value in ("1", True) else None,
        )
    return value


SchemaVersion = Annotated[Literal[1], BeforeValidator(_version)]


MOST_RANKS = 64
"""The largest world on one machine."""


@dataclass(frozen=True, slots=True)
class RankSet:
    """Set of ranks that is known before the trial: every rank, every rank but 0, or a list."""

    which: Literal["every", "nonzero"] | tuple[int, ...]

    def of(self, size: int) -> tuple[int, ...]:
        """Return the ranks of a world of ``size``, ascending.

        Raises ValueError for a rank that this world lacks.
        """
        if self.which == "every":
            return tuple(range(size))
        if self.which == "nonzero":
            return tuple(range(1, size))
        ranks = sorted(self.which)
        if ranks[-1] >= size:
            raise ValueError(f"a world of {size} has no rank {ranks[-1]}")
        return tuple(ranks)

    @property
    def words(self) -> str:
        """The set in words: `every rank`, `every rank but 0`, `ranks 0, 2`."""
        if self.which == "every":
            return "every rank"
        if self.which == "nonzero":
            return "every rank but 0"
        return numbered("rank", sorted(self.which))

    def __str__(self) -> str:
        return self.which if isinstance(self.which, str) else f"[{', '.join(map(str, self.which))}]"


EVERY_RANK = RankSet("every")


def rank_set(value: Any) -> RankSet:
    """Read "every", "nonzero" or a list of distinct ranks from 0."""
    if value == "every":
        return EVERY_RANK
    if value == "nonzero":
        return RankSet("nonzero")
    wanted = 'must be "every", "nonzero", or a list of ranks like [0, 2]'
    if type(value) is int and value >= 0:
        raise complaint(wanted, suggestion=f"[{value}]")
    if not isinstance(value, list | tuple):
        raise complaint(wanted, suggestion=closest(value, ["every", "nonzero"]))
    if not value:
        raise complaint(f"is an empty list, so no rank would be checked; it {wanted}")
    seen: set[int] = set()
    for index, rank in enumerate(value):
        if type(rank) is not int or rank < 0:
            raise complaint("must be a rank: a whole number, 0 or more", at=index)
        if rank in seen:
            raise complaint("is in the list twice; keep one", at=index)
        seen.add(rank)
    return RankSet(tuple(value))


_LIST = {
    "type": "array",
    "items": {"type": "integer", "minimum": 0},
    "minItems": 1,
    "uniqueItems": True,
}
Ranks = Annotated[RankSet, *written(rank_set, {"anyOf": [{"enum": ["every", "nonzero"]}, _LIST]})]
