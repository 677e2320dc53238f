"""Roles of requests as a scenario or a rule names them. Apart from rules, which a check that counts does not read."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Strict

from harness.hub.target import Role


def one_or_list(value: Any) -> Any:
    """A text alone stands for a list of one."""
    return (value,) if isinstance(value, str) else value


Roles = Annotated[tuple[Literal[Role, "any"], ...], Strict(False), BeforeValidator(one_or_list), Field(min_length=1)]
