"""Making an environment: a virtual environment, the wheels of checkouts, what pip chooses before
anything is downloaded, how large that is, what must not be in it, and what is there then.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.parse import unquote, urlparse

from harness.forms.digest import sha256_of
from harness.forms.distribution import normal, wheel_digest
from harness.forms.text import plural
from harness.reason import SkipCode
from harness.record.environment import is_for_cpu
from harness.record.facts import ArmEnvironmentFacts, CheckoutFacts, Installed
from harness.run.environments import pip
from harness.run.environments.pip import (
    EnvironmentProblem,
    Interpreter,
    PipRequest,
    Resolved,
    Unavailable,
)
from harness.run.environments.supply import Supply
from harness.scenario import Environment
from harness.scenario.environment import Checkout, bare, for_gpus, listing, unmet_requirements

ANSWER_WITHIN = 3.0
ASKED_AT_ONCE = 8
SHOWN = 5
MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class EnvironmentPlan:
    """What pip chose for an environment, and the request that it chose it for.

    Attributes:
        sizes: bytes of each package's file; None where nobody tells.
    """

    request: PipRequest
    chosen: Sequence[Resolved]
    sizes: Mapping[str, int | None]

    def __str__(self) -> str:
        """One line: how much, and the largest packages by name."""
        known = [size for size in self.sizes.values() if size is not None]
        unknown = len(self.sizes) - len(known)
        total = amount(sum(known))
        if unknown:
            total = f"at least {total}, {unknown} of unknown size" if known else "of unknown size"
        packages = list(self.packages())
        return f"{plural(len(self.chosen), 'package')}, {total}: {listing(packages, most=SHOWN)}"

    @property
    def known_bytes(self) -> int:
        """Bytes of the files whose size is known."""
        return sum(size for size in self.sizes.values() if size is not None)

    def packages(self) -> Iterator[str]:
        """Each package with its size, the largest first."""
        for package in sorted(
            self.chosen, key=lambda package: (-(self.sizes[package.name] or 0), package.name)
        ):
            size = self.sizes[package.name]
            yield f"{package} ({'size unknown' if size is None else amount(size)})"


def amount(size: int) -> str:
    """Return a size in words."""
    return f"{size / MIB:.1f} MiB" if size >= MIB / 10 else f"{size / 1024:.1f} KiB"


def plan(
    python: Path,
    wanted: Environment,
    supply: Supply,
    wheels: Mapping[str, Path],
    *,
    base: Interpreter,
) -> EnvironmentPlan:
    """Have pip choose.

    Args:
        python: interpreter of the environment.
        wanted: what the scenario asks for.
        supply: what it needs beside an index.
        wheels: what was built from checkouts, by package.
        base: the interpreter that the environment was made from.

    Raises:
        Unavailable, EnvironmentProblem: as for `pip.resolve`; torch that would bring CUDA to a run
            on the CPU.
    """
    hashed = supply.text is not None
    asked = [_of(name, given, wheels, hashed=hashed) for name, given in wanted.packages.items()]
    request = PipRequest(requirements=[*asked, *map(str, supply.requirements)], hashed=hashed)
    cpu = for_cpu(wanted)
    constraint = _cpu_build(wanted) if cpu and not hashed else ""
    chosen: list[Resolved] | None = None
    if constraint:
        # Where there is no such build, pip may still find one that brings nothing (a Mac's has no
        # CUDA to bring).
        held = PipRequest(requirements=request.requirements, constraint=constraint)
        with contextlib.suppress(EnvironmentProblem):
            chosen = pip.resolve(python, held, base=base)
            request = held
    if chosen is None:
        chosen = pip.resolve(python, request, base=base)
    if cpu and (brought := for_gpus({package.name: package.version for package in chosen})):
        raise EnvironmentProblem(_refusal(chosen, brought, base))
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        sizes = dict(
            zip(
                (package.name for package in chosen),
                pool.map(_size, (package.url for package in chosen)),
                strict=True,
            )
        )
    return EnvironmentPlan(request=request, chosen=chosen, sizes=sizes)


def for_cpu(wanted: Environment) -> bool:
    """Return whether torch's build for the CPU is meant: what the scenario says, else what
    Rankproof itself runs on.
    """
    return wanted.torch == "cpu" if wanted.torch is not None else is_for_cpu()


def _of(name: str, given: str | Checkout, wheels: Mapping[str, Path], *, hashed: bool) -> str:
    if isinstance(given, str):
        return f"{name}=={given}"
    file = wheels[bare(name)]
    digest = f" --hash=sha256:{sha256_of(file)}" if hashed else ""
    return f"{name} @ {file.as_uri()}{digest}"


def _cpu_build(wanted: Environment) -> str:
    """Return the build for the CPU of the version that is named, else of the one that Rankproof
    itself runs with.
    """
    version = wanted.versions.get("torch")
    if version is None:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            version = importlib.metadata.version("torch").partition("+")[0]
    return f"torch=={version}+cpu" if version is not None and "+" not in version else ""


def _refusal(chosen: Sequence[Resolved], brought: Sequence[str], base: Interpreter) -> str:
    torch = next(package.version for package in chosen if package.name == "torch").partition("+")[0]
    return (
        f"torch {torch} would install {listing(brought)} for a run on the CPU; nothing was"
        f" installed. Let pip find a CPU build for Python {base.version} (torch {torch}+cpu or"
        " another version, in a folder in PIP_FIND_LINKS, or on PyTorch's CPU index in"
        " PIP_EXTRA_INDEX_URL), and give its version in packages. Or accept this build with"
        " environment.torch: any"
    )


def _size(url: str) -> int | None:
    """How large a file is: of one that lies here, or as its server says."""
    address = urlparse(url)
    try:
        if address.scheme == "file":
            return Path(unquote(address.path)).stat().st_size
        if address.scheme not in ("http", "https") or address.username is not None:
            return None  # whoever needs a password is asked by pip alone
        # Its scheme was looked at.
        asked = urllib.request.Request(url.partition("#")[0], method="HEAD")  # noqa: S310
        # As above.
        with urllib.request.urlopen(asked, timeout=ANSWER_WITHIN) as answer:  # noqa: S310
            return int(answer.headers["Content-Length"])
    except (OSError, HTTPException, ValueError, TypeError):
        return None


WHEELS = "wheels"
"""Folder of an environment with what was built for it.

So it is among the files that must stay as they are.
"""
Says = Callable[[str], None]


@dataclass(frozen=True)
class _Laid:
    """An interpreter with nothing in it, the wheels of checkouts, and what else pip chose.

    No plan without packages.
    """

    python: Path
    checkouts: Mapping[str, CheckoutFacts]
    plan: EnvironmentPlan | None


def make(
    folder: Path, wanted: Environment, supply: Supply, *, base: Interpreter, says: Says
) -> ArmEnvironmentFacts:
    """Make an environment in a folder that is not there yet; `says` hears what will be installed
    before it is.

    Raises:
        Unavailable: an interpreter or a package that cannot be had here.
        EnvironmentProblem: it cannot be made as it is asked for.
    """
    laid = _lay(folder, wanted, supply, base=base, says=says)
    resolved: list[Resolved] = []
    if laid.plan is not None:
        says(f"installing {laid.plan}")
        resolved = pip.install(laid.python, laid.plan.chosen, laid.plan.request, base=base)
        if different := set(map(str, resolved)) ^ set(map(str, laid.plan.chosen)):
            raise EnvironmentProblem(
                f"pip installed packages that differ from its own plan: {min(different)}"
            )
    facts = ArmEnvironmentFacts(
        python=base.version,
        implementation=base.implementation,
        packages=_installed(folder, resolved),
        requirements=supply.digest,
        checkouts=dict(laid.checkouts),
    )
    lacking = list(wanted.unmet(python=facts.python, packages=facts.versions))
    if supply.text is not None:
        files = {package.name: (package.version, package.wheel) for package in facts.packages}
        lacking += unmet_requirements(supply.requirements, files, built=supply.checkouts)
    if lacking:
        raise EnvironmentProblem(
            f"pip did not install all requested packages: {'; '.join(lacking)}"
        )
    return facts


def preview(
    wanted: Environment, supply: Supply, *, base: Interpreter, says: Says
) -> EnvironmentPlan | None:
    """Return what would be installed; None where it is an interpreter alone.

    Raises:
        Unavailable, EnvironmentProblem: as for `make`.
    """
    with tempfile.TemporaryDirectory(prefix="rankproof-preview-") as folder:
        return _lay(Path(folder, "environment"), wanted, supply, base=base, says=says).plan


def _lay(
    folder: Path, wanted: Environment, supply: Supply, *, base: Interpreter, says: Says
) -> _Laid:
    lay_empty(folder, base)
    python = folder / "bin" / "python"
    checkouts: dict[str, CheckoutFacts] = {}
    wheels: dict[str, Path] = {}
    for name, source in supply.checkouts.items():
        built = source.wheel(python, base=base, says=says)
        place = wheels[name] = folder / WHEELS / built.facts.wheel
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(built.wheel)
        checkouts[name] = built.facts
    asked = bool(wanted.packages) or supply.text is not None
    if asked and for_cpu(wanted) and (caution := pip.caution(base)):
        says(caution)
    return _Laid(
        python, checkouts, plan(python, wanted, supply, wheels, base=base) if asked else None
    )


def lay_empty(folder: Path, base: Interpreter) -> None:
    """Make a virtual environment without pip: what is not asked for is not there.

    Raises:
        Unavailable: the interpreter cannot make one.
    """
    done = subprocess.run(
        [str(base.path), "-I", "-m", "venv", "--without-pip", str(folder)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip() or "it printed nothing").splitlines()[
            -1
        ]
        if "No space left" in done.stderr:
            raise pip.problem(done.stderr, requirements=[], python=base.version)
        message = f"Python {base.version} cannot make a virtual environment: {pip.scrubbed(words)}"
        raise Unavailable(message, code=SkipCode.MACHINE_INTERPRETER)


def _installed(folder: Path, resolved: list[Resolved]) -> list[Installed]:
    """Everything that is installed, each with the digest of its wheel and of its files."""
    places = [str(path) for path in folder.glob("lib/python*/site-packages")]
    records: dict[str, tuple[str, str | None]] = {}
    for distribution in importlib.metadata.distributions(path=places):
        records[normal(distribution.metadata["Name"])] = (
            distribution.version,
            distribution.read_text("RECORD"),
        )
    versions = {release.name: release.version for release in resolved}
    for name in sorted(records.keys() | versions.keys()):
        there = records[name][0] if name in records else "nothing"
        if versions.get(name) != there:
            raise EnvironmentProblem(
                f"pip should have installed {versions.get(name, 'no version')} of {name}, but the"
                f" environment contains {there}; check whether pip is configured to install"
                " elsewhere"
            )
    packages = []
    for package in resolved:
        _, record = records[package.name]
        if record is None:
            raise EnvironmentProblem(
                f"{package.name} {package.version} has no RECORD, so its files are unknown"
            )
        packages.append(
            Installed(
                name=package.name,
                version=package.version,
                wheel=package.wheel,
                record=wheel_digest(record),
            )
        )
    return packages
