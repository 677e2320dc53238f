"""Small tokenizers of every sort, made by hand or trained on a fixed text, and written as
tokenizer.json.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

CORPUS = [
    "the quick brown fox jumps over the lazy dog, and the dog sleeps",
    "def add(left, right): return left + right  # adds 12 and 345",
    "it's a test of the tests: tested, testing, tester, lowest, newest, widest",
    "Größe, café, naïve, 東京の天気は晴れです, привет мир",
    "hello hello world world wonderful worlds   with   spaces\n\tand tabs",
] * 4
Raw = dict[str, Any]
UNKNOWN, UNKNOWN_WORD = "<unk>", "[UNK]"


@cache
def _text(sort: str) -> str:
    made: Tokenizer = globals()[f"_{sort}"]()
    return made.to_str()


def raw(sort: str) -> Raw:
    """The content of tokenizer.json: `byte_level`, `metaspace`, `wordpiece`, `unigram` or
    `wordlevel`.
    """
    read: Raw = json.loads(_text(sort))
    return read


def tokenizer(content: Raw) -> Tokenizer:
    """The tokenizer of such a content."""
    return Tokenizer.from_str(json.dumps(content))


def write_folder(
    folder: Path, *, content: Raw, config: Raw | None = None, template: str | None = None
) -> Path:
    """A repository of tokenizer files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder


CONFIG: Raw = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "eos_token": "<|end|>",
    "bos_token": "<|begin|>",
    "pad_token": "<|pad|>",
    "extra_special_tokens": ["<|tool|>"],
    "model_max_length": 512,
    "padding_side": "right",
    "truncation_side": "right",
    "clean_up_tokenization_spaces": False,
}
TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}"


def _byte_level() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=340, initial_alphabet=alphabet, show_progress=False)
    )
    made.add_special_tokens(["<|begin|>", "<|end|>", "<|pad|>"])
    return made


def _metaspace() -> Tokenizer:
    letters = sorted(
        {letter for line in CORPUS for letter in line if letter.isalpha() and letter < "\x7f"}
    )
    words = [
        "▁t",
        "he",
        "▁the",
        "te",
        "st",
        "test",
        "▁test",
        "es",
        "tes",
        "in",
        "ing",
        "▁w",
        "or",
        "ld",
        "wor",
        "▁wor",
        "▁world",
        "▁quick",
    ]
    tokens = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        *letters,
        *words,
    ]
    pairs = (
        "▁ t  h e  ▁t he  t e  s t  te st  ▁ test  e s  t es  i n  in g  ▁ w  o r  l d  w or  ▁ wor"
        "  ▁wor ld"
    )
    merges = [(left, right) for left, right in re.findall(r"(\S+) (\S+)", pairs)]
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    made = Tokenizer(
        models.BPE(vocabulary, merges, unk_token=UNKNOWN, fuse_unk=True, byte_fallback=True)
    )
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B:1", special_tokens=[("<s>", vocabulary["<s>"])]
    )
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    return made


def _wordpiece() -> Tokenizer:
    # By hand: how ties are broken in training a WordPiece changes from process to process.
    letters = sorted({letter for line in CORPUS for letter in line.lower() if not letter.isspace()})
    words = [
        "the",
        "test",
        "##s",
        "##ed",
        "##ing",
        "##er",
        "##est",
        "hello",
        "world",
        "quick",
        "dog",
        "lazy",
        "fox",
        "over",
    ]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = dict.fromkeys([*special, *letters, *(f"##{letter}" for letter in letters), *words])
    vocabulary = {token: index for index, token in enumerate(tokens)}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token=UNKNOWN_WORD))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.add_special_tokens(special)
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return made


def _unigram() -> Tokenizer:
    letters = sorted({letter for line in CORPUS for letter in line.replace(" ", "▁")})
    words = [
        "▁the",
        "▁test",
        "est",
        "ing",
        "▁world",
        "world",
        "▁h",
        "ello",
        "hello",
        "▁hello",
        "▁a",
        "ed",
    ]
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces += [(word, -2.0 - index / 8) for index, word in enumerate(words)]
    pieces += [(letter, -6.0 - index / 16) for index, letter in enumerate(letters)]
    made = Tokenizer(models.Unigram(pieces, unk_id=2))
    made.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    made.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    made.add_special_tokens(["<pad>", "</s>", "<unk>"])
    return made


def _wordlevel() -> Tokenizer:
    words = sorted({word for line in CORPUS for word in line.split()})
    made = Tokenizer(
        models.WordLevel(
            {token: index for index, token in enumerate(["[UNK]", *words])}, unk_token=UNKNOWN_WORD
        )
    )
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(["[UNK]"])
    return made


SORTS = ("byte_level", "metaspace", "wordpiece", "unigram", "wordlevel")
