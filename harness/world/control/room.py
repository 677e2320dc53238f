"""Room of a lane: the home, caches and temporary folder of its ranks, at one path, emptied before
each world.

A room belongs to one fork server, because libraries read where these folders are while they are
imported, and a server has one world at a time. What the server's worlds share on purpose is what
compilers keep: each world would compile again, for seconds or minutes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from harness.world.below.leftovers import empty, remove

# A unix socket's path has 108 bytes, and what libraries put below the temporary folder takes some
# thirty (Python's multiprocessing: pymp-xxxxxxxx/listener-xxxxxxxx).
LONGEST_BASE = 47
# Variables of compilers, and the folders that they use below the room's place for them.
COMPILERS = {
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "TORCH_EXTENSIONS_DIR": "torch-extensions",
    "CUDA_CACHE_PATH": "cuda",
    "GOCACHE": "go",
}
# What compilers put below the temporary folder and cannot be told to put elsewhere: MLX its
# kernels, torch its headers.
KEPT = ("mlx", "torchinductor_*")
# Whoever writes to ~/.cache/x expects what every home folder has.
USUAL = (".cache", ".config", ".local", ".local/share", ".local/state")
# What the worlds of one server share on purpose, as the report names it.
COMPILED = (*(f"TMPDIR/{name}" for name in KEPT), *COMPILERS)
# What programs find below the home folder they were installed with, and would not find in a room.
TOOLCHAINS = {
    "CARGO_HOME": ".cargo",
    "RUSTUP_HOME": ".rustup",
    "PYENV_ROOT": ".pyenv",
    "RBENV_ROOT": ".rbenv",
    "NVM_DIR": ".nvm",
    "VOLTA_HOME": ".volta",
    "ASDF_DATA_DIR": ".asdf",
    "MISE_DATA_DIR": ".local/share/mise",
    "SDKMAN_DIR": ".sdkman",
    "GOPATH": "go",
    "JULIA_DEPOT_PATH": ".julia",
}


class RoomNotEmpty(OSError):
    """Failure to remove what a world left, or to lay the room out again.

    The message says what and why.
    """


class Room:
    """Room of a lane: by name, until it is laid out.

    Attributes:
        home: HOME of its ranks.
        temporary: TMPDIR of its ranks.
        homes: the home folder in every way it may be written, the longest first.
    """

    def __init__(self, scratch: Path) -> None:
        """Name its folders; `lay_out` makes them.

        Args:
            scratch: folder of its server; the room goes with it.
        """
        self._folder = scratch / "room"
        self._caches = scratch / "compiled"
        self.home = self._folder / "home"
        self.temporary = self._folder / "tmp"
        self._runtime = self._folder / "run"
        self._usual = [self.home / name for name in USUAL]
        self._untouched: object = None
        self.homes = sorted({str(self.home), os.path.realpath(self.home)}, key=len, reverse=True)

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the room's server: what is given, and where the folders are
        that it does not name.
        """
        places = {
            "HOME": str(self.home),
            **dict.fromkeys(("TMPDIR", "TMP", "TEMP"), str(self.temporary)),
            "XDG_RUNTIME_DIR": str(self._runtime),
            **{name: str(self._caches / folder) for name, folder in COMPILERS.items()},
            **toolchains(),
        }
        settings = places | dict(given)
        return settings | following(settings) | dict(given)

    def renew(self, content: Mapping[str, Path] | None = None) -> None:
        """Empty it, and lay it out again. To be called when nobody of the world before is left.

        Args:
            content: files to copy into the home folder, by their path there.

        Raises:
            RoomNotEmpty: something cannot be removed, or the disk is full.
        """
        if self._untouched is not None and not content and self._look() == self._untouched:
            return  # as a rule; on a busy disk, removing and making folders waits for its journal
        self._untouched = None
        try:
            kept = self._put_aside()
            left = empty(self._folder) if _is_folder(self._folder) else []
            if not left:
                self.lay_out()
                for path in kept:
                    path.rename(self.temporary / path.name)
                for name, source in (content or {}).items():
                    target = self.home / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(source, target)
                self._untouched = None if content else self._look()
        except OSError as error:
            raise RoomNotEmpty(f"the ranks' working folder cannot be created: {error}") from error
        if left:
            more = f", and {len(left) - 1} more" if len(left) > 1 else ""
            raise RoomNotEmpty(
                "cannot remove files that the previous world left in the ranks' working folder:"
                f" {left[0]}{more}. They remain in {self._folder.parent.name} in the temporary"
                " folder, and the next world uses a different working folder"
            )

    def lay_out(self) -> None:
        """Make its folders.

        Raises:
            OSError: no space, or no right to write there.
        """
        for folder in (self._folder, self._caches):
            if not _is_folder(folder):
                remove(folder)
                folder.mkdir(mode=0o700)
        for folder in (self.home, self.temporary, self._runtime):
            folder.mkdir(mode=0o700)
        for folder in self._usual:
            folder.mkdir(mode=0o700)

    def _look(self) -> object:
        """Return what changes when anything in the room does, but for what compilers keep; None
        where a folder is gone.

        By the kernel's own times, which nobody can set back, and by name: a change may fall into
        the same tick.
        """
        states = []
        try:
            for folder in (self._folder, self.home, self.temporary, self._runtime, *self._usual):
                status = folder.lstat()
                states.append(
                    (
                        status.st_ino,
                        status.st_mode,
                        status.st_ctime_ns,
                        sorted(path.name for path in folder.iterdir()),
                    )
                )
        except OSError:
            return None
        return states

    def _put_aside(self) -> list[Path]:
        """Move what compilers keep in the temporary folder out of it.

        A link in its place is nobody's cache.
        """
        if not all(map(_is_folder, (self._folder, self.temporary, self._caches))):
            return []
        kept = [
            path for pattern in KEPT for path in self.temporary.glob(pattern) if _is_folder(path)
        ]
        return [path.rename(self._caches / path.name) for path in kept]


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def base() -> Path:
    """Where rooms are made: the temporary folder, or /tmp where sockets in a room there would have
    too long a path.
    """
    usual = Path(tempfile.gettempdir())
    short = Path("/tmp")  # noqa: S108 - the folder itself is made by mkdtemp
    return (
        usual
        if len(os.fsencode(usual)) <= LONGEST_BASE or not os.access(short, os.W_OK | os.X_OK)
        else short
    )


def toolchains() -> dict[str, str]:
    """Variables that keep for programs what the user's own home folder implies, where it holds
    it.
    """
    home = Path.home()
    variables = {
        name: str(home / folder) for name, folder in TOOLCHAINS.items() if (home / folder).is_dir()
    }
    if any(home.glob(".local/lib/python3*")):
        variables["PYTHONUSERBASE"] = str(home / ".local")
    return variables


def following(given: Mapping[str, str]) -> dict[str, str]:
    """Variables that follow from HOME or XDG_CACHE_HOME: what their readers take where they are not
    set.
    """
    variables = {}
    if home := given.get("HOME"):
        variables = {
            "XDG_CACHE_HOME": f"{home}/.cache",
            "XDG_CONFIG_HOME": f"{home}/.config",
            "XDG_DATA_HOME": f"{home}/.local/share",
            "XDG_STATE_HOME": f"{home}/.local/state",
        }
    if cache := given.get("XDG_CACHE_HOME", variables.get("XDG_CACHE_HOME")):
        variables |= {"HF_HOME": f"{cache}/huggingface", "TORCH_HOME": f"{cache}/torch"}
    return variables
