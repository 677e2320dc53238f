"""Nix in a folder of its own: no daemon, no build users, no network, nothing written anywhere else.

Works as any user, with Debian's nix-bin 2.8 and with Nix 2.26. Standard library only: `nox -s nix`
runs this before any environment was made.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
STAND_IN = Path(__file__).resolve().parent / "nixpkgs"
# What a flake needs of the project; results/ is there because it must not matter.
PARTS = (
    "flake.nix",
    "flake.lock",
    "nix",
    "locks",
    "harness",
    "packages",
    "scenarios",
    "noxfile.py",
    "pyproject.toml",
    "LICENSE",
)
CONFIG = """experimental-features = nix-command flakes
sandbox = false
build-users-group =
substituters =
flake-registry =
warn-dirty = false
max-jobs = 2
connect-timeout = 1
download-attempts = 1
builders =
"""
INSTALL = (
    "Debian and Ubuntu: apt-get install --no-install-recommends nix-bin. Elsewhere:"
    " nixos.org/download"
)


class CheckFailed(Exception):
    """Something about the flake does not hold; the message says what, and what to do."""


class NoNix(Exception):
    """There is no Nix on this machine; the message says how to get one."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """What a command of Nix left."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, kw_only=True)
class Host:
    """What the stand-in builds with, in place of nixpkgs' own.

    Attributes:
        python: an interpreter of this machine, outside any environment.
        version: "3.11".
        pip: the folder of the package `pip`.
        wheels: a folder of wheels, in place of the package index.
    """

    python: Path
    version: str
    pip: Path
    wheels: Path


class Store:
    """A Nix store, its settings and a copy of the flake, in one folder.

    Attributes:
        folder: everything lies in it.
        flake: the copy of the project; change it to see what Nix says.
    """

    def __init__(self, folder: Path) -> None:
        """Copy the project's flake and the stand-in for nixpkgs.

        Raises:
            NoNix: this machine has none.
        """
        if shutil.which("nix") is None:
            raise NoNix(f"nix is not on PATH. {INSTALL}")
        self.folder = folder
        self.flake = folder / "flake"
        self.stand_in = folder / "nixpkgs"
        self.flake.mkdir()
        skip = shutil.ignore_patterns("__pycache__")
        for part in PARTS:
            if (PROJECT / part).is_dir():
                shutil.copytree(PROJECT / part, self.flake / part, ignore=skip, symlinks=True)
            else:
                shutil.copy2(PROJECT / part, self.flake / part)
        shutil.copytree(STAND_IN, self.stand_in)
        table = json.loads((self.flake / "locks" / "wheels.json").read_text())
        self.build_with(
            Host(
                python=Path(sys.executable),
                version=table["python"],
                pip=folder / "none",
                wheels=folder / "none",
            )
        )
        (folder / "tmp").mkdir()
        (folder / "home").mkdir()

    def build_with(self, host: Host) -> None:
        """Say what stands in for nixpkgs' Python and for the package index."""
        told = {"path": os.environ.get("PATH", os.defpath)} | {
            name: str(value) for name, value in vars(host).items()
        }
        (self.stand_in / "host.json").write_text(json.dumps(told))

    def environment(self) -> dict[str, str]:
        """What Nix runs with: its own folders, and little of the caller's shell."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TERM") if name in os.environ}
        return kept | {
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "tmp"),
            "NIX_CONFIG": CONFIG,
            "NIX_STORE_DIR": str(self.folder / "store"),
            "NIX_STATE_DIR": str(self.folder / "var"),
            "NIX_LOG_DIR": str(self.folder / "log"),
            "NIX_DATA_DIR": str(self.folder / "share"),
            "NIX_CONF_DIR": str(self.folder / "etc"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "GIT_CONFIG_NOSYSTEM": "1",
        }

    def nix(
        self,
        *arguments: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        within: float = 120,
    ) -> Done:
        """Run one command of Nix to its end.

        Raises:
            CheckFailed: it does not end within so many seconds.
        """
        try:
            done = subprocess.run(
                list(arguments),
                cwd=cwd or self.folder,
                env=self.environment() | dict(env or {}),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=within,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise CheckFailed(
                f"{' '.join(arguments[:3])} did not end within {within:.0f} s"
            ) from error
        return Done(code=done.returncode, out=done.stdout, err=done.stderr)

    def with_stand_in(self) -> tuple[str, ...]:
        """The options that put the stand-in in the place of nixpkgs."""
        return ("--override-input", "nixpkgs", f"path:{self.stand_in}", "--no-write-lock-file")

    def reference(self, output: str = "") -> str:
        """The flake, or an output of it, as Nix wants it named.

        A path, so that files count that git does not know.
        """
        return f"path:{self.flake}" + (f"#{output}" if output else "")


@contextlib.contextmanager
def scratch_store() -> Iterator[Store]:
    """A store that is gone afterwards.

    Raises:
        NoNix: this machine has none.
    """
    # Short, because a script's first line names the environment's Python with its folder, in 127
    # bytes at most.
    folder = Path(tempfile.mkdtemp(prefix="rp-nix-"))
    try:
        yield Store(folder)
    finally:
        subprocess.run(["chmod", "-R", "u+w", str(folder)], check=False)
        shutil.rmtree(folder, ignore_errors=True)
