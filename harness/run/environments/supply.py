"""What an environment needs that no index has: its file of requirements, and packages that are
built from a git checkout.

A checkout is found at a commit, laid out, and built to a wheel that becomes evidence. Its
repository is only read (`harness.run.arms.code`). The build runs in a folder of its own, with
the environment's interpreter: it is code of the checkout, and runs as whoever runs the harness.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.forms.digest import sha256
from harness.forms.distribution import (
    MODULE_SUFFIXES,
    WheelError,
    pack_wheel,
    unpack_wheel,
    wheel_identity,
)
from harness.forms.regular_file import read_regular
from harness.forms.source import real_place, refusal
from harness.record.facts import CheckoutFacts
from harness.run.arms.code import LINK, SUBMODULE, GitRepository, RevisionError
from harness.run.arms.provenance import revision
from harness.run.environments import pip
from harness.run.environments.pip import EnvironmentProblem, Interpreter
from harness.scenario import Environment, Scenario
from harness.scenario.environment import (
    LARGEST,
    Checkout,
    PinnedRequirement,
    listing,
    parse_requirements,
)
from harness.trust.folder import LARGEST_FILE

HEAD = "HEAD"


@dataclass(frozen=True)
class Built:
    """A wheel in the form of evidence, and what it was built from."""

    facts: CheckoutFacts
    wheel: bytes


@dataclass(frozen=True, kw_only=True)
class Found:
    """A commit of a repository that is here, still to be built. `facts` know no wheel yet."""

    name: str
    facts: CheckoutFacts
    repository: GitRepository = field(compare=False)

    @property
    def key(self) -> list[str]:
        """Return what decides what is built, whatever the commit is called."""
        return [self.facts.tree, self.facts.folder]

    def wheel(self, python: Path, *, base: Interpreter, says: Callable[[str], None]) -> Built:
        """Build it with the interpreter of an environment, which is in a folder that goes away with
        it.

        Raises:
            EnvironmentProblem: it cannot be laid out or built, or is another package.
        """
        facts = self.facts
        with tempfile.TemporaryDirectory(prefix="rankproof-build-") as text:
            top = Path(text, "tree")
            out = Path(text, "wheel")
            try:
                there = self.repository.entries(facts.commit)
                entries = {path: entry for path, entry in there.items() if entry.mode != SUBMODULE}
                left = [
                    *self.repository.lay_out(entries, top),
                    *sorted(there.keys() - entries.keys()),
                ]
            except (RevisionError, OSError) as error:
                raise EnvironmentProblem(f"cannot check out {self._words}: {error}") from None
            if left:
                says(
                    f"{self._words} is built without {listing(left)}, which git-lfs, a submodule"
                    " or a partial clone stores elsewhere"
                )
            wheel = pip.wheel(python, top / facts.folder, out, base=base, what=self._words)
            return self._built(wheel)

    def _built(self, wheel: Path) -> Built:
        most = LARGEST_FILE // 2**20
        try:
            files = (
                unpack_wheel(wheel.read_bytes(), most=LARGEST_FILE)
                if wheel.stat().st_size <= LARGEST_FILE
                else {}
            )
            packed = pack_wheel(files)
            name, version = wheel_identity(files) if files else ("", "")
        except WheelError as error:
            raise EnvironmentProblem(f"{self._words} was built, but {error}") from None
        if not files or len(packed) > LARGEST_FILE:
            raise EnvironmentProblem(
                f"{self._words} is larger than {most} MiB, the limit for an evidence file; use a"
                " released version of the package"
            )
        if name != self.name:
            raise EnvironmentProblem(
                f"{self._words} builds the package {name} {version}; list it as {name} in"
                " environment.packages"
            )
        wanted = {path for path in files if path.endswith(MODULE_SUFFIXES)}
        known = self.facts.model_copy(
            update={"wheel": wheel.name, "files": self._of_the_tree(wanted)}
        )
        return Built(facts=known, wheel=packed)

    def _of_the_tree(self, modules: Collection[str]) -> dict[str, str]:
        return revision(self.repository, self.facts.commit).digests(modules)

    @property
    def caution(self) -> str:
        """Return what whoever has edited the package and runs it has to hear.

        Empty where nothing is left out.
        """
        if not self.facts.changed:
            return ""
        return f"{self._words}: uncommitted changes in its repository are not built"

    @property
    def _words(self) -> str:
        return (
            f"{self.name} from {self.facts.repo} at {self.facts.rev} (commit"
            f" {self.facts.commit[:12]})"
        )


@dataclass(frozen=True, kw_only=True)
class KeptSupply:
    """What the evidence of a run holds of such a package."""

    name: str
    facts: CheckoutFacts
    data: bytes = field(repr=False)

    @property
    def key(self) -> list[str]:
        """Return what decides what is installed."""
        return [sha256(self.data)]

    @property
    def caution(self) -> str:
        """Nothing: it is as it was."""
        return ""

    def wheel(self, python: Path, *, base: Interpreter, says: Callable[[str], None]) -> Built:
        """Return the wheel as it was built: the same bytes, wherever the checkout is now."""
        del python, base, says
        return Built(facts=self.facts, wheel=self.data)


def find(name: str, given: Checkout, *, folder: Path) -> Found:
    """Find the commit that a package is built from; `folder` is the scenario's.

    Raises:
        RevisionError: no such folder, repository or revision, or nothing at that commit to build.
    """
    place = real_place(given.path, folder=folder)
    repo = f"./{place.name}" if ".." in Path(given.path).parts else given.path
    repository = GitRepository(place, given=repo)
    commit = repository.commit(given.rev or HEAD)
    root = repository.root
    inside = (
        place.relative_to(root).as_posix()
        if root is not None and place.is_relative_to(root)
        else ""
    )
    inside = "" if inside == "." else inside
    entries = repository.entries(commit)
    beginning = f"{inside}/" if inside else ""
    if not any(f"{beginning}{file}" in entries for file in ("pyproject.toml", "setup.py")):
        raise RevisionError(
            f"{repo} has no pyproject.toml and no setup.py at revision {given.rev or HEAD};"
            " path must be the folder of a package"
        )
    if entries.get(inside) is not None and entries[inside].mode == LINK:
        raise RevisionError(
            f"{repo} is a symbolic link at revision {given.rev or HEAD}; use the folder that it"
            " points to"
        )
    facts = CheckoutFacts(
        repo=repo,
        rev=given.rev or HEAD,
        commit=commit,
        tree=repository.tree(commit),
        folder=inside,
        changed=_is_checked_out(repository, commit) and repository.is_changed(),
        wheel="",
        files={},
    )
    return Found(name=name, facts=facts, repository=repository)


def _is_checked_out(repository: GitRepository, commit: str) -> bool:
    try:
        return repository.commit(HEAD) == commit
    except RevisionError:
        return False  # nothing was committed where it stands


def named_as_now(
    built: Mapping[str, CheckoutFacts], asked: Mapping[str, Found | KeptSupply]
) -> dict[str, CheckoutFacts]:
    """Return what was built earlier from the same tree, under the names that stand for it now."""
    return {
        name: asked[name].facts.model_copy(update={"wheel": facts.wheel, "files": facts.files})
        for name, facts in built.items()
    }


@dataclass(frozen=True, kw_only=True)
class Supply:
    """What one environment needs.

    Attributes:
        text: the file of requirements; None where there is none.
        requirements: what it says.
        checkouts: by normal name of the package.
    """

    text: bytes | None = None
    requirements: tuple[PinnedRequirement, ...] = ()
    checkouts: Mapping[str, Found | KeptSupply] = field(default_factory=dict)

    @property
    def digest(self) -> str | None:
        """Sha256 of the file of requirements."""
        return None if self.text is None else sha256(self.text)


NOTHING = Supply()


def of_scenario(scenario: Scenario, *, folder: Path) -> dict[str, Supply]:
    """Return what the environments of a scenario's arms need, found from its folder.

    Raises:
        ScenarioError: a file of requirements that is not there, or has lines that are refused.
        RevisionError: a checkout or revision that cannot be had.
    """
    return {
        arm: _found(wanted, folder=folder) for arm, wanted in scenario.subject.environments.items()
    }


def _found(wanted: Environment, *, folder: Path) -> Supply:
    checkouts = {name: find(name, given, folder=folder) for name, given in wanted.checkouts.items()}
    if wanted.requirements is None:
        return Supply(checkouts=checkouts)
    return replace(requirements(wanted.requirements, folder=folder), checkouts=checkouts)


def requirements(given: str, *, folder: Path) -> Supply:
    """Return the supply that a file of requirements is, by its path from the scenario's folder.

    Raises:
        ScenarioError: it cannot be read, or has lines that are refused.
    """
    file = folder / given
    try:
        text = read_regular(file, limit=LARGEST)
    except OSError as error:
        raise refusal(
            str(file),
            f"cannot be read ({error.strerror}); it is named in environment.requirements",
        ) from None
    return supplied(text, name=str(file))


def supplied(text: bytes, *, name: str) -> Supply:
    """Return the supply of a file of requirements; `name` is what messages call it.

    Raises:
        ScenarioError: it has lines that are refused.
    """
    return Supply(text=text, requirements=parse_requirements(text, name=name))
