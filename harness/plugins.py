"""Registries of kinds, filled from their own package and from the entry points of other
distributions.

A distribution that brings a kind names it in its metadata, in the group of its registry:

    [project.entry-points."rankproof.faults"]
    slow-disk = "my_package.slow_disk:SlowDiskFault"

The metadata names the kinds, so nothing is imported before its kind is asked for: code that no
scenario names could otherwise change what judges it. A plug-in that cannot be used is not fatal: it
is listed with the reason, and whoever asks for its kind gets the reason. Our own kinds are named in
the same form: a scenario uses few of them, and importing all of them takes longer than checking it.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.metadata
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar, Union

from pydantic import (
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema

from harness.forms.digest import fold, sha256
from harness.forms.distribution import normal
from harness.forms.model import Model

GROUPS = (
    "rankproof.faults",
    "rankproof.checks",
    "rankproof.backends",
    "rankproof.subjects",
    "rankproof.views",
)
# The function that a rank calls in the file of a kind.
CALLED = {"rankproof.faults": "inside", "rankproof.backends": "join", "rankproof.subjects": "run"}
NOT_CODE = ("__pycache__", ".dist-info", ".egg-info")
# Folders of programs, into which an installer writes the path of the interpreter.
PROGRAMS = frozenset({"bin", "Scripts"})

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

T = TypeVar("T")


class PluginFailed(Exception):
    """A plug-in raised where it must not: nothing can be said about what it was to judge."""


class Plugin(Model):
    """A kind that another distribution brings.

    Attributes:
        group: the registry that it is in, such as `rankproof.faults`.
        name: the kind.
        distribution: normal name of the distribution.
        version: its version.
        sha256: digest of its files as they are installed, without metadata, programs and what
            Python caches: of its `sha256  path` lines.
    """

    group: str
    name: str
    distribution: str
    version: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.name} ({self.group}) of {self.distribution} {self.version}"


class Imported(Model):
    """A distribution with kinds for Rankproof of which the process of a run had imported something.

    It may have changed whatever judges the run, whether or not the scenario names a kind of it.

    Attributes:
        distribution: its normal name.
        version: its version.
        sha256: digest of its files as they are installed, every file of its RECORD and of the
            packages that its entry points name, without metadata, programs and what Python caches:
            of its `sha256  path` lines.
    """

    distribution: str
    version: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"


# Path to the distribution, with its version, whose plug-in is loaded from there.
FILES: dict[str, str] = {}
# The entry points that were imported, or raised while they were.
TRIED: set[str] = set()


class Package(Mapping[str, T], Generic[T]):
    """Kinds of one package, by name, each imported from its file when it is asked for."""

    def __init__(self, package: str, files: Mapping[str, str]) -> None:
        """Name them.

        Args:
            package: such as `harness.faults`.
            files: name of the kind to `module:attribute` in the package.
        """
        self._package = package
        self._files = dict(files)
        self._kinds: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self._kinds:
            module, _, attribute = self._files[name].partition(":")
            self._kinds[name] = getattr(
                importlib.import_module(f"{self._package}.{module}"), attribute
            )
        return self._kinds[name]

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


class Registry(Mapping[str, T], Generic[T]):
    """Kinds by name: our own first, then those of plug-ins, by name.

    To look up a kind, or whether it is there, imports the plug-in that brings it and no other. To
    go through the registry imports every plug-in: only commands that list kinds do it.

    Attributes:
        group: name of the group of entry points.
        own: the kinds of this project; a `Package` imports each when it is asked for.
        plugins: kind to plug-in, of those that were imported and can be used.
    """

    def __init__(
        self, group: str, base: type, own: Mapping[str, T], *, taken: Collection[str] = ()
    ) -> None:
        """Fill it.

        Args:
            group: name of the group of entry points.
            base: what a kind is a subclass or an instance of.
            own: the kinds of this project.
            taken: names that no plug-in may have beside.
        """
        self.group = group
        self._taken = frozenset(taken)
        self._base = base
        self.own = own
        self.plugins: dict[str, Plugin] = {}
        self._broken: dict[str, str] = {}
        # Those of plug-ins.
        self._brought: dict[str, T] = {}
        # By name, the entry points that nobody asked for yet.
        self._pending: dict[str, list[importlib.metadata.EntryPoint]] = {}
        for point in sorted(_points(group), key=lambda point: (point.name, point.value)):
            self._pending.setdefault(point.name, []).append(point)

    @property
    def names(self) -> list[str]:
        """Every name there is, without an import: of our kinds, and of those that the metadata of
        others states.
        """
        return list(dict.fromkeys([*self.own, *self._brought, *self._pending]))

    @property
    def described(self) -> Mapping[str, T]:
        """Our kinds, which this imports, and those of plug-ins that somebody asked for."""
        return {**self.own, **self._brought}

    @property
    def broken(self) -> dict[str, str]:
        """Kind to the reason why a plug-in's kind cannot be used. Imports every plug-in."""
        self._load_all()
        return self._broken

    def reason(self, name: str) -> str:
        """Why the kind of a plug-in cannot be used.

        Empty where it can, or where no plug-in brings it.
        """
        if name in self.own:
            # A plug-in that wants its name is listed as broken, and keeps nobody from using ours.
            return ""
        self._load(name)
        return self._broken.get(name, "")

    def _load_all(self) -> None:
        for name in list(self._pending):
            self._load(name)

    def _load(self, name: str) -> None:
        """Import the plug-in that brings a kind, if nobody has asked for it before."""
        points = self._pending.pop(name, [])
        if not points:
            return
        point = points[-1]
        owner = point.dist.name if point.dist is not None else "an unnamed distribution"
        if len(points) > 1:
            reason = (
                "another distribution brings a kind of this name too, and nobody says which is"
                " meant; uninstall one"
            )
        else:
            reason = self._add(point)
        if reason:
            self._broken[name] = f"the plug-in {point.value} of {owner} cannot be used: {reason}"

    def _add(self, point: importlib.metadata.EntryPoint) -> str:
        """Take in a kind; why it cannot be, or nothing."""
        if not NAME.fullmatch(point.name):
            return (
                "its name becomes the name of files; use letters, digits, dots, dashes and"
                " underscores alone"
            )
        if point.name in self.own or point.name in self._taken:
            return "Rankproof has a kind of this name itself; the plug-in must use another one"
        TRIED.add(point.value)
        try:
            kind = point.load()
            plugin = _plugin(point)
        # Whatever somebody else's module raises.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            return f"{type(error).__name__}: {error}"
        if reason := _misfit(kind, self._base, point.name) or _strange_file(kind, point):
            return reason
        wanted = next(
            (type(own.properties) for own in self.own.values() if hasattr(own, "properties")),
            object,
        )
        if not isinstance(getattr(kind, "properties", None), wanted):
            return f"its properties are not {wanted.__module__}.{wanted.__qualname__}"
        self._brought[point.name] = kind
        self.plugins[point.name] = plugin
        assert point.dist is not None
        release = f"{plugin.distribution} {plugin.version}"
        FILES.update(dict.fromkeys(map(str, _files(point, point.dist).values()), release))
        return ""

    @contextlib.contextmanager
    def guarded(self, name: str, *, but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
        """Around a call of a kind that must not raise.

        Our own kind that does is a bug, and not told otherwise.

        Args:
            name: the kind.
            but: what it may raise.

        Raises:
            PluginFailed: a plug-in's raised.
        """
        try:
            yield
        except PluginFailed:
            raise
        except but:
            raise
        # Left alone, an exit with 0 would be taken for a PASS.
        except (Exception, SystemExit) as error:
            if name not in self.plugins:
                raise
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(last.filename).name}, line {last.lineno}"
            raise PluginFailed(
                f"the plug-in {self.plugins[name]} raised {type(error).__name__}: {error}"
                f" ({where}): tell its makers"
            ) from error

    def __getitem__(self, name: str) -> T:
        self._load(name)
        return self.own[name] if name in self.own else self._brought[name]

    def __contains__(self, name: object) -> bool:
        if name in self.own:
            return True
        if isinstance(name, str):
            self._load(name)
        return name in self._brought

    def __iter__(self) -> Iterator[str]:
        self._load_all()
        return iter([*self.own, *self._brought])

    def __len__(self) -> int:
        self._load_all()
        return len(self.own) + len(self._brought)


class OneOf:
    """Lets pydantic validate a section by its `kind`, with the model of that kind and no other.

    A union would hold the models of all kinds, those of plug-ins too, and so import them. A mistake
    is reported at its place in the file, below the kind, as for a union; below a plug-in's kind
    without it.
    """

    def __init__(self, registry: Registry[Any]) -> None:
        self._registry = registry

    def __get_pydantic_core_schema__(
        self, _source: Any, _handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Put the question whether a plug-in brings the kind before the choice of our own."""
        choices = {name: self._choice(name) for name in self._registry.own}
        own = core_schema.tagged_union_schema(choices, "kind", strict=False, from_attributes=True)
        return core_schema.with_info_wrap_validator_function(self._validate, own)

    def __get_pydantic_json_schema__(
        self, _schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Describe our kinds, and those of plug-ins that were imported before."""
        # Known when it runs.
        every: Any = Union[tuple(self._registry.described.values())]  # noqa: UP007
        return handler(TypeAdapter[Any](Annotated[every, Field(discriminator="kind")]).core_schema)

    def _choice(self, name: str) -> core_schema.CoreSchema:
        """The model of a kind, imported and built when a section is of it."""
        return core_schema.with_info_plain_validator_function(
            lambda value, info: self._registry.own[name].model_validate(value, context=info.context)
        )

    def _validate(
        self, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> Any:
        kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
        if not isinstance(kind, str) or kind in self._registry.own or kind not in self._registry:
            return handler(value)
        return self._registry[kind].model_validate(value, context=info.context)


def passed_through(error: BaseException) -> str | None:
    """Whose plug-in was running when an error was raised, the innermost; None where it was
    nobody's.
    """
    frames = reversed(traceback.extract_tb(error.__traceback__))
    return next((FILES[frame.filename] for frame in frames if frame.filename in FILES), None)


@functools.cache
def _by_group() -> Mapping[str, Sequence[importlib.metadata.EntryPoint]]:
    """The entry points of all groups of ours: of a hundred distributions few have any, and only
    theirs are parsed.
    """
    groups: dict[str, list[importlib.metadata.EntryPoint]] = {group: [] for group in GROUPS}
    known: set[str] = set()
    for folder in map(Path, sys.path):
        for file in sorted(folder.glob("*.*-info/entry_points.txt")):
            name = file.parent.name.partition("-")[0].lower()
            with contextlib.suppress(OSError):
                if name in known or b"rankproof." not in file.read_bytes():
                    continue
                known.add(name)  # what stands first in the path hides the others, as for an import
                for point in importlib.metadata.Distribution.at(file.parent).entry_points:
                    if point.group in groups:
                        groups[point.group].append(point)
    return groups


def _points(group: str) -> Sequence[importlib.metadata.EntryPoint]:
    return _by_group().get(group, ())  # a record may name any


def installed(group: str, name: str) -> Plugin | None:
    """The plug-in that brings a kind here; None where none does, or more than one."""
    points = [point for point in _points(group) if point.name == name]
    return _plugin(points[0]) if len(points) == 1 else None


def imported() -> list[Imported]:
    """The distributions with entry points of ours of which this process has imported a module, by
    name.

    However it was imported: by its entry point, by a `.pth` file, or by another module; and also
    where its kinds could not be used.
    """
    by_name: dict[str, dict[str, Path]] = {}
    versions: dict[str, str] = {}
    failed: set[str] = set()
    for points in _by_group().values():
        for point in points:
            if (distribution := point.dist) is None:
                continue
            name = normal(distribution.name)
            versions[name] = distribution.version
            by_name.setdefault(name, {}).update(_files(point, distribution))
            if point.value in TRIED:  # a module that raises leaves nothing in sys.modules
                failed.add(name)
    if not by_name:
        return []  # most environments have none, and to resolve the path of every module takes long
    loaded = {
        os.path.realpath(file) for module in list(sys.modules.values()) for file in _places(module)
    }
    return [
        Imported(
            distribution=name,
            version=versions[name],
            sha256=fold({file: sha256(path.read_bytes()) for file, path in files.items()}),
        )
        for name, files in sorted(by_name.items())
        if name in failed or any(os.path.realpath(path) in loaded for path in files.values())
    ]


def _places(module: object) -> Iterator[str]:
    """Where a loaded module says that it came from, in either of the two ways."""
    for place in (
        getattr(module, "__file__", None),
        getattr(getattr(module, "__spec__", None), "origin", None),
    ):
        if isinstance(place, str):
            yield place


def _plugin(point: importlib.metadata.EntryPoint) -> Plugin:
    distribution = point.dist
    assert distribution is not None
    return Plugin(
        group=point.group,
        name=point.name,
        distribution=normal(distribution.name),
        version=distribution.version,
        sha256=fold(
            {name: sha256(path.read_bytes()) for name, path in _files(point, distribution).items()}
        ),
    )


def _misfit(kind: object, base: type, name: str) -> str:
    """Why an object is not a kind of the registry; empty where it is."""
    is_kind = issubclass(kind, base) if isinstance(kind, type) else isinstance(kind, base)
    if not is_kind:
        return f"it is not a {base.__module__}.{base.__qualname__}"
    if getattr(kind, "name", name) != name and not isinstance(kind, type):
        return f"it calls itself {kind.name}, and its entry point is another"  # type: ignore[attr-defined]
    # A declaration without a default is missing only when somebody asks for it: that would be in
    # the middle of a run.
    lacking = [
        key
        for parent in base.__mro__
        for key in vars(parent).get("__annotations__", {})
        if _lacks(kind, key)
    ]
    if lacking:
        return f"it does not declare {', '.join(dict.fromkeys(lacking))}"
    field = getattr(kind, "model_fields", {}).get("kind")
    if (
        isinstance(kind, type)
        and hasattr(kind, "model_fields")
        and (field is None or getattr(field.annotation, "__args__", None) != (name,))
    ):
        return f'its field is not declared as kind: Literal["{name}"], the name of its entry point'
    return ""


def _lacks(kind: object, key: str) -> bool:
    fields = getattr(kind, "model_fields", {})
    return (
        not key.startswith("_")
        and key not in ("kind", "ranks", "model_config")
        and key not in fields
        and not hasattr(kind, key)
    )


def _strange_file(kind: object, point: importlib.metadata.EntryPoint) -> str:
    """Why ranks cannot do with the file that a kind brings for them.

    Empty where they can, and where there is none.
    """
    key = "file" if point.group == "rankproof.subjects" else "inside_file"
    if (file := getattr(kind, key, None)) is None:
        acts = point.group == "rankproof.faults" and getattr(
            getattr(kind, "properties", None), "inside", False
        )
        return (
            "it says that it acts inside a rank, and names no inside_file; name one" if acts else ""
        )
    if not isinstance(file, Path) or not file.is_file():
        return (
            f"its {key} is {str(file)!r}, which is not the path of a file; name one that it is"
            " installed with"
        )
    assert point.dist is not None
    ours = Path(__file__).resolve().parent
    if file.is_relative_to(ours):
        return ""
    if file.resolve() not in {path.resolve() for path in _files(point, point.dist).values()}:
        return (
            f"its {key}, {file.name}, is not one of its own files, so that no digest holds it; move"
            " it beside them"
        )
    try:
        body = ast.parse(file.read_bytes()).body
    except (SyntaxError, ValueError) as error:
        return f"its {key}, {file.name}, is not Python: {error}"
    if CALLED[point.group] not in set(_names(body)):
        return (
            f"its {key}, {file.name}, has no function {CALLED[point.group]}, which ranks call;"
            " write it"
        )
    may = {*sys.stdlib_module_names, *getattr(getattr(kind, "properties", None), "libraries", ())}
    strange = sorted(
        {
            name
            for name in _imported(body)
            if name.partition(".")[0] not in may
            and not f"{name}.".startswith(("harness.ledger.inside.", "harness.rank."))
        }
    )
    if strange and key == "inside_file":
        return (
            f"its {key}, {file.name}, imports {', '.join(strange)}, which an arm's environment need"
            " not have; import the standard library and harness.rank alone (a backend its"
            " properties.modules too)"
        )
    return ""


def _names(body: Iterable[ast.stmt]) -> Iterator[str]:
    """What the statements at the top of a module bind, as far as it is a function's name."""
    for node in body:
        match node:
            case ast.FunctionDef(name=name):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name for alias in names)
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))


def _imported(body: Iterable[ast.stmt]) -> Iterator[str]:
    """The modules that a module imports when it runs.

    One of its own package, which is not there then, as `.name`.
    """
    for node in body:
        for found in (
            ()
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            else ast.walk(node)
        ):
            if isinstance(found, ast.Import):
                yield from (alias.name for alias in found.names)
            elif isinstance(found, ast.ImportFrom):
                yield "." * found.level + (found.module or "")


def _files(
    point: importlib.metadata.EntryPoint, distribution: importlib.metadata.Distribution
) -> dict[str, Path]:
    """The files of a plug-in: those of its distribution, and of the package that the entry point
    names.

    An editable installation lists no code of its own, so its package is looked up. The package may
    be another distribution's: then the files of that one are among them, because its modules beside
    the package act as well.
    """
    paths = _listed(distribution)
    found = _package(point.module.partition(".")[0])
    own = {os.path.realpath(path) for path in paths.values()}
    if not own.issuperset(map(os.path.realpath, found.values())):
        for other in importlib.metadata.distributions():
            # As a text: to parse all of them takes a second.
            record = "\n" + (other.read_text("RECORD") or "")
            if any(f"\n{name}," in record for name in found):
                paths |= _listed(other)
    return {name: path for name, path in (paths | found).items() if path.is_file()}


def _package(top: str) -> dict[str, Path]:
    """The files of a package or module, as it would be imported here.

    None where it is not found.
    """
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):  # a module may take away what says where it came from
        return {}
    if spec is not None and spec.submodule_search_locations:
        folders = [Path(folder) for folder in spec.submodule_search_locations]
        files = [
            (folder, path) for folder in folders for path in folder.rglob("*") if _is_code(path)
        ]
        return {path.relative_to(folder.parent).as_posix(): path for folder, path in files}
    if spec is not None and spec.origin is not None:
        return {Path(spec.origin).name: Path(spec.origin)}
    return {}


def _listed(distribution: importlib.metadata.Distribution) -> dict[str, Path]:
    """What the RECORD of a distribution lists, without what an installer wrote: metadata, programs,
    caches, `.pth`.
    """
    return {
        str(listed): Path(str(distribution.locate_file(listed)))
        for listed in distribution.files or ()
        if _is_code(Path(str(listed))) and not (".." in listed.parts and PROGRAMS & {*listed.parts})
    }


def _is_code(path: Path) -> bool:
    """Whether its content is the distribution's own: bytecode is where there is no source beside
    it.
    """
    return path.suffix != ".pth" and not any(part.endswith(NOT_CODE) for part in path.parts)
