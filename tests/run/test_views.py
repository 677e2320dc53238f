"""The views of a run: what they show, that they cannot be edited, and that hostile text stays text
in them.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from harness.record.model import Record
from harness.report.blocks import Claim, Evidence, Paragraph
from harness.report.html import CSP, render_html, render_page
from harness.report.issue import render_step_summary
from harness.report.junit import render_junit
from harness.report.view import VIEWS, Basis, checked
from harness.run.replay import RecordReplay
from harness.trust.folder import verify_folder
from harness.trust.signers import SignerPolicy
from harness.trust.verification import Verification
from tests.kit.commands import HOSTILE, Pair, Ran
from tests.kit.records import cell, record

pytestmark = pytest.mark.slow

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
QUIET = [
    *(
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
    ),
    *("--disable-sync", "--no-first-run", "--allow-file-access-from-files"),
]
FOREIGN = {"script", "iframe", "object", "embed", "link", "base", "form", "img", "video", "audio"}
WIDTHS = (320, 400, 800, 900, 1400)
# A page of ours beside the view measures it: the view itself must run nothing.
RULER = """<!doctype html><body><script>
const widths = WIDTHS, found = {};
const frames = widths.map(width => {
  const frame = document.createElement("iframe");
  frame.style.cssText = `width:${width}px;height:900px;border:0`;
  frame.src = "report.html";
  document.body.append(frame);
  return new Promise(done => frame.onload = () => {
    const page = frame.contentDocument;
    for (const each of page.querySelectorAll("details")) each.open = true;
    const edge = page.documentElement.clientWidth;
    const wide = [...page.querySelectorAll("body *")].filter(each =>
      !each.closest("svg, .scroll *, pre *") && each.getBoundingClientRect().right > edge + 1);
    const head = page.querySelector("header").getBoundingClientRect();
    const terms = page.querySelector("dl.terms").getBoundingClientRect();
    const row = page.querySelector("tbody tr").getBoundingClientRect();
    found[width] = {page: page.documentElement.scrollWidth, edge, wide: wide.map(each => each.outerHTML.slice(0, 120)),
      scrolled: [...page.querySelectorAll(".scroll")].filter(each => each.querySelector("table")
        && each.scrollWidth > each.clientWidth + 1).map(each => each.textContent.slice(0, 120)), head: head.bottom,
      terms: terms.bottom, row: row.bottom};
    done();
  });
});
Promise.all(frames).then(() => {
  const answer = document.createElement("pre");
  answer.id = "answer";
  answer.textContent = JSON.stringify(found);
  document.body.replaceChildren(answer);
});
</script>"""


def verify(folder: Path, pair: Pair) -> Verification:
    policy = SignerPolicy(fingerprints=(pair.signer,))
    return verify_folder(folder / "report.md", policy=policy, replay=RecordReplay())


class Page(HTMLParser):
    """Every tag with its attributes, and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_every_view_says_what_it_is() -> None:
    """The registry has each view under the name of its file, with the media type that the name
    stands for.
    """
    assert {name: (view.name, view.media_type) for name, view in VIEWS.items()} == {
        "report.html": ("report.html", "text/html"),
        "junit.xml": ("junit.xml", "application/xml"),
        "step-summary.md": ("step-summary.md", "text/markdown"),
    }
    assert list(checked()) == ["report.html", "junit.xml"]


@pytest.mark.parametrize("name", checked())
def test_an_edited_view_is_refused(pair: Pair, tmp_path: Path, name: str) -> None:
    """One changed word in a view is VIEW EDITED, with the line.

    A view that is not there is named.
    """
    folder = shutil.copytree(pair.bad, tmp_path / "run")
    found = verify(folder, pair)
    assert found.ok, found
    assert found.steps[-1].message == "report.html, junit.xml: match the record"
    path = folder / name
    before = path.read_bytes()
    path.write_bytes(before.replace(b"FAIL", b"PASS", 1))
    found = verify(folder, pair)
    assert (found.ok, found.word) == (False, "VIEW EDITED")
    assert f"{name}, line " in found.message
    path.write_bytes(before.replace(b"\n", b"\r\n"))
    assert "once this is undone" in verify(folder, pair).message
    path.unlink()
    found = verify(folder, pair)
    assert found.ok
    assert f"missing: {name}" in found.steps[-1].message


def test_the_page_is_one_quiet_file(pair: Pair) -> None:
    """The page holds no script and loads nothing: a strict policy, own links only, every tag
    closed, no handler.
    """
    for folder in (pair.good, pair.bad):
        page = Page((folder / "report.html").read_text(encoding="utf-8"))
        assert page.open == []
        tags = {tag for tag, _ in page.tags}
        assert not tags & FOREIGN
        assert ("meta", {"http-equiv": "Content-Security-Policy", "content": CSP}) in page.tags
        for _, attributes in page.tags:
            assert not [name for name in attributes if name.startswith("on")]
            assert not {"src", "srcset", "action", "style"} & attributes.keys()
            href = attributes.get("href")
            assert href is None or re.match(r"\./[A-Za-z0-9]|#[a-z]", href), href
        assert "url(" not in (folder / "report.html").read_text(encoding="utf-8")


def test_the_page_says_what_it_is(pair: Pair) -> None:
    """The verdict comes first, then title and question.

    The page says that it is a view, and of which record.
    """
    text = (pair.bad / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    first = text[text.index("<body>") :]
    assert (
        first.index('<p class="verdict">FAIL</p>')
        < first.index("<h1>")
        < first.index("Do all ranks meet?")
    )
    digest = subprocess.run(
        ["sha256sum", pair.bad / "results.json"], capture_output=True, text=True, check=True
    )
    assert digest.stdout.split()[0] in page.text
    assert "is a view" in page.text
    assert "details" in {tag for tag, _ in page.tags}
    squares = [attributes.get("class") for tag, attributes in page.tags if tag == "i"]
    key = ["pass", "fail", "stated", "unstated", "void"]
    assert squares == ["fail"] * 5 + ["stated"] * 5 + key, "a square for each trial, and the key"
    assert "candidate: 5 failed" in page.text, "what the squares say without their colour"
    assert "control: 5 failed as required" in page.text
    assert "<title>rank.error, " in text, "a tick has its name"
    assert text.count("<svg ") == 2


def test_hostile_text_stays_text_on_the_page(pair: Pair) -> None:
    """What a log or a title says is shown as text: tags, handlers, escapes and direction controls
    included.
    """
    raw = (pair.bad / "report.html").read_text(encoding="utf-8")
    page = Page(raw)
    assert "<script>alert(1)</script>" in page.text
    assert "\\x1b[31mred" in page.text
    assert "\\u202egnp.exe" in page.text
    assert "Ranks <b>part</b> ]]> & \\u202eleave" in page.text
    assert not set("\x1b\u202e\u202c\x00\x0b\ufffe") & set(raw)
    assert "😀" in page.text


def test_hostile_paths_are_links_inside_the_folder() -> None:
    """A path that looks like an address is a file of the folder for the browser too."""
    shown = render_html(
        [Paragraph(Claim("x", (Evidence("a/javascript:alert(1)/%22'><b>", 3),)))], pictures={}
    )
    assert shown == '<p><a href="./a/javascript%3Aalert%281%29/%2522%27%3E%3Cb%3E#L3">x</a></p>\n'


def test_the_page_is_the_same_everywhere(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same record draws the same bytes, and a verifier with another clock, folder or language
    draws them too.
    """
    found = Record.decode((pair.good / "results.json").read_bytes())
    drawn = [
        render_page(
            Basis(
                record=found,
                manifest_digest="1" * 64,
                read=lambda name: (pair.good / name).read_bytes(),
            )
        )
        for _ in range(2)
    ]
    assert drawn[0] == drawn[1]


@pytest.mark.whole
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here to lay the page out")
@pytest.mark.parametrize("which", ["good", "bad"])
def test_nothing_overflows(pair: Pair, tmp_path: Path, which: str) -> None:
    """From 320 to 1400 pixels, with everything unfolded, the page is as wide as its window and the
    verdict on top.
    """
    shutil.copy(getattr(pair, which) / "report.html", tmp_path / "report.html")
    (tmp_path / "ruler.html").write_text(RULER.replace("WIDTHS", json.dumps(WIDTHS)))
    command = [
        str(CHROMIUM),
        *QUIET,
        f"--user-data-dir={tmp_path / 'profile'}",
        "--virtual-time-budget=20000",
    ]
    done = subprocess.run(
        [*command, "--dump-dom", (tmp_path / "ruler.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    page = Page(done.stdout)
    found: dict[str, Any] = json.loads(page.text)
    assert sorted(map(int, found)) == sorted(WIDTHS)
    for width, seen in found.items():
        assert seen["page"] <= int(width), (width, seen)
        assert not seen["wide"], (width, seen)
        assert seen["head"] < 300, "the verdict is on the first screen"
        if int(width) == 900:
            assert seen["terms"] < 500, (
                "what was asked, what came out, how the control failed, who says so"
            )
            assert seen["row"] < 700, "and the worst cell, on the first screen"
        if int(width) <= 400:
            assert not seen["scrolled"], (
                "tables are lists on a narrow screen, nobody scrolls sideways"
            )


def suite(data: bytes) -> ET.Element:
    root = ET.fromstring(data)
    assert root.tag == "testsuites"
    (found,) = root
    for name in ("tests", "failures", "errors", "skipped"):
        assert root.get(name) == found.get(name)
    return found


def basis(made: Record) -> Basis:
    """What a view of a record without evidence is rendered from."""
    return Basis(
        record=made, manifest_digest="1" * 64, read=lambda _: b"", report="results/x/report.md"
    )


def properties(element: ET.Element) -> dict[str, str]:
    return {
        each.get("name", ""): each.get("value", "")
        for each in element.findall("properties/property")
    }


def test_junit_of_a_run(pair: Pair) -> None:
    """A test case per cell; trials, seed, control and digest are properties.

    A time without a zone, as readers ask.
    """
    found = suite((pair.good / "junit.xml").read_bytes())
    assert (found.get("name"), found.get("tests"), found.get("failures"), found.get("errors")) == (
        "meet",
        "1",
        "0",
        "0",
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", found.get("timestamp", ""))
    told = properties(found)
    assert (told["seed"], told["verdict"]) == ("7", "PASS")
    assert told["control must fail"].startswith(
        "in every trial, the check 'met' fails on every rank but 0"
    )
    (case,) = found.findall("testcase")
    assert (case.get("classname"), case.get("name")) == ("meet", "ranks=2,backend=none")
    trials = properties(case)
    assert [trials[f"candidate {i}"].split(",")[0] for i in range(5)] == ["pass"] * 5
    assert [trials[f"control {i}"].split(",")[0] for i in range(5)] == ["failed as required"] * 5
    assert [child.tag for child in case] == ["properties"]


def test_junit_holds_hostile_text(pair: Pair) -> None:
    """What XML cannot hold is shown as an escape, and the file stays XML."""
    data = (pair.bad / "junit.xml").read_bytes()
    (case,) = suite(data).findall("testcase")
    failure = case.find("failure")
    assert failure is not None
    assert (failure.get("message") or "").startswith("FAIL: 5 of 5 trials failed")
    assert "candidate 0: " in (failure.text or "")
    assert not set("\x1b\u202e\x00\x0b\ufffe") & set(data.decode())
    hostile = record(
        cell(candidate=["fail"] * 5, reasons=[HOSTILE, "\ud800"], name=HOSTILE),
        scenario={"title": HOSTILE},
    )
    (case,) = suite(render_junit(basis(hostile))).findall("testcase")
    assert "<script>alert(1)</script>" in (case.get("name") or "")
    assert "]]>" in (case.findtext("failure") or "")


@pytest.mark.parametrize(("verdict", "element"), [("PASS", "failure"), ("INCONCLUSIVE", "error")])
def test_a_self_test_that_ends_in_another_verdict_fails_in_junit(
    verdict: Any, element: str
) -> None:
    """A PASS too: the tool did not see what it was given to see."""
    made = record(cell(verdict=verdict), scenario={"role": "self-test", "expects": "FAIL"})
    judgement = made.judgement.model_copy(update={"as_expected": False})
    found = suite(render_junit(basis(made.model_copy(update={"judgement": judgement}))))
    (case,) = found.findall("testcase")
    assert [child.tag for child in case if child.tag != "properties"] == [element]


@pytest.mark.parametrize(
    ("verdict", "scenario", "element", "counted"),
    [
        ("PASS", {}, None, (0, 0, 0)),
        ("FAIL", {}, "failure", (1, 0, 0)),
        ("INCONCLUSIVE", {}, "error", (0, 1, 0)),
        ("SKIPPED", {}, "skipped", (0, 0, 1)),
        ("INCONCLUSIVE", {"role": "self-test", "expects": "INCONCLUSIVE"}, None, (0, 0, 0)),
        ("FAIL", {"role": "upstream"}, "skipped", (0, 0, 1)),
    ],
)
def test_junit_words(
    verdict: Any, scenario: dict[str, str], element: str | None, counted: tuple[int, int, int]
) -> None:
    """FAIL is a failure, INCONCLUSIVE an error, SKIPPED skipped.

    What was expected passes, others' bugs are skipped.
    """
    made = record(cell(verdict=verdict, reasons=["because"]), scenario=scenario)
    code = "verdict:too-few-trials"
    made = made.model_copy(
        update={
            "judgement": made.judgement.model_copy(
                update={"as_expected": bool(scenario.get("expects"))}
            )
        }
    )
    found = suite(render_junit(basis(made)))
    assert tuple(int(found.get(name, "")) for name in ("failures", "errors", "skipped")) == counted
    (case,) = found.findall("testcase")
    assert [child.tag for child in case if child.tag != "properties"] == (
        [element] if element else []
    )
    if element:
        assert (case.find(element) or case.findall(element)[0]).get(
            "message"
        ) == f"{verdict}: because"
        assert case.findall(element)[0].get("type") == (None if element == "skipped" else code)
    codes = [one.get("value") for one in case.iter("property") if one.get("name") == "codes"]
    assert codes == [code]


def test_step_summary(
    rankproof: Callable[..., Ran], scenario: Callable[..., Path], tmp_path: Path
) -> None:
    """In a CI job a run appends verdict and cells to the job's summary.

    Elsewhere and on trouble it only runs.
    """
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    few = ("--set", "trials.candidate=1", "--set", "trials.control=1")
    ran = rankproof("run", str(scenario()), *few, env={"GITHUB_STEP_SUMMARY": str(summary)})
    text = summary.read_text()
    assert text.startswith("before\n### **INCONCLUSIVE** Ranks meet\n")
    assert ran.folder.name in text
    assert "](" not in text, "a link into the results folder leads nowhere there"
    assert "attestation.dsse.json, report.html, junit.xml" in ran.out
    again = rankproof(
        "run", str(scenario()), *few, env={"GITHUB_STEP_SUMMARY": str(tmp_path / "no" / "such")}
    )
    assert again.code == ran.code
    assert "cannot write GITHUB_STEP_SUMMARY" in again.err


def test_step_summary_is_short_and_harmless() -> None:
    """Whatever a title, a cell or a reason says, the summary stays small and its text stays
    text.
    """
    cells = [
        cell(f"{HOSTILE} {i}", candidate=["fail"] * 5, reasons=[HOSTILE * 10]) for i in range(200)
    ]
    made = record(*cells, scenario={"title": HOSTILE * 20})
    text = render_step_summary(basis(made)).decode()
    assert len(text.encode()) < 100_000
    assert "<script" not in text
    assert not set("\x1b\u202e\x00") & set(text)
