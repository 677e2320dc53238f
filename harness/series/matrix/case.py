"""The cases of the matrix: the subjects that it tries kinds of faults on, with the checks that look
at them, and one kind of fault on one of them, with what has to be seen of it.

And the scenario that a case makes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from harness.faults import KINDS
from harness.faults.fault import Effect
from harness.scenario.load import scenario_text
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


Sees = Mapping[str, str | Sequence[int]]
PLAIN = "plain"
"""In a choice, for the variant of a case that names none."""
BROKEN_TRIALS = 3
"""Trials of a broken subject under a masked fault: they show that the checks could have failed."""
DEADLINE = "60s"
AFTER_FAILURE = "10s"
"""What ranks have to end by themselves: on a machine that is busy for hours two seconds are not
enough.
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A kind of fault on a standard subject.

    Attributes:
        kind: of the fault.
        variant: tells cases of one kind apart.
        ground: what it strikes.
        struck: the ranks.
        at: the event; the ground's, where nothing is said.
        options: of the fault.
        arguments: of the subject, beside the ground's.
        defect: of the control's subject: the fault strikes both arms then, and what has to be seen
            is how badly the control takes it. Without one the fault strikes the control alone.
        sees: the checks that fail, with the ranks on which they do: `every` or a list. The first is
            the one by which the control fails as required; none where it hangs.
        says: a text that the reason of such a check must hold, by id: the line of a call, say.
        must_fail: how, beside check and ranks.
        by_backend: `options`, `sees` and `must_fail` of a backend on which the kind shows
            otherwise.
        effect: the kind's own, where nothing is said.
        backends: on which it is tried.
        why_not: why on no other.
    """

    kind: str
    ground: Ground
    variant: str = ""
    struck: str | Sequence[int] = (1,)
    at: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    defect: Mapping[str, Any] = field(default_factory=dict)
    sees: Sees = field(default_factory=dict)
    says: Mapping[str, str] = field(default_factory=dict)
    must_fail: Mapping[str, Any] = field(default_factory=dict)
    by_backend: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    effect: Effect | None = None
    backends: Sequence[str] = ("gloo", "mlx-ring")
    why_not: str = ""

    @property
    def name(self) -> str:
        """Return what the report calls it."""
        return f"{self.kind}-{self.variant}" if self.variant else self.kind

    @property
    def choice(self) -> str:
        """Return what `--only` takes for this case alone."""
        return f"{self.kind}/{self.variant or PLAIN}"

    @property
    def does(self) -> Effect:
        """Return what it does to a subject that works."""
        effect = self.effect or KINDS[self.kind].effect
        assert effect is not None, f"the kind {self.kind} states no effect, so the case must"
        return effect

    @property
    def is_masked(self) -> bool:
        """Return whether it has to be borne; else it has to be seen."""
        return self.does == "masked"

    def seen_by(self, backend: str) -> Sees:
        """Return the checks that fail on a backend, with their ranks; `hang` among them, where the
        world stands still.
        """
        given = self._of(backend, "must_fail")
        sees: Sees = self._of(backend, "sees")
        return {HANG: given["ranks"], **sees} if HANG in given else sees

    def _of(self, backend: str, what: str) -> Mapping[str, Any]:
        value: Mapping[str, Any] = self.by_backend.get(backend, {}).get(what, getattr(self, what))
        return value

    def scenario(self, backend: str, *, trials: int, seed: str) -> bytes:
        """Return the scenario of one part: ordinary YAML, the same bytes everywhere."""
        ground = self.ground
        fault = {
            "id": STRUCK,
            "kind": self.kind,
            "ranks": _ranks(self.struck),
            **self._of(backend, "options"),
        }
        if KINDS[self.kind].properties.needs_a_gate or self.at is not None:
            fault["at"] = self.at or ground.at
        given = {**ground.arguments, **self.arguments}
        if self.is_masked:
            title = f"{self.name} changes no result on {backend}"
            question = f"On {backend}, do all ranks get the right results despite {self.kind}?"
            control = {
                "with": {**given, **ground.broken},
                "must_fail": {"check": "as-expected", "ranks": "every"},
            }
        else:
            title = f"{self.name} is detected on {backend}"
            question = (
                f"On {backend}, do the required checks detect {self.kind} on the ranks that it"
                " reaches, and name it?"
            )
            if not self.defect:
                fault["arm"] = "control"
            control = {
                "with": {**given, **self.defect},
                "must_fail": dict(self._must_fail(backend)),
            }
        subject = {
            "entry": f"{ground.module}:{ground.function}",
            "candidate": {"with": given},
            "control": control,
        }
        if ground.reference:
            subject["reference"] = {
                "entry": f"{ground.module}:{ground.reference}",
                "with": {"backend": backend},
            }
        tree = {
            "schema": 1,
            "id": f"matrix-{self.name}-{backend}",
            "title": title,
            "question": question,
            "role": "self-test",
            "expects": "PASS",
            "subject": subject,
            "matrix": {"ranks": [ground.ranks], "backend": [backend]},
            **{key: value for key, value in ground.extra.items() if key != "world"},
            **ground.by_backend.get(backend, {}),
            "world": {
                "deadline": DEADLINE,
                "after_failure": AFTER_FAILURE,
                **ground.extra.get("world", {}),
            },
            "seed": seed,
            "trials": {
                "candidate": trials,
                "control": BROKEN_TRIALS if self.is_masked else trials,
                "accept": {"failure_rate_below": "99.9%", "confidence": "95%"},
                "max_voids": 0,
            },
            "faults": [fault],
            "checks": [{"id": name, **options} for name, options in ground.checks.items()],
        }
        return scenario_text(tree, width=110).encode()

    def _must_fail(self, backend: str) -> Mapping[str, Any]:
        given = self._of(backend, "must_fail")
        sees = self.seen_by(backend)
        if HANG in given:
            return {**given}
        first = next(iter(sees))
        return {"check": first, "ranks": _ranks(sees[first]), **given}


def _ranks(ranks: str | Sequence[int]) -> str | list[int]:
    return ranks if isinstance(ranks, str) else list(ranks)
