"""The test hosts of a shown trial: who was joined to whom, what passed, and which fault was in
force where.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness.forms.text import plural
from harness.report import svg
from harness.report.blocks import (
    Block,
    BulletList,
    Claim,
    Details,
    Evidence,
    Figure,
    Foreign,
    Paragraph,
    Part,
    Table,
)
from harness.report.words import quantity, ranks_in_words
from harness.stats.wires import ShownLink, ShownStrike, Wires

WIDTH, LEFT, BOX, HIGH, TOP = 960.0, 50.0, 72.0, 32.0, 24.0
ACROSS, NEAREST, FARTHEST = 440.0, 80.0, 160.0
ROW, MORE = 30.0, 13.0
# Of more hosts those are drawn on whose links something was done, and then the first.
HOSTS, LINKS, STRIKES = 8, 24, 12
LETTER = 5.6
ALT = (
    "The test hosts, and a line for each two that a wire joined and used: what one sent the other"
    " (→) and got from it (←). Red: a fault was in force there, with the packets that it was done"
    " to on all of its links."
)


def wires_section(wires: Wires, *, picture: str, evidence: str) -> list[Block]:
    """A figure, and below it every link and every fault in numbers.

    Args:
        wires: of the trial.
        picture: path of the figure.
        evidence: path of the trial's events.
    """
    links = sorted(wires.links, key=lambda link: (-link.bytes, link.source, link.target))
    rows: list[tuple[Part, ...]] = [
        (
            Claim(f"{link.source} → {link.target}", (Evidence(evidence, wires.line),)),
            f"{link.packets}",
            quantity(link.bytes, "bytes"),
            f"{link.lost}",
        )
        for link in links[:LINKS]
    ]
    table: list[Block] = [Table(("hosts", "packets", "bytes", "not taken"), tuple(rows))]
    if len(links) > LINKS:
        table.append(
            Paragraph(f"... and {plural(len(links) - LINKS, 'more link')}, with fewer bytes.")
        )
    items: list[Part] = [
        Claim(Foreign(_told(strike)), (Evidence(evidence, strike.line),))
        for strike in wires.strikes
    ]
    if len(items) > STRIKES:
        items[STRIKES:] = [f"... and {len(items) - STRIKES} more"]
    section: list[Block] = [Figure(picture, ALT)] if rows or items else []
    section += [BulletList(tuple(items))] if items else []
    return section + ([Details("What each link carried", tuple(table))] if rows else [])


def _told(strike: ShownStrike) -> str:
    links = ", ".join(f"{source} → {target}" for source, target in strike.links[:LINKS])
    more = f" and {len(strike.links) - LINKS} more" if len(strike.links) > LINKS else ""
    end = "the end" if strike.to_ms is None else f"{strike.to_ms:.1f} ms"
    time = f"from {strike.from_ms:.1f} ms to {end}"
    return f"{strike.fault} at rank {strike.rank}: on {links}{more} {time}, {_count(strike)}"


def _count(strike: ShownStrike) -> str:
    return f"done to {strike.struck} of {plural(strike.matched, 'packet')}"


def wires_picture(wires: Wires, *, title: str) -> bytes:
    """Draw the hosts in a row, and below them a line for each two that were joined and spoke, or
    were struck.
    """
    hosts = _drawn(wires)
    apart = min(FARTHEST, max(NEAREST, ACROSS / max(1, len(hosts) - 1)))
    place = {host: LEFT + position * apart for position, host in enumerate(hosts)}
    right = LEFT + (len(hosts) - 1) * apart + BOX / 2 + 24
    sent = {(link.source, link.target): link for link in wires.links}
    struck = [
        strike
        for strike in wires.strikes
        if any(set(link) <= place.keys() for link in strike.links)
    ]
    shapes = [svg.label(8, 14, f"{title}: test hosts and their wires"[:110], fill=svg.FAINT)]
    y = TOP + HIGH + 22
    rows: list[str] = []
    for one, other in ((one, other) for one in hosts for other in hosts if one < other):
        there, back = sent.get((one, other)), sent.get((other, one))
        done = [
            strike
            for strike in struck
            if [one, other] in strike.links or [other, one] in strike.links
        ]
        if there is None and back is None and not done:
            continue
        stroke = svg.BAD if done else svg.INK
        rows.append(svg.line(place[one], y, place[other], y, stroke, width=2.5 if done else 1.5))
        rows += [svg.box(place[end] - 3, y - 3, 6, 6, stroke) for end in (one, other)]
        rows.append(_label(right, y + 4, f"→ {_carried(there)} · ← {_carried(back)}", svg.INK))
        for strike in done:
            y += MORE
            ways = "".join(
                arrow
                for arrow, link in (("→", [one, other]), ("←", [other, one]))
                if link in strike.links
            )
            rows.append(
                _label(
                    right,
                    y + 4,
                    f"{ways} {strike.fault} at rank {strike.rank}: {_count(strike)}",
                    svg.BAD,
                )
            )
        y += ROW
    for host, x in place.items():
        known = wires.hosts[host]
        shapes.append(svg.line(x, TOP + HIGH, x, y - 12, svg.LINE))
        words = f"{known.name}, {known.address}, {ranks_in_words(known.ranks)}"
        shapes.append(svg.box(x - BOX / 2, TOP, BOX, HIGH, svg.NONE, title=words))
        shapes.append(svg.label(x, TOP + 13, known.name[:11], anchor="middle"))
        ranks = ranks_in_words(known.ranks) if known.ranks else "no rank"
        fits = len(ranks) * LETTER <= BOX
        shapes.append(
            svg.label(
                x,
                TOP + 26,
                ranks if fits else f"{len(known.ranks)} ranks",
                fill=svg.FAINT,
                anchor="middle",
            )
        )
    if len(wires.hosts) > len(hosts):
        rows.append(
            svg.label(
                8,
                y + 4,
                f"{len(wires.hosts) - len(hosts)} more hosts are not drawn",
                fill=svg.FAINT,
            )
        )
        y += ROW
    return svg.picture(WIDTH, y, title, [*shapes, *rows])


def _drawn(wires: Wires) -> Sequence[int]:
    named = Counter(end for strike in wires.strikes for link in strike.links for end in link)
    first = sorted(range(len(wires.hosts)), key=lambda host: (-min(named[host], 1), host))
    return sorted(first[:HOSTS])


def _carried(link: ShownLink | None) -> str:
    if link is None:
        return "nothing"
    lost = f", {link.lost} not taken" if link.lost else ""
    return f"{plural(link.packets, 'packet')}, {quantity(link.bytes, 'bytes')}{lost}"


def _label(x: float, y: float, text: str, fill: str) -> str:
    return svg.label(x, y, text[: int((WIDTH - x - 8) / LETTER)], fill=fill)
