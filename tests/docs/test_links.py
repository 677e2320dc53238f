"""Every link of every page leads somewhere."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.pages import ROOT, Page, pages, slug_of

# What pages link to and another branch brings. To be emptied where it is merged: a test fails when
# one is there.
EXPECTED_LATER: frozenset[str] = frozenset()
SOURCES = ("harness", "tests", "scenarios", "locks", "nix", "docs", "packages")
# A page that code or prose names without linking to it.
NAMED = re.compile(r"\b(?:packages/\w+/)?docs/[\w./-]+\.md(?:#[\w-]+)?")


@cache
def anchors(name: str) -> set[str]:
    """The anchors of a page."""
    return Page(name, (ROOT / name).read_text(encoding="utf-8")).anchors


def wrong(page: Page, *, later: frozenset[str] = EXPECTED_LATER) -> Iterator[str]:
    """Links of a page that lead nowhere, in words."""
    for link in page.links:
        parts = urlsplit(link.target)
        if parts.scheme or parts.netloc:
            if parts.scheme != "mailto" and (
                parts.scheme not in {"http", "https"}
                or not re.fullmatch(r"[\w.-]+\.[a-z]{2,}(:\d+)?", parts.netloc)
            ):
                yield f"{page.name}:{link.line}: {link.target} is not an address"
            continue
        place = (ROOT / page.name).parent / unquote(parts.path) if parts.path else ROOT / page.name
        target = (
            Path(*place.resolve().relative_to(ROOT).parts)
            if place.resolve().is_relative_to(ROOT)
            else None
        )
        if target is None:
            yield f"{page.name}:{link.line}: {link.target} leaves the repository"
        elif target.as_posix() in later:
            continue
        elif not _is_known(target):
            yield f"{page.name}:{link.line}: {link.target}: git keeps nothing at {target}"
        elif (
            parts.fragment
            and target.suffix == ".md"
            and parts.fragment not in anchors(target.as_posix())
        ):
            yield (
                f"{page.name}:{link.line}: {link.target}: {target} has no heading #{parts.fragment}"
            )


def _is_known(target: Path) -> bool:
    """Whether a path is there and not ignored: what only this machine has is not there for a
    reader.
    """
    return (ROOT / target).exists() and target in _known()


@cache
def _known() -> frozenset[Path]:
    """Every file that is not ignored, and every folder with one."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    files = {Path(name) for name in done.stdout.split("\0") if name}
    return frozenset(files.union(*(file.parents for file in files)))


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Page) -> None:
    """Files, headings and addresses that a page links to are there.

    Of an address only the form is looked at.
    """
    assert list(wrong(page)) == []


FAULTS: Mapping[str, str] = {
    "[a](nothing.md)": "git keeps nothing at docs/nothing.md",
    "![a](images/nothing.svg)": "git keeps nothing at docs/images/nothing.svg",
    "[a](verify.md#nothing)": "has no heading #nothing",
    "[a](#nothing)": "has no heading #nothing",
    "[a](../../elsewhere.md)": "leaves the repository",
    "[a](https://nohost/x)": "is not an address",
    "[a](ftp://example.org/x)": "is not an address",
    '<img src="images/nothing.png">': "git keeps nothing at docs/images/nothing.png",
    "| a |\n|---|\n| [a](nothing.md) |": "git keeps nothing at docs/nothing.md",
    "[a]\n\n[a]: nothing.md": "git keeps nothing at docs/nothing.md",
    "[a](../.git/config)": "git keeps nothing at .git",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_link_that_leads_nowhere_is_found(fault: str) -> None:
    """Each kind of broken link is named; so the test above can fail."""
    (found,) = wrong(Page("docs/index.md", fault))
    assert FAULTS[fault] in found


def test_a_good_link_is_none_of_them() -> None:
    """What is there is not complained of, with and without a heading."""
    text = (
        "[a](verify.md#what-the-words-mean) [b](../README.md) [c](https://example.org/x)"
        " [d](images/)"
    )
    assert list(wrong(Page("docs/index.md", text))) == []


@pytest.mark.parametrize(
    ("heading", "slug"),
    [
        (
            "What a signer can change, and what is refused",
            "what-a-signer-can-change-and-what-is-refused",
        ),
        ("Rule 12", "rule-12"),
        ("`Fault`", "fault"),
        ("Why not pytest and torchrun?", "why-not-pytest-and-torchrun"),
        ("A — b", "a--b"),
    ],
)
def test_headings_become_the_anchors_that_github_makes(heading: str, slug: str) -> None:
    """The rule for anchors is GitHub's."""
    assert slug_of(heading.replace("`", "")) == slug


def test_two_headings_alike_have_two_anchors() -> None:
    """The second of two equal headings is numbered."""
    assert Page("x.md", "# A\n\n## A\n\n## A\n").anchors == {"a", "a-1", "a-2"}


def test_pages_that_are_named_are_there() -> None:
    """A comment, a message or a sentence that names a page of docs/ names one that is there, and a
    heading it has.
    """
    command = [
        "git",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        *SOURCES,
        "*.md",
        "*.toml",
    ]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    bad = []
    for name in sorted(set(listed.splitlines())):
        path = ROOT / name
        if (
            path.suffix not in {".py", ".md", ".yaml", ".toml", ".nix"}
            or not path.is_file()
            or name == OWN
        ):
            continue
        for match in NAMED.findall(path.read_text(encoding="utf-8")):
            page, _, heading = match.partition("#")
            if page in EXPECTED_LATER:
                continue
            if name.startswith("packages/") and not (ROOT / page).is_file():
                page = "/".join([*name.split("/")[:2], page])  # a package's own page
            if not (ROOT / page).is_file() or (heading and heading not in anchors(page)):
                bad.append(f"{name}: {match}")
    assert bad == []


OWN = Path(__file__).relative_to(ROOT).as_posix()


def test_what_was_expected_later_is_not_there_yet() -> None:
    """What is there by now is taken off the list."""
    assert [name for name in EXPECTED_LATER if (ROOT / name).exists()] == []
