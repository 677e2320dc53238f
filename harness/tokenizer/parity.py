"""Whether two engines give the same ids, text by text; and the shortest text on which they do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.tokenizer.engines import Engine, EngineFailed
from harness.tokenizer.engines.adapter import MODES, Ids, Mode
from harness.tokenizer.texts import fixed, generated

ROUNDS = 200
"""Of shortening; each asks both engines once."""


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
class Parity:
    """What was compared, and what differs.

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


def parity(first: Engine, second: Engine, *, corpus: Sequence[str] = (), count: int = 2000, seed: int = 0) -> Parity:
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
            f"{first.about} encodes in the modes {', '.join(first.modes)} and {second.about} in "
            f"{', '.join(second.modes)}: no text can be put to both in one way"
        )
    vocabularies = [engine.vocabulary() for engine in (first, second)]
    tokens, special = max(vocabularies, key=lambda one: len(one[0]))
    asked = [*fixed(), *corpus, *generated(count, seed=seed, tokens=tokens, special=special)]
    asked = list(dict.fromkeys(text for text in asked if _is_text(text)))
    differing: list[tuple[str, Mode]] = []
    for mode in modes:
        rows = zip(asked, first.encode(asked, mode), second.encode(asked, mode), strict=True)
        differing += [(text, mode) for text, one, other in rows if _differ(one, other)]
    mismatch = None
    if differing:
        text, mode = min(differing, key=lambda one: (len(one[0]), one[0]))
        mismatch = _shown(first, second, shortest(text, _asker(first, second, mode)), mode)
    return Parity(
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
        cuts = [one for one in dict.fromkeys(cuts) if one]
        smaller = next((one for one, so in zip(cuts, differ(cuts), strict=True) if so), None) if cuts else None
        if smaller is not None:
            text, size = smaller, max(1, min(size, len(smaller) // 2))
        elif size > 1:
            size //= 2
        else:
            break
    plainer = [text[:at] + "a" + text[at + 1 :] for at in range(len(text)) if text[at] != "a"]
    return next((one for one, so in zip(plainer, differ(plainer), strict=True) if so), text) if plainer else text


def _asker(first: Engine, second: Engine, mode: Mode) -> Callable[[Sequence[str]], list[bool]]:
    def differ(texts: Sequence[str]) -> list[bool]:
        pairs = zip(first.encode(texts, mode), second.encode(texts, mode), strict=True)
        return [_differ(one, other) for one, other in pairs]

    return differ


def _differ(one: Ids | str, other: Ids | str) -> bool:
    """Two errors are alike, whatever their words: neither engine encodes the text."""
    return one != other and not (isinstance(one, str) and isinstance(other, str))


def _shown(first: Engine, second: Engine, text: str, mode: Mode) -> Mismatch:
    one, other = first.encode([text], mode)[0], second.encode([text], mode)[0]
    at = 0
    if not isinstance(one, str) and not isinstance(other, str):
        at = next((i for i, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), min(len(one), len(other)))
    return Mismatch(text=text, mode=mode, first=one, second=other, at=at)


def _is_text(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)
