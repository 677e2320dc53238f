"""Script of a finding, run in the environment of each arm by a world of its own."""

from __future__ import annotations

import sys
from pathlib import Path

from harness.forms.regular_file import read_regular
from harness.record.defect import SCRIPT_FOLDER, environments_with_script
from harness.run.plan import RunPlan
from harness.run.progress import Progress
from harness.world.control.launch import Launch, StartLaunch, SubjectLaunch, WatchLaunch
from harness.world.control.pool import ServerPool
from harness.world.control.world import World
from harness.world.hosts import loopback

SIZE_LIMIT = 1 << 16
LEAST_DEADLINE = 180.0
"""Seconds: a script imports its library in fresh processes, which a warm world does not."""


class ScriptMissing(Exception):
    """A finding without its script; the message says which file is missing."""


def keep_script(plan: RunPlan) -> None:
    """Write the script of a finding as evidence, before the first trial.

    Raises:
        ScriptMissing: there is no such file.
    """
    finding = plan.scenario.finding
    if finding is None or not plan.runnable:
        return
    try:
        text = read_regular(plan.loaded.folder / finding.script, limit=SIZE_LIMIT)
    except (OSError, ValueError) as error:
        raise ScriptMissing(f"finding.script: {finding.script} cannot be read: {error}") from None
    plan.folder.write(f"{SCRIPT_FOLDER}/{finding.script}", text)


def run_script(plan: RunPlan, pool: ServerPool, *, cancel: int, progress: Progress) -> None:
    """Run the script of a finding, and keep its exit code and output as evidence.

    Raises:
        Cancelled: the run was interrupted.
    """
    finding = plan.scenario.finding
    if finding is None or not plan.runnable:
        return
    results = plan.folder
    environments = plan.preparation.environments
    digests = {arm: environment.facts.digest for arm, environment in environments.items()}
    for arm in environments_with_script(digests):
        progress.says(f"running {finding.script} in the {arm}'s environment")
        environment = environments.get(arm)
        launch = Launch(
            about={"scenario": plan.scenario.id, "arm": arm, "script": finding.script},
            size=1,
            backend="none",
            subject=SubjectLaunch(
                entry="",
                folder=results.path / SCRIPT_FOLDER,
                arguments={},
                inputs={},
                seeds=[0],
                program=tuple(loopback.alone(["python", finding.script])),
                # It is no rank: it finds no variables of a launcher.
                is_service=True,
            ),
            start=StartLaunch(
                warm=False,
                python=environment.python if environment is not None else Path(sys.executable),
            ),
            watch=WatchLaunch(deadline=max(plan.scenario.world.deadline, LEAST_DEADLINE)),
        )
        capture = World(launch, pool, cancel=cancel).run()
        lines = "".join(event.line() + "\n" for event in capture.events)
        results.write(f"{SCRIPT_FOLDER}/{arm}/events.jsonl", lines.encode("ascii"))
        for rank, log in capture.logs.items():
            results.write(f"{SCRIPT_FOLDER}/{arm}/rank-{rank}.log", log)
