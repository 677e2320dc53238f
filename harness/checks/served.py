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

    A process that a fault provably ended does not count, nor does the health of a service that a
    fault provably struck.
    """

    properties: ClassVar = replace(NO_VALUE, wrong=FailsAt.WORLD_END, missing=FailsAt.WORLD_END)
    example: ClassVar = "{id: engine-serves, kind: served, service: engine}"

    kind: Literal["served"]
    service: Name = Field(description="Name of the service.")

    def judge(self, history: History) -> Finding:
        """Judge by what the harness noted of the service."""
        last = about_service(history, SERVICE_LAST, self.service)
        if (found := trouble(history, self.service)) is not None:
            reason, seen = found
            return self._failed(reason, seen)
        if not last:
            return self._failed(f"whether {self.service} was serving was not recorded", None)
        served = history.services.get(self.service)
        is_struck = served is not None and any(fault.proved for fault in served.faults)
        if last[0].event.values.get("healthy") is not True and not is_struck:
            return self._failed(f"{self.service} is running but not healthy", last[0])
        return Finding(check=self.id, kind=self.kind, line=last[0].line)

    def _failed(self, reason: str, seen: Seen | None) -> Finding:
        line = seen.line if seen is not None else None
        return Finding(check=self.id, kind=self.kind, reason=reason, line=line)

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


def trouble(history: History, service: str) -> tuple[str, Seen] | None:
    """Say why a service was not there for all of a trial, and what shows it; None where it was.

    A process that a fault provably ended has nothing to answer for.
    """
    for seen in about_service(history, SERVICE_UNREADY, service):
        return f"{service} was not ready: {seen.event.values.get('why')}", seen
    served = history.services.get(service)
    faults = served.faults if served is not None else ()
    by_fault = {fault.rank for fault in faults if fault.ends}
    ready = about_service(history, SERVICE_READY, service)
    for seen in about_service(history, SERVICE_ENDED, service):
        process = seen.event.values.get("process")
        if process in by_fault or not ready:
            continue
        how = ended(seen.event.values)
        at = seen.event.values.get("ns")
        after = (at - ready[0].event.ns) / 1e9 if isinstance(at, int) else 0.0
        reason = (
            f"{service} reported that it was ready, and its process {process} ended"
            f" {max(after, 0.0):.1f} s later with {how}"
        )
        return reason, seen
    return None
