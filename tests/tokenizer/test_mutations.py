"""One change at a time: which digest it changes, and that the other stays."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from harness.tokenizer import Identity, difference, identify, identify_folder
from harness.tokenizer.comparison.example import TURNING
from harness.tokenizer.identity import PROBES
from tests.tokenizer.making import CONFIG, TEMPLATE, Raw, raw, tokenizer, write_folder

Change = Callable[[Raw], None]
TEXTS = (*TURNING, *PROBES.values(), "hello <|end|> the test", "[MASK]a", "the </s>test")


def put(*path: Any) -> Change:
    """Set the value at a path; the last of `path` is the value."""
    *keys, last, value = path

    def change(content: Raw) -> None:
        held: Any = content
        for key in keys:
            held = held[key]
        held[last] = value

    return change


def rename(old: str, new: str) -> Change:
    """Give one token of the vocabulary another text, in merges too."""

    def change(content: Raw) -> None:
        model = content["model"]
        if isinstance(model["vocab"], list):
            model["vocab"] = [
                [new if piece == old else piece, score] for piece, score in model["vocab"]
            ]
            return
        model["vocab"] = {
            new if token == old else token: index for token, index in model["vocab"].items()
        }

    return change


def swap_ids(one: str, other: str) -> Change:
    """Exchange the ids of two tokens."""

    def change(content: Raw) -> None:
        vocabulary = content["model"]["vocab"]
        vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]

    return change


def swap_merges(one: int, other: int) -> Change:
    """Exchange two merges."""

    def change(content: Raw) -> None:
        merges = content["model"]["merges"]
        merges[one], merges[other] = merges[other], merges[one]

    return change


def reorder(content: Raw) -> None:
    """Write every object's keys backwards."""

    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: turned(value[key]) for key in reversed(value)}
        return [turned(one) for one in value] if isinstance(value, list) else value

    changed = turned(content)
    content.clear()
    content.update(changed)


def flag(index: int, name: str) -> Change:
    """Turn one flag of an added token over."""

    def change(content: Raw) -> None:
        content["added_tokens"][index][name] = not content["added_tokens"][index][name]

    return change


def drop(*path: Any) -> Change:
    """Leave a key or an item out."""
    *keys, last = path

    def change(content: Raw) -> None:
        held: Any = content
        for key in keys:
            held = held[key]
        del held[last]

    return change


def add_token(content: Raw) -> None:
    """Add a token after the last."""
    index = max(token["id"] for token in content["added_tokens"]) + 1
    content["added_tokens"].append(
        content["added_tokens"][-1] | {"id": index, "content": "<|more|>"}
    )


BERT = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": True,
}
BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}
LONGEST = {
    "strategy": "BatchLongest",
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 0,
    "pad_type_id": 0,
    "pad_token": "x",
}
CUT = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}

# A sort of tokenizer, a change, and what follows: ids change (semantic and full), or only what is
# not ids (full).
CHANGES_IDS: dict[str, tuple[str, Change]] = {
    "two merges that compete are exchanged": ("metaspace", swap_merges(3, 4)),
    "a merge is missing": ("metaspace", drop("model", "merges", 3)),
    "the last merge is missing": ("byte_level", drop("model", "merges", -1)),
    "one rare token has another text": ("wordlevel", rename("wonderful", "wonderfuk")),
    "one rare piece has another text": ("unigram", rename("ello", "ellx")),
    "a continuing piece loses its prefix": ("wordpiece", rename("##s", "#s")),
    "two ids are exchanged": ("byte_level", swap_ids("a", "b")),
    "a score is another": ("unigram", put("model", "vocab", 3, 1, -90.0)),
    "another score is another": ("unigram", put("model", "vocab", 4, 1, -40.0)),
    "a special token is not special": ("byte_level", flag(1, "special")),
    "an added token strips left": ("byte_level", flag(1, "lstrip")),
    "an added token strips right": ("byte_level", flag(1, "rstrip")),
    "an added token is a single word": ("byte_level", flag(1, "single_word")),
    "an added token is normalized": ("wordpiece", flag(4, "normalized")),
    "an added token has another text": ("byte_level", put("added_tokens", 1, "content", "<|End|>")),
    "an added token is missing": ("byte_level", drop("added_tokens", 2)),
    "an added token more": ("byte_level", add_token),
    "merges are dropped at random": ("byte_level", put("model", "dropout", 0.1)),
    "no normalizer": ("wordpiece", put("normalizer", None)),
    "letters keep their case": ("wordpiece", put("normalizer", "lowercase", False)),
    "accents are kept": ("wordpiece", put("normalizer", "strip_accents", False)),
    "Chinese characters are not spaced": (
        "wordpiece",
        put("normalizer", "handle_chinese_chars", False),
    ),
    "control characters are kept": ("wordpiece", put("normalizer", "clean_text", False)),
    "a normalizer more": ("unigram", put("normalizer", {"type": "Lowercase"})),
    "another normal form": ("unigram", put("normalizer", "normalizers", 0, "type", "NFC")),
    "a normalizer prepends nothing": ("metaspace", drop("normalizer", "normalizers", 0)),
    "another pattern is replaced": (
        "unigram",
        put("normalizer", "normalizers", 1, "pattern", {"Regex": "e{2,}"}),
    ),
    "no pre-tokenizer": ("byte_level", put("pre_tokenizer", None)),
    "a space is put before the text": (
        "byte_level",
        put("pre_tokenizer", "add_prefix_space", True),
    ),
    "words are not split": ("byte_level", put("pre_tokenizer", "use_regex", False)),
    "the first word has no mark": ("unigram", put("pre_tokenizer", "prepend_scheme", "never")),
    "only the first section has the mark": (
        "unigram",
        put("pre_tokenizer", "prepend_scheme", "first"),
    ),
    "another mark for a space": ("unigram", put("pre_tokenizer", "replacement", "_")),
    "no post-processor": ("wordpiece", put("post_processor", None)),
    "another order of special tokens": (
        "wordpiece",
        lambda content: content["post_processor"]["single"].reverse(),
    ),
    "another id around a text": (
        "wordpiece",
        put("post_processor", "special_tokens", "[SEP]", "ids", [2]),
    ),
    "another end of a pair": ("wordpiece", lambda content: content["post_processor"]["pair"].pop()),
    "no bytes for what is unknown": ("metaspace", put("model", "byte_fallback", False)),
    "a byte is missing": ("metaspace", rename("<0xE6>", "<0xe6>")),
    "no bytes for what is unknown, and it is not joined": (
        "metaspace",
        lambda content: content["model"].update(byte_fallback=False, fuse_unk=False),
    ),
    "whole words win over merges": ("metaspace", put("model", "ignore_merges", True)),
    "a prefix for continued words": ("metaspace", put("model", "end_of_word_suffix", "</w>")),
    "another prefix for continued words": (
        "wordpiece",
        put("model", "continuing_subword_prefix", "@@"),
    ),
    "long words are unknown": ("wordpiece", put("model", "max_input_chars_per_word", 5)),
    "another unknown token": ("wordlevel", put("model", "unk_token", "fox")),
    "no unknown token": ("unigram", put("model", "unk_id", None)),
    "texts are cut": ("byte_level", put("truncation", CUT)),
    "texts are cut at the left": ("byte_level", put("truncation", CUT | {"direction": "Left"})),
    "texts are filled up": ("byte_level", put("padding", LONGEST | {"strategy": {"Fixed": 12}})),
    "texts are filled up to eights": (
        "byte_level",
        put("padding", LONGEST | {"pad_to_multiple_of": 8}),
    ),
}
CHANGES_FULL: dict[str, tuple[str, Change]] = {
    "no decoder": ("byte_level", put("decoder", None)),
    "another decoder": ("wordpiece", put("decoder", "prefix", "@@")),
    "a decoder keeps spaces": ("wordpiece", put("decoder", "cleanup", False)),
    "offsets are not trimmed": ("byte_level", put("post_processor", "trim_offsets", True)),
    "offsets are trimmed before": ("byte_level", put("pre_tokenizer", "trim_offsets", False)),
    "another type id": (
        "wordpiece",
        put("post_processor", "single", 0, "SpecialToken", "type_id", 1),
    ),
    "batches are filled up": ("byte_level", put("padding", LONGEST)),
    "a dropout of nothing": ("byte_level", put("model", "dropout", 0.0)),
    "an empty suffix": ("byte_level", put("model", "end_of_word_suffix", "")),
    "an empty prefix": ("byte_level", put("model", "continuing_subword_prefix", "")),
    "unknown letters are joined, and there are none": (
        "byte_level",
        put("model", "fuse_unk", True),
    ),
    "bytes for what is unknown, and no such tokens": (
        "byte_level",
        put("model", "byte_fallback", True),
    ),
    "what follows from lowercase is said": ("wordpiece", put("normalizer", "strip_accents", True)),
    "a chain of one": ("wordpiece", put("normalizer", {"type": "Sequence", "normalizers": [BERT]})),
    "an empty chain": ("byte_level", put("normalizer", {"type": "Sequence", "normalizers": []})),
    "one pre-tokenizer as a chain": (
        "byte_level",
        put("pre_tokenizer", {"type": "Sequence", "pretokenizers": [BYTE_LEVEL]}),
    ),
    "the same post-processor in other words": (
        "wordpiece",
        put("post_processor", {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}),
    ),
    "no post-processor but for offsets": ("byte_level", put("post_processor", None)),
    "an unused special token of the template": (
        "wordpiece",
        put(
            "post_processor",
            "special_tokens",
            "[MASK]",
            {"id": "[MASK]", "ids": [4], "tokens": ["[MASK]"]},
        ),
    ),
}
CHANGES_FULL |= {
    "unknown letters are not joined, and all have bytes": (
        "metaspace",
        put("model", "fuse_unk", False),
    ),
    "an unknown token, and all letters are known": ("byte_level", put("model", "unk_token", "a")),
    "another unknown token, and all letters have bytes": (
        "metaspace",
        put("model", "unk_token", "</s>"),
    ),
}
CHANGES_NOTHING: dict[str, tuple[str, Change]] = {
    "the keys are in another order": ("byte_level", reorder),
    "the keys are in another order, with templates": ("wordpiece", reorder),
    "merges as texts": (
        "byte_level",
        lambda content: content["model"].update(
            merges=[" ".join(pair) for pair in content["model"]["merges"]]
        ),
    ),
    "defaults are left out": ("byte_level", drop("model", "fuse_unk")),
    "an added token's id that the library does not heed": (
        "byte_level",
        put("added_tokens", 0, "id", 900),
    ),
    "a merge is given twice": (
        "byte_level",
        lambda content: content["model"]["merges"].append(content["model"]["merges"][-1]),
    ),
}


def changed(sort: str, change: Change) -> tuple[Tokenizer, Tokenizer]:
    """A tokenizer as it was and with the change."""
    content = raw(sort)
    other = copy.deepcopy(content)
    change(other)
    return tokenizer(content), tokenizer(other)


def both(sort: str, change: Change) -> tuple[Identity, Identity]:
    """The identities of both; the cheap form must agree on what is semantic."""
    _, after = changed(sort, change)
    found = identify(after)
    assert identify(after, depth="cheap").semantic == found.semantic
    return unchanged(sort), found


@cache
def unchanged(sort: str) -> Identity:
    """The identity of a tokenizer as it was."""
    return identify(tokenizer(raw(sort)))


@pytest.mark.parametrize("name", CHANGES_IDS)
def test_what_can_change_ids_changes_both_digests(name: str) -> None:
    """A change after which some text can get other ids, or a token another meaning, changes both
    digests.
    """
    before, after = both(*CHANGES_IDS[name])
    assert before.semantic != after.semantic
    assert before.full != after.full


@pytest.mark.parametrize("name", CHANGES_FULL)
def test_what_changes_no_id_changes_the_full_digest_only(name: str) -> None:
    """A change that leaves the ids of every text alone changes the full digest and not the semantic
    one.
    """
    before, after = both(*CHANGES_FULL[name])
    assert before.semantic == after.semantic
    assert before.full != after.full


@pytest.mark.parametrize("name", CHANGES_FULL)
def test_what_is_said_to_change_no_id_changes_none(name: str) -> None:
    """The library itself gives the same ids after each change that leaves the semantic digest
    alone.
    """
    before, after = changed(*CHANGES_FULL[name])
    for text in TEXTS:
        for special in (True, False):
            assert (
                before.encode(text, add_special_tokens=special).ids
                == after.encode(text, add_special_tokens=special).ids
            )


@pytest.mark.parametrize("name", CHANGES_NOTHING)
def test_how_a_file_is_written_changes_nothing(name: str) -> None:
    """What the library reads alike has the same digests."""
    before, after = both(*CHANGES_NOTHING[name])
    assert (before.semantic, before.full) == (after.semantic, after.full)


# No text shows these: special is what a token is called, dropout is chance, and no probe is random.
WITHOUT_EXAMPLE = {"a special token is not special", "the last merge is missing"}


@pytest.mark.parametrize("name", sorted(CHANGES_IDS.keys() - WITHOUT_EXAMPLE))
def test_a_difference_is_shown_by_a_text(name: str) -> None:
    """Every change of ids is put in words beside a text on which the two tokenizers really
    differ.
    """
    before, after = changed(*CHANGES_IDS[name])
    shown = [one for one in difference(before, after) if one.example is not None and one.semantic]
    assert shown
    assert all(one.first != one.second for one in shown)
    if "random" not in name:
        texts = [
            (one.example, *one.example.split(" + ")) for one in shown if one.example is not None
        ]
        assert any(
            outcome(before, asked, special) != outcome(after, asked, special)
            for whole, *halves in texts
            for asked in ((whole,), tuple(halves))
            for special in (True, False)
            if len(asked) <= 2
        )


def outcome(made: Tokenizer, texts: tuple[str, ...], special: bool) -> object:
    """Ids, or the error."""
    try:
        return made.encode(*texts, add_special_tokens=special).ids
    except Exception as error:  # noqa: BLE001 - the library raises plain Exception
        return str(error)


FOLDER_SEMANTIC: dict[str, Change] = {
    "another end": put("eos_token", "<|begin|>"),
    "no beginning": drop("bos_token"),
    "another padding": put("pad_token", "<|end|>"),
    "an extra special token less": put("extra_special_tokens", []),
    "a token with a name of its own": put("image_token", "<|end|>"),
    "special tokens in a text are split": put("split_special_tokens", True),
    "a token is added": put("extra_special_tokens", ["<|tool|>", "<|more|>"]),
}
FOLDER_FULL: dict[str, Change] = {
    "another side of padding": put("padding_side", "left"),
    "another side of truncation": put("truncation_side", "left"),
    "another length": put("model_max_length", 1024),
    "spaces are cleaned up": put("clean_up_tokenization_spaces", True),
    "another class": put("tokenizer_class", "TokenizersBackend"),
    "other inputs": put("model_input_names", ["input_ids"]),
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    """The identity of the folder that the changes start from."""
    return identify_folder(_folder(tmp_path_factory.mktemp("plain"), CONFIG))


def _folder(folder: Path, config: Raw, *, template: str = TEMPLATE) -> Path:
    return write_folder(folder, content=raw("byte_level"), config=config, template=template)


@pytest.mark.parametrize("name", FOLDER_SEMANTIC)
def test_names_of_special_tokens_are_semantic(name: str, plain: Identity, tmp_path: Path) -> None:
    """A change of a special token in tokenizer_config.json changes both digests."""
    config = copy.deepcopy(CONFIG)
    FOLDER_SEMANTIC[name](config)
    found = identify_folder(_folder(tmp_path, config))
    assert plain.semantic != found.semantic
    assert plain.full != found.full


@pytest.mark.parametrize("name", FOLDER_FULL)
def test_settings_of_a_call_are_not_semantic(name: str, plain: Identity, tmp_path: Path) -> None:
    """A change of what no id of a text depends on changes the full digest only."""
    config = copy.deepcopy(CONFIG)
    FOLDER_FULL[name](config)
    found = identify_folder(_folder(tmp_path, config))
    assert plain.semantic == found.semantic
    assert plain.full != found.full


@pytest.mark.parametrize(
    "template", [TEMPLATE + " ", TEMPLATE.replace("\n", "\n\n"), TEMPLATE.replace("|", "!", 1)]
)
def test_one_byte_of_a_template_is_semantic(template: str, plain: Identity, tmp_path: Path) -> None:
    """A chat template that differs in a byte changes both digests."""
    found = identify_folder(_folder(tmp_path, CONFIG, template=template))
    assert plain.semantic != found.semantic
    assert plain.full != found.full


def test_white_space_in_the_files_is_nothing(plain: Identity, tmp_path: Path) -> None:
    """Files that are indented, and end their template's lines as Windows does, are the same
    tokenizer.
    """
    folder = _folder(tmp_path, CONFIG)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        file = folder / name
        file.write_text(
            json.dumps(json.loads(file.read_text("utf-8")), indent=7, ensure_ascii=True) + "\n\n",
            "utf-8",
        )
    (folder / "chat_template.jinja").write_bytes(TEMPLATE.replace("\n", "\r\n").encode())
    assert identify_folder(folder) == plain


def test_a_template_in_the_configuration_is_the_same_template(
    plain: Identity, tmp_path: Path
) -> None:
    """Where the chat template is kept does not matter to what it is."""
    folder = write_folder(
        tmp_path, content=raw("byte_level"), config=CONFIG | {"chat_template": TEMPLATE}
    )
    assert identify_folder(folder).semantic == plain.semantic


def test_padding_and_truncation_of_a_repository_are_left_over(
    plain: Identity, tmp_path: Path
) -> None:
    """transformers sets padding and truncation for every call, so in a repository they are not
    semantic.
    """
    content = raw("byte_level") | {
        "truncation": CUT,
        "padding": LONGEST | {"strategy": {"Fixed": 12}},
    }
    found = identify_folder(
        write_folder(tmp_path, content=content, config=CONFIG, template=TEMPLATE)
    )
    assert plain.semantic == found.semantic
    assert plain.full != found.full
