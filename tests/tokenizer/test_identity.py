"""An identity: what it covers, what it leaves alone, and how it is written down."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from tokenizers.pre_tokenizers import PreTokenizer

from harness.tokenizer import Identity, IdentityMalformed, Unidentifiable, identify
from harness.tokenizer.backend import post_processor_items, read, written
from tests.tokenizer.making import SORTS, raw, tokenizer


@pytest.mark.parametrize("sort", SORTS)
def test_an_identity_is_the_same_every_time(sort: str) -> None:
    """Two loads of one tokenizer have one identity, in both depths, and the cheap form has the same
    semantic digest.
    """
    first, second = tokenizer(raw(sort)), tokenizer(raw(sort))
    assert identify(first) == identify(second)
    assert identify(first, depth="cheap") == identify(second, depth="cheap")
    assert identify(first, depth="cheap").semantic == identify(first).semantic


def test_an_identity_is_the_same_in_another_process() -> None:
    """Nothing of a process is in an identity: hash seeds, addresses, order of maps."""
    code = "import sys; from tokenizers import Tokenizer; from harness.tokenizer import identify; "
    code += "print(*(identify(Tokenizer.from_str(line)).full for line in sys.stdin))"
    written = [json.dumps(raw(sort)) for sort in SORTS]
    env = {"PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUTF8": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env=env,
        input="\n".join(written),
    )
    assert done.stdout.split() == [identify(tokenizer(raw(sort))).full for sort in SORTS]


@pytest.mark.parametrize("sort", SORTS)
def test_identifying_leaves_the_tokenizer_alone(sort: str) -> None:
    """A tokenizer is written the same before and after, padding and truncation included."""
    made = tokenizer(raw(sort))
    made.enable_truncation(7)
    made.enable_padding(length=9)
    before = made.to_str()
    identify(made)
    identify(made, depth="cheap")
    assert made.to_str() == before


def test_what_is_not_written_down_is_seen() -> None:
    """Whether special tokens in a text are split does not stand in tokenizer.json, and changes the
    semantic digest.
    """
    made = tokenizer(raw("byte_level"))
    before = identify(made)
    made.encode_special_tokens = True
    assert identify(made).semantic != before.semantic


def test_how_added_tokens_are_found_is_seen() -> None:
    """An added token, special no longer, is still split as one: not written down, and seen beside a
    fresh copy.
    """
    made = tokenizer(raw("byte_level"))
    made.add_tokens([AddedToken("<|end|>", special=False, normalized=False)])
    made.encode_special_tokens = True
    fresh = Tokenizer.from_str(made.to_str())
    fresh.encode_special_tokens = True
    assert made.encode("<|end|>").ids != fresh.encode("<|end|>").ids
    assert identify(made).semantic != identify(fresh).semantic


def test_two_tokens_with_one_id_are_both_seen() -> None:
    """The library writes only one of two tokens that share an id.

    The digest covers both, the same each time.
    """
    content: dict[str, Any] = raw("wordlevel")
    vocabulary = content["model"]["vocab"]
    vocabulary["fox"] = vocabulary["dog,"]
    found = {identify(tokenizer(content)).semantic for _ in range(8)}
    assert len(found) == 1
    del vocabulary["fox"]
    assert identify(tokenizer(content)).semantic not in found


def test_dropout_has_one_identity() -> None:
    """A tokenizer that encodes at random still has one identity, which says so."""
    content = raw("byte_level")
    content["model"]["dropout"] = 0.5
    first, second = identify(tokenizer(content)), identify(tokenizer(content))
    assert first.semantic == second.semantic
    assert "dropout" in first.parts["probe ids"]


def test_custom_python_components_have_no_identity() -> None:
    """A pre-tokenizer that is Python code is refused with the reason."""

    class Custom:
        def pre_tokenize(self, _text: object) -> None:
            """Split nothing."""

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = PreTokenizer.custom(Custom())
    with pytest.raises(Unidentifiable, match="Python code"):
        identify(made)


@pytest.mark.parametrize(
    "value", [None, 3, "folder", object(), models.BPE(), pre_tokenizers.ByteLevel()]
)
def test_what_is_no_tokenizer_has_no_identity(value: object) -> None:
    """Anything else is refused by its type."""
    with pytest.raises(Unidentifiable, match="neither"):
        identify(value)


@settings(max_examples=200, deadline=None)
@given(
    tokens=st.lists(st.text('\\":,{}[]ab\u2028é', min_size=1, max_size=6), min_size=1, unique=True)
)
def test_a_vocabulary_is_cut_out_whole(tokens: list[str]) -> None:
    """Whatever tokens hold, quotes and braces included, the vocabulary is found in the text and
    counted right.
    """
    vocabulary = {token: index for index, token in enumerate(tokens)}
    unknown = tokens[0]
    for model in (
        models.WordLevel(vocabulary, unk_token=unknown),
        models.WordPiece(vocabulary, unk_token=unknown),
        models.BPE(vocabulary, []),
        models.Unigram([(token, -1.0) for token in tokens], unk_id=0),
    ):
        made = Tokenizer(model)
        made.add_tokens([AddedToken(token * 2) for token in tokens])
        pieces = read(made)
        whole = json.loads(made.to_str())
        assert written(made) == made.to_str().encode()
        assert json.loads(pieces.vocabulary) == whole["model"].pop("vocab")
        assert json.loads(pieces.merges or b"[]") == whole["model"].pop("merges", [])
        assert pieces.model == whole.pop("model")
        assert pieces.head == whole
        if whole and not isinstance(model, models.Unigram):
            assert pieces.entries() == len(tokens)


@pytest.mark.parametrize("depth", ["cheap", "full"])
def test_an_identity_survives_being_written_down(depth: Any) -> None:
    """`from_json` gives back what `to_json` wrote, and so does pickle."""
    made = identify(tokenizer(raw("wordpiece")), depth=depth)
    assert Identity.from_json(made.to_json()) == made
    assert pickle.loads(pickle.dumps(made)) == made  # noqa: S301 - our own bytes
    assert len({made, Identity.from_json(made.to_json())}) == 1


def test_an_edited_identity_is_refused() -> None:
    """Each key that is missing, added, of another sort or edited is named."""
    good = json.loads(identify(tokenizer(raw("wordpiece"))).to_json())
    bad = [{key: value for key, value in good.items() if key != left_out} for left_out in good]
    bad += [good | change for change in (
        {"more": 1}, {"schema": 2}, {"schema": True}, {"probes": 0}, {"depth": "deep"}, {"depth": []},
        {"depth": "cheap"},
        {"semantic": "0" * 64}, {"full": "0" * 64}, {"semantic": None}, {"parts": {}}, {"parts": []},
        {"parts": good["parts"] | {"bos": 5}}, {"parts": good["parts"] | {"bos": "x"}}, {"parts": {"a": "\ud800"}},
    )]  # fmt: skip
    for one in bad:
        with pytest.raises(IdentityMalformed):
            Identity.from_json(json.dumps(one))
    text = json.dumps(good)
    for text_of_bad in (
        "",
        "null",
        "[]",
        text[:-1],
        text + " {}",
        text.replace('"depth"', '"full": 1, "depth"'),
        "[" * 10**5,
    ):
        with pytest.raises(IdentityMalformed):
            Identity.from_json(text_of_bad)


@settings(max_examples=60)
@given(text=st.text())
def test_any_text_is_an_identity_or_malformed(text: str) -> None:
    """`from_json` never fails in another way."""
    with pytest.raises(IdentityMalformed):
        Identity.from_json(text)


def test_importing_is_cheap() -> None:
    """`import harness.tokenizer` imports neither transformers nor tokenizers nor torch."""
    heavy = {"transformers", "tokenizers", "torch", "numpy"}
    code = f"import sys, harness.tokenizer; print(sorted({heavy} & set(sys.modules)))"
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env
    )
    assert said.stdout.strip() == "[]"


def test_a_template_that_names_an_undefined_token_is_refused() -> None:
    """The library loads such a post-processor, and panics when it encodes."""
    processor = raw("wordpiece")["post_processor"]
    processor["single"][0] = {"SpecialToken": {"id": "[CLS]x", "type_id": 0}}
    with pytest.raises(Unidentifiable, match=r"special token '\[CLS\]x' without defining it"):
        post_processor_items(processor)
