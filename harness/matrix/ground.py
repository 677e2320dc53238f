"""What faults are tried on: for each class of kinds a standard subject, with the checks that it is judged by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from types import MappingProxyType
from typing import Any

from harness.matrix.standard import ELEMENTS, LARGE, payload

ROUNDS = 4
HANG = "hang"
"""Stands where a check does: the world stands still, and that is proved."""
EVERY_FINISHED = {"kind": "exit", "ranks": "every", "code": 0}
LEFT = {"kind": "no-survivors"}


@dataclass(frozen=True, kw_only=True)
class Ground:
    """A standard subject.

    Attributes:
        name: in ids of scenarios and in the report.
        function: of `harness.matrix.standard`.
        ranks: in each world.
        at: the event at which faults strike, where the case says nothing.
        arguments: of the function.
        broken: what the function is given instead where a check has to fail without a fault.
        checks: options by id.
        extra: further keys of the scenario.
        by_backend: further keys on a backend.
    """

    name: str
    function: str
    ranks: int = 3
    at: str = "work.begin"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    broken: Mapping[str, Any] = field(default_factory=dict)
    checks: Mapping[str, Mapping[str, Any]]
    extra: Mapping[str, Any] = field(default_factory=dict)
    by_backend: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


_EXCHANGED: Mapping[str, Mapping[str, Any]] = {
    "as-expected": {"kind": "equal", "ranks": "every", "value": "exchanged.wrong", "to": []},
    "same-result": {"kind": "agree", "ranks": "every", "value": "exchanged.digest"},
    "score-exact": {"kind": "equal", "ranks": "every", "value": "exchanged.score", "to": float(ROUNDS)},
    "score-close": {
        "kind": "close",
        "ranks": "every",
        "value": "exchanged.score",
        "to": float(ROUNDS),
        "atol": 0.5,
        "rtol": 0,
    },
    "score-most": {"kind": "at-most", "ranks": "every", "value": "exchanged.score", "to": float(ROUNDS)},
    "keeps-moving": {"kind": "progress", "ranks": "every", "event": "round", "counter": "number", "limit": "3s"},
    "in-time": {"kind": "within", "ranks": "every", "event": "exchanged", "from": "work.begin", "limit": "3500ms"},
    "work-done": {"kind": "event", "ranks": "every", "event": "exchanged"},
    "in-step": {"kind": "ledger-agrees", "ranks": "every"},
    "struck-finishes": {"kind": "exit", "ranks": [1], "code": 0},
    "all-finished": EVERY_FINISHED,
    "nobody-left": LEFT,
}
EXCHANGE = Ground(
    name="exchange",
    function="exchange",
    arguments={"rounds": ROUNDS},
    broken={"defect": "stale"},
    checks=_EXCHANGED,
    extra={"observe": ["collectives"]},
)
REDUCE = Ground(
    name="reduce",
    function="reduce",
    arguments={"rounds": ROUNDS},
    broken={"defect": "stale"},
    checks={
        "as-expected": {"kind": "equal", "ranks": "every", "value": "reduced.wrong", "to": []},
        "in-step": {"kind": "ledger-agrees", "ranks": "every"},
        "all-finished": EVERY_FINISHED,
        "nobody-left": LEFT,
    },
    extra={"observe": ["collectives"]},
)
_CODED: Mapping[str, Mapping[str, Any]] = {
    "correct": {"kind": "collective-correct", "ranks": "every", "calls": 2 * ROUNDS},
    "intact": {"kind": "transfers-intact", "ranks": "every"},
    "in-step": {"kind": "ledger-agrees", "ranks": "every"},
    "all-finished": EVERY_FINISHED,
    "nobody-left": LEFT,
}
_DIGESTS = {
    "gloo": {"observe": ["collectives", "digests"]},
    "mlx-ring": {"observe": ["collectives", "eager-digests"]},
}
CODED = Ground(name="coded", function="code", arguments={"rounds": ROUNDS}, checks=_CODED, by_backend=_DIGESTS)
CODED_ON_HOSTS = Ground(
    name="coded-on-hosts",
    function="code",
    arguments={"rounds": ROUNDS},
    checks=_CODED,
    extra={"world": {"hosts": 3}},
    by_backend=_DIGESTS,
)
HOSTS = Ground(
    name="hosts",
    function="exchange",
    arguments={"rounds": ROUNDS},
    broken={"defect": "stale"},
    # A link may make it late: how late is not what is asked.
    checks={name: options for name, options in _EXCHANGED.items() if name not in ("in-time", "keeps-moving")},
    extra={"observe": ["collectives"], "world": {"hosts": 3}},
)
RUNTIME = Ground(
    name="runtime",
    function="exchange",
    arguments={"rounds": ROUNDS},
    checks={
        "as-expected": _EXCHANGED["as-expected"],
        "same-environment": {"kind": "environment-agrees", "ranks": "every"},
        "all-finished": EVERY_FINISHED,
        "nobody-left": LEFT,
    },
)
STORE = Ground(
    name="store",
    function="store",
    checks={
        "as-written": {
            "kind": "equal",
            "ranks": "every",
            "value": "read.digest",
            "to": sha256(payload(1, 0) * (LARGE // ELEMENTS)).hexdigest(),
        },
        "whole": {"kind": "at-least", "ranks": "every", "value": "read.size", "to": LARGE},
        "struck-finishes": {"kind": "exit", "ranks": [1], "code": 0},
        "all-finished": EVERY_FINISHED,
        "nobody-left": LEFT,
    },
)
FETCH = Ground(
    name="fetch",
    function="fetch",
    ranks=2,
    checks={
        "same-file": {"kind": "agree", "ranks": "every", "value": "read.digest"},
        "asked": {"kind": "requests", "ranks": "every", "role": "tokenizer_config.json", "at_least": 1, "at_most": 1},
        "all-finished": EVERY_FINISHED,
        "nobody-left": LEFT,
    },
    extra={"inputs": {"repositories": {"layouts": ["llama3"]}}, "hub": {"serve": "repositories"}},
)
GROUNDS = MappingProxyType(
    {ground.name: ground for ground in (EXCHANGE, REDUCE, CODED, CODED_ON_HOSTS, HOSTS, RUNTIME, STORE, FETCH)}
)
