"""Nobody finds two tokenizers that encode differently and have one semantic digest."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from harness.tokenizer import TokenizerError, identify
from harness.tokenizer.comparison.example import TURNING
from tests.tokenizer.making import SORTS, Raw, raw, tokenizer

BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": True,
    "trim_offsets": True,
    "use_regex": True,
}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
BERT = {"type": "BertProcessing", "sep": ["x", 3], "cls": ["y", 2]}
PAD = {
    "strategy": "BatchLongest",
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 0,
    "pad_type_id": 0,
}
CUT = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
COMPONENTS: dict[str, list[Any]] = {
    "normalizer": [
        None,
        *(
            {"type": name}
            for name in (
                "NFC",
                "NFD",
                "NFKC",
                "NFKD",
                "Lowercase",
                "StripAccents",
                "Nmt",
                "ByteLevel",
            )
        ),
        {"type": "Strip", "strip_left": True, "strip_right": False},
        {"type": "Strip", "strip_left": False, "strip_right": False},
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Prepend", "prepend": ""},
        {"type": "Replace", "pattern": {"String": "a"}, "content": "b"},
        {"type": "Replace", "pattern": {"Regex": "[a-c]"}, "content": ""},
    ],
    "pre_tokenizer": [
        None,
        *(
            {"type": name}
            for name in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer", "UnicodeScripts")
        ),
        {"type": "Punctuation", "behavior": "Isolated"},
        {"type": "Digits", "individual_digits": True},
        BYTE_LEVEL,
        BYTE_LEVEL | {"add_prefix_space": False, "trim_offsets": False},
        METASPACE,
        METASPACE | {"prepend_scheme": "first"},
        {
            "type": "Split",
            "pattern": {"Regex": " |\\d"},
            "behavior": "MergedWithNext",
            "invert": False,
        },
        {"type": "CharDelimiterSplit", "delimiter": "e"},
        {"type": "FixedLength", "length": 3},
    ],
    "post_processor": [
        None,
        BYTE_LEVEL,
        BERT,
        BERT | {"type": "RobertaProcessing", "trim_offsets": True, "add_prefix_space": True},
    ],
    "truncation": [
        None,
        CUT,
        CUT | {"direction": "Left"},
        CUT | {"strategy": "OnlySecond", "stride": 2},
    ],
    "padding": [
        None,
        PAD | {"pad_token": "x"},
        PAD | {"pad_token": "y", "strategy": {"Fixed": 12}},
        PAD | {"pad_token": "z", "pad_to_multiple_of": 8, "pad_type_id": 1},
        PAD | {"pad_token": "z", "pad_to_multiple_of": 1},
    ],
}
CHAINS = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
}
PIECES = (
    *("the", "test", "ing", "st", "tes", "quick", "hello", "world", "X", "12", "'s", "-", "##s"),
    *(
        " ",
        "  ",
        "\n",
        "▁",
        "é",
        "e\u0301",
        "東京",
        "😀",
        "<|end|>",
        "<unk>",
        "[CLS]",
        "</s>",
        "<0x41>",
    ),
)


@st.composite
def contents(draw: st.DrawFn, sort: str) -> Raw:
    """A tokenizer.json with one to three fields changed."""
    content = copy.deepcopy(raw(sort))
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            name = draw(st.sampled_from(sorted(COMPONENTS)))
            made = draw(st.sampled_from(COMPONENTS[name]))
            if name in CHAINS and draw(st.booleans()):
                chain = [one for one in [content[name], made] if one is not None]
                made = {"type": "Sequence", CHAINS[name]: chain}
            content[name] = copy.deepcopy(made)
        else:
            _change(draw, content)
    return content


def _change(draw: st.DrawFn, content: Raw) -> None:
    held: Any = content
    key: Any = draw(
        st.sampled_from(["added_tokens", "model", "normalizer", "pre_tokenizer", "post_processor"])
    )
    while isinstance(held[key], (dict, list)) and held[key]:
        held = held[key]
        key = draw(st.sampled_from(sorted(held) if isinstance(held, dict) else range(len(held))))
    value = held[key]
    if isinstance(value, bool):
        held[key] = not value
    elif isinstance(value, int):
        held[key] = max(0, value + draw(st.sampled_from([-1, 1, 5])))
    elif isinstance(value, float):
        held[key] = value + draw(st.sampled_from([-1.0, 0.5]))
    elif isinstance(value, str):
        held[key] = draw(
            st.sampled_from(
                [f"{value}x", "", value.upper(), "a", "▁", "[UNK]", "never", "Contiguous"]
            )
        )
    elif value is None:
        held[key] = draw(st.sampled_from(["", "a", "</w>", 0.0, 0, "##"]))


def ids(made: Tokenizer, text: str) -> list[object]:
    """Ids of a text alone, with special tokens, and as the second of a pair; errors in words."""
    found: list[object] = []
    for texts, special in (((text,), False), ((text,), True), (("hello", text), True)):
        try:
            found.append(made.encode(*texts, add_special_tokens=special).ids)
        except BaseException as error:
            if type(error).__name__ not in {"Exception", "PanicException"}:
                raise
            found.append("error")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("sort", SORTS)
@settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(data=st.data())
def test_equal_digests_mean_equal_ids(sort: str, data: st.DataObject) -> None:
    """Two tokenizers with one semantic digest give every text that is tried the same ids."""
    sides = []
    for content in (
        data.draw(contents(sort)),
        data.draw(st.one_of(st.just(raw(sort)), contents(sort))),
    ):
        try:
            made = tokenizer(content)
            sides.append((made, identify(made)))
        except TokenizerError:
            return
        except BaseException as error:
            if type(error).__name__ not in {"Exception", "PanicException"}:
                raise
            return
    (first, a), (second, b) = sides
    assert identify(first, depth="cheap").semantic == a.semantic
    if a.semantic == b.semantic:
        texts = data.draw(
            st.lists(
                st.lists(st.sampled_from(PIECES), max_size=8).map("".join), min_size=10, max_size=20
            )
        )
        for text in (*texts, *TURNING[:60]):
            assert ids(first, text) == ids(second, text)
    if a.full == b.full:
        assert first.to_str() == second.to_str()
