"""Differences between two identities, in words, with the shortest text found that shows each of
them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from typing import Any, Literal

from harness.tokenizer.backend import Serialised, normal_form, post_processor_items, text_settings
from harness.tokenizer.comparison.example import (
    Example,
    added_texts,
    brief,
    cut,
    merge_texts,
    search,
    search_decoded,
    token_texts,
)
from harness.tokenizer.identity import PROBES, canonical_json
from harness.tokenizer.objects import ComparedTokenizer
from harness.tokenizer.problem import NotComparable

NAMED = 3
LOOKED_AT = 24
# In the order in which a text passes them.
ENCODING = (
    "added tokens",
    "encode special tokens",
    "normalizer",
    "pre_tokenizer",
    "model",
    "vocabulary",
    "merges",
    "post_processor",
    "truncation",
    "padding",
    "code",
    "state",
)
SAID = {"names", "special tokens", "chat templates", "vocabulary", "merges", "added tokens"}
# What these hold follows from other parts.
FOLLOWS = {
    "scope",
    "kind",
    "encoding",
    "eos",
    "bos",
    "pad",
    "get_vocab",
    "tokens",
    "probe ids",
    "round trip",
    "fingerprint",
    "remarks",
}


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One thing that differs.

    Attributes:
        part: the part of the identity.
        words: a sentence.
        semantic: whether the semantic digest covers it.
        sort: `undecided`: one of the formats has no field for it; `remark`: worth knowing, and
            nothing differs.
        example: a text that shows it; None where none was found, or none can.
        first: what the first tokenizer makes of the example: ids as JSON, or text.
        second: what the second makes of it.
    """

    part: str
    words: str
    semantic: bool
    example: str | None = None
    first: str | None = None
    second: str | None = None
    sort: Literal["difference", "undecided", "remark"] = "difference"


def compare_identities(first: ComparedTokenizer, second: ComparedTokenizer) -> list[Difference]:
    """List what differs between two tokenizers; what the semantic digest covers comes first.

    Raises:
        NotComparable: one has names and chat templates, and the other is an encoder alone.
    """
    a = first.identity.parts
    b = second.identity.parts
    if "file" in {a["scope"], b["scope"]}:
        return _fingerprints(a, b)
    if a["scope"] != b["scope"]:
        raise NotComparable(
            "the tokenizers are of different kinds: one can have chat templates and named special"
            " tokens, and the other is only an encoder (a tokenizers.Tokenizer, or a tokenizer.json"
            " alone). Compare two of the same kind, such as two folders, or compare the encoder with"
            " the `backend_tokenizer` of the transformers tokenizer"
        )
    rows: list[Difference] = []
    if a["encoding"] != b["encoding"]:
        rows += _encoding(first, second)
    rows += _names(a, b)
    rows += _templates(first, second)
    if a.get("own code") != b.get("own code"):
        words = (
            f"methods that determine ids were replaced: {a.get('own code', 'none')} against"
            f" {b.get('own code', 'none')}"
        )
        rows.append(_row("own code", words, semantic=True, example=search(first, second, ())))
    if a["decoder"] != b["decoder"] and "Python" not in a["kind"] + b["kind"]:
        words = _component("decoder", first, second)
        rows.append(_row("decoder", words, semantic=False, example=search_decoded(first, second)))
    said = {row.part for row in rows} | SAID | FOLLOWS
    rows += [_row(part, words, semantic=False) for part, words in _others(a, b, said=said)]
    return sorted(rows, key=lambda row: not row.semantic)


def _fingerprints(a: Mapping[str, str], b: Mapping[str, str]) -> list[Difference]:
    """Identities of which one was made from a file of another format: only what every format has is
    compared.
    """
    sides = [parts.get("fingerprint") for parts in (a, b)]
    if None in sides:
        raise NotComparable(
            "one tokenizer has no fingerprint: either it is Python code, or its identity was created"
            " with depth=cheap; compare the files instead"
        )
    if sides[0] == sides[1]:
        return []
    words = (
        f"the fingerprints differ: {sides[0]} against {sides[1]}; compare the files, not their"
        " identities, to see how"
    )
    return [_row("fingerprint", words, semantic=True)]


def _encoding(first: ComparedTokenizer, second: ComparedTokenizer) -> list[Difference]:
    """Rows for what decides ids. At least one: the digest says that something does."""
    a = first.identity.parts
    b = second.identity.parts
    if ("Python" in a["kind"]) != ("Python" in b["kind"]):
        words = (
            f"one tokenizer is Python code ({a['class']}; {b['class']}) and the other runs in the"
            " tokenizers library"
        )
        return [
            _row(
                "encoding",
                words,
                semantic=True,
                example=_probed(first, second) or search(first, second, ()),
            )
        ]
    rows = []
    alike = _alike(first, second)
    for part in ENCODING:
        if a.get(part) == b.get(part) or part in alike:
            continue
        if part in {"truncation", "padding"} and a["scope"] == "tokenizer":
            continue
        words, candidates = _described(part, first, second)
        example = search(first, second, candidates) or _probed(first, second)
        if example is None:
            words += "; no text that shows the difference was found"
        rows.append(_row(part, words, semantic=True, example=example))
    if not rows:
        words = "the ids differ, although all parts are written identically"
        rows.append(
            _row(
                "encoding",
                words,
                semantic=True,
                example=_probed(first, second) or search(first, second, ()),
            )
        )
    return rows


def _alike(first: ComparedTokenizer, second: ComparedTokenizer) -> set[str]:
    """Parts that are written differently and do the same."""
    if first.pieces is None or second.pieces is None:
        return set()
    a = _normal_form(first.pieces)
    b = _normal_form(second.pieces)
    return {part for part in a if a[part] == b[part]}


def _normal_form(pieces: Serialised) -> dict[str, Any]:
    return {
        **normal_form(pieces.head, pieces.model, pieces.vocabulary),
        "post_processor": post_processor_items(pieces.head["post_processor"]),
        "truncation": None,
        "padding": None,
        **text_settings(pieces.head),
    }


def _described(
    part: str, first: ComparedTokenizer, second: ComparedTokenizer
) -> tuple[str, Iterable[str]]:
    """Return a sentence about a part, and texts that may show it."""
    if part == "vocabulary" and first.vocabulary and second.vocabulary:
        return _vocabulary(first, second)
    if first.pieces is not None and second.pieces is not None:
        if part == "merges":
            return _merges(first.pieces, second.pieces)
        if part == "added tokens":
            return _added(first.pieces, second.pieces)
        if part in {
            "model",
            "normalizer",
            "pre_tokenizer",
            "post_processor",
            "truncation",
            "padding",
        }:
            return _component(part, first, second), (
                *_own_texts(part, first.pieces, first.vocabulary),
                *_own_texts(part, second.pieces, second.vocabulary),
                *_split_texts(first.pieces, second.pieces),
            )
    a = first.identity.parts.get(part, "none")
    b = second.identity.parts.get(part, "none")
    return f"{part}: {cut(a)} against {cut(b)}", ()


def _vocabulary(first: ComparedTokenizer, second: ComparedTokenizer) -> tuple[str, Iterable[str]]:
    a = first.vocabulary
    b = second.vocabulary
    only_a = sorted((index, token) for token, index in a.items() if token not in b)
    only_b = sorted((index, token) for token, index in b.items() if token not in a)
    moved = sorted((index, token) for token, index in a.items() if b.get(token, index) != index)
    clauses = [
        f"{len(tokens)} {'token is' if len(tokens) == 1 else 'tokens are'} only in the {side}"
        f" ({_some(tokens)})"
        for side, tokens in (("first", only_a), ("second", only_b))
        if tokens
    ]
    if moved:
        shown = ", ".join(f"{token!r} {index} against {b[token]}" for index, token in moved[:NAMED])
        clauses.append(
            f"{len(moved)} with a different id ({shown}{', …' if len(moved) > NAMED else ''})"
        )
    if not clauses:
        clauses.append(_scores(first, second))
    tokens = [token for _, token in (*only_a[:LOOKED_AT], *only_b[:LOOKED_AT], *moved[:LOOKED_AT])]
    tokens = tokens or [token for token, _ in _differing_scores(first, second)]
    return f"vocabulary: {'; '.join(clauses)}", token_texts(tokens)


def _scores(first: ComparedTokenizer, second: ComparedTokenizer) -> str:
    shown = [f"{token!r} {scores}" for token, scores in _differing_scores(first, second)]
    return (
        f"scores of pieces differ ({', '.join(shown[:NAMED])})"
        if shown
        else "the same tokens, written differently"
    )


def _differing_scores(first: ComparedTokenizer, second: ComparedTokenizer) -> list[tuple[str, str]]:
    if first.pieces is None or second.pieces is None or first.pieces.model["type"] != "Unigram":
        return []
    a = json.loads(first.pieces.vocabulary)
    b = json.loads(second.pieces.vocabulary)
    if not (isinstance(a, list) and isinstance(b, list)):
        return []
    differing = ((x, y) for x, y in zip_longest(a, b) if x != y and x and y)
    return [(x[0], f"{x[1]} against {y[1]}") for x, y in islice(differing, LOOKED_AT)]


def _merges(first: Serialised, second: Serialised) -> tuple[str, Iterable[str]]:
    a = _merge_pairs(first)
    b = _merge_pairs(second)
    in_a = set(a)
    in_b = set(b)
    only_a = [merge for merge in a if merge not in in_b]
    only_b = [merge for merge in b if merge not in in_a]
    ranks = list(zip_longest(a, b))
    at = next((rank for rank, (x, y) in enumerate(ranks) if x != y), None)
    clauses = [f"{len(a)} and {len(b)} merges"] if len(a) != len(b) else []
    clauses += [
        f"{len(merges)} only in the {side}"
        f" ({', '.join(repr(' '.join(merge)) for merge in merges[:NAMED])})"
        for side, merges in (("first", only_a), ("second", only_b))
        if merges
    ]
    if at is not None:
        shown = [repr(" ".join(merges[at])) if at < len(merges) else "none" for merges in (a, b)]
        clauses.append(f"rank {at} is {shown[0]} against {shown[1]}")
    moved = [x for x, y in ranks if x != y and x] + [y for x, y in ranks if x != y and y]
    looked = [*only_a[:LOOKED_AT], *only_b[:LOOKED_AT]] or list(dict.fromkeys(moved))[:LOOKED_AT]
    return f"merges: {'; '.join(clauses)}", merge_texts(looked)


def _merge_pairs(pieces: Serialised) -> list[tuple[str, str]]:
    return [(left, right) for left, right in json.loads(pieces.merges or b"[]")]


def _added(first: Serialised, second: Serialised) -> tuple[str, Iterable[str]]:
    a = {token["content"]: token for token in first.head["added_tokens"]}
    b = {token["content"]: token for token in second.head["added_tokens"]}
    differing = [content for content in dict.fromkeys((*a, *b)) if a.get(content) != b.get(content)]
    clauses = []
    for content in differing[:NAMED]:
        if content not in a or content not in b:
            side = "first" if content in a else "second"
            clauses.append(f"{content!r} ({(a | b)[content]['id']}) only in the {side}")
        else:
            clauses.append(f"{content!r}: {_paths(a[content], b[content])}")
    more = f"; and {len(differing) - NAMED} more" if len(differing) > NAMED else ""
    return f"added tokens: {'; '.join(clauses)}{more}", added_texts(differing[:LOOKED_AT])


def _component(part: str, first: ComparedTokenizer, second: ComparedTokenizer) -> str:
    if first.pieces is None or second.pieces is None:
        return (
            f"{part}: {cut(first.identity.parts[part])} against {cut(second.identity.parts[part])}"
        )
    a, b = (
        pieces.model if part == "model" else pieces.head.get(part)
        for pieces in (first.pieces, second.pieces)
    )
    return f"{part}: {_paths(a, b)}"


def _own_texts(part: str, pieces: Serialised, vocabulary: Iterable[str]) -> Iterator[str]:
    """Words that a component holds: what it replaces, prepends, splits at, or the unknown token."""
    for text in _strings(pieces.model if part == "model" else pieces.head.get(part)):
        yield from (text, f"a{text}b", f"a {text} b", f" {text}")
    if part == "model":
        yield from token_texts(islice(_unmerged(pieces, vocabulary), LOOKED_AT))


def _unmerged(pieces: Serialised, vocabulary: Iterable[str]) -> Iterator[str]:
    """Tokens that no merge makes: only whole words can become them."""
    merged = {left + right for left, right in _merge_pairs(pieces)}
    yield from (
        token
        for token in vocabulary
        if len(token) > 1 and token not in merged and not token.startswith("<")
    )


def _split_texts(first: Serialised, second: Serialised) -> Iterator[str]:
    """Texts that an added token cuts in two: what comes after it is not the beginning of the
    text.
    """
    for pieces in (first, second):
        for content in [token["content"] for token in pieces.head["added_tokens"]][:NAMED]:
            yield from (f"a{content}b", f"{content} a b", f"a b {content}")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str) and len(value) <= 64:
        yield value
    elif isinstance(value, (Mapping, list)):
        inner = (
            [part for key, part in value.items() if key != "type"]
            if isinstance(value, Mapping)
            else value
        )
        for part in inner:
            yield from _strings(part)


def _names(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[Difference]:
    left = json.loads(a.get("names", "{}"))
    right = json.loads(b.get("names", "{}"))
    for name in sorted({*left, *right}):
        if left.get(name) != right.get(name):
            words = f"{name}: {_token(left.get(name))} against {_token(right.get(name))}"
            yield _row("names", words, semantic=True)
    if "special tokens" in a and a["special tokens"] != b.get("special tokens"):
        words = (
            f"further special tokens: {cut(a['special tokens'])} against {cut(b['special tokens'])}"
        )
        yield _row("special tokens", words, semantic=True)


def _templates(first: ComparedTokenizer, second: ComparedTokenizer) -> Iterator[Difference]:
    sides = [side.identity.parts.get("chat templates", "none") for side in (first, second)]
    if sides[0] == sides[1]:
        return
    a, b = (json.loads(text) if text.startswith("{") else {} for text in sides)
    if not isinstance(a, dict) or not isinstance(b, dict):
        yield _row(
            "chat templates", f"chat templates: {sides[0]} against {sides[1]}", semantic=True
        )
        return
    for name in sorted({*a, *b}):
        if a.get(name) == b.get(name):
            continue
        if name not in a or name not in b:
            words = (
                f"the chat template {name!r} is only in the {'first' if name in a else 'second'}"
            )
            yield _row("chat templates", words, semantic=True)
            continue
        example = None
        words = f"the chat template {name!r} differs"
        if first.templates is not None and second.templates is not None:
            left, right = (
                side[name].splitlines(keepends=True) for side in (first.templates, second.templates)
            )
            pairs = zip_longest(left, right, fillvalue="")
            at, line, other_line = next(
                (n, x, y) for n, (x, y) in enumerate(pairs, start=1) if x != y
            )
            words += f", first in line {at}"
            example = Example(text=f"line {at}", first=brief(line), second=brief(other_line))
        yield _row("chat templates", words, semantic=True, example=example)


def _others(
    a: Mapping[str, str], b: Mapping[str, str], *, said: set[str]
) -> Iterator[tuple[str, str]]:
    """Parts that no encoding depends on.

    What files leave to a class is not compared with what the class chose.
    """
    mixed = a["kind"] != b["kind"] and "files" in {a["kind"], b["kind"]}
    python = "Python" in a["kind"] + b["kind"] and a["kind"] != b["kind"]
    for part in sorted({*a, *b} - said):
        if part not in a or part not in b or a[part] == b[part]:
            continue
        if (mixed and (part == "class" or "null" in {a[part], b[part]})) or (
            python and part not in {"class", "backend"}
        ):
            continue
        yield part, f"{part}: {cut(a[part])} against {cut(b[part])}"
    if a["encoding"] == b["encoding"]:
        # Nothing above says so: the object answers otherwise than what it is made of.
        for part in ("get_vocab", "round trip"):
            if part in a and part in b and a[part] != b[part] and "decoder" not in said:
                yield part, f"{part}: {cut(a[part])} against {cut(b[part])}"


def _probed(first: ComparedTokenizer, second: ComparedTokenizer) -> Example | None:
    """Return the shortest probe of which the identities themselves say that its ids differ."""
    sides = [side.identity.parts["probe ids"] for side in (first, second)]
    if not all(side.startswith("{") for side in sides):
        return None
    a, b = (json.loads(side) for side in sides)
    differing = [name for name in PROBES if a.get(name) != b.get(name)]
    if not differing:
        return None
    name = min(differing, key=lambda probe: len(PROBES[probe]))
    return Example(text=PROBES[name], first=brief(a.get(name)), second=brief(b.get(name)))


def _row(part: str, words: str, *, semantic: bool, example: Example | None = None) -> Difference:
    row = Difference(part=part, words=words, semantic=semantic)
    return (
        replace(row, example=example.text, first=example.first, second=example.second)
        if example
        else row
    )


def _paths(a: Any, b: Any) -> str:
    """List where two values differ, as `path: one against other`."""
    differences = list(islice(_differing(a, b, ""), NAMED + 1))
    shown = "; ".join(
        f"{path + ' ' if path else ''}{cut(canonical_json(x), 80)} against"
        f" {cut(canonical_json(y), 80)}"
        for path, x, y in differences[:NAMED]
    )
    return shown + ("; …" if len(differences) > NAMED else "")


def _differing(a: Any, b: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(a, Mapping) and isinstance(b, Mapping) and a.get("type") == b.get("type"):
        for key in dict.fromkeys((*a, *b)):
            yield from _differing(a.get(key), b.get(key), f"{path}.{key}" if path else key)
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for index, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from _differing(x, y, f"{path}[{index}]")
    elif a != b:
        yield path, a, b


def _token(known: Any) -> str:
    return "none" if known is None else f"{known[0]!r} (id {known[1]})"


def _some(tokens: list[tuple[int, str]]) -> str:
    shown = ", ".join(f"{token!r} {index}" for index, token in tokens[:NAMED])
    return shown + (", …" if len(tokens) > NAMED else "")
