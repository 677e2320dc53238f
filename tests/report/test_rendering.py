"""What every rendering promises for any foreign text."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from harness.forms.text import visible
from harness.report import escape
from harness.report.blocks import (
    Block,
    BulletList,
    Claim,
    Details,
    Evidence,
    Figure,
    Foreign,
    Heading,
    Note,
    Paragraph,
    Strong,
    Table,
    Text,
    Verbatim,
)
from harness.report.markdown import render_markdown
from harness.report.terminal import render_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

MARKER = "-----BEGIN SSH SIGNATURE-----"
NASTY = st.sampled_from(
    [
        MARKER,
        f"\n{MARKER}\n",
        "-----END SSH SIGNATURE-----",
        "Manifest: `MANIFEST.sha256` sha256 `",
        "Made: `",
        "\x1b[31m",
        "\u202e",
        "\u200b",
        "\ud800",
        "```",
        "\n```\n",
        "|",
        "\\",
        "\\|",
        "<script>",
        "<!--",
        "&lt;",
        "[a](b)",
        "![",
        "**",
        "_",
        "# ",
        "- ",
        "1. ",
        "    ",
        "\n\n",
        "\r",
        "\t",
        "</details>",
        "https://example.org",
        "www.example.org",
        "~~",
        "$x$",
    ]
)
ANY = st.characters(codec=None, exclude_categories=())
FOREIGN = st.lists(NASTY | st.text(ANY, max_size=8), max_size=8).map("".join)
PROOF = Evidence("evidence/a b_c.log", 3)

CLEAN = [
    "plain words, 12.5 % (of 59)",
    "日本語のテキスト、句読点。「引用」",
    "한국어 텍스트 中文文本！",
    "e\u0301 é ñ ü Ångström naïve",
    "שלום עולם 123",
    "مرحبا بالعالم ٣",
    "می\u200cخواهم",
    "क्\u200dष हिन्दी",
    "😀 ✅ ❤️ 👍🏽 👨‍👩‍👧 🏳️‍🌈 🇨🇭 🏴󠁧󠁢󠁳󠁣󠁴󠁿",
]


def _everywhere(text: str) -> list[Block]:
    foreign = Foreign(text)
    return [
        Heading(1, foreign),
        Paragraph(foreign),
        Paragraph("Words ", foreign, Strong(text), Verbatim(text), " end"),
        Table(
            ("a", "b"), ((foreign, Verbatim(text)), (Text("x", foreign), Claim(foreign, (PROOF,))))
        ),
        Verbatim(text, "text"),
        Figure("evidence/x.svg", foreign),
        Note(text),
        BulletList((foreign, Claim(Verbatim(text), (PROOF,)))),
        Details(foreign, (Paragraph(foreign), Verbatim(text))),
    ]


def plain(blocks: list[Block]) -> str:
    return render_terminal(blocks).plain


def _hidden(rendered: str) -> list[str]:
    allowed = {"\n", "\u200c", "\u200d"}
    tags = {chr(code) for code in range(0xE0020, 0xE0080)}
    numbers = set(
        "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
    )
    kinds = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return [
        c
        for c in rendered
        if unicodedata.category(c) in kinds and c not in allowed | tags | numbers
    ]


@given(text=FOREIGN)
@example(text=MARKER)
@pytest.mark.parametrize("render", [render_markdown, plain])
def test_nothing_invisible_and_no_landmark(render: Callable[[list[Block]], str], text: str) -> None:
    """No rendering of foreign text holds control, direction or format characters, or a verifier's
    landmark.
    """
    rendered = render(_everywhere(text))
    assert not _hidden(rendered)
    assert MARKER not in rendered
    assert "-----END SSH SIGNATURE-----" not in rendered
    assert not re.search(r"^(Manifest|Made): `", rendered, re.MULTILINE)
    rendered.encode()


@given(text=FOREIGN)
def test_table_keeps_its_columns(text: str) -> None:
    """A row of foreign text stays one line with as many bars as the header."""
    row = (Foreign(text), Verbatim(text), Claim(Foreign(text), (PROOF,)))
    lines = render_markdown([Table(("a", "b", "c"), (row,))]).splitlines()
    assert len(lines) == 3
    assert [line.count("|") for line in lines] == [4, 4, 4]


@given(text=FOREIGN)
def test_code_block_stays_closed(text: str) -> None:
    """Nothing within a code block ends it."""
    first, *inner, last = render_markdown([Verbatim(text)]).rstrip("\n").split("\n")
    assert first == last
    assert set(first) == {"`"}
    assert not any(re.match(rf" {{0,3}}`{{{len(first)},}}\s*$", line) for line in inner)


@given(text=FOREIGN)
def test_whitespace_fixers_change_nothing(text: str) -> None:
    """No line of a report ends with a blank, and the text ends with one newline: fixers leave a
    signed file alone.
    """
    rendered = render_markdown(_everywhere(text))
    assert not re.search(r"[ \t]$", rendered, re.MULTILINE)
    assert rendered.endswith("\n")
    assert not rendered.endswith("\n\n")


@given(text=FOREIGN)
def test_html_holds_no_markup(text: str) -> None:
    """Foreign text in HTML opens no tag, no entity and no attribute."""
    escaped = escape.html(text)
    assert not set("<>\"'`\\") & set(escaped)
    assert all(
        re.match(r"&(lt|gt|amp|quot|#\d+);", escaped[m.start() :])
        for m in re.finditer("&", escaped)
    )


@given(text=FOREIGN)
def test_markdown_shows_the_words(text: str) -> None:
    """A markdown parser reads escaped text, as a paragraph and as code, back as exactly the visible
    characters.
    """
    markdown_it = pytest.importorskip("markdown_it", reason="comes with rich")
    parser = markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"])
    for block, shown in (
        (Paragraph(Foreign(text)), visible(text)),
        (Paragraph("x", Verbatim(text), "x"), f"x{visible(text)}x"),
    ):
        tokens = parser.parse(render_markdown([block]))
        assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
        children = tokens[1].children or []
        assert {child.type for child in children} <= {
            "text",
            "text_special",
            "code_inline",
            "html_inline",
        }
        assert all(
            child.content in {"<code>", "</code>"}
            for child in children
            if child.type == "html_inline"
        )
        words = "".join(child.content for child in children if child.type != "html_inline")
        assert words.strip() == shown.strip()  # parsers differ in the blanks they trim


@given(text=FOREIGN)
def test_rendering_is_deterministic(text: str) -> None:
    """The same blocks give the same text."""
    assert render_markdown(_everywhere(text)) == render_markdown(_everywhere(text))


@pytest.mark.parametrize("text", CLEAN)
def test_clean_text_is_left_alone(text: str) -> None:
    """What people write comes through unchanged: CJK, accents, right-to-left scripts, joiners,
    emoji.
    """
    assert visible(text) == text
    assert escape.markdown(text) == text
    assert visible(text) == text
    assert escape.inline_code(text) == f"`{text}`"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("a\u200db", "a\\u200db"),
        ("a\u200cb", "a\\u200cb"),
        ("\udcff", "\\udcff"),
        ("\ufeffx", "\\ufeffx"),
        ("x\U000e0041", "x\\U000e0041"),
        ("\x85\u2028", "\\x85\\u2028"),
        (MARKER, "\\x2d----BEGIN SSH SIGNATURE-----"),
    ],
)
def test_invisible_is_shown(text: str, shown: str) -> None:
    """What cannot be seen is shown as an escape."""
    assert visible(text) == shown


def test_foreign_text_is_bounded() -> None:
    """Long foreign text is cut, and the report says by how much."""
    assert (
        render_markdown([Paragraph(Foreign("x" * 50, limit=10))])
        == "xxxxxxxxxx... (40 more characters)\n"
    )
    assert "(80 more characters)" in render_markdown([Verbatim("x" * 100, limit=20)])
    assert "(80 more characters)" in plain([Verbatim("x" * 100, limit=20)])


def test_markdown_as_a_whole() -> None:
    """One of each block, as it lies in a report."""
    blocks: list[Block] = [
        Heading(2, "Results"),
        Paragraph("Verdict: ", Strong("PASS"), " in ", Verbatim("tests"), "."),
        Table(("rank", "said"), (("0", Claim("ready", (PROOF,))),), align=("right", "left")),
        Verbatim("a ``` b\n", "text"),
        Figure("evidence/lanes.svg", "Rank lanes"),
        Note("Nothing here was typed by hand."),
        BulletList(("one", Foreign("- two"))),
        Details("More <b>", (Paragraph("Inside."),)),
    ]
    assert render_markdown(blocks).split("\n\n") == [
        "## Results",
        "Verdict: **PASS** in `tests`.",
        "| rank | said |\n| --: | :-- |\n| 0 | [ready](evidence/a%20b_c.log#L3) |",
        "````text\na ``` b\n````",
        "![Rank lanes](evidence/lanes.svg)",
        "> **Note:** Nothing here was typed by hand.",
        "- one\n- \\- two",
        "<details><summary>More &lt;b&gt;</summary>",
        "Inside.",
        "</details>\n",
    ]


def test_a_long_claim_keeps_its_evidence_behind_it() -> None:
    """A sentence is not one long link: the last steps of the path, and the line, stand behind
    it.
    """
    text = "word " * 40
    proof = Evidence("evidence/cell/candidate-00001/events.jsonl", 7)
    shown = render_markdown([Paragraph(Claim(text.strip(), (proof,)))])
    assert shown.endswith(
        "word ([candidate-00001/events.jsonl:7](evidence/cell/candidate-00001/events.jsonl#L7))\n"
    )


def test_terminal_fits_its_width() -> None:
    """Tables and paragraphs wrap to the width, counting wide characters as two columns."""
    table = Table(
        ("check", "what it said"),
        (("ready", Foreign("日本語" * 40)), ("b", "words " * 30)),
        align=("right", "left"),
    )
    for width in (40, 60, 100):
        blocks: list[Block] = [
            Heading(1, "Results"),
            table,
            Paragraph("word " * 50),
            BulletList(("x " * 60,)),
        ]
        text = render_terminal(blocks, width).plain
        assert max(cell_len(line) for line in text.splitlines()) <= width
    assert "日本語" in text


def test_a_terminal_shows_structure_in_styles() -> None:
    """Headings, verdicts and changed lines have styles of ours.

    Foreign text has none, whatever it says.
    """
    blocks: list[Block] = [
        Heading(2, "Results"),
        Paragraph(Strong("FAIL"), " ", Foreign("[bold]PASS[/bold] \x1b[32mPASS")),
        Verbatim("+ added", "diff"),
    ]
    text = render_terminal(blocks)
    styled = {
        text.plain[span.start : span.end]: str(span.style) for span in text.spans if span.style
    }
    assert styled == {"Results": "bold", "FAIL": "bold red", "    + added": "green"}
