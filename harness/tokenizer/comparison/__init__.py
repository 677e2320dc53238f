"""The one comparator of tokenizers: what differs between two of them, in words, with a text that
shows it.

* `compare(a, b)`: the differences between two tokenizers, or between two forms.
* `Difference`: one of them, with the part that it is about.

Two tokenizers are compared by every part of their identities, as far as both have it; what the
semantic digest covers comes first. Two forms, which may be of different formats, are compared by
what every format can say: then a part that one of them cannot say is undecided, and not a
difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import zip_longest

from harness.forms.text import plural, quoted
from harness.tokenizer.comparison.example import cut
from harness.tokenizer.comparison.identities import Difference, compare_identities
from harness.tokenizer.form import (
    BESIDE,
    ENCODER,
    NORMAL,
    TYPE_NAMES,
    UNUSED,
    USER_DEFINED,
    Form,
    plain,
)
from harness.tokenizer.formats.gguf import NEVER
from harness.tokenizer.formats.tokenizer_model import BY_RANKS
from harness.tokenizer.objects import ComparedTokenizer

__all__ = ["Difference", "compare"]


def compare(first: ComparedTokenizer | Form, second: ComparedTokenizer | Form) -> list[Difference]:
    """List what differs between two tokenizers, or two forms; the list is empty if nothing does.

    Raises:
        NotComparable: a difference between these two means nothing.
        TypeError: one is a form and the other is not.
    """
    if isinstance(first, Form) and isinstance(second, Form):
        return compare_forms(first, second)
    if isinstance(first, Form) or isinstance(second, Form):
        other = second if isinstance(first, Form) else first
        raise TypeError(
            f"a Form can only be compared with another Form, not with {type(other).__name__}"
        )
    return compare_identities(first, second)


_SHOWN = 120
_UNKNOWN = "llama.cpp's "


def compare_forms(first: Form, second: Form) -> list[Difference]:
    """List differences, then what is undecided because one of the formats has no field for it, then
    remarks.

    The two describe one tokenizer where the list holds neither a difference nor what is undecided.
    """
    rows = [*_encoder(first, second), *_beside(first, second), *_remarks(first, second)]
    return sorted(rows, key=lambda row: ("difference", "undecided", "remark").index(row.sort))


def _encoder(first: Form, second: Form) -> Iterator[Difference]:
    a = first.parts
    b = second.parts
    if a["model"] != b["model"]:
        yield _differs(
            "model",
            f"the first is {a['model']} and the second is {b['model']}, so their algorithms differ",
        )
    yield from _tokens(first, second)
    if a["token types"] != b["token types"]:
        yield from _types(first, second)
    if a["model"] == b["model"]:
        yield from _order(first, second)
    silent: dict[str, list[str]] = {"first": [], "second": []}
    for part in ENCODER[5:]:
        x = a[part]
        y = b[part]
        if x == y:
            continue
        if x is None or y is None:
            silent["first" if x is None else "second"].append(part)
        elif a["model"] == b["model"]:
            yield _valued(part, first, second)
    for side, form in (("first", first), ("second", second)):
        if silent[side]:
            yield _undecided(
                silent[side][0],
                f"the {side}, a {form.format} file, does not state: {', '.join(silent[side])}",
            )


def _valued(part: str, first: Form, second: Form) -> Difference:
    x = str(first.parts[part])
    y = str(second.parts[part])
    shown, settled = _unequal(x, y)
    words = f"{part}: {shown}"
    for side, form in (("first", first), ("second", second)):
        if not settled and (why := form.assumed.get(part)) is not None:
            return _undecided(part, f"{words}; for the {side}: {why}")
    if part == "pre-tokenizer" and (x.startswith(_UNKNOWN) != y.startswith(_UNKNOWN)):
        words += "; we do not know how llama.cpp's pre-tokenizer splits text, so we do not guess"
        return _undecided(part, words)
    return _differs(part, words)


def _unequal(x: str, y: str) -> tuple[str, bool]:
    """Describe what differs between two values, and tell whether every format with such settings
    has it.
    """
    a, b = (json.loads(value) if value.startswith("{") else None for value in (x, y))
    if not isinstance(a, dict) or not isinstance(b, dict):
        return f"{cut(x, _SHOWN)} in the first, {cut(y, _SHOWN)} in the second", False
    differing = [key for key in dict.fromkeys((*a, *b)) if a.get(key) != b.get(key)]
    clauses = [
        f"{key}: {cut(str(a.get(key)), _SHOWN)} in the first, {cut(str(b.get(key)), _SHOWN)} in the"
        " second"
        for key in differing
    ]
    firsts = {a.get("a space first"), b.get("a space first")}
    return "; ".join(clauses), "spaces collapse" in differing or (
        len(firsts) > 1 and NEVER in firsts
    )


def _tokens(first: Form, second: Form) -> Iterator[Difference]:
    if first.parts["tokens"] == second.parts["tokens"]:
        return
    a = first.tokens()
    b = second.tokens()
    known = [form.parts["tokens"] is not None for form in (first, second)]
    differing = [
        index
        for index in range(min(len(a), len(b)))
        if a[index] != b[index]
        and (known[0] or first.types[index] != UNUSED)
        and (known[1] or second.types[index] != UNUSED)
    ]
    if differing:
        index = differing[0]
        more = f" (and {plural(len(differing) - 1, 'more id')})" if len(differing) > 1 else ""
        yield _differs(
            "tokens",
            f"tokens: id {index} is {token(a[index])} in the first and {token(b[index])} in the"
            f" second{more}",
        )
    for side, form, others, fewer in (("first", first, a, len(b)), ("second", second, b, len(a))):
        if len(others) <= fewer:
            continue
        more = (
            f"tokens: the {side} has {len(others)} ids and the other has {fewer}; id {fewer} is"
            f" {token(others[fewer])}"
        )
        bare = (second if side == "first" else first).format == "tiktoken"
        if bare and NORMAL not in form.types[fewer:]:
            yield _undecided(
                "tokens", (f"{more}, because a tiktoken file does not contain special tokens")
            )
        else:
            yield _differs("tokens", more)


def _types(first: Form, second: Form) -> Iterator[Difference]:
    a = first.types
    b = second.types
    texts = first.tokens()
    differing = [index for index in range(min(len(a), len(b))) if a[index] != b[index]]
    if not all(form.parts["token types"] is not None for form in (first, second)):
        differing = [index for index in differing if UNUSED not in (a[index], b[index])]
    if not differing:
        return
    index = differing[0]
    kinds = [TYPE_NAMES.get(form[index], f"type {form[index]}") for form in (a, b)]
    more = f" (and {plural(len(differing) - 1, 'more id')})" if len(differing) > 1 else ""
    meant = ", so text can contain it in only one of the two"
    if {a[index], b[index]} == {NORMAL, USER_DEFINED}:
        meant = ", so one of the two looks for it in text before anything else"
    words = (
        f"token types: id {index}, {token(texts[index])}, is {kinds[0]} in the first and {kinds[1]}"
        " in the second"
    )
    yield _differs("token types", f"{words}{more}{meant}")


def _order(first: Form, second: Form) -> Iterator[Difference]:
    """In which order pieces are joined: by merges, by scores or by ranks."""
    a = first.parts
    b = second.parts
    if (a["merges"], a["scores"]) == (b["merges"], b["scores"]):
        return
    by = [_ordered_by(first), _ordered_by(second)]
    if by == ["merges", "merges"]:
        yield from _merges(first.merges(), second.merges())
    elif by == ["scores", "scores"]:
        yield from _scores(first, second)
    elif "ranks" in by:
        yield _undecided(
            "merges",
            (
                f"merges: the first uses {by[0]}, but the second uses {by[1]}; run `rankproof"
                " tokenizer parity` to see whether the ids are the same"
            ),
        )
    else:
        yield from _merges_of_scores(*((first, second) if by[0] == "merges" else (second, first)))


def _ordered_by(form: Form) -> str:
    if form.parts["merges"]:
        return "merges"
    return "ranks" if form.parts["scores"] == BY_RANKS else "scores"


def _merges(a: list[bytes], b: list[bytes]) -> Iterator[Difference]:
    at = next((rank for rank, (x, y) in enumerate(zip_longest(a, b)) if x != y), None)
    if at is None:
        yield _differs(
            "merges",
            (
                "merges: a piece contains a space, and the two tokenizers split it at"
                " different spaces"
            ),
        )
        return
    shown = [pair(merges[at]) if at < len(merges) else "none" for merges in (a, b)]
    counts = f"{len(a)} and {len(b)} merges; " if len(a) != len(b) else ""
    gone = set(a) - set(b)
    new = set(b) - set(a)
    only = [
        f"; {plural(len(merges), 'merge')} only in the {side}, such as {pair(min(merges))}"
        for merges, side in ((gone, "first"), (new, "second"))
        if merges
    ]
    order = "" if only else "; they are the same merges in a different order"
    yield _differs(
        "merges",
        f"merges: {counts}rank {at} is {shown[0]} in the first and {shown[1]} in the"
        f" second{''.join(only)}{order}",
    )


def _scores(first: Form, second: Form) -> Iterator[Difference]:
    a = first.scores()
    b = second.scores()
    texts = first.tokens()
    at = next((index for index in range(min(len(a), len(b))) if a[index] != b[index]), None)
    if at is not None:
        yield _differs(
            "scores",
            f"scores: id {at}, {token(texts[at])}, has {a[at]:.9g} in the first and {b[at]:.9g} in"
            " the second",
        )
    elif len(a) == len(b):
        yield _differs("scores", "scores: they differ by more than float32 precision")


def _merges_of_scores(merged: Form, scored: Form) -> Iterator[Difference]:
    """One goes by merges and the other by scores: the merges must be those that the scores make, in
    their order.
    """
    ids = {
        text: index for index, text in enumerate(scored.tokens()) if scored.types[index] == NORMAL
    }
    listed = [tuple(merge.split(b" ", 1)) for merge in merged.merges()]
    scores = scored.scores()
    last = float("inf")
    for rank, (left, right) in enumerate(listed):
        index = ids.get(left + right)
        if index is None:
            continue
        if scores[index] > last:
            yield _differs(
                "merges",
                (
                    f"merges: rank {rank}, {pair(left + b' ' + right)}, comes after a merge whose"
                    " score is lower"
                ),
            )
            return
        last = scores[index]
    there = set(listed)
    for text in ids:
        characters = text.decode(errors="replace")
        for place in range(1, len(characters)):
            left = characters[:place].encode()
            right = characters[place:].encode()
            if left in ids and right in ids and (left, right) not in there:
                yield _differs(
                    "merges",
                    f"merges: {pair(left + b' ' + right)} is missing, but follows from the other's"
                    " scores",
                )
                return
    yield _undecided(
        "merges",
        (
            "merges: one tokenizer uses merges and the other uses scores; the merges follow from"
            " the scores, in the same order. If two pairs overlap, the two tokenizers can still"
            " choose differently; run `rankproof tokenizer parity` to check"
        ),
    )


def _beside(first: Form, second: Form) -> Iterator[Difference]:
    for part in BESIDE:
        x = first.parts[part]
        y = second.parts[part]
        if x == y:
            continue
        if x is None or y is None:
            side, said = ("second", y) if x is None else ("first", x)
            words = (
                f"{part}: {_named(part, str(said), first if y is None else second)}, only"
                f" according to the {side}"
            )
            yield Difference(part=part, words=words, semantic=True, sort="remark")
            continue
        words = (
            f"{part}: {_named(part, x, first)} in the first, {_named(part, y, second)} in the"
            " second"
        )
        if part == "chat templates":
            a = json.loads(x)
            b = json.loads(y)
            name = next(name for name in (*a, *b) if a.get(name) != b.get(name))
            side = "first" if name in a else "second"
            where = "differs" if name in a and name in b else f"is only in the {side}"
            words = f"chat templates: {quoted(name)} {where}"
        yield _differs(part, words)


def _named(part: str, value: str, form: Form) -> str:
    if part in {"bos", "eos", "pad"} and value.isdigit() and int(value) < form.size:
        return f"{value} {token(form.tokens()[int(value)])}"
    return cut(value, _SHOWN)


def _remarks(first: Form, second: Form) -> Iterator[Difference]:
    if first.padding != second.padding:
        yield Difference(
            part="padding",
            words=(
                f"padding: {first.padding} unused ids at the end of the first, "
                f"{second.padding} at the end of the second"
            ),
            semantic=False,
            sort="remark",
        )
    for side, form in (("first", first), ("second", second)):
        for remark in form.remarks:
            yield Difference(
                part="remark", words=f"for the {side}: {remark}", semantic=False, sort="remark"
            )


def token(text: bytes) -> str:
    """Return a token for people: as the text that it stands for."""
    meant = plain(text).decode(errors="backslashreplace")
    return quoted(meant) if meant.strip() else ascii(meant)


def pair(merge: bytes) -> str:
    """Return a merge for people: its two pieces."""
    return " + ".join(token(piece) for piece in merge.split(b" ", 1))


def _differs(part: str, words: str) -> Difference:
    return Difference(part=part, words=words, semantic=True)


def _undecided(part: str, words: str) -> Difference:
    return Difference(part=part, words=words, semantic=True, sort="undecided")
