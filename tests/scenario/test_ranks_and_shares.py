"""Shares and sets of ranks."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_core import PydanticCustomError

from harness.forms.model import rank_set
from harness.scenario.arm import share


@pytest.mark.parametrize(
    ("read", "value", "meant"),
    [
        (share, "20%", ">=20%"),
        (share, "> 20%", ">=20%"),
        (share, "evry", "every"),
        (share, ">=0%", ">=0%"),
        (share, ">=101%", ">=101%"),
        (share, [], None),
        (rank_set, "all", None),
        (rank_set, "non-zero", "nonzero"),
        (rank_set, 1, "[1]"),
        (rank_set, [], None),
        (rank_set, [0, 0], None),
        (rank_set, [-1], None),
        (rank_set, [True], None),
        (rank_set, ["0"], None),
    ],
)
def test_what_is_no_share_or_set_is_refused_with_advice(
    read: Any, value: Any, meant: str | None
) -> None:
    """A wrong share or set is never guessed at: it is an error, which names what was probably
    meant.
    """
    with pytest.raises(PydanticCustomError) as caught:
        read(value)
    assert caught.value.context is not None
    assert caught.value.context["message"]
    if meant is not None and meant not in (">=0%", ">=101%"):
        assert caught.value.context["suggestion"] == meant


def test_a_share_says_how_it_was_written() -> None:
    """A share turns back into its text."""
    assert [str(share(text)) for text in ("every", ">=20%", ">=0.5%")] == [
        "every",
        ">=20%",
        ">=0.5%",
    ]
    assert share(">=20%").at_least == 0.2
