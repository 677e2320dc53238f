"""What a difference says."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from harness.tokenizer import Identity, difference, identify
from harness.tokenizer.comparison import compare
from harness.tokenizer.formats import serialised_form
from harness.tokenizer.objects import compared_object
from tests.tokenizer.making import CONFIG, TEMPLATE, Raw, raw, tokenizer, write_folder


def other(sort: str, change: Any) -> Raw:
    """A content with a change."""
    content = copy.deepcopy(raw(sort))
    change(content)
    return content


def test_nothing_differs_from_itself(tmp_path: Path) -> None:
    """Two loads, two folders and two identities of one tokenizer have no difference."""
    a, b = (
        write_folder(tmp_path / name, content=raw("byte_level"), config=CONFIG) for name in "ab"
    )
    assert difference(a, b) == []
    assert difference(tokenizer(raw("unigram")), tokenizer(raw("unigram"))) == []
    one = identify(tokenizer(raw("metaspace")))
    assert difference(one, Identity.from_json(one.to_json())) == []


def test_a_rare_token_is_shown_by_its_text() -> None:
    """A token whose text was changed is named with its id, and the example holds that text."""

    def change(content: Raw) -> None:
        vocabulary = content["model"]["vocab"]
        content["model"]["vocab"] = {
            "Wonderful!" if word == "wonderful" else word: index
            for word, index in vocabulary.items()
        }

    (found,) = difference(tokenizer(raw("wordlevel")), tokenizer(other("wordlevel", change)))
    index = raw("wordlevel")["model"]["vocab"]["wonderful"]
    assert found.part == "vocabulary"
    assert f"'wonderful' {index}" in found.words
    assert f"'Wonderful!' {index}" in found.words
    assert found.example == "wonderful"
    assert (found.first, found.second) == (f"[{index}]", "[0]")


def test_merges_that_compete_are_shown_by_a_text_in_which_they_do() -> None:
    """Two merges that were exchanged are named by rank, and the example is encoded differently."""

    def change(content: Raw) -> None:
        merges = content["model"]["merges"]
        merges[3], merges[4] = merges[4], merges[3]

    (found,) = difference(tokenizer(raw("metaspace")), tokenizer(other("metaspace", change)))
    assert found.words == "merges: rank 3 is 't e' against 's t'"
    assert found.example is not None
    assert "ste" in found.example


def test_a_flag_is_shown_by_a_text_in_which_it_matters() -> None:
    """An added token's flag is named, and spaces around the token show it."""

    def change(content: Raw) -> None:
        content["added_tokens"][1]["lstrip"] = True

    (found,) = difference(tokenizer(raw("byte_level")), tokenizer(other("byte_level", change)))
    assert found.words == "added tokens: '<|end|>': lstrip false against true"
    assert found.example == " <|end|>"


def test_an_option_is_named_by_its_path() -> None:
    """An option deep in a component is named by where it stands."""

    def change(content: Raw) -> None:
        content["normalizer"]["normalizers"][1]["pattern"] = {"Regex": "e{2,}"}

    (found,) = difference(tokenizer(raw("unigram")), tokenizer(other("unigram", change)))
    assert found.words == 'normalizer: normalizers[1].pattern.Regex " {2,}" against "e{2,}"'


def test_a_decoder_is_shown_by_a_text_that_comes_back_otherwise() -> None:
    """A decoder is not semantic; the example shows what each side decodes."""
    (found,) = difference(
        tokenizer(raw("byte_level")), tokenizer(raw("byte_level") | {"decoder": None})
    )
    assert not found.semantic
    assert found.example is not None
    assert found.first != found.second


def test_a_template_is_shown_by_its_first_line_that_differs(tmp_path: Path) -> None:
    """A chat template that differs is shown by line."""
    a = write_folder(tmp_path / "a", content=raw("byte_level"), config=CONFIG, template=TEMPLATE)
    b = write_folder(
        tmp_path / "b",
        content=raw("byte_level"),
        config=CONFIG,
        template=TEMPLATE.replace("endfor", "endfor "),
    )
    (found,) = difference(a, b)
    assert found.words == "the chat template 'default' differs, first in line 2"
    assert found.semantic
    assert "endfor" in str(found.second)


def test_names_are_told_with_their_ids(tmp_path: Path) -> None:
    """An end token that is another is named with both ids; what it is called is semantic."""
    a = write_folder(tmp_path / "a", content=raw("byte_level"), config=CONFIG)
    b = write_folder(
        tmp_path / "b", content=raw("byte_level"), config=CONFIG | {"eos_token": "<|pad|>"}
    )
    words = [one.words for one in difference(a, b) if one.semantic]
    assert words == ["eos_token: '<|end|>' (id 341) against '<|pad|>' (id 342)"]


def test_identities_alone_are_shown_by_a_probe() -> None:
    """Where only two identities are left, the probe corpus still shows a text."""
    a = identify(tokenizer(raw("wordpiece")))
    b = identify(tokenizer(raw("wordpiece") | {"normalizer": None}))
    (found,) = difference(a, b)
    assert found.part == "normalizer"
    assert found.example is not None
    assert found.first != found.second


def test_no_example_is_made_up() -> None:
    """Where no text shows a difference, the sentence says so."""

    def change(content: Raw) -> None:
        content["added_tokens"][1]["special"] = False

    (found,) = difference(tokenizer(raw("byte_level")), tokenizer(other("byte_level", change)))
    assert found.example is None
    assert "no text that shows the difference was found" in found.words


def test_a_form_is_compared_with_a_form_only() -> None:
    """What every format can say is less than an identity: between the two no difference has a
    meaning.
    """
    side = compared_object(tokenizer(raw("byte_level")))
    assert side.pieces is not None
    form = serialised_form(side.pieces)
    assert compare(side, side) == compare(form, form) == []
    with pytest.raises(TypeError, match="another Form"):
        compare(side, form)
