"""A verified run compared with what is trusted: did it ask the trusted question, and did it run the
commit's code?
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from harness.forms.digest import sha256
from harness.gate.basis import GateBasis, TrustedScenario
from harness.gate.objects import NoCommit, blob_id
from harness.record import plugins
from harness.record.facts import (
    ENVIRONMENT_FOLDER,
    PATCH_FOLDER,
    REQUIREMENTS,
    SCENARIO_PATH,
    SOURCE_FOLDER,
)
from harness.record.model import ArmSummary, Record
from harness.run.arms.code import RevisionError, below
from harness.run.arms.provenance import Tree, patched
from harness.scenario import parse_scenario
from harness.stats.counterparts import Counterparts, Source, counterpart, spread, top_of
from harness.stats.provenance import judge, path_of
from harness.subjects import READY
from harness.trust.replay import Read


def differs(
    record: Record, known: TrustedScenario, basis: GateBasis, read: Read
) -> tuple[str, ...]:
    """How the scenario that ran differs from the trusted one: its file, its folder, what was set,
    its inputs.
    """
    differences = []
    if record.scenario.sha256 != known.sha256:
        differences.append(f"{known.path} has a different sha256")
    differences += [f"set on the command line: {given}" for given in record.run.overrides]
    if record.run.source.scenario != (known.folder or None):
        differences.append(
            f"it ran from {record.run.source.scenario or 'outside the repository'}, not from"
            f" {known.folder}"
        )
    there = below(basis.commit_files, known.folder)
    changed = sorted(
        path
        for path in there.keys() | known.files.keys()
        if there.get(path) != known.files.get(path)
    )
    differences += [f"{known.folder}/{path} differs from the trusted file" for path in changed]
    differences += _inputs(record, known, basis)
    differences += _hidden(record, known, read)
    differences += _control(record, basis)
    differences += _environments(record, known, basis, read)
    for name, arm in record.arms.items():
        if arm.revision is not None and arm.revision.patch is not None:
            content = read(f"{PATCH_FOLDER}/{name}.patch")
            given = known.scenario.subject.arms.get(name)
            file = (
                known.files.get(given.patch)
                if given is not None and given.patch is not None
                else None
            )
            if file is None or blob_id(content, like=file.blob) != file.blob:
                differences.append(f"the {name}'s patch differs from the trusted patch")
    return tuple(differences)


def _control(record: Record, basis: GateBasis) -> list[str]:
    """Say where the control is from a revision that only a name says: the commit under test could
    choose code that is sure to fail.

    Of a comparison, the a that the commit's code is compared with.
    """
    other = _older(record)
    control = record.arms.get(other)
    revision = control.revision if control is not None else None
    if revision is None or revision.commit in (revision.rev, basis.commit):
        return []
    name = f"{record.scenario.the(other)}'s revision {revision.rev}"
    if revision.repo is not None:
        return [
            (
                f"{name} of {revision.repo} may be any commit; write the full id of the commit in"
                " the scenario"
            )
        ]
    if basis.contains(revision.commit):
        return []
    return [
        (
            f"{name} was {revision.commit[:12]}, which is not in the history of {basis.ref}; use a"
            " full commit id"
        )
    ]


def _environments(
    record: Record, known: TrustedScenario, basis: GateBasis, read: Read
) -> list[str]:
    """Files of requirements that are not the trusted one, and packages from checkouts that only a
    name says.
    """
    differences = []
    for name, environment in sorted(record.run.environments.items()):
        for package, facts in sorted(environment.checkouts.items()):
            if facts.commit not in (facts.rev, basis.commit):
                differences.append(
                    f"the {name}'s {package} from {facts.rev} of {facts.repo} may be any commit;"
                    " write the full id of the commit in the scenario"
                )
        if environment.requirements is None:
            continue
        given = known.scenario.subject.arms.get(name)
        wanted = known.scenario.subject.environment_of(given) if given is not None else None
        file = (
            known.files.get(posixpath.normpath(wanted.requirements))
            if wanted and wanted.requirements
            else None
        )
        content = read(f"{ENVIRONMENT_FOLDER}/{name}/{REQUIREMENTS}")
        if file is None or blob_id(content, like=file.blob) != file.blob:
            differences.append(f"the {name}'s requirements file differs from the trusted file")
    return differences


def _older(record: Record) -> str:
    """Arm that may be older than the commit on purpose."""
    return "reference" if "reference" in record.arms else "control"


def _hidden(record: Record, known: TrustedScenario, read: Read) -> list[str]:
    """Files of the code under test that took the place of the scenario's own subject.

    Where the code under test holds the entry's module, that is run, and not the one beside the
    scenario: a commit that adds one would bring its own test.
    """
    subject = known.scenario.subject
    if posixpath.normpath(subject.path) == ".":
        return []  # the scenario's folder is the code
    module = (subject.entry or "").partition(":")[0].replace(".", "/")
    entries = {
        *(subject.program or ()),
        f"{module}.py",
        f"{module}/__init__.py",
    } & known.files.keys()
    differences = []
    for name, arm in record.arms.items():
        given = subject.arms.get(name)
        replaced = (
            known.files.get(given.file) if given is not None and given.file is not None else None
        )
        for path in sorted(entries):
            expected = {file.blob for file in (known.files[path], replaced) if file is not None}
            ran = read(f"{SOURCE_FOLDER}/{name}/{path}") if path in arm.files else None
            if ran is None or blob_id(ran, like=known.files[path].blob) not in expected:
                differences.append(
                    f"{name}: {path} differs from the scenario's file, because the code under test"
                    " replaced it"
                )
    return differences


def _inputs(record: Record, known: TrustedScenario, basis: GateBasis) -> list[str]:
    """Inputs that are neither pinned by the trusted scenario nor files of the trusted revision."""
    differences = []
    for facts in record.run.inputs:
        given = known.scenario.inputs.get(facts.name)
        if given is None:
            differences.append(f"input {facts.name} is not the trusted scenario's")
        elif given.sha256 is not None:
            if given.sha256 != facts.digest:
                differences.append(
                    f"the digest of input {facts.name} differs from the digest that the trusted"
                    " scenario pins"
                )
        elif given.path is None:
            differences.append(f"input {facts.name} is not pinned; set its sha256 in the scenario")
        else:
            place = posixpath.normpath(posixpath.join(known.folder, given.path))
            files = {path: file.blob for path, file in below(basis.trusted_files, place).items()}
            if place in basis.trusted_files:
                files = {posixpath.basename(place): basis.trusted_files[place].blob}
            digests = basis.trusted_sha256(list(files.values())) if files else {}
            if {path: digests[blob] for path, blob in files.items()} != facts.files:
                differences.append(
                    f"input {facts.name} is not pinned, and differs from the trusted files of"
                    f" {place}"
                )
    return differences


def foreign(
    record: Record, known: TrustedScenario, basis: GateBasis, read: Read
) -> tuple[str, ...]:
    """Files of the arms that are no file of the commit: ignored by git, changed, or converted when
    checked out.

    An arm that was laid out from a revision holds what git stores; whose revision it is, another
    rule asks. A patched file is the revision's and the patch's, which the trusted scenario names.
    """
    files = basis.commit_files
    folder = record.run.source.scenario or ""
    scenario = known.scenario
    if record.scenario.sha256 != known.sha256 or record.run.overrides:
        # Whether it may differ is another rule's question: here it says where the code that ran
        # came from.
        scenario = parse_scenario(
            read(SCENARIO_PATH), name=SCENARIO_PATH, overrides=record.run.overrides
        )
    if scenario.subject.use is not None:
        return _not_ready(record, scenario.subject.use)
    code = posixpath.normpath(posixpath.join(folder, scenario.subject.path))
    places = ["" if code == "." else code, folder]
    places += [arm.revision.folder for arm in record.arms.values() if arm.revision is not None]
    lent = READY[scenario.subject.beside].files() if scenario.subject.beside is not None else {}
    lent_digests = {path: sha256(data) for path, data in lent.items()}
    reasons = []
    for name, arm in record.arms.items():
        # Of this version of Rankproof, whatever an arm was laid out from: it is part of no commit.
        reasons += [
            f"{name}: {path} (not what this version of Rankproof puts next to it)"
            for path, digest in sorted(lent_digests.items())
            if arm.files.get(path) != digest
        ]
        if arm.revision is not None:
            continue
        given = scenario.subject.arms.get(name)
        instead = (
            [posixpath.join(folder, given.file)]
            if given is not None and given.file is not None
            else []
        )
        for path in sorted(arm.files.keys() - lent.keys()):
            possible = [
                posixpath.join(place, path) if place else path for place in places
            ] + instead
            blobs = {files[path_there].blob for path_there in possible if path_there in files}
            if (
                not blobs
                or blob_id(read(f"{SOURCE_FOLDER}/{name}/{path}"), like=basis.commit) not in blobs
            ):
                reasons.append(f"{name}: {path}")
    return tuple(reasons)


def strangers(
    record: Record, basis: GateBasis, read: Read
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Return what ranks loaded beside their arm's folder that is not the commit's, worked out from
    the commit itself.

    And files without a counterpart there that the build of the commit's packages wrote, each with
    its sha256.

    Whatever the record says: what the commit declares, and what its files hold, is read from git's
    objects. A package that the scenario names for the control's own environment is old on purpose;
    the candidate's must be the commit's.
    """
    if record.scenario.program:
        return (), ()  # nobody told what a program loaded, and another rule says so
    brought = frozenset(digest for facts in record.run.inputs for digest in facts.files.values())
    reasons: dict[str, None] = {}
    built_files: dict[str, str] = {}
    for name, arm in record.arms.items():
        if arm.revision is not None and arm.revision.repo is not None:
            continue  # another repository's, which the gate cannot compare
        ran = [cell.ran for cell in record.judgement.cells if cell.ran is not None]
        lists = [
            read(path_of(digest))
            for digest in sorted({digest for each in ran for digest in each.lists.get(name, ())})
        ]
        try:
            tree = _tree(name, arm, basis, read)
        except (NoCommit, RevisionError) as error:
            reasons[f"{name}: cannot compare its revision: {error}"] = None
            continue
        said = record.run.provenance[name]
        environment = record.run.environments.get(name)
        roots, files = tree.compared(lists, said.installed)
        built = {facts.name for facts in said.installed if tree.unnamed.may_have_built(facts)}
        source = Source(
            declared=tree.declared | built | frozenset(said.declared),
            files=files,
            inputs=brought,
            plugins=plugins.inside(record.run),
            named=frozenset(environment.versions)
            if environment is not None and name == _older(record)
            else (),
            counterparts=Counterparts(
                roots=roots, files=files, installed=said.installed, hidden=spread(arm.files)
            ),
        )
        for listing in lists:
            listed = judge(listing, source)
            built_files |= listed.made
            reasons |= dict.fromkeys(f"{name}: {why}" for why in _removed(listed.made, tree, basis))
            reasons |= dict.fromkeys(f"{name}: {why}" for why in sorted(listed.unproven))
    return tuple(reasons), tuple(sorted(built_files.items()))


def _removed(built: Iterable[tuple[str, str]], tree: Tree, basis: GateBasis) -> list[str]:
    """Installed files that the trusted revision has and the arm's commit has not: no build of it
    wrote them.
    """
    known = frozenset(tree.paths)
    return [
        f"{file} is installed, but {path} of {basis.ref} is no longer in the commit; install it"
        " from the commit"
        for file, _ in sorted(built)
        for place in tree.roots.get(top_of(file), ())
        if (path := counterpart(file, place)) in basis.trusted_files and path not in known
    ]


def _tree(name: str, arm: ArmSummary, basis: GateBasis, read: Read) -> Tree:
    tree = basis.tree(basis.commit if arm.revision is None else arm.revision.commit)
    if arm.revision is None or arm.revision.patch is None:
        return tree
    return patched(tree, read(f"{PATCH_FOLDER}/{name}.patch"), to=arm.revision.commit)


def _not_ready(record: Record, use: str) -> tuple[str, ...]:
    """Files that are not the ready-made subject's: it is not part of any commit, but of the version
    that decides.
    """
    code = {path: sha256(data) for path, data in READY[use].files().items()}
    return tuple(
        f"{name}: {path} (not the ready-made subject {use} of this version of Rankproof)"
        for name, arm in record.arms.items()
        for path in sorted(arm.files.keys() | code.keys())
        if arm.files.get(path) != code.get(path)
    )
