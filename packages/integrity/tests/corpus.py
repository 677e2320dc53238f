"""Clean texts, the same on every machine: twenty scripts, code, emoji, base64, and texts that look
corrupt and are not.

Each text follows from its kind and number alone, so that any part of the corpus can be made again
by itself. Words are some that are in use, and others put together from the letters of the script,
so that no list of words is needed. Only `code` depends on the interpreter: it is cut from the
modules of the standard library.
"""

from __future__ import annotations

import base64
import os
import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

SEED = "rankproof-18"
PER_SCRIPT, CODE, EMOJI, BASE64, MIXED, LOOKS_CORRUPT = 350, 1000, 700, 500, 400, 400

# Of each script: words in use, the letters that others are made from, and what stands between
# words.
SCRIPTS: dict[str, tuple[str, tuple[tuple[int, int], ...], str]] = {
    "latin": (
        (
            "voilà déjà naïve Übergröße straße não coração São mañana pingüino żółć łódź příliš"
            " žluťoučký kůň ıspanak İstanbul şöyle Việt tiếng đường Ærø smörgås façade œuvre cœur"
            " ÉCOLE À L’ÉTÉ «oui» „nein“ ő ű ș ț"
        ),
        ((0x61, 0x7A), (0xC0, 0xD6), (0xD8, 0xF6), (0xF8, 0x17F)),
        " ",
    ),
    "greek": (
        "καλημέρα κόσμε λόγος ψυχή ἀρχή ὦ ἄνθρωπε Ελλάδα",
        ((0x3B1, 0x3C9), (0x391, 0x3A1), (0x1F00, 0x1F07)),
        " ",
    ),
    "cyrillic": (
        "привет мир ёлка щука ґанок їжак љубав ћевап ъгъл",
        ((0x410, 0x44F), (0x450, 0x45F)),
        " ",
    ),
    "armenian": ("բարև աշխարհ սեր հայերեն ջուր", ((0x561, 0x586), (0x531, 0x556)), " "),
    "georgian": ("გამარჯობა მსოფლიო წყალი ქართული", ((0x10D0, 0x10F0),), " "),
    "hebrew": ("שלום עולם מים עברית בְּרֵאשִׁית", ((0x5D0, 0x5EA),), " "),
    "arabic": (
        "مرحبا بالعالم سلام می‌خواهم کتاب اردو پاکستان ١٢٣",
        ((0x627, 0x63A), (0x641, 0x64A), (0x6A9, 0x6AF)),
        " ",
    ),
    "devanagari": (
        "नमस्ते दुनिया हिन्दी पानी क्षत्रिय ज्ञान र्‍य",
        ((0x915, 0x939), (0x93E, 0x94C)),
        " ",
    ),
    "bengali": (
        "নমস্কার পৃথিবী বাংলা জল ক্ষমা",
        ((0x995, 0x9A8), (0x9AA, 0x9B0), (0x9BE, 0x9C4)),
        " ",
    ),
    "tamil": (
        "வணக்கம் உலகம் தமிழ் தண்ணீர் ஸ்ரீ",
        ((0xB95, 0xB95), (0xBAE, 0xBB9), (0xBBE, 0xBC2)),
        " ",
    ),
    "telugu": (
        "నమస్కారం ప్రపంచం తెలుగు నీరు",
        ((0xC15, 0xC28), (0xC2A, 0xC33), (0xC3E, 0xC44)),
        " ",
    ),
    "sinhala": ("ආයුබෝවන් ලෝකය සිංහල ජලය ශ්‍රී", ((0xD9A, 0xDB1), (0xDCF, 0xDD4)), " "),
    "thai": (
        "สวัสดี ชาวโลก ภาษาไทย น้ำ กรุงเทพ",
        ((0xE01, 0xE2E), (0xE30, 0xE39), (0xE48, 0xE4B)),
        "",
    ),
    "tibetan": (
        "བཀྲ་ཤིས་ བདེ་ལེགས། བོད་སྐད་ ཆུ་",
        ((0xF40, 0xF47), (0xF49, 0xF66), (0xF72, 0xF74)),
        "་",
    ),
    "myanmar": ("မင်္ဂလာပါ ကမ္ဘာ မြန်မာ ရေ", ((0x1000, 0x1020), (0x102B, 0x1032)), ""),
    "khmer": ("សួស្តី ពិភពលោក ភាសាខ្មែរ ទឹក", ((0x1780, 0x17A2), (0x17B6, 0x17C5)), "\u200b"),
    "ethiopic": ("ሰላም ዓለም አማርኛ ውሃ", ((0x1200, 0x1206), (0x1208, 0x1246), (0x1260, 0x1286)), " "),
    "hangul": ("안녕하세요 세계 한국어 물 값이 닭고기", ((0xAC00, 0xD7A3),), " "),
    "kana": (
        "こんにちは せかい ありがとう カタカナ ラーメン ｶﾀｶﾅ がぎぐ",
        ((0x3041, 0x3096), (0x30A1, 0x30FA)),
        "",
    ),
    "han": (
        "你好 世界 漢字 日本語 水 繁體 简体 𠮷野家 龍",
        ((0x4E00, 0x9FA5), (0x20000, 0x2A6D6)),
        "",
    ),
}
END = {
    "han": "。",
    "kana": "。",
    "devanagari": "।",
    "bengali": "।",
    "arabic": "؟",
    "tibetan": "།",
    "khmer": "។",
}
PEOPLE, TONES = "👨👩🧑👧👦👮🧕💁🤷", ("", "🏻", "🏼", "🏽", "🏾", "🏿")
PLAIN = "😀😂🥲🤖🔥✨🚀🍕🐍🦀💾🧪🎉❤⚠☎♻©™"


def texts(*, every: int = 1) -> Iterator[tuple[str, int, str]]:
    """Kind, number and text of all 10,000, or of each `every`-th of a kind."""
    for kind, many in KINDS.items():
        for number in range(0, many, every):
            yield kind, number, text(kind, number)


def text(kind: str, number: int) -> str:
    """One of them."""
    chance = random.Random(f"{SEED} {kind} {number}")
    return _prose(chance, kind) if kind in SCRIPTS else MAKERS[kind](chance)


def _prose(chance: random.Random, script: str) -> str:
    used, ranges, between = SCRIPTS[script]
    words = used.split()
    out = []
    for _ in range(chance.randint(4, 40)):
        if chance.random() < 0.5:
            word = chance.choice(words)
        else:
            word = "".join(
                chr(chance.randint(*chance.choice(ranges))) for _ in range(chance.randint(2, 9))
            )
        out.append(
            word
            + (
                chance.choice((",", "!", " –", "…", "\u00a0»", "\u202f!", '"'))
                if chance.random() < 0.1
                else ""
            )
        )
    return between.join(out) + END.get(script, ".")


@cache
def _modules() -> list[list[str]]:
    folder = Path(os.__file__).parent
    names = (
        "abc",
        "ast",
        "bisect",
        "codecs",
        "csv",
        "dis",
        "enum",
        "heapq",
        "inspect",
        "locale",
        "random",
        "tarfile",
    )
    return [(folder / f"{name}.py").read_text(encoding="utf-8").splitlines() for name in names]


def _code(chance: random.Random) -> str:
    lines = chance.choice(_modules())
    begin = chance.randrange(len(lines))
    return "\n".join(lines[begin : begin + chance.randint(3, 20)]) + "\n"


def _emoji(chance: random.Random) -> str:
    def one() -> str:
        kind = chance.randrange(6)
        if kind == 0:  # a family
            return "\u200d".join(chance.choice(PEOPLE) for _ in range(chance.randint(2, 4)))
        if kind == 1:  # with a tone of skin and a profession
            return f"{chance.choice('👨👩🧑')}{chance.choice(TONES)}\u200d{chance.choice('💻🔬🚀🎨🍳')}"
        if kind == 2:  # a flag
            return "".join(chr(0x1F1E6 + chance.randrange(26)) for _ in range(2))
        if kind == 3:  # a keycap
            return f"{chance.choice('0123456789#*')}\ufe0f\u20e3"
        if kind == 4:  # a flag of a part of a country: tags
            return (
                "🏴"
                + "".join(
                    chr(0xE0000 + ord(letter)) for letter in chance.choice(("gbeng", "gbsct"))
                )
                + "\U000e007f"
            )
        return chance.choice(PLAIN) + chance.choice(("", "\ufe0f"))

    return chance.choice(("", "ok ", "lol ")) + "".join(
        one() + chance.choice(("", " ")) for _ in range(chance.randint(1, 30))
    )


def _base64(chance: random.Random) -> str:
    raw = chance.randbytes(chance.randint(10, 300))
    return chance.choice(
        (
            base64.b64encode(raw).decode(),
            base64.urlsafe_b64encode(raw).decode(),
            base64.encodebytes(raw).decode(),
            base64.b85encode(raw).decode(),
            raw.hex(),
            raw.hex(" "),
            f"data:image/png;base64,{base64.b64encode(raw).decode()}",
        )
    )


def _mixed(chance: random.Random) -> str:
    makers: list[Callable[[random.Random], str]] = [_code, _emoji, _base64]
    makers += [lambda given: _prose(given, chance.choice(sorted(SCRIPTS))) for _ in range(4)]
    return "\n".join(chance.choice(makers)(chance) for _ in range(chance.randint(2, 4)))


def _looks_corrupt(chance: random.Random) -> str:
    """What people write and models answer, and heuristics take for damage."""
    number = chance.randrange(8)
    many = chance.randint(12, 60)
    if number == 0:
        return (
            "A decoder puts \ufffd (U+FFFD) for a wrong byte: caf\ufffd is what"
            f" {'é'.encode('latin-1')!r} becomes."
        )
    if number == 1:
        wrong = chance.choice(("é", "ü", "ñ", "€", "日本", "“”"))
        return (
            f"If you see {wrong.encode().decode('cp1252', 'replace')} for {wrong}, UTF-8 was read"
            " as Windows-1252."
        )
    if number == 2:
        return f"| {'column | ' * many}\n| {'--- | ' * many}\n"
    if number == 3:
        return "\n".join(["0, 0, 0, 0,"] * many)
    if number == 4:
        return chance.choice(("ha", "no ", "🎉", "very ", "ー", "ㅋ", "www")) * many * 2
    if number == 5:
        # As `find -print0` writes it.
        return "\0".join(f"./file-{one}" for one in range(many)) + "\0"
    if number == 6:
        return "-" * many * 2 + f"\n title {many}\n" + "=" * many * 2
    return "\n".join(f"{one * 16:08x}  {'00 ' * 16} |{'.' * 16}|" for one in range(many))


MAKERS: dict[str, Callable[[random.Random], str]] = {
    "code": _code,
    "emoji": _emoji,
    "base64": _base64,
    "mixed": _mixed,
    "looks-corrupt": _looks_corrupt,
}
KINDS: dict[str, int] = dict.fromkeys(SCRIPTS, PER_SCRIPT) | {
    "code": CODE,
    "emoji": EMOJI,
    "base64": BASE64,
    "mixed": MIXED,
    "looks-corrupt": LOOKS_CORRUPT,
}
