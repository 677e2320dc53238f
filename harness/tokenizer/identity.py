"""The identity of a tokenizer: two digests, and the parts they were made from.

`PROBES` are texts on which tokenizers that are not the same tend to differ. Changing a text changes
every identity, so `PROBES_VERSION` changes with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, get_args

from harness.forms.digest import sha256
from harness.forms.strict_json import NotStrict, strict_json
from harness.tokenizer.problem import IdentityMalformed

SHORT = 240


def canonical_json(value: Any) -> str:
    """Return the one JSON text of a value: keys sorted, no spaces, no escapes but those JSON
    needs.
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def digest(kind: str, value: Any) -> str:
    """64 hex digits of a value; `kind` keeps digests of different things apart."""
    return sha256(f"{kind}\n{canonical_json(value)}".encode())


def digest_text(text: str | bytes) -> str:
    """`sha256:` and 64 hex digits of a text.

    Half a character (a lone surrogate) is taken as it is.
    """
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return f"sha256:{sha256(raw)}"


def short(value: Any) -> str:
    """Return a value as a part: its JSON where that is short, else the digest of it."""
    text = canonical_json(value)
    return text if len(text) <= SHORT else digest_text(text)


PROBES_VERSION = 1

PROBES: dict[str, str] = {
    "plain": "Hello world, this is a test of 1 tokenizer.",
    "case": "The QUICK brown fOX, İstanbul ẞtraße ǅ",
    "contractions": "I'm sure they've won't he'll she'd it's DON'T",
    "leading spaces": "   three leading, two trailing  ",
    "inner spaces": "a  b   c\u00a0d\u2003e\u3000f",
    "lines": "one\ntwo\r\n\n\n\tthree\n",
    "digits": "0 12 345 6789 1234567 3.14159 1,000,000 ٣٤٥ ４５",
    "code": "def f(x):\n    return {'a': x[0] != None, \"b\": `y`}  # <!-- ok --> &&|| a_b->c::d\n",
    "punctuation": "¿Qué? «non» — “yes”… ((a)) [b] {c} !!! ,,, ...",
    "accents": "Crème brûlée, naïve façade, Ångström, žluťoučký kůň",
    "combining": "e\u0301 a\u030a\u0323 n\u0303 o\u0308\u0304 \u1e9b\u0323 \u212b \ufb01",
    "cjk": "東京の天気は晴れです。我爱北京天安门，한국어 문장입니다.",
    "emoji": "👩\u200d👩\u200d👧\u200d👦 🏳️\u200d🌈 👍🏽 🇩🇪 ❤️ ☺",
    "right to left": "שלום עולם, مرحبا بالعالم ١٢٣ \u200fabc\u200e",
    "scripts": "Ελληνικά кириллица हिन्दी ภาษาไทย ქართული አማርኛ",
    "bytes": "𐍈 \U0001f9ff \U00020bb7 \ue000 \ufffd \U0010fffd",
    "controls": "a\x00b\x07c\x1bd\x7fe\u200bf\ufeffg\u00adh",
    "special look-alikes": (
        "<s> </s> <|endoftext|> <|im_start|>user [CLS] [SEP] [UNK] <unk> <pad> <0x0A> <mask>"
    ),
    "special spacing": " <s>a </s> b<|endoftext|>c  <mask>  d [MASK]e",
    "metaspace": "▁a ▁▁b Ġc Ċd ##e e</w> @@f",
    "url": "https://example.org/a?b=c&d=%20#e user@example.org",
    "long word": (
        "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft" * 3
    ),
    "repeats": "aaaaaaaaaaaaaaaa  ababababab  \t\t\t\t",
    "one letter": "a",
    "one space": " ",
    "nothing": "",
}
PAIR = ("one letter", "digits")


SCHEMA = 1
LARGEST = 8 << 20
Depth = Literal["cheap", "full"]

# The semantic digest is made of these parts and no others.
SEMANTIC = ("scope", "encoding", "names", "special tokens", "chat templates", "own code")


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The identity of a tokenizer.

    Attributes:
        semantic: sha256, 64 hex digits: same ids for every text, same special tokens, same chat
            templates.
        full: sha256, 64 hex digits, of every part; compare it between identities of one depth only.
        parts: what was found, by name: `sha256:` and 64 hex digits, or the value itself where it is
            short.
        depth: `cheap` leaves out what takes long: the object's own `get_vocab`, and the round trip.
    """

    semantic: str
    full: str
    parts: Mapping[str, str]
    depth: Depth

    @classmethod
    def of(cls, parts: Mapping[str, str], *, depth: Depth) -> Identity:
        """Return the identity made of these parts."""
        whole = dict(sorted(parts.items()))
        return cls(
            semantic=digest(
                f"tokenizer semantic {SCHEMA}",
                {name: whole[name] for name in SEMANTIC if name in whole},
            ),
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
            IdentityMalformed: for anything else, and where the digests do not follow from the
                parts.
        """
        if len(text) > LARGEST:
            raise IdentityMalformed(
                f"the identity has {len(text)} characters, but at most {LARGEST} are allowed"
            )
        try:
            read = strict_json(text)
        except NotStrict as error:
            raise IdentityMalformed(f"not an identity: {error}") from None
        keys = {"schema", "probes", "depth", "semantic", "full", "parts"}
        if not isinstance(read, dict) or set(read) != keys:
            raise IdentityMalformed(f"not an identity: the keys must be {', '.join(sorted(keys))}")
        if (read["schema"], read["probes"]) != (SCHEMA, PROBES_VERSION) or isinstance(
            read["schema"], bool
        ):
            raise IdentityMalformed(
                f"the identity has schema {read['schema']!r} and probes {read['probes']!r}, but"
                f" this version needs schema {SCHEMA} and probes {PROBES_VERSION}; create the"
                " identity again with `rankproof tokenizer identity`"
            )
        if read["depth"] not in get_args(Depth):
            raise IdentityMalformed(f"depth must be cheap or full, not {read['depth']!r}")
        parts = read["parts"]
        if (
            not isinstance(parts, dict)
            or not parts
            or not all(isinstance(value, str) for value in parts.values())
        ):
            raise IdentityMalformed("parts must be a non-empty object whose values are strings")
        try:
            identity = cls.of(parts, depth=read["depth"])
        except UnicodeEncodeError:
            raise IdentityMalformed(
                "parts contain a lone surrogate, which is only half of a character"
            ) from None
        for name in ("semantic", "full"):
            if not isinstance(read[name], str) or not re.fullmatch("[0-9a-f]{64}", read[name]):
                raise IdentityMalformed(f"{name} must be 64 lower-case hex digits")
            if read[name] != getattr(identity, name):
                raise IdentityMalformed(
                    f"the {name} digest does not match the rest of the identity, so the identity was"
                    " edited; create it again with `rankproof tokenizer identity`"
                )
        return identity

    def __hash__(self) -> int:
        return hash(self.full)

    def __reduce__(self) -> tuple[Any, ...]:
        return Identity.from_json, (self.to_json(),)
