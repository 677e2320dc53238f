"""Objects of transformers: fast, Python, SentencePiece, and the same files read as a folder."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from harness.tokenizer import NotComparable, Unidentifiable, difference, identify, identify_folder
from tests.tokenizer.making import CONFIG, TEMPLATE, Raw, raw, write_folder

pytestmark = pytest.mark.slow  # together they take more than the inner loop has

BEGIN = {
    "content": "<|begin|>",
    "lstrip": True,
    "rstrip": False,
    "normalized": False,
    "single_word": False,
    "special": True,
}
PLAIN = BEGIN | {"content": "<z>", "lstrip": False, "special": False, "normalized": True}
LLAMA = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<unk>"}
BERT = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "cls_token": "[CLS]",
    "pad_token": "[PAD]",
    "mask_token": "[MASK]",
}
T5 = {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>"}
TYPED = BEGIN | {"content": "<q>", "__type": "AddedToken"}
TWO = [{"name": "a", "template": "x"}, {"name": "b", "template": "y"}]
# Sort, configuration: transformers makes of these files what they say.
ALIKE: dict[str, tuple[str, Raw]] = {
    "byte level": ("byte_level", CONFIG),
    "GLM's class name": ("byte_level", CONFIG | {"tokenizer_class": "PreTrainedTokenizer"}),
    "a class of TokenizersBackend": ("byte_level", CONFIG | {"tokenizer_class": "TokenizersBackend"}),
    "metaspace": ("metaspace", LLAMA | {"tokenizer_class": "PreTrainedTokenizerFast"}),
    "WordPiece": ("wordpiece", BERT | {"tokenizer_class": "PreTrainedTokenizerFast"}),
    "Bert": ("wordpiece", BERT | {"tokenizer_class": "BertTokenizer", "do_lower_case": True}),
    "Unigram": ("unigram", T5 | {"tokenizer_class": "PreTrainedTokenizerFast"}),
    "added tokens with flags": ("byte_level", CONFIG | {"added_tokens_decoder": {"340": BEGIN, "345": PLAIN}}),
    "several templates": ("byte_level", CONFIG | {"chat_template": TWO}),
    "extra tokens by name": ("byte_level", CONFIG | {"extra_special_tokens": {"image_token": "<i>", "b_token": "<b>"}}),
    "additional tokens": ("byte_level", {"eos_token": "<|end|>", "additional_special_tokens": ["<a>", "<b>"]}),
    "asked for a beginning": ("byte_level", CONFIG | {"add_bos_token": True}),
    "a named token with flags": ("byte_level", CONFIG | {"sep_token": TYPED}),
    "a token with flags and a name of its own": ("byte_level", CONFIG | {"image_token": TYPED}),
    "an extra token with flags": ("byte_level", CONFIG | {"extra_special_tokens": [TYPED, "<r>"]}),
    "what is not a token": ("byte_level", CONFIG | {"image_token": PLAIN, "foo_token_id": 5, "sep_token": None}),
    "special tokens are split": ("byte_level", CONFIG | {"split_special_tokens": True}),
}  # fmt: skip


def load(folder: Path) -> Any:
    """What transformers makes of a folder."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(folder))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("name", ALIKE)
def test_files_and_object_are_semantically_equal(name: str, tmp_path: Path) -> None:
    """Where transformers builds what the files say, object and folder have one semantic digest."""
    sort, config = ALIKE[name]
    folder = write_folder(tmp_path, content=raw(sort), config=config)
    made = load(folder)
    assert identify(made).semantic == identify_folder(folder).semantic
    assert identify(made, depth="cheap").semantic == identify(made).semantic
    assert [one.words for one in difference(made, folder) if one.semantic] == []


def test_legacy_files_are_read_as_transformers_does(tmp_path: Path) -> None:
    """special_tokens_map.json, added_tokens.json and folders of templates count as they do in
    transformers.
    """
    folder = write_folder(
        tmp_path, content=raw("byte_level"), config={"tokenizer_class": "PreTrainedTokenizerFast"}
    )
    flags = {"lstrip": True, "rstrip": False, "normalized": True, "single_word": False}
    mapped = {
        "eos_token": {"content": "<|end|>"} | flags,
        "img_token": {"content": "<i>"} | flags,
        "additional_special_tokens": ["<|tool|>"],
    }
    (folder / "special_tokens_map.json").write_text(json.dumps(mapped))
    (folder / "added_tokens.json").write_text(json.dumps({"<zz>": 350}))
    (folder / "chat_template.jinja").write_bytes(b"a\r\nb")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tools.jinja").write_text(TEMPLATE)
    assert identify(load(folder)).semantic == identify_folder(folder).semantic


def test_saving_and_loading_keeps_the_identity(tmp_path: Path) -> None:
    """A tokenizer that was saved and loaded again is the same, and so are its files."""
    made = load(
        write_folder(tmp_path / "a", content=raw("byte_level"), config=CONFIG, template=TEMPLATE)
    )
    made.save_pretrained(tmp_path / "b")
    assert (
        identify(load(tmp_path / "b")).semantic
        == identify(made).semantic
        == identify_folder(tmp_path / "b").semantic
    )


def test_a_class_that_builds_something_else_is_told_from_its_files(tmp_path: Path) -> None:
    """Qwen2Tokenizer brings a normalizer of its own to the files' vocabulary: a difference, with a
    text.
    """
    folder = write_folder(
        tmp_path, content=raw("byte_level"), config=CONFIG | {"tokenizer_class": "Qwen2Tokenizer"}
    )
    made = load(folder)
    assert identify(made).semantic != identify_folder(folder).semantic
    shown = next(one for one in difference(made, folder) if one.part == "normalizer")
    assert shown.example is not None
    assert shown.first != shown.second


def test_a_call_leaves_the_semantic_digest_alone(tmp_path: Path) -> None:
    """Padding and truncation that a call left behind change the full digest only, and probes are
    not cut by them.
    """
    made = load(write_folder(tmp_path, content=raw("byte_level"), config=CONFIG))
    before = identify(made)
    made(
        ["a", "b c <|end|> e f"],
        padding="max_length",
        truncation=True,
        max_length=3,
        split_special_tokens=True,
    )
    after = identify(made)
    assert made.backend_tokenizer.truncation["max_length"] == 3
    assert (after.semantic, after.parts["probe ids"]) == (
        before.semantic,
        before.parts["probe ids"],
    )
    assert after.full != before.full


def test_a_replaced_method_is_seen(tmp_path: Path) -> None:
    """A method that decides ids and was replaced on the object or in a subclass changes the
    semantic digest.
    """
    made = load(write_folder(tmp_path, content=raw("byte_level"), config=CONFIG))
    before = identify(made)
    made._encode_plus = lambda *_arguments, **_options: {"input_ids": [1]}
    assert identify(made).semantic != before.semantic


def test_a_backend_that_took_another_ones_place_is_refused(tmp_path: Path) -> None:
    """Where something else stands in for tokenizers.Tokenizer, it is named."""

    class Shim:
        """Looks like a backend to transformers, and is none."""

    made = load(write_folder(tmp_path, content=raw("byte_level"), config=CONFIG))
    made._tokenizer = Shim()
    with pytest.raises(Unidentifiable, match="Shim"):
        identify(made)


def test_an_empty_vocabulary_shows_in_the_round_trip() -> None:
    """LlamaTokenizer without its files has three tokens, works, and loses nearly every probe."""
    from transformers import LlamaTokenizer

    made = LlamaTokenizer()
    found = identify(made)
    assert found.parts["tokens"] == "3"
    assert json.loads(found.parts["round trip"])["lost"] > 15


def test_python_tokenizers_are_known_by_code_and_state() -> None:
    """Two of one class and state are one.

    Another state, alphabet, class or special token is another.
    """
    from tests.tokenizer.slow_tokenizers import Letters, Louder

    one = identify(Letters())
    assert one == identify(Letters())
    assert identify(Letters(), depth="cheap").semantic == one.semantic
    others = [
        Letters(lower=True),
        Letters(alphabet="abcdefghijklmnopqrstuvwxzy"),
        Louder(),
        Letters(eos_token="b"),  # noqa: S106
    ]
    assert len({one.semantic, *(identify(other).semantic for other in others)}) == 5
    assert identify(Letters(padding_side="left")).semantic == one.semantic
    assert identify(Letters(padding_side="left")).full != one.full


def test_using_a_python_tokenizer_leaves_its_identity_alone() -> None:
    """What a call leaves behind is not part of what a tokenizer is."""
    from tests.tokenizer.slow_tokenizers import Letters

    made = Letters(pad_token="b")  # noqa: S106
    before = identify(made)
    made("hello", padding="max_length", max_length=9, truncation=True)
    assert identify(made) == before


def test_attributes_of_another_release_do_not_change_what_a_python_tokenizer_is() -> None:
    """transformers 5.5 sets `response_schema` where 5.23 has `response_template` and
    `chat_control_tokens`.
    """
    from tests.tokenizer.slow_tokenizers import Letters

    here, older = Letters(), Letters()
    for name in ("response_template", "chat_control_tokens"):
        vars(older).pop(name, None)
    older.response_schema = None
    assert identify(older) == identify(here)
    here.chat_control_tokens = ["a"]  # these become text if a call asks for that
    assert identify(here).semantic != identify(older).semantic


def test_a_difference_of_python_tokenizers_is_shown() -> None:
    """The state differs, and a text shows it."""
    from tests.tokenizer.slow_tokenizers import Letters

    shown = next(one for one in difference(Letters(), Letters(lower=True)) if one.part == "state")
    assert shown.example is not None
    assert shown.first != shown.second


@pytest.fixture(scope="module")
def piece_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a SentencePiece model and nothing else."""
    import sentencepiece

    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["hello world the test"] * 50 + ["testing the world of tests"] * 20),
        model_writer=written,
        vocab_size=40,
        model_type="bpe",
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=3,
    )
    folder = tmp_path_factory.mktemp("pieces")
    (folder / "tokenizer.model").write_bytes(written.getvalue())
    return folder


def test_sentencepiece_is_identified_by_its_model(piece_model: Path) -> None:
    """A SentencePiece tokenizer is known by its model's bytes, and its backend is named."""
    from tests.tokenizer.slow_tokenizers import Pieces

    file = str(piece_model / "tokenizer.model")
    found = identify(Pieces(vocab_file=file))
    assert found == identify(Pieces(vocab_file=file))
    assert found.parts["backend"].startswith("sentencepiece.")


def test_python_and_library_differ_by_what_runs(piece_model: Path) -> None:
    """A slow and a fast tokenizer of the same model are not called equal: what runs differs, and it
    is said.
    """
    from transformers import LlamaTokenizer

    from tests.tokenizer.slow_tokenizers import Pieces

    slow = Pieces(vocab_file=str(piece_model / "tokenizer.model"))
    fast = LlamaTokenizer.from_pretrained(str(piece_model))  # type: ignore[no-untyped-call]
    assert any("Python code" in one.words and one.semantic for one in difference(slow, fast))


def test_a_model_file_alone_is_refused(piece_model: Path) -> None:
    """A folder without a tokenizer.json is not guessed at."""
    from harness.tokenizer import Unreadable

    with pytest.raises(
        Unreadable, match="What other files encode to depends on the transformers class"
    ):
        identify_folder(piece_model)


def test_an_encoder_is_not_compared_with_a_tokenizer(tmp_path: Path) -> None:
    """A backend has no names and no templates, so a difference from a whole tokenizer would say
    nothing.
    """
    folder = write_folder(tmp_path, content=raw("byte_level"), config=CONFIG)
    made = load(folder)
    for one, other in ((made, made.backend_tokenizer), (folder, folder / "tokenizer.json")):
        with pytest.raises(NotComparable, match="the other is only an encoder"):
            difference(one, other)
