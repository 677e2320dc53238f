"""What a tokenizer is, as two digests and the parts they were made from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, get_args

from harness.forms.strict_json import NotStrict, strict_json
from harness.tokenizer.digest import canonical_json, digest
from harness.tokenizer.probes import VERSION as PROBES_VERSION
from harness.tokenizer.problem import IdentityMalformed

SCHEMA = 1
LARGEST = 8 << 20
Depth = Literal["cheap", "full"]

# The semantic digest is made of these parts and no others.
SEMANTIC = ("scope", "encoding", "names", "special tokens", "chat templates", "own code")


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What a tokenizer is.

    Attributes:
        semantic: sha256, 64 hex digits: same ids for every text, same special tokens, same chat templates.
        full: sha256, 64 hex digits, of every part; compare it between identities of one depth only.
        parts: what was found, by name: `sha256:` and 64 hex digits, or the value itself where it is short.
        depth: `cheap` leaves out what takes long: the object's own `get_vocab`, and the round trip.
    """

    semantic: str
    full: str
    parts: Mapping[str, str]
    depth: Depth

    @classmethod
    def of(cls, parts: Mapping[str, str], *, depth: Depth) -> Identity:
        """The identity made of these parts."""
        whole = dict(sorted(parts.items()))
        return cls(
            semantic=digest(f"tokenizer semantic {SCHEMA}", {name: whole[name] for name in SEMANTIC if name in whole}),
            full=digest(f"tokenizer full {SCHEMA} {depth}", whole),
            parts=MappingProxyType(whole),
            depth=depth,
        )

    def to_json(self) -> str:
        """One line of JSON that `from_json` reads."""
        return canonical_json(
            {
                "schema": SCHEMA,
                "probes": PROBES_VERSION,
                "depth": self.depth,
                "semantic": self.semantic,
                "full": self.full,
                "parts": dict(self.parts),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Identity:
        """Read what `to_json` wrote.

        Raises:
            IdentityMalformed: for anything else, and where the digests do not follow from the parts.
        """
        if len(text) > LARGEST:
            raise IdentityMalformed(f"an identity has at most {LARGEST} characters, not {len(text)}")
        try:
            read = strict_json(text)
        except NotStrict as error:
            raise IdentityMalformed(f"not an identity: {error}") from None
        keys = {"schema", "probes", "depth", "semantic", "full", "parts"}
        if not isinstance(read, dict) or set(read) != keys:
            raise IdentityMalformed(f"not an identity: the keys must be {', '.join(sorted(keys))}")
        if (read["schema"], read["probes"]) != (SCHEMA, PROBES_VERSION) or isinstance(read["schema"], bool):
            raise IdentityMalformed(
                f"identity of schema {read['schema']!r} with probes {read['probes']!r}; this version writes {SCHEMA} "
                f"with {PROBES_VERSION}: identify the tokenizer again"
            )
        if read["depth"] not in get_args(Depth):
            raise IdentityMalformed(f"depth must be cheap or full, not {read['depth']!r}")
        parts = read["parts"]
        if not isinstance(parts, dict) or not parts or not all(isinstance(value, str) for value in parts.values()):
            raise IdentityMalformed("parts must be an object of strings")
        try:
            made = cls.of(parts, depth=read["depth"])
        except UnicodeEncodeError:
            raise IdentityMalformed("parts hold half a character (a lone surrogate)") from None
        for name in ("semantic", "full"):
            if not isinstance(read[name], str) or not re.fullmatch("[0-9a-f]{64}", read[name]):
                raise IdentityMalformed(f"{name} must be 64 lower-case hex digits")
            if read[name] != getattr(made, name):
                raise IdentityMalformed(f"{name} does not follow from the parts: the identity was edited")
        return made

    def __hash__(self) -> int:
        return hash(self.full)

    def __reduce__(self) -> tuple[Any, ...]:
        return Identity.from_json, (self.to_json(),)
