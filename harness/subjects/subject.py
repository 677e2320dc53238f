"""Description of a ready-made subject: its code, what it is told, and what it tells.

Nothing of it is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

INSIDE = "_inside"
NO_DEFECT = "none"
"""The value of an argument `defect` for code that is whole."""


@dataclass(frozen=True, kw_only=True)
class Argument:
    """Argument of a ready-made subject, given in `with` or as an axis of the matrix.

    Attributes:
        does: what it changes, in words.
        default: what it is where nothing is given; its type is the argument's. A tuple stands for a
            list of prompts.
        choices: all that it may be, or nothing where it is free.
        at_least, at_most: bounds of a number.
        names_an_input: whether its value is the name of one of the scenario's inputs.
        texts: of a list, whether an item may be a text beside a list of token ids.
        of_the_ranks: whether it says how the ranks go about it, and nothing of what has to come
            out: as an axis, it leaves a reference that all cells share as it is.
    """

    does: str
    default: str | int | tuple[str, ...]
    choices: tuple[str, ...] = ()
    at_least: int = 1
    at_most: int = 1_000_000
    names_an_input: bool = False
    texts: bool = True
    of_the_ranks: bool = False

    def complaint(self, value: object) -> str:
        """Return why it cannot be this value; empty where it can."""
        if self.choices:
            return "" if value in self.choices else f"must be one of {', '.join(self.choices)}"
        if isinstance(self.default, tuple):
            if isinstance(value, list | tuple) and all(self._is_item(item) for item in value):
                return "" if value or not self.default else "must contain at least one item"
            return f"must be a list of {'strings or ' if self.texts else ''}lists of token ids"
        if isinstance(self.default, str):
            return "" if isinstance(value, str) and value else "must be a string"
        if type(value) is not int or not self.at_least <= value <= self.at_most:
            return f"must be a whole number from {self.at_least} to {self.at_most}"
        return ""

    def _is_item(self, item: object) -> bool:
        if isinstance(item, str):
            return self.texts and bool(item)
        return (
            isinstance(item, list)
            and bool(item)
            and all(type(token) is int and token >= 0 for token in item)
        )


@dataclass(frozen=True, kw_only=True)
class ReadySubject:
    """Subject that a scenario names with `use`.

    Attributes:
        does: what its ranks do, in words.
        file: its code. MODULE_inside.py is MODULE.py in an arm; a file of a folder PACKAGE_inside
            is PACKAGE/FILE there, with all other files of the folder.
        function: what every rank calls of it.
        backends: those that it can work on.
        arguments: name to argument.
        emits: name of an event to the keys of its values.
        reference: `module:function` among its files that does the same in one process with the
            whole, or empty.
        refuses: given all arguments, where each input lies and a world size, why its engine cannot
            run that, by the libraries that are installed here; empty where it can. None where it
            takes whatever it is given.
        lacks: name of an argument that others like it take to why this one does not.
        misfit: given all arguments (each one right by itself) and a world size, the argument at
            which the subject would refuse to start, and why; None where it would not.
        question: given all arguments, those that say what is asked, in which an arm that differs
            from its reference gives another answer whatever its code does.
    """

    does: str
    file: Path
    backends: tuple[str, ...]
    arguments: Mapping[str, Argument]
    emits: Mapping[str, tuple[str, ...]]
    function: str = "run"
    reference: str = ""
    lacks: Mapping[str, str] = field(default_factory=dict)
    refuses: Callable[[Mapping[str, object], Mapping[str, Path], int], str] | None = None
    misfit: Callable[[Mapping[str, object], int], tuple[str, str] | None] = (
        lambda _arguments, _ranks: None
    )
    question: Callable[[Mapping[str, object]], tuple[str, ...]] = lambda _arguments: ()

    @property
    def module(self) -> str:
        """Name that its code has in an arm."""
        name = self.file.stem.removesuffix(INSIDE)
        return f"{self.package}.{name}" if self.package else name

    @property
    def package(self) -> str:
        """Package that its code is a module of; empty where it stands alone."""
        folder = self.file.parent.name
        return folder.removesuffix(INSIDE) if folder.endswith(INSIDE) else ""

    @property
    def entry(self) -> str:
        """`module:function`, as `subject.entry` would name it."""
        return f"{self.module}:{self.function}"

    def files(self) -> dict[str, bytes]:
        """Return the files that both arms get, by name."""
        if not self.package:
            return {f"{self.module}.py": self.file.read_bytes()}
        return {
            f"{self.package}/{path.name}": path.read_bytes()
            for path in sorted(self.file.parent.glob("*.py"))
        }
