"""The gate's decision: a policy applied to the reports of one commit. Pure: no file, no process, no clock.

For each required scenario the newest report in a role that counts decides, and every rule is held against it. A rule
answers with one word:

    MET            it holds
    REFUSED        it does not
    MISSING        what it asks for is not there
    CANNOT TELL    the run was INCONCLUSIVE or a cell was skipped
    NOT VERIFIED   a report of this commit was refused by verification

The gate is OPEN where every rule is met. What is not in the list of passed scenarios is missing: an empty list of
failures proves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.forms.text import visible
from harness.trust.asked import Answer, Asked, Refusal, Report, Requirement, counted, some
from harness.trust.policy import Required
from harness.trust.rules import RULES, Found, holds

# Rules whose reasons are those of the report's cells.
TOLD_BY_CELLS = ("verdict", "cells")


def decide(
    asked: Asked, reports: Sequence[Report], refusals: Sequence[Refusal], *, elsewhere: Sequence[str] = ()
) -> list[Requirement]:
    """Hold every rule of the policy against the reports.

    Args:
        asked: the policy and what it is applied to.
        reports: those of the commit that were verified.
        refusals: those that claim to be of the commit and were not.
        elsewhere: other commits that reports in the folder say they are of, for messages.
    """
    found = [_verified(reports, refusals)]
    for required in asked.policy.require:
        mine = sorted((one for one in reports if one.record.scenario.id == required.scenario), key=lambda one: one.age)
        found += _of_scenario(asked, required, mine, elsewhere)
    return found


def answer(requirements: Sequence[Requirement]) -> Answer:
    """What all words come to. A report that was refused weighs most: something is wrong beyond this commit."""
    words = {found.word for found in requirements}
    if "NOT VERIFIED" in words:
        return "NOT VERIFIED"
    if words & {"REFUSED", "MISSING"}:
        return "CLOSED"
    # Never open by having nothing to say.
    return "OPEN" if words == {"MET"} else "CANNOT TELL"


def _verified(reports: Sequence[Report], refusals: Sequence[Refusal]) -> Requirement:
    if not refusals:
        what = (
            f"{counted(len(reports), 'report')} of this commit, all verified" if reports else "no report of this commit"
        )
        return Requirement(scenario=None, name="verified", word="MET", reason=what)
    told = [f"{one.place}: {one.word}: {one.message}" for one in refusals]
    words = sorted({one.word for one in refusals})
    return Requirement(scenario=None, name="verified", word="NOT VERIFIED", reason=some(told), codes=words)


def _of_scenario(
    asked: Asked, required: Required, mine: Sequence[Report], elsewhere: Sequence[str]
) -> list[Requirement]:
    def row(name: str, found: Found) -> Requirement:
        cells = deciding.record.judgement.cells if mine and name in TOLD_BY_CELLS and found[0] != "MET" else ()
        codes = sorted({str(reason.code) for cell in cells for reason in cell.reasons})
        return Requirement(scenario=required.scenario, name=name, word=found[0], reason=visible(found[1]), codes=codes)

    if not mine:
        others = f"; the folder holds reports of {some([commit[:12] for commit in elsewhere])}" if elsewhere else ""
        reason = f"no verified report of it for commit {asked.commit[:12]}{others}"
        return [row("report", ("MISSING", reason))]
    counting = [one for one in mine if set(one.roles) & set(asked.policy.signatures.roles)]
    deciding = (counting or mine)[-1]
    found = [row("report", ("MET", f"{deciding.place}, made {deciding.record.run.made}"))]
    found += [row("signer", _signer(asked, deciding)), row("failures", _failures(asked, mine, deciding))]
    found += [row(name, rule(asked, required, deciding)) for name, rule in RULES.items()]
    found.append(row("scenario", _scenario(asked, required, deciding, mine)))
    found.append(row("keys", _keys(asked, required, deciding, counting)))
    return found


def _signer(asked: Asked, report: Report) -> Found:
    who = f"{report.signer} ({report.key})"
    wanted = asked.policy.signatures.roles
    if not report.roles:
        return "REFUSED", f"{who} has no role in the policy of {asked.trusted}; {' or '.join(wanted)} is asked"
    if not set(report.roles) & set(wanted):
        return "REFUSED", f"{who} signs as {', '.join(report.roles)}; {' or '.join(wanted)} is asked"
    return "MET", f"{who}, {', '.join(report.roles)}"


def _failures(asked: Asked, mine: Sequence[Report], deciding: Report) -> Found:
    """Never retry until green: a FAIL of this commit stays one, whoever ran it how often afterwards."""
    # What ran with changes was not this commit.
    failed = [one for one in mine if one.record.judgement.verdict == "FAIL" and one.record.run.source.dirty is not True]
    if not failed:
        return "MET", f"none of {counted(len(mine), 'report')} of this commit says FAIL"
    later = [one for one in failed if one.age > deciding.age]
    if asked.policy.failures == "newest" and not later:
        return "MET", f"{len(failed)} of {counted(len(mine), 'report')} say FAIL; by the policy the newest counts"
    return "REFUSED", f"a trusted report of this commit says FAIL: {some([one.place for one in later or failed])}"


def _scenario(asked: Asked, required: Required, deciding: Report, mine: Sequence[Report]) -> Found:
    """A scenario that is not the trusted one asks another question, unless somebody who may release signed for it."""
    if not deciding.differs:
        return "MET", f"the one of {asked.trusted}"
    how = f"not the one of {asked.trusted}: {some(deciding.differs)}"
    for one in mine:
        same = one is deciding or (_question(one) == _question(deciding) and holds(asked, required, one))
        if "release" in one.roles and same:
            return "MET", f"{how}; {one.signer} signed for it as release"
    return "REFUSED", f"{how}. A key with the role release may sign for a changed scenario"


def _question(report: Report) -> tuple[object, ...]:
    """What makes two runs ask the same: the scenario file, what was set over it, and the code of both arms."""
    record = report.record
    code = tuple((name, tuple(sorted(arm.files.items())), arm.arguments) for name, arm in sorted(record.arms.items()))
    inputs = tuple((given.name, given.digest) for given in record.run.inputs)
    return record.scenario.sha256, tuple(record.run.overrides), code, inputs


def _keys(asked: Asked, required: Required, deciding: Report, counting: Sequence[Report]) -> Found:
    """Different keys whose newest report passes. The deciding one is judged by its own rows."""
    wanted = asked.policy.signatures.keys
    newest = {one.key: one for one in counting}
    also = {key for key, one in newest.items() if key != deciding.key and _vouches(asked, required, one, deciding)}
    keys = sorted(also | ({deciding.key} if deciding in counting else set()))
    if wanted > 1 and len(keys) < wanted:
        return (
            "REFUSED",
            f"signed by {counted(len(keys), 'key')} that counts, {wanted} different ones are asked: {some(keys)}",
        )
    return "MET", f"{counted(len(keys), 'key')}, {wanted} asked"


def _vouches(asked: Asked, required: Required, report: Report, deciding: Report) -> bool:
    same = not report.differs or _question(report) == _question(deciding)
    return same and holds(asked, required, report)
