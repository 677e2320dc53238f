"""The arms of a scenario: codes that differ from each other, and how the broken one has to fail.

A control fails at a check by a stated end, or by a hang at a stated line, in all of its trials or a
share of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, JsonValue, model_validator

from harness.forms.model import (
    Argument,
    Distinct,
    Event,
    ExceptionName,
    Id,
    Inside,
    Line,
    Listed,
    Message,
    Model,
    Name,
    Ranks,
    Repo,
    Rev,
    Scalar,
    demand_one,
    form,
)
from harness.forms.problem import closest, complaint
from harness.forms.units import NUMBER, Duration, percent_of, written
from harness.scenario.environment import Environment
from harness.scenario.matrix import same
from harness.scenario.service import ServiceChange

WITHIN = 10.0
"""Seconds; default of `within`."""

SignalName = Annotated[
    str, form(r"^SIG[A-Z0-9+]{2,10}$", "must be the name of a signal, like SIGSEGV", most=16)
]
LibraryFile = Annotated[
    str,
    form(
        r"^[A-Za-z_][A-Za-z0-9_.-]*(/[A-Za-z0-9_.-]+)*\.py$",
        "must be the path of a library's file, starting with its package, like"
        " mlx_lm/models/llama.py",
        most=300,
    ),
]
ERROR = "Type of the exception; it counts only with source or message."
SOURCE = "Source line of the last frame inside the subject, without indentation."
MESSAGE = "Text that the exception's message contains."
CODE = "Exit code, 1 to 255."


@dataclass(frozen=True, slots=True)
class StatedShare:
    """In how many of its trials the control must fail: all of them, or at least a share (for a
    race).
    """

    every: bool
    at_least: float
    """0 < at_least <= 1; 1.0 where ``every``."""

    def __str__(self) -> str:
        return "every" if self.every else f">={self.at_least * 100:.10g}%"


EVERY_TRIAL = StatedShare(every=True, at_least=1.0)


def share(value: Any) -> StatedShare:
    """Read "every" or ">=20%"."""
    if value == "every":
        return EVERY_TRIAL
    if isinstance(value, str) and (match := re.fullmatch(rf">=({NUMBER})%", value)):
        number = Decimal(match[1])
        if 0 < number <= 100:
            return StatedShare(every=False, at_least=float(number / 100))
    bare = re.fullmatch(rf"[>= ]*({NUMBER}) ?%", value) if isinstance(value, str) else None
    hint = f">={bare[1]}%" if bare else closest(value, ["every"])
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 100:
        # A number without a unit is a part of one up to 1, and percent above: 0.3 and 30 are both
        # 30 %.
        hint = f">={percent_of(value)}%"
    raise complaint(
        'must be "every", or a share such as ">=20%" (more than 0%, at most 100%)',
        suggestion=hint,
    )


ShareField = Annotated[
    StatedShare, *written(share, {"type": "string", "pattern": rf"^(every|>={NUMBER}%)$"})
]


class End(Model):
    """How a rank ends: by an exception, a signal or an exit code."""

    error: ExceptionName | None = Field(None, description=ERROR)
    source: Line | None = Field(None, description=SOURCE)
    file: LibraryFile | None = Field(
        None,
        description=(
            "A file of an installed library, as a path that starts with its package, such as"
            " mlx_lm/models/llama.py. source is then the last line of the traceback in this file."
        ),
    )
    message: Message | None = Field(None, description=MESSAGE)
    signal: SignalName | None = Field(
        None, description="Signal that ends the rank, such as SIGSEGV."
    )
    code: Annotated[int, Field(ge=1, le=255)] | None = Field(None, description=CODE)

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        if self.error is not None and self.source is None and self.message is None:
            raise complaint(
                "is not specific enough, because an unrelated bug could raise the same exception;"
                " add source (the line that raises it) or message (part of its message)",
                at="error",
            )
        if self.file is not None and self.source is None:
            raise complaint(
                "is not enough to identify the place; add source, the text of that line in this"
                " file",
                at="file",
            )
        raised = next(
            (name for name in ("error", "source", "message") if getattr(self, name) is not None),
            None,
        )
        given = [
            name
            for name in (raised, "signal" if self.signal else None, "code" if self.code else None)
            if name
        ]
        if len(given) > 1:
            raise complaint(
                f"cannot be combined with {given[0]}, because a rank can end in only one way;"
                " keep one of them",
                at=given[1],
            )
        return self

    @property
    def says_how(self) -> bool:
        """Return whether it names an end at all."""
        return any(
            getattr(self, name) is not None
            for name in ("error", "source", "message", "signal", "code")
        )


class AlsoEnds(End):
    """An end of other ranks that belongs to the bug, so that it is not taken for another cause."""

    ranks: Ranks = Field(description="The ranks that may end like this: every, nonzero, or a list.")

    @model_validator(mode="after")
    def _says_how(self) -> Self:
        if not self.says_how:
            raise complaint(
                "does not state how these ranks end; set error (with source or message), signal or"
                " code"
            )
        return self


class HangsAt(Model):
    """Where a rank stands still for good. Exactly one of source, function and after says where."""

    source: Line | None = Field(
        None,
        description=(
            "A line of the subject's source that is on the stack of a thread of the rank."
        ),
    )
    function: Annotated[Line, Field(max_length=255)] | None = Field(
        None,
        description="A function of the subject that is on the stack of a thread of the rank.",
    )
    after: Event | None = Field(
        None, description="For programs: the last event that the rank emits."
    )
    fails: Id | None = Field(
        None,
        description=(
            "The id of a check that compares the ranks' ledgers. It also fails, and so shows why"
            " the rank hangs."
        ),
    )
    spins: bool = Field(
        False,
        description=(
            "The rank loops instead of waiting: a thread is busy 90% of the time and stays"
            " within the same lines. A loop that would end later looks the same."
        ),
    )
    polls: Listed[Annotated[Line, Field(max_length=255)]] = Field(
        (),
        description=(
            "Functions in which Python threads poll without making progress, such as a heartbeat."
            " If any other thread polls, no hang is proved."
        ),
    )

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        nothing = "does not state where it hangs; set source or function (for a program, after)"
        return demand_one(self, "source", "function", "after", nothing=nothing)


class Expected(NamedTuple):
    """A check that must fail, on exactly these ranks; `held` says why it may not have, where that
    is known.
    """

    check: str
    ranks: tuple[int, ...]
    held: str = ""


WANTS: tuple[Literal["missing", "shape", "nonfinite"], ...] = ("missing", "shape", "nonfinite")
"""How a control may fail in which nothing was compared, where that is stated."""


class MustFail(End):
    """How the control has to fail. Any other end of the control makes the verdict INCONCLUSIVE."""

    check: Id | None = Field(None, description="The id of the check that the control must fail.")
    hang: HangsAt | None = Field(None, description="Where the control hangs, instead of check.")
    ranks: Ranks = Field(
        description="The ranks on which it fails, matched exactly: every, nonzero, or a list."
    )
    ranks_by: dict[Name, Annotated[dict[str, Ranks], Field(min_length=1)]] | None = Field(
        None,
        description=(
            "Different ranks in some cells: one axis, and the ranks for each of its values, in"
            " quotes."
        ),
    )
    missing: bool = Field(
        False,
        description=(
            "The ranks fail because they do not report or keep the data that the check compares."
            " Otherwise that counts as a mistake in the control."
        ),
    )
    shape: bool = Field(
        False,
        description=(
            "The ranks fail because their result has a different shape. Otherwise that counts as a"
            " mistake in the control."
        ),
    )
    nonfinite: bool = Field(
        False,
        description=(
            "The ranks fail because every differing value is NaN or infinite. Otherwise that"
            " counts as a mistake in the control."
        ),
    )
    within: Duration = Field(
        WITHIN,
        description="For a hang: the longest time until it is proved, with a unit.",
        json_schema_extra={"default": "10s"},
    )
    also: Listed[AlsoEnds] = Field((), description="How other ranks end because of the bug.")
    cells: dict[str, Annotated[Distinct[Scalar], Field(min_length=1)]] | None = Field(
        None,
        description=(
            "The cells in which it fails: a mapping from axis to values, all of which must match."
            " In every other cell the check must pass. Default: every cell."
        ),
    )
    share: ShareField = Field(
        default=EVERY_TRIAL,
        description=(
            'Trials in which the control must fail: every, or for a race a share like ">=20%".'
        ),
        json_schema_extra={"default": "every"},
    )

    def expected(self, size: int) -> tuple[Expected, ...]:
        """Checks that must fail in a world of that size; none where it must hang."""
        return () if self.check is None else (Expected(self.check, self.ranks.of(size)),)

    @property
    def want(self) -> Literal["", "missing", "shape", "nonfinite"]:
        """For want of what it must fail, where nothing is compared.

        Empty where something has to be.
        """
        return next((name for name in WANTS if getattr(self, name)), "")

    def in_cell(self, values: Mapping[str, object]) -> Self:
        """Return what is stated for a cell with these values of its axes."""
        for axis, by_value in (self.ranks_by or {}).items():
            ranks = by_value.get(str(values.get(axis)))
            if ranks is not None:
                return self.model_copy(update={"ranks": ranks})
        return self

    def applies(self, values: Mapping[str, object]) -> bool:
        """Return whether the control must fail in a cell with these values of its axes.

        Else it must hold there.
        """
        for axis, choices in (self.cells or {}).items():
            if not any(same(values.get(axis), choice) for choice in choices):
                return False
        return True

    @model_validator(mode="after")
    def _one_failure(self) -> Self:
        if self.check is None and self.hang is None:
            raise complaint(
                "does not state what fails; set check, or hang for a control that never ends"
            )
        if self.check is not None and self.hang is not None:
            raise complaint("cannot be combined with check; keep one", at="hang")
        if self.hang is not None and self.says_how:
            raise complaint(
                "cannot be combined with error, source, message, signal or code, because a rank"
                " that hangs does not end; to describe how other ranks end, use `also`",
                at="hang",
            )
        if self.ranks_by is not None and len(self.ranks_by) != 1:
            raise complaint("must contain exactly one axis", at="ranks_by")
        wants = [name for name in WANTS if getattr(self, name)]
        if len(wants) > 1:
            raise complaint(
                f"cannot be combined with {wants[0]}, because a rank can fail in only one way;"
                " keep one of them",
                at=wants[1],
            )
        if wants and self.hang is not None:
            raise complaint(
                "applies to a control that fails a check, but this control hangs; remove this key",
                at=wants[0],
            )
        if wants and self.says_how:
            what = "cannot be combined with error, source, message, signal or code; keep one"
            raise complaint(what, at=wants[0])
        if self.hang is None and "within" in self.model_fields_set:
            raise complaint("is only for a hang; remove it", at="within")
        return self


class Arm(Model):
    """One of the codes that a scenario runs: how it differs from the subject as it stands."""

    with_: dict[Argument, JsonValue] = Field(
        default_factory=dict,
        alias="with",
        description=(
            "Arguments for the subject's function. Matrix axes other than ranks and backend are"
            " added to them."
        ),
    )
    file: Inside | None = Field(
        None,
        description=("A file in the scenario's folder that replaces the module of entry."),
    )
    repo: Repo | None = Field(
        None,
        description=(
            "Path of the git repository that rev and patch refer to, relative to the scenario's"
            " folder (default: the repository that contains the scenario)."
        ),
    )
    rev: Rev | None = Field(
        None, description="Revision of the repository that this arm runs (default: HEAD)."
    )
    patch: Inside | None = Field(
        None, description="A patch in the scenario's folder, applied to the revision."
    )
    environment: Environment | None = Field(
        None, description="Interpreter and packages of this arm only, instead of the subject's."
    )
    services: dict[Name, ServiceChange] = Field(
        default_factory=dict,
        description="How the scenario's services differ in this arm, by name.",
    )

    @property
    def is_laid_out(self) -> bool:
        """Return whether its code comes from a repository's history, not from the folder as it
        stands.
        """
        return any(given is not None for given in (self.repo, self.rev, self.patch))


class Control(Arm):
    """The arm that is known to be broken, and how it has to fail."""

    must_fail: MustFail = Field(description="How the control must fail for the failure to count.")
