"""Registries of kinds, filled from their own package and from the entry points of other
distributions.

Our own kinds are found by the text of their files, and imported only when somebody asks for one: a
scenario uses few of them, and importing all of them takes longer than checking it. The kinds of
plug-ins are named by the metadata of their distributions: see `harness.plugins`. A plug-in that
cannot be used is not fatal: it is listed with the reason, and whoever asks for its kind gets the
reason.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import re
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
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

from harness import plugins
from harness.plugins import Plugin, PluginFailed

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# A class, or the field by which it says what kind it is. Beginning with the newline is five times
# as fast as ^, and every command that reads a scenario waits for this.
CLASS_OR_KIND = re.compile(r'\n(?:class (\w+)|    kind: Literal\["([^"]+)"\])')

T = TypeVar("T")


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


def declared_in(folder: Path, *, first: Sequence[str] = ()) -> dict[str, str]:
    """Find the kinds that the files of a folder declare, without importing any.

    A class declares a kind by the field `kind: Literal["NAME"]`. So a kind enters by its own file.

    Args:
        folder: of the package.
        first: names that are listed first, in this order; the others follow by name.

    Returns:
        Name of the kind to `module:class`.

    Raises:
        ValueError: two classes declare one kind, or none declares one that is listed first.
    """
    declared: dict[str, str] = {}
    # Editors and archives leave files such as `.#pause.py` beside modules.
    for path in folder.glob("[!.]*.py"):
        owner = ""
        for class_name, kind in CLASS_OR_KIND.findall(path.read_text(encoding="utf-8")):
            if class_name:
                owner = f"{path.stem}:{class_name}"
            elif kind in declared:
                raise ValueError(f"{declared[kind]} and {owner} both declare the kind {kind}")
            else:
                declared[kind] = owner
    if missing := set(first) - declared.keys():
        # A package in a zip has no files to read, and would have no kinds.
        raise ValueError(f"no module in {folder} declares the kinds {', '.join(sorted(missing))}")
    return {name: declared[name] for name in dict.fromkeys([*first, *sorted(declared)])}


class Registry(Mapping[str, T], Generic[T]):
    """Kinds by name: our own first, then those of plug-ins, by name.

    To look up a kind, or whether it is there, imports the plug-in that brings it and no other. To
    go through the registry imports every plug-in: only commands that list kinds do it.

    Attributes:
        group: name of the group of entry points.
        ours: the kinds of this project; a `Package` imports each when it is asked for.
        plugins: kind to plug-in, of those that were imported and can be used.
    """

    def __init__(
        self, group: str, base: type, ours: Mapping[str, T], *, taken: Collection[str] = ()
    ) -> None:
        """Fill it.

        Args:
            group: name of the group of entry points.
            base: what a kind is a subclass or an instance of.
            ours: the kinds of this project.
            taken: other names that no plug-in may have.
        """
        self.group = group
        self._taken = frozenset(taken)
        self._base = base
        self.ours = ours
        self.plugins: dict[str, Plugin] = {}
        self._broken: dict[str, str] = {}
        # The kinds of plug-ins that were imported and can be used.
        self._brought: dict[str, T] = {}
        # The entry points that nobody asked for yet, by name.
        self._pending: dict[str, list[importlib.metadata.EntryPoint]] = {}
        for point in sorted(
            plugins.entry_points(group), key=lambda point: (point.name, point.value)
        ):
            self._pending.setdefault(point.name, []).append(point)

    @property
    def names(self) -> list[str]:
        """Names of our kinds and of those that the metadata of others states, without an import."""
        return list(dict.fromkeys([*self.ours, *self._brought, *self._pending]))

    @property
    def described(self) -> Mapping[str, T]:
        """Our kinds, which this imports, and those of plug-ins that somebody asked for."""
        return {**self.ours, **self._brought}

    @property
    def broken(self) -> dict[str, str]:
        """Kind to the reason why a plug-in's kind cannot be used. Imports every plug-in."""
        self._load_all()
        return self._broken

    def reason(self, name: str) -> str:
        """Why the kind of a plug-in cannot be used; empty where it can, or no plug-in brings it."""
        if name in self.ours:
            # A plug-in that claims the name is listed as broken; ours can be used all the same.
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
                "another distribution also provides a kind with this name, so it is ambiguous;"
                " uninstall one of them"
            )
        else:
            reason = self._add(point)
        if reason:
            self._broken[name] = f"the plug-in {point.value} of {owner} cannot be used: {reason}"

    def _add(self, point: importlib.metadata.EntryPoint) -> str:
        """Take in the kind of a plug-in; return why it cannot be used, or nothing."""
        if not NAME.fullmatch(point.name):
            return (
                "its name is also used for file names; use only letters, digits, dots, dashes and"
                " underscores"
            )
        if point.name in self.ours or point.name in self._taken:
            return "Rankproof already has a kind with this name; the plug-in must use another name"
        plugins.TRIED.add(point.value)
        try:
            kind = point.load()
            plugin = plugins.plugin_of(point)
        # Somebody else's module may raise anything.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            return f"{type(error).__name__}: {error}"
        reason = _misfit(kind, self._base, point.name) or plugins.unusable_file(kind, point)
        if reason:
            return reason
        properties = (
            type(kind.properties) for kind in self.ours.values() if hasattr(kind, "properties")
        )
        wanted: type = next(properties, object)
        if not isinstance(getattr(kind, "properties", None), wanted):
            return f"its properties must be of the type {wanted.__module__}.{wanted.__qualname__}"
        self._brought[point.name] = kind
        self.plugins[point.name] = plugin
        plugins.note_files(point, plugin)
        return ""

    @contextlib.contextmanager
    def guarded(self, name: str, *, but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
        """Guard a call of a kind that must not raise.

        What our own kind raises is a bug of ours, and passes.

        Args:
            name: the kind.
            but: what it may raise.

        Raises:
            PluginFailed: the kind of a plug-in raised.
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
                f" ({where}); report this to its authors"
            ) from error

    def __getitem__(self, name: str) -> T:
        self._load(name)
        return self.ours[name] if name in self.ours else self._brought[name]

    def __contains__(self, name: object) -> bool:
        if name in self.ours:
            return True
        if isinstance(name, str):
            self._load(name)
        return name in self._brought

    def __iter__(self) -> Iterator[str]:
        self._load_all()
        return iter([*self.ours, *self._brought])

    def __len__(self) -> int:
        self._load_all()
        return len(self.ours) + len(self._brought)


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
        """Ask whether a plug-in brings the kind before choosing among our own."""
        choices = {name: self._choice(name) for name in self._registry.ours}
        ours = core_schema.tagged_union_schema(choices, "kind", strict=False, from_attributes=True)
        return core_schema.with_info_wrap_validator_function(self._validate, ours)

    def __get_pydantic_json_schema__(
        self, _schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Describe our kinds, and those of plug-ins that were imported before."""
        # The members are known only when this runs.
        every: Any = Union[tuple(self._registry.described.values())]  # noqa: UP007
        return handler(TypeAdapter[Any](Annotated[every, Field(discriminator="kind")]).core_schema)

    def _choice(self, name: str) -> core_schema.CoreSchema:
        """Validate by the model of a kind, which is imported when a section is of it."""
        return core_schema.with_info_plain_validator_function(
            lambda value, info: self._registry.ours[name].model_validate(
                value, context=info.context
            )
        )

    def _validate(
        self, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> Any:
        kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
        if not isinstance(kind, str) or kind in self._registry.ours or kind not in self._registry:
            return handler(value)
        return self._registry[kind].model_validate(value, context=info.context)


def _misfit(kind: object, base: type, name: str) -> str:
    """Why an object is not a kind of the registry; empty where it is."""
    is_kind = issubclass(kind, base) if isinstance(kind, type) else isinstance(kind, base)
    if not is_kind:
        return f"it is not a {base.__module__}.{base.__qualname__}"
    if getattr(kind, "name", name) != name and not isinstance(kind, type):
        return (
            f"its name is {getattr(kind, 'name', name)}, but its entry point has a different name"
        )
    # A missing declaration would otherwise show when somebody asks for it, in the middle of a run.
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
