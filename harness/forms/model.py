"""A mapping of a file that people or programs write, as a closed model: what the file says, and
nothing else.
"""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from harness.forms.problem import complaint
from harness.forms.strict_json import strict_json


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
        raise complaint(f"cannot stand beside {given[0]}; keep one of {what}", at=given[1])
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
