"""The environment of an arm: which interpreter and which packages its ranks run in."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn, Self

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from harness.forms.distribution import normal
from harness.forms.model import Inside, Model, Relative, Rev, form
from harness.forms.problem import Problem, ScenarioError, complaint

_NAME = "[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
PythonVersion = Annotated[
    str,
    form(
        r"^3\.(1[1-9]|[2-9][0-9])(\.[0-9]{1,2})?$",
        'must be Python 3.11 or newer, like "3.13" or "3.13.2"',
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
        r"^([0-9]+!)?[0-9]+(\.[0-9]+)*((a|b|rc)[0-9]+)?(\.post[0-9]+)?(\.dev[0-9]+)?"
        r"(\+[a-z0-9]+(\.[a-z0-9]+)*)?$",
        'must be one exact version, like "5.5.0", because ranges and wildcards select other'
        " versions later",
        most=64,
    ),
]
# What brings CUDA to a machine, beside torch itself: the names under which NVIDIA publishes it, and
# triton, which compiles for it.
CUDA = re.compile(r"nvidia-.+|cuda-.+|(pytorch-)?triton(-.+)?")
FOR_GPUS = re.compile(r".+\+(cu|rocm)[0-9.]+.*")
"""A version of torch that was built for a GPU."""


class Checkout(Model):
    """A package that is built from a commit of a git repository on this machine."""

    path: Relative = Field(
        description=(
            "Folder of the package in a git repository (with its pyproject.toml), relative to the"
            " scenario's folder."
        )
    )
    rev: Rev | None = Field(
        None,
        description=("Revision to build (default: HEAD). Uncommitted changes are not built."),
    )


def _form_of(value: Any) -> str:
    return "[checkout]" if isinstance(value, dict | Checkout) else "[version]"


class Environment(Model):
    """The interpreter and packages of an arm."""

    python: PythonVersion | None = Field(
        None,
        description=(
            "Version of the Python interpreter, such as 3.12 (default: the interpreter that runs"
            " Rankproof)."
        ),
    )
    packages: dict[
        PackageName,
        Annotated[
            Annotated[ExactVersion, Tag("[version]")] | Annotated[Checkout, Tag("[checkout]")],
            Discriminator(_form_of),
        ],
    ] = Field(
        default_factory=dict,
        description=(
            "Packages, with or without extras, each with its exact version or a git checkout to"
            " build it from. Their dependencies are added and recorded."
        ),
    )
    requirements: Inside | None = Field(
        None,
        description=(
            "A file in the scenario's folder with every package of the environment, pinned by"
            " version and sha256, as pip-compile and uv write it. With it, packages may contain"
            " only checkouts."
        ),
    )
    torch: Literal["cpu", "any"] | None = Field(
        None,
        description=(
            "cpu: torch's build for the CPU, without any CUDA package. any: the build that pip"
            " finds first (default: cpu if no NVIDIA driver is found)."
        ),
    )

    @field_validator("packages")
    @classmethod
    def _one_name_each(cls, packages: dict[str, str | Checkout]) -> dict[str, str | Checkout]:
        by_name: dict[str, str | Checkout] = {}
        for name, version in packages.items():
            if bare(name) in map(bare, by_name):
                raise complaint(
                    "is listed twice, because names that differ only in case, '-', '_', '.' or"
                    " extras are the same package; keep one",
                    at=name,
                )
            by_name[_normal(name)] = version
        return by_name

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if self.python is None and not self.packages and self.requirements is None:
            raise complaint("is empty; set python, packages or requirements, or remove it")
        return self

    @model_validator(mode="after")
    def _one_source_of_versions(self) -> Self:
        if self.requirements is not None and self.versions:
            name = next(iter(self.versions))
            raise complaint(
                f"contains {name}, but when `requirements` is set, `packages` may contain only"
                f" checkouts; move {name} to the requirements file, with its version and hash",
                at="packages",
            )
        return self

    @property
    def versions(self) -> dict[str, str]:
        """Packages that are named with a version, by normal name without extras."""
        return {
            bare(name): given for name, given in self.packages.items() if isinstance(given, str)
        }

    @property
    def checkouts(self) -> dict[str, Checkout]:
        """Packages that are built from a checkout, by normal name without extras."""
        return {
            bare(name): given
            for name, given in self.packages.items()
            if isinstance(given, Checkout)
        }

    def unmet(self, *, python: str, packages: Mapping[str, str]) -> Iterator[str]:
        """Yield what is asked for and is not there, in words that name it, what was wanted and what
        is there.

        Args:
            python: version of the interpreter.
            packages: version by normal name.
        """
        wanted = self.python or python
        if python != wanted and not python.startswith(f"{wanted}."):
            yield f"Python {wanted} is required, but {python} is installed"
        for name, version in self.versions.items():
            if name not in packages:
                yield f"{name} {version} is required, but {name} is not installed"
            elif not satisfies(packages[name], version):
                yield f"{name} {version} is required, but {packages[name]} is installed"
        for name in self.checkouts.keys() - packages.keys():
            yield f"{name} is required from a checkout, but {name} is not installed"
        if self.torch == "cpu" and (brought := for_gpus(packages)):
            yield f"torch for the CPU is required, but {listing(brought)} is installed"


def bare(name: str) -> str:
    """Normal name of a package, without extras or whatever else is written behind it."""
    return normal(re.split(r"[\s\[@=;]", name, maxsplit=1)[0])


def extras(name: str) -> list[str]:
    """Normal names of the extras that are written behind the name of a package."""
    written = re.match(r"[^\s\[@=;]+\s*\[([^\]]*)\]", name)
    return (
        sorted({normal(extra.strip()) for extra in written[1].split(",") if extra.strip()})
        if written
        else []
    )


def _normal(name: str) -> str:
    return f"{bare(name)}[{','.join(extras(name))}]" if extras(name) else bare(name)


def for_gpus(packages: Mapping[str, str]) -> list[str]:
    """Return what torch brings for a GPU among packages (version by normal name), as "name
    version".

    Nothing without torch.

    Whoever asks for such a package without torch means it.
    """
    if "torch" not in packages:
        return []
    torch = [f"torch {packages['torch']}"] if FOR_GPUS.fullmatch(packages["torch"]) else []
    return torch + [
        f"{name} {version}" for name, version in sorted(packages.items()) if CUDA.fullmatch(name)
    ]


def listing(names: Collection[str], *, most: int = 3) -> str:
    """First of some names, and how many more there are."""
    first: Iterable[str] = list(names)[:most]
    return ", ".join(first) + (f" and {len(names) - most} more" if len(names) > most else "")


def satisfies(version: str, asked: str) -> bool:
    """Return whether a version is the one that was asked for: 5.5 and 5.5.0 are one, and 2.13.0+cpu
    is a build of 2.13.0.
    """
    return _comparable(version if "+" in asked else version.partition("+")[0]) == _comparable(asked)


def _comparable(version: str) -> tuple[str, list[int], str]:
    match = re.match(r"(?:([0-9]+)!)?([0-9]+(?:\.[0-9]+)*)", version)
    if match is None:
        return "", [], version
    numbers = [int(part) for part in match[2].split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return match[1] or "0", numbers, version[match.end() :]


# -- a file of requirements: every package of an environment, pinned by version and sha256 ---------
# What pip-compile and `uv pip compile --generate-hashes` write. All else that pip would take there
# is refused: a range or an address runs something else next year, another file is not in the
# evidence, an option says where pip looks.


LARGEST = 4 * 2**20
_LINE = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[(?P<extras>[A-Za-z0-9._,\s-]*)\])?\s*"
    r"(?P<comparison>[=<>!~]=?=?)?\s*(?P<version>[A-Za-z0-9.!+_*-]*)\s*(;\s*(?P<marker>.+))?"
)
_EXACT = re.compile(r"([0-9]+!)?[0-9]+(\.[0-9]+)*[A-Za-z0-9.+_-]*")
_HASH = re.compile(r"--hash[=\s]\s*(\S+)")
_OPTION = re.compile(r"(?:^|\s)(-[A-Za-z]|--(?!hash\b)[a-z-]+)")


@dataclass(frozen=True, kw_only=True)
class PinnedRequirement:
    """A package of such a file.

    Attributes:
        name: in its normal form (PEP 503).
        extras: as they are written.
        marker: where it is needed, in the words of PEP 508; empty where it always is.
        hashes: sha256 of each file that will do.
    """

    name: str
    extras: str
    version: str
    marker: str
    hashes: frozenset[str]

    def __str__(self) -> str:
        """Line for pip, in one form."""
        extras = f"[{self.extras}]" if self.extras else ""
        marker = f" ; {self.marker}" if self.marker else ""
        hashes = "".join(f" --hash=sha256:{digest}" for digest in sorted(self.hashes))
        return f"{self.name}{extras}=={self.version}{marker}{hashes}"


def parse_requirements(text: bytes, *, name: str) -> tuple[PinnedRequirement, ...]:
    """Read such a file; `name` is what messages call it.

    Raises:
        ScenarioError: every line that is something else, with what to do.
    """
    problems: list[Problem] = []
    requirements: list[PinnedRequirement] = []
    try:
        content = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = text.count(b"\n", 0, error.start)
        raise ScenarioError(
            [_line_problem(name, before + 1, "is not UTF-8; save the file as UTF-8")]
        ) from None
    for number, line in _logical(content):
        try:
            requirements.append(_requirement(line))
        except ValueError as error:
            problems.append(_line_problem(name, number, str(error)))
    if not requirements and not problems:
        problems.append(
            _line_problem(
                name, 1, "has no packages; write one per line, as name==1.0 --hash=sha256:…"
            )
        )
    if problems:
        raise ScenarioError(problems)
    return tuple(requirements)


def unmet_requirements(
    wanted: Iterable[PinnedRequirement],
    installed: Mapping[str, tuple[str, str]],
    *,
    built: Collection[str],
) -> Iterator[str]:
    """Yield what a file of requirements asks for and is not there, or is there beside it, in words
    that name it.

    Args:
        wanted: what it asks for.
        installed: version and sha256 of the file that each package was installed from, by normal
            name.
        built: packages that come from checkouts, by normal name.
    """
    by_name: dict[str, list[PinnedRequirement]] = {}
    for requirement in wanted:
        by_name.setdefault(requirement.name, []).append(requirement)
    for name, lines in by_name.items():
        words = " or ".join(sorted({line.version for line in lines}))
        if name not in installed:
            if name not in built and not all(line.marker for line in lines):
                yield f"{name} {words} is required, but {name} is not installed"
            continue
        version, digest = installed[name]
        fitting = [line for line in lines if satisfies(version, line.version)]
        if not fitting:
            yield f"{name} {words} is required, but {version} is installed"
        elif not any(digest in line.hashes for line in fitting):
            yield (
                f"{name} {version} was installed from a file with sha256 {digest[:12]}, which the"
                " requirements do not allow"
            )
    for name in sorted(installed.keys() - by_name.keys() - set(built)):
        yield f"{name} {installed[name][0]} is installed, but is not among the requirements"


def _logical(content: str) -> Iterator[tuple[int, str]]:
    """Lines with content, joined where one ends with a backslash.

    Each with the number of its first.
    """
    begun = 0
    parts: list[str] = []
    for number, line in enumerate([*content.splitlines(), ""], start=1):
        text = re.sub(r"(^|\s)#.*$", "", line)
        begun = begun or number
        parts.append(text.rstrip().removesuffix("\\"))
        if text.rstrip().endswith("\\"):
            continue
        joined = " ".join(" ".join(parts).split())
        if joined:
            yield begun, joined
        begun = 0
        parts = []


def _requirement(line: str) -> PinnedRequirement:
    if line.startswith("-"):
        _refuse_option(line)
    if "$" in line:
        raise ValueError(
            "contains a variable, which may differ on another machine; write the value"
        )
    hashes = _HASH.findall(line)
    about = _HASH.sub("", line).strip()
    if "@" in about or "://" in about or about.startswith((".", "/")):
        raise ValueError(
            "is a URL or a folder; pin a released version, or put a git checkout into"
            " environment.packages, as {path: …, rev: …}"
        )
    if option := _OPTION.search(about):
        raise ValueError(
            f"has the option {option[1]}; remove it, because only --hash may follow a package"
        )
    match = _LINE.fullmatch(about)
    if match is None:
        raise ValueError("is not a requirement; write name==1.0 --hash=sha256:…")
    version = match["version"]
    if match["comparison"] != "==" or _EXACT.fullmatch(version) is None:
        raise ValueError(
            f"does not pin one version of {match['name']}; write {match['name']}==… (pip-compile"
            " --generate-hashes, or uv pip compile --generate-hashes, pins them all)"
        )
    if not hashes:
        raise ValueError(
            f"has no hash; write {match['name']}=={version} --hash=sha256:… (pip-compile"
            " --generate-hashes, or uv pip compile --generate-hashes, writes it)"
        )
    for given in hashes:
        if re.fullmatch(r"sha256:[0-9a-f]{64}", given) is None:
            raise ValueError(
                "has an invalid hash; write sha256: followed by 64 lower-case hexadecimal digits"
            )
    return PinnedRequirement(
        name=bare(match["name"]),
        extras=",".join(
            part.strip() for part in (match["extras"] or "").split(",") if part.strip()
        ),
        version=version,
        marker=(match["marker"] or "").strip(),
        hashes=frozenset(given.removeprefix("sha256:") for given in hashes),
    )


def _refuse_option(line: str) -> NoReturn:
    option = re.split(r"[\s=]", line, maxsplit=1)[0]
    match option:
        case "-r" | "--requirement" | "-c" | "--constraint":
            why = (
                "includes another file; copy its lines here, because only this file becomes"
                " evidence"
            )
        case "-e" | "--editable":
            why = (
                "is an editable install, whose files are not recorded; put it into"
                " environment.packages as {path: …}"
            )
        case (
            "-i"
            | "--index-url"
            | "--extra-index-url"
            | "-f"
            | "--find-links"
            | "--no-index"
            | "--trusted-host"
        ):
            why = (
                "sets where pip searches, which differs between machines; remove it and use pip's"
                " own configuration"
            )
        case _:
            why = "is an option; remove it, because this file may contain only packages"
    raise ValueError(f"{why} ({option})")


def _line_problem(name: str, line: int, message: str) -> Problem:
    # The line itself is not repeated: an address may hold a password.
    return Problem(name, line, 1, "", "", message)
