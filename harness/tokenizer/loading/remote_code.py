"""Code that lies beside a tokenizer, imported from verified bytes.

Transformers copies such modules into one shared folder and imports the copy: two processes or threads that do so at
once import half-written files (transformers #22506, #27421). Here nothing is copied. Modules are compiled straight from
the snapshot after their sha256 was compared with the manifest's, under a package name that is a digest of all code of
the snapshot, so two versions never meet in one process. No bytecode is cached.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from harness.forms.digest import fold, sha256
from harness.tokenizer.loading.failure import SourceRefused
from harness.tokenizer.loading.manifest import FileRecord
from harness.tokenizer.source import OWN_PACKAGE


@dataclass(frozen=True, kw_only=True)
class _Package:
    folder: Path
    digests: Mapping[str, str]


class _Verified(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules of registered snapshots, and runs them if their bytes are the registered ones."""

    def __init__(self) -> None:
        self._packages: dict[str, _Package] = {}

    def register(self, name: str, package: _Package) -> None:
        self._packages[name] = package

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        located = self._locate(fullname)
        if located is None:
            return None
        package, file, is_package = located
        origin = str(package.folder / file) if file else None
        spec = importlib.machinery.ModuleSpec(fullname, self, origin=origin, is_package=is_package)
        spec.has_location = origin is not None
        return spec

    def _locate(self, fullname: str) -> tuple[_Package, str | None, bool] | None:
        root, _, rest = fullname.partition(".")
        package = self._packages.get(root)
        if package is None:
            return None
        inside = rest.replace(".", "/")
        if rest and f"{inside}.py" in package.digests:
            return package, f"{inside}.py", False
        start = f"{inside}/__init__.py" if rest else "__init__.py"
        if start in package.digests:
            return package, start, True
        if not rest or any(path.startswith(f"{inside}/") for path in package.digests):
            return package, None, True
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        del spec  # the default kind of module will do

    def exec_module(self, module: ModuleType) -> None:
        located = self._locate(module.__name__)
        assert located is not None
        package, file, _ = located
        if file is None:
            return
        source = (package.folder / file).read_bytes()
        if sha256(source) != package.digests[file]:
            raise ImportError(f"{package.folder / file} changed after it was verified", name=module.__name__)
        exec(compile(source, package.folder / file, "exec", dont_inherit=True), vars(module))  # noqa: S102 - asked for


_FINDER = _Verified()
_REGISTERING = threading.Lock()


def package(folder: Path, files: Sequence[FileRecord]) -> str:
    """Make the Python files of a snapshot importable; returns the package's name."""
    digests = {file.path: file.sha256 for file in files if file.path.endswith(".py")}
    name = OWN_PACKAGE + fold(digests)[:32]
    with _REGISTERING:
        _FINDER.register(name, _Package(folder=folder, digests=digests))
        if _FINDER not in sys.meta_path:
            sys.meta_path.insert(0, _FINDER)
    return name


def load_class(reference: str, *, folder: Path, files: Sequence[FileRecord]) -> type:
    """The class that an `auto_map` entry such as `tokenization_x.XTokenizer` names.

    Raises:
        SourceRefused: the entry names another repository, or names no class.
        Exception: whatever the code itself raises.
    """
    if "--" in reference:
        raise SourceRefused(
            f"its auto_map takes code from another repository ({reference}), which no commit pins: "
            "copy that code into this repository, or load from a folder that has both"
        )
    module, _, name = reference.rpartition(".")
    if not name.isidentifier() or not module or not all(part.isidentifier() for part in module.split(".")):
        raise SourceRefused(f"its auto_map entry {reference!r} is not of the form module.Class")
    if f"{module.replace('.', '/')}.py" not in {file.path for file in files}:
        raise SourceRefused(f"its auto_map names {reference}, and there is no {module}.py beside it")
    kind: object = getattr(importlib.import_module(f"{package(folder, files)}.{module}"), name)
    if not isinstance(kind, type):
        raise SourceRefused(f"its auto_map names {reference}, which is not a class")
    return kind
