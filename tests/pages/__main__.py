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
                page = out / "runs.html"
                over = over_runs(runs["fail"], place=Path(text) / "over", page=page)
                found += problems(browser, page, first=over, out=out)
        except BrowserError as error:
            print(error, file=sys.stderr)
            return 1
    for problem in found:
        print(problem, file=sys.stderr)
    print(
        f"{len(runs) + 1} pages, {len(list(out.glob('*.png')))} pictures in {os.path.relpath(out)},"
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


def over_runs(run: Path, *, place: Path, page: Path) -> list[Expected]:
    """Write the page over copies of a run, of which one was edited; and what it must say first."""
    for name in ("a", "b", "edited"):
        shutil.copytree(run, place / "fail" / name)
    with (place / "fail" / "edited" / "results.json").open("a") as file:
        file.write("x")
    key = parse(must_split(run).signature).fingerprint
    command = [sys.executable, "-m", "harness.cli", "view", str(place), "--signer", key]
    done = subprocess.run([*command, "--out", str(page)], cwd=PROJECT, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}")
    record = Record.decode((run / "results.json").read_bytes())
    return [
        Expected(answers="how many runs have which verdict", text="3 runs: 2 FAIL, 1 NOT VERIFIED"),
        Expected(answers="what was asked", text=record.scenario.question),
        Expected(answers="why it is not verified", text="EVIDENCE EDITED"),
    ]


def must_split(run: Path) -> Footer:
    """Take a signed report apart."""
    report = split((run / "report.md").read_bytes())
    assert isinstance(report, Footer)
    return report


def first_screen(run: Path) -> list[Expected]:
    """What a report must say before anybody scrolls, by its record, its scenario and its
    signature.
    """
    record = Record.decode((run / "results.json").read_bytes())
    text = (run / SCENARIO_PATH).read_bytes()
    control = parse_scenario(
        text, name=SCENARIO_PATH, overrides=record.run.overrides
    ).subject.control
    report = must_split(run)
    tally = next(cell.control for cell in record.judgement.cells if cell.control is not None)
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
