"""A mapping of a file that people or programs write, as a closed model: what the file says, and nothing else."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from harness.forms.strict_json import strict_json


class Model(BaseModel):
    """Unknown keys are errors, nothing is converted, no number is NaN or infinite, nothing changes afterwards."""

    # Built at first use: commands that read no such file should not wait for its validators.
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False, defer_build=True)


M = TypeVar("M", bound=Model)


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
