"""The policy of a release gate: which scenarios must have passed, who must have signed, and what
else is asked; and a policy to begin with, made of the scenarios and the key that are here.

A closed file, read and linted like a scenario. Some rules cannot be switched off and so have no key
here: a cell that must pass is PASS beside a control that failed as required; INCONCLUSIVE, SKIPPED,
unsigned, not judged again and not rendered again are never enough.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from harness.forms.model import Distinct, Id, Inside, Line, Listed, Model, SchemaVersion, Sha256
from harness.forms.problem import complaint
from harness.forms.units import Age
from harness.forms.validation import parse_model
from harness.plugins import Imported, Plugin
from harness.record.facts import StartFile
from harness.scenario import Scenario, ScenarioError, load_scenario, scenario_files

PATH = ".rankproof/policy.yaml"
Role = Literal["developer", "ci", "release"]
ROLES: tuple[Role, ...] = get_args(Role)


class Roles(Model):
    """Who has which role, by the names of the allowed signers file."""

    developer: Listed[Line] = Field((), description="People who run scenarios while they work.")
    ci: Listed[Line] = Field((), description="Keys of continuous integration.")
    release: Listed[Line] = Field(
        (), description="Who may release, and may sign for a changed scenario."
    )

    def of(self, name: str) -> tuple[Role, ...]:
        """Roles of a name."""
        return tuple(role for role in ROLES if name in getattr(self, role))


class Signers(Model):
    """Whose signature is believed.

    Both files are taken from the trusted revision, never from the one under test.
    """

    allowed: Inside = Field(
        "allowed_signers",
        description="Keys that may sign, in git's format; a file next to the policy.",
    )
    revoked: Inside | None = Field(None, description="Revoked keys; a file next to the policy.")
    roles: Roles = Field(description="For each role, names from allowed_signers.")


class Signatures(Model):
    """How many different keys must have signed a PASS, and in which roles."""

    keys: Annotated[int, Field(ge=1, le=20)] = Field(
        1, description="Number of different keys, by fingerprint."
    )
    roles: Distinct[Role] = Field(("ci", "release"), description="Roles whose reports count.")


class LeastTrials(Model):
    """The least number of counted trials in every cell."""

    candidate: Annotated[int, Field(ge=1)] = Field(1, description="Trials of the candidate.")
    control: Annotated[int, Field(ge=1)] = Field(1, description="Trials of the control.")


class AllowedStartFile(Model):
    """A file that Python may have read at its start, before anybody's code."""

    name: Line = Field(description="Its name, as a report shows it.")
    sha256: Sha256 | None = Field(None, description="Digest of the file (default: any).")

    def allows(self, file: StartFile) -> bool:
        """Tell whether it is this file."""
        return self.name == file.name and self.sha256 in (None, file.sha256)


class RequiredEnvironment(Model):
    """Where the runs must have taken place."""

    nix: bool = Field(default=False, description="Whether it must be the Nix environment.")
    locks: Listed[Inside] = Field(
        (), description="Lock files; the run's must equal one of them at the trusted ref."
    )
    start_files: Listed[AllowedStartFile] | None = Field(
        None,
        description=(
            "The .pth, sitecustomize and usercustomize files that Python may have read at its"
            " start, in the environments of the harness and the arms (default: any)."
        ),
    )


class AllowedPlugin(Model):
    """A plug-in that runs may have used: it decides what a check or a fault of it means."""

    distribution: Line = Field(description="Normal name of the distribution.")
    version: Line | None = Field(None, description="Its version, in quotes (default: any).")
    sha256: Sha256 | None = Field(
        None, description="Digest of its files, as a report shows it (default: any)."
    )

    def allows(self, plugin: Plugin | Imported) -> bool:
        """Tell whether it is this plug-in."""
        return (
            self.distribution == plugin.distribution
            and self.version in (None, plugin.version)
            and self.sha256 in (None, plugin.sha256)
        )


class Required(Model):
    """A scenario that must have passed."""

    scenario: Id = Field(description="Id of the scenario.")
    file: Inside | None = Field(
        None,
        description=(
            "Its file, from the top of the repository (default: scenarios/ID/scenario.yaml)."
        ),
    )
    cells: Distinct[Line] | None = Field(
        None, description="Ids of the cells that must be PASS (default: every cell of its matrix)."
    )
    trials: LeastTrials | None = Field(
        None, description="Replaces the policy's trials for this scenario."
    )
    candidate: Literal["commit", "elsewhere"] = Field(
        "commit",
        description=(
            "elsewhere: the candidate may come from another repository, which the gate cannot"
            " compare."
        ),
    )

    @property
    def path(self) -> str:
        """Its file, from the top of the repository."""
        return self.file or f"scenarios/{self.scenario}/scenario.yaml"


class Policy(Model):
    """What a commit needs before the gate opens."""

    schema_: SchemaVersion = Field(alias="schema", description="Version of this format: 1.")
    signers: Signers = Field(description="Whose signatures are accepted.")
    signatures: Signatures = Field(
        default_factory=Signatures, description="How many keys, in which roles."
    )
    require: Annotated[Listed[Required], Field(min_length=1)] = Field(
        description="The scenarios that must have passed."
    )
    trials: LeastTrials = Field(
        default_factory=LeastTrials, description="The minimum number of counted trials."
    )
    max_age: Age | None = Field(None, description="The maximum age of a report, with a unit: 7d.")
    challenge: Literal["optional", "required"] = Field(
        "optional",
        description=(
            "required: a challenge must be passed to the gate, and every report must contain it."
        ),
    )
    tree: Literal["clean", "any"] = Field(
        "clean",
        description=(
            "clean: the working tree had no uncommitted changes, and the code that ran is the"
            " commit's."
        ),
    )
    programs: Literal["cannot-tell", "allowed"] = Field(
        "cannot-tell",
        description=(
            "allowed: ranks may be programs, and may start processes, although the code that"
            " programs and such processes load is not recorded."
        ),
    )
    plugins: Listed[AllowedPlugin] = Field(
        (), description="Plug-ins that runs may have used (default: none)."
    )
    max_jobs: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Maximum number of worlds at the same time."
    )
    environment: RequiredEnvironment = Field(
        default_factory=RequiredEnvironment, description="Where the runs must have taken place."
    )
    failures: Literal["refuse", "newest"] = Field(
        "refuse",
        description=(
            "refuse: any trusted FAIL of the commit closes the gate, even with a PASS; newest:"
            " only the newest report counts."
        ),
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        seen: set[str] = set()
        for required in self.require:
            if required.scenario in seen:
                raise complaint(f"lists {required.scenario} twice; keep one entry", at="require")
            seen.add(required.scenario)
        if not any(getattr(self.signers.roles, role) for role in self.signatures.roles):
            wanted = " or ".join(self.signatures.roles)
            raise complaint(
                f"requires a signature by {wanted}, but signers.roles lists no key with that role",
                at="signatures",
            )
        return self

    def least(self, required: Required) -> LeastTrials:
        """Least trials of a scenario."""
        return required.trials or self.trials


def parse_policy(text: bytes, *, name: str) -> Policy:
    """Read a policy.

    Raises:
        ScenarioError: with every problem of the file, each with line, column and what is allowed.
    """
    return parse_model(Policy, text, name=name)


TEMPLATE = """\
schema: 1
# The scenarios that must have passed for the gate to open. Read, like the keys, from the trusted branch.
signers:
  allowed: allowed_signers              # next to this file; `revoked` names revoked keys
  roles:                                # names of allowed_signers; a name without a role counts for nothing
    developer: []
    ci: [{name}]
    release: []                         # may also sign for a changed scenario
signatures: {{keys: 1, roles: [ci, release]}}
require:
{require}
trials: {{candidate: {candidate}, control: {control}}}
max_age: 7d
challenge: optional                     # required: a report must contain the gate's text
tree: clean
max_jobs: 8
environment: {{nix: false{locks}}}
failures: refuse                        # a trusted FAIL counts, even after a later PASS
"""
SIGNERS_TEMPLATE = """\
# One line for each key: name, options, key. The names have their roles in policy.yaml.
{line}
"""


class TemplateError(Exception):
    """Policy that cannot be written; the message says what, where and what to do."""


def write_policy(path: Path) -> Iterator[Path]:
    """Write a policy and a list of signers, and name each once it is there.

    Nothing that is there is written over.

    Raises:
        TemplateError: there is a policy, there is nothing that it could require, or it cannot be
            written.
    """
    if path.exists():
        raise TemplateError(f"{path} already exists; check it with `rankproof gate --lint`")
    claims = _claims()
    if not claims:
        raise TemplateError(
            "scenarios/ contains no claim that a gate could require; add a"
            " scenario with role: claim"
        )
    require = "\n".join(
        f"  - {{scenario: {scenario.id}{_file_key(file, scenario)}}}" for file, scenario in claims
    )
    locks = sorted(
        file.as_posix()
        for file in Path("locks").glob("*.txt")
        if file.stem in ("cpu", "cuda", "metal")
    )
    text = TEMPLATE.format(
        name="ci@example.org",
        require=require,
        candidate=min(scenario.trials.candidate for _, scenario in claims),
        control=min(scenario.trials.control for _, scenario in claims),
        locks=f", locks: {json.dumps(locks)}" if locks else "",
    )
    parse_policy(text.encode(), name=str(path))
    listed = path.parent / "allowed_signers"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
        yield path
        if not listed.exists():
            listed.write_text(SIGNERS_TEMPLATE.format(line=_signer_line()), encoding="utf-8")
            yield listed
    except OSError as error:
        raise TemplateError(f"{path} cannot be written: {error.strerror}") from None


def _claims() -> list[tuple[Path, Scenario]]:
    """Scenarios that can be required: they count, and must pass."""
    claims = []
    try:
        files = scenario_files(Path("scenarios"))
    except ScenarioError:
        return []
    for file in files:
        try:
            loaded = load_scenario(file)
        except ScenarioError:
            continue
        scenario = loaded.scenario
        # A gate takes nothing that was set on the command line.
        if scenario.role == "claim" and not loaded.lacks_revisions:
            claims.append((file, scenario))
    return claims


def _file_key(file: Path, scenario: Scenario) -> str:
    usual = f"scenarios/{scenario.id}/scenario.yaml"
    return "" if file.as_posix() == usual else f", file: {json.dumps(file.as_posix())}"


def _signer_line() -> str:
    """Key that would sign here, as a line to be turned on: nobody should trust a key because a
    program wrote it.
    """
    # Imported here: a gate that decides makes no key.
    from harness.trust.key import KeyProblem, find_signer

    try:
        key = find_signer(make=False).public_key
    except (KeyProblem, OSError):
        key = "ssh-ed25519 AAAA..."
    return f'# ci@example.org namespaces="report@rankproof,attestation@rankproof" {key}'
