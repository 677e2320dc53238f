"""Clean texts of every kind of tokenizer are not accused at any cut, and damage in the same streams
is found.

With --soak all texts of thirty scripts are cut at every token; else a few are.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from kinds_of_tokenizers import (
    BYTES,
    FALLBACK,
    HARD,
    KINDS,
    REPLACEMENT,
    SCRIPTS,
    by_offsets,
    by_stream,
    decode,
    spelled,
    texts,
    tokenizer,
)
from rankproof_integrity.corruption import CorruptionDetector, Verdict
from rankproof_integrity.encoding import EncodingValidator
from rankproof_integrity.records import ValidationError

SOAKED, FEW = 1, 60
OF_REPLACEMENT = frozenset(f"<0x{byte:02X}>" for byte in REPLACEMENT.encode())


def streams(kind: str, *, soak: bool) -> Iterator[tuple[list[int], str]]:
    """Ids and texts: of every script with --soak, the beginnings of one text of each seventh script
    without.
    """
    for script in SCRIPTS if soak else SCRIPTS[::7]:
        for text in texts(script, SOAKED) if soak else texts(script, 0)[1:]:
            ids = list(tokenizer(kind).encode(text, add_special_tokens=False).ids)
            yield (ids if soak else ids[:FEW]), text


def detector(kind: str) -> CorruptionDetector:
    """One that has the tokenizer's own decode."""
    return CorruptionDetector(decode=lambda ids: decode(kind, ids))


def validator(kind: str, *, interval: int = 1) -> EncodingValidator:
    """One that has the tokenizer's own decode, and by default looks at every token."""
    return EncodingValidator(decode=lambda ids: decode(kind, ids), interval=interval)


def token_of(kind: str, byte: str) -> int | None:
    """The id of a byte token."""
    found: int | None = tokenizer(kind).token_to_id(f"<0x{byte}>")
    return found


def held(kind: str, ids: list[int]) -> str:
    """The text of ids without a character that is not complete."""
    return next(
        (
            text
            for end in range(len(ids), 0, -1)
            if not (text := decode(kind, ids[:end])).endswith(REPLACEMENT)
        ),
        "",
    )


@pytest.mark.parametrize("kind", KINDS)
def test_no_cut_of_a_clean_stream_is_accused(kind: str, pytestconfig: pytest.Config) -> None:
    """Every cut of a stream is clean, by whichever detokenizer, also where it writes U+FFFD for
    half a character.
    """
    found, tried = detector(kind), 0
    for ids, _ in streams(kind, soak=pytestconfig.getoption("--soak")):
        for detokenizer in (by_stream, by_offsets):
            one, text = validator(kind), ""
            for at, (token, part) in enumerate(zip(ids, detokenizer(kind, ids), strict=True)):
                text += part
                so_far, end = ids[: at + 1], one.feed_token(token, part)
                assert (end.words, one.finish(cut=True).words) == ("", ""), (so_far, text)
                whole = decode(kind, so_far)
                outputs = {
                    text,
                    whole,
                    *([text + REPLACEMENT] if whole.endswith(REPLACEMENT) else []),
                }
                for output in outputs:
                    report = found.analyze_output(output, ids=so_far, cut=True)
                    assert report.verdict is Verdict.INTACT, (so_far, output, report.corruptions)
                    tried += 1
    assert tried > 50


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_cut_of_a_hard_text_is_accused(kind: str) -> None:
    """Marks, joined emoji, high planes, U+FFFD of the text's own and special tokens: no cut of them
    is accused.
    """
    found = detector(kind)
    for text in HARD.values():
        ids = list(tokenizer(kind).encode(text, add_special_tokens=False).ids)
        for parts in (by_stream(kind, ids), by_offsets(kind, ids)):
            one = validator(kind)
            for at, (token, part) in enumerate(zip(ids, parts, strict=True)):
                so_far, came = ids[: at + 1], "".join(parts[: at + 1])
                assert one.feed_token(token, part).is_valid, (so_far, came)
                assert one.finish(cut=True).is_valid, (so_far, came)
                for output in {came, decode(kind, so_far)}:
                    report = found.analyze_output(output, ids=so_far, cut=True)
                    assert report.verdict is Verdict.INTACT, (so_far, output, report.corruptions)


@pytest.mark.parametrize("kind", ["byte-level BPE", "GPT-NeoX"])
def test_what_a_detokenizer_holds_back_at_a_cut_is_not_missed(kind: str) -> None:
    """By the bytes of ids too: a U+FFFD of the text's own is held back for half of a character."""
    found = CorruptionDetector(token_bytes=lambda token: spelled(kind, token))
    for text in (*HARD.values(), *(one for script in SCRIPTS[::7] for one in texts(script, 0))):
        ids = list(tokenizer(kind).encode(text, add_special_tokens=False).ids)[:FEW]
        parts = by_offsets(kind, ids)
        one = EncodingValidator(token_bytes=lambda token: spelled(kind, token))
        for at, (token, part) in enumerate(zip(ids, parts, strict=True)):
            so_far, came = ids[: at + 1], "".join(parts[: at + 1])
            assert one.feed_token(token, part).is_valid, (so_far, came)
            assert one.finish(cut=True).is_valid, (so_far, came)
            report = found.analyze_output(came, ids=so_far, cut=True)
            assert report.verdict is Verdict.INTACT, (so_far, came, report.corruptions)
            if came:
                assert (
                    found.analyze_output(came[:-1], ids=so_far, cut=True).verdict is Verdict.CORRUPT
                ), (so_far, came)


@pytest.mark.parametrize("kind", [*FALLBACK, "byte-level BPE"])
def test_whatever_bytes_are_spelled_no_cut_is_accused(
    kind: str, pytestconfig: pytest.Config
) -> None:
    """Words, rare characters, special tokens and lone bytes in any order: no cut of what is
    streamed is accused.
    """
    chance, found = random.Random(f"any {kind}"), detector(kind)
    pieces = (
        "語",
        "龍",
        "é",
        REPLACEMENT,
        " ",
        "a",
        "the",
        "\n",
        "👩\u200d🚀",
        "\0",
        "語龍語",
        "<|middle|>",
        "</s>",
    )
    of_bytes = [token_of(kind, name) for name in ("FF", "E6", "97", "41", "0A", "C3", "F0", "80")]
    lone = [one for one in of_bytes if one is not None]
    for _ in range(2_000 if pytestconfig.getoption("--soak") else 40):
        ids: list[int] = []
        for _ in range(chance.randint(1, 9)):
            if lone and chance.random() < 0.25:
                ids.append(chance.choice(lone))
            else:
                ids += tokenizer(kind).encode(chance.choice(pieces), add_special_tokens=False).ids
        ids = ids[chance.choice((0, 0, 1, 2)) :]
        one, came = validator(kind, interval=chance.randint(1, 5)), ""
        for at, (token, part) in enumerate(zip(ids, by_offsets(kind, ids), strict=True)):
            came += part
            assert one.feed_token(token, part).is_valid, (ids[: at + 1], came)
            for output in {came, decode(kind, ids[: at + 1])}:
                report = found.analyze_output(output, ids=ids[: at + 1], cut=True)
                assert report.verdict is Verdict.INTACT, (ids[: at + 1], output, report.corruptions)


@pytest.mark.parametrize("kind", KINDS)
def test_damage_in_the_same_streams_is_found(kind: str, pytestconfig: pytest.Config) -> None:
    """A changed character, two swapped tokens and a text that is cut elsewhere are each found, at
    any place.
    """
    found, tried = detector(kind), 0
    for ids, _ in streams(kind, soak=pytestconfig.getoption("--soak")):
        text = held(kind, ids)
        for at, letter in enumerate(text):
            for other in {"x", chr(ord(letter) ^ 1), REPLACEMENT} - {letter}:
                changed = text[:at] + other + text[at + 1 :]
                last = at == len(text) - 1  # where the cut left half of a character, that is U+FFFD
                if not last or other != REPLACEMENT:
                    for cut in (True, False):
                        report = found.analyze_output(changed, ids=ids, cut=cut)
                        assert report.verdict is Verdict.CORRUPT, (cut, ids, changed)
                        tried += 1
            if text[at:].strip(REPLACEMENT):
                assert (
                    found.analyze_output(text[:at], ids=ids, cut=True).verdict is Verdict.CORRUPT
                ), text[:at]
        whole, names = decode(kind, ids), [tokenizer(kind).id_to_token(one) for one in ids]
        for at in range(len(ids) - 1):
            swapped = [*ids[:at], ids[at + 1], ids[at], *ids[at + 2 :]]
            # The bytes of a U+FFFD in another order are no character, and U+FFFD is what a decoder
            # may write for them.
            seen = not OF_REPLACEMENT.issuperset(names[at : at + 2])
            if seen and not whole.endswith(REPLACEMENT) and decode(kind, swapped) != whole:
                assert (
                    found.analyze_output(text, ids=swapped, cut=True).verdict is Verdict.CORRUPT
                ), (at, ids)
                tried += 1
    assert tried > 50


@pytest.mark.parametrize("kind", FALLBACK)
def test_damage_in_a_run_that_goes_on_is_found_where_it_is(kind: str) -> None:
    """A run of byte tokens need not end: the next comparison finds a changed character, and names
    its place.
    """
    ids = list(tokenizer(kind).encode("語龍" * 60, add_special_tokens=False).ids)
    parts = by_stream(kind, ids)
    at = next(at for at in range(100, 200) if parts[at] == "語")
    place = len("".join(parts[:at]))
    parts[at] = "誤"
    one = validator(kind, interval=256)
    results = [one.feed_token(token, part) for token, part in zip(ids[:256], parts, strict=False)]
    assert (results[-1].error_type, results[-1].position) == (ValidationError.TEXT_DIFFERS, place)
    assert all(result.is_valid for result in results[:-1])


@pytest.mark.parametrize("kind", FALLBACK)
def test_the_smallest_case_is_valid(kind: str) -> None:
    """A text of 360 byte tokens, compared at the 256th, which is the first byte of a character.

    And cut there.
    """
    ids = [tokenizer(kind).token_to_id(f"<0x{byte:02X}>") for byte in ("日本語" * 40).encode()]
    one = validator(kind, interval=256)
    for token, part in zip(ids, by_stream(kind, ids), strict=True):
        assert one.feed_token(token, part).is_valid
    assert one.finish().is_valid
    text = ("日本語" * 40)[:85]
    assert detector(kind).analyze_output(text, ids=ids[:256], cut=True).verdict is Verdict.INTACT
    assert detector(kind).analyze_output(text, ids=ids[:256]).verdict is Verdict.CORRUPT
    assert (
        detector(kind).analyze_output(text[:-1], ids=ids[:256], cut=True).verdict is Verdict.CORRUPT
    )


@pytest.mark.parametrize("kind", FALLBACK)
def test_bytes_of_the_model_that_are_no_character_are_not_corruption(
    kind: str, pytestconfig: pytest.Config
) -> None:
    """A model may spell any bytes: what a detokenizer streams of them is clean.

    The rest is compared with the ids.
    """
    chance, found = random.Random(kind), detector(kind)
    many = 400 if pytestconfig.getoption("--soak") else 12
    for _ in range(many):
        pieces = [
            chance.choice(("日".encode(), "é".encode(), b"\xff", b"\xe6", b"\n", b"A", b"\x97"))
            for _ in range(9)
        ]
        middle = [tokenizer(kind).token_to_id(BYTES[byte]) for byte in b"".join(pieces)]
        words = [tokenizer(kind).token_to_id(word) for word in ("a", "the", "in")]
        ids = [words[0], *middle, words[1], words[2]]
        one, streamed = validator(kind), ""
        for token, part in zip(ids, by_offsets(kind, ids), strict=True):
            streamed += part
            assert one.feed_token(token, part).is_valid, (ids, streamed)
        assert one.finish().is_valid, (ids, streamed)
        by_bytes = (
            decode(kind, [words[0]]) + b"".join(pieces).decode(errors="replace") + streamed[-5:]
        )
        if streamed.endswith("thein") and decode(kind, ids).endswith("thein"):
            assert found.analyze_output(by_bytes, ids=ids).verdict is Verdict.INTACT, (
                ids,
                by_bytes,
            )
            for wrong in (by_bytes[:-1], by_bytes[:-1] + "m", "b" + by_bytes[1:]):
                assert found.analyze_output(wrong, ids=ids).verdict is Verdict.CORRUPT, (ids, wrong)


@pytest.mark.parametrize("kind", FALLBACK)
def test_a_stream_that_begins_inside_a_character_is_clean(kind: str) -> None:
    """The prompt ended inside a character: the first bytes are of none, and what follows is the
    text.
    """
    ids = [tokenizer(kind).token_to_id(f"<0x{byte:02X}>") for byte in "日本語の文".encode()][1:]
    for text in (f"{REPLACEMENT}本語の文", f"{REPLACEMENT * 2}本語の文", decode(kind, ids)):
        assert detector(kind).analyze_output(text, ids=ids, cut=True).verdict is Verdict.INTACT
    for text in (
        "本語の文",
        f"{REPLACEMENT}本話の文",
        f"{REPLACEMENT}本の文",
        f"{REPLACEMENT}本語の",
    ):
        assert detector(kind).analyze_output(text, ids=ids, cut=True).verdict is Verdict.CORRUPT


def test_a_replacement_for_half_a_character_is_clean_only_at_the_cut() -> None:
    """By the bytes of ids too: U+FFFD at the end of a cut stream is right, and in the middle of a
    character is not.
    """
    raw = "ok 龍 龍".encode()
    for end in range(1, len(raw) + 1):
        one, complete = (
            EncodingValidator(token_bytes=lambda byte: bytes([byte])),
            raw[:end].decode(errors="ignore"),
        )
        cut_inside = len(complete.encode()) < end
        text, before = complete + REPLACEMENT * cut_inside, complete
        for at, byte in enumerate(raw[:end]):
            assert one.feed_token(byte, text if at == end - 1 else "").is_valid
        assert one.finish(cut=True).is_valid
        assert one.finish().error_type is (ValidationError.INCOMPLETE if cut_inside else None)
        found = CorruptionDetector(token_bytes=lambda byte: bytes([byte]))
        for output in {text, before}:
            report = found.analyze_output(output, raw=raw[:end], ids=list(raw[:end]), cut=True)
            assert report.verdict is Verdict.INTACT
        one = EncodingValidator(token_bytes=lambda byte: bytes([byte]))
        results = [
            one.feed_token(byte, text if at == end - 1 else "") for at, byte in enumerate(raw)
        ]
        assert results[-1].is_valid is not cut_inside


def test_bytes_that_a_cut_left_incomplete_are_clean() -> None:
    """Raw bytes may end inside a character where the generation was cut, and nowhere else.

    Other bytes are compared.
    """
    raw, found = "日本".encode(), CorruptionDetector()
    assert found.analyze_output("日", raw=raw[:4], cut=True).verdict is Verdict.INTACT
    assert found.analyze_output(f"日{REPLACEMENT}", raw=raw[:4], cut=True).verdict is Verdict.INTACT
    assert found.analyze_output("日", raw=raw[:4]).verdict is Verdict.CORRUPT
    assert found.analyze_output("本", raw=raw[:4], cut=True).verdict is Verdict.CORRUPT
    assert found.analyze_output("日", raw=raw[:2] + b"\xff", cut=True).verdict is Verdict.CORRUPT
    assert found.analyze_output("日本", raw=raw[:4], cut=True).verdict is Verdict.CORRUPT
