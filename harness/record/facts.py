"""Facts of a run that its events do not say: `evidence/run.json`.

Everything else in the record follows from the evidence by `harness.record.assemble`, so that a
verifier can work it out again.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from harness.forms.digest import sha256
from harness.forms.distribution import normal
from harness.forms.model import Model
from harness.plugins import Imported, Plugin
from harness.stats.counterparts import InstalledCopy
from harness.stats.outcome import CellFacts

PATH = "evidence/run.json"
SCENARIO_PATH = "evidence/scenario.yaml"
SOURCE_FOLDER = "evidence/source"
PATCH_FOLDER = "evidence/patch"
ENVIRONMENT_FOLDER = "evidence/environment"
REQUIREMENTS = "requirements.txt"
"""What an arm's file of requirements is called in that folder, whatever the scenario calls it."""
FORMAT: Literal[1] = 1
HOME_INPUT = "world.home"
"""The input that `world.home` names: no input of a scenario has this name."""


class PackageFacts(Model):
    """Installed distribution; `record` is one sha256 over the digests that its wheel states for its
    files.

    The same wheel gives the same value on every machine, whoever installed it and wherever:
    `harness.forms.distribution.wheel_digest`. None where nothing states them: no RECORD, or an
    editable install.
    """

    name: str
    version: str
    record: str | None


class StartFile(Model):
    """File that an interpreter may read or run at its start: a `.pth` file, sitecustomize or
    usercustomize.

    A `.pth` file may import anything before anybody's code runs, so it can change what judges a
    run.

    Attributes:
        name: of the file; of a package with its folder, such as `sitecustomize/__init__.py`.
    """

    name: str
    sha256: str


class NixFacts(Model):
    """Nix environment that a run took place in. None means that Nix, or git, did not tell.

    Attributes:
        environment: store path.
        shell: derivation path of the development shell, as it is without the line that holds this
            path; None where `nix run` started the run.
        flake_lock_sha256: of the flake.lock that the shell was entered with.
        wheels_sha256: of the locks/wheels.json that the environment was built from.
        nixpkgs: hash of the nixpkgs that was used, as Nix writes it.
        as_locked: whether that is the one in flake.lock.
        source: store path of the harness' code where `nix run` started it; None is the working
            tree.
        stale: files that are no longer those that the shell was entered with.
        changed: files of the project that differ from its commit.
        untracked: files among the flake's sources that git does not know, so that Nix does not see
            them.
        driver: NVIDIA's driver libraries that ranks were given, as the system names the files.
    """

    environment: str
    shell: str | None
    flake_lock_sha256: str | None
    wheels_sha256: str | None
    nixpkgs: str | None
    as_locked: bool | None
    source: str | None
    stale: list[str]
    changed: list[str] | None
    untracked: list[str] | None
    driver: list[str]


class EnvironmentFacts(Model):
    """Where the run took place. No host name, no user name, no path, no value of a variable outside
    the allow-list.

    Attributes:
        host: digest of the machine's boot id: the same for two runs between two starts of one
            machine.
        memory: bytes.
        lock: name of the lock file the environment was made from, with its sha256; None where it
            was made by hand.
        nix: what Nix says of the environment, or None where it is not one of Nix.
        start_files: what the harness's interpreter may have read or run at its start, by name.
    """

    python: str
    implementation: str
    system: str
    release: str
    machine: str
    cpu: str
    cores: int
    affinity: int
    memory: int
    host: str
    variant: str | None
    lock: str | None
    lock_sha256: str | None
    nix: NixFacts | None
    gpu: str | None
    openssh: str | None
    variables: dict[str, str]
    other_variables: int
    packages: list[PackageFacts]
    start_files: list[StartFile] = Field(default_factory=list)


class RepositoryFacts(Model):
    """Repository the scenario lies in.

    None means unknown: a git that failed is not a clean tree.

    `scenario` is the path of the scenario's folder inside it, None for the top folder; `file` is
    the name of the scenario's file in that folder, None in a record that does not say it.
    """

    commit: str | None
    tree: str | None
    dirty: bool | None
    untracked: int | None
    origin: str | None
    scenario: str | None
    file: str | None = Field(None, exclude_if=lambda name: name is None)
    why_unknown: str = ""

    @property
    def place(self) -> str | None:
        """Path in the repository by which `rankproof run` finds this scenario and no other of its
        folder; that of the folder where the file is not known, None where neither is.
        """
        steps = [step for step in (self.scenario, self.file) if step is not None]
        return "/".join(steps) or None


class InputFacts(Model):
    """Resolved input.

    Attributes:
        given: what the scenario or `--set` names: a relative path or `hub-id@revision`.
        digest: sha256 over the sorted `sha256  path` lines of its files (of the one file, where it
            is one).
        pinned: whether the scenario states this digest.
        files: relative path to sha256.
    """

    name: str
    given: str
    digest: str
    pinned: bool
    revision: str | None
    files: dict[str, str]


class RoomFacts(Model):
    """Room that ranks had for home, caches and temporary folder, and what their worlds shared on
    purpose.

    Attributes:
        home: `room`, emptied before each world; `copy`, a room that begins with a copy of the input
            `world.home`; or `shared`, the user's own.
        kept: variables that kept for programs what the user's own home folder implies.
        compiled: where compilers keep what they made, from world to world: variables, and folders
            below TMPDIR.
    """

    home: Literal["room", "copy", "shared"]
    kept: list[str]
    compiled: list[str]


class RevisionFacts(Model):
    """Where the code of an arm was laid out from.

    Attributes:
        repo: as the scenario or `--repo` names it, without this machine's folders; None is the
            scenario's own.
        rev: as given; HEAD where only a patch is.
        commit: full id of the commit that stood for it.
        tree: id of that commit's tree; a patch is not in it.
        patch: sha256 of the patch, or None.
        folder: what of the tree was staged, from its top; empty for all of it.
    """

    repo: str | None
    rev: str
    commit: str
    tree: str
    patch: str | None
    folder: str


class Installed(Model):
    """Package of an arm's own environment.

    Attributes:
        name: in its normal form (PEP 503).
        wheel: sha256 of the file it was installed from.
        record: one digest of its files, wherever it is installed:
            `harness.forms.distribution.wheel_digest`.
    """

    name: str
    version: str
    wheel: str
    record: str


# Empty until it is built.
WheelName = Annotated[str, Field(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.+!-]*\.whl)?$")]


class CheckoutFacts(Model):
    """Commit that a package of an arm's own environment was built from.

    Attributes:
        repo: as the scenario names its folder, without this machine's folders.
        rev: as given; HEAD where none is.
        commit: full id of the commit that stood for it.
        tree: id of that commit's tree.
        folder: what of the tree is the package, from its top; empty for all of it.
        changed: whether this commit was checked out with changes that were not committed, and so
            had no part.
        wheel: name of the file that was built, in `evidence/environment/ARM/`.
        files: path in the tree to sha256, of every file that a module of the wheel may be.
    """

    repo: str
    rev: str
    commit: str
    tree: str
    folder: str
    changed: bool
    wheel: WheelName
    files: dict[str, str]


class ArmEnvironmentFacts(Model):
    """Environment that an arm's ranks ran in, where it is not the harness' own.

    Attributes:
        python: full version of its interpreter.
        implementation: such as `cpython`.
        packages: everything that is installed, by name.
        requirements: sha256 of the file of requirements; None where the scenario names none.
        checkouts: packages that were built from a commit, by normal name.
        start_files: what its interpreter may read or run at its start, by name.
    """

    python: str
    implementation: str
    packages: list[Installed]
    requirements: str | None = None
    checkouts: dict[str, CheckoutFacts] = Field(default_factory=dict)
    start_files: list[StartFile] = Field(default_factory=list)

    @property
    def digest(self) -> str:
        """One digest of all that is said here, which trials bear."""
        return sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode())

    @property
    def content(self) -> str:
        """One digest of what ranks find there: the same for two environments whose packages have
        the same files.
        """
        files = [[package.name, package.version, package.record] for package in self.packages]
        return sha256(json.dumps([self.python, self.implementation, files]).encode())

    @property
    def versions(self) -> dict[str, str]:
        """Version by name."""
        return {package.name: package.version for package in self.packages}


ReportDigest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


class ChangeFacts(Model):
    """One thing that a pass of a reproduction changes against the pass beside it.

    Attributes:
        what: `seeds`, `affinity`, `ranks started`, `worlds at a time`, `variable NAME` (of whoever
            runs it), or `world.env.NAME` (of the ranks).
        before: its value in the pass beside it; None is a variable that is not there.
        after: its value in this pass.
        beside: `sha256:` and the digest of the `report.md` of the pass beside it.
    """

    what: str
    before: str | None
    after: str | None
    beside: ReportDigest


class Reproduces(Model):
    """Which report a run was made to reproduce.

    Attributes:
        report: `sha256:` and the digest of that `report.md`.
        source: where the code was taken from, in words.
        candidate: what the candidate was taken from instead of the report's own source, in words;
            empty where it is the report's own.
        varied: what this run changes on purpose, where it is a second pass.
    """

    report: ReportDigest
    source: str
    candidate: str = ""
    varied: ChangeFacts | None = None


class SourceFacts(Model):
    """Code in the repository that ranks of an arm loaded beside what was staged.

    Of an arm from a revision that revision, patched where it is; else the folder as it stood.

    Attributes:
        declared: normal names of the distributions that its pyproject.toml, setup.cfg and setup.py
            declare, and of those that were installed from a folder of it.
        files: path to sha256, of every file that one of those in question may be.
        roots: import name to the places that hold it, of the names that ranks loaded: what the path
            of an import begins with, and what stands for that in the repository.
        installed: the distributions of the arm's environment with such names, with their files.
    """

    declared: list[str]
    files: dict[str, str]
    roots: dict[str, list[Annotated[list[str], Field(min_length=2, max_length=2)]]]
    installed: list[InstalledCopy]


class SignerFacts(Model):
    """Key that a run was going to sign its report with.

    Whoever verifies refuses the signature of any other.

    Attributes:
        key: `SHA256:` and the digest of its public half.
        name: whom the repository that was run lists the key for, in its
            `.rankproof/allowed_signers`; None where it lists it for nobody. The verifier's own list
            says whether that is so.
    """

    key: Annotated[str, Field(pattern=r"^SHA256:[A-Za-z0-9+/]{43}$")]
    name: str | None


class MachineFacts(Model):
    """Machine of a run over several.

    Attributes:
        called: a digest of its name, or with --name-hosts the name.
        slots: how many ranks it has room for.
        system: of its kernel, with release and architecture.
        python: the version of its interpreter.
        cores: that its processes may use.
        memory: bytes.
        offset: seconds that its wall clock was ahead of the one here.
        offset_within: seconds that this is right to within: half of the fastest round trip.
    """

    called: str
    slots: int
    system: str
    python: str
    cores: int
    memory: int
    offset: float
    offset_within: float


class MachinesFacts(Model):
    """Machines of a run.

    Attributes:
        machines: in the order of the hostfile.
        placement: spread, pack, or the machine of each rank by its place in the hostfile.
        lease: seconds without a heartbeat after which a machine ended its ranks.
        ready: seconds until the slowest was ready, connection and preload together.
        made_here: whether they were test machines, made of one.
        starter: what started our agent there; None for ssh.
    """

    machines: list[MachineFacts]
    placement: Literal["spread", "pack"] | list[int]
    lease: float
    ready: float
    made_here: bool = False
    starter: Literal["ray"] | None = None


class NodeFacts(Model):
    """Node of a cluster on which trials of a run were made.

    Attributes:
        number: by which its trials name it.
        name: of its host; None unless `--name-hosts` asked for it.
        host: digest of its boot id, as for `EnvironmentFacts`.
        harness_pid: of our process there.
        server_pids: of its fork servers; of a node that was lost, those it began with.
        lanes: worlds at the same time.
        memory: bytes.
        packages: one digest of what is installed there, but for Rankproof, which is brought:
            `record.farmed.digest_of`.
        lost: why it was not used any more before the run was over; None for one that stayed.
    """

    number: Annotated[int, Field(ge=0)]
    name: str | None
    host: str
    harness_pid: int
    server_pids: list[int]
    lanes: Annotated[int, Field(ge=1)]
    system: str
    release: str
    cpu: str
    cores: int
    affinity: int
    memory: int
    gpu: str | None
    packages: str
    lost: str | None = None


class FarmFacts(Model):
    """Cluster whose nodes made a run's trials, and the version of what started us there."""

    starter: Literal["ray"]
    version: str
    nodes: list[NodeFacts]


class RunFacts(Model):
    """Facts of one run of one scenario.

    Attributes:
        signer: the key that signs; None where nobody does.
        challenge: a text that whoever asked for the run chose; a gate that asks for it refuses
            reports made before.
        arguments: the entry's, per arm.
        room: what ranks had for their own.
        provenance: per arm, what its repository holds of the code that was not staged.
        plugins: the kinds of other distributions that the run used.
        imported: the distributions with kinds for Rankproof of which the run's process had imported
            something.
        machines: where the ranks were; None where all were on this machine.
        texts_left: sha256 of each library module and RECORD that differs between the arms and is
            not in the evidence, with its size in bytes; None where no file of that content was
            found after the trials.
        farm: where its trials were made; None for this machine.
    """

    format: Literal[1]
    rankproof: str
    id: str
    made: str
    signer: SignerFacts | None = None
    seconds: float
    jobs: int
    start: Literal["warm", "fresh"]
    harness_pid: int
    server_pids: list[int]
    server_seconds: float
    overrides: list[str]
    challenge: str | None = None
    source: RepositoryFacts
    environment: EnvironmentFacts
    inputs: list[InputFacts]
    arguments: dict[str, dict[str, JsonValue]]
    revisions: dict[str, RevisionFacts] = Field(default_factory=dict)
    environments: dict[str, ArmEnvironmentFacts] = Field(default_factory=dict)
    reproduces: Reproduces | None = None
    room: RoomFacts
    provenance: dict[str, SourceFacts]
    plugins: list[Plugin] = Field(default_factory=list)
    imported: list[Imported] = Field(default_factory=list)
    machines: MachinesFacts | None = None
    texts_left: dict[str, int | None] = Field(default_factory=dict)
    farm: FarmFacts | None = None
    cells: list[CellFacts]


def installed(run: RunFacts, arm: str) -> tuple[str, dict[str, str]]:
    """Return the Python version of an arm and the versions of its packages by normal name, with the
    commit of a checkout.

    Those of its own environment, or of the harness'.
    """
    environment: ArmEnvironmentFacts | None = run.environments.get(arm)
    if environment is not None:
        built = {
            name: f" (commit {facts.commit[:12]})" for name, facts in environment.checkouts.items()
        }
        return environment.python, {
            name: version + built.get(name, "") for name, version in environment.versions.items()
        }
    return run.environment.python, {
        normal(package.name): package.version for package in run.environment.packages
    }
