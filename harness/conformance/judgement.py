"""What the findings of one row at all places say together: a word, and whether it counts.

A pure function, so that whoever asks a server knows it as soon as the row was asked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from harness.conformance.answer import read as read_answer
from harness.conformance.exchange import HTTPExchange, Mode
from harness.conformance.rows.row import LATER, TEXTUAL, ConformanceRow, RowFinding, Word
from harness.forms.model import Model

REPETITIONS: Final = 3
Where = Literal["bare", "proxy", "defect", "own", "own-proxy", "own-defect"]
WHERES: Final[tuple[Where, ...]] = get_args(Where)
ON_SERVER: Final[tuple[Where, Where, Where]] = ("bare", "proxy", "defect")
ON_OWN: Final[tuple[Where, Where, Where]] = ("own", "own-proxy", "own-defect")
# Kinds that no row finds alone.
SOMETIMES: Final = "sometimes"
UNSTEADY: Final = "unsteady"
UNCONTROLLED: Final = "uncontrolled"


class ControlResult(Model):
    """Whether a row was shown to see its defect.

    Attributes:
        shown: whether it counts.
        on: the server that it was shown on.
        does: what the proxy did wrong.
        fact: what the row found there, or why it does not count.
    """

    shown: bool
    on: Literal["this server", "our correct server", "no server"]
    does: str
    fact: str


@dataclass(frozen=True, kw_only=True)
class RowJudgement:
    """What a row says.

    Attributes:
        about: the difference in one word; empty where there is none.
        fact: in a sentence.
        count: repetitions that violated, of all: `2 of 3`.
        repetition: that the fact is about.
        control: None where nothing was asked.
    """

    word: Word
    about: str
    fact: str
    count: str
    repetition: int
    control: ControlResult | None


def word_of(findings: Sequence[RowFinding]) -> tuple[Word, RowFinding]:
    """Return what several repetitions say together, and the one that says it."""
    violating = [finding for finding in findings if finding.word == "VIOLATES"]
    if len(violating) == len(findings) or is_lost(findings):
        return "VIOLATES", violating[0]
    if violating:
        return "CANNOT TELL", violating[0]
    unasked = [finding for finding in findings if finding.word == "NOT ASKED"]
    if unasked and all(finding.word in ("NOT ASKED", "CONFORMS") for finding in findings):
        # An answer was over too soon, in one repetition or in all: no promise was tested there.
        return "NOT ASKED", unasked[0]
    for word in ("CANNOT TELL", "REFUSES", "CONFORMS"):
        alike = [finding for finding in findings if finding.word == word]
        if len(alike) == len(findings):
            return alike[0].word, alike[0]
        if alike:
            return "CANNOT TELL", alike[0]
    raise AssertionError("no repetition")


def is_lost(findings: Sequence[RowFinding]) -> bool:
    """Whether a row lost the server for good: no repetition behind that got an answer, and each
    before it kept the promise.

    A server that somebody else started cannot be started again for the next repetition.
    """
    dead = next((place for place, one in enumerate(findings) if one.about == "dead"), None)
    if dead is None or findings[dead].word != "VIOLATES":
        return False
    if any(finding.word != "CONFORMS" for finding in findings[:dead]):
        return False
    left = [finding.about for finding in findings[dead:]]
    count = left.count("dead")
    return count < len(left) and left[count:] == ["unanswered"] * (len(left) - count)


def places_after(bare: Sequence[RowFinding]) -> tuple[Where, ...]:
    """Return where the control of a row is tried, after what the server itself did."""
    word, _ = word_of(bare)
    if word in ("CANNOT TELL", "NOT ASKED"):
        return ()
    return ON_SERVER[1:] if word == "CONFORMS" else ON_OWN


def judge_row(
    row: ConformanceRow,
    places: Mapping[Where, Sequence[RowFinding]],
    unsteady: Collection[Mode],
) -> RowJudgement:
    """Return what a row says.

    Args:
        row: the promise.
        places: what each repetition found, by place; without a place the control does not count.
        unsteady: modes in which a request at temperature 0 got two texts.
    """
    bare = places["bare"]
    word, finding = word_of(bare)
    about, fact = finding.about, finding.fact
    violated = sum(one.word == "VIOLATES" for one in bare)
    count = f"{violated} of {REPETITIONS}"
    control = None if word == "NOT ASKED" else _control(row, places, word)
    if word == "CANNOT TELL" and violated:
        about = SOMETIMES
        fact = f"violated in {violated} of {REPETITIONS} repetitions: {fact}"
    if word == "VIOLATES" and row.compares & set(unsteady) and about in TEXTUAL:
        word, about = "CANNOT TELL", UNSTEADY
        fact = (
            f"the server does not repeat its texts at temperature 0, so this may be chance: {fact}"
        )
    if word == "VIOLATES" and is_lost(bare):
        answered = sum(one.about != "unanswered" for one in bare)
        count = f"{violated} of {answered}"
        fact = f"{fact}; the server answered no request of the next repetitions"
    if word != "CANNOT TELL" and control is not None and not control.shown:
        word, about = "CANNOT TELL", UNCONTROLLED
        fact = f"without a control ({control.fact}): {fact}"
    return RowJudgement(
        word=word,
        about=about,
        fact=fact,
        count=count,
        repetition=bare.index(finding),
        control=control,
    )


def _control(
    row: ConformanceRow, places: Mapping[Where, Sequence[RowFinding]], word: Word
) -> ControlResult:
    """Return whether a row was shown to see its defect, and where."""
    does = row.defect.does
    if word == "CANNOT TELL":
        return ControlResult(shown=False, on="no server", does=does, fact="not tried")
    where = ON_SERVER if word == "CONFORMS" else ON_OWN
    on: Literal["this server", "our correct server"] = (
        "this server" if word == "CONFORMS" else "our correct server"
    )
    if any(one not in places for one in where):
        return ControlResult(shown=False, on="no server", does=does, fact="it could not be tried")
    plain, through, broken = (word_of(places[one]) for one in where)
    fact = ""
    if plain[0] != "CONFORMS":
        fact = f"{on} itself: {plain[0]}: {plain[1].fact}"
    elif through[0] != "CONFORMS":
        fact = f"a proxy that changes nothing changed the result: {through[0]}: {through[1].fact}"
    elif broken[0] != "VIOLATES":
        found = places[where[2]]
        seen = sum((one.word, one.about) == ("VIOLATES", row.about) for one in found)
        fact = f"the row did not detect the defect: {broken[0]}: {broken[1].fact}"
        if seen:
            fact = f"the row detected its defect in {seen} of {len(found)} repetitions"
    elif any(one.about != row.about for one in places[where[2]]):
        fact = f"the row detected a difference other than the defect: {broken[1].fact}"
    return ControlResult(shown=not fact, on=on, does=does, fact=fact or broken[1].fact)


class RepeatedTexts:
    """Finds requests at temperature 0 that a server answered with two texts, in any row.

    Attributes:
        unsteady: one of them, by its mode.
    """

    def __init__(self) -> None:
        self.unsteady: dict[Mode, str] = {}
        self._texts: dict[tuple[str, str], str] = {}

    def add(self, exchanges: Sequence[HTTPExchange]) -> None:
        """Take what the server itself answered to a row."""
        for exchange in exchanges:
            request = exchange.request
            # A request that ran beside others, or after others, may differ for a reason that its
            # own row judges.
            is_judged = request.label.startswith(("client ", LATER))
            if request.fields().get("temperature") != 0 or is_judged:
                continue
            answer = read_answer(exchange)
            if not answer.is_answer or exchange.ended != "complete":
                continue
            known = self._texts.setdefault((request.path, request.body), answer.text)
            if known != answer.text:
                fact = f"{request.label}: {known[:30]!r}, then {answer.text[:30]!r}"
                self.unsteady.setdefault(request.mode(), fact)
