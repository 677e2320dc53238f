"""Every absolute sentence is held by a test that tries to break it, or is listed with why it is not
a promise.

The lists beside this file (`*.toml`) have a table for each file and a line for each sentence. A new
sentence of that kind fails the first test until somebody names its tests or weakens it. That a
named test does try to break its sentence is for whoever lists it to judge: read the test first.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .register import KINDS, REGISTERS, Judgement, problems, read
from .sentences import PAGES, ROOMS, ROOT, Sentence, absolute, of_module, of_page

TEST = "tests/promises/test_promises.py::test_every_absolute_sentence_is_judged"
HELD = Sentence("README.md", "Every report is right.")


def test_every_absolute_sentence_is_judged() -> None:
    """Pages, the gate and what writes reports hold no sentence without a judgement, and the lists
    nothing else.
    """
    assert sorted(problems(absolute(), read())) == []


def test_most_promises_are_kept_by_tests() -> None:
    """The way out is not the usual one: half of the sentences at least name tests, a hundred or
    more.
    """
    judged = read().values()
    held = [one for one in judged if not isinstance(one, str)]
    assert len(held) >= max(100, len(judged) / 2)


@pytest.mark.parametrize(
    ("file", "old", "new", "found"),
    [
        (
            "README.md",
            "# Rankproof\n",
            "# Rankproof\n\nA report never lies.\n",
            "A report never lies.",
        ),
        ("SECURITY.md", "| what | how |", "| what nobody can | how |", "what nobody can"),
        (
            "harness/gate/rules.py",
            '    return "MET", here.environment\n',
            '    return "MET", f"the run was made in {here.environment}"\n',
            "the run was made in {…}",
        ),
        (
            "harness/report/limits.py",
            'TIME = "',
            'TIME = "Its time cannot be wrong. ',
            "Its time cannot be wrong.",
        ),
        (
            "harness/stats/unshown.py",
            "CELLS_MOST = 6",
            'CELLS_MOST = f"all of {3} is shown"',
            "all of {…} is shown",
        ),
    ],
)
def test_a_new_sentence_is_found(tmp_path: Path, file: str, old: str, new: str, found: str) -> None:
    """Wherever an absolute sentence is added, it has to be judged.

    In a row that opens the gate, any sentence.
    """
    root = copy(tmp_path)
    text = (root / file).read_text()
    assert text.count(old) == 1
    (root / file).write_text(text.replace(old, new))
    assert [one for one in problems(absolute(root=root), read()) if "not judged" in one] == [
        f"{file}: not judged, name the tests that try to break it, or weaken it: {found}"
    ]


def test_a_sentence_that_went_is_found(tmp_path: Path) -> None:
    """Whoever weakens a sentence takes it off the list."""
    root = copy(tmp_path)
    page = root / "SECURITY.md"
    page.write_text(page.read_text().replace("nobody promises a time", "we promise no time"))
    told = sorted(problems(absolute(root=root), read()))
    assert [one.partition(",")[0] for one in told] == [
        "SECURITY.md: listed",
        "SECURITY.md: not judged",
    ]


@pytest.mark.parametrize(
    ("judgement", "problem"),
    [
        ([TEST], None),
        ("limit: it claims less", None),
        ([], "no test tries to break it"),
        ([f"{TEST}_at_all"], f"there is no test {TEST}_at_all"),
        ([TEST, "tests/test_gone.py::test_it"], "there is no test tests/test_gone.py::test_it"),
        (
            ["tests/promises/register.py::problems"],
            "there is no test tests/promises/register.py::problems",
        ),
        (
            ["tests/series/matrix/test_matrix.py::test_checks_say_what_a_case_demands"],
            "CI runs none of its tests, because all are marked long",
        ),
        ("obvious: everybody sees it", "is not a list of tests, nor a reason like 'limit: …'"),
        ("limit: ", "is not a list of tests, nor a reason like 'limit: …'"),
    ],
)
def test_a_judgement_names_tests_or_a_reason(judgement: Judgement, problem: str | None) -> None:
    """A test that was removed or renamed, no test, and a reason of no known kind are each told."""
    found = list(problems([HELD], {HELD: judgement}))
    assert len(found) == (problem is not None)
    assert all(one.startswith(f"README.md: {problem}") for one in found)


def test_a_sentence_is_listed_once(tmp_path: Path) -> None:
    """Two lists that judge one sentence may contradict each other."""
    twice = [tmp_path / name for name in ("a.toml", "b.toml")]
    for path in twice:
        path.write_text('["README.md"]\n"Every report is right." = "limit: none"\n')
    with pytest.raises(
        ValueError, match=r"b\.toml: listed twice, in README\.md: Every report is right\."
    ):
        read(twice)


def test_what_is_a_sentence() -> None:
    """Texts of code and of pages, without docstrings, code blocks, questions, labels and
    descriptions of keys.
    """
    code = '''
"""Never a docstring."""
def f(x):
    """Nor this one, never."""
    g("no control", "is it never so?", description="it can never be", other="it is never so")
    return f"{x} is always one. {'nested: there are none' if x else ''}"
'''
    assert [one.text for one in of_module("a.py", code)] == [
        "it is never so",
        "{…} is always one.",
        "nested: there are none",
    ]
    prose = "# All of it is\n\nIt is so. It is *never* `so`\nat all.\n\n    never a command\n"
    page = f"{prose}\n| a | it cannot be |\n|--|--|\n"
    assert [one.text for one in of_page("a.md", page)] == [
        "All of it is",
        "It is never so at all.",
        "it cannot be",
    ]


def test_the_kinds_of_reasons_are_used() -> None:
    """A kind that no sentence has is taken off."""
    assert {one.partition(":")[0] for one in read().values() if isinstance(one, str)} == set(KINDS)
    assert REGISTERS


def copy(folder: Path) -> Path:
    """The pages and rooms, to be changed."""
    for room in ROOMS:
        shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__"))
    for page in PAGES:
        shutil.copy(ROOT / page, folder / page)
    return folder
