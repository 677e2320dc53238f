"""What an engine's adapter is: a small class that the process with limits makes and asks."""

from __future__ import annotations

from typing import Literal, Protocol, get_args

Mode = Literal["plain", "special", "around"]
MODES: tuple[Mode, ...] = get_args(Mode)
Ids = list[int]


class Adapter(Protocol):
    """An engine with one tokenizer.

    Attributes:
        about: the engine with its version.
        modes: those that it has.
    """

    about: str
    modes: tuple[Mode, ...]

    def encode(self, text: str, mode: Mode) -> Ids:
        """The ids of a text; raises where the engine refuses it."""

    def decode(self, ids: Ids) -> str:
        """The text of ids; raises where the engine does not tell."""

    def tokens(self) -> list[str]:
        """Every token as the text that it stands for, as far as it is text; empty where the engine does not tell."""

    def special(self) -> list[str]:
        """Special and added tokens, as far as the engine tells them."""
