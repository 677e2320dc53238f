"""Codes beside reasons: closed, told apart, and listed for whoever reads them."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from harness.reason import (
    Deviation,
    DeviationCode,
    RefusalWord,
    Skip,
    SkipCode,
    VerdictCode,
    VerdictReason,
    Void,
    VoidCode,
)

DOCS = Path(__file__).parents[1] / "docs"
CODES: tuple[type[StrEnum], ...] = (VerdictCode, DeviationCode, VoidCode, SkipCode)


def test_every_code_is_listed_and_no_other() -> None:
    """docs/reading.md lists exactly the codes there are, docs/verify.md exactly the words of
    refusals.
    """
    listed = re.findall(
        r"`((?:verdict|control|void|skip):[a-z-]+)`", (DOCS / "reading.md").read_text()
    )
    assert sorted(listed) == sorted(code.value for codes in CODES for code in codes)
    words = re.findall(
        r"^\| [a-z]+ \| ([A-Z ]+) \|", (DOCS / "verify.md").read_text(), re.MULTILINE
    )
    assert set(words) == {word.value for word in RefusalWord}


@pytest.mark.parametrize("codes", CODES)
def test_a_code_is_one_lower_case_word_behind_its_noun(codes: type[StrEnum]) -> None:
    """A tool can tell the nouns apart, and no code holds what a shell or an XML attribute would
    have to quote.
    """
    assert len({code.value.partition(":")[0] for code in codes}) == 1
    assert all(re.fullmatch(r"[a-z]+:[a-z]+(-[a-z]+)*", code.value) for code in codes)


def test_a_skip_says_on_what_it_depends() -> None:
    """Every code of a skip names what another cell would have to share to be skipped too."""
    found = {code.depends_on for code in SkipCode}
    assert found == {"cell", "backend", "machine", "network"}
    assert SkipCode.CELL_TOO_SMALL.depends_on == "cell"
    assert SkipCode.NETWORK_PACKAGES.depends_on == "network"


@pytest.mark.parametrize(
    ("noun", "code"),
    [
        (VerdictReason, VerdictCode.NO_CONTROL),
        (Deviation, DeviationCode.DEADLINE),
        (Void, VoidCode.NO_END),
        (Skip, SkipCode.MACHINE_NIX),
    ],
)
def test_a_record_takes_only_codes_that_there_are(noun: Any, code: StrEnum) -> None:
    """A reason reads as its text, goes through JSON unchanged, and is refused with an unknown code
    or a further key.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(noun)
    reason = noun(code, "in words")
    assert str(reason) == "in words"
    assert adapter.validate_json(adapter.dump_json(reason)) == reason
    for wrong in (
        b'{"code": "skip:made-up", "text": ""}',
        b'{"code": "%s", "text": "", "more": 1}' % code.encode(),
    ):
        with pytest.raises(ValidationError):
            adapter.validate_json(wrong)
