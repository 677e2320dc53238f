"""Record, `results.json`: every number in the report comes from here."""

from __future__ import annotations

import json
from functools import cache
from typing import TypeVar

from pydantic import Field

from harness.forms.model import Model, parse_json
from harness.forms.strict_json import JSON
from harness.reason import RefusalWord
from harness.record.defect import FindingRecord, finding_word
from harness.record.facts import RevisionFacts, RunFacts
from harness.record.reproduced import RunComparison
from harness.stats.verdict import Judgement

PATH = "results.json"


class RecordError(ValueError):
    """Record, or the evidence it is made from, that cannot be read.

    The message says which part.
    """


class Unknown(RecordError):
    """Raised for what this version does not know: nothing is said about the signer then."""


class Contradiction(RecordError):
    """Evidence that contradicts itself, and by which word it is refused.

    No run writes it, whatever its ranks did.
    """

    def __init__(self, word: RefusalWord, message: str) -> None:
        super().__init__(message)
        self.word = word


class FaultSummary(Model):
    """Fault as the report names it: its id, its kind, the arm it strikes, what it does to which
    ranks, in words.
    """

    id: str
    kind: str
    arm: str | None
    description: str


class ScenarioSummary(Model):
    """Summary of the scenario in the report; the file itself is evidence.

    `called` says what the arms of a comparison are called: `reference` a, `candidate` b, `control`
    b with the defect. `use` names a ready subject; `of` is `installed` where the subject is what is
    installed, not the repository's code; `hosts` is how many test hosts the ranks were on, 1 where
    they were on the machine as it is.
    """

    id: str
    title: str
    question: str
    role: str
    expects: str | None
    tags: list[str]
    sha256: str
    seed: str
    entry: str
    use: str | None = None
    of: str | None = None
    program: list[str]
    hosts: int = 1
    placement: str = ""
    accept_rate: float
    accept_confidence: float
    candidate_trials: int
    control_trials: int
    must_fail: str | None
    faults: list[FaultSummary]
    called: dict[str, str] = Field(default_factory=dict)

    def arm(self, name: str) -> str:
        """Return what an arm is called: `candidate`, or `b` of a comparison."""
        return self.called.get(name, name)

    def the(self, name: str) -> str:
        """Return the same within a sentence: `the candidate`, `b`."""
        return self.called.get(name) or f"the {name}"


class ArmSummary(Model):
    """Contents of an arm: its files with their sha256, the arguments of its entry, and the commit
    it came from.
    """

    files: dict[str, str]
    arguments: str
    revision: RevisionFacts | None = None


class ModuleChange(Model):
    """File of a library that ranks loaded, with other content in one arm than in the other.

    Attributes:
        file: its path below the folder it was imported from.
        digests: per arm, sha256 of the content that its ranks loaded: several where ranks loaded
            different contents, none where no rank reported the file.
        only: per arm, the ranks that loaded the file, where other ranks did not.
        removed: lines of the control's text (or a's) that are not in the candidate's.
        added: lines of the candidate's text that are not in the other one.
        lines: the beginning of the unified diff between the two, without the names of the files.
        more: how many lines of the diff are left out.
        why: in words, why there is no diff; empty where there is a diff.
    """

    file: str
    digests: dict[str, list[str]]
    only: dict[str, list[int]]
    removed: int
    added: int
    lines: list[str]
    more: int
    why: str


class LibraryChange(Model):
    """Distribution that the arms have in different releases.

    Attributes:
        distribution: its normal name.
        versions: per arm, its version; None where it is not installed.
        alike: how many of its files ranks of both arms loaded with one content.
        modules: the other files that ranks loaded, the most changed first.
        unloaded: modules that differ between the releases, or are in only one of them, and that no
            rank reported, by name; None where this is unknown.
        untold: the most files that the list of a rank leaves out, for length.
    """

    distribution: str
    versions: dict[str, str | None]
    alike: int
    modules: list[ModuleChange]
    unloaded: list[str] | None
    untold: int


class Record(Model):
    """Record of a run.

    Attributes:
        run: the facts of the run.
        scenario: what was asked.
        arms: `candidate`, and `control` if there is one; of a comparison `reference` too, its a.
        changed: unified diff from the control to the candidate, or from a to b, bounded; with the
            arguments as two lines.
        libraries: the same of the modules that ranks loaded of libraries that the arms have in
            different releases.
        judgement: the verdict, with everything it rests on.
        finding: about a released library, where the scenario states one.
        comparison: for a run that reproduces another, how the two compare.
    """

    run: RunFacts
    scenario: ScenarioSummary
    arms: dict[str, ArmSummary]
    changed: list[str]
    libraries: list[LibraryChange] = Field(default_factory=list)
    judgement: Judgement
    finding: FindingRecord | None = Field(None, exclude_if=lambda finding: finding is None)
    comparison: RunComparison | None = None

    @property
    def word(self) -> str:
        """The word that heads the report: the verdict, or of a finding whether it is shown."""
        if self.scenario.role == "upstream":
            return finding_word(self.judgement, self.finding)
        return self.judgement.verdict

    @property
    def headline(self) -> str:
        """What follows that word."""
        if self.finding is None:
            return self.scenario.title
        return f"{self.finding.stated.label} in {self.finding.at_fault}: {self.scenario.title}"

    def encode(self) -> bytes:
        """Return the bytes of `results.json`: ASCII, one form on every machine."""
        return _indented(self.model_dump(mode="json"), depth=0).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> Record:
        """Read back what `encode` wrote.

        Raises:
            RecordError: it is not a record of this format.
        """
        return read_model(cls, data, name=PATH)


# Asked for every value of a record, so made once.
_HOLDS = (dict, list)


def _indented(value: JSON, *, depth: int) -> str:
    """Return what `json.dumps(value, ensure_ascii=True, allow_nan=False, indent=1)` writes, several
    times faster.

    With an indent, json encodes in Python, value by value. A mapping or list that holds no other
    one can be encoded in C, with the line break as the separator.
    """
    if not isinstance(value, _HOLDS) or not value:
        return _encoder(depth).encode(value)
    here = "\n" + " " * depth
    inner = "\n" + " " * (depth + 1)
    children = value.values() if isinstance(value, dict) else value
    if not [child for child in children if isinstance(child, _HOLDS) and child]:
        text = _encoder(depth).encode(value)
        return f"{text[0]}{inner}{text[1:-1]}{here}{text[-1]}"
    parts = [_indented(child, depth=depth + 1) for child in children]
    if isinstance(value, list):
        return f"[{inner}{f',{inner}'.join(parts)}{here}]"
    keys = (_encoder(depth).encode(key) for key in value)
    items = [f"{key}: {part}" for key, part in zip(keys, parts, strict=True)]
    return f"{{{inner}{f',{inner}'.join(items)}{here}}}"


@cache
def _encoder(depth: int) -> json.JSONEncoder:
    separators = (",\n" + " " * (depth + 1), ": ")
    return json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=separators)


T = TypeVar("T", bound=Model)


def read_model(model: type[T], data: bytes, *, name: str) -> T:
    """Read a model from strict JSON.

    Raises:
        RecordError: not strict JSON, or not this model; the message names the first place.
    """
    try:
        return parse_json(model, data)
    except ValueError as error:
        raise RecordError(f"{name}: {error}") from None
