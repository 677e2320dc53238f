"""Normal forms: two components that treat every text alike are written alike.

Only what the library's source shows to make no difference to ids is removed. What is left may still
differ where no text shows it; then two identities differ although the ids do not, never the other
way round.
"""

from __future__ import annotations

import json
from typing import Any

Component = dict[str, Any]
# The letters that ByteLevel writes for bytes (GPT-2's table).
_VISIBLE = (*range(33, 127), *range(161, 173), *range(174, 256))
_HIDDEN = [byte for byte in range(256) if byte not in _VISIBLE]
# Byte by letter. A byte that cannot be seen gets a letter from 256 on.
BYTE_LEVEL = {chr(byte): byte for byte in _VISIBLE} | {
    chr(256 + index): byte for index, byte in enumerate(_HIDDEN)
}


def flatten(component: Component | None, *, inside: str) -> list[Component]:
    """A chain of components as one flat list: a Sequence in a Sequence runs as if written out."""
    if component is None:
        return []
    if component.get("type") == "Sequence":
        return [step for part in component[inside] for step in flatten(part, inside=inside)]
    return [component]


def normalizer(component: Component | None) -> list[Component]:
    """The normalizers in order."""
    steps = []
    for step in flatten(component, inside="normalizers"):
        given = dict(step)
        if given["type"] == "BertNormalizer" and given.get("strip_accents") is None:
            given["strip_accents"] = given["lowercase"]
        if (
            given["type"] in {"Strip", "StripNormalizer"}
            and not given.get("strip_left")
            and not given.get("strip_right")
        ):
            continue
        if given["type"] == "Prepend" and not given.get("prepend"):
            continue
        steps.append(given)
    return steps


def pre_tokenizer(component: Component | None) -> list[Component]:
    """The pre-tokenizers in order, without what only moves offsets."""
    steps = []
    for step in flatten(component, inside="pretokenizers"):
        given = dict(step)
        if given["type"] == "ByteLevel":
            given.pop("trim_offsets", None)
        steps.append(given)
    return steps


def post_processor(component: Component | None) -> list[Component]:
    """Items put around one text (`single`) and two (`pair`): `A`, `B`, or a list of ids.

    Type ids are not ids; the ByteLevel processor only moves offsets. Processors in a chain see what
    the one before made of the texts, in a shape of its own, so that only a lone one is brought into
    this form.
    """
    chain = [
        step for step in flatten(component, inside="processors") if step["type"] != "ByteLevel"
    ]
    if len(chain) != 1:
        return chain
    step = chain[0]
    if step["type"] == "TemplateProcessing":
        single = _template(step, step["single"])
        pair = _template(step, step["pair"])
    elif step["type"] in {"BertProcessing", "RobertaProcessing"}:
        cls = [step["cls"][1]]
        sep = [step["sep"][1]]
        between = [sep, sep] if step["type"] == "RobertaProcessing" else [sep]
        single = [cls, "A", sep]
        pair = [cls, "A", *between, "B", sep]
    else:
        return chain
    single = _joined(single)
    pair = _joined(pair)
    return [] if (single, pair) == (["A"], ["A", "B"]) else [{"single": single, "pair": pair}]


def model(small: Component, *, vocabulary: bytes, before: list[Component]) -> Component:
    """The options of a model that can make a difference.

    Args:
        small: the model without vocabulary and merges.
        vocabulary: its JSON text.
        before: the pre-tokenizers, from `pre_tokenizer`.
    """
    given = dict(small)
    if not given.get("dropout"):
        given.pop("dropout", None)
    if given["type"] == "BPE":
        for affix in ("continuing_subword_prefix", "end_of_word_suffix"):
            if not given.get(affix):
                given.pop(affix, None)
        if _nothing_unknown(given, vocabulary=vocabulary, before=before):
            given.pop("unk_token", None)
        if given.get("unk_token") is None:
            given.pop("fuse_unk", None)
    if b'"<0x' not in vocabulary:
        given.pop("byte_fallback", None)
    return {
        name: value for name, value in given.items() if value is not None and value is not False
    }


def normal_form(head: Component, small: Component, vocabulary: bytes) -> dict[str, Any]:
    """Normal forms of what makes ids of a text, by the name of its part.

    What is put around them is not among them.

    Args:
        head: a serialised tokenizer without its model.
        small: the model without vocabulary and merges.
        vocabulary: its JSON text.
    """
    chain = pre_tokenizer(head["pre_tokenizer"])
    return {
        "normalizer": normalizer(head["normalizer"]),
        "pre_tokenizer": chain,
        "model": model(small, vocabulary=vocabulary, before=chain),
    }


def _nothing_unknown(given: Component, *, vocabulary: bytes, before: list[Component]) -> bool:
    """Tell whether every text has tokens: each byte has one, as `<0xXX>` or as a letter of
    ByteLevel.
    """
    if given.get("byte_fallback") and all(
        b'"<0x%02X>":' % byte in vocabulary for byte in range(256)
    ):
        return True
    if (
        not before
        or before[-1]["type"] != "ByteLevel"
        or {"continuing_subword_prefix", "end_of_word_suffix"} & {*given}
    ):
        return False
    if given.get("unk_token") is None and not given.get("byte_fallback"):
        return False  # nothing to leave out
    known = all(
        f"{json.dumps(letter, ensure_ascii=False)}:".encode() in vocabulary for letter in BYTE_LEVEL
    )
    if known:
        given.pop("byte_fallback", None)
    return known


def state(head: Component) -> Component:
    """Padding and truncation as far as they change the ids of one text: `Tokenizer.encode` obeys
    them unasked.
    """
    settings: Component = {}
    cut = head.get("truncation")
    if cut:
        settings["truncation"] = {key: cut[key] for key in ("direction", "max_length", "strategy")}
    pad = head.get("padding")
    if pad:
        multiple = pad.get("pad_to_multiple_of") or 0
        if pad["strategy"] != "BatchLongest" or multiple > 1:
            settings["padding"] = {
                "direction": pad["direction"],
                "id": pad["pad_id"],
                "strategy": pad["strategy"],
            } | ({"multiple": multiple} if multiple > 1 else {})
    return settings


def _template(processor: Component, pieces: list[Component]) -> list[Any]:
    items: list[Any] = []
    for piece in pieces:
        if "Sequence" in piece:
            items.append(piece["Sequence"]["id"])
        else:
            items.append(list(processor["special_tokens"][piece["SpecialToken"]["id"]]["ids"]))
    return items


def _joined(pieces: list[Any]) -> list[Any]:
    items: list[Any] = []
    for piece in pieces:
        if isinstance(piece, list) and items and isinstance(items[-1], list):
            items[-1] = items[-1] + piece
        elif piece != []:
            items.append(piece)
    return items


def text_of(token: str) -> str:
    """The text that ByteLevel writes as this token.

    The token itself where it is not of these letters.
    """
    if any(letter not in BYTE_LEVEL for letter in token):
        return token
    return bytes(BYTE_LEVEL[letter] for letter in token).decode("utf-8", "replace")
