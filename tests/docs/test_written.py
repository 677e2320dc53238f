"""What a script writes is as the script writes it, and what a page lists is what there is."""

from __future__ import annotations

import importlib.util
import pydoc
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.docs.pages import ROOT, Page, pages
from tests.docs.shown import SESSIONS_EXPECTED_LATER
from tests.docs.test_commands import sessions

# Pages that another branch changes: to be emptied where it is merged.
NOT_WRAPPED_YET: frozenset[str] = frozenset()
ARCHITECTURE = Page(
    "docs/architecture.md", (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
)


def script(name: str) -> ModuleType:
    """A script of docs/, as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PROSE, REFERENCE = script("prose"), script("reference")


@pytest.mark.parametrize("path", REFERENCE.PAGES_WRITTEN, ids=lambda path: path.name)
def test_the_reference_is_up_to_date(path: Path) -> None:
    """docs/api.md, docs/engines.md and docs/kinds.md are what docs/reference.py writes of the code
    that is here.
    """
    assert path.read_text(encoding="utf-8") == REFERENCE.PAGES_WRITTEN[path](), "run nox -s docs"


def test_a_changed_docstring_changes_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page follows the code: another docstring, default or option is another page."""
    from harness.checks.event import WithinCheck
    from harness.rank.context import Context

    api, kinds = REFERENCE.api(), REFERENCE.kinds()
    monkeypatch.setattr(Context, "__doc__", "Something else.")
    monkeypatch.setattr(WithinCheck, "__doc__", "Something else.")
    assert REFERENCE.api() != api
    assert REFERENCE.kinds() != kinds


def test_all_that_is_public_is_in_the_reference() -> None:
    """Each public name of the libraries has a heading in docs/api.md, each kind one in
    docs/kinds.md.
    """
    from harness import backends, checks, faults, hub, subjects, tokenizer
    from harness.tokenizer import loading

    api, kinds = (
        set(re.findall(r"^### `([^`]+)`$", path.read_text(), re.MULTILINE))
        for path in REFERENCE.PAGES_WRITTEN
        if path.stem in ("api", "kinds")
    )
    assert {*tokenizer.__all__, *loading.__all__, *hub.__all__} - api == set()
    assert {*faults.KINDS, *checks.KINDS, *subjects.READY} - {
        *faults.KINDS.plugins,
        *checks.KINDS.plugins,
    } - kinds == set()
    text = (ROOT / "docs/kinds.md").read_text()
    assert [
        name
        for name in backends.KINDS
        if f"| `{name}` |" not in text and name not in backends.KINDS.plugins
    ] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_prose_is_wrapped(page: Page) -> None:
    """No line of prose is wider than 120 columns where it could be broken."""
    if page.name in NOT_WRAPPED_YET:
        pytest.skip("is not wrapped yet")
    assert PROSE.too_wide(page.text) == [], f"{page.name}: run nox -s docs"


WIDE = "word " * 40
SHAPES = {
    "paragraph": (WIDE, True),
    "item": (f"* {WIDE}\n  {WIDE}", True),
    "item in an item": (f"* a\n  * {WIDE}", True),
    "quotation": (f"> {WIDE}", True),
    "after code": (f"    code\n\n{WIDE}", True),
    "table": (f"| {WIDE} |", False),
    "fence": (f"```\n{WIDE}\n```", False),
    "indented code": (f"text\n\n    {WIDE}", False),
    "a list in indented code": (f"text\n\n    - {WIDE}", False),
    "heading": (f"# {WIDE}", False),
    "no blank": ("x" * 200, False),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_wide_prose_is_found_and_mended(shape: str) -> None:
    """Prose of each shape is found and wrapped; tables, code and headings are left as they are."""
    text, is_wide = SHAPES[shape]
    assert bool(PROSE.too_wide(text)) is is_wide
    made = PROSE.wrapped(text)
    assert (made != text) is is_wide
    assert PROSE.too_wide(made) == []
    assert made.split() == text.split() or shape == "quotation"


def contracts() -> list[dict[str, Any]]:
    """What import-linter holds."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = settings["tool"]["importlinter"]["contracts"]
    return found


def test_the_layers_are_those_that_are_held() -> None:
    """The table of docs/architecture.md has the layers of pyproject.toml, in their order."""
    (layers,) = (
        one["layers"] for one in contracts() if one["type"] == "layers" and "containers" not in one
    )
    held = [layer.split(" | ") for layer in layers]
    assert layers_of(ARCHITECTURE.text) == held
    assert (
        layers_of(ARCHITECTURE.text.replace("| `harness.trust` |", "| `harness.trusts` |")) != held
    )


def layers_of(text: str) -> list[list[str]]:
    """The rooms in the table of a page, row by row."""
    rows = re.findall(r"^\| (`harness\.[^|]*) \|", text.partition("<!-- layers:")[2], re.MULTILINE)
    return [re.findall(r"`([^`]+)`", row) for row in rows]


def cited_rules() -> Iterator[tuple[str, int]]:
    """Rules of evidence that the code cites by number."""
    command = [
        "git",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "harness/*.py",
        "tests/*.py",
    ]
    for name in subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines():
        if (ROOT / name).is_file() and not name.startswith("tests/docs/"):
            for numbers in re.findall(
                r"\(rules? ([\d, ]+)\)", (ROOT / name).read_text(encoding="utf-8")
            ):
                yield from ((name, int(number)) for number in numbers.split(","))


def test_every_rule_that_is_cited_is_stated() -> None:
    """A comment that cites rule 12 cites a heading of docs/architecture.md.

    The headings count from 1 without a gap.
    """
    stated = [
        int(number) for number in re.findall(r"^### Rule (\d+)$", ARCHITECTURE.text, re.MULTILINE)
    ]
    assert stated == list(range(1, len(stated) + 1))
    cited = list(cited_rules())
    assert cited
    assert [(name, number) for name, number in cited if number not in stated] == []


def test_files_that_the_architecture_names_are_there() -> None:
    """Each file and room that docs/architecture.md, CONTRIBUTING.md and SECURITY.md name is
    there.
    """
    missing = []
    for name in ("docs/architecture.md", "CONTRIBUTING.md", "SECURITY.md"):
        page = Page(name, (ROOT / name).read_text(encoding="utf-8"))
        missing += [f"{name}:{line}: {span}" for span, line in page.spans if not is_there(span)]
    assert missing == []


def is_there(span: str) -> bool:
    """Whether what is written as a path or a dotted name of ours is one; `KIND` stands for any."""
    if (
        re.fullmatch(r"(?:harness|tests|docs|locks|scenarios)/[\w./-]*", span)
        and "KIND" not in span
    ):
        return (ROOT / span).exists()
    if re.fullmatch(r"(?:[a-z_]+/)*[a-z_]+\.py|[a-z_]+/", span):
        # It is named after its neighbours, whose room is written out.
        rooms = [ROOT / "harness", *ROOT.glob("packages/*/src")]
        return (ROOT / span).exists() or any(any(room.rglob(span)) for room in rooms)
    return not re.fullmatch(r"harness(\.\w+)+", span) or pydoc.locate(span) is not None


def test_what_is_not_there_is_found() -> None:
    """A path or a name that is not there is found; so the test above can fail."""
    assert not is_there("harness/nothing.py")
    assert not is_there("harness.world.nothing")
    assert not is_there("nothing.py")
    assert not is_there("world/nothing.py")
    assert not is_there("nothing/")
    assert is_there("stats/tally.py")
    assert is_there("ledger/")
    assert is_there("harness.history.History")


def test_contributing_tells_of_every_session() -> None:
    """The table of CONTRIBUTING.md has every session of noxfile.py, and no other."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\| `([a-z]+)` \|", text, re.MULTILINE))
    assert told == sessions() | SESSIONS_EXPECTED_LATER


def test_no_page_cites_a_document_that_is_not_here() -> None:
    """Nobody cites the design, or notes, that the repository does not hold."""
    command = ["git", "grep", "-InE", r"design §|\(design[ ,)]|research/[a-z]+\.md|prototypes/"]
    found = subprocess.run(
        [*command, "--", ":!tests/docs"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout
    assert found == ""
