"""CorruptionDetector: corruption is a contradiction between two records of one output, never how a
text looks.

The records are the text, the bytes it came as, the ids it was decoded from, the vocabulary they are
of, and the ids (or their digest) that whoever made them holds. With a text alone nothing can be
compared: the verdict is then undecided, and hints say where it looks corrupt and how often clean
texts look like that.

How often the hints do so is published with each: of 10,000 clean texts in twenty scripts, code,
emoji, base64, and texts that look corrupt on purpose, the guide (docs/integrity.md of this package)
has the table, and a test measures it again.

One file of more than 500 lines, because hints are a part of every report and of nothing else.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate
from typing import Protocol

from .encoding import UNSPELLABLE, common_prefix, validate_text
from .problem import Misused
from .records import (
    EnhancedTokenChunk,
    RecoveryAction,
    SequenceValidationResult,
    ValidationResult,
)
from .sequence import SequenceIntegrityChecker
from .spelling import REPLACEMENT, Spelling, held_back, without_replacements

LEAST_REPEATED = 48  # characters that repeat
TURNS = 10  # how often a piece stands there, at least
MOJIBAKE_SHARE = 0.5  # of the characters that are not ASCII


def _windows_1252() -> dict[str, int]:
    """Byte of each character, where the five bytes that the code page lacks are what browsers take
    them for.
    """
    return {bytes([byte]).decode("cp1252", "ignore") or chr(byte): byte for byte in range(256)} | {
        chr(byte): byte for byte in range(0x80, 0xA0)
    }


_BYTES = _windows_1252()
_TO_BYTES = str.maketrans({letter: chr(byte) for letter, byte in _BYTES.items()})
_TAIL = (
    "[" + "".join(re.escape(letter) for letter, byte in _BYTES.items() if 0x80 <= byte < 0xC0) + "]"
)
_DOUBLE = re.compile(f"(?:[Â-ß]{_TAIL}|[à-ï]{_TAIL}{{2}}|[ð-ô]{_TAIL}{{3}})+")
_REPEATED = re.compile(rf"(?=\S)(.{{1,64}}?)\1{{{TURNS - 1},}}", re.DOTALL)


def decoded_once_more(text: str) -> str | None:
    """Return what a text was before its UTF-8 was read as Windows-1252 or Latin-1; None where it
    cannot have been.
    """
    try:
        raw = text.translate(_TO_BYTES).encode("latin-1")
        return None if raw.isascii() else raw.decode()
    except UnicodeError:
        return None


def _mojibake(text: str) -> Iterator[tuple[int, int]]:
    if text.isascii():
        return
    spans = [
        match.span() for match in _DOUBLE.finditer(text) if decoded_once_more(match[0]) is not None
    ]
    others = sum(not letter.isascii() for letter in text)
    if sum(end - begin for begin, end in spans) >= MOJIBAKE_SHARE * others:
        yield from spans


def _replacements(text: str) -> Iterator[tuple[int, int]]:
    yield from (match.span() for match in re.finditer("\ufffd+", text))


def _nuls(text: str) -> Iterator[tuple[int, int]]:
    yield from (match.span() for match in re.finditer("\0+", text))


def _repetitions(text: str) -> Iterator[tuple[int, int]]:
    for match in _REPEATED.finditer(text):
        if match.end() - match.start() >= LEAST_REPEATED:
            yield match.span()


@dataclass(frozen=True, kw_only=True)
class Heuristic:
    """One way to look at a text.

    Attributes:
        name: what is looked for.
        false_positive_rate: share of the published clean texts where it is found.
        find: where in a text it is, as begin and end in characters.
    """

    name: str
    false_positive_rate: float
    find: Callable[[str], Iterator[tuple[int, int]]]


HEURISTICS = (
    Heuristic(name="mojibake", false_positive_rate=0.0046, find=_mojibake),
    Heuristic(name="replacement-character", false_positive_rate=0.0062, find=_replacements),
    Heuristic(name="nul", false_positive_rate=0.005, find=_nuls),
    Heuristic(name="repetition", false_positive_rate=0.0235, find=_repetitions),
)


@dataclass(frozen=True, kw_only=True)
class Hint:
    """Place where a text looks corrupt.

    Attributes:
        name: of the heuristic.
        affected_range: begin and end, in characters.
        false_positive_rate: in how large a share of clean texts this heuristic finds something.
    """

    name: str
    affected_range: tuple[int, int]
    false_positive_rate: float


def hints(text: str) -> tuple[Hint, ...]:
    """Return every place where a text looks corrupt."""
    return tuple(
        Hint(name=known.name, affected_range=where, false_positive_rate=known.false_positive_rate)
        for known in HEURISTICS
        for where in known.find(text)
    )


TEXT_IDS = "text, ids"
IN_TOKENS = "tokens"


class CorruptionType(StrEnum):
    """Kind of a contradiction, by its two records.

    * mojibake, replacement-characters, nul-bytes, repeated-text, text-differs: the text is not what
      the ids spell: its UTF-8 was read as Windows-1252; it has more U+FFFD, or more NUL, than they
      spell; a piece came twice; else.
    * not-utf8, bytes-differ: the bytes are not UTF-8, and the ids do not spell them; they are those
      of another text.
    * wrong-vocabulary: ids that this vocabulary does not have.
    * shifted-ids, repeated-ids, missing-ids, reordered-ids, ids-differ: against the ids that were
      made: each greater by the same number; a piece came twice; a piece is missing; the same ones
      in another order; else.
    * changed-chunk: a chunk that is not what its maker made the checksum of.
    """

    MOJIBAKE = "mojibake"
    REPLACEMENT_CHARACTERS = "replacement-characters"
    NUL_BYTES = "nul-bytes"
    REPEATED_TEXT = "repeated-text"
    TEXT_DIFFERS = "text-differs"
    NOT_UTF8 = "not-utf8"
    BYTES_DIFFER = "bytes-differ"
    WRONG_VOCABULARY = "wrong-vocabulary"
    SHIFTED_IDS = "shifted-ids"
    REPEATED_IDS = "repeated-ids"
    MISSING_IDS = "missing-ids"
    REORDERED_IDS = "reordered-ids"
    IDS_DIFFER = "ids-differ"
    CHANGED_CHUNK = "changed-chunk"


class CorruptionSeverity(StrEnum):
    """Loss: the text alone, which the ids give again, or tokens, which have to be made or sent
    again.
    """

    TEXT = "text"
    TOKENS = "tokens"


class Verdict(StrEnum):
    """Answer about one output.

    * corrupt: a contradiction was found.
    * intact: two records were compared and agree.
    * undecided: there was one.
    """

    CORRUPT = "corrupt"
    INTACT = "intact"
    UNDECIDED = "undecided"


@dataclass(frozen=True, kw_only=True, slots=True)
class CorruptionReport:
    """One contradiction.

    Attributes:
        corruption_type: which.
        affected_range: begin and end, in characters of the text, bytes, or positions of the ids:
            `unit` says which.
        severity: what is lost.
        recovery_possible: whether the ids that are here are good and give the text again, so that
            no token has to be made or sent again.
        words: the contradiction as a sentence.
    """

    corruption_type: CorruptionType
    affected_range: tuple[int, int]
    unit: str
    severity: CorruptionSeverity
    recovery_possible: bool = False
    words: str

    @property
    def suggested_action(self) -> RecoveryAction:
        """Decode once more what the ids give again; make the rest again."""
        text = self.severity is CorruptionSeverity.TEXT
        return RecoveryAction.DECODE_AGAIN if text else RecoveryAction.REGENERATE


@dataclass(frozen=True, kw_only=True, slots=True)
class CorruptionAnalysis:
    """All that is known of one output.

    Attributes:
        compared: the pairs of records that were held against each other.
        corruptions: their contradictions.
        hints: where the text looks corrupt; they decide nothing.
    """

    compared: tuple[str, ...] = ()
    corruptions: tuple[CorruptionReport, ...] = ()
    hints: tuple[Hint, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Corrupt by a contradiction alone; intact only where something was compared."""
        if self.corruptions:
            return Verdict.CORRUPT
        return Verdict.INTACT if self.compared else Verdict.UNDECIDED


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodingIssues(CorruptionAnalysis):
    """Analysis of the text and the ids of chunks, by chunk.

    Attributes:
        chunks: in which chunks contradictions begin, as numbers from 0 in the order given.
    """

    chunks: tuple[int, ...] = ()


class IdValidator(Protocol):
    """Judge of ids; a `TokenValidator` is one."""

    def validate_ids(self, ids: Sequence[int], /) -> SequenceValidationResult:
        """Return which of these ids, from position 0, the vocabulary does not have."""


class CorruptionDetector:
    """Comparison of the records of an output with each other.

    Args:
        tokens: what is known of the vocabulary.
        token_bytes, decode: what ids spell, as in `EncodingValidator`; one of them, or none.

    Raises:
        Misused: both are given.
    """

    def __init__(
        self,
        *,
        tokens: IdValidator | None = None,
        token_bytes: Callable[[int], bytes] | None = None,
        decode: Callable[[list[int]], str] | None = None,
    ) -> None:
        if token_bytes is not None and decode is not None:
            raise Misused("pass either token_bytes or decode, not both")
        self._tokens = tokens
        self._token_bytes = token_bytes
        self._decode = decode

    # Seven arguments: the five records of an output, and two words about them.
    def analyze_output(
        self,
        text: str,
        *,
        raw: bytes | None = None,
        ids: Sequence[int] | None = None,
        sent_ids: Sequence[int] | None = None,
        sent_digest: int | None = None,
        stream: str = "",
        cut: bool = False,
    ) -> CorruptionAnalysis:
        """Compare all of an output's records that are here.

        Args:
            text: as the user would see it.
            raw: the bytes it came as.
            ids: that it was decoded from, where it was decoded.
            sent_ids: as whoever made them holds them.
            sent_digest: the digest of those, from the maker's `SequenceIntegrityChecker`.
            stream: the name that the maker's checker has.
            cut: the generation was cut, so that the ids may end inside of a character that the text
                lacks.

        Raises:
            Misused: something is given that nothing here can be compared with.
        """
        if ids is None and (sent_ids is not None or sent_digest is not None):
            raise Misused(
                "without ids, the digest of the sent ids cannot be checked; pass the ids that"
                " arrived as well"
            )
        compared: list[str] = []
        corruptions: list[CorruptionReport] = []
        half = validate_text(text)
        if not half.is_valid:
            compared.append("text, UTF-8")
            corruptions.append(_text(CorruptionType.NOT_UTF8, _at(half), half.words))
        known = ids is None or self._tokens is None
        if ids is not None and self._tokens is not None:
            compared.append("ids, vocabulary")
            wrong = self._tokens.validate_ids(ids)
            known = not wrong.failures
            corruptions += [
                _tokens(CorruptionType.WRONG_VOCABULARY, _at(result), result.words)
                for result in wrong.failures
            ]
        spelled = None
        if ids is not None and known:
            try:
                spelled = self._spelled(list(ids), text, cut=cut)
            except UNSPELLABLE as error:
                compared.append("ids, tokenizer")
                words = f"the tokenizer has no text for these ids: {type(error).__name__}: {error}"
                corruptions.append(_tokens(CorruptionType.WRONG_VOCABULARY, (0, len(ids)), words))
                known = False
        if spelled is not None:
            compared.append(TEXT_IDS)
            corruptions += _of_text(text, spelled)
        if raw is not None:
            compared.append("bytes, text")
            corruptions += self._of_bytes(raw, text, ids if known else None, cut=cut)
        if ids is not None and sent_ids is not None:
            compared.append("ids, ids that were sent")
            corruptions += _of_ids(list(ids), list(sent_ids))
        if ids is not None and sent_digest is not None:
            compared.append("ids, digest of those that were sent")
            corruptions += _of_digest(list(ids), sent_digest, stream)
        if not (text or ids or raw or corruptions):
            compared = []  # agreement on nothing is not agreement
        text_alone = all(one.severity is CorruptionSeverity.TEXT for one in corruptions)
        if text_alone and TEXT_IDS in compared:
            corruptions = [replace(one, recovery_possible=True) for one in corruptions]
        return CorruptionAnalysis(
            compared=tuple(compared), corruptions=tuple(corruptions), hints=hints(text)
        )

    def detect_encoding_issues(
        self, tokens: Iterable[EnhancedTokenChunk], *, cut: bool = False
    ) -> EncodingIssues:
        """Compare chunks in their order: each with its checksum, all their text with their ids."""
        chunks = list(tokens)
        if not chunks:
            return EncodingIssues()
        analysis = self.analyze_output(
            "".join(chunk.text for chunk in chunks),
            ids=[chunk.token_id for chunk in chunks],
            cut=cut,
        )
        changed = [
            _tokens(
                CorruptionType.CHANGED_CHUNK,
                (index, index + 1),
                (
                    f"chunk {index} differs from the chunk that rank {chunk.source_device_rank}"
                    " computed its checksum from"
                ),
            )
            for index, chunk in enumerate(chunks)
            if not chunk.intact
        ]
        corruptions = list(analysis.corruptions)
        if changed:  # its ids may be the ones that changed
            corruptions = [
                *changed,
                *(replace(one, recovery_possible=False) for one in corruptions),
            ]
        ends = list(accumulate(len(chunk.text) for chunk in chunks))
        begins = set[int]()
        for one in corruptions:
            at = one.affected_range[0]
            if one.unit != IN_TOKENS:
                # What is missing at the end is missing in the last chunk.
                at = min(bisect_right(ends, at), len(chunks) - 1)
            begins.add(at)
        return EncodingIssues(
            compared=(*analysis.compared, "chunks, checksums"),
            corruptions=tuple(corruptions),
            hints=analysis.hints,
            chunks=tuple(sorted(begins)),
        )

    def _spelled(self, ids: list[int], text: str, *, cut: bool) -> str | None:
        """Return what the ids spell: of several readings the one that is the text, where there is
        such a one.
        """
        if self._token_bytes is not None:
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            # Characters that a detokenizer gave out by the last id at which it held back none.
            spelled = ""
            given = 0
            for token_id in ids:
                spelled += decoder.decode(self._token_bytes(token_id))
                pending, _ = decoder.getstate()
                if not pending and not spelled.endswith(REPLACEMENT):
                    given = len(spelled)
            if not cut:
                return spelled + decoder.decode(b"", final=True)
            pending, _ = decoder.getstate()
            is_held = text == spelled[:given] or without_replacements(text, spelled)
            return text if is_held or held_back(text, spelled, len(pending)) else spelled
        return None if self._decode is None else Spelling(self._decode).of(ids, text, cut=cut)

    def _of_bytes(
        self, raw: bytes, text: str, ids: Sequence[int] | None, *, cut: bool
    ) -> Iterator[CorruptionReport]:
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            read = decoder.decode(raw, final=not cut)
        except UnicodeDecodeError as error:
            # A model may spell bytes that are not UTF-8. That they are its own is known by its ids.
            if (
                ids is not None
                and self._token_bytes is not None
                and b"".join(map(self._token_bytes, ids)) == raw
            ):
                return
            yield _text(
                CorruptionType.NOT_UTF8,
                (error.start, error.end),
                (
                    f"byte {error.start} is not UTF-8 ({error.reason}), and no ids are known that"
                    " decode to it"
                ),
                unit="bytes",
            )
            return
        pending, _ = decoder.getstate()
        if not held_back(text, read, len(pending)):
            at, end = _middle(text, read)
            yield _text(
                CorruptionType.BYTES_DIFFER,
                (at, end),
                f"from character {at} on, the bytes belong to a different text",
            )


def _of_text(text: str, spelled: str) -> Iterator[CorruptionReport]:
    if text == spelled:
        return
    at, end = _middle(text, spelled)
    there = spelled[at : len(spelled) - (len(text) - end)]
    here = text[at:end]
    kind = CorruptionType.TEXT_DIFFERS
    if decoded_once_more(text) == spelled or decoded_once_more(here) == there:
        kind = CorruptionType.MOJIBAKE
    elif text.count(REPLACEMENT) > spelled.count(REPLACEMENT):
        kind = CorruptionType.REPLACEMENT_CHARACTERS
    elif text.count("\0") > spelled.count("\0"):
        kind = CorruptionType.NUL_BYTES
    elif not there and _again(text, at, end):
        kind = CorruptionType.REPEATED_TEXT
    yield _text(
        kind,
        (at, end),
        f"from character {at} on the text is {here[:24]!r}, but the ids decode to {there[:24]!r}",
    )


def _of_ids(ids: list[int], sent: list[int]) -> Iterator[CorruptionReport]:
    if ids == sent:
        return
    at, end = _middle(ids, sent)
    there = sent[at : len(sent) - (len(ids) - end)]
    shifts = {came - went for came, went in zip(ids, sent, strict=False)} - {0}
    words = f"from position {at} on the ids are {ids[at:end][:8]}, but {there[:8]} were sent"
    if len(ids) == len(sent) and len(shifts) == 1 and end - at > 1:
        kind = CorruptionType.SHIFTED_IDS
        words += f": every id that differs, by {shifts.pop():+}"
    elif not there and _again(ids, at, end):
        kind = CorruptionType.REPEATED_IDS
    elif at == end:
        kind = CorruptionType.MISSING_IDS
    elif sorted(ids) == sorted(sent):
        kind = CorruptionType.REORDERED_IDS
    else:
        kind = CorruptionType.IDS_DIFFER
    yield _tokens(kind, (at, max(end, at + 1)), words)


def _of_digest(ids: list[int], sent: int, stream: str) -> Iterator[CorruptionReport]:
    chain = SequenceIntegrityChecker(stream=stream)
    try:
        for token_id in ids:
            chain.append(token_id)
        here = chain.digest
    except (OverflowError, TypeError):
        here = -1  # an id that is not an integer: no digest is that
    if here != sent:
        yield _tokens(
            CorruptionType.IDS_DIFFER,
            (0, len(ids)),
            (
                f"the {len(ids)} ids that arrived differ from the ids that were sent: xxh3"
                f" {here:016x} received, {sent:016x} sent"
            ),
        )


def _middle(here: Sequence[object], there: Sequence[object]) -> tuple[int, int]:
    """Return where the first begins to differ from the second, and where it ceases to."""
    at = common_prefix(here, there)
    rest = min(len(here), len(there)) - at
    return at, len(here) - common_prefix(here[::-1][:rest], there[::-1][:rest])


def _again(whole: Sequence[object], begin: int, end: int) -> bool:
    """Return whether what stands between begin and end is what stood before it, once or in
    turns.
    """
    return any(
        whole[begin - turn : end - turn] == whole[begin:end]
        for turn in range(1, min(begin, end - begin) + 1)
    )


def _at(result: ValidationResult) -> tuple[int, int]:
    """Return the range of one character or id that a finding is about."""
    position = result.position or 0
    return position, position + 1


def _text(
    kind: CorruptionType, where: tuple[int, int], words: str, *, unit: str = "characters"
) -> CorruptionReport:
    return CorruptionReport(
        corruption_type=kind,
        affected_range=where,
        unit=unit,
        severity=CorruptionSeverity.TEXT,
        words=words,
    )


def _tokens(kind: CorruptionType, where: tuple[int, int], words: str) -> CorruptionReport:
    return CorruptionReport(
        corruption_type=kind,
        affected_range=where,
        unit=IN_TOKENS,
        severity=CorruptionSeverity.TOKENS,
        words=words,
    )
