"""Which blocks can be built."""

from __future__ import annotations

import pytest

from harness.report.blocks import (
    BlockError,
    Claim,
    ClaimWithoutEvidence,
    Evidence,
    Figure,
    Foreign,
    Heading,
    Table,
    Text,
    UnsafePath,
    Verbatim,
    with_code,
)

PROOF = (Evidence("evidence/events.jsonl", 12),)


def test_claim_needs_evidence() -> None:
    """A statement about what was observed cannot be built without the file that shows it."""
    with pytest.raises(ClaimWithoutEvidence, match="no evidence"):
        Claim("every rank was ready", ())
    with pytest.raises(ClaimWithoutEvidence):
        Claim("every rank was ready", ("evidence/x",))  # type: ignore[arg-type]
    assert Claim("every rank was ready", PROOF).evidence == PROOF


def test_claim_holds_no_claim() -> None:
    """A claim inside a claim would leave open which evidence is for what."""
    with pytest.raises(BlockError, match="claims must not be nested"):
        Claim(Text("a", Text(Claim("b", PROOF))), PROOF)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../x",
        "a/../b",
        "a//b",
        "",
        ".",
        "a\\b",
        "a\nb",
        "javascript:alert(1)",
        "\udcff",
    ],
)
def test_references_stay_in_the_folder(path: str) -> None:
    """No link of a report leads out of its folder, or to a script."""
    with pytest.raises(UnsafePath):
        Evidence(path)
    with pytest.raises(UnsafePath):
        Figure(path, "a picture")


def test_shapes() -> None:
    """Tables are rectangular, headings have a level, languages are words, lines are counted from
    1.
    """
    with pytest.raises(BlockError, match="row 2 has 1 cells, but the header has 2"):
        Table(("a", "b"), (("1", "2"), ("1",)))
    with pytest.raises(BlockError, match="align"):
        Table(("a", "b"), (), align=("left",))
    with pytest.raises(BlockError, match="column"):
        Table((), ())
    with pytest.raises(BlockError, match="level 7"):
        Heading(7, "x")
    with pytest.raises(BlockError, match="language"):
        Verbatim("x", "a`b")
    with pytest.raises(BlockError, match="line numbers start at 1"):
        Evidence("a", 0)


def test_names_between_backticks_are_code() -> None:
    """A single backtick, or more text than may be shown, leaves the text as it is."""
    told = with_code("It never failed the check `ended`, so")
    assert told == Text(Foreign("It never failed the check "), Verbatim("ended"), Foreign(", so"))
    assert with_code("a ` b") == Foreign("a ` b")
    assert with_code("a `b`", 4) == Foreign("a `b`", 4)
