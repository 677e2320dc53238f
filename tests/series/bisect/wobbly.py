"""A simple index in a folder, with a package `wobbly` that breaks in 1.4 and is mended in 1.7."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.kit import wheels
from tests.kit.commands import Ran, rankproof, scenario

__all__ = ["rankproof", "scenario"]

YANKED = "1.5"
NO_WHEEL = "1.2"
NOT_INSTALLED = "1.6"
BROKEN = ("1.4", "1.5", "1.6")
SUBJECT = """
import wobbly


def ask(context):
    context.emit("asked", answer=wobbly.answer(context))
    assert wobbly.answer(context) == 42
    context.emit("answered")
"""
SCENARIO = """
schema: 1
id: wobbly
title: Wobbly answers 42 on every rank
question: Does every rank get the answer 42?
role: upstream
subject:
  entry: subject:ask
  of: installed
  candidate: {environment: {packages: {wobbly: "1.9"}}}
matrix: {ranks: [2], backend: [none]}
world: {deadline: 30s}
seed: "7"
trials: {candidate: 5, accept: {failure_rate_below: 50%}}
checks:
  - {id: answered, kind: event, ranks: every, event: answered}
"""
WITH_CONTROL = (
    SCENARIO.replace("role: upstream\n", "")
    .replace(
        '{environment: {packages: {wobbly: "1.9"}}}\n',
        """{environment: {packages: {wobbly: "1.9"}}}
  control:
    environment: {packages: {wobbly: "1.4"}}
    must_fail: {check: answered, ranks: every, error: AssertionError, source: assert wobbly.answer(context) == 42}
""",
    )
    .replace("{candidate: 5, ", "{candidate: 5, control: 5, ")
)

Offer = Callable[..., dict[str, str]]
RIGHT = "def answer(context):\n    return 42\n"
WRONG = "def answer(context):\n    return 41\n"


def index(folder: Path, versions: Mapping[str, str], requires: Mapping[str, str]) -> None:
    """Write a simple index of wobbly, `versions` to the text of its module, and of its companion
    `steady` 1.0 and 2.0.
    """
    files = folder / "files"
    names: dict[str, list[str]] = {"wobbly": [], "steady": []}
    for version in ("1.0", "2.0"):
        names["steady"].append(_link(wheels.write(files, "steady", version, "")))
    for version, text in versions.items():
        needs = [requires.get(version, "steady")]
        tags = "cp39-cp39-win32" if version == NO_WHEEL else "py3-none-any"
        # A file where pip has to lay a folder.
        more = {"wobbly-data": b"", "wobbly-data/x": b""} if version == NOT_INSTALLED else None
        wheel = wheels.write(files, "wobbly", version, text, requires=needs, tags=tags, more=more)
        names["wobbly"].append(_link(wheel, yanked=version == YANKED))
    for name, links in names.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "index.html").write_text("\n".join(["<!DOCTYPE html>", *links]))


def _link(wheel: Path, *, yanked: bool = False) -> str:
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    also = ' data-yanked="it wobbles"' if yanked else ""
    return f'<a href="../files/{wheel.name}#sha256={digest}"{also}>{wheel.name}</a>'


@pytest.fixture
def offer(tmp_path: Path) -> Offer:
    """Write an index of wobbly 1.0 to 1.9, or of what is given; returns the variables under which
    pip finds it and nothing else.
    """

    def write(
        versions: Mapping[str, str] | None = None, *, requires: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        usual = {f"1.{minor}": WRONG if f"1.{minor}" in BROKEN else RIGHT for minor in range(9)}
        usual["1.8rc1"] = RIGHT
        # The scenario's own version is there in any case.
        index(tmp_path / "index", {**(versions or usual), "1.9": RIGHT}, requires or {})
        return {
            "PIP_INDEX_URL": (tmp_path / "index").as_uri(),
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_NO_CACHE_DIR": "1",
            "RANKPROOF_ENVIRONMENTS": str(tmp_path / "environments"),
        }

    return write


Bisect = Callable[..., Ran]


@pytest.fixture
def bisect(rankproof: Callable[..., Ran], scenario: Callable[..., Path], tmp_path: Path) -> Bisect:
    """Bisect wobbly in a scenario."""

    def run(
        first: str,
        last: str,
        *more: str,
        env: Mapping[str, str],
        text: str = SCENARIO,
        subject: str = SUBJECT,
    ) -> Ran:
        folder = scenario({"scenario.yaml": text, "subject.py": subject})
        given = ("--package", "Wobbly", "--between", first, last, "--results")
        results = str(tmp_path / "results")
        return rankproof("lab", "bisect", str(folder), *given, results, *more, env=env)

    return run
