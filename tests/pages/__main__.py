"""`nox -s pages`: the report pages of the sample, of a FAIL and of a hang control, looked at and
kept as pictures.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.record.facts import SCENARIO_PATH
from harness.record.model import Record
from harness.scenario import parse_scenario
from harness.trust.footer import Footer, split
from harness.trust.sshsig import parse
from tests.kit.commands import SCENARIO, SUBJECT
from tests.kit.sample import PROJECT, SAMPLE
from tests.kit.sample import SCENARIO as SAMPLED
from tests.pages.browser import Browser, BrowserError
from tests.pages.looks import Expected, problems

FEW = ("--set", "trials.candidate=6", "--set", "trials.accept.failure_rate_below=50%")
HANG = (
    "scenarios/skipped-send", *FEW, "--set", "trials.control=2", "--set", "matrix.ranks=[2]",
    "--set", "matrix.backend=[gloo]",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Render and check; 0, or 1 with everything that is wrong."""
    parser = argparse.ArgumentParser(prog="nox -s pages --")
    parser.add_argument(
        "--out", type=Path, default=PROJECT / "build" / "pages", help="folder for the pictures"
    )
    out: Path = parser.parse_args(arguments).out
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="rankproof-pages-") as text:
        runs = made(Path(text).resolve())
        try:
            with Browser() as browser:
                found = []
                for name, run in runs.items():
                    page = out / f"{name}.html"
                    shutil.copyfile(run / "report.html", page)
                    found += problems(browser, page, first=first_screen(run), out=out)
        except BrowserError as error:
            print(error, file=sys.stderr)
            return 1
    for problem in found:
        print(problem, file=sys.stderr)
    print(
        f"{len(runs)} pages, {len(list(out.glob('*.png')))} pictures in {os.path.relpath(out)},"
        f" {len(found)} problems"
    )
    return 1 if found else 0


def made(place: Path) -> dict[str, Path]:
    """The folders of the runs whose pages are looked at: the sample, and two that are made for
    it.
    """
    failing = place / "failing"
    failing.mkdir()
    # The candidate has the bug too: on other ranks, so that the arms differ.
    broken = SCENARIO.replace("{with: {broken: false}}", "{with: {broken: [0]}}").replace(
        "broken: true", "broken: [1]"
    )
    (failing / "scenario.yaml").write_text(broken)
    (failing / "subject.py").write_text(
        SUBJECT.replace("if broken and context.rank", "if context.rank in broken")
    )
    return {
        "sample": SAMPLE / SAMPLED,
        "fail": run(str(failing), place=place / "fail", code=1),
        "hang": run(*HANG, place=place / "hang", code=0),
    }


def run(*arguments: str, place: Path, code: int) -> Path:
    """Run a scenario that ends with this exit code, signed with a key of its own.

    Returns the run's folder.
    """
    place.mkdir()
    key = place / "key"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)], check=True
    )
    command = [sys.executable, "-m", "harness.cli", "run", *arguments, "--key", str(key)]
    done = subprocess.run(
        [*command, "--results", str(place / "results")],
        cwd=PROJECT,
        env={**os.environ, "HOME": str(place)},
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode != code:
        raise SystemExit(f"{' '.join(arguments)} ended with {done.returncode}, and not with {code}")
    return (place / "results" / "latest").resolve()


def first_screen(run: Path) -> list[Expected]:
    """What a report must say before anybody scrolls, by its record, its scenario and its
    signature.
    """
    record = Record.decode((run / "results.json").read_bytes())
    text = (run / SCENARIO_PATH).read_bytes()
    control = parse_scenario(
        text, name=SCENARIO_PATH, overrides=record.run.overrides
    ).subject.control
    report = split((run / "report.md").read_bytes())
    tally = next(cell.control for cell in record.judgement.cells if cell.control is not None)
    assert isinstance(report, Footer)
    assert control is not None
    stated = control.must_fail
    hang = stated.hang
    where = (
        (hang.source or hang.function or hang.after)
        if hang is not None
        else (stated.source or stated.message)
    )
    return [
        Expected(answers="the verdict", text=record.judgement.verdict),
        Expected(answers="what was asked", text=record.scenario.question),
        Expected(
            answers="where the control failed",
            text=(where or stated.signal or str(stated.code))[:40],
        ),
        Expected(
            answers="how the control failed",
            text="hang" if hang is not None else stated.error or "ended",
        ),
        Expected(
            answers="how often the control failed", text=f"{tally.as_stated} of {tally.counted}"
        ),
        Expected(answers="who signed", text=parse(report.signature).fingerprint[:15]),
    ]


if __name__ == "__main__":
    sys.exit(main())
