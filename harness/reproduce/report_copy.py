"""A report to be run again: copied where nobody else writes, verified there, worked out from its
evidence; and its commit laid out from a repository.

A commit is laid out in a folder of our own: no checkout, no hook, no filter, no worktree. The
folder is a repository itself, which borrows the objects of the other: revisions are found in it as
in the clone that a run was made in, and nothing is written into the user's `.git`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.forms import manifest
from harness.forms.digest import sha256
from harness.forms.git import git
from harness.forms.text import visible
from harness.reason import RefusalWord
from harness.record.assemble import assemble
from harness.record.facts import PATCH_FOLDER, SCENARIO_PATH, SOURCE_FOLDER
from harness.record.facts import PATH as RUN_PATH
from harness.record.model import Record, RecordError
from harness.record.reproduced import ReproducedRun
from harness.report.appendix import evidence_among
from harness.reproduce.archive import ArchiveError, is_bundle, unpack
from harness.reproduce.bundle import BESIDE
from harness.run.arms.code import (
    LINK,
    SUBMODULE,
    GitRepository,
    RevisionError,
    apply_patch,
    paths_of_patch,
)
from harness.run.arms.provenance import (
    CodeOrigin,
    Living,
    Recorded,
    Tree,
    installed_from,
    patched,
    revision,
    standing,
)
from harness.run.replay import RecordReplay
from harness.scenario import Scenario, parse_scenario
from harness.stats.profile import profile
from harness.trust.folder import (
    LARGEST_FILE,
    LARGEST_MANIFEST,
    LARGEST_REPORT,
    Folder,
    UnreadableFile,
    verify_folder,
)
from harness.trust.signers import SignerPolicy
from harness.trust.statement import REPORT
from harness.trust.verification import Verification


class NotTrusted(Exception):
    """Report that was refused, or a file that is neither report nor bundle.

    Nothing of it may run.

    Attributes:
        verification: the steps, where it came so far.
    """

    def __init__(self, message: str, verification: Verification | None = None) -> None:
        super().__init__(message)
        self.verification = verification


@dataclass(frozen=True, kw_only=True)
class ReportCopy:
    """Report with everything it rests on, in a folder of our own.

    Attributes:
        folder: the copy.
        inputs: the bundle's folder of inputs, or None for a report.
        digest: sha256 of the report.
        signed: who signed it, or that it was trusted without that.
        record: worked out from the evidence once more, whatever `results.json` says.
    """

    folder: Path
    inputs: Path | None
    digest: str
    signed: str
    verification: Verification
    record: Record
    scenario: Scenario
    text: bytes
    names: Sequence[str]

    def read(self, name: str) -> bytes:
        """File of the report, by its path."""
        return (self.folder / name).read_bytes()

    def arm_files(self, arm: str) -> dict[str, bytes]:
        """Code of an arm as it ran, by path."""
        beginning = f"{SOURCE_FOLDER}/{arm}/"
        return {
            name[len(beginning) :]: self.read(name)
            for name in self.names
            if name.startswith(beginning)
        }

    def reproduced(self) -> ReproducedRun:
        """Return what a reproduction keeps of it."""
        run = self.record.run
        record = self.record
        return ReproducedRun(
            report=self.digest,
            signed=self.signed,
            id=run.id,
            made=run.made,
            rankproof=run.rankproof,
            scenario=record.scenario.sha256,
            overrides=run.overrides,
            verdict=record.judgement.verdict,
            start=run.start,
            jobs=run.jobs,
            environment=run.environment,
            environments=run.environments,
            arms={name: arm.files for name, arm in record.arms.items()},
            inputs={given.name: given.digest for given in run.inputs},
            cells=profile(self.scenario, record.judgement.cells, read=self.read),
        )


def open_report(given: Path, *, policy: SignerPolicy, trust: bool, scratch: Path) -> ReportCopy:
    """Open a report, the folder it lies in, or a bundle.

    Args:
        given: its path.
        policy: whose signature is accepted.
        trust: go on with a report that is refused, as long as it can be read.
        scratch: a folder of our own, for the copy.

    Raises:
        NotTrusted: it is refused, or cannot be read.
        FileNotFoundError: there is nothing.
    """
    if not given.exists():
        raise FileNotFoundError(given)
    inputs = None
    if given.is_file() and is_bundle(given):
        bundle = unpacked(given, scratch)
        folder = bundle / "run"
        inputs = bundle / "inputs"
    else:
        report = given / REPORT if given.is_dir() else given
        folder = _copied(report, scratch / "run", policy=policy)
    if not (folder / RUN_PATH).is_file():
        # A conformance, say: a good signature would not make a run of it.
        raise NotTrusted(
            f"it is not the report of a scenario run (it has no {RUN_PATH}); only reports of scenario"
            " runs can be reproduced"
        )
    checked = verify_folder(folder / REPORT, policy=policy, replay=RecordReplay())
    if not checked.ok and not trust:
        raise NotTrusted(f"{checked.word}: {checked.message}", checked)
    return _read_copy(folder, inputs, checked)


def unpacked(bundle: Path, scratch: Path) -> Path:
    """Unpack a bundle into a folder of our own.

    Returns where its folders `run`, `inputs` and `lock` lie.

    Raises:
        NotTrusted: it is not, byte for byte, a bundle.
        OSError: there is not enough space for it.
    """
    target = scratch / "bundle"
    try:
        with bundle.open("rb") as file:
            index = unpack(file, target)
    except ArchiveError as error:
        raise NotTrusted(f"the bundle is not safe to unpack: {visible(str(error), 500)}") from None
    if index.report != _digest(target / "run" / REPORT):
        raise NotTrusted(
            "the bundle is not safe to unpack, because its report does not match its index"
        )
    return target


def _digest(report: Path) -> str:
    try:
        # A bundle of some kilobytes may unpack to gigabytes of zeros.
        if report.stat().st_size > LARGEST_REPORT:
            return ""
        return sha256(report.read_bytes())
    except OSError:
        return ""


def _copied(report: Path, copy: Path, *, policy: SignerPolicy) -> Path:
    """Copy what the manifest lists: nobody can change it between the check and the use."""
    try:
        with Folder(report.parent) as folder:
            listing = folder.read(manifest.NAME, LARGEST_MANIFEST)
            files = {REPORT: folder.read(report.name, LARGEST_REPORT), manifest.NAME: listing}
            copy.mkdir()
            for name, data in files.items():
                (copy / name).write_bytes(data)
            for name in BESIDE:
                # The verifier says what is wrong with one that is there.
                with contextlib.suppress(UnreadableFile):
                    (copy / name).write_bytes(folder.read(name, LARGEST_FILE))
            for name in manifest.parse(listing):
                target = copy / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(folder.read(name, LARGEST_FILE))
    except (OSError, UnreadableFile, manifest.ManifestMalformed) as problem:
        # The verifier has the words for what is wrong there.
        checked = verify_folder(report, policy=policy)
        what = (
            f"{checked.word}: {checked.message}"
            if checked.word not in ("OK", RefusalWord.NOT_JUDGED)
            else str(problem)
        )
        raise NotTrusted(what, checked) from None
    return copy


def _read_copy(folder: Path, inputs: Path | None, verification: Verification) -> ReportCopy:
    try:
        names = manifest.parse((folder / manifest.NAME).read_bytes())
        evidence = evidence_among(names)

        def read(name: str) -> bytes:
            return (folder / name).read_bytes()

        record = assemble(read, evidence)
        text = read(SCENARIO_PATH)
        report = read(REPORT)
    except (OSError, RecordError, manifest.ManifestMalformed) as error:
        raise NotTrusted(
            f"it cannot be read, even as an untrusted report: {visible(str(error), 500)}",
            verification,
        ) from None
    except Exception as error:
        if verification.ok:
            raise
        # Evidence that nobody answers for may be of any form; what was verified was judged once
        # already.
        what = f"{type(error).__name__}: {error}"
        raise NotTrusted(
            f"its evidence does not have the format that a run writes ({visible(what, 300)})",
            verification,
        ) from None
    signer = (
        verification.signer
        if verification.signer == verification.fingerprint
        else f"{verification.signer} ({verification.fingerprint})"
    )
    signed = (
        f"verified: signed by {signer}"
        if verification.ok
        else (
            f"NOT verified ({verification.word}), but trusted by the person who made this"
            " reproduction"
        )
    )
    return ReportCopy(
        folder=folder,
        inputs=inputs,
        digest=sha256(report),
        signed=signed,
        verification=verification,
        record=record,
        scenario=parse_scenario(text, name=SCENARIO_PATH, overrides=record.run.overrides),
        text=text,
        names=evidence,
    )


LARGEST = 2048 * 2**20


def lay_out(repository: Path, commit: str, target: Path, *, changes: bytes | None) -> Path:
    """Lay out a commit, by its full id, with the changes its tree had, in a folder that is not
    there yet.

    Returns:
        The top of the laid-out tree.

    Raises:
        RevisionError: the commit is not there, its tree is larger than 2 GiB, or the patch does not
            apply.
    """
    source = GitRepository(repository, given=str(repository))
    source.commit(commit)
    entries = {
        path: entry
        for path, entry in source.entries(commit).items()
        if entry.mode not in (LINK, SUBMODULE)
    }
    if sum(entry.size for entry in entries.values()) > LARGEST:
        raise RevisionError(
            f"the tree of commit {commit[:12]} is larger than {LARGEST // 2**30} GiB"
        )
    _borrow(repository, commit, target)
    source.lay_out(entries, target)  # the comparison finds what is not there
    if changes is not None:
        _change(target, changes, commit=commit)
    return target


def _borrow(repository: Path, commit: str, target: Path) -> None:
    objects = _ask_git(repository, "rev-parse", "--git-path", "objects")
    kind = _ask_git(repository, "rev-parse", "--show-object-format")
    # No template: it may hold hooks.
    done = git("init", "--quiet", "--template=", f"--object-format={kind}", str(target))
    if done.returncode:
        raise RevisionError(
            f"cannot create a repository in {target}:"
            f" {done.stderr.decode(errors='replace').strip()}"
        )
    git_folder = target / ".git"
    (git_folder / "objects" / "info").mkdir(parents=True, exist_ok=True)
    (git_folder / "objects" / "info" / "alternates").write_text(
        f"{(repository / objects).resolve()}\n"
    )
    (git_folder / "HEAD").write_text(f"{commit}\n")
    done = git("read-tree", commit, folder=target)
    if done.returncode:
        raise RevisionError(
            f"commit {commit[:12]} cannot be read: {done.stderr.decode(errors='replace').strip()}"
        )


def _ask_git(repository: Path, *words: str) -> str:
    done = git(*words, folder=repository)
    if done.returncode:
        raise RevisionError(f"git {words[0]} failed in {repository}")
    return os.fsdecode(done.stdout.removesuffix(b"\n"))


def _change(target: Path, changes: bytes, *, commit: str) -> None:
    named = paths_of_patch(changes, name="the patch of the run")
    before = {path: (target / path).read_bytes() for path in named if (target / path).is_file()}
    after = apply_patch(before, changes, name="the patch of the run", to=f"commit {commit[:12]}")
    for path in before.keys() - after.keys():
        (target / path).unlink()
    for path, data in after.items():
        place = target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


# -- where the code comes from, as far as it is not staged: a report, or a repository --------------


def recorded(copy: ReportCopy) -> dict[str, CodeOrigin]:
    """Return what the report says of each arm."""
    said = copy.record.run.provenance
    return {name: Recorded(said[name]) for name in copy.record.arms}


def standing_at(copy: ReportCopy, folder: Path) -> dict[str, CodeOrigin]:
    """Checkout that a folder lies in, as it stands, or its revisions for the arms that are
    one.
    """
    return _living(copy, folder, standing(folder))


def committed(
    copy: ReportCopy, repository: Path, commit: str, *, changes: bytes | None
) -> dict[str, CodeOrigin]:
    """Commit of a repository, with the changes its tree had, or its revisions for the arms that
    are one.

    Raises:
        RevisionError: the commit is not there, or the changes do not apply to it.
    """
    tree = revision(GitRepository(repository, given=repository.name), commit)
    return _living(copy, repository, tree if changes is None else patched(tree, changes, to=commit))


def with_candidate(
    kept: Mapping[str, CodeOrigin], tree: Tree, folder: Path
) -> dict[str, CodeOrigin]:
    """Return the same, with the candidate from elsewhere."""
    return {**kept, "candidate": Living(tree, installed_from(folder))}


def _living(copy: ReportCopy, folder: Path, tree: Tree) -> dict[str, CodeOrigin]:
    """Of an arm whose revision is not here, what the report says."""
    origins = recorded(copy)
    installed = installed_from(folder)
    for name, arm in copy.record.arms.items():
        if arm.revision is None:
            origins[name] = Living(tree, installed)
            continue
        try:
            code = revision(GitRepository(folder, given=folder.name), arm.revision.commit)
            if arm.revision.patch is not None:
                code = patched(
                    code, copy.read(f"{PATCH_FOLDER}/{name}.patch"), to=arm.revision.commit
                )
            origins[name] = Living(code, installed)
        except RevisionError:
            continue
    return origins
