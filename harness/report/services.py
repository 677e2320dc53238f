"""The section on the services of a run: what was started, how often, and how it ended."""

from __future__ import annotations

from collections.abc import Iterator

from harness.forms.text import plural
from harness.record.model import PATH as RECORD_PATH
from harness.record.model import Record
from harness.report.blocks import (
    Block,
    Claim,
    Evidence,
    Foreign,
    Heading,
    Note,
    Part,
    Table,
)
from harness.stats.services import ServiceSummary

RECORD = Evidence(RECORD_PATH)
PROGRAM_SHOWN = 300
SHARED = {"trial": "one for each trial", "cell": "shared by the cell's trials"}


def services_section(record: Record) -> list[Block]:
    """Return what is known of the services, cell by cell; nothing without one."""
    rows = list(_rows(record))
    if not rows:
        return []
    return [
        Heading(2, "Services"),
        Table(
            (
                "service",
                "arm",
                "cell",
                "program",
                "processes",
                "starts",
                "ready after",
                "peak memory",
            ),
            tuple(rows),
        ),
        Note(
            "A service's start, exit and memory use are reported by the process that forked it."
            " Memory is measured for the service's largest process and excludes child processes. The"
            " code that a service loaded is not recorded."
        ),
    ]


def _rows(record: Record) -> Iterator[tuple[Part, ...]]:
    for cell in record.judgement.cells:
        for service in cell.services:
            ready = "never" if service.seconds is None else f"{service.seconds:.1f} s"
            memory = service.max_rss_kib
            evidence = Evidence(service.events) if service.events else RECORD
            yield (
                Claim(Foreign(service.name), (evidence,)),
                record.scenario.arm(service.arm),
                Foreign(cell.id),
                Foreign(service.command_line, PROGRAM_SHOWN),
                str(service.processes),
                f"{service.starts}, {SHARED[service.keep]}",
                ready,
                "-" if memory is None else f"{memory / 1024:.0f} MiB",
            )


def services_that_stand_out(record: Record) -> Iterator[Part]:
    """Yield what the services of the candidate did beside serving, a sentence each."""
    for cell in record.judgement.cells:
        for service in cell.services:
            if service.arm == "candidate":
                for sentence in _odd(service):
                    yield Claim(Foreign(f"{sentence} ({cell.id})"), (RECORD,))


def _odd(service: ServiceSummary) -> Iterator[str]:
    name = service.name
    if service.unready:
        yield f"{name} was not ready at {plural(service.unready, 'start')}"
    for way, count in service.ends.items():
        yield f"{name} exited on its own in {plural(count, 'trial')}, with {way}"
    if service.ended:
        yield f"{name} exited on its own in {plural(service.ended, 'start')}"
    if service.left:
        processes = "1 process" if service.left == 1 else f"{service.left} processes"
        yield f"{name} left {processes} running after it ended"
    if service.unhealthy:
        yield f"{name} was running but not healthy at the end of {plural(service.unhealthy, 'trial')}"
