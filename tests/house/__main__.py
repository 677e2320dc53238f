"""Print the figures of the house beside its peers' and hold them to their limits: `nox -s house`.

Measured are harness/ and packages/*/src. The exit code is 0, or with `--strict` 1 where a limit is
not met.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.house.measures import Figures, Source, conftest_imports, figures, sources
from tests.house.peers import CONFTEST_IMPORTS, Peer, peers

ROOT = Path(__file__).parents[2]
CONFTEST = "imports from conftest in tests"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table.

    Attributes:
        figure: a field of `Figures`.
        label: its name in the table.
        per_1000: whether the table shows it per 1,000 lines.
        most: the limit on the count; None where there is none.
    """

    figure: str
    label: str
    per_1000: bool = False
    most: int | None = None


ROWS = (
    Row(figure="files", label="files", most=480),
    Row(figure="lines", label="lines"),
    Row(figure="statements", label="statements", most=59_500),
    Row(figure="lines_over_100", label="lines over 100 columns", per_1000=True, most=0),
    Row(figure="lines_over_105", label="lines over 105 columns", per_1000=True),
    Row(figure="parallel_assignments", label="parallel assignments", per_1000=True, most=0),
    Row(figure="conditionals", label="conditional expressions", per_1000=True),
    Row(figure="comment_lines", label="comment lines", per_1000=True),
    Row(figure="nested_conditionals", label="nested conditional expressions", most=0),
    Row(figure="many_arguments", label="functions over 6 arguments"),
    Row(figure="many_arguments_unexplained", label="... without a comment beside", most=0),
    Row(figure="many_statements", label="functions over 40 statements"),
    Row(figure="many_statements_unexplained", label="... without a comment beside", most=0),
    Row(figure="any_annotations", label="Any"),
    Row(figure="dicts_of_any", label="dict[str, Any]"),
    Row(figure="docstrings", label="docstrings"),
    Row(figure="weak_docstrings", label="... that begin The/What/A/An/Whether"),
    Row(figure="class_names_repeated", label="class names used more than once", most=0),
    Row(figure="small_modules", label="modules < 80 lines, one importer", most=0),
)
MOST_CONFTEST_IMPORTS = 0


def house(root: Path) -> list[Source]:
    """The files of harness/ and of the distributions in packages/."""
    folders = [root / "harness", *sorted(root.glob("packages/*/src/*/"))]
    return [source for folder in folders for source in sources(folder)]


def sources_of_tests(root: Path) -> list[Source]:
    """The files of the tests, of ours and of the distributions in packages/."""
    folders = [root / "tests", *sorted(root.glob("packages/*/tests/"))]
    paths = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    return [Source(path.stem, path.read_text(encoding="utf-8")) for path in paths]


def shown(row: Row, measured: Figures) -> str:
    """A figure as the table shows it."""
    count: int = getattr(measured, row.figure)
    if row.per_1000:
        return f"{1000 * count / measured.lines:,.1f}"
    return f"{count:,}"


def verdict(count: int, most: int | None) -> str:
    """How a count compares with its limit, in words; nothing where there is no limit."""
    if most is None:
        return ""
    if count <= most:
        return f"at most {most:,}: MET"
    return f"at most {most:,}: NOT MET, {count:,}"


def table(ours: Figures, others: Sequence[Peer]) -> list[str]:
    """The lines of the table: a row for each figure, a column for each project."""
    lines = [line("", ["rankproof", *(peer.name for peer in others)], "limit")]
    for row in ROWS:
        label = f"{row.label}, per 1,000" if row.per_1000 else row.label
        columns = [shown(row, measured) for measured in (ours, *(peer.figures for peer in others))]
        lines.append(line(label, columns, verdict(getattr(ours, row.figure), row.most)))
    return lines


def line(label: str, columns: Sequence[str], limit: str) -> str:
    """One line of the table, in columns of fixed width."""
    cells = "".join(f"{cell:>11}" for cell in columns)
    return f"{label:<37}{cells}  {limit}".rstrip()


def is_met(ours: Figures, imports: int) -> bool:
    """Whether no figure exceeds its limit."""
    counts = [(getattr(ours, row.figure), row.most) for row in ROWS]
    counts.append((imports, MOST_CONFTEST_IMPORTS))
    return all(most is None or count <= most for count, most in counts)


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="nox -s house --", description=__doc__)
    parser.add_argument("--strict", action="store_true", help="exit 1 where a limit is not met")
    parser.add_argument(
        "--peer",
        metavar="FOLDER",
        type=Path,
        help="print the figures of a package's folder instead, as tests/house/peers.py stores them",
    )
    given = parser.parse_args(arguments)
    if given.peer is not None:
        for name, count in dataclasses.asdict(figures(sources(given.peer))).items():
            print(f"{name}={count},")
        return 0
    ours = figures(house(ROOT))
    others = peers()
    imports = conftest_imports(sources_of_tests(ROOT))
    print("\n".join(table(ours, others)))
    columns = [f"{imports:,}", *(str(CONFTEST_IMPORTS[peer.name]) for peer in others)]
    print(line(CONFTEST, columns, verdict(imports, MOST_CONFTEST_IMPORTS)))
    print("\nPeers: " + ", ".join(map(description, others)) + ".")
    return int(given.strict and not is_met(ours, imports))


def description(peer: Peer) -> str:
    """Which release of a peer was measured, and when."""
    when = "as installed here" if peer.date is None else f"measured on {peer.date}"
    return f"{peer.name} {peer.version} ({when})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
