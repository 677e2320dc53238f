"""Spelling: which texts a detokenizer may have made of ids, where the tokens are bytes of
characters.

A tokenizer with byte fallback (Llama 2, Mistral, Gemma) spells a character that it does not know as
one token for each byte of its UTF-8. Its decoder reads a run of such tokens as a whole: where the
last character of the run is incomplete, every byte of the run becomes U+FFFD, and all of them
become characters again when the next token completes it. A streaming detokenizer has given out the
complete characters long before. Both are readings of the same ids. So a run is not judged by what
the decoder makes of an incomplete one, but character by character.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence

REPLACEMENT = "\ufffd"
LONGEST = 4
"""Bytes of one character in UTF-8."""
HELD = 32
"""Ids at the end that are taken away one by one, to find what a detokenizer holds back."""


def held_back(text: str, spelled: str, incomplete: int) -> bool:
    """Return whether the text is what the ids spell, with at most so many U+FFFD for a character
    that the cut left incomplete.

    Args:
        text: as it came.
        spelled: what the ids spell without the incomplete character.
        incomplete: how many bytes of that character are there.
    """
    rest = text[len(spelled) :]
    return text.startswith(spelled) and len(rest) <= incomplete and not rest.strip(REPLACEMENT)


def without_replacements(text: str, spelled: str) -> bool:
    """Return whether the text is what the ids spell but for U+FFFD at the end.

    A detokenizer that goes by what `decode` gives takes a U+FFFD of the text's own for half of a
    character, and holds it back: where the generation is cut there, it never comes.
    """
    return spelled.startswith(text) and not spelled[len(text) :].strip(REPLACEMENT)


class Spelling:
    """Texts that ids spell by a tokenizer's `decode`. Not for several threads at once.

    Args:
        decode: the text that ids spell.
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        # By id, whether it is half of a character when it is alone.
        self._high: dict[int, bool] = {}
        # By id, whether it is an ASCII byte that byte fallback spells.
        self._low: dict[int, bool] = {}
        # By id, whether it spells nothing, as a special token that is left out.
        self._silent: dict[int, bool] = {}

    def of(self, ids: Sequence[int], text: str, *, ongoing: bool = False, cut: bool = False) -> str:
        """Return the reading of these ids that agrees with the text, or where none does, the one
        that is nearest to it.

        Args:
            ids: all ids of the output so far.
            text: what came for them.
            ongoing: more ids will come, so that the text may lag behind.
            cut: the generation was cut, so that the ids may end inside of a character that the text
                lacks.

        Returns:
            A string that the text equals, or with `ongoing` begins with it, if the text is a
            reading of the ids.
        """
        whole = list(ids)
        spelled = self._decode(whole)
        if text == spelled or (ongoing and spelled.startswith(text)):
            return spelled
        if REPLACEMENT not in spelled:
            return spelled
        if (ongoing or cut) and spelled.endswith(REPLACEMENT):
            reading = self._without_the_end(whole, spelled, text, ongoing=ongoing)
            if reading is not None:
                return reading
        return self._by_runs(whole, spelled, text, ongoing=ongoing, cut=cut)

    def _without_the_end(
        self, ids: list[int], spelled: str, text: str, *, ongoing: bool
    ) -> str | None:
        """Return a reading that leaves away what a detokenizer holds back at the end; None where
        the text is not one.

        It gives out nothing while what it has ends in U+FFFD: an incomplete character, and whatever
        is spelled between that and the last end without one.
        """
        if not ongoing:
            for many in range(1, LONGEST):
                # A decoder that gives U+FFFD for the incomplete character alone, as of byte-level
                # BPE.
                if spelled.endswith(REPLACEMENT * many) and text == spelled[:-many]:
                    return text
        # Of more than that the runs tell, for less than it costs to decode all that often.
        most = HELD if len(spelled) - len(spelled.rstrip(REPLACEMENT)) <= HELD else LONGEST - 1
        for many in range(1, min(most, len(ids)) + 1):
            before = self._decode(ids[:-many])
            if before.endswith(REPLACEMENT):
                continue
            if ongoing:
                return before if before.startswith(text) else None
            if held_back(text, before, many):
                return text
            if REPLACEMENT in before and text == self._by_runs(
                ids[:-many], before, text, ongoing=False, cut=False
            ):
                return text
            return None
        return None

    def _by_runs(self, ids: list[int], spelled: str, text: str, *, ongoing: bool, cut: bool) -> str:
        """Read every run of byte tokens that is not UTF-8 as a whole, by its characters."""
        for token_id in ids:
            if token_id not in self._silent:
                self._silent[token_id] = not self._decode([token_id] * 3)
        ids = [token_id for token_id in ids if not self._silent[token_id]]
        match = _Match(text, ongoing=ongoing)
        nearest = []
        at = 0
        runs = self._broken_runs(ids)
        starts = self._starts(ids, spelled, runs)
        for (begin, end), start in zip(runs, starts, strict=True):
            size = end - begin
            if start < at or spelled[start : start + size] != REPLACEMENT * size:
                return spelled  # this decoder does not give a U+FFFD for each byte of a run
            literal = spelled[at:start]
            characters = self._characters(ids[begin:end])
            match.literal(literal)
            match.run(characters, size, may_end=cut and end == len(ids))
            nearest += [literal, *(character or REPLACEMENT for character in characters)]
            at = start + size
        match.literal(spelled[at:], may_end=cut)
        if match.agrees:
            return text
        return "".join((*nearest, spelled[at:]))

    def _starts(self, ids: list[int], spelled: str, runs: list[tuple[int, int]]) -> list[int]:
        """Return where in what the decoder spells each run begins."""
        stretches = list(re.finditer(f"{REPLACEMENT}+", spelled))
        if [len(stretch[0]) for stretch in stretches] == [end - begin for begin, end in runs]:
            return [stretch.start() for stretch in stretches]
        # A U+FFFD of the text itself is among them. To decode all that is before each run takes
        # longer.
        return [len(self._decode(ids[:begin])) for begin, _ in runs]

    def _broken_runs(self, ids: list[int]) -> list[tuple[int, int]]:
        """Return begin and end of each run of byte tokens that the decoder does not read as
        UTF-8.
        """
        for token_id in ids:
            if token_id not in self._high:
                # Twice: a token "▁\ufffd" is none, and a decoder may take the space from the begin
                # of a text.
                self._high[token_id] = (
                    self._decode([token_id]) == REPLACEMENT
                    and self._decode([token_id, token_id]) == REPLACEMENT * 2
                )
        high = [token_id for token_id in dict.fromkeys(ids) if self._high[token_id]][:LONGEST]
        if not high:
            return []
        joins = [self._high[token_id] or self._is_low(token_id, high) for token_id in ids]
        runs = []
        at = 0
        for is_byte, group in itertools.groupby(joins):
            size = len(list(group))
            if is_byte:
                broken = self._broken(ids[at : at + size])
                runs += [(at + begin, at + end) for begin, end in broken]
            at += size
        return runs

    def _broken(self, run: list[int]) -> list[tuple[int, int]]:
        """Return the parts of a run that are not UTF-8: all, none, or those between tokens that are
        U+FFFD themselves.
        """
        spelled = self._decode(run)
        if spelled == REPLACEMENT * len(run):
            return [(0, len(run))]
        if REPLACEMENT not in spelled:
            return []
        replacements = self._replacements(run)
        parts = []
        begin = 0
        for is_replacement, group in itertools.groupby(run, replacements.__contains__):
            end = begin + len(list(group))
            if not is_replacement and self._decode(run[begin:end]) == REPLACEMENT * (end - begin):
                parts.append((begin, end))
            begin = end
        return parts

    def _replacements(self, run: list[int]) -> set[int]:
        """Return the ids of tokens that are the character U+FFFD.

        Behind a whole character a byte makes all of the run U+FFFD.
        """
        for size in range(1, LONGEST + 1):
            for at in range(len(run) - size + 1):
                whole = run[at : at + size]
                if self._character(whole) is not None:
                    broken = REPLACEMENT * (size + 1)
                    return {
                        token_id
                        for token_id in set(run)
                        if self._high[token_id] and self._decode([*whole, token_id]) != broken
                    }
        return set()

    def _is_low(self, token_id: int, high: list[int]) -> bool:
        """Return whether an id joins a run: behind half of a character an ASCII byte is U+FFFD too,
        a letter stays one.
        """
        if token_id not in self._low:
            pairs = (self._decode([other, token_id]) for other in high)
            self._low[token_id] = any(pair == REPLACEMENT * 2 for pair in pairs)
        return self._low[token_id]

    def _characters(self, run: list[int]) -> list[str | None]:
        """Return the characters of a run; None for a byte that belongs to none."""
        characters: list[str | None] = []
        at = 0
        while at < len(run):
            for size in range(1, min(LONGEST, len(run) - at) + 1):
                character = self._character(run[at : at + size])
                if character is not None:
                    break
            characters.append(character)
            at += 1 if character is None else size
        return characters

    def _character(self, run: list[int]) -> str | None:
        # Twice, for decoders that take a space from the begin of a text.
        text = self._decode([*run, *run])
        return text[-1] if text and len(text) <= 2 and REPLACEMENT not in text else None


class _Match:
    """Places of a text to which the readings of ids lead that agree with it so far.

    Args:
        text: the text.
        ongoing: it may end before the ids do.
    """

    def __init__(self, text: str, *, ongoing: bool) -> None:
        self._text = text
        self._ongoing = ongoing
        self._places = {0}
        self._ended = False

    @property
    def agrees(self) -> bool:
        """Return whether a reading of all ids is the text."""
        return self._ended or len(self._text) in self._places

    def literal(self, piece: str, *, may_end: bool = False) -> None:
        """Go on by the next characters, of which there is one reading.

        Args:
            piece: the characters.
            may_end: nothing need stand for U+FFFD at their end.
        """
        self._look(piece)
        least = piece.rstrip(REPLACEMENT) if may_end else piece
        self._places = {
            place + size
            for place in self._places
            for size in range(len(least), len(piece) + 1)
            if self._text.startswith(piece[:size], place)
        }

    def _look(self, piece: str) -> None:
        if self._ongoing and any(piece.startswith(self._text[place:]) for place in self._places):
            self._ended = True

    def run(self, characters: list[str | None], size: int, *, may_end: bool) -> None:
        """Go on by the next run: each character, or U+FFFD for a stretch of it with a byte that
        belongs to no character.

        Args:
            characters: of the run; None for a byte that is of none.
            size: bytes of the run.
            may_end: the text may end before a byte of no character: from there on all that a
                decoder gives may end in U+FFFD, which is held back.
        """
        plain = self._places
        # Behind U+FFFD for characters alone, and for a byte of none too.
        whole = set[int]()
        broken = set[int]()
        left = set[int]()
        for character in characters:
            if may_end and character is None:
                left |= plain | broken
            if self._ongoing and len(self._text) in plain | broken:
                self._ended = True
            begun = {end for place in plain if (end := self._behind(place, size)) > place}
            if character is None:
                broken |= whole | begun
                plain = set()
                whole = set()
            else:
                kept = {
                    place + 1 for place in plain | broken if self._text.startswith(character, place)
                }
                plain = kept
                whole = whole | begun
        self._places = left | plain | broken

    def _behind(self, place: int, size: int) -> int:
        """Return where the U+FFFD that begin at a place end.

        The place itself where there are more than a run can make.
        """
        end = place
        while self._text.startswith(REPLACEMENT, end):
            end += 1
        return end if end - place <= size else place
