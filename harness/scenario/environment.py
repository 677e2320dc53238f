"""The environment of an arm: which interpreter and which packages its ranks run in."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from harness.forms.distribution import normal
from harness.forms.fields import form
from harness.forms.model import Model
from harness.forms.problem import complaint

PythonVersion = Annotated[
    str,
    form(
        r"^3\.(1[1-9]|[2-9][0-9])(\.[0-9]{1,2})?$",
        'must be a version of Python from 3.11 on, like "3.13" or "3.13.2"',
    ),
]
PackageName = Annotated[
    str,
    form(
        "^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
        "must be the name of a package, like huggingface_hub",
        most=128,
    ),
]
# PEP 440, in its normal form and without ranges.
ExactVersion = Annotated[
    str,
    form(
        r"^([0-9]+!)?[0-9]+(\.[0-9]+)*((a|b|rc)[0-9]+)?(\.post[0-9]+)?(\.dev[0-9]+)?(\+[a-z0-9]+(\.[a-z0-9]+)*)?$",
        'must be one exact version, like "5.5.0"; ranges and wildcards would run something else next year',
        most=64,
    ),
]


class Environment(Model):
    """The interpreter and packages of an arm."""

    python: PythonVersion | None = Field(
        None, description="Version of the Python interpreter, such as 3.12 (default: the one Rankproof runs in)."
    )
    packages: dict[PackageName, ExactVersion] = Field(
        default_factory=dict,
        description="Packages and their exact versions, by name. What they depend on is added and recorded.",
    )

    @field_validator("packages")
    @classmethod
    def _one_name_each(cls, packages: dict[str, str]) -> dict[str, str]:
        by_name: dict[str, str] = {}
        for name, version in packages.items():
            if normal(name) in by_name:
                raise complaint("is named twice: case, '-', '_' and '.' make no other package; keep one", at=name)
            by_name[normal(name)] = version
        return by_name

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if self.python is None and not self.packages:
            raise complaint("names neither python nor packages; name one, or remove it")
        return self

    def is_met_by(self, *, python: str, packages: dict[str, str]) -> bool:
        """Whether an environment with this interpreter and these packages (by normal name) is what is asked for."""
        wanted = self.python or python
        return (python == wanted or python.startswith(f"{wanted}.")) and all(
            name in packages and same_version(packages[name], version) for name, version in self.packages.items()
        )


def same_version(left: str, right: str) -> bool:
    """Whether two versions are one: 5.5 and 5.5.0 are."""
    return _trimmed(left) == _trimmed(right)


def _trimmed(version: str) -> str:
    release = re.match(r"(?:[0-9]+!)?[0-9]+(?:\.[0-9]+)*", version)
    if release is None:
        return version
    return re.sub(r"(\.0+)+$", "", release[0]) + version[release.end() :]
