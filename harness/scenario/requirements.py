"""A file of requirements: every package of an environment, pinned by version and sha256.

What pip-compile and `uv pip compile --generate-hashes` write. All else that pip would take there is refused: a range or
an address runs something else next year, another file is not in the evidence, an option says where pip looks.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from harness.forms.problem import Problem, ScenarioError
from harness.scenario.environment import bare, satisfies

LARGEST = 4 * 2**20
_LINE = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[(?P<extras>[A-Za-z0-9._,\s-]*)\])?\s*"
    r"(?P<comparison>[=<>!~]=?=?)?\s*(?P<version>[A-Za-z0-9.!+_*-]*)\s*(;\s*(?P<marker>.+))?"
)
_EXACT = re.compile(r"([0-9]+!)?[0-9]+(\.[0-9]+)*[A-Za-z0-9.+_-]*")
_HASH = re.compile(r"--hash[=\s]\s*(\S+)")
_OPTION = re.compile(r"(?:^|\s)(-[A-Za-z]|--(?!hash\b)[a-z-]+)")


@dataclass(frozen=True, kw_only=True)
class Requirement:
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
        """The line for pip, in one form."""
        extras = f"[{self.extras}]" if self.extras else ""
        marker = f" ; {self.marker}" if self.marker else ""
        hashes = "".join(f" --hash=sha256:{digest}" for digest in sorted(self.hashes))
        return f"{self.name}{extras}=={self.version}{marker}{hashes}"


def parse(text: bytes, *, name: str) -> tuple[Requirement, ...]:
    """Read such a file; `name` is what messages call it.

    Raises:
        ScenarioError: every line that is something else, with what to do.
    """
    problems: list[Problem] = []
    found: list[Requirement] = []
    try:
        content = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = text.count(b"\n", 0, error.start)
        raise ScenarioError([_problem(name, before + 1, "is not UTF-8; save the file as UTF-8")]) from None
    for number, line in _logical(content):
        try:
            found.append(_requirement(line))
        except ValueError as error:
            problems.append(_problem(name, number, str(error)))
    if not found and not problems:
        problems.append(_problem(name, 1, "names no package; write one per line, as name==1.0 --hash=sha256:…"))
    if problems:
        raise ScenarioError(problems)
    return tuple(found)


def unmet(
    wanted: Iterable[Requirement], installed: Mapping[str, tuple[str, str]], *, built: Collection[str]
) -> Iterator[str]:
    """What a file of requirements asks for and is not there, or is there beside it, in words that name it.

    Args:
        wanted: what it asks for.
        installed: version and sha256 of the file that each package was installed from, by normal name.
        built: packages that come from checkouts, by normal name.
    """
    by_name: dict[str, list[Requirement]] = {}
    for one in wanted:
        by_name.setdefault(one.name, []).append(one)
    for name, lines in by_name.items():
        words = " or ".join(sorted({line.version for line in lines}))
        if name not in installed:
            if name not in built and not all(line.marker for line in lines):
                yield f"{name} {words} was asked for, and no {name} is there"
            continue
        version, digest = installed[name]
        fitting = [line for line in lines if satisfies(version, line.version)]
        if not fitting:
            yield f"{name} {words} was asked for, {version} is there"
        elif not any(digest in line.hashes for line in fitting):
            yield f"{name} {version} is there, from a file whose sha256 {digest[:12]} was not asked for"
    for name in sorted(installed.keys() - by_name.keys() - set(built)):
        yield f"{name} {installed[name][0]} is there, which nobody asked for"


def _logical(content: str) -> Iterator[tuple[int, str]]:
    """The lines with content, joined where one ends with a backslash; each with the number of its first."""
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
        begun, parts = 0, []


def _requirement(line: str) -> Requirement:
    if line.startswith("-"):
        _refuse_option(line)
    if "$" in line:
        raise ValueError("holds a variable, which is something else on another machine; write the value")
    hashes = _HASH.findall(line)
    about = _HASH.sub("", line).strip()
    if "@" in about or "://" in about or about.startswith((".", "/")):
        raise ValueError(
            "is an address or a folder; pin a released version, or name a git checkout in environment.packages, as "
            "{path: …, rev: …}"
        )
    if option := _OPTION.search(about):
        raise ValueError(f"has the option {option[1]}; only --hash may follow a package: remove it")
    found = _LINE.fullmatch(about)
    if found is None:
        raise ValueError("cannot be read; write name==1.0 --hash=sha256:…")
    version = found["version"]
    if found["comparison"] != "==" or _EXACT.fullmatch(version) is None:
        raise ValueError(
            f"does not pin one version of {found['name']}; write {found['name']}==… (pip-compile --generate-hashes, or "
            "uv pip compile --generate-hashes, pins them all)"
        )
    if not hashes:
        raise ValueError(
            f"has no hash; write {found['name']}=={version} --hash=sha256:… (pip-compile --generate-hashes, or uv pip "
            "compile --generate-hashes, writes it)"
        )
    for one in hashes:
        if re.fullmatch(r"sha256:[0-9a-f]{64}", one) is None:
            raise ValueError("has a hash that is not sha256: and 64 lower-case hexadecimal digits; write that one")
    return Requirement(
        name=bare(found["name"]),
        extras=",".join(part.strip() for part in (found["extras"] or "").split(",") if part.strip()),
        version=version,
        marker=(found["marker"] or "").strip(),
        hashes=frozenset(one.removeprefix("sha256:") for one in hashes),
    )


def _refuse_option(line: str) -> NoReturn:
    option = re.split(r"[\s=]", line, maxsplit=1)[0]
    match option:
        case "-r" | "--requirement" | "-c" | "--constraint":
            why = "names another file; write its lines here: this file alone is evidence"
        case "-e" | "--editable":
            why = "is an editable install, whose files nothing proves; name it in environment.packages as {path: …}"
        case "-i" | "--index-url" | "--extra-index-url" | "-f" | "--find-links" | "--no-index" | "--trusted-host":
            why = "says where pip looks, which is another place on another machine; remove it: pip's own settings do"
        case _:
            why = "is an option; this file has packages only: remove it"
    raise ValueError(f"{why} ({option})")


def _problem(name: str, line: int, message: str) -> Problem:
    # The line itself is not repeated: an address may hold a password.
    return Problem(name, line, 1, "", "", message)
