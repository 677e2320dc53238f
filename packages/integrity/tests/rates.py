"""The tables of docs/integrity.md: what hints find in clean texts, and what is seen of each damage
by which evidence.

`PYTHONPATH=src:tests python -m rates` writes them into the page; tests make parts of them again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import corpus
from damage import DAMAGE, Output, damaged, decode, spell, vocabulary
from rankproof_integrity.corruption import (
    HEURISTICS,
    CorruptionAnalysis,
    CorruptionDetector,
    Verdict,
)
from rankproof_integrity.sequence import SequenceIntegrityChecker

PAGE = Path(__file__).parents[1] / "docs" / "integrity.md"
TENTH = 10
EVIDENCE = ("text alone", "text, ids", "ids, vocabulary", "ids, digest", "all")
ONLY_TEXT = CorruptionDetector()
WITH_IDS = CorruptionDetector(token_bytes=spell)
DECODED = CorruptionDetector(decode=decode)
WITH_VOCABULARY = CorruptionDetector(tokens=vocabulary())
WITH_ALL = CorruptionDetector(tokens=vocabulary(), token_bytes=spell)


def digest_of(ids: Iterable[int]) -> int:
    """As their maker has it."""
    chain = SequenceIntegrityChecker()
    for one in ids:
        chain.append(one)
    return chain.digest


def seen(output: Output) -> dict[str, bool]:
    """By which evidence a damage is seen; of the text alone, whether there is a hint."""
    digest = digest_of(output.sent)
    reports = {
        "text, ids": _text_and_ids(output),
        "ids, vocabulary": WITH_VOCABULARY.analyze_output(output.text, ids=output.ids),
        "ids, digest": ONLY_TEXT.analyze_output(output.text, ids=output.ids, sent_digest=digest),
        "all": WITH_ALL.analyze_output(output.text, ids=output.ids, sent_digest=digest),
    }
    corrupt = {name: report.verdict is Verdict.CORRUPT for name, report in reports.items()}
    return {"text alone": bool(reports["all"].hints)} | corrupt


def _text_and_ids(output: Output) -> CorruptionAnalysis:
    """Ids that no token has are spelled by the tokenizer alone, which leaves them out."""
    known = all(0 <= one < vocabulary().vocabulary for one in output.ids)
    return (WITH_IDS if known else DECODED).analyze_output(output.text, ids=output.ids)


def false_alarms(*, every: int, kinds: Iterable[str] = corpus.KINDS) -> tuple[Counter[str], int]:
    """How many clean texts have each hint, and how many texts those are."""
    found: Counter[str] = Counter()
    many = 0
    for kind in kinds:
        for number in range(0, corpus.KINDS[kind], every):
            many += 1
            found.update(
                {hint.name for hint in ONLY_TEXT.analyze_output(corpus.text(kind, number)).hints}
            )
    return found, many


def hint_table() -> str:
    """A row for each heuristic."""
    ordinary = [kind for kind in corpus.KINDS if kind != "looks-corrupt"]
    rows = [
        "| hint | of 10,000 | of 9,600 ordinary ones | of every tenth |",
        "| --- | --- | --- | --- |",
    ]
    all_of, plain, tenth = (
        false_alarms(every=1),
        false_alarms(every=1, kinds=ordinary),
        false_alarms(every=TENTH),
    )
    for one in HEURISTICS:
        shares = " | ".join(
            f"{found[one.name]} ({found[one.name] / many:.2%})"
            for found, many in (all_of, plain, tenth)
        )
        rows.append(f"| {one.name} | {shares} |")
    return "\n".join(rows)


def damage_table(*, every: int = TENTH) -> str:
    """A row for each kind of damage."""
    rows = [
        f"| damage | texts | {' | '.join(EVIDENCE)} |",
        "| --- |" + " --- |" * (len(EVIDENCE) + 1),
    ]
    for kind in DAMAGE:
        found, many = of_damage(kind, texts=corpus.texts(every=every))
        rows.append(
            f"| {kind} | {many} | {' | '.join(f'{found[name] / many:.1%}' for name in EVIDENCE)} |"
        )
    return "\n".join(rows)


def of_damage(kind: str, *, texts: Iterable[tuple[str, int, str]]) -> tuple[Counter[str], int]:
    """By which evidence a kind of damage was seen how often, and how many texts it changed."""
    found: Counter[str] = Counter()
    outputs = (damaged(kind, one, number) for number, (_, _, one) in enumerate(texts))
    many = 0
    for output in outputs:
        if output is not None:
            many += 1
            found.update(name for name, was in seen(output).items() if was)
    return found, many


def tables(text: str) -> dict[str, list[list[str]]]:
    """The rows of the two tables in a page."""
    return {
        name: [
            [cell.strip() for cell in row.strip("|").split("|")]
            for row in found.strip().splitlines()[2:]
        ]
        for name, found in re.findall(r"<!-- rates: (\w+) -->\n(.*?)<!-- end -->", text, re.DOTALL)
    }


def main() -> None:
    """Write both tables into the page."""
    text = PAGE.read_text(encoding="utf-8")
    for name, made in (("hints", hint_table()), ("damage", damage_table())):
        begin, old, rest = text.partition(f"<!-- rates: {name} -->\n")
        text = begin + old + made + "\n" + "".join(rest.partition("<!-- end -->")[1:])
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
