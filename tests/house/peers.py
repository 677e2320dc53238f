"""The figures of the four projects that the house is compared with.

A peer is measured from its installed sources where it is installed. Otherwise its stored figures
count: `python -m tests.house --peer FOLDER` prints those of a package's folder.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from tests.house.measures import Figures, figures, sources


@dataclass(frozen=True)
class Peer:
    """One project.

    Attributes:
        name: its distribution, which is also its import name.
        version: the release that was measured.
        date: when it was measured; None for an installed release.
        figures: its counts.
    """

    name: str
    version: str
    date: str | None
    figures: Figures


STORED = (
    Peer(
        "trio",
        "0.35.0",
        "2026-11-26",
        Figures(
            files=78,
            lines=25488,
            statements=8526,
            lines_over_100=86,
            lines_over_105=67,
            parallel_assignments=4,
            conditionals=23,
            nested_conditionals=1,
            comment_lines=3658,
            many_arguments=16,
            many_arguments_unexplained=11,
            many_statements=11,
            many_statements_unexplained=7,
            any_annotations=23,
            dicts_of_any=0,
            docstrings=446,
            weak_docstrings=64,
            class_names_repeated=1,
            small_modules=10,
        ),
    ),
    Peer(
        "nox",
        "2026.10.20",
        "2026-11-26",
        Figures(
            files=25,
            lines=8132,
            statements=3048,
            lines_over_100=12,
            lines_over_105=10,
            parallel_assignments=2,
            conditionals=48,
            nested_conditionals=1,
            comment_lines=648,
            many_arguments=19,
            many_arguments_unexplained=15,
            many_statements=2,
            many_statements_unexplained=2,
            any_annotations=88,
            dicts_of_any=14,
            docstrings=220,
            weak_docstrings=29,
            class_names_repeated=0,
            small_modules=1,
        ),
    ),
    Peer(
        "tuf",
        "7.0.1",
        "2026-11-26",
        Figures(
            files=19,
            lines=4695,
            statements=1717,
            lines_over_100=2,
            lines_over_105=2,
            parallel_assignments=0,
            conditionals=9,
            nested_conditionals=0,
            comment_lines=235,
            many_arguments=3,
            many_arguments_unexplained=0,
            many_statements=0,
            many_statements_unexplained=0,
            any_annotations=44,
            dicts_of_any=40,
            docstrings=205,
            weak_docstrings=23,
            class_names_repeated=0,
            small_modules=0,
        ),
    ),
    Peer(
        "structlog",
        "26.1.0",
        "2026-11-26",
        Figures(
            files=21,
            lines=7274,
            statements=2359,
            lines_over_100=4,
            lines_over_105=3,
            parallel_assignments=1,
            conditionals=15,
            nested_conditionals=0,
            comment_lines=236,
            many_arguments=7,
            many_arguments_unexplained=7,
            many_statements=3,
            many_statements_unexplained=3,
            any_annotations=300,
            dicts_of_any=21,
            docstrings=283,
            weak_docstrings=22,
            class_names_repeated=3,
            small_modules=4,
        ),
    ),
)

# No release has the tests of all four. Counted in their repositories, in the newest commits at
# hand: trio 60d0c2f8, nox a976d7e, python-tuf 4abccdcf, structlog 025edaf.
CONFTEST_IMPORTS = {"trio": 0, "nox": 0, "tuf": 0, "structlog": 0}


def peers() -> list[Peer]:
    """The four, each as it is installed or else as it is stored."""
    return [installed(peer.name) or peer for peer in STORED]


def installed(name: str) -> Peer | None:
    """A project from the sources that are installed here; None where it is not installed."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    version = importlib.metadata.version(name)
    return Peer(name, version, None, figures(sources(folder)))
