"""Scenario files: found, read within limits, and turned into a scenario or into all of their
problems at once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from harness.forms.digest import sha256
from harness.forms.document import Document
from harness.forms.problem import Path as Place
from harness.forms.problem import Problem, ScenarioError, ordered
from harness.forms.source import read_source, refusal
from harness.forms.validation import parse_mapping, problems_of
from harness.scenario import override
from harness.scenario.lint import lint
from harness.scenario.lint.arms import lacks_revisions
from harness.scenario.lint.draft import ScenarioDraft
from harness.scenario.model import Scenario, json_schema
from harness.subjects import READY

DEFAULT_NAME = "scenario.yaml"
SUFFIX = ".yaml"
DEFAULT_BACKEND = "gloo"


@dataclass(frozen=True, slots=True)
class LoadedScenario:
    """A scenario with the file it came from.

    ``text`` holds the exact bytes of the file and ``sha256`` their digest. ``parse_scenario(text,
    name=…, overrides=overrides)`` gives the same scenario again, anywhere. ``notes`` is advice; it
    never stops anything. ``lacks_revisions`` says that its arms differ only once a run is given
    revisions for them.
    """

    scenario: Scenario
    path: Path
    folder: Path
    text: bytes
    sha256: str
    overrides: tuple[str, ...]
    notes: tuple[Problem, ...] = ()
    lacks_revisions: bool = False

    def problem(self, path: Place, message: str, *, at_key: bool = False, **more: Any) -> Problem:
        """Build a problem that shows only after loading, at its place.

        The text is read again for the marks.
        """
        document = _document(self.text, name=str(self.path), overrides=self.overrides)
        return document.marks.problem(path, message, at_key=at_key, **more)


def load_scenario(path: Path, *, overrides: Sequence[str] = ()) -> LoadedScenario:
    """Read and check a scenario file, or ``scenario.yaml`` in a folder.

    Overrides are ``key.path=value``. A path given for an input is relative to the current folder,
    as everywhere on a command line; it is kept relative to the scenario's folder, as in the file.

    Raises ScenarioError with every problem of the file.
    """
    file = path / DEFAULT_NAME if _is_folder(path) else path
    text = read_source(file)
    kept = tuple(_from_here(given, file.parent) for given in overrides)
    scenario, notes, lacks = _parse(text, name=str(file), overrides=kept)
    return LoadedScenario(scenario, file, file.parent, text, sha256(text), kept, notes, lacks)


def parse_scenario(text: bytes, *, name: str, overrides: Sequence[str] = ()) -> Scenario:
    """Check the bytes of a scenario file; touches no file.

    Raises ScenarioError with every problem.
    """
    return _parse(text, name=name, overrides=overrides)[0]


def scenario_files(path: Path) -> list[Path]:
    """List the scenario files of a file, a folder or a tree of folders, sorted.

    Hidden ones are left out.

    Raises ScenarioError where there is nothing at the path.
    """
    if not _is_folder(path):
        if not os.path.lexists(path):
            raise refusal(str(path), "does not exist; pass a scenario file or a folder")
        return [path]
    paths: list[Path] = []
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths += [
            Path(folder, name)
            for name in files
            if name.endswith(SUFFIX) and not name.startswith(".")
        ]
    return sorted(paths)


def _document(text: bytes, *, name: str, overrides: Sequence[str]) -> Document:
    document = parse_mapping(text, name=name)
    override.apply(document, overrides)
    return document


def _parse(
    text: bytes, *, name: str, overrides: Sequence[str]
) -> tuple[Scenario, tuple[Problem, ...], bool]:
    document = _document(text, name=name, overrides=overrides)
    _imply(document)
    problems = list(document.problems)
    scenario: Scenario | None = None
    try:
        scenario = Scenario.model_validate(document.tree)
    except ValidationError as error:
        problems += problems_of(error, document, schema=json_schema(document.tree))
    draft = (
        ScenarioDraft.of(document) if scenario is None else ScenarioDraft.whole(document, scenario)
    )
    problems += lint(draft)
    notes = ordered(problem for problem in problems if problem.kind == "note")
    wrong = [problem for problem in problems if problem.kind != "note"]
    if wrong or scenario is None:
        raise ScenarioError(wrong)
    return scenario, notes, lacks_revisions(draft)


def _imply(document: Document) -> None:
    """Where the matrix names no backend, it is `none` for a program, and one a ready subject works
    on.
    """
    subject = document.tree.get("subject")
    matrix = document.tree.get("matrix")
    if (
        not isinstance(subject, dict)
        or not isinstance(matrix, dict)
        or matrix.get("backend") is not None
    ):
        return
    use = subject.get("use")
    if subject.get("program") is not None:
        matrix["backend"] = ["none"]
    elif isinstance(use, str) and use in READY and DEFAULT_BACKEND not in READY[use].backends:
        matrix["backend"] = [READY[use].backends[0]]


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name too long, a folder that may not be entered: reading it says so
        return False


def _from_here(given: str, folder: Path) -> str:
    """Rewrite an override that names the path of an input, repository or checkout: here it starts
    where we are.
    """
    key, equals, value = given.partition("=")
    is_repo = override.is_repo(key)
    is_input = key.startswith("inputs.") and key.count(".") == 1 and "[" not in key
    is_checkout = override.is_checkout(key)
    if not equals or not value or "\0" in value or not (is_input or is_repo or is_checkout):
        return given
    if is_repo and (value.startswith(("'", '"')) or ":" in value):
        return given  # an address, which is refused as it stands
    if is_input and (value.lstrip().startswith("{") or "path" not in override.hub_or_path(value)):
        return given
    try:
        here = Path(value).expanduser()
    except RuntimeError:  # a home folder of nobody; the path then is what it says
        here = Path(value)
    absolute = here.is_absolute() and not is_checkout  # a scenario's checkouts lie relative to it
    return f"{key}={here if absolute else os.path.relpath(here, folder)}"


def scenario_text(tree: object, *, width: int = 80) -> str:
    """Write a scenario as ordinary YAML, the same text everywhere."""
    # By way of JSON, because a list that stands at two places would be written as an anchor, which
    # a scenario may not hold.
    plain = json.loads(json.dumps(tree))
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=width)
