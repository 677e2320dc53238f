"""The fixed probe corpus: texts on which tokenizers that are not the same tend to differ.

Changing a text changes every identity, so `VERSION` changes with it.
"""

from __future__ import annotations

VERSION = 1

PROBES: dict[str, str] = {
    "plain": "Hello world, this is a test of 1 tokenizer.",
    "case": "The QUICK brown fOX, İstanbul ẞtraße ǅ",
    "contractions": "I'm sure they've won't he'll she'd it's DON'T",
    "leading spaces": "   three leading, two trailing  ",
    "inner spaces": "a  b   c\u00a0d\u2003e\u3000f",
    "lines": "one\ntwo\r\n\n\n\tthree\n",
    "digits": "0 12 345 6789 1234567 3.14159 1,000,000 ٣٤٥ ４５",
    "code": "def f(x):\n    return {'a': x[0] != None, \"b\": `y`}  # <!-- ok --> &&|| a_b->c::d\n",
    "punctuation": "¿Qué? «non» — “yes”… ((a)) [b] {c} !!! ,,, ...",
    "accents": "Crème brûlée, naïve façade, Ångström, žluťoučký kůň",
    "combining": "e\u0301 a\u030a\u0323 n\u0303 o\u0308\u0304 \u1e9b\u0323 \u212b \ufb01",
    "cjk": "東京の天気は晴れです。我爱北京天安门，한국어 문장입니다.",
    "emoji": "👩\u200d👩\u200d👧\u200d👦 🏳️\u200d🌈 👍🏽 🇩🇪 ❤️ ☺",
    "right to left": "שלום עולם, مرحبا بالعالم ١٢٣ \u200fabc\u200e",
    "scripts": "Ελληνικά кириллица हिन्दी ภาษาไทย ქართული አማርኛ",
    "bytes": "𐍈 \U0001f9ff \U00020bb7 \ue000 \ufffd \U0010fffd",
    "controls": "a\x00b\x07c\x1bd\x7fe\u200bf\ufeffg\u00adh",
    "special look-alikes": "<s> </s> <|endoftext|> <|im_start|>user [CLS] [SEP] [UNK] <unk> <pad> <0x0A> <mask>",
    "special spacing": " <s>a </s> b<|endoftext|>c  <mask>  d [MASK]e",
    "metaspace": "▁a ▁▁b Ġc Ċd ##e e</w> @@f",
    "url": "https://example.org/a?b=c&d=%20#e user@example.org",
    "long word": "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft" * 3,
    "repeats": "aaaaaaaaaaaaaaaa  ababababab  \t\t\t\t",
    "one letter": "a",
    "one space": " ",
    "nothing": "",
}
PAIR = ("one letter", "digits")
