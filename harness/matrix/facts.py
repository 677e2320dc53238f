"""What a matrix was going to do, written before its first part: cases, seeds, and what has to be seen of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from harness.forms.model import Model
from harness.record.facts import SignerFacts, Source
from harness.series.series import FOLDER, SUFFIX

PATH = "evidence/matrix.json"
STANDARD = "standard.py"
FORMAT: Literal[1] = 1

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class PartFacts(Model):
    """One signed run of a matrix: a case on a backend, with some of its seeds.

    Attributes:
        name: of the part, and of its file.
        case: what the report calls the case.
        kind: of the fault.
        effect: what the kind does to a subject that works.
        backend: on which.
        ranks: of each world.
        struck: the ranks that the fault is for.
        trials: seeds: so many trials of the fault, and as many without it where it is not masked.
        seed: the root of its seeds.
        scenario: sha256 of its scenario file.
        masked: whether the fault has to be borne; else it has to be seen.
        sees: the checks that must fail, by id, each with the ranks on which it must; `hang` is not a check, and proved
            by stillness.
        says: a text that the reason of such a check must hold, by id.
        checks: every check, by id, with its kind.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    case: str
    kind: str
    effect: str
    backend: str
    ranks: Annotated[int, Field(ge=1)]
    struck: list[int]
    trials: Annotated[int, Field(ge=1)]
    seed: str
    scenario: Digest
    masked: bool
    sees: dict[str, list[int]]
    says: dict[str, str]
    checks: dict[str, str]

    @property
    def path(self) -> str:
        """Where it lies in the matrix."""
        return f"{FOLDER}/{self.name}{SUFFIX}"


class MatrixFacts(Model):
    """One matrix.

    Attributes:
        code: one digest of Rankproof's own files, as they were when it began; it goes on with no other.
        seeds: trials of each case.
        seed: the root of all seeds.
        sample: whether it is the sentinels alone.
        only: the kinds and cases it was asked for; empty for all.
        backends: the backends it was asked for.
        subject: sha256 of standard.py.
        subjects: sha256 of each further file of subjects, by its name.
        parts: in the order in which they are made.
        without: what has no case in it, with the reason: a kind, or a kind on a backend.
        unused: kinds of checks that no case of it needs: on no backend, or not on the one that is named.
    """

    format: Literal[1]
    rankproof: str
    id: str
    made: str
    signer: SignerFacts | None
    source: Source
    code: Digest
    seeds: Annotated[int, Field(ge=1)]
    seed: str
    sample: bool
    only: list[str]
    backends: list[str]
    subject: Digest
    subjects: dict[str, Digest] = Field(default_factory=dict)
    parts: list[PartFacts]
    without: dict[str, str]
    unused: list[str]

    @property
    def what(self) -> str:
        """What it is called in messages."""
        return "matrix"

    def subject_of(self, file: str) -> str | None:
        """The sha256 that a file of subjects must have; None where the matrix names no such file."""
        return self.subject if file == STANDARD else self.subjects.get(file)

    def cells(self) -> Mapping[tuple[str, str], list[PartFacts]]:
        """The parts of each case on each backend."""
        found: dict[tuple[str, str], list[PartFacts]] = {}
        for part in self.parts:
            found.setdefault((part.case, part.backend), []).append(part)
        return found
