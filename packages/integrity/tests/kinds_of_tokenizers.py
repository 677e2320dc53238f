"""Ten kinds of tokenizers, made small here, texts in thirty scripts, and what detokenizers stream
of both.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

import corpus
from damage import BYTE_LEVEL

REPLACEMENT = "\ufffd"
BYTES = [f"<0x{number:02X}>" for number in range(256)]
LETTERS = [chr(number) for number in range(0x61, 0x7B)]
PAIRS = [("t", "h"), ("th", "e"), ("▁", "th"), ("▁", "a"), ("i", "n"), ("日", "本")]
LEARNED = "The quick brown fox: été, naïve, привет мир, 日本語 and 日本 again. " * 4

# Ten that the corpus does not have; words of each.
MORE = {
    "gujarati": "નમસ્તે દુનિયા ગુજરાતી પાણી",
    "gurmukhi": "ਸਤ ਸ੍ਰੀ ਅਕਾਲ ਪੰਜਾਬੀ ਪਾਣੀ",
    "kannada": "ನಮಸ್ಕಾರ ಪ್ರಪಂಚ ಕನ್ನಡ ನೀರು",
    "malayalam": "നമസ്കാരം ലോകം മലയാളം വെള്ളം",
    "oriya": "ନମସ୍କାର ଦୁନିଆ ଓଡ଼ିଆ ପାଣି",
    "lao": "ສະບາຍດີ ໂລກ ພາສາລາວ ນ້ຳ",
    "cherokee": "ᎣᏏᏲ ᎡᎶᎯ ᏣᎳᎩ ᎠᎹ",
    "syriac": "ܫܠܡܐ ܥܠܡܐ ܣܘܪܝܝܐ ܡܝܐ",
    "yi": "ꆈꌠꉙ ꋍꑍ ꀉꂿ",
    "cuneiform": "𒀀𒁀 𒂊𒃻 𒄿𒅆 a𒀭",
}


def texts(script: str, many: int) -> list[str]:
    """Texts of a script: prose, the smallest case of the issue's kind (words repeated), and its
    mixture with others.
    """
    if script in corpus.SCRIPTS:
        words = corpus.SCRIPTS[script][0].split()
        found = [corpus.text(script, number) for number in range(many)]
    else:
        words = MORE[script].split()
        chance = random.Random(script)
        found = [
            " ".join(chance.choices(words, k=chance.randint(3, 12))) + "." for _ in range(many)
        ]
    mixed = f"the {words[0]}\n\ta {words[-1]}🙂‍↔️ {words[0]}{words[-1]} \ufffd in {words[0]}"
    return ["".join(words[:2]) * 3, mixed, *found]


SCRIPTS = (*corpus.SCRIPTS, *MORE)


# What scripts alone do not have; the rare characters are spelled in bytes by all kinds with byte
# fallback.
HARD = {
    "marks": "e\u0301\u0323\u0308 q\u0307\u0323 Z̷̢̛͎a̶l̵g̴o̷ ṩ̇ ก็้ं ᄒ\u1161\u11ab글 ᄀᆞᆷ",
    "joined emoji": "👨‍👩‍👧‍👦👩🏽‍🚀🏳️‍🌈🧑🏿‍❤️‍💋‍🧑🏻 a👁️‍🗨️ 🇯🇵🇺🇳🏴󠁧󠁢󠁳󠁣󠁴󠁿🇦",
    "right to left": "\u202eשָׁלוֹם\u202c مَرْحَبًا\u200f بِكُمْ \u2067x\u2069 ٱلسَّلَامُ 𞤸𞤫𞤤",
    "high planes": (
        "𐌰𐌹 𝔘𝔫𝔦 𞤀𞤣 𠀀𪛖 \U000e0041\U000e007f\U000e0100 \U000f0000\U0010fffd 𝄞𝅘𝅥𝅮 \ufdd0\U0001fffe語"
    ),
    "replacements": "a\ufffd語\ufffd\ufffd龍 \ufffd\n\ufffd 語\ufffd龍\ufffd語龍",
    "control": "a\0語\x01\x7f\u0080\u009f龍\u0085語  語  龍\u3000\u00a0\u2028\ufeff 語 ",
    "normalized": "ﬁ①㍿ｶﾞ Ⅷ ſ ﷺ 葛\U000e0100飾 ☃\ufe0e☃\ufe0f ᠮᠣ\u180b",
    "special tokens": "語<|middle|>龍語<|middle|>\n龍 語<|middle|>語龍",
}


def _spaces(*, first: bool) -> normalizers.Normalizer:
    spaces = normalizers.Replace(" ", "▁")
    return normalizers.Sequence([normalizers.Prepend("▁"), spaces]) if first else spaces


def _pieces() -> dict[str, int]:
    pieces = [
        "<unk>",
        "<s>",
        "</s>",
        *BYTES,
        "▁",
        "\n",
        *LETTERS,
        "日",
        "本",
        *(a + b for a, b in PAIRS),
    ]
    return {piece: number for number, piece in enumerate(pieces)}


def _fallback(decoder: list[decoders.Decoder], *, first: bool) -> Tokenizer:
    # A token.
    made = Tokenizer(
        models.BPE(_pieces(), PAIRS, unk_token="<unk>", fuse_unk=True, byte_fallback=True)  # noqa: S106
    )
    made.normalizer = _spaces(first=first)
    made.decoder = decoders.Sequence(decoder)
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    return made


def _llama() -> Tokenizer:
    strip = decoders.Strip(" ", 1, 0)
    return _fallback(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), strip], first=True
    )


def _gemma() -> Tokenizer:
    return _fallback(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()], first=False
    )


def _unigram(*, fallback: bool) -> Tokenizer:
    pieces = [piece for piece in _pieces() if fallback or piece not in BYTES]
    scored = [(piece, -10.0 if piece in BYTES else -float(5 - len(piece))) for piece in pieces]
    made = Tokenizer(models.Unigram(scored, unk_id=0, byte_fallback=fallback))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    parts: list[decoders.Decoder] = [decoders.ByteFallback()] if fallback else []
    made.decoder = decoders.Sequence([*parts, decoders.Metaspace()])
    return made


def _metaspace(scheme: str) -> Tokenizer:
    # A token.
    made = Tokenizer(models.BPE(_pieces(), PAIRS, unk_token="<unk>", byte_fallback=True))  # noqa: S106
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    made.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=scheme)]
    )
    return made


def _byte_level(*, prefix: bool) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        [LEARNED], trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet)
    )
    return made


def _neox() -> Tokenizer:
    made = _byte_level(prefix=False)
    made.normalizer = normalizers.NFC()
    made.add_tokens([AddedToken(" " * width, normalized=True) for width in range(2, 9)])
    return made


def _added() -> Tokenizer:
    made = _llama()
    made.add_tokens(["<tool>", "ბა", "日本語"])
    made.add_special_tokens(["<|middle|>"])
    return made


def _with_replacement() -> Tokenizer:
    pieces = _pieces()
    pieces |= {REPLACEMENT: len(pieces), f"▁{REPLACEMENT}": len(pieces) + 1}
    merges = [*PAIRS, ("▁", REPLACEMENT)]
    # A token.
    made = Tokenizer(
        models.BPE(pieces, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)  # noqa: S106
    )
    made.normalizer, made.decoder = _llama().normalizer, _llama().decoder
    return made


def _wordpiece() -> Tokenizer:
    pieces = [
        "[UNK]",
        *LETTERS,
        *(f"##{one}" for one in LETTERS),
        "the",
        "##ing",
        *_plain_letters(),
    ]
    # A token.
    made = Tokenizer(
        models.WordPiece({one: at for at, one in enumerate(pieces)}, unk_token="[UNK]")  # noqa: S106
    )
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece(cleanup=True)
    return made


def _plain_letters() -> list[str]:
    letters = sorted(
        {one for script in SCRIPTS for one in "".join(texts(script, 2)) if one > "\x7f"}
    )
    return [form for one in letters for form in (one, f"##{one}")]


def _word_level() -> Tokenizer:
    words = sorted({word for script in SCRIPTS for one in texts(script, 2) for word in one.split()})
    # A token.
    made = Tokenizer(
        models.WordLevel(
            {one: at for at, one in enumerate(["[UNK]", *words[::2]])},
            unk_token="[UNK]",  # noqa: S106
        )
    )
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "byte-level BPE": lambda: _byte_level(prefix=True),
    "Llama 2 and Mistral": _llama,
    "Gemma": _gemma,
    "Unigram with byte fallback": lambda: _unigram(fallback=True),
    "Unigram without": lambda: _unigram(fallback=False),
    "WordPiece": _wordpiece,
    "word-level": _word_level,
    "GPT-NeoX": _neox,
    "metaspace, always": lambda: _metaspace("always"),
    "metaspace, first": lambda: _metaspace("first"),
    "metaspace, never": lambda: _metaspace("never"),
    "added tokens in the middle": _added,
    "special tokens left out": _added,
    "U+FFFD as a token": _with_replacement,
}
LEFT_OUT = ("special tokens left out",)
"""Kinds whose detokenizers show no special token."""
FALLBACK = (
    "Llama 2 and Mistral",
    "Gemma",
    "Unigram with byte fallback",
    "metaspace, always",
    "metaspace, first",
    "metaspace, never",
    "added tokens in the middle",
    "special tokens left out",
    "U+FFFD as a token",
)


@cache
def tokenizer(kind: str) -> Tokenizer:
    """The tokenizer of a kind."""
    return KINDS[kind]()


def by_stream(kind: str, ids: list[int]) -> list[str]:
    """What `DecodeStream` gives out at each id."""
    streaming = decoders.DecodeStream(skip_special_tokens=kind in LEFT_OUT)
    return [streaming.step(tokenizer(kind), one) or "" for one in ids]


def by_offsets(kind: str, ids: list[int]) -> list[str]:
    """What serving engines give out at each id: the text that is new, as soon as it does not end
    inside a character.
    """
    out, begin, read = [], 0, 0
    for at in range(len(ids)):
        before = decode(kind, ids[begin:read])
        now = decode(kind, ids[begin : at + 1])
        whole = len(now) > len(before) and not now.endswith(REPLACEMENT)
        out.append(now[len(before) :] if whole else "")
        if whole:
            begin, read = read, at + 1
    return out


def decode(kind: str, ids: list[int]) -> str:
    """The text of ids, by the tokenizer itself."""
    return str(tokenizer(kind).decode(ids, skip_special_tokens=kind in LEFT_OUT))


def spelled(kind: str, token: int) -> bytes:
    """The bytes of a token of byte-level BPE."""
    text = tokenizer(kind).id_to_token(token)
    return text.encode() if text.isspace() else bytes(BYTE_LEVEL[letter] for letter in text)
