"""Account of the ledgers of a world, as values of the event that the harness notes.

Pure, and the same for the run that makes the evidence and for everybody who verifies it: whoever
has the files works it out again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.forms.strict_json import JSON
from harness.forms.text import plural
from harness.ledger.call import RECEIVE, SEND, CallGroup, NotALedger
from harness.ledger.file import Ledger, parse
from harness.ledger.outside.agreement import agree
from harness.ledger.outside.transfers import transfers

NO_CALL = "it made no call"
"""Why a ledger with no call shows nothing; in a world of one there may be none."""


def account(
    files: Mapping[int, bytes],
    *,
    size: int,
    world: str,
    asked: Mapping[str, Sequence[int]],
    transferred: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, JSON]:
    """Hold the ledgers of a world against each other.

    Args:
        files: rank to its ledger; ranks that left none are absent.
        size: world size.
        world: the world's mark.
        asked: of each check of the ledgers, the ranks that it asks.
        transferred: the same of each check of the digests in them.

    Returns:
        `ranks`, one mapping for each: `calls`, `overwritten`, `open` (the call in which it stood;
        None where there is none), `libraries`, `why` (why its ledger shows nothing, else empty),
        `partly` (why it does not show all, else empty). `checks`, by id: `matched` (of each rank
        asked, how many calls were held against another rank's) and `difference`; of a check of the
        digests `compared` and `left` (of each rank asked, how many calls were held against the
        other ends, and how many with a payload were not) and `damage`. Of ranks whose payloads were
        digested, `undigested` and `undigested_why` too; of ranks where a recorder in C wrote,
        `in_c`.
    """
    ledgers: dict[int, Ledger] = {}
    ranks = list[JSON]()
    for rank in range(size):
        ledger = _read(files.get(rank), rank=rank, size=size, world=world)
        if isinstance(ledger, str):
            ranks.append(
                {
                    "calls": 0,
                    "overwritten": 0,
                    "open": None,
                    "libraries": [],
                    "why": ledger,
                    "partly": "",
                }
            )
            continue
        why = _nothing(ledger)
        ranks.append(_summary(ledger, why=why))
        if not why:
            ledgers[rank] = ledger
    checks: dict[str, JSON] = {}
    for check, wanted in asked.items():
        agreement = agree({rank: ledgers[rank] for rank in wanted if rank in ledgers})
        difference = agreement.difference
        checks[check] = {
            "matched": [agreement.matched.get(rank, 0) for rank in wanted],
            "difference": difference.values() if difference else None,
        }
    for check, wanted in (transferred or {}).items():
        arrived = transfers(
            {rank: ledgers[rank] for rank in wanted if rank in ledgers and ledgers[rank].digested}
        )
        checks[check] = {
            "compared": [arrived.compared.get(rank, 0) for rank in wanted],
            "left": [arrived.left.get(rank, 0) for rank in wanted],
            "damage": arrived.damage.values() if arrived.damage else None,
        }
    return {"ranks": ranks, "checks": checks}


def _summary(ledger: Ledger, *, why: str) -> dict[str, JSON]:
    """Sum up the ledger of a rank."""
    standing = ledger.standing()
    summary: dict[str, JSON] = {
        "calls": ledger.made,
        "overwritten": ledger.overwritten,
        "open": standing.values() if standing else None,
        "libraries": list[JSON](sorted({call.group.library for call in ledger.calls})),
        "why": why,
        "partly": "" if why else _partly(ledger),
    }
    if ledger.in_c:
        summary["in_c"] = True
    if ledger.digested:
        summary["undigested"] = ledger.undigested
        summary["undigested_why"] = ledger.undigested_why
    return summary


def _read(data: bytes | None, *, rank: int, size: int, world: str) -> Ledger | str:
    """Return a ledger, or why there is none."""
    if data is None:
        return "it left no ledger"
    try:
        ledger = parse(data)
    except NotALedger as error:
        return f"the file that it left is not a ledger: {error}"
    if (ledger.rank, ledger.size, ledger.world) != (rank, size, world):
        return f"its ledger is from rank {ledger.rank} of {ledger.size} in another world"
    return ledger


def _nothing(ledger: Ledger) -> str:
    """Return why nothing can be held against a ledger: calls may be missing of it, nobody knows
    which.
    """
    if ledger.why:
        return f"its calls were not observed: {ledger.why}"
    if ledger.children:
        return f"{plural(ledger.children, 'call')} of processes that it forked were not observed"
    return "" if ledger.made else NO_CALL


def _partly(ledger: Ledger) -> str:
    """Return why a ledger does not show all: what is missing is known."""
    if ledger.overwritten:
        return (
            f"its ledger was full: the first {ledger.overwritten} of {ledger.made} calls are no"
            " longer in it"
        )
    if ledger.torn:
        return f"{plural(ledger.torn, 'record')} of its ledger were cut off as it was killed"
    unheld = sum(call.shares.unheld for call in ledger.calls)
    if unheld:
        return f"its ledger had no room for how {plural(unheld, 'call')} divided their elements"
    return ""


def in_words(call: object) -> str:
    """Return a call as a sentence names it, from its values: `all_reduce #41 of 2x3 float32 (sum)
    at step.py:9`.
    """
    if not isinstance(call, dict):
        return "no call"
    text = f"{call.get('operation')} #{call.get('index')}"
    peer = call.get("peer")
    if call.get("operation") in (SEND, RECEIVE):
        direction = "to" if call.get("operation") == SEND else "from"
        text += f" {direction} {'whoever sends' if peer is None else f'rank {peer}'}"
        if call.get("tag"):
            text += f" with tag {call['tag']}"
    elif peer is not None:
        text += f" with root {peer}"
    if payload := [str(call[key]) for key in ("shape", "dtype") if call.get(key)]:
        text += f" of {' '.join(payload)}"
    parts = call.get("parts")
    if isinstance(parts, list):
        text += f" in parts of {', '.join(map(str, parts))}"
    if call.get("reduction"):
        text += f" ({call['reduction']})"
    library, name = _group(call.get("group"))
    if name not in ("0", "world"):
        text += f" in group {name} of {library}"
    place = str(call.get("site") or "").rpartition(" in ")[0]
    return f"{text} at {place or 'a place that is not known'}"


def standing(values: Mapping[str, JSON], rank: int) -> str:
    """Return where a rank stood by its ledger, from the values of the event: `in barrier #41 at
    step.py:9`. Empty: nowhere.
    """
    ranks = values.get("ranks")
    summary = ranks[rank] if isinstance(ranks, list) and rank < len(ranks) else None
    call = summary.get("open") if isinstance(summary, dict) else None
    if not isinstance(call, dict):
        return ""
    return f"{'in' if call.get('state') == 'open' else 'after it called'} {in_words(call)}"


def _group(text: object) -> tuple[str, str]:
    try:
        group = CallGroup.of(str(text), size=1 << 16)
    except NotALedger:
        return "", "unknown"
    return group.library, group.name
