"""What faults are tried on: for each class of kinds a standard subject, with the checks that it is
judged by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from types import MappingProxyType
from typing import Any

from harness.series.matrix.standard import ELEMENTS, LARGE, payload

ROUNDS = 4
STRUCK = "struck"
"""The id of the fault."""
HANG = "hang"
"""Stands where a check does: the world stands still, and that is proved."""
EVERY_FINISHED = {"kind": "exit", "ranks": "every", "code": 0}
LEFT = {"kind": "no-survivors"}


@dataclass(frozen=True, kw_only=True)
class Ground:
    """A standard subject.

    Attributes:
        name: in ids of scenarios and in the report.
        function: of the module.
        module: of `harness.series.matrix`; its file is the code of both arms.
        ranks: in each world.
        at: the event at which faults strike, where the case says nothing.
        arguments: of the function.
        broken: what the function is given instead where a check has to fail without a fault.
        checks: options by id.
        extra: further keys of the scenario.
        by_backend: further keys on a backend.
        reference: the function of the module that the ranks are compared with; it is told the
            backend.
    """

    name: str
    function: str
    module: str = "standard"
    ranks: int = 3
    at: str = "work.begin"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    broken: Mapping[str, Any] = field(default_factory=dict)
    checks: Mapping[str, Mapping[str, Any]]
    extra: Mapping[str, Any] = field(default_factory=dict)
    by_backend: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    reference: str = ""

    @property
    def file(self) -> str:
        """Name of its file in an arm's folder."""
        return f"{self.module}.py"


_EXCHANGED: Mapping[str, Mapping[str, Any]] = {
    "as-expected": {"kind": "equal", "ranks": "every", "value": "exchanged.wrong", "to": []},
    "same-result": {"kind": "agree", "ranks": "every", "value": "exchanged.digest"},
    "score-exact": {
        "kind": "equal",
        "ranks": "every",
        "value": "exchanged.score",
        "to": float(ROUNDS),
    },
    "score-close": {
        "kind": "close",
        "ranks": "every",
        "value": "exchanged.score",
        "to": float(ROUNDS),
        "atol": 0.5,
        "rtol": 0,
    },
    "score-most": {
        "kind": "at-most",
        "ranks": "every",
        "value": "exchanged.score",
        "to": float(ROUNDS),
    },
    "keeps-moving": {
        "kind": "progress",
        "ranks": "every",
        "event": "round",
        "counter": "number",
        "limit": "3s",
    },
    "in-time": {
        "kind": "within",
        "ranks": "every",
        "event": "exchanged",
        "from": "work.begin",
        "limit": "3500ms",
    },
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
CODED = Ground(
    name="coded", function="code", arguments={"rounds": ROUNDS}, checks=_CODED, by_backend=_DIGESTS
)
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
    checks={
        name: options
        for name, options in _EXCHANGED.items()
        if name not in ("in-time", "keeps-moving")
    },
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
        "asked": {
            "kind": "requests",
            "ranks": "every",
            "role": "tokenizer_config.json",
            "at_least": 1,
            "at_most": 1,
        },
        "all-finished": EVERY_FINISHED,
        "nobody-left": LEFT,
    },
    extra={"inputs": {"repositories": {"layouts": ["llama3"]}}, "hub": {"serve": "repositories"}},
)
FETCH_AGAIN = replace(FETCH, name="fetch-again", module="service")
# The fault that cases strike with: time runs from its strike.
_AFTER = {"ranks": "every", "fault": STRUCK}
SURVIVE = Ground(
    name="survive",
    function="serve",
    module="service",
    at="round",
    checks={
        "noticed": {"kind": "detected-within", **_AFTER, "limit": "2s"},
        "all-end": {"kind": "survivors-end", **_AFTER, "limit": "8s"},
        "nobody-left": LEFT,
    },
)
# In a ring of three a survivor may wait for the other one, and notice as late as that does.
SURVIVE_ALONE = replace(SURVIVE, name="survive-alone", ranks=2)
EMPLOY = Ground(
    name="employ",
    function="employ",
    module="service",
    at="round",
    checks={
        "struck-finishes": {"kind": "exit", "ranks": [1], "code": 0},
        "all-finished": EVERY_FINISHED,
        "nobody-left": LEFT,
    },
    # So long the world waits for the worker that nobody ends.
    extra={"world": {"after_failure": "4s"}},
)
_REFERENCE = {"ranks": "every", "against": "reference"}
LINEAR = Ground(
    name="linear",
    function="score",
    module="linear",
    ranks=2,
    checks={
        "same-model": {"kind": "equivalent", **_REFERENCE},
        "takes-part": {"kind": "influence", **_REFERENCE},
        "covers": {"kind": "shards-cover", **_REFERENCE},
        "near": {"kind": "distribution", **_REFERENCE, "artefact": "prefill.logits.0", "kl": 1e-3},
        "in-step": {"kind": "ledger-agrees", "ranks": "every"},
        "all-finished": EVERY_FINISHED,
        "nobody-left": LEFT,
    },
    extra={"observe": ["collectives"]},
    reference="whole",
)
GROUNDS = MappingProxyType(
    {
        ground.name: ground
        for ground in (
            *(EXCHANGE, REDUCE, CODED, CODED_ON_HOSTS, HOSTS, RUNTIME, STORE, FETCH),
            *(FETCH_AGAIN, SURVIVE, SURVIVE_ALONE, EMPLOY, LINEAR),
        )
    }
)
