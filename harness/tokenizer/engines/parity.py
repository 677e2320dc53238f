"""Compare the ids of an engine with those of another engine, or with a golden file.

Texts are fixed, or generated so that a seed gives the same ones again. They contain what engines
are known to disagree about: spaces, digits, apostrophes, combining marks, bytes that no word holds,
tokens side by side, and special tokens with something around them.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field

from harness.forms.model import Model, SchemaVersion, parse_json
from harness.forms.regular_file import read_regular
from harness.tokenizer.comparison.example import TURNING
from harness.tokenizer.engines import Engine, EngineFailed
from harness.tokenizer.engines.adapters import MODES, Ids, Mode
from harness.tokenizer.identity import PROBES, canonical_json
from harness.tokenizer.problem import Unreadable, refused

# Changes with what is generated, so that a seed means the same texts.
TEXTS_VERSION = 1
_SPACES = " \t\n\r\u00a0\u2003\u3000\u200b\v\f\x85\u2028"
_SIGNS = "'\"`’.,:;!?-_/\\()[]{}<>|@#$%^&*+=~"
_LETTERS = "abcxyzSTDMLRVEstdmlrve"
_RANGES = (
    (0x20, 0x7E), (0xA0, 0x17F), (0x300, 0x36F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0x97F),
    (0xE00, 0xE7F), (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2190, 0x23FF),
    (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFB00, 0xFDFF), (0xFE00, 0xFE0F),
    (0xFF00, 0xFFEF), (0x10000, 0x100FF), (0x1F300, 0x1FAFF), (0x20000, 0x2A6DF),
    (0xE0100, 0xE01EF),
)  # fmt: skip


def fixed_texts() -> list[str]:
    """Return the probe corpus and what turns options on, without the empty text."""
    return [text for text in dict.fromkeys((*PROBES.values(), *TURNING)) if text]


def generated_texts(
    count: int, *, seed: int, tokens: Sequence[str] = (), special: Sequence[str] = ()
) -> list[str]:
    """So many texts, the same for the same arguments.

    Args:
        count: how many.
        seed: any number.
        tokens: the vocabulary as text; where there is none, words are made up.
        special: special and added tokens.
    """
    # To be said again, not to be secret.
    rng = random.Random(f"{TEXTS_VERSION} {seed}")  # noqa: S311
    words = [token for token in tokens if token and "\ufffd" not in token] or [
        "the",
        " of",
        "ing",
        "東京",
        "é",
    ]
    kinds: list[Callable[[], str]] = [
        lambda: "".join(rng.choice(words) for _ in range(rng.randint(1, 6))),
        lambda: rng.choice(words),
        lambda: (
            rng.choice(_SPACES) * rng.randint(1, 3)
            + rng.choice(words)
            + rng.choice(_SPACES) * rng.randint(0, 3)
        ),
        lambda: "".join(_character(rng) for _ in range(rng.randint(1, 12))),
        lambda: (
            "".join(rng.choice("0123456789٣４.,:") for _ in range(rng.randint(1, 9)))
            + rng.choice(("", "a", " "))
        ),
        lambda: "".join(rng.choice(_LETTERS + "'’ ") for _ in range(rng.randint(2, 9))),
        lambda: "".join(rng.choice(_SIGNS + _SPACES + _LETTERS) for _ in range(rng.randint(1, 12))),
        lambda: (
            rng.choice(words)
            + "".join(chr(rng.randint(0x300, 0x36F)) for _ in range(rng.randint(1, 3)))
        ),
        lambda: rng.choice(words).swapcase() + rng.choice(_SIGNS) + rng.choice(words).capitalize(),
    ]
    if special:
        around = (" ", "", "a", "\n", "  ", "é")
        kinds += [
            lambda: (
                rng.choice(around) + rng.choice(special) + rng.choice(around) + rng.choice(words)
            )
        ] * 2
        kinds.append(lambda: rng.choice(special)[: rng.randint(1, 8)] + rng.choice(words))
    return [kinds[number % len(kinds)]() for number in range(count)]


def _character(rng: random.Random) -> str:
    first, last = rng.choice(_RANGES)
    return chr(rng.randint(first, last))


# Of shortening; each asks both engines once.
ROUNDS = 200


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """A text that the two encode differently.

    Attributes:
        text: the shortest that was found: without any one of its characters, both agree.
        mode: the mode in which it was asked.
        first, second: ids, or the error in words.
        at: index of the first id that differs.
    """

    text: str
    mode: Mode
    first: Ids | str
    second: Ids | str
    at: int


@dataclass(frozen=True, kw_only=True)
class EngineParity:
    """The outcome of asking two engines for the same texts.

    Attributes:
        engines: both, with their versions.
        modes: those that both have.
        texts: how many were asked for in each mode.
        differing: how many of them differ, over all modes.
        mismatch: the shortest; None where nothing differs.
        seed: of the generated texts.
    """

    engines: tuple[str, str]
    modes: tuple[Mode, ...]
    texts: int
    differing: int
    mismatch: Mismatch | None
    seed: int


def parity(
    first: Engine, second: Engine, *, corpus: Sequence[str] = (), count: int = 2000, seed: int = 0
) -> EngineParity:
    """Ask both engines for the same texts in every mode that both have.

    Args:
        first: a running engine.
        second: another.
        corpus: more texts, beside the fixed ones.
        count: how many to generate.
        seed: of the generated ones.

    Raises:
        EngineFailed: one died, or they have no mode in common.
    """
    modes = tuple(mode for mode in MODES if mode in first.modes and mode in second.modes)
    if not modes:
        raise EngineFailed(
            f"{first.about} supports the modes {', '.join(first.modes)}, and {second.about}"
            f" supports {', '.join(second.modes)}; they have no mode in common"
        )
    # The larger vocabulary has more to disagree about.
    tokens, special = max(
        (first.vocabulary(), second.vocabulary()), key=lambda texts: len(texts[0])
    )
    asked = [
        *fixed_texts(),
        *corpus,
        *generated_texts(count, seed=seed, tokens=tokens, special=special),
    ]
    asked = list(dict.fromkeys(text for text in asked if _is_text(text)))
    differing: list[tuple[str, Mode]] = []
    for mode in modes:
        flags = _differing(first, second, mode, asked)
        differing += [(text, mode) for text, differs in zip(asked, flags, strict=True) if differs]
    mismatch = None
    if differing:
        text, mode = min(differing, key=lambda row: (len(row[0]), row[0]))
        mismatch = _mismatch(
            first, second, mode, shortest(text, partial(_differing, first, second, mode))
        )
    return EngineParity(
        engines=(first.about, second.about),
        modes=modes,
        texts=len(asked),
        differing=len(differing),
        mismatch=mismatch,
        seed=seed,
    )


def shortest(text: str, differ: Callable[[Sequence[str]], list[bool]]) -> str:
    """Take characters away, and make them plain, as long as the text still differs.

    Args:
        text: one that differs.
        differ: says of each text whether it does.

    Returns:
        A text that differs, and no longer does without any one of its characters.
    """
    size = max(1, len(text) // 2)
    for _ in range(ROUNDS):
        cuts = [text[:at] + text[at + size :] for at in range(0, len(text), size)]
        smaller = _first_that_differs([cut for cut in dict.fromkeys(cuts) if cut], differ)
        if smaller is not None:
            text = smaller
            size = max(1, min(size, len(text) // 2))
        elif size > 1:
            size //= 2
        else:
            break
    plainer = [text[:at] + "a" + text[at + 1 :] for at in range(len(text)) if text[at] != "a"]
    return _first_that_differs(plainer, differ) or text


def _first_that_differs(
    texts: Sequence[str], differ: Callable[[Sequence[str]], list[bool]]
) -> str | None:
    if not texts:
        return None
    return next((text for text, differs in zip(texts, differ(texts), strict=True) if differs), None)


def _encode(engine: Engine, texts: Sequence[str], mode: Mode) -> list[Ids | None]:
    """Ids of each text; None where the engine refuses it.

    Errors are alike, whatever their words.
    """
    return [None if isinstance(ids, str) else ids for ids in engine.encode(texts, mode)]


def _differing(first: Engine, second: Engine, mode: Mode, texts: Sequence[str]) -> list[bool]:
    pairs = zip(_encode(first, texts, mode), _encode(second, texts, mode), strict=True)
    return [left != right for left, right in pairs]


def _mismatch(first: Engine, second: Engine, mode: Mode, text: str) -> Mismatch:
    left = first.encode([text], mode)[0]
    right = second.encode([text], mode)[0]
    at = 0
    if not isinstance(left, str) and not isinstance(right, str):
        shorter = min(len(left), len(right))
        at = next((index for index in range(shorter) if left[index] != right[index]), shorter)
    return Mismatch(text=text, mode=mode, first=left, second=right, at=at)


def _is_text(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


LARGEST_GOLDEN = 64 << 20
# Texts.
MOST_GOLDEN = 100_000
GoldenIds = list[Annotated[int, Field(ge=0)]]


class GoldenText(Model):
    """One text with its ids.

    Attributes:
        text: the text.
        mode: how it was asked: `plain`, `special` or `around`.
        ids: what the tokenizer gave; None where it refused the text.
    """

    text: str
    mode: Mode
    ids: GoldenIds | None


class GoldenFile(Model):
    """A golden file. Closed and strict.

    Attributes:
        schema_: 1.
        made_with: the engine that gave the ids, with its version.
        texts: every text.
    """

    schema_: SchemaVersion = Field(alias="schema")
    made_with: str
    texts: Annotated[list[GoldenText], Field(min_length=1, max_length=MOST_GOLDEN)]


def record_golden(engine: Engine, *, count: int = 500, seed: int = 0) -> GoldenFile:
    """Ask an engine for the ids of the fixed texts, and of generated ones, in every mode that it
    has.
    """
    tokens, special = engine.vocabulary()
    texts = list(
        dict.fromkeys(
            [*fixed_texts(), *generated_texts(count, seed=seed, tokens=tokens, special=special)]
        )
    )
    rows = [
        GoldenText(text=text, mode=mode, ids=ids)
        for mode in engine.modes
        for text, ids in zip(texts, _encode(engine, texts, mode), strict=True)
    ]
    return GoldenFile(schema=1, made_with=engine.about, texts=rows)


def changed_ids(engine: Engine, contract: GoldenFile) -> list[tuple[GoldenText, list[int] | None]]:
    """Return the texts of which the ids are others now, with those ids; none: the contract holds.

    Raises:
        EngineFailed: the engine died, or has not every mode of the contract: then it is not shown
            to hold.
    """
    lacking = sorted({row.mode for row in contract.texts} - set(engine.modes))
    if lacking:
        raise EngineFailed(
            f"{engine.about} does not support the encoding mode {lacking[0]}, which the contract"
            " requires"
        )
    changed: list[tuple[GoldenText, list[int] | None]] = []
    for mode in engine.modes:
        rows = [row for row in contract.texts if row.mode == mode]
        ids = _encode(engine, [row.text for row in rows], mode)
        changed += [(row, now) for row, now in zip(rows, ids, strict=True) if now != row.ids]
    return changed


def read_golden(path: Path) -> GoldenFile:
    """Read a golden file.

    Raises:
        Unreadable: it is not there, or not exactly such a file.
    """
    try:
        return parse_json(GoldenFile, read_regular(path, limit=LARGEST_GOLDEN))
    except OSError as error:
        raise refused(path, error) from None
    except ValueError as error:
        raise Unreadable(f"{path}: this is not a golden file: {error}") from None


def write_golden(contract: GoldenFile, path: Path) -> None:
    """Write a golden file whole or not at all: a line for each text, so that a review shows what
    changed.

    Raises:
        OSError: it cannot be written.
    """
    rows = ",\n".join(canonical_json(row.model_dump()) for row in contract.texts)
    head = canonical_json({"schema": contract.schema_, "made_with": contract.made_with})[:-1]
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with draft.open("x", encoding="utf-8") as stream:
            stream.write(f'{head},"texts":[\n{rows}\n]}}\n')
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
