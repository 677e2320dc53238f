"""Stable words for reasons: what tools see, while the texts beside them may be edited."""

from __future__ import annotations

from enum import StrEnum


class Otherwise(StrEnum):
    """Why a control did not fail as stated."""

    HELD = "check-held"
    RANKS = "other-ranks"
    DEADLINE = "deadline"
    HARNESS = "harness-error"
    EVIDENCE = "evidence-not-whole"
    STOPPED = "stopped-by-harness"
    SLIP = "slip"
    ERROR = "other-error"
    LINE = "other-line"
    MESSAGE = "other-message"
    SIGNAL = "other-signal"
    CODE = "other-code"
    UNSTATED_END = "unstated-end"
    PEER_GONE = "peer-gone-only"
    ELSEWHERE = "cause-elsewhere"
    NO_HANG = "no-hang"
    HANG_MOVING = "hang-moving"
    HANG_UNREADABLE = "hang-unreadable"
    HANG_WITHIN = "hang-not-within"
    HANG_ELSEWHERE = "hang-elsewhere"
