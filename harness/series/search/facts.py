"""What a search was going to do, written before its first part: the space, and in which parts it is walked."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.forms.model import Model
from harness.record.facts import SignerFacts, Source
from harness.series.series import FOLDER, SUFFIX

PATH = "evidence/search.json"
FORMAT: Literal[1] = 1
NOT_INSTALLED = "not installed"
"""What stands for the version of a library that is not there."""

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Library = Literal["hf", "mlx"]


class Asked(Model):
    """How a model is shared, and over how many ranks."""

    sharding: Literal["single", "tensor", "pipeline"]
    ranks: Annotated[int, Field(ge=1)]


class PartFacts(Model):
    """One signed run of a search: a model with an engine.

    Attributes:
        name: of the part, and of its file.
        model: of the models that are made here.
        library: the engine.
        cells: what is asked of it.
        arrays: whether its evidence holds logits and weights, or their digests and what was worked out of them.
        scenario: sha256 of its scenario file.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    model: str
    library: Library
    cells: list[Asked]
    arrays: bool
    scenario: Digest

    @property
    def path(self) -> str:
        """Where it lies in the search."""
        return f"{FOLDER}/{self.name}{SUFFIX}"


class SearchFacts(Model):
    """One search.

    Attributes:
        code: one digest of Rankproof's own files, as they were when it began; it goes on with no other.
        versions: of the libraries whose releases are searched, and of what they compute with.
        models: name to the digest of its files.
        prompts: texts, and lists of token ids.
        chunk: tokens of a prompt that are read at a time.
        steps: tokens that are generated after each.
        trials: how often each cell is walked.
        subject: the code of the ranks, file to sha256.
        parts: in the order in which they are made.
    """

    format: Literal[1]
    rankproof: str
    id: str
    made: str
    signer: SignerFacts | None
    source: Source
    code: Digest
    versions: dict[str, str]
    models: dict[str, Digest]
    prompts: list[str | list[int]]
    chunk: int
    steps: int
    trials: int
    subject: dict[str, Digest]
    parts: list[PartFacts]

    @property
    def what(self) -> str:
        """What it is called in messages."""
        return "search"
