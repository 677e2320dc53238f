"""What is called otherwise on another machine: its folders, its user and its own name, as it tells
them itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.forms.strict_json import JSON
from harness.world.control.names import QUOTED, ROOT, folder_of, word_of

MOST = 256
LONGEST = 1024
WORDS = frozenset({"", "~/", "<host>", "<user>"})


@dataclass(frozen=True, kw_only=True)
class Elsewhere:
    """The names of one machine, the longest first.

    Attributes:
        code: the folder there that its ranks import from.
        root: where Rankproof lies there.
        places: folders, each with what stands for it.
        homes: home folders.
        words: names, each with what stands for it.
    """

    code: Path
    root: str
    places: tuple[tuple[str, str], ...]
    homes: tuple[str, ...]
    words: tuple[tuple[str, str], ...]

    @classmethod
    def told(cls, found: Mapping[str, Any], *, code: str) -> Elsewhere:
        """As a machine tells them.

        Raises:
            ValueError: these are not such names.
        """
        places = found["places"]
        homes = found["homes"]
        words = found["words"]
        root = found["root"]
        pairs = [*places, *words]
        texts = [root, code, *homes, *(name for name, _ in pairs)]
        if (
            len(texts) > MOST
            or not all(isinstance(text, str) and 1 < len(text) <= LONGEST for text in texts)
            or not all(word in WORDS for _, word in pairs)
        ):
            raise ValueError("its names are not names")
        return cls(
            code=Path(code),
            root=root,
            places=tuple((place, word) for place, word in places),
            homes=tuple(homes),
            words=tuple(
                sorted(((name, word) for name, word in words), key=lambda pair: -len(pair[0]))
            ),
        )

    def as_here(self, text: str) -> str:
        """A text in which Rankproof's own files are where they are on this machine."""
        return text.replace(self.root + os.sep, ROOT + os.sep)

    def shorten(self, text: str) -> str:
        """As `harness.world.control.names.shorten`, for a text of that machine."""
        for place, word in self.places:
            text = text.replace(place + os.sep, word)
        text = QUOTED.sub(
            lambda found: (
                f'File "{Path(found[1]).name if found[1].startswith(os.sep) else found[1]}"'
            ),
            text,
        )
        text = self._hide_home(text)
        for name, word in self.words:
            if name in text:
                text = re.sub(word_of(name), word, text)
        return text

    def hide_home_in(self, value: JSON) -> JSON:
        """As `harness.world.control.names.hide_home_in`, for a value of that machine."""
        if isinstance(value, str):
            return self._hide_home(value) if os.sep in value else value
        if isinstance(value, list):
            return [self.hide_home_in(item) for item in value]
        if isinstance(value, dict):
            return {
                str(self.hide_home_in(key)): self.hide_home_in(item) for key, item in value.items()
            }
        return value

    def _hide_home(self, text: str) -> str:
        for place in self.homes:
            if place in text:
                text = re.sub(folder_of(place), "~", text)
        return text
