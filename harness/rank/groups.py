"""Groups that a subject makes itself, beside the one it was given: told, with the size that the
library gives them.

MLX answers a setting it cannot use with a group of one, whose collectives do nothing and raise
nothing; a second `init_process_group` may be of any size. Only groups that stand for the whole
world are watched: what is cut out of one on purpose (`new_group`, `split`) is the subject's own
matter. Nothing is imported here for the sake of watching.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from harness.ledger.inside import hook_mlx, hook_torch
from harness.ledger.inside.book import Book

MADE = "group.made"
TORCH = "torch.distributed"
MLX = "mlx.core"
# Where torch keeps the function by name; what a subject imports later, it imports from one of
# these.
PLACES = (TORCH, "torch.distributed.distributed_c10d", "torch.distributed.device_mesh")
GROUPLESS = ("init", "is_available")


class Watch:
    """Watch over the two libraries for as long as the subject runs, also where the subject imports
    them.

    Attributes:
        tell: emits an event.
        size: of the world.
        book: takes their calls, where the scenario observes them.
    """

    def __init__(
        self, tell: Callable[[str, dict[str, Any]], None], *, size: int, book: Book | None = None
    ) -> None:
        self._tell = tell
        self._size = size
        self._book = book
        self._conclude: list[Callable[[], None]] = []
        self._pid = os.getpid()
        self._noted: set[tuple[str, int, int]] = set()

    def begin(self) -> None:
        """Begin, after the rank has joined its own group."""
        for name in (TORCH, MLX):
            if name in sys.modules:
                self._watch(name)
        sys.meta_path.insert(0, self)

    def look(self) -> None:
        """Look once more when the subject has returned, for what was made past this watch."""
        for conclude in self._conclude:
            conclude()
        distributed = sys.modules.get(TORCH)
        with contextlib.suppress(Exception):  # a subject may leave anything in sys.modules
            if (
                distributed is not None
                and distributed.is_initialized()
                and distributed.get_world_size() != self._size
            ):
                self._note_torch(distributed)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Let the other finders find one of the two libraries, and begin to watch it once it is
        loaded.
        """
        if name not in (TORCH, MLX):
            return None
        for finder in sys.meta_path:
            # The import system passes over a finder without `find_spec`, too.
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find is None else find(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    loader: Any = _Loader(spec.loader, functools.partial(self._watch, name))
                    spec.loader = loader
                return spec
        return None

    def _watch(self, name: str) -> None:
        # Another version may have none of this: then there is nothing to watch.
        with contextlib.suppress(Exception):
            if name == TORCH:
                self._watch_torch(sys.modules[TORCH])
            else:
                self._watch_mlx(sys.modules[MLX].distributed)
        if self._book is not None:
            if name == TORCH:
                conclude = hook_torch.install(self._book, sys.modules["torch"])
            else:
                conclude = hook_mlx.install(self._book, sys.modules[MLX])
            self._conclude.append(conclude)

    def _watch_torch(self, distributed: Any) -> None:
        original = distributed.init_process_group

        @functools.wraps(original)
        def init_process_group(*arguments: Any, **options: Any) -> Any:
            group = original(*arguments, **options)
            self._note_torch(distributed)
            return group

        for place in PLACES:
            module = sys.modules.get(place)
            if getattr(module, "init_process_group", None) is original:
                # Mypy knows no such attribute.
                setattr(module, "init_process_group", init_process_group)  # noqa: B010

    def _watch_mlx(self, distributed: Any) -> None:
        original = distributed.init

        @functools.wraps(original)
        def init(*arguments: Any, **options: Any) -> Any:
            group = original(*arguments, **options)
            self._note(f"{MLX}.distributed", group.rank(), group.size())
            return group

        def in_the_global_group(collective: Any) -> Any:
            @functools.wraps(collective)
            def call(*arguments: Any, **options: Any) -> Any:
                if options.get("group") is None:
                    # What MLX itself does here; it keeps the group, and gives the same one from
                    # then on.
                    init()
                return collective(*arguments, **options)

            return call

        for name, value in list(vars(distributed).items()):
            if (
                not name.startswith("_")
                and name not in GROUPLESS
                and callable(value)
                and not isinstance(value, type)
            ):
                setattr(distributed, name, in_the_global_group(value))
        distributed.init = init

    def _note_torch(self, distributed: Any) -> None:
        self._note(TORCH, distributed.get_rank(), distributed.get_world_size())

    def _note(self, library: str, rank: int, size: int) -> None:
        """Report each group once. A child that the subject forked does not report for the rank."""
        if (library, rank, size) in self._noted or os.getpid() != self._pid:
            return
        self._noted.add((library, rank, size))
        # The subject may have closed the channel, which is found out elsewhere.
        with contextlib.suppress(OSError):
            self._tell(MADE, {"library": library, "rank": rank, "size": size})


class _Loader:
    """Loader that calls another one, and then a function.

    The other takes its place in the module again before anything of the module runs.
    """

    def __init__(self, loader: Any, then: Callable[[], None]) -> None:
        self._loader = loader
        self._then = then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._then()
