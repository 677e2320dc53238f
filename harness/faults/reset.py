"""`reset`: connections over the links of the rank's host are ended at both ends, as if each heard
of it from the other.

Proof: beside the count, the connections.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from harness.faults.link import NEEDS, OF_A_LINK, LinkFault
from harness.forms.strict_json import JSON


class ResetFault(LinkFault):
    """Connections over the links of the rank's host are reset at both ends."""

    does: ClassVar = (
        "resets every connection over the links of the rank's host, at both ends, when it is next"
        " used"
    )
    needs: ClassVar = NEEDS
    properties: ClassVar = OF_A_LINK
    example: ClassVar = "{id: cut-short, kind: reset, ranks: [1], at: decode.begin}"
    effect: ClassVar = "stopping"
    what: ClassVar = "reset"

    kind: Literal["reset"]

    def done(self) -> str:
        return "every connection reset at both ends"

    def counted(self, values: Mapping[str, JSON]) -> tuple[str, str]:
        flows = values.get("flows")
        if not isinstance(flows, list) or not flows:
            return "no connection was reset", ""
        return "", f", the first of {flows[0]}"
