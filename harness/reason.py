"""Codes of reasons: stable words for machines, so that texts may be edited without changing what
tools see.

One closed enum per noun, and a reason of that noun: its code, and a text for people. Nothing may
match on the text, and no code is ever renamed or used for something else. docs/reading.md lists
them all, and a test holds it to this file.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Literal, get_args

DependsOn = Literal["cell", "backend", "machine", "network"]


class VerdictCode(StrEnum):
    """Why a cell that ran is not PASS."""

    CODE_NOT_PROVED = "verdict:code-not-proved"
    ENVIRONMENT_NOT_PROVED = "verdict:environment-not-proved"
    REFERENCE_FAILED = "verdict:reference-failed"
    REFERENCE_DIFFERS = "verdict:reference-differs"
    REFERENCE_TOO_COARSE = "verdict:reference-too-coarse"
    ARMS_ALIKE = "verdict:arms-alike"
    FAILURE_RATE = "verdict:failure-rate"
    TOO_FEW_TRIALS = "verdict:too-few-trials"
    TRIALS_VOID = "verdict:trials-void"
    NO_CONTROL = "verdict:no-control"
    CONTROL_TRIALS_VOID = "verdict:control-trials-void"
    CONTROL_NEVER_FAILED = "verdict:control-never-failed"
    CONTROL_NOT_AS_STATED = "verdict:control-not-as-stated"
    CONTROL_NOT_APART = "verdict:control-not-apart"
    TOOTHLESS = "verdict:toothless"
    OVER_TRIALS = "verdict:over-trials"


class DeviationCode(StrEnum):
    """Why a control's trial did not fail as required."""

    CHECK_HELD = "control:check-held"
    DEADLINE = "control:deadline"
    HARNESS_FAILED = "control:harness-failed"
    EVIDENCE_NOT_WHOLE = "control:evidence-not-whole"
    OTHER_RANKS = "control:other-ranks"
    OTHER_ERROR = "control:other-error"
    OTHER_SOURCE = "control:other-source"
    OTHER_MESSAGE = "control:other-message"
    OTHER_SIGNAL = "control:other-signal"
    OTHER_EXIT_CODE = "control:other-exit-code"
    NOT_COMPARED = "control:not-compared"
    FAILED_ELSEWHERE = "control:failed-elsewhere"
    STOPPED = "control:stopped"
    SLIP = "control:slip"
    UNSTATED_END = "control:unstated-end"
    PEER_GONE_ONLY = "control:peer-gone-only"
    CAUSE_ELSEWHERE = "control:cause-elsewhere"
    NO_HANG = "control:no-hang"
    HANG_MOVING = "control:hang-moving"
    HANG_UNREADABLE = "control:hang-unreadable"
    HANG_NOT_WITHIN = "control:hang-not-within"
    HANG_ELSEWHERE = "control:hang-elsewhere"
    HANG_DOUBTFUL = "control:hang-doubtful"
    HANG_NOT_WATCHED = "control:hang-not-watched"


class VoidCode(StrEnum):
    """Why a trial does not count."""

    HARNESS_ERROR = "void:harness-error"
    NO_END = "void:no-end"
    FAULT_NOT_PROVED = "void:fault-not-proved"
    NODE_LOST = "void:node-lost"


class SkipCode(StrEnum):
    """Why a cell did not run. The first word says what that depends on."""

    CELL_TOO_SMALL = "skip:cell-too-small"
    CELL_GPUS = "skip:cell-gpus"
    CELL_LIMIT = "skip:cell-limit"
    CELL_HOSTS = "skip:cell-hosts"
    CELL_MODEL = "skip:cell-model"
    BACKEND_LIBRARY = "skip:backend-library"
    BACKEND_UNKNOWN = "skip:backend-unknown"
    BACKEND_HOSTS = "skip:backend-hosts"
    MACHINE_SYSTEM = "skip:machine-system"
    MACHINE_CORES = "skip:machine-cores"
    MACHINE_MEMORY = "skip:machine-memory"
    MACHINE_GPUS = "skip:machine-gpus"
    MACHINE_NIX = "skip:machine-nix"
    MACHINE_FAULT = "skip:machine-fault"
    MACHINE_HOSTS = "skip:machine-hosts"
    MACHINE_NUMERIC = "skip:machine-numeric"
    MACHINE_PROGRAM = "skip:machine-program"
    MACHINE_INTERPRETER = "skip:machine-interpreter"
    NETWORK_PACKAGES = "skip:network-packages"

    @property
    def depends_on(self) -> DependsOn:
        """Tell what another cell would share to be skipped too: its size, its backend, or the
        run.
        """
        word = self.value.removeprefix("skip:").partition("-")[0]
        first: DependsOn = next(known for known in get_args(DependsOn) if known == word)
        return first


class RefusalWord(StrEnum):
    """Why a report was refused, step by step: `harness.trust.verification` says what each word
    means.
    """

    # footer
    NO_REPORT = "NO REPORT"
    UNSIGNED = "UNSIGNED"
    TRUNCATED = "TRUNCATED"
    TEXT_AFTER_SIGNATURE = "TEXT AFTER SIGNATURE"
    TWO_SIGNATURES = "TWO SIGNATURES"
    MALFORMED_FOOTER = "MALFORMED FOOTER"
    # signature
    BAD_SIGNATURE = "BAD SIGNATURE"
    WRONG_NAMESPACE = "WRONG NAMESPACE"
    # signer
    UNKNOWN_SIGNER = "UNKNOWN SIGNER"
    SIGNER_NOT_ALLOWED_HERE = "SIGNER NOT ALLOWED HERE"
    SIGNER_EXPIRED = "SIGNER EXPIRED"
    SIGNER_REVOKED = "SIGNER REVOKED"
    # manifest
    MANIFEST_MISSING = "MANIFEST MISSING"
    MANIFEST_NOT_THE_SIGNED_ONE = "MANIFEST NOT THE SIGNED ONE"
    MANIFEST_MALFORMED = "MANIFEST MALFORMED"
    # files
    EVIDENCE_MISSING = "EVIDENCE MISSING"
    EVIDENCE_EDITED = "EVIDENCE EDITED"
    EVIDENCE_IS_A_LINK = "EVIDENCE IS A LINK"
    EVIDENCE_TOO_LARGE = "EVIDENCE TOO LARGE"
    # unlisted
    UNLISTED_FILE = "UNLISTED FILE"
    # judged
    JUDGED_DIFFERENTLY = "JUDGED DIFFERENTLY"
    NOT_JUDGED = "NOT JUDGED"
    EVENTS_SHARED = "EVENTS SHARED"
    EVENTS_OF_ANOTHER_TRIAL = "EVENTS OF ANOTHER TRIAL"
    EVENTS_OUT_OF_TIME = "EVENTS OUT OF TIME"
    SECONDS_TOO_SHORT = "SECONDS TOO SHORT"
    TRIALS_NOT_PLANNED = "TRIALS NOT PLANNED"
    SKIP_CONTRADICTED = "SKIP CONTRADICTED"
    # rendered
    RENDERED_DIFFERENTLY = "RENDERED DIFFERENTLY"
    NOT_RENDERED = "NOT RENDERED"
    SIGNED_BY_ANOTHER_KEY = "SIGNED BY ANOTHER KEY"
    # statement
    STATEMENT_UNREADABLE = "STATEMENT UNREADABLE"
    STATEMENT_MALFORMED = "STATEMENT MALFORMED"
    STATEMENT_BY_ANOTHER_KEY = "STATEMENT BY ANOTHER KEY"
    STATEMENT_WRONG_NAMESPACE = "STATEMENT WRONG NAMESPACE"
    STATEMENT_BADLY_SIGNED = "STATEMENT BADLY SIGNED"
    STATEMENT_OF_ANOTHER_REPORT = "STATEMENT OF ANOTHER REPORT"
    STATEMENT_OF_ANOTHER_RESULT = "STATEMENT OF ANOTHER RESULT"
    STATEMENT_OF_ANOTHER_COMMIT = "STATEMENT OF ANOTHER COMMIT"
    STATEMENT_DIFFERS = "STATEMENT DIFFERS"
    STATEMENT_NOT_REBUILT = "STATEMENT NOT REBUILT"
    # views
    VIEW_UNREADABLE = "VIEW UNREADABLE"
    VIEW_EDITED = "VIEW EDITED"
    VIEW_NOT_RENDERED = "VIEW NOT RENDERED"


@dataclass(frozen=True)
class _Said:
    """Reason that reads as its text."""

    # For the records, which take these as they are: closed, as all of a record is.
    __pydantic_config__: ClassVar = {"extra": "forbid"}
    code: StrEnum
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class VerdictReason(_Said):
    """Why a cell that ran is not PASS."""

    code: VerdictCode


@dataclass(frozen=True)
class Deviation(_Said):
    """Why a control's trial did not fail as required: what it did instead."""

    code: DeviationCode


@dataclass(frozen=True)
class Void(_Said):
    """Why a trial does not count."""

    code: VoidCode


@dataclass(frozen=True)
class Skip(_Said):
    """Why a cell did not run."""

    code: SkipCode
