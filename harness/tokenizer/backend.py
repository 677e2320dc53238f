"""A `tokenizers.Tokenizer`: its serialisation, and the parts of its identity.

What `Tokenizer.to_str()` returns is canonical: defaults are filled in, the vocabulary is ordered by
id and the merges by rank. Its large pieces are digested as text, which is ten times faster than
parsing them. Inside a JSON string every quote is escaped, so that `,"model":{` and its like can
only be the key.

Two components that treat every text alike have one normal form. Only what the library's source
shows to make no difference to ids is removed from it. What is left may still differ where no text
shows it; then two identities differ although the ids do not, never the other way round.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.tokenizer.form import BYTE_LEVEL
from harness.tokenizer.identity import PAIR, PROBES, canonical_json, digest_text, short
from harness.tokenizer.problem import Unidentifiable, panics_become

BEGINNING = b'{"version":"'
MODEL = b',"model":'
ESCAPES = re.compile(rb"\\(.)", re.DOTALL)
TYPE = b'{"type":"'
VOCABULARY = b',"vocab":'
MERGES = b',"merges":'


def written(backend: Any) -> bytes:
    """Return the text of `backend.to_str()`, as UTF-8.

    The state that pickle saves is the same text, and comes as bytes. Making text of it and bytes
    again takes nearly as long as the writing itself.
    """
    state = backend.__getstate__()
    return (
        state
        if isinstance(state, bytes) and state.startswith(BEGINNING)
        else backend.to_str().encode()
    )


@dataclass(frozen=True, kw_only=True)
class Serialised:
    """The pieces of a serialised tokenizer.

    Attributes:
        head: everything but the model.
        model: the model's small fields.
        vocabulary: JSON text, ordered by id (Unigram: pairs of piece and score, in order of id).
        merges: JSON text of pairs in order of rank; None for a model without.
    """

    head: dict[str, Any]
    model: dict[str, Any]
    vocabulary: bytes
    merges: bytes | None

    @classmethod
    def take_apart(cls, text: bytes) -> Serialised:
        """Take apart what `written` returned.

        Raises:
            Unidentifiable: for a model whose layout is not known.
        """
        at = text.find(MODEL + TYPE)
        if at < 0:
            raise Unidentifiable(
                "the installed version of tokenizers writes tokenizers in a layout that Rankproof"
                " does not support"
            )
        head = json.loads(text[:at] + b"}")
        begin = at + len(MODEL)
        kind = text[begin + len(TYPE) : text.index(b'"', begin + len(TYPE))].decode()
        opening = text.find(VOCABULARY, begin)
        if opening < 0 or kind not in FOLLOWS:
            raise Unidentifiable(f"a model of type {kind!r} is not supported")
        start = opening + len(VOCABULARY)
        closing = FOLLOWS[kind]
        # The last two braces close the model and the tokenizer.
        end = text.find(closing, start) if closing else len(text) - 2
        if end < 0:
            raise Unidentifiable(
                f"a model of type {kind!r} has a layout that Rankproof does not support"
            )
        rest = text[end:-2]
        merges = None
        if kind == "BPE":
            merges = rest.removeprefix(MERGES)
            rest = b""
        return cls(
            head=head,
            model=json.loads(text[begin:opening] + rest + b"}"),
            vocabulary=text[start:end],
            merges=merges,
        )

    def entries(self) -> int:
        """Count the tokens of a written vocabulary (not for Unigram, whose vocabulary is a
        list).
        """
        # A backslash takes the next character with it, so that what is left are the quotes around
        # tokens.
        return (self.vocabulary.count(b'"') - ESCAPES.findall(self.vocabulary).count(b'"')) // 2


# What follows the vocabulary, by type of model.
FOLLOWS = {
    "BPE": MERGES + b"[",
    "WordPiece": b"",
    "WordLevel": b',"unk_token":',
    "Unigram": b',"byte_fallback":',
}


Parts = dict[str, str]
NONE = "none"
MOST_ADDED = 512


def read(backend: Any) -> Serialised:
    """Return the pieces of a tokenizer.

    Raises:
        Unidentifiable: if a component is Python code, which cannot be written down.
    """
    with panics_become(
        Unidentifiable,
        "this tokenizer cannot be serialized (is one of its components Python code?)",
    ):
        return Serialised.take_apart(written(backend))


def encoder_parts(
    backend: Any, pieces: Serialised, *, alone: bool, encode_special_tokens: bool
) -> Parts:
    """Everything that decides which ids a text gets, and what else a backend holds.

    Args:
        backend: a `tokenizers.Tokenizer`; it is not changed.
        pieces: from `read(backend)`.
        alone: whether `Tokenizer.encode` is what is called. transformers sets padding and
            truncation anew for each call, so that what is found there is left over from the last
            one and decides nothing.
        encode_special_tokens: whether special tokens in a text are split like any other text.
    """
    head = pieces.head
    model = pieces.model
    vocabulary, merges = _vocabulary(backend, pieces)
    normal = normal_form(head, model, pieces.vocabulary)
    added = head["added_tokens"]
    state = text_settings(head) if alone else {}
    plain = backend
    if not alone and (
        head["padding"]
        or head["truncation"]
        or backend.encode_special_tokens != encode_special_tokens
    ):
        plain = view(backend, head, encode_special_tokens=encode_special_tokens)
    at_random = "dropout" in normal["model"]
    ids = NONE if at_random else _probe_ids(plain)
    added_ids = NONE if at_random else _added_ids(plain, added)
    encoding = {
        "vocabulary": vocabulary,
        "merges": merges,
        **normal,
        # After the probes: where a template names a token that it does not have, the library's
        # panic says so.
        "post_processor": post_processor_items(head["post_processor"]),
        "added tokens": added,
        "encode special tokens": encode_special_tokens,
        "state": state,
        "probe ids": ids,
        "ids of added tokens": added_ids,
    }
    return {
        "encoding": digest_text(canonical_json(encoding)),
        "backend": type_of(backend),
        "model": short(model),
        "vocabulary": vocabulary,
        "merges": merges,
        "added tokens": digest_text(canonical_json(added)) if added else NONE,
        "encode special tokens": str(encode_special_tokens).lower(),
        "probe ids": ids if ids != NONE else "not comparable: dropout chooses at random",
        **{
            name: short(head[name]) if head[name] is not None else NONE
            for name in (
                "normalizer",
                "pre_tokenizer",
                "post_processor",
                "decoder",
                "padding",
                "truncation",
            )
        },
    }


def round_trip(encode: Callable[[str], list[int] | str], decode: Callable[[list[int]], str]) -> str:
    """Encode and decode every probe: by name whether it is `kept`, `changed` or `lost`.

    A text that cannot be encoded (an error in words instead of ids) does not come back.
    """
    outcome = {}
    with panics_become(Unidentifiable, "the tokenizer fails on the round trip of the probe corpus"):
        for name, text in PROBES.items():
            ids = encode(text)
            back = decode([] if isinstance(ids, str) else ids)
            if back == text:
                outcome[name] = "kept"
            elif text.strip() and not back.strip():
                outcome[name] = "lost"
            else:
                outcome[name] = "changed"
    counts = {
        word: sum(result == word for result in outcome.values())
        for word in ("kept", "changed", "lost")
    }
    named = {
        word: [name for name, result in outcome.items() if result == word]
        for word in ("kept", "lost")
    }
    return canonical_json(
        counts | {"names": {word: names for word, names in named.items() if names}}
    )


def view(
    backend: Any, head: dict[str, Any] | None = None, *, encode_special_tokens: bool | None = None
) -> Any:
    """Return the same tokenizer without what a call leaves behind.

    The model is shared, and `backend` is left as it is.

    Args:
        backend: a `tokenizers.Tokenizer`.
        head: from `read(backend)`, if it is at hand.
        encode_special_tokens: as in `encoder_parts`; by default what the backend has.
    """
    from tokenizers import AddedToken, Tokenizer

    head = read(backend).head if head is None else head
    plain = Tokenizer(backend.model)
    for name in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        component = getattr(backend, name)
        if component is not None:
            setattr(plain, name, component)
    for token in head["added_tokens"]:
        flags = {key: value for key, value in token.items() if key not in {"id", "content"}}
        plain.add_tokens([AddedToken(token["content"], **flags)])
    held = {index: str(token) for index, token in plain.get_added_tokens_decoder().items()}
    if held != {token["id"]: token["content"] for token in head["added_tokens"]}:
        # Ids that a new tokenizer would not give: take the slow way, a copy through JSON.
        plain = Tokenizer.from_str(backend.to_str())
        plain.no_padding()
        plain.no_truncation()
    plain.encode_special_tokens = (
        backend.encode_special_tokens if encode_special_tokens is None else encode_special_tokens
    )
    return plain


def _added_ids(backend: Any, added: list[dict[str, Any]]) -> str:
    """Digest of the ids of texts with added tokens.

    How a backend finds them depends on the order in which they and the normalizer were set, which
    is not written down.
    """
    with panics_become(
        Unidentifiable, "the tokenizer fails on a text that contains an added token"
    ):
        ids = [
            ids_of(backend, f"a{token['content']} b {token['content'].lower()}")
            for token in added[:MOST_ADDED]
        ]
    return digest_text(canonical_json(ids))


def _probe_ids(backend: Any) -> str:
    """Ids of every probe, with and without the special tokens around it, and of one pair, as
    JSON.
    """
    ids: dict[str, Any] = {}
    with panics_become(Unidentifiable, "the tokenizer fails on a text of the probe corpus"):
        for name, text in PROBES.items():
            ids[name] = ids_of(backend, text)
        ids["with special tokens"] = ids_of(backend, PROBES["plain"], special=True)
        ids["pair"] = ids_of(backend, PROBES[PAIR[0]], PROBES[PAIR[1]], special=True)
    return canonical_json(ids)


def ids_of(backend: Any, *texts: str, special: bool = False) -> list[int] | str:
    """Ids, or the error in a few words: a vocabulary without an unknown token refuses some texts,
    each time alike.
    """
    try:
        return list(backend.encode(*texts, add_special_tokens=special).ids)
    except Exception as error:  # noqa: BLE001 - the library raises plain Exception
        return f"error: {str(error)[:80]}"


def _vocabulary(backend: Any, pieces: Serialised) -> tuple[str, str]:
    """Digests of vocabulary and merges.

    Where two tokens share an id the library writes one of them, a different one each time; so they
    are read from it.
    """
    merges = digest_text(pieces.merges) if pieces.merges is not None else NONE
    if pieces.model["type"] == "Unigram" or pieces.entries() == backend.get_vocab_size(
        with_added_tokens=False
    ):
        return digest_text(pieces.vocabulary), merges
    tokens = backend.get_vocab(with_added_tokens=False)
    for content in (token["content"] for token in pieces.head["added_tokens"]):
        tokens.setdefault(content, backend.token_to_id(content))
    if pieces.merges is not None:
        by_id = [[tokens[left], tokens[right]] for left, right in json.loads(pieces.merges)]
        merges = digest_text(canonical_json(by_id))
    return digest_text(canonical_json(tokens)), merges


def type_of(value: object) -> str:
    """Module and name of a value's class."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


Component = dict[str, Any]


def flatten(component: Component | None, *, inside: str) -> list[Component]:
    """Return a chain of components as one flat list: a Sequence in a Sequence runs as if written
    out.
    """
    if component is None:
        return []
    if component.get("type") == "Sequence":
        return [step for part in component[inside] for step in flatten(part, inside=inside)]
    return [component]


def normalizer_steps(component: Component | None) -> list[Component]:
    """Return the normalizers in order."""
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


def pre_tokenizer_steps(component: Component | None) -> list[Component]:
    """Return the pre-tokenizers in order, without what only moves offsets."""
    steps = []
    for step in flatten(component, inside="pretokenizers"):
        given = dict(step)
        if given["type"] == "ByteLevel":
            given.pop("trim_offsets", None)
        steps.append(given)
    return steps


def post_processor_items(component: Component | None) -> list[Component]:
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


def model_options(small: Component, *, vocabulary: bytes, before: list[Component]) -> Component:
    """Return the options of a model that can make a difference.

    Args:
        small: the model without vocabulary and merges.
        vocabulary: its JSON text.
        before: the pre-tokenizers, from `pre_tokenizer_steps`.
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
    chain = pre_tokenizer_steps(head["pre_tokenizer"])
    return {
        "normalizer": normalizer_steps(head["normalizer"]),
        "pre_tokenizer": chain,
        "model": model_options(small, vocabulary=vocabulary, before=chain),
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


def text_settings(head: Component) -> Component:
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
            continue
        name = piece["SpecialToken"]["id"]
        if name not in processor["special_tokens"]:
            raise Unidentifiable(
                f"the post-processor names the special token {name!r} without defining it"
            )
        items.append(list(processor["special_tokens"][name]["ids"]))
    return items


def _joined(pieces: list[Any]) -> list[Any]:
    items: list[Any] = []
    for piece in pieces:
        if isinstance(piece, list) and items and isinstance(items[-1], list):
            items[-1] = items[-1] + piece
        elif piece != []:
            items.append(piece)
    return items
