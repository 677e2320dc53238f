"""The rules that are held against the report that decides for a scenario, each a small pure
function.

A rule answers with a word and a reason. `harness.gate.decision` says what the words mean and
adds the rules that look at more than one report.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Literal

from harness.forms.digest import fold
from harness.forms.text import plural
from harness.gate.basis import GateBasis
from harness.gate.policy import Required
from harness.gate.reports import Report, some
from harness.stats.verdict import CellVerdict

# Clocks of two machines differ a little; a report from the day after tomorrow is something else.
AHEAD = timedelta(minutes=10)

Word = Literal["MET", "REFUSED", "MISSING", "CANNOT TELL", "NOT VERIFIED"]
Ruling = tuple[Word, str]
Rule = Callable[[GateBasis, Required, Report], Ruling]


def _commit(basis: GateBasis, required: Required, report: Report) -> Ruling:
    candidate = report.record.arms["candidate"].revision
    if candidate is None:
        return "MET", f"according to the report, it ran in a checkout of {basis.commit[:12]}"
    where = (
        f"revision {candidate.rev} = {candidate.commit[:12]} of"
        f" {candidate.repo or 'the same repository'}"
    )
    if candidate.repo is not None and required.candidate == "elsewhere":
        return (
            "MET",
            (
                f"according to the report, it ran in a checkout of {basis.commit[:12]}; as the"
                f" policy allows, the candidate is {where}"
            ),
        )
    if candidate.repo is not None or candidate.commit != basis.commit:
        return "REFUSED", f"the candidate ran {where}, not commit {basis.commit[:12]}"
    return (
        "MET",
        (
            f"according to the report, it ran in a checkout of {basis.commit[:12]}, which is the"
            " candidate's revision"
        ),
    )


def _tree(basis: GateBasis, _required: Required, report: Report) -> Ruling:
    source = report.record.run.source
    if basis.policy.tree == "any":
        return "MET", "not required"
    if source.dirty is None:
        return (
            "REFUSED",
            (
                "it is unknown whether the working tree had uncommitted changes:"
                f" {source.why_unknown or 'git did not report it'}"
            ),
        )
    if source.dirty:
        return (
            "REFUSED",
            (
                "the working tree had uncommitted changes, so the code that ran is not the released"
                " code"
            ),
        )
    if report.foreign:
        return (
            "REFUSED",
            (
                "files of the arms differ from the commit's (git ignores or converts them):"
                f" {some(report.foreign)}"
            ),
        )
    return (
        "MET",
        (
            "according to the report, the tree was clean; every file that an arm took from it is the"
            " commit's"
        ),
    )


def _code_that_ran(basis: GateBasis, required: Required, report: Report) -> Ruling:
    scenario = report.record.scenario
    candidate = report.record.arms["candidate"].revision
    if scenario.of is not None:
        return (
            "REFUSED",
            f"the subject is the {scenario.of} code (subject.of), not the code of the commit",
        )
    children = {
        name
        for cell in _required_cells(basis, required, report)
        if cell.ran
        for name in cell.ran.children
    }
    served = sorted(
        {
            service.name
            for cell in _required_cells(basis, required, report)
            for service in cell.services
        }
    )
    unknown = "programs"
    if not scenario.program and served:
        unknown = f"services ({some(served)})"
    elif not scenario.program:
        unknown = f"processes that ranks started ({some(sorted(children))})"
    is_unknown = bool(scenario.program or served or children)
    if is_unknown and basis.policy.programs != "allowed":
        return (
            "CANNOT TELL",
            (
                f"the code that {unknown} loaded is unknown; to accept this, set programs: allowed in"
                " the policy"
            ),
        )
    if report.strangers and basis.policy.tree != "any":
        return (
            "REFUSED",
            f"this does not prove that the commit's code ran: {some(report.strangers)}",
        )
    if is_unknown:
        return "MET", f"accepted by the policy, although the code that {unknown} loaded is unknown"
    if basis.policy.tree == "any":
        return "MET", "not required"
    whose = (
        "the commit's code"
        if candidate is None or candidate.repo is None
        else f"code of {candidate.repo}"
    )
    if candidate is not None and candidate.patch is not None:
        whose += " with the scenario's patch"
    if scenario.use is not None:
        whose = f"the ready-made subject {scenario.use}"
    ran = f"the candidate ran {whose}{_built(report)}, according to the files that ranks report"
    return "MET", f"{ran}; other packages are compared with their own RECORD"


def _built(report: Report) -> str:
    """Return what of the commit's packages is in no file of the commit, in words."""
    if not report.built:
        return ""
    digest = fold(dict(report.built))[:12]
    return (
        f", and {plural(len(report.built), 'file')} that the build of its packages wrote (sha256"
        f" {digest})"
    )


def _verdict(basis: GateBasis, required: Required, report: Report) -> Ruling:
    if no_claim := basis.scenarios[required.scenario].no_claim:
        return "REFUSED", no_claim
    if report.record.scenario.role == "upstream" or report.record.scenario.expects not in (
        None,
        "PASS",
    ):
        return (
            "REFUSED",
            (
                f"a scenario with the role {report.record.scenario.role} that must not pass is not a"
                " claim"
            ),
        )
    verdict = report.record.judgement.verdict
    if verdict == "PASS":
        return "MET", "PASS"
    reasons = [f"{reason}" for reason in report.record.judgement.reasons]
    word: Word = "REFUSED" if verdict == "FAIL" else "CANNOT TELL"
    return word, f"{verdict}: {some(reasons)}" if reasons else verdict


def _required_cells(basis: GateBasis, required: Required, report: Report) -> list[CellVerdict]:
    wanted = set(basis.cells(required, report.record))
    return [cell for cell in report.record.judgement.cells if cell.id in wanted]


def _cells(basis: GateBasis, required: Required, report: Report) -> Ruling:
    wanted = basis.cells(required, report.record)
    judged = {cell.id: cell for cell in report.record.judgement.cells}
    if missing := [cell for cell in wanted if cell not in judged]:
        return "MISSING", f"the report lacks the cells {some(missing)}"
    if skipped := [
        f"{cell}: {some([str(reason) for reason in judged[cell].reasons])}"
        for cell in wanted
        if judged[cell].verdict == "SKIPPED"
    ]:
        return "CANNOT TELL", f"SKIPPED: {some(skipped)}"
    # Whether they passed is what the rule `verdict` says.
    return "MET", f"{plural(len(wanted), 'required cell')}, none missing and none skipped"


def _control(basis: GateBasis, required: Required, report: Report) -> Ruling:
    ran = [cell for cell in _required_cells(basis, required, report) if cell.verdict != "SKIPPED"]
    bare = [cell.id for cell in ran if cell.control is None or not cell.control.as_stated]
    if "control" not in report.record.arms or bare:
        return (
            "REFUSED",
            f"no control failed as required: {some(bare or ['the scenario has none'])}",
        )
    if ran and not any(cell.control is not None and cell.control.failed for cell in ran):
        return (
            "REFUSED",
            (
                "the scenario expects the control to pass in every required cell:"
                f" {some([cell.id for cell in ran])}"
            ),
        )
    holds = sum(cell.control is not None and not cell.control.failed for cell in ran)
    return "MET", "a control failed as required in every required cell that ran" + (
        f", or passed ({holds})" if holds else ""
    )


def _trials(basis: GateBasis, required: Required, report: Report) -> Ruling:
    least = basis.policy.least(required)
    few: list[str] = []
    for cell in _required_cells(basis, required, report):
        if cell.verdict == "SKIPPED":
            continue
        for name, tally, count in (
            ("candidate", cell.candidate, least.candidate),
            ("control", cell.control, least.control),
        ):
            counted = tally.counted if tally else 0
            if counted < count:
                few.append(
                    f"{cell.id}: {counted} {name} trials were counted, but {count} are required"
                )
    if few:
        return "REFUSED", some(few)
    counts = f"at least {least.candidate} of the candidate and {least.control} of the control"
    return "MET", f"{counts} in every required cell that ran"


def _age(basis: GateBasis, _required: Required, report: Report) -> Ruling:
    claimed = report.made
    if claimed is None:
        return "REFUSED", f"it has no valid time: {report.record.run.made!r}"
    if claimed > basis.now + AHEAD:
        return (
            "REFUSED",
            f"according to the report, it was made {_span((claimed - basis.now).total_seconds())} from now",
        )
    age = max(basis.now - claimed, timedelta())
    most = basis.policy.max_age
    if most is not None and age.total_seconds() > most:
        return (
            "REFUSED",
            (
                f"it was made {_span(age.total_seconds())} ago, but the policy allows at most"
                f" {_span(most)}"
            ),
        )
    limit = "" if most is None else f", at most {_span(most)} is allowed"
    return "MET", f"according to the report, it was made {_span(age.total_seconds())} ago{limit}"


def _challenge(basis: GateBasis, _required: Required, report: Report) -> Ruling:
    bears = report.record.run.challenge
    if basis.challenge is None and basis.policy.challenge == "required":
        return (
            "MISSING",
            "the policy requires a challenge; pass --challenge TEXT to the gate and to the run",
        )
    if basis.challenge is None:
        return "MET", "not required"
    if bears != basis.challenge:
        what = "no challenge" if bears is None else f"the challenge {bears!r}"
        return (
            "REFUSED",
            (
                f"the report has {what}, but {basis.challenge!r} is required; it was made for a"
                " different request"
            ),
        )
    return "MET", f"the signed report contains {basis.challenge!r}"


def _plugins(basis: GateBasis, _required: Required, report: Report) -> Ruling:
    used = report.record.run.plugins
    there = report.record.run.imported
    strange = [
        str(plugin)
        for plugin in used
        if not any(allowed.allows(plugin) for allowed in basis.policy.plugins)
    ]
    if strange:
        return (
            "REFUSED",
            (
                f"the policy does not list the plug-in {some(strange)}, which defines kinds that"
                " the run used"
            ),
        )
    strange = [
        str(plugin)
        for plugin in there
        if not any(allowed.allows(plugin) for allowed in basis.policy.plugins)
    ]
    if strange:
        return (
            "REFUSED",
            (
                f"the run had imported {some(strange)}, which the policy does not list among its"
                " plug-ins"
            ),
        )
    counts = (
        f"{plural(len(used), 'plug-in')} used, {plural(len(there), 'distribution')} with plug-ins"
        " imported"
    )
    return (
        "MET",
        (
            f"{counts}, accepted by the policy"
            if used or there
            else "the record lists no plug-in that was used or imported"
        ),
    )


def _jobs(basis: GateBasis, _required: Required, report: Report) -> Ruling:
    most = basis.policy.max_jobs
    jobs = report.record.run.jobs
    if most is not None and jobs > most:
        return "REFUSED", f"{jobs} worlds ran at the same time, but at most {most} are allowed"
    return "MET", "not required" if most is None else f"{plural(jobs, 'world')} at a time"


def _nix(basis: GateBasis, _required: Required, report: Report) -> Ruling:
    here = report.record.run.environment.nix
    if not basis.policy.environment.nix:
        return "MET", "not required"
    if here is None:
        return "REFUSED", "the run did not take place in the Nix environment"
    if here.stale:
        return (
            "REFUSED",
            (
                f"the Nix shell was entered before {here.stale[0]} changed, so the run did not use"
                " the current pins"
            ),
        )
    if here.as_locked is False:
        return "REFUSED", "the nixpkgs that was used differs from flake.lock"
    return "MET", here.environment


def _start_files(basis: GateBasis, _required: Required, report: Report) -> Ruling:
    wanted = basis.policy.environment.start_files
    run = report.record.run
    if wanted is None:
        return "MET", "not required"
    there = [
        *run.environment.start_files,
        *(file for environment in run.environments.values() for file in environment.start_files),
    ]
    strange = [
        f"{file.name} (sha256 {file.sha256[:12]})"
        for file in there
        if not any(ok.allows(file) for ok in wanted)
    ]
    if strange:
        return (
            "REFUSED",
            f"Python may read {some(strange)} at its start, which the policy does not list",
        )
    if run.machines is not None or run.farm is not None:
        return (
            "CANNOT TELL",
            "the record does not show the files that Python reads at its start on other machines",
        )
    return "MET", (
        f"{plural(len(there), 'file')} that Python may read at its start, accepted by the policy"
    )


def _lock(basis: GateBasis, _required: Required, report: Report) -> Ruling:
    wanted = basis.policy.environment.locks
    here = report.record.run.environment
    if not wanted:
        return "MET", "not required"
    if here.lock_sha256 is None:
        return "REFUSED", "the run's environment was not created from a lock file"
    if here.lock_sha256 not in basis.locks:
        return (
            "REFUSED",
            (
                f"lock {here.lock}, sha256 {here.lock_sha256[:12]}, differs from {some(wanted)} of"
                f" {basis.ref}"
            ),
        )
    return "MET", f"{here.lock}, sha256 {here.lock_sha256[:12]}"


def _span(seconds: float) -> str:
    """Time in plain words: the largest unit, and where there are few of it, the next one."""
    units = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
    for (size, unit), (smaller, lesser) in pairwise(units):
        count, left = divmod(int(seconds), size)
        if count:
            rest = left // smaller if count < 10 else 0
            return plural(count, unit) + (f" {plural(rest, lesser)}" if rest else "")
    return plural(int(seconds), "second")


RULES: dict[str, Rule] = {
    "commit": _commit,
    "tree": _tree,
    "code": _code_that_ran,
    "verdict": _verdict,
    "cells": _cells,
    "control": _control,
    "trials": _trials,
    "age": _age,
    "challenge": _challenge,
    "plugins": _plugins,
    "jobs": _jobs,
    "nix": _nix,
    "lock": _lock,
    "start_files": _start_files,
}


def holds(basis: GateBasis, required: Required, report: Report) -> bool:
    """Tell whether every rule is met."""
    return all(rule(basis, required, report)[0] == "MET" for rule in RULES.values())
