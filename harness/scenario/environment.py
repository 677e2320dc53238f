"""The environment of an arm: which interpreter and which packages its ranks run in."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from harness.forms.distribution import normal
from harness.forms.fields import Inside, Relative, Rev, form
from harness.forms.model import Model
from harness.forms.problem import complaint

_NAME = "[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
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
        rf"^{_NAME}(\[ ?{_NAME}(, ?{_NAME})* ?\])?$",
        'must be the name of a package, like huggingface_hub, or with extras, like "mlx[cpu]"',
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
# What brings CUDA to a machine, beside torch itself: the names under which NVIDIA publishes it, and triton, which
# compiles for it.
CUDA = re.compile(r"nvidia-.+|cuda-.+|(pytorch-)?triton(-.+)?")
FOR_GPUS = re.compile(r".+\+(cu|rocm)[0-9.]+.*")
"""A version of torch that was built for a GPU."""


class Checkout(Model):
    """A package that is built from a commit of a git repository on this machine."""

    path: Relative = Field(
        description="Folder of the package in a git repository (where its pyproject.toml lies), relative to the "
        "scenario's folder."
    )
    rev: Rev | None = Field(
        None, description="Revision that is built (default: HEAD). What is not committed has no part in it."
    )


def _form_of(value: Any) -> str:
    return "[checkout]" if isinstance(value, dict | Checkout) else "[version]"


class Environment(Model):
    """The interpreter and packages of an arm."""

    python: PythonVersion | None = Field(
        None, description="Version of the Python interpreter, such as 3.12 (default: the one Rankproof runs in)."
    )
    packages: dict[
        PackageName,
        Annotated[
            Annotated[ExactVersion, Tag("[version]")] | Annotated[Checkout, Tag("[checkout]")], Discriminator(_form_of)
        ],
    ] = Field(
        default_factory=dict,
        description="Packages, with extras or without, each with its exact version or a git checkout that it is built "
        "from. What they depend on is added and recorded.",
    )
    requirements: Inside | None = Field(
        None,
        description="A file of the scenario's folder with every package of the environment, pinned by version and "
        "sha256, as pip-compile and uv write it. Beside it, packages takes checkouts only.",
    )
    torch: Literal["cpu", "any"] | None = Field(
        None,
        description="cpu: torch's build for the CPU, and never a package of CUDA. any: the build that pip finds first "
        "(default: cpu where Rankproof itself runs without an NVIDIA driver).",
    )

    @field_validator("packages")
    @classmethod
    def _one_name_each(cls, packages: dict[str, str | Checkout]) -> dict[str, str | Checkout]:
        by_name: dict[str, str | Checkout] = {}
        for name, version in packages.items():
            if bare(name) in map(bare, by_name):
                raise complaint(
                    "is named twice: case, '-', '_' and '.' make no other package, nor do extras; keep one", at=name
                )
            by_name[_normal(name)] = version
        return by_name

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if self.python is None and not self.packages and self.requirements is None:
            raise complaint("names neither python nor packages nor requirements; name one, or remove it")
        return self

    @model_validator(mode="after")
    def _one_source_of_versions(self) -> Self:
        if self.requirements is not None and self.versions:
            name = next(iter(self.versions))
            raise complaint(
                f"names {name} beside a file of requirements, which has every package; write it there, with its "
                "version and hash, and keep checkouts alone here",
                at="packages",
            )
        return self

    @property
    def versions(self) -> dict[str, str]:
        """The packages that are named with a version, by normal name without extras."""
        return {bare(name): given for name, given in self.packages.items() if isinstance(given, str)}

    @property
    def checkouts(self) -> dict[str, Checkout]:
        """The packages that are built from a checkout, by normal name without extras."""
        return {bare(name): given for name, given in self.packages.items() if isinstance(given, Checkout)}

    def unmet(self, *, python: str, packages: Mapping[str, str]) -> Iterator[str]:
        """What is asked for and is not there, in words that name it, what was wanted and what is there.

        Args:
            python: version of the interpreter.
            packages: version by normal name.
        """
        wanted = self.python or python
        if python != wanted and not python.startswith(f"{wanted}."):
            yield f"Python {wanted} was asked for, {python} is there"
        for name, version in self.versions.items():
            if name not in packages:
                yield f"{name} {version} was asked for, and no {name} is there"
            elif not satisfies(packages[name], version):
                yield f"{name} {version} was asked for, {packages[name]} is there"
        for name in self.checkouts.keys() - packages.keys():
            yield f"{name} was asked for, from a checkout, and no {name} is there"
        if self.torch == "cpu" and (brought := for_gpus(packages)):
            yield f"torch for the CPU was asked for, and {listing(brought)} is there"


def bare(name: str) -> str:
    """The normal name of a package, without the extras that may be written behind it, or whatever else."""
    return normal(re.split(r"[\s\[@=;]", name, maxsplit=1)[0])


def extras(name: str) -> list[str]:
    """The normal names of the extras that are written behind the name of a package."""
    written = re.match(r"[^\s\[@=;]+\s*\[([^\]]*)\]", name)
    return sorted({normal(one.strip()) for one in written[1].split(",") if one.strip()}) if written else []


def _normal(name: str) -> str:
    return f"{bare(name)}[{','.join(extras(name))}]" if extras(name) else bare(name)


def for_gpus(packages: Mapping[str, str]) -> list[str]:
    """What torch brings for a GPU among packages (version by normal name), as "name version"; nothing without torch.

    Whoever asks for such a package without torch means it.
    """
    if "torch" not in packages:
        return []
    own = [f"torch {packages['torch']}"] if FOR_GPUS.fullmatch(packages["torch"]) else []
    return own + [f"{name} {version}" for name, version in sorted(packages.items()) if CUDA.fullmatch(name)]


def listing(names: Collection[str], *, most: int = 3) -> str:
    """The first of some names, and how many more there are."""
    first: Iterable[str] = list(names)[:most]
    return ", ".join(first) + (f" and {len(names) - most} more" if len(names) > most else "")


def satisfies(found: str, asked: str) -> bool:
    """Whether a version is the one that was asked for: 5.5 and 5.5.0 are one, and 2.13.0+cpu is a build of 2.13.0."""
    return _comparable(found if "+" in asked else found.partition("+")[0]) == _comparable(asked)


def _comparable(version: str) -> tuple[str, list[int], str]:
    found = re.match(r"(?:([0-9]+)!)?([0-9]+(?:\.[0-9]+)*)", version)
    if found is None:
        return "", [], version
    numbers = [int(part) for part in found[2].split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return found[1] or "0", numbers, version[found.end() :]
