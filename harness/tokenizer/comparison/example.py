"""The shortest text found that two tokenizers encode or decode differently."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, permutations
from typing import Any

from harness.tokenizer.form import text_of
from harness.tokenizer.identity import PAIR, PROBES, canonical_json
from harness.tokenizer.objects import ComparedTokenizer

MOST = 4000
SHOWN = 400
BYTE_LEVEL_SPACE = "Ġ"
METASPACE = "▁"

# Beside the probes: what an option of a component turns on.
TURNING = (
    "a b", " a", "a ", "A", "é", "e\u0301", "ﬁ", "中", "中文", "1", "12", "1234", "a1b2", "a-b",
    "a.b", "a,b", "'s", "it's", "a  b", "a\nb", "a\tb", "\n", "a\u00a0b", "😀", "a😀b", "ａ", "①",
    "Á", "İ", "ß", "ǅ", "\x00a", "a\u200bb", "a_b", "a/b", "a" * 16, "a" * 50, "a" * 99, "a" * 100,
    "a" * 101, "a" * 201, "x" * 600, "word " * 40, "ÀÉÎõü", "hello", "hello world",
    "Hello, world!", "https://a.b", "x=1;", "日本語テキスト", "한국어", "привет", "שלום", "مرحبا", "हिन्दी",
    "ไทย", "👩\u200d👧",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Example:
    """A text (or two, joined by ` + `), and what each side makes of it."""

    text: str
    first: str
    second: str


def search(
    first: ComparedTokenizer, second: ComparedTokenizer, candidates: Iterable[str]
) -> Example | None:
    """Return the shortest of the candidates and the fixed texts that the two sides encode
    differently.

    Where no single text does, pairs of texts are tried. Sides that are not at hand are known by
    their probe ids only.
    """
    if first.encode is None or second.encode is None:
        return None
    shown: list[Example] = []
    for texts, special in _tried(candidates):
        if shown and len(" + ".join(texts)) >= len(shown[-1].text):
            continue
        left = first.encode(texts, special)
        right = second.encode(texts, special)
        if left != right:
            shown.append(Example(text=" + ".join(texts), first=brief(left), second=brief(right)))
    return shown[-1] if shown else None


def search_decoded(first: ComparedTokenizer, second: ComparedTokenizer) -> Example | None:
    """Return the shortest fixed text whose ids the two sides decode differently."""
    for text in sorted(dict.fromkeys((*TURNING, *PROBES.values())), key=len):
        if first.encode is None or first.decode is None or second.decode is None:
            return None
        ids = first.encode((text,), True)
        if isinstance(ids, list):
            left = first.decode(ids)
            right = second.decode(ids)
            if left != right:
                return Example(text=text, first=brief(left), second=brief(right))
    return None


def brief(value: Any) -> str:
    """Ids or a text on one line, cut where it is long."""
    text = (
        value if isinstance(value, str) and value.startswith("error: ") else canonical_json(value)
    )
    return cut(text)


def cut(text: str, most: int = SHOWN) -> str:
    """Return a text, cut where it is long."""
    return text if len(text) <= most else f"{text[:most]}…"


def token_texts(tokens: Iterable[str]) -> Iterator[str]:
    """Texts that may make a side use these tokens: as decoded, and as they are, alone and in a
    sentence.
    """
    for token in tokens:
        plain = (
            token.replace(METASPACE, " ")
            .replace(BYTE_LEVEL_SPACE, " ")
            .removeprefix("##")
            .removesuffix("</w>")
        )
        texts = dict.fromkeys((text_of(token), plain, token, plain.strip(), f"{token}</w>"))
        for text in filter(None, texts):
            yield text
            yield from (f" {text}", f"{text} ", f"a{text}", f"{text}a", f"a {text} b", text * 2)


def merge_texts(merges: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Texts in which merges compete: their halves in every order of two to four."""
    listed = list(merges)
    for left, right in listed:
        yield from token_texts([left + right])
    for index, merge in enumerate(listed):
        for other in listed[index + 1 : index + 12]:
            halves = list(dict.fromkeys([*merge, *other]))
            for length in (3, 4, 2):
                for order in permutations(halves, min(length, len(halves))):
                    text = "".join(order)
                    yield from (
                        text_of(text),
                        text.replace(METASPACE, " ").replace(BYTE_LEVEL_SPACE, " "),
                    )


def added_texts(contents: Iterable[str]) -> Iterator[str]:
    """Texts in which the flags of an added token matter."""
    for content in contents:
        for text in dict.fromkeys(
            (content, content.upper(), content.lower(), content.swapcase(), f"{content}é")
        ):
            yield from (
                text,
                f"a{text}b",
                f"a {text} b",
                f"a  {text}  b",
                f" {text}",
                f"{text} ",
                f"{text}a",
                text * 2,
            )
            yield from (f"a_{text}", f"{text}\n", f"\u00e9{text}\u0301")
        yield from (content[:-1], content.strip(), content.replace(" ", "  "))


def _tried(candidates: Iterable[str]) -> Iterator[tuple[tuple[str, ...], bool]]:
    for text in islice(dict.fromkeys(candidates), MOST):
        yield (text,), False
    for text in (*sorted(TURNING, key=len), *sorted(PROBES.values(), key=len)):
        yield (text,), False
    for text in TURNING[:3]:
        yield (text,), True
    yield (PROBES[PAIR[0]], PROBES[PAIR[1]]), True
