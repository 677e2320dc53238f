"""What the harness notes of the ledgers of a world, as values of one event.

Worked out again by whoever has the files.

Pure, and the same for the run that makes the evidence and for everybody who verifies it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.forms.strict_json import JSON
from harness.forms.text import plural
from harness.ledger.call import CallGroup, NotALedger
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
        found = _read(files.get(rank), rank=rank, size=size, world=world)
        if isinstance(found, str):
            ranks.append(
                {
                    "calls": 0,
                    "overwritten": 0,
                    "open": None,
                    "libraries": [],
                    "why": found,
                    "partly": "",
                }
            )
            continue
        standing = found.standing()
        why = _nothing(found)
        summary: dict[str, JSON] = {
            "calls": found.made,
            "overwritten": found.overwritten,
            "open": standing.values() if standing else None,
            "libraries": list[JSON](sorted({call.group.library for call in found.calls})),
            "why": why,
            "partly": "" if why else _partly(found),
        }
        if found.in_c:
            summary["in_c"] = True
        ranks.append(summary)
        if found.digested:
            told: dict[str, JSON] = {
                "undigested": found.undigested,
                "undigested_why": found.undigested_why,
            }
            ranks[-1] = {**summary, **told}
        if not why:
            ledgers[rank] = found
    checks: dict[str, JSON] = {}
    for check, wanted in asked.items():
        agreement = agree({rank: ledgers[rank] for rank in wanted if rank in ledgers})
        difference = agreement.difference
        checks[check] = {
            "matched": [agreement.matched.get(rank, 0) for rank in wanted],
            "difference": difference.values() if difference else None,
        }
    for check, wanted in (transferred or {}).items():
        found_of = transfers(
            {rank: ledgers[rank] for rank in wanted if rank in ledgers and ledgers[rank].digested}
        )
        checks[check] = {
            "compared": [found_of.compared.get(rank, 0) for rank in wanted],
            "left": [found_of.left.get(rank, 0) for rank in wanted],
            "damage": found_of.damage.values() if found_of.damage else None,
        }
    return {"ranks": ranks, "checks": checks}


def _read(data: bytes | None, *, rank: int, size: int, world: str) -> Ledger | str:
    """Return a ledger, or why there is none."""
    if data is None:
        return "it left no ledger"
    try:
        ledger = parse(data)
    except NotALedger as error:
        return f"what it left is not a ledger: {error}"
    if (ledger.rank, ledger.size, ledger.world) != (rank, size, world):
        return f"what it left is the ledger of rank {ledger.rank} of {ledger.size} of another world"
    return ledger


def _nothing(ledger: Ledger) -> str:
    """Why nothing can be held against a ledger: calls may be missing of it, nobody knows which."""
    if ledger.why:
        return f"its calls were not observed: {ledger.why}"
    if ledger.children:
        return f"{plural(ledger.children, 'call')} of processes that it forked were not observed"
    return "" if ledger.made else NO_CALL


def _partly(ledger: Ledger) -> str:
    """Why a ledger does not show all: what is missing is known."""
    if ledger.overwritten:
        return (
            f"its ledger was full: the first {ledger.overwritten} of {ledger.made} calls are not"
            " held any more"
        )
    if ledger.torn:
        return f"{plural(ledger.torn, 'record')} of its ledger were cut off as it was killed"
    unheld = sum(call.shares.unheld for call in ledger.calls)
    return (
        f"its ledger could not hold how {plural(unheld, 'call')} share out their elements"
        if unheld
        else ""
    )


def in_words(call: object) -> str:
    """Return a call as a sentence names it, from its values: `all_reduce #41 of 2x3 float32 (sum)
    at step.py:9`.
    """
    if not isinstance(call, dict):
        return "no call"
    text = f"{call.get('operation')} #{call.get('index')}"
    peer = call.get("peer")
    if call.get("operation") in ("send", "recv"):
        direction = "to" if call.get("operation") == "send" else "from"
        text += f" {direction} {'whoever sends' if peer is None else f'rank {peer}'}"
        text += f" with tag {call['tag']}" if call.get("tag") else ""
    elif peer is not None:
        text += f" with root {peer}"
    what = " ".join(str(call[key]) for key in ("shape", "dtype") if call.get(key))
    text += f" of {what}" if what else ""
    parts = call.get("parts")
    text += f" in parts of {', '.join(map(str, parts))}" if isinstance(parts, list) else ""
    text += f" ({call['reduction']})" if call.get("reduction") else ""
    library, name = _group(call.get("group"))
    text += f" in group {name} of {library}" if name not in ("0", "world") else ""
    place = str(call.get("site") or "").rpartition(" in ")[0]
    return f"{text} at {place or 'a place that is not known'}"


def standing(values: Mapping[str, JSON], rank: int) -> str:
    """Where a rank stood by its ledger, from the values of the event: `in barrier #41 at
    step.py:9`. Empty: nowhere.
    """
    ranks = values.get("ranks")
    summary = ranks[rank] if isinstance(ranks, list) and rank < len(ranks) else None
    found = summary.get("open") if isinstance(summary, dict) else None
    if not isinstance(found, dict):
        return ""
    return f"{'in' if found.get('state') == 'open' else 'after it called'} {in_words(found)}"


def _group(text: object) -> tuple[str, str]:
    try:
        group = CallGroup.of(str(text), size=1 << 16)
    except NotALedger:
        return "", "that is not one"
    return group.library, group.name
