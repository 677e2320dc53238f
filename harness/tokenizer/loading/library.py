"""The one place that touches transformers: its first import, its log, and building a tokenizer from
a folder.

Code beside a tokenizer is imported from verified bytes. Transformers copies such modules into one
shared folder and imports the copy: two processes or threads that do so at once import half-written
files (transformers #22506, #27421). Here nothing is copied. Modules are compiled straight from the
snapshot after their sha256 was compared with the manifest's, under a package name that is a digest
of all code of the snapshot, so two versions never meet in one process. No bytecode is cached.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.forms.digest import fold, sha256
from harness.tokenizer.loading.manifest import FileRecord, read_object
from harness.tokenizer.observe import LOGGERS, installed
from harness.tokenizer.problem import BuildFailed, LoadError, SourceRefused
from harness.tokenizer.transformers_object import OWN_PACKAGE


@dataclass(frozen=True, kw_only=True)
class _Package:
    folder: Path
    digests: Mapping[str, str]


class _Verified(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules of registered snapshots, and runs them if their bytes are the registered
    ones.
    """

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
            raise ImportError(
                f"{package.folder / file} changed after it was verified", name=module.__name__
            )
        # Asked for.
        exec(compile(source, package.folder / file, "exec", dont_inherit=True), vars(module))  # noqa: S102


_FINDER = _Verified()
# Two threads that load at once must not both put the finder on `sys.meta_path`.
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
    """Return the class that an `auto_map` entry such as `tokenization_x.XTokenizer` names.

    Raises:
        SourceRefused: the entry names another repository, or names no class.
        Exception: whatever the code itself raises.
    """
    if "--" in reference:
        raise SourceRefused(
            f"its auto_map takes code from another repository ({reference}), which is not pinned"
            " to a commit; copy that code into this repository, or load from a folder that"
            " contains both"
        )
    module, _, name = reference.rpartition(".")
    if (
        not name.isidentifier()
        or not module
        or not all(part.isidentifier() for part in module.split("."))
    ):
        raise SourceRefused(f"its auto_map entry {reference!r} does not have the form module.Class")
    if f"{module.replace('.', '/')}.py" not in {file.path for file in files}:
        raise SourceRefused(f"its auto_map names {reference}, but its folder has no {module}.py")
    kind: object = getattr(importlib.import_module(f"{package(folder, files)}.{module}"), name)
    if not isinstance(kind, type):
        raise SourceRefused(f"its auto_map names {reference}, which is not a class")
    return kind


LIBRARIES = ("transformers", "tokenizers", "huggingface_hub", "sentencepiece", "tiktoken")
# Options of `from_pretrained` that say where a tokenizer comes from: that is decided, and verified,
# before.
DECIDED = frozenset(
    {
        "cache_dir",
        "code_revision",
        "config",
        "force_download",
        "gguf_file",
        "local_files_only",
        "proxies",
        "revision",
        "subfolder",
        "token",
        "trust_remote_code",
        "use_auth_token",
    }
)
_IMPORTING = threading.Lock()
_OPENING = threading.Lock()
# How often a library's logger is opened up, its level before, and the filters that keep its
# handlers quiet.
_open: dict[str, tuple[int, int, list[tuple[logging.Handler, _Quiet]]]] = {}


def _start_afresh() -> None:
    # A fork while another thread imports, or builds, would leave the child a lock that nobody opens
    # and loud loggers. Locks cannot be opened from outside, only replaced.
    global _IMPORTING, _OPENING  # noqa: PLW0603
    _IMPORTING = threading.Lock()
    _OPENING = threading.Lock()
    for name, (_, level, quiet) in list(_open.items()):
        _open[name] = (1, level, quiet)
        _close_down(name)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)


def auto_tokenizer() -> Any:
    """`AutoTokenizer`, imported so that threads may ask for it at the same time.

    `from transformers import AutoTokenizer` in several threads at once fails in most runs: the
    package replaces itself in `sys.modules` while it is imported. Its submodule, under a lock, does
    not.
    """
    with _IMPORTING:
        from transformers.models.auto.tokenization_auto import AutoTokenizer
    return AutoTokenizer


def versions() -> dict[str, str]:
    """Versions of the libraries that have a say in what a tokenizer does."""
    return installed(LIBRARIES)


def build(
    folder: Path,
    files: Sequence[FileRecord],
    *,
    trust_remote_code: bool,
    options: Mapping[str, object],
) -> tuple[Any, tuple[str, ...]]:
    """Build a tokenizer from a folder of verified files, without a request.

    Returns it and the log lines.

    Args:
        folder: tokenizer files, and nothing that changes.
        files: what was verified there.
        trust_remote_code: run code that lies beside the tokenizer.
        options: passed on to `from_pretrained`, such as `fix_mistral_regex` or `pad_token`.

    Raises:
        SourceRefused: an option that is not the caller's to give, or code that may not run.
        BuildFailed: transformers raised, or its Rust code panicked.
    """
    refused = sorted(DECIDED & options.keys())
    if refused:
        raise SourceRefused(f"the loader sets the option {refused[0]} itself; do not pass it")
    names = {file.path for file in files}
    try:
        # Before the log is tapped: the import sets up the library's logger.
        auto = auto_tokenizer()
    except Exception as error:
        raise BuildFailed(
            f"transformers cannot be imported: {type(error).__name__}: {error}"
        ) from error
    with captured() as lines:
        try:
            tokenizer = _from_folder(
                auto, folder, files, names, trust=trust_remote_code, options=dict(options)
            )
        except LoadError as error:
            error.logs = tuple(lines)
            raise
        except BaseException as error:
            # A panic of the Rust side is no Exception. Interrupts and exits are not ours to turn
            # into something else.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            failure = BuildFailed(
                f"transformers {versions().get('transformers', '?')} cannot build a tokenizer from"
                f" the verified files in {folder}: {type(error).__name__}: {str(error)[:500]}"
            )
            failure.logs = tuple(lines)
            raise failure from error
    return tokenizer, tuple(lines)


def _from_folder(
    auto: Any,
    folder: Path,
    files: Sequence[FileRecord],
    names: set[str],
    *,
    trust: bool,
    options: dict[str, object],
) -> Any:
    auto_map = (
        read_object(folder, "tokenizer_config.json").get("auto_map")
        if "tokenizer_config.json" in names
        else None
    )
    reference = auto_map.get("AutoTokenizer") if isinstance(auto_map, dict) else auto_map
    if isinstance(reference, list):
        # [slow, fast]; one of them may be null
        reference = next((entry for entry in reversed(reference) if entry), None)
    if isinstance(reference, str) and trust:
        kind = load_class(reference, folder=folder, files=files)
        kind.register_for_auto_class()  # type: ignore[attr-defined]
        return kind.from_pretrained(  # type: ignore[attr-defined]
            str(folder), local_files_only=True, trust_remote_code=True, **options
        )
    model = read_object(folder, "config.json").get("auto_map") if "config.json" in names else None
    if trust and isinstance(model, dict) and isinstance(model.get("AutoConfig"), str):
        # Otherwise transformers would copy this module into its shared folder.
        configuration = load_class(model["AutoConfig"], folder=folder, files=files)
        options["config"] = configuration.from_pretrained(str(folder), local_files_only=True)  # type: ignore[attr-defined]
    return auto.from_pretrained(
        str(folder), local_files_only=True, trust_remote_code=False, **options
    )


class _Lines(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.DEBUG)
        self._lines = lines
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread != self._thread:
            return
        with contextlib.suppress(Exception):
            line = f"{record.levelname} {record.name}: {record.getMessage()}"
            if record.exc_info and record.exc_info[1] is not None:
                line += f" [{type(record.exc_info[1]).__name__}: {record.exc_info[1]}]"
            self._lines.append(line[:2000])


class _Quiet(logging.Filter):
    """Keeps a handler as quiet about a library as it was, while that library's logger is set to
    DEBUG for us.
    """

    def __init__(self, library: str, level: int) -> None:
        super().__init__()
        self._library = library
        self._level = level

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= self._level or record.name.partition(".")[0] != self._library


@contextlib.contextmanager
def captured() -> Iterator[list[str]]:
    """Collect what the libraries log in this thread, from DEBUG up.

    Nobody else sees more than before.
    """
    lines: list[str] = []
    handler = _Lines(lines)
    for name in LOGGERS:
        _open_up(name)
        logging.getLogger(name).addHandler(handler)
    try:
        yield lines
    finally:
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(handler)
            _close_down(name)


def _open_up(name: str) -> None:
    logger = logging.getLogger(name)
    with _OPENING:
        count, level, quiet = _open.get(name, (0, logger.level, []))
        if not count:
            others = [*logger.handlers, *(logging.getLogger().handlers if logger.propagate else [])]
            quiet = [
                (other, _Quiet(name, logger.getEffectiveLevel()))
                for other in others
                if not isinstance(other, _Lines)
            ]
            for other, filtering in quiet:
                other.addFilter(filtering)
            logger.setLevel(logging.DEBUG)
        _open[name] = (count + 1, level, quiet)


def _close_down(name: str) -> None:
    logger = logging.getLogger(name)
    with _OPENING:
        count, level, quiet = _open.get(name, (0, 0, []))
        if not count:
            return  # this process was forked meanwhile, and did so already
        if count > 1:
            _open[name] = (count - 1, level, quiet)
            return
        del _open[name]
        logger.setLevel(level)
        for other, filtering in quiet:
            other.removeFilter(filtering)
