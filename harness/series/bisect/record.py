"""What is kept of a bisect: `bisect.json`, beside the folders of its runs.

It is a list of what was tried, and no evidence: the word of a version is worked out from its signed
run each time.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Literal, Self

from pydantic import Field

from harness.forms.model import Model, parse_json
from harness.series.bisect.walk import Word

NAME = "bisect.json"


class KeptStep(Model):
    """One version that was tried.

    Attributes:
        side: the arm that ran it.
        as_it_stands: whether the scenario ran without another environment.
        run: its folder, relative to `bisect.json`; empty where no run ended.
        why: why no run ended, or why the word is what it is.
        moved: other packages that could not be held: version before, and in this step.
        download: bytes of the files of its environment, as far as their sizes are known.
        disk: bytes of its environment; None where it was not made for this step.
    """

    version: str
    word: Word
    side: Literal["candidate", "control"] = "candidate"
    as_it_stands: bool = False
    run: str = ""
    why: str = ""
    counted: int = 0
    failed: int = 0
    moved: dict[str, tuple[str, str]] = Field(default_factory=dict, strict=False)
    download: int | None = None
    disk: int | None = None
    seconds: float = 0.0


class BisectRecord(Model):
    """What was asked, what was tried, and the answer.

    Attributes:
        scenario: sha256 of its file.
        identity: digest of what all steps have in common.
        companions: the versions that everything else is held at.
        left_out: versions that are not tried, and why.
        between: the ends of the last question.
        versions: that can be tried between them, oldest first.
    """

    format: Literal[1]
    id: str
    scenario: str
    identity: str
    overrides: list[str]
    package: str
    companions: dict[str, str]
    left_out: dict[str, str] = Field(default_factory=dict)
    between: list[str] = Field(default_factory=list)
    versions: list[str] = Field(default_factory=list)
    steps: list[KeptStep] = Field(default_factory=list)
    answer: str = ""

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Return what is kept in a folder; None where nothing is, or nothing that can be read."""
        try:
            return parse_json(cls, (folder / NAME).read_bytes())
        except (OSError, ValueError):
            return None

    def write(self, folder: Path) -> None:
        """Write it in one step."""
        draft = folder / f".{NAME}.{secrets.token_hex(4)}"
        draft.write_text(json.dumps(self.model_dump(mode="json"), indent=1) + os.linesep)
        draft.replace(folder / NAME)

    @property
    def known(self) -> dict[str, Word]:
        """The word of each version that was tried."""
        return {step.version: step.word for step in self.steps}
