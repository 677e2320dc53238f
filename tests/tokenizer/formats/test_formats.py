"""The same tokenizer in several formats: equal where they say the same, undecided where one cannot
say it.
"""

from __future__ import annotations

import base64
import copy
import io
import json
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from harness.tokenizer import Identity, difference, identify, identify_folder
from harness.tokenizer.backend import read
from harness.tokenizer.child import read_form
from harness.tokenizer.comparison import compare
from harness.tokenizer.form import plain, spelled
from harness.tokenizer.formats import Form, serialised_form
from harness.tokenizer.formats.tokenizer_json import _cut
from harness.tokenizer.gguf.known import PATTERNS, PRE_TOKENIZERS, SPLITS
from tests.tokenizer.formats.conversion import (
    LLAMA_3,
    change,
    layout,
    llama_3,
    of_pieces,
    of_serialised,
)
from tests.tokenizer.making import CORPUS, Raw, raw, tokenizer
from tests.tokenizer.test_mutations import CHANGES_IDS


def form_of(content: Raw) -> Form:
    return serialised_form(read(tokenizer(content)))


def file_form(tmp_path: Path, name: str, content: bytes) -> Form:
    (tmp_path / name).write_bytes(content)
    return read_form(tmp_path / name)


def sorts(first: Form, second: Form) -> dict[str, str]:
    return {one.part: one.sort for one in compare(first, second) if one.sort != "remark"}


@pytest.fixture(scope="module")
def trained() -> dict[str, bytes]:
    """SentencePiece models, trained here; the rule for characters is identity."""
    made = {}
    for kind in ("bpe", "unigram"):
        written = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(CORPUS),
            model_writer=written,
            vocab_size=330,
            model_type=kind,
            byte_fallback=True,
            normalization_rule_name="identity",
            minloglevel=2,
        )
        made[kind] = written.getvalue()
    return made


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_model_file_is_what_the_library_reads(
    kind: str, trained: dict[str, bytes], tmp_path: Path
) -> None:
    """Pieces, scores and ids are those that sentencepiece gives for the same file."""
    form = file_form(tmp_path, "a.model", trained[kind])
    library = sentencepiece.SentencePieceProcessor(model_proto=trained[kind])
    assert [one.decode() for one in form.tokens()] == [
        library.id_to_piece(i) for i in range(library.vocab_size())
    ]
    scores = [
        library.get_score(i) if form.types[i] == 1 else 0.0 for i in range(library.vocab_size())
    ]
    assert list(form.scores()) == scores
    assert (form.parts["bos"], form.parts["eos"]) == (str(library.bos_id()), str(library.eos_id()))
    assert form.parts["model"] == {"bpe": "BPE", "unigram": "Unigram"}[kind]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_model_file_and_its_gguf_are_the_same(
    kind: str, trained: dict[str, bytes], tmp_path: Path
) -> None:
    """A faithful conversion has one fingerprint, and a changed score another."""
    form = file_form(tmp_path, "a.model", trained[kind])
    file = of_pieces(trained[kind])
    converted = file_form(tmp_path, "a.gguf", file.bytes())
    assert sorts(form, converted) == {}
    assert form.fingerprint == converted.fingerprint
    change(file, "scores", 320, -0.5)
    rows = compare(form, file_form(tmp_path, "b.gguf", file.bytes()))
    assert [one.part for one in rows if one.sort == "difference"] == ["scores"]


def test_unigram_and_bpe_are_never_the_same(trained: dict[str, bytes], tmp_path: Path) -> None:
    """The algorithm is part of the fingerprint, whatever else is alike."""
    first, second = (
        file_form(tmp_path, f"{kind}.model", content) for kind, content in trained.items()
    )
    assert sorts(first, second)["model"] == "difference"
    assert first.fingerprint != second.fingerprint


def test_merges_of_scores(tmp_path: Path) -> None:
    """A tokenizer.json with the merges that a model's scores make is undecided.

    Without one of them it differs.
    """
    model = layout("llama2")["tokenizer.model"]
    scored = file_form(tmp_path, "tokenizer.model", model)
    content = with_merges(scored)
    rows = sorts(scored, form_of(content))
    assert rows == {"merges": "undecided"}
    del content["model"]["merges"][500]
    assert sorts(scored, form_of(content)) == {"merges": "difference"}
    content = with_merges(scored)
    content["model"]["merges"].insert(0, content["model"]["merges"].pop(500))
    assert sorts(scored, form_of(content)) == {"merges": "difference"}


def with_merges(form: Form) -> Raw:
    """A tokenizer.json of a model file, by the rule of transformers' converter."""
    texts = [one.decode() for one in form.tokens()]
    scores = form.scores()
    normal = {text: index for index, text in enumerate(texts) if form.types[index] == 1}
    merges = [
        (text[:cut], text[cut:], -scores[index])
        for text, index in normal.items()
        for cut in range(1, len(text))
        if text[:cut] in normal and text[cut:] in normal
    ]
    merges.sort(key=lambda one: one[2])
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return raw("metaspace") | {
        "added_tokens": [
            {"id": index, "content": text, "special": True} | flags
            for index, text in enumerate(texts)
            if form.types[index] == 3
        ],
        "model": (
            raw("metaspace")["model"]
            | {
                "vocab": {text: index for index, text in enumerate(texts)},
                "merges": [[left, right] for left, right, _ in merges],
            }
        ),
    }


def ranked(content: Raw) -> list[bytes]:
    """The bytes of a byte-level vocabulary, by id."""
    return [plain(token.encode()) for token in content["model"]["vocab"]]


def test_tiktoken_is_compared_as_far_as_it_says(tmp_path: Path) -> None:
    """The same bytes by rank leave the rest undecided; other bytes are a difference."""
    tokens = ranked(llama_3())
    lines = [base64.b64encode(one) + b" %d\n" % rank for rank, one in enumerate(tokens)]
    form = file_form(tmp_path, "a.tiktoken", b"".join(lines))
    assert {*sorts(form, form_of(llama_3())).values()} == {"undecided"}
    lines[300] = base64.b64encode(b"another") + b" 300\n"
    changed = compare(file_form(tmp_path, "tokenizer.model", b"".join(lines)), form_of(llama_3()))
    assert 'id 300 is "another" in the first' in changed[0].words


def tekken(content: Raw, *, special: int = 3, pattern: str = LLAMA_3) -> Raw:
    """A tekken.json of a byte-level vocabulary."""
    tokens = ranked(content)
    return {
        "config": {
            "pattern": pattern,
            "num_vocab_tokens": len(tokens),
            "default_vocab_size": len(tokens) + special,
            "default_num_special_tokens": special,
            "version": "v3",
        },
        "vocab": [
            {"rank": rank, "token_bytes": base64.b64encode(one).decode(), "token_str": None}
            for rank, one in enumerate(tokens)
        ],
        "special_tokens": [
            {"rank": i, "token_str": f"<{i}>", "is_control": True} for i in range(special)
        ],
    }


def test_tekken_has_special_tokens_first(tmp_path: Path) -> None:
    """Ids of text begin behind the special tokens, and the pattern is known by name."""
    form = file_form(tmp_path, "tekken.json", json.dumps(tekken(llama_3())).encode())
    assert form.tokens()[:3] == [b"<0>", b"<1>", b"<2>"]
    assert [plain(one) for one in form.tokens()[3:]] == ranked(llama_3())
    assert form.parts["pre-tokenizer"] == "llama-3"
    other = tekken(llama_3())
    other["special_tokens"][1] |= {"token_str": "<s>"}
    changed = compare(form, file_form(tmp_path, "tekken2.json", json.dumps(other).encode()))
    assert [one.words for one in changed] == [
        'tokens: id 1 is "<1>" in the first and "<s>" in the second'
    ]


def test_padding_of_a_list_of_merges_in_either_spelling() -> None:
    """Merges written as pairs, and as one text, are the same."""
    content = llama_3()
    content["model"]["merges"] = [" ".join(one) for one in content["model"]["merges"]]
    assert form_of(content).fingerprint == form_of(llama_3()).fingerprint


def test_a_piece_with_a_space_is_not_taken_for_another() -> None:
    """Merges of which a piece holds a space never look like those of another cut."""
    forms = []
    for left, right in (("a b", "c"), ("a", "b c")):
        vocabulary = {
            text: index for index, text in enumerate(("a b", "c", "a", "b c", "a bc", "ab c"))
        }
        model = {"type": "BPE", "vocab": vocabulary, "merges": [[left, right]]}
        forms.append(form_of({"version": "1.0", "model": model, "added_tokens": []}))
    assert sorts(*forms) == {"merges": "difference"}


@given(st.lists(st.tuples(*[st.text('a"\\\\,[]é\x00\n', min_size=1, max_size=6)] * 2), max_size=5))
def test_merges_are_cut_as_they_are_parsed(pairs: list[tuple[str, str]]) -> None:
    """Merges cut out of the text are those that a parser gives, whatever quotes and marks the
    pieces hold.
    """
    text = json.dumps(pairs, ensure_ascii=False, separators=(",", ":")).encode()
    assert _cut(text) == [f"{left} {right}".encode() for left, right in pairs]


@pytest.mark.parametrize("token", ["a", "Ġthe", "ä¸Ń", "Ċ"])
def test_letters_and_bytes_are_one(token: str) -> None:
    """What a token of GPT-2's letters stands for is spelled as that token again."""
    assert spelled(plain(token.encode())) == token.encode()


def test_an_identity_has_the_fingerprint_of_its_file(tmp_path: Path) -> None:
    """The identities of an object, a tokenizer.json and a GGUF file hold one fingerprint, and say
    so when compared.
    """
    (tmp_path / "tokenizer.json").write_text(json.dumps(llama_3()))
    (tmp_path / "model.gguf").write_bytes(of_serialised(llama_3()).bytes())
    made = Tokenizer.from_str(json.dumps(llama_3()))
    found = [
        identify(made),
        identify_folder(tmp_path / "tokenizer.json"),
        identify_folder(tmp_path / "model.gguf"),
    ]
    assert len({one.parts["fingerprint"] for one in found}) == 1
    assert found[2].semantic != found[1].semantic
    assert Identity.from_json(found[2].to_json()) == found[2]
    assert difference(found[1], found[2]) == []
    other = identify(tokenizer(raw("byte_level")))
    assert [one.part for one in difference(other, found[2])] == ["fingerprint"]


def test_a_missing_byte_is_said_of_a_tokenizer_json() -> None:
    """A byte-level vocabulary without the letter of a byte loses text, and its identity says
    which.
    """
    content = copy.deepcopy(llama_3())
    vocabulary = content["model"]["vocab"]
    letter = next(one for one in ("Ā", "ÿ", "ö") if one in vocabulary)
    vocabulary[f"{letter}{letter}{letter}"] = vocabulary.pop(letter)
    content["model"]["merges"] = [
        one for one in content["model"]["merges"] if letter not in "".join(one)
    ]
    said = identify(tokenizer(content)).parts["remarks"]
    assert "no token covers byte 0x00; code point U+0000 cannot be encoded" in said


# What stands between two texts has no field in any other format.
@pytest.mark.parametrize("name", [name for name in CHANGES_IDS if name != "another end of a pair"])
def test_what_changes_ids_is_never_the_same(name: str) -> None:
    """A change that can change ids is a difference of the forms, and of the fingerprint unless it
    is around a text.
    """
    sort, change_ = CHANGES_IDS[name]
    content = copy.deepcopy(raw(sort))
    change_(content)
    before, after = form_of(raw(sort)), form_of(content)
    rows = [one.part for one in compare(before, after) if one.sort != "remark"]
    assert rows
    assert (before.fingerprint == after.fingerprint) == (rows == ["around"])


def test_every_split_has_a_known_name() -> None:
    """A name that stands in the table of splits is one that GGUF files have, and its split is
    described.
    """
    assert {*SPLITS} - PRE_TOKENIZERS == set()
    assert {*SPLITS.values()} - {*PATTERNS} == {"digits, gpt-2"}
