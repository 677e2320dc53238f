"""Each figure of `nox -s house` is what it says, on text whose figures are known."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pluggy
import pytest

from tests.house.__main__ import ROWS, house, is_met, sources_of_tests, table, verdict
from tests.house.measures import (
    Figures,
    Source,
    conftest_imports,
    figures,
    small_modules,
    sources,
)
from tests.house.peers import STORED, installed

NOTHING = Figures(**dict.fromkeys((one.name for one in fields(Figures)), 0))


def count(figure: str, *texts: str) -> int:
    """A figure of modules with these texts."""
    files = [Source(f"package.m{number}", text) for number, text in enumerate(texts)]
    found: int = getattr(figures(files), figure)
    return found


SEVEN = "def f(a, b, c, d, e, g, h):\n    pass\n"
FORTY = "def f():\n" + "    x = 1\n" * 40
CASES = [
    ("files", "", 1),
    ("lines", "x = 1\n\ny = 2\n", 3),
    ("statements", "def f():\n    x = 1; y = 2\n    if x:\n        pass\n", 5),
    ("lines_over_100", f'x = "{"a" * 95}"\n', 1),
    ("lines_over_100", f'x = "{"a" * 94}"\n', 0),
    ("lines_over_105", f'x = "{"a" * 100}"\n', 1),
    ("lines_over_105", f'x = "{"a" * 99}"\n', 0),
    ("parallel_assignments", "a, b = 1, 2\n", 1),
    ("parallel_assignments", "a, self.b = x, y\n", 1),
    ("parallel_assignments", "a, b = b, a\n", 0),
    ("parallel_assignments", "a, b, c = b, c, a\n", 0),
    ("parallel_assignments", "a, b = f()\na, *b = 1, 2\na = 1, 2\n", 0),
    ("conditionals", "x = a if b else c\nif x:\n    pass\n", 1),
    ("nested_conditionals", "x = a if b else c\ny = a if b else c\n", 0),
    ("nested_conditionals", "x = a if b else c if d else e\n", 1),
    ("nested_conditionals", "x = f(a if b else c) if d else e if f else g\n", 2),
    ("comment_lines", "# one\nx = 1  # behind\n    # two\ny = '# text'\n", 2),
    ("many_arguments", SEVEN, 1),
    ("many_arguments", "def f(a, b, c, d, e, g):\n    pass\n", 0),
    ("many_arguments", "def f(a, /, b, *c, d, e, g, **h):\n    pass\n", 1),
    ("many_arguments", "class C:\n    def f(self, a, b, c, d, e, g):\n        pass\n", 0),
    ("many_arguments_unexplained", SEVEN, 1),
    ("many_arguments_unexplained", f"# a reason\n{SEVEN}", 0),
    ("many_arguments_unexplained", f"# a reason\n@cache\n{SEVEN}", 0),
    ("many_arguments_unexplained", f"# elsewhere\n\n{SEVEN}", 1),
    ("many_statements", FORTY, 0),
    ("many_statements", f"{FORTY}    y = 2\n", 1),
    ("many_statements", FORTY.replace("\n", '\n    """Text."""\n', 1), 0),
    ("many_statements_unexplained", f"{FORTY}    y = 2\n", 1),
    ("many_statements_unexplained", f"# a reason\n{FORTY}    y = 2\n", 0),
    ("any_annotations", "from typing import Any\nx: Any\ny: typing.Any\nz: list[Any]\n", 3),
    ("dicts_of_any", "x: dict[str, Any]\ny: dict[str, int]\nz: list[dict[str, Any]]\n", 2),
    ("docstrings", '"""Text."""\nclass C:\n    """Text."""\ndef f():\n    pass\n', 2),
    ("weak_docstrings", '"""The\n\ntext."""\ndef f():\n    """Whether."""\n', 1),
    ("weak_docstrings", '"""Answer."""\ndef f():\n    """Whether it is."""\n', 1),
    ("weak_docstrings", '"""Then.\n\nThe rest."""\n', 0),
    ("class_names_repeated", "class A: ...\nclass B:\n    class A: ...\n", 1),
    ("small_modules", "import package.m0\n", 0),
]


@pytest.mark.parametrize(("figure", "text", "expected"), CASES)
def test_a_figure_is_what_it_says(figure: str, text: str, expected: int) -> None:
    """Each construct is counted once, and its neighbours are not counted."""
    assert count(figure, text) == expected


def test_every_figure_has_a_case() -> None:
    """No figure is printed that no case holds, and each is in the table."""
    names = {one.name for one in fields(Figures)}
    assert {figure for figure, _, _ in CASES} == names == {row.figure for row in ROWS}


def test_class_names_are_compared_over_all_files() -> None:
    """Two files that each have a class of one name repeat that name once."""
    assert count("class_names_repeated", "class A: ...\n", "class A: ...\n", "class B: ...\n") == 1


def test_small_modules_are_those_with_one_importer() -> None:
    """Relative imports, imports of a name and of a module count; packages and long files do not."""
    files = [
        Source("p", "from p import inner\n", is_package=True),
        Source("p.inner", "", is_package=True),
        Source("p.inner.one", "x = 1\n"),
        Source("p.inner.two", "from .one import x\n"),
        Source("p.inner.three", "from . import two\nfrom ..inner.four import y\n"),
        Source("p.inner.four", "y = 1\n" * 80),
        Source("p.five", "import p.inner.two\nimport p.inner.three\n"),
    ]
    assert small_modules(files) == ["p.inner.one", "p.inner.three"]


def test_imports_from_conftest_are_counted_by_statement() -> None:
    """An import of names from a conftest, or of the conftest itself, is one."""
    text = "from tests.a.conftest import x, y\nfrom tests.a import conftest\nimport conftests\n"
    assert conftest_imports([Source("m", text)]) == 2


def test_what_is_measured(tmp_path: Path) -> None:
    """Measured are harness/ and each packages/*/src, without tests that a package ships."""
    texts = {
        "harness/__init__.py": "",
        "harness/a.py": "",
        "harness/tests/b.py": "",
        "packages/one/src/one/__init__.py": "",
        "packages/one/tests/test_one.py": "",
        "tests/conftest.py": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert [one.module for one in house(tmp_path)] == ["harness", "harness.a", "one"]
    assert [one.module for one in sources_of_tests(tmp_path)] == ["conftest", "test_one"]


def test_a_limit_is_met_up_to_its_number() -> None:
    """One more than the limit is NOT MET, in the words and in what `--strict` goes by."""
    assert verdict(480, 480) == "at most 480: MET"
    assert verdict(481, 480) == "at most 480: NOT MET, 481"
    assert verdict(481, None) == ""
    assert is_met(NOTHING, 0)
    assert not is_met(replace(NOTHING, files=481), 0)
    assert not is_met(NOTHING, 1)


def test_the_table_has_a_column_for_each_peer() -> None:
    """Rates are per 1,000 lines, counts are whole, and the limit is compared with our count."""
    ours = replace(NOTHING, lines=2_000, files=500, lines_over_100=3)
    lines = table(ours, STORED)
    assert lines[0].split() == ["rankproof", "trio", "nox", "tuf", "structlog", "limit"]
    assert lines[1].split()[:3] == ["files", "500", "78"]
    assert lines[1].endswith("at most 480: NOT MET, 500")
    (wide,) = [line for line in lines if line.startswith("lines over 100")]
    assert wide.removeprefix("lines over 100 columns, per 1,000").split()[:2] == ["1.5", "3.4"]
    assert wide.endswith("at most 0: NOT MET, 3")


def test_an_installed_peer_is_measured() -> None:
    """A project that is installed is read from its sources, and one that is not has no figures."""
    peer = installed("pluggy")
    assert peer is not None
    assert peer.figures == figures(sources(Path(pluggy.__file__).parent))
    assert peer.figures.class_names_repeated < peer.figures.docstrings < peer.figures.statements
    assert installed("rankproof_peer_that_is_not_installed") is None
