"""What a series is: signed runs made one after the other, counted together, and signed as one.

A matrix of faults is one, a search is another. What each of them asks and how it counts is its own; how its parts are
made, kept through a kill, gone on with and judged again is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import harness
from harness.forms.digest import fold, sha256
from harness.record.facts import SignerFacts, Source
from harness.world.machines import tree

FOLDER = "evidence/parts"
SUFFIX = ".rankproof.tar.xz"
Read = Callable[[str], bytes]


class Part(Protocol):
    """One signed run of a series."""

    @property
    def name(self) -> str:
        """Of the part, and of its file."""

    @property
    def path(self) -> str:
        """Where its bundle lies in the series."""

    @property
    def scenario(self) -> str:
        """Sha256 of its scenario file."""


class Facts(Protocol):
    """What a series was going to do, written before its first part."""

    @property
    def what(self) -> str:
        """What it is called in messages: a matrix, a search."""

    @property
    def made(self) -> str:
        """When it was begun, in UTC."""

    @property
    def id(self) -> str:
        """Of the series."""

    @property
    def rankproof(self) -> str:
        """Version that began it."""

    @property
    def code(self) -> str:
        """One digest of Rankproof's own files, as they were when it began; it goes on with no other."""

    @property
    def signer(self) -> SignerFacts | None:
        """Who signs it, and every part."""

    @property
    def source(self) -> Source:
        """The repository it was begun in."""

    def model_dump_json(self, *, indent: int | None = None) -> str:
        """As it is written."""


class Record(Protocol):
    """What came out of a series."""

    def encode(self) -> bytes:
        """The one way it is written."""


F = TypeVar("F", bound=Facts)
R = TypeVar("R", bound=Record)


class Series(Generic[F, R]):
    """One kind of series.

    Attributes:
        name: of its command, and of its folder in the results.
        facts: path of its facts in its folder.
    """

    name: str
    facts: str

    def read(self, data: bytes) -> F:
        """Its facts. Raises RecordError."""
        raise NotImplementedError

    def parts(self, facts: F) -> Sequence[Part]:
        """Its parts, in the order in which they are made."""
        raise NotImplementedError

    def is_of_other_code(self, facts: F) -> bool:
        """Whether other code than this began it."""
        return facts.code != code()

    def files(self, part: Part) -> Mapping[str, bytes]:
        """The folder of the scenario that is run for a part."""
        raise NotImplementedError

    def assemble(self, read: Read, names: Collection[str]) -> R:
        """Count its parts. Raises RecordError."""
        raise NotImplementedError

    def figures(self, _record: R) -> Mapping[str, bytes]:
        """Pictures of the record, by path."""
        return {}

    def render(self, record: R, *, manifest_digest: str) -> bytes:
        """The body of `report.md`."""
        raise NotImplementedError


def code() -> str:
    """One digest of Rankproof's own modules: parts of two versions make no series."""
    top = Path(harness.__file__).resolve().parent
    # Links are followed: in a checkout harness/_integrity is one.
    return fold({name: sha256(path.read_bytes()) for name, path in tree.files_of(top).items() if name.endswith(".py")})
