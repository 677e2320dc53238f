"""`served`: a service of the scenario was ready, and served to the end of the trial."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Literal, Self

from pydantic import Field

from harness.checks.check import NO_VALUE, Check, FailsAt
from harness.checks.finding import Finding
from harness.forms.model import Name
from harness.forms.problem import Draft, Problem, closest
from harness.history import (
    SERVICE_ENDED,
    SERVICE_LAST,
    SERVICE_READY,
    SERVICE_UNREADY,
    History,
    Seen,
    about_service,
    ended,
)


class ServedCheck(Check):
    """The service was ready, none of its processes ended before the trial, and it was healthy.

    A process that a fault provably ended has nothing to answer for, and nor has the health of its
    service.
    """

    properties: ClassVar = replace(NO_VALUE, wrong=FailsAt.WORLD_END, missing=FailsAt.WORLD_END)
    example: ClassVar = "{id: engine-serves, kind: served, service: engine}"

    kind: Literal["served"]
    service: Name = Field(description="Name of the service.")

    def judge(self, history: History) -> Finding:
        """Judge by what the harness noted of the service."""
        unready = about_service(history, SERVICE_UNREADY, self.service)
        ready = about_service(history, SERVICE_READY, self.service)
        last = about_service(history, SERVICE_LAST, self.service)
        if unready:
            why = unready[0].event.values.get("why")
            return self._failed(f"{self.service} was not ready: {why}", unready[0])
        if not ready or not last:
            return self._failed(f"whether {self.service} served was not noted", None)
        by_fault = self._ended_by_fault(history)
        for seen in about_service(history, SERVICE_ENDED, self.service):
            process = seen.event.values.get("process")
            if process not in by_fault:
                how = ended(seen.event.values)
                after = (seen.event.ns - ready[0].event.ns) / 1e9
                reason = (
                    f"{self.service} said that it was ready, and its process {process} ended"
                    f" {after:.1f} s later with {how}"
                )
                return self._failed(reason, seen)
        if last[0].event.values.get("healthy") is not True and not by_fault:
            return self._failed(f"{self.service} runs, and is not healthy", last[0])
        return Finding(check=self.id, kind=self.kind, line=last[0].line)

    def _failed(self, reason: str, seen: Seen | None) -> Finding:
        line = seen.line if seen is not None else None
        return Finding(check=self.id, kind=self.kind, reason=reason, line=line)

    def _ended_by_fault(self, history: History) -> set[int]:
        """Processes that a fault provably ended."""
        served = history.services.get(self.service)
        faults = served.faults if served is not None else ()
        return {fault.rank for fault in faults if fault.ends}

    @classmethod
    def lint(cls, checks: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Demand that the service exists."""
        services = draft.at("services")
        names = list(services) if isinstance(services, dict) else []
        for index, check in checks.items():
            if check.service not in names:
                yield draft.problem(
                    ("checks", index, "service"),
                    "is not a service of this scenario",
                    suggestion=closest(check.service, names),
                )
