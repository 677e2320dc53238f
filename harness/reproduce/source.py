"""Where the code of a reproduction comes from, and whether it is the code of the report.

SourceError
└── SourceDiffers
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.forms.digest import sha256
from harness.forms.document import parse_document
from harness.forms.source import read_source, real_place
from harness.record import repository as described
from harness.record.assemble import PATCH_PATH
from harness.record.facts import PATCH_FOLDER, RepositoryFacts, RevisionFacts
from harness.record.results import ResultsFolder
from harness.reproduce.report_copy import (
    ReportCopy,
    committed,
    lay_out,
    recorded,
    standing_at,
    with_candidate,
)
from harness.run.arms import staging
from harness.run.arms.code import GitRepository, RevisionError
from harness.run.arms.provenance import CodeOrigin, revision, standing
from harness.run.inputs import leaves
from harness.scenario import Scenario, ScenarioError, parse_scenario

EVIDENCE = "the code in the report's evidence"
SHOWN = 10
COMMIT = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")


class SourceError(Exception):
    """Source that cannot be had; the message says what, where and what to do."""


class SourceDiffers(SourceError):
    """The source is not that of the report.

    Attributes:
        files: what differs, one line each.
    """

    def __init__(self, where: str, files: Sequence[str]) -> None:
        super().__init__(where)
        self.files = files


@dataclass(frozen=True)
class ArmFiles:
    """Code of an arm, and the revision it was laid out from."""

    files: Mapping[str, bytes]
    revision: RevisionFacts | None = None
    patch: bytes | None = None


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """What is going to run.

    Attributes:
        arms: the code of each arm.
        source: the repository it comes from, as the record names it.
        patch: the changes since that commit.
        where: it was taken from, in words.
        candidate: where the candidate was taken from instead, in words; empty where it is the
            report's.
        overrides: what the scenario needs set for that.
        folder: the scenario's folder there, or None: where its inputs are looked for.
        origins: where the code of each arm comes from, as far as it is not staged.
    """

    arms: Mapping[str, ArmFiles]
    source: RepositoryFacts
    patch: bytes | None
    where: str
    candidate: str = ""
    overrides: tuple[str, ...] = ()
    folder: Path | None = None
    origins: Mapping[str, CodeOrigin]


def from_evidence(copy: ReportCopy) -> Rebuilt:
    """Code that ran, as the evidence holds it."""
    source = RepositoryFacts(
        commit=None,
        tree=None,
        dirty=None,
        untracked=None,
        origin=None,
        scenario=None,
        why_unknown="the code was taken from the evidence of the report that was reproduced",
    )
    return Rebuilt(
        arms=_kept(copy),
        source=source,
        patch=None,
        where=EVIDENCE,
        origins=recorded(copy),
    )


def from_checkout(copy: ReportCopy, here: Path, *, results: Path | None = None) -> Rebuilt | None:
    """Checkout that `here` lies in, as it stands; None where it does not hold the scenario.

    What runs left in `results` is not a change of it.

    Raises:
        SourceDiffers: its scenario or its code is not the report's.
    """
    scenario_here = _scenario_in(copy, here)
    if scenario_here is None:
        return None
    folder, where = scenario_here
    differences = _scenario_differences(copy, folder)
    try:
        scenario = _pinned(copy, repo=folder)
        differences += _code_differences(copy, scenario, folder)
    except (RevisionError, staging.ArmError, ScenarioError) as error:
        if _lacks_commits(copy, folder):
            return None
        differences.append(str(error))
    if differences:
        raise SourceDiffers(f"{where}{_untracked(copy.record.run.source)}", differences)
    source = described.describe(folder, results=results, file=_file_name(copy, folder))
    return Rebuilt(
        arms=_kept(copy),
        source=source,
        patch=described.patch(folder) if source.dirty else None,
        where=f"{where}, which is the same as the report's source",
        folder=folder,
        origins=standing_at(copy, folder),
    )


def from_commit(copy: ReportCopy, repository: Path, scratch: Path) -> Rebuilt:
    """Lay out the report's own commit from a repository in a fresh folder, with the changes its
    tree had.

    Raises:
        SourceError: the report names no commit, or the repository does not have it.
        SourceDiffers: what is laid out is not what ran.
    """
    source = copy.record.run.source
    if source.commit is None:
        raise SourceError(
            f"the report records no commit ({source.why_unknown}); omit --repo to reproduce it"
            " with the code in its evidence"
        )
    changes = copy.read(PATCH_PATH) if PATCH_PATH in copy.names else None
    try:
        top = lay_out(repository, source.commit, scratch / "rebuilt", changes=changes)
    except RevisionError as error:
        raise SourceError(
            f"{error}. Omit --repo to reproduce the report with the code in its evidence"
        ) from None
    folder = top / (source.scenario or "")
    where = f"commit {source.commit[:12]} of the given repository" + (
        " and the run's patch" if changes else ""
    )
    if not folder.is_dir():
        raise SourceDiffers(
            where,
            [f"the scenario's folder {source.scenario} does not exist in it{_untracked(source)}"],
        )
    differences = _scenario_differences(copy, folder)
    try:
        # An arm of another repository is looked for in the one that was given, wherever the
        # scenario lay.
        tried = [
            _code_differences(copy, _pinned(copy, repo=repo), folder) for repo in (top, repository)
        ]
        nearest: list[str] = min(tried, key=len)
        differences += nearest
    except (RevisionError, staging.ArmError, ScenarioError) as error:
        differences.append(f"{error}{_untracked(source)}")
    if differences:
        raise SourceDiffers(where, differences)
    return Rebuilt(
        arms=_kept(copy),
        source=source,
        patch=changes,
        where=where,
        folder=folder,
        origins=committed(copy, repository, source.commit, changes=changes),
    )


def from_elsewhere(copy: ReportCopy, folder: Path, *, results: Path | None = None) -> Rebuilt:
    """Candidate from a folder as it stands; the control stays the report's.

    Raises:
        SourceError: the folder is not there, or the scenario's subject is not in it.
    """
    _demand_own_code(copy)
    if not folder.is_dir():
        raise SourceError(f"--source {folder} is not a folder")
    place = folder / (copy.record.run.source.scenario or "")
    place = place if place.is_dir() else folder
    if copy.scenario.subject.candidate.is_laid_out:
        raise SourceError(
            "the scenario's candidate is a revision of a repository; choose another revision with"
            " --candidate REV"
        )
    try:
        code = _staged(_alone(copy.scenario), place)["candidate"]
    except (RevisionError, staging.ArmError) as error:
        raise SourceError(f"--source {folder}: {error}") from None
    source = described.describe(place, results=results, file=_file_name(copy, place))
    state = {
        True: ", with uncommitted changes",
        False: "",
        None: ", possibly with uncommitted changes",
    }[source.dirty]
    taken_from = "a folder as it was" + (
        f", at commit {source.commit[:12]}{state}" if source.commit else ""
    )
    return Rebuilt(
        arms={**_kept(copy), "candidate": code},
        source=source,
        patch=described.patch(place) if source.dirty else None,
        where=EVIDENCE,
        candidate=taken_from if code.files != copy.arm_files("candidate") else "",
        folder=place,
        origins=with_candidate(recorded(copy), standing(place), place),
    )


def from_revision(
    copy: ReportCopy, rev: str, repository: Path, *, results: Path | None = None
) -> Rebuilt:
    """Candidate from another revision of a repository; the control stays the report's.

    Raises:
        SourceError: the revision is not there, or the scenario's subject is not in it.
    """
    _demand_own_code(copy)
    try:
        git = GitRepository(repository, given=str(repository))
        commit = git.commit(rev)
        place = (git.root or repository) / (copy.record.run.source.scenario or "")
        place = place if place.is_dir() else repository
        overrides = [f"subject.candidate.rev={commit}"]
        if copy.scenario.subject.candidate.repo is not None or git.root is None:
            overrides.append(f"subject.candidate.repo={real_place(repository)}")
        scenario = _parsed(copy, overrides)
        code = _staged(_alone(scenario), place)["candidate"]
        tree = revision(git, commit)
    except (RevisionError, staging.ArmError, ScenarioError) as error:
        raise SourceError(f"--candidate {rev}: {error}") from None
    same = code.files == copy.arm_files("candidate")
    return Rebuilt(
        arms={**_kept(copy), "candidate": code},
        source=described.describe(repository, results=results),
        patch=None,
        where=EVIDENCE,
        candidate="" if same else f"commit {commit[:12]} of the given repository",
        overrides=tuple(overrides),
        folder=place,
        origins=with_candidate(recorded(copy), tree, place),
    )


def lay(copy: ReportCopy, rebuilt: Rebuilt, results: ResultsFolder) -> dict[str, staging.StagedArm]:
    """Lay the code into a run's folder."""
    staged = {}
    for name, code in rebuilt.arms.items():
        if code.patch is not None:
            results.write(f"{PATCH_FOLDER}/{name}.patch", code.patch)
        place = staging.lay(
            name, code.files, results=results, is_program=copy.scenario.subject.program is not None
        )
        arguments = copy.record.run.arguments[name]
        staged[name] = staging.StagedArm(
            folder=place, arguments=dict(arguments), revision=code.revision
        )
    return staged


def _kept(copy: ReportCopy) -> dict[str, ArmFiles]:
    kept = {}
    for name, arm in copy.record.arms.items():
        file = f"{PATCH_FOLDER}/{name}.patch"
        patch = copy.read(file) if file in copy.names else None
        kept[name] = ArmFiles(copy.arm_files(name), arm.revision, patch)
    return kept


def _scenario_in(copy: ReportCopy, here: Path) -> tuple[Path, str] | None:
    """Find the scenario's folder in the checkout that `here` lies in, if one of its files is that
    scenario.
    """
    source = copy.record.run.source
    _demand_inside(source)
    if source.commit is None:
        return None
    try:
        root = GitRepository(here, given=here.name).root
    except RevisionError:
        return None
    folder = root / (source.scenario or "") if root is not None else None
    if (
        folder is None
        or not folder.is_dir()
        or not real_place(folder).is_relative_to(root or folder)
    ):
        return None
    if any(
        _may_be(file, copy.scenario.id) for file in sorted(folder.glob("*.yaml")) if file.is_file()
    ):
        return folder, "the checkout as it was"
    return None


def _may_be(file: Path, scenario: str) -> bool:
    """Tell whether a file is of this scenario.

    One with a mistake may be, and its digest will say that it differs.
    """
    try:
        tree = parse_document(read_source(file), name=file.name).tree
    except ScenarioError:
        return True
    return isinstance(tree, dict) and tree.get("id") == scenario


def _file_name(copy: ReportCopy, folder: Path) -> str | None:
    """Name of the file in a folder that is the report's scenario; None where none is."""
    wanted = copy.record.scenario.sha256
    files = [file for file in sorted(folder.glob("*.yaml")) if file.is_file()]
    return next((file.name for file in files if sha256(file.read_bytes()) == wanted), None)


def _scenario_differences(copy: ReportCopy, folder: Path) -> list[str]:
    if _file_name(copy, folder) is not None:
        return []
    wanted = copy.record.scenario.sha256
    return [
        (
            f"scenario: no file in {copy.record.run.source.scenario or 'the top folder'} has the"
            f" scenario's sha256 {wanted[:12]}"
        )
    ]


def _code_differences(copy: ReportCopy, scenario: Scenario, folder: Path) -> list[str]:
    """Return what the arms would be here, against what they were, file by file."""
    staged = _staged(scenario, folder)
    differing = []
    for name, arm in copy.record.arms.items():
        here = {path: sha256(data) for path, data in staged[name].files.items()}
        for path in sorted(arm.files.keys() | here.keys()):
            if arm.files.get(path) != here.get(path):
                how = "differs" if path in here else "is missing"
                if path not in arm.files:
                    how = "is not in the report"
                differing.append(f"{name}: {path} {how}")
    return differing


def _staged(scenario: Scenario, folder: Path) -> dict[str, ArmFiles]:
    """Arms as a run from this folder would have them."""
    with staging.previewed(scenario, folder=folder) as staged:
        return {
            name: ArmFiles(
                {
                    path.relative_to(arm.folder).as_posix(): path.read_bytes()
                    for path in sorted(arm.folder.rglob("*"))
                    if path.is_file()
                },
                arm.revision,
                arm.patch,
            )
            for name, arm in staged.items()
        }


def _pinned(copy: ReportCopy, *, repo: Path) -> Scenario:
    """Scenario with every revision written as the commit that it was."""
    pins = []
    for name, arm in copy.scenario.subject.arms.items():
        if (revision := copy.record.run.revisions.get(name)) is None:
            continue
        if not COMMIT.fullmatch(revision.commit):
            raise RevisionError(
                f"{copy.scenario.subject.named(name)}'s commit is not a full commit id, but runs"
                " always record the full id"
            )
        place = ".".join(map(str, copy.scenario.subject.place(name)))
        pins.append(f"{place}.rev={revision.commit}")
        if arm.repo is not None:
            pins.append(f"{place}.repo={real_place(repo)}")
    return _parsed(copy, pins)


def _parsed(copy: ReportCopy, overrides: Sequence[str]) -> Scenario:
    return parse_scenario(
        copy.text, name="the report's scenario", overrides=[*copy.record.run.overrides, *overrides]
    )


def _alone(scenario: Scenario) -> Scenario:
    """Scenario with its candidate only."""
    return scenario.model_copy(
        update={"subject": scenario.subject.model_copy(update={"control": None})}
    )


def _lacks_commits(copy: ReportCopy, folder: Path) -> bool:
    try:
        repository = GitRepository(folder, given=folder.name)
        for revision in copy.record.run.revisions.values():
            if COMMIT.fullmatch(revision.commit):
                repository.commit(revision.commit)
    except RevisionError:
        return True
    return False


def _demand_own_code(copy: ReportCopy) -> None:
    """Ready subject comes with Rankproof, and a comparison names its arms: there is no other
    candidate to be had.
    """
    _demand_inside(copy.record.run.source)
    if copy.scenario.subject.compare is not None:
        raise SourceError(
            "the report compares arms a and b of its own scenario, so it has no candidate to replace;"
            " remove --source or --candidate, or edit the scenario and run it"
        )
    if (use := copy.scenario.subject.use) is not None:
        raise SourceError(
            f"{use} is a ready-made subject, so its candidate's source cannot be changed; remove"
            " --source or --candidate"
        )


def _demand_inside(source: RepositoryFacts) -> None:
    """Demand that what ends up on git's command line, or as a path, is what a run writes there."""
    if source.scenario is not None and leaves(source.scenario):
        raise SourceError(
            "the report states a path of its scenario outside the repository, but runs never record"
            " such a path"
        )
    if source.commit is not None and not COMMIT.fullmatch(source.commit):
        raise SourceError(
            "the report's commit is not a full commit id, but runs always record the full id"
        )


def _untracked(source: RepositoryFacts) -> str:
    if not source.untracked:
        return ""
    return (
        f" (the run's tree had {source.untracked} files that git did not track; the evidence"
        " contains the files that ran)"
    )
