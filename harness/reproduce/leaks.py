"""A last look at what is about to leave the machine: does it name its user, or hold a secret of this shell?

Nothing of the kind should be there: ranks get an allow-list of variables, evidence is written without folders, users
and hosts. But a scenario, a patch and the code of a subject are whatever their author wrote.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from harness.world.control import names

Kind = Literal["home", "host", "secret", "user"]
KINDS: tuple[str, ...] = get_args(Kind)
# Only to look for values, never to choose what is recorded: that is an allow-list.
SECRET = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|AUTH(?!OR)|COOKIE|_PAT\b"
)
SHORTEST = 8
# A key lies in the copied code where `subject.path` took in more than was meant; a line of a patch begins with a mark.
PRIVATE_KEY = r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----\r?\n[-+ ]?[A-Za-z0-9+/=]{16}"


@dataclass(frozen=True)
class Leak:
    """A place that names something of this machine. What it is stands in the kind, and is not repeated."""

    path: str
    line: int
    kind: Kind
    what: str


class Needles:
    """What must not leave, as patterns over bytes."""

    def __init__(self, *, allowed: Iterable[str] = (), environ: Mapping[str, str] | None = None) -> None:
        """Gather them, but for kinds that may leave; secrets from `environ`, by default this process's environment."""
        words: list[tuple[Kind, str, str]] = [
            ("home", names.folder_of(place), "the path of the home folder") for place in names.homes()
        ]
        words += [("user", names.word_of(name), "the user's name") for name in sorted(names.users())]
        words += [("host", names.word_of(name), "the name of this machine") for name in sorted(names.hosts())]
        words.append(("secret", PRIVATE_KEY, "a private key"))
        for name, value in sorted((os.environ if environ is None else environ).items()):
            is_path = value.startswith(os.sep) and Path(value).exists()
            if SECRET.search(name.upper()) and len(value) >= SHORTEST and not is_path:
                words.append(("secret", re.escape(value), f"the value of {name}"))
        self._found: Sequence[tuple[Kind, re.Pattern[bytes], str]] = [
            (kind, re.compile(pattern.encode("utf-8", "surrogateescape")), what)
            for kind, pattern, what in words
            if kind not in allowed
        ]

    def look(self, path: str, data: bytes) -> list[Leak]:
        """The first place of each kind in a file, its name included."""
        leaks = []
        for kind, pattern, what in self._found:
            if pattern.search(os.fsencode(path)):
                leaks.append(Leak(path, 0, kind, what))
            elif (hit := pattern.search(data)) is not None:
                leaks.append(Leak(path, data.count(b"\n", 0, hit.start()) + 1, kind, what))
        return leaks
