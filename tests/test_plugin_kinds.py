"""Kinds of plug-ins that misbehave: what they return is looked at before it decides anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

from harness import backends, faults
from harness.backends import Backend, Rendezvous
from harness.checks import KINDS, judge_trial
from harness.checks.agree import AgreeCheck
from harness.checks.finding import Finding, RankFinding
from harness.faults.exit import ExitFault
from harness.faults.strikes import Strikes
from harness.history import History
from harness.plugins import Plugin, PluginFailed
from harness.registry import Registry
from harness.world.control.pool import PortLease


def as_plugin(monkeypatch: pytest.MonkeyPatch, registry: Registry[Any], kind: Any) -> None:
    """Let a kind be one that another distribution brings."""
    plugin = Plugin(
        group=registry.group,
        name="mine",
        distribution="brings-mine",
        version="1.0",
        sha256="0" * 64,
    )
    monkeypatch.setitem(registry.plugins, "mine", plugin)
    monkeypatch.setitem(registry._brought, "mine", kind)


class OfSome(AgreeCheck):
    """Says something about whoever it likes."""

    kind: Literal["mine"]  # type: ignore[assignment]
    given: Any

    def judge(self, history: History) -> Finding:
        del history
        return Finding(check=self.id, kind=self.kind, ranks=self.given)


@pytest.mark.parametrize(
    "given",
    [
        (),
        (RankFinding(0, passed=True),),
        (RankFinding(1, passed=True), RankFinding(0, passed=True)),
        (RankFinding(0, passed=True), RankFinding(1, passed=True, observed={1})),
    ],
)
def test_a_finding_is_about_every_rank_asked(
    monkeypatch: pytest.MonkeyPatch, given: tuple[RankFinding, ...]
) -> None:
    """A plug-in's check that leaves a rank out, or observes what is not JSON, decides nothing."""
    as_plugin(monkeypatch, KINDS, OfSome)
    options = {"id": "some", "kind": "mine", "ranks": "every", "value": "a.b", "given": None}
    check = OfSome.model_validate(options).model_copy(update={"given": given})
    with pytest.raises(PluginFailed, match="the plug-in mine"):
        judge_trial([check], History([], size=2))


class Raises(ExitFault):
    """Raises wherever it is asked."""

    kind: Literal["mine"]  # type: ignore[assignment]

    def prepare(self, launch: Any, *, ranks: Any) -> Any:
        raise KeyError(launch, ranks)

    def proof(self, history: History, *, rank: int) -> Any:
        del history, rank

    def description(self) -> str:
        raise SystemExit(0)

    @staticmethod
    def refusal() -> str:
        raise KeyError


def test_a_fault_that_raises_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a plug-in's fault raises, or proves nothing by a proof that is none, the plug-in is
    named.
    """
    as_plugin(monkeypatch, faults.KINDS, Raises)
    fault = Raises.model_validate(
        {"id": "it", "kind": "mine", "ranks": "every", "at": "a", "code": 3}
    )
    calls: list[Callable[[], object]] = [
        lambda: Strikes([fault], size=1).prepare(None),  # type: ignore[type-var]
        lambda: faults.prove([fault], History([], size=1)),
        lambda: faults.description(fault),
        lambda: faults.refusal([fault]),
    ]
    for call in calls:
        with pytest.raises(PluginFailed, match="the plug-in mine"):
            call()


class SaysSo(ExitFault):
    """Is always proved, by nothing."""

    kind: Literal["mine"]  # type: ignore[assignment]

    def proof(self, history: History, *, rank: int) -> Any:
        del history, rank
        return faults.Proof(proved=True, description="it was", lines=())


def test_a_proof_names_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plug-in's fault that calls itself proved without an event that shows it is not believed."""
    as_plugin(monkeypatch, faults.KINDS, SaysSo)
    fault = SaysSo.model_validate(
        {"id": "it", "kind": "mine", "ranks": "every", "at": "a", "code": 3}
    )
    with pytest.raises(
        PluginFailed, match="does not name an event that shows that the fault took effect"
    ):
        faults.prove([fault], History([], size=1))


class Short(Backend):
    """Prepares nothing, and refuses without a reason."""

    def prepare(self, *, size: int, ports: object) -> Rendezvous:
        del size, ports
        return Rendezvous(ranks=[])

    def refusal(self, *, size: int) -> Any:
        return f"not for {size}"


def test_a_backend_that_prepares_for_others_decides_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plug-in's rendezvous is for as many ranks as there are, and its refusal is one."""
    as_plugin(monkeypatch, backends.KINDS, Short())
    with (
        PortLease() as ports,
        pytest.raises(PluginFailed, match="is for 0 ranks, but the world has 2"),
    ):
        backends.prepare("mine", size=2, ports=ports)
    with pytest.raises(
        PluginFailed, match="refusal\\(\\) must return a Skip or None, not not for 2"
    ):
        backends.refusal("mine", size=2)
