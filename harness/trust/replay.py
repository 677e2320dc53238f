"""How a record is judged, rendered and stated again: what a verifier needs from whoever knows
records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

Read: TypeAlias = Callable[[str], bytes]
Render: TypeAlias = Callable[[Read, str], bytes]
"""What makes a text from the evidence and the sha256 of the manifest."""


class CannotJudge(Exception):
    """Record whose scenario, checks or format are not known here."""


class CannotRender(Exception):
    """Record whose format is not known here."""


class Replay:
    """How a record is judged and rendered again. This one cannot do anything of it.

    Whoever knows records overrides it.

    Each method raises CannotJudge or CannotRender, or Refused where the evidence contradicts
    itself.

    Attributes:
        views: what renders each view again, by the view's name; a view without a renderer is an
            unlisted file.
        arrays: what was worked out again of arrays by `judge`, and what was not, in words; empty
            where there are none.
        makes_statements: whether a statement can be made again; where not, it is an unlisted file.
    """

    makes_statements = False

    def __init__(self) -> None:
        self.views: Mapping[str, Render] = {}
        self.arrays = ""

    def judge(self, _read: Read, _names: Sequence[str]) -> str | None:
        """Return the first difference between the record and what the evidence makes; None where
        they agree.
        """
        raise CannotJudge("verify() was called without a judge")

    def render(self, _read: Read, _manifest_digest: str) -> bytes:
        """Body that the record renders to."""
        raise CannotRender("verify() was called without a renderer")

    def signer(self, _read: Read) -> str | None:
        """Fingerprint of the key that the record says signs it; None where it says that nobody
        does.
        """
        raise CannotRender("verify() was called without a renderer")

    def rebuild(self, _read: Read, _report_digest: str, _manifest_digest: str) -> bytes:
        """Statement, from the record and the sha256 of report and manifest."""
        raise CannotRender("verify() was called without a statement builder")
