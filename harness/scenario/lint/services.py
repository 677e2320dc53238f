"""Rules about services: what is started can be found, what differs exists, and faults on their
processes can be proved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from harness.checks.served import ServedCheck
from harness.forms.problem import Path, Problem, closest
from harness.scenario.lint.draft import ScenarioDraft
from harness.scenario.service import PORT, Service

TAKEN = ("events", "rank", "reference")
"""Names of files that a trial has already."""
PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_-]*)\}")


def services_can_be_started(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that a service listens where it is told to, and on this machine."""
    variables: dict[str, str] = {}
    for name, service in draft.services.items():
        place: Path = ("services", name)
        other = variables.setdefault(name.replace("-", "_"), name)
        if name in TAKEN or other != name:
            message = (
                f"cannot be the name of a service, because service {other} has the same"
                " environment variable"
            )
            if name in TAKEN:
                message = (
                    "cannot be the name of a service, because trials have files with that name"
                )
            yield draft.problem(place, f"{message}; rename it", at_key=True)
        yield from _placeholders(draft, place, service)
        if not any(PORT in word for word in service.program):
            message = (
                "does not state on which port to listen; put {port} where the command line has the"
                " port"
            )
            yield draft.problem((*place, "program"), message, at_key=True)
        if draft.world is not None and draft.world.hosts > 1:
            message = (
                "runs on this machine, but ranks on test hosts cannot reach it; remove world.hosts"
            )
            yield draft.problem(place, message, at_key=True)
        if service.hosts > service.processes and not draft.has("matrix", "processes"):
            message = (
                f"has more hosts than processes, so a host would have no process; {name} has"
                f" {service.processes}"
            )
            yield draft.problem((*place, "hosts"), message)
        if service.processes > 1 and service.backend == "none":
            message = (
                "has several processes that cannot find each other; set backend, or let the"
                " program start the processes"
            )
            yield draft.problem((*place, "processes"), message, kind="note")
    for arm, of_arm in draft.arms().items():
        for name in draft.names(*of_arm, "services"):
            if name not in draft.services:
                message = f"is not a service of this scenario, but {arm} changes it"
                suggestion = closest(name, list(draft.services))
                yield draft.problem(
                    (*of_arm, "services", name), message, at_key=True, suggestion=suggestion
                )
    if draft.has("matrix", "processes") and not draft.services:
        message = (
            "sets the number of a service's processes, but the scenario has no service; add"
            " services"
        )
        yield draft.problem(("matrix", "processes"), message, at_key=True)


def _placeholders(draft: ScenarioDraft, place: Path, service: Service) -> Iterator[Problem]:
    """Note a word in braces that nothing stands for: it reaches the server as it is."""
    known = {"port", "processes", *draft.axes()}
    for of_arm in draft.arms().values():
        known |= {*draft.names(*of_arm, "with")}
    for word in service.program:
        for found in PLACEHOLDER.findall(word):
            if found not in known:
                message = (
                    f"has {{{found}}}, which is neither an argument nor an axis; it is passed"
                    " unchanged"
                )
                suggestion = closest(found, sorted(known))
                yield draft.problem(
                    (*place, "program"), message, at_key=True, suggestion=suggestion, kind="note"
                )


def services_are_asked_about(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand a check that each service served, unless a fault ends it."""
    asked = {check.service for check in draft.checks.values() if isinstance(check, ServedCheck)}
    struck = {fault.service for fault in draft.faults.values() if fault.properties.ends_rank}
    for name in draft.services:
        if name not in asked | struck:
            message = (
                "may fail unnoticed, because no check tests whether it served; add {id: served,"
                f" kind: served, service: {name}}}"
            )
            yield draft.problem(("services", name), message, at_key=True)


def faults_of_services(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that a fault on a service can strike its processes, and be proved by their events."""
    for index, fault in draft.faults.items():
        if fault.service is None:
            continue
        place = ("faults", index, "service")
        service = draft.services.get(fault.service)
        if service is None:
            suggestion = closest(fault.service, list(draft.services))
            message = "is not a service of this scenario"
            yield draft.problem(place, message, suggestion=suggestion)
            continue
        if service.keep == "cell":
            message = "is kept for later trials, which the fault would also affect; set keep: trial"
            yield draft.problem(place, message)
        if fault.properties.inside or fault.properties.needs_a_hub or fault.event is None:
            message = (
                "cannot have a fault of this kind, which needs Rankproof's runtime inside the"
                " process; use a kind that acts at an event, such as kill, pause or starve"
            )
            yield draft.problem(place, message)
        which = fault.ranks.which
        processes = draft.axes().get("processes", [service.processes])
        fewest = min((size for size in processes if isinstance(size, int)), default=1)
        beyond = [rank for rank in which if rank >= fewest] if not isinstance(which, str) else []
        if which == "nonzero" and fewest == 1:
            beyond = [1]
        if beyond:
            message = f"names process {beyond[0]}, but {fault.service} has only {fewest} in a cell"
            yield draft.problem(("faults", index, "ranks"), message)


SERVICE_RULES = (services_can_be_started, services_are_asked_about, faults_of_services)
