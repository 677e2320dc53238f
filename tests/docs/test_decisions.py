"""Every decision has a title, a status and a date, is listed, and is cited from where it
matters.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

FOLDER = ROOT / "docs" / "adr"
HEAD = re.compile(
    r"# (?P<number>\d{4}): (?P<title>.+)\n\n"
    r"\* Status: (?P<status>.+(?:\n  .+)*)\n"
    r"\* Date: (?P<date>\d{4}-\d{2}-\d{2})\n\n"
)
LINK = r"\[(\d{4})\]\((\S+)\)"
LATER = rf"{LINK}(?: and {LINK})*"
STATUS = re.compile(rf"accepted|accepted, amended by {LATER}|superseded by {LATER}")
PAST = re.compile(r"^\| (\d{4}) \| (\d{4}-\d{2}-\d{2}) \| (\S.+) \|$", re.MULTILINE)
# In any text: `ADR 0001`, `ADRs 0001, 0002`, or a path, with the rest of the file's name if given.
CITED = re.compile(r"\bADRs?\s+(\d{4}(?:,\s+\d{4})*)|\badr/(\d{4})(-[\w-]+\.md)?")
# In a decision and in the index: any such number, with the file where it is a link.
CITED_HERE = re.compile(r"(?<![\w.-])(0[01]\d\d)(?![\w.])(?:\]\(\d{4}(-[\w-]+\.md)\))?")


@dataclass(frozen=True)
class Decision:
    """A page of docs/adr."""

    number: str
    name: str
    text: str

    @property
    def head(self) -> re.Match[str] | None:
        """Title, status and date; None where the page begins otherwise."""
        return HEAD.match(self.text)


@dataclass(frozen=True)
class Citation:
    """A place that names a decision.

    Attributes:
        place: the file.
        number: the decision's number.
        rest: what the file's name has behind the number; empty where only the number is given.
    """

    place: str
    number: str
    rest: str


@cache
def decisions() -> Mapping[str, Decision]:
    """Every decision that has a page, by number."""
    pages = sorted(FOLDER.glob("[0-9]*.md"))
    made = [Decision(page.name[:4], page.name, page.read_text(encoding="utf-8")) for page in pages]
    return {one.number: one for one in made}


@cache
def past() -> list[tuple[str, str, str]]:
    """Number, date and text of each decision in the page of history."""
    return PAST.findall((FOLDER / "history.md").read_text(encoding="utf-8"))


@cache
def citations() -> list[Citation]:
    """Every place of the repository that cites a decision, but for the index and the tests of
    it.
    """
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found: list[Citation] = []
    for name in sorted(set(listed.splitlines())):
        path = ROOT / name
        if path == FOLDER / "README.md" or path == Path(__file__) or not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += cited(name, text)
    return found


def cited(name: str, text: str) -> Iterator[Citation]:
    """The decisions that a file cites, itself left out."""
    for match in CITED.finditer(text):
        numbers = re.findall(r"\d{4}", match[1] or match[2])
        yield from (Citation(name, number, match[3] or "") for number in numbers)
    if name.startswith("docs/adr/0"):
        for match in CITED_HERE.finditer(text):
            if match[1] != Path(name).name[:4]:
                yield Citation(name, match[1], match[2] or "")


def slug(title: str) -> str:
    """The title as a file's name has it."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower().replace("'", "")).strip("-")


def wrong_page(decision: Decision) -> Iterator[str]:
    """Violations of the form that a decision has, in words."""
    head = decision.head
    if head is None:
        yield f"{decision.name}: begins otherwise than with a title, a status and a date"
        return
    if decision.name != f"{head['number']}-{slug(head['title'])}.md":
        yield f"{decision.name}: is not named after its title"
    if head["title"].endswith("."):
        yield f"{decision.name}: its title ends with a full stop"
    date.fromisoformat(head["date"])
    status = " ".join(head["status"].split())
    if STATUS.fullmatch(status) is None:
        yield f"{decision.name}: {status!r} is not a status"
    for number, _ in re.findall(LINK, status):
        if number <= decision.number:
            yield f"{decision.name}: {number} is not later"


def unresolved(places: list[Citation]) -> list[Citation]:
    """Citations of a decision that is not there, or under another name."""
    numbers = {number for number, _, _ in past()}
    pages = decisions()
    return [
        place
        for place in places
        if not (place.number in numbers and not place.rest)
        and not (place.number in pages and pages[place.number].name.endswith(place.rest))
    ]


def uncited(places: list[Citation]) -> list[str]:
    """Decisions that no page or code cites, nor a decision that is cited itself."""
    reached = {place.number for place in places if not place.place.startswith("docs/adr/")}
    while True:
        inner = [one for one in places if Path(one.place).name[:4] in reached]
        more = {one.number for one in inner if one.place.startswith("docs/adr/0")} - reached
        if not more:
            return sorted(set(decisions()) - reached)
        reached |= more


@pytest.mark.parametrize("number", decisions())
def test_a_decision_has_a_title_a_status_and_a_date(number: str) -> None:
    """Each page has these three, in their form, and is named after its title."""
    assert list(wrong_page(decisions()[number])) == []


def test_every_citation_of_a_decision_resolves() -> None:
    """A number that code or prose cites is that of a page, or of a line of the history."""
    assert unresolved(citations()) == []


def test_every_decision_is_cited() -> None:
    """A decision that nothing cites is in the history; no page repeats one that is there."""
    assert uncited(citations()) == []
    assert {number for number, _, _ in past()} & set(decisions()) == set()


def test_the_history_is_in_order() -> None:
    """The history has each decision once, in a line, by number."""
    rows = (FOLDER / "history.md").read_text(encoding="utf-8").count("\n| 0")
    numbers = [number for number, _, _ in past()]
    assert len(numbers) == rows > 0
    assert numbers == sorted(set(numbers))
    assert all(text.endswith(".") and date.fromisoformat(when) for _, when, text in past())


def listed(index: str) -> list[tuple[str, str, str]]:
    """Number, file and title of the decisions in an index."""
    joined = re.sub(r"\n +", " ", index)
    return sorted(re.findall(r"^\* \[(\d{4})\]\((\S+)\) (.+)$", joined, re.MULTILINE))


def titles() -> list[tuple[str, str, str]]:
    """The same of the decisions that are there."""
    heads = [(one, one.head) for one in decisions().values()]
    return [(one.number, one.name, head["title"]) for one, head in heads if head is not None]


INDEX = (FOLDER / "README.md").read_text(encoding="utf-8")


def test_every_decision_is_in_the_index() -> None:
    """docs/adr/README.md lists each decision once, with its title."""
    assert listed(INDEX) == titles()


@pytest.mark.parametrize(
    "fault",
    [("* [0001]", "* 0001"), ("Ranks wait at a start line", "Ranks wait"), ("(0003-", "(0004-")],
)
def test_a_decision_that_is_left_out_is_found(fault: tuple[str, str]) -> None:
    """A line that is missing, another title, another file: then the index is not the list of
    decisions.
    """
    assert fault[0] in INDEX
    assert listed(INDEX.replace(*fault)) != titles()


GOOD = "# 0007: A title\n\n* Status: accepted\n* Date: 2026-11-21\n\n**Context.** Text.\n"
FAULTS = {
    ("* Status: accepted\n", ""): "begins otherwise",
    ("* Date: 2026-11-21\n", ""): "begins otherwise",
    ("# 0007: A title", "# A title"): "begins otherwise",
    ("A title", "Another title"): "is not named after its title",
    ("# 0007", "# 0008"): "is not named after its title",
    ("accepted", "done"): "is not a status",
    ("accepted", "superseded by 0008"): "is not a status",
    ("accepted", "superseded by [0006](0006-x.md)"): "0006 is not later",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_page_of_another_form_is_found(fault: tuple[str, str]) -> None:
    """Each violation is named, and a good page has none."""
    assert list(wrong_page(Decision("0007", "0007-a-title.md", GOOD))) == []
    later = "[0008](0008-x.md)\n  and [0009](0009-y.md)"
    amended = GOOD.replace("accepted", f"accepted, amended by {later}")
    assert list(wrong_page(Decision("0007", "0007-a-title.md", amended))) == []
    (violation,) = wrong_page(Decision("0007", "0007-a-title.md", GOOD.replace(*fault)))
    assert FAULTS[fault] in violation


def test_a_citation_that_leads_nowhere_is_found() -> None:
    """Named are a number without a page, and another name; the history counts by number only."""
    old = past()[0][0]
    text = f"ADR 0999 [a](adr/0001-a-name.md), ADRs 0003, 0998, ADR {old}, adr/{old}-x.md"
    found = [(one.number, one.rest) for one in unresolved(list(cited("README.md", text)))]
    assert found == [("0999", ""), ("0001", "-a-name.md"), ("0998", ""), (old, "-x.md")]
    first = decisions()["0001"]
    text = "See 0003 and [0197](0197-a.md), not 0001, 0.0061 or 0012.5."
    inside = [(one.number, one.rest) for one in cited(f"docs/adr/{first.name}", text)]
    assert inside == [("0003", ""), ("0197", "-a.md")]


def test_a_decision_that_nothing_cites_is_found() -> None:
    """A citation by a decision counts only if that one is cited from elsewhere."""
    first, second, *rest = decisions()
    others = [Citation("README.md", number, "") for number in rest]
    assert uncited(others) == [first, second]
    others.append(Citation(f"docs/adr/{first}-x.md", second, ""))
    others.append(Citation(f"docs/adr/{second}-x.md", first, ""))
    assert uncited(others) == [first, second]
    assert uncited([*others, Citation("SECURITY.md", first, "")]) == []
