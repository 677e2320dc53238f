"""Files of requirements: what is taken, and what is refused with its line."""

from __future__ import annotations

import pytest

from harness.scenario import ScenarioError
from harness.scenario.environment import parse_requirements, unmet_requirements

ONE, TWO = "1" * 64, "2" * 64
COMPILED = f"""\
# This file was compiled by a tool
NumPy==2.3.1 ; python_version >= "3.11" \\
    --hash=sha256:{ONE} \\
    --hash=sha256:{TWO}
    # via transformers
uvicorn[standard]==0.30 --hash=sha256:{ONE}  # a remark
"""


def test_what_a_compiler_writes_is_read() -> None:
    """Continued lines, remarks, markers, extras and several hashes are understood, and come out in
    one form.
    """
    numpy, uvicorn = parse_requirements(COMPILED.encode(), name="r.txt")
    assert (numpy.name, numpy.version, numpy.marker) == (
        "numpy",
        "2.3.1",
        'python_version >= "3.11"',
    )
    assert numpy.hashes == {ONE, TWO}
    assert str(uvicorn) == f"uvicorn[standard]==0.30 --hash=sha256:{ONE}"
    assert parse_requirements(f"{numpy}\n{uvicorn}\n".encode(), name="r.txt") == (numpy, uvicorn)
    assert parse_requirements(
        b"\xef\xbb\xbf" + str(uvicorn).encode().replace(b" ", b" \\\r\n "), name="r.txt"
    ) == (uvicorn,)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("numpy", "does not pin one version of numpy"),
        (f"numpy>=2 --hash=sha256:{ONE}", "does not pin one version of numpy"),
        (f"numpy==2.* --hash=sha256:{ONE}", "does not pin one version of numpy"),
        (f"numpy==2,<3 --hash=sha256:{ONE}", "is not a requirement"),
        (f"numpy~=2.0 --hash=sha256:{ONE}", "does not pin one version of numpy"),
        ("numpy==2.0", "has no hash; write numpy==2.0 --hash=sha256:"),
        ("numpy==2.0 --hash=md5:abc", "write sha256"),
        (f"numpy==2.0 --hash=sha256:{ONE.replace('1', 'A')}", "write sha256"),
        (f"numpy @ https://example.org/numpy.whl --hash=sha256:{ONE}", "is a URL or a folder"),
        ("./numpy-2.0-py3-none-any.whl", "is a URL or a folder"),
        ("git+https://example.org/numpy", "is a URL or a folder"),
        ("-r other.txt", "includes another file"),
        ("--constraint=other.txt", "includes another file"),
        ("-e ../numpy", "is an editable install"),
        ("--index-url https://example.org/simple", "sets where pip searches"),
        ("--find-links=/wheels", "sets where pip searches"),
        ("--pre", "is an option"),
        (f"numpy==2.0 --config-settings=x --hash=sha256:{ONE}", "has the option --config-settings"),
        (f"numpy==2.0 --hash=sha256:{ONE} -i x", "has the option -i"),
        (f"numpy==${{VERSION}} --hash=sha256:{ONE}", "contains a variable"),
        (f"numpy=={'2' * 3} && rm --hash=sha256:{ONE}", "is not a requirement"),
    ],
)
def test_all_else_is_refused_with_its_line(line: str, why: str) -> None:
    """A range, an address, another file, an option: each is named with file and line, and with what
    to do.
    """
    with pytest.raises(ScenarioError) as found:
        parse_requirements(f"# one\n\n{line}\n".encode(), name="folder/r.txt")
    (problem,) = found.value.problems
    assert str(problem).startswith("folder/r.txt:3:1: ")
    assert why in problem.message


def test_every_wrong_line_is_told_at_once() -> None:
    """Nobody repairs a file line by line.

    An empty file names nothing, and other encodings are said.
    """
    with pytest.raises(ScenarioError) as found:
        parse_requirements(b"numpy\ntorch\n", name="r.txt")
    assert [problem.line for problem in found.value.problems] == [1, 2]
    for text, why in ((b"# nothing\n", "has no packages"), (b"ok\n\xff", "is not UTF-8")):
        with pytest.raises(ScenarioError, match=why):
            parse_requirements(text, name="r.txt")


def test_what_was_installed_is_held_against_the_file() -> None:
    """Another version, another file, one too few, one too many: each is named.

    What a marker leaves out may be gone.
    """
    wanted = parse_requirements(COMPILED.encode(), name="r.txt")
    right = {"numpy": ("2.3.1", TWO), "uvicorn": ("0.30.0", ONE)}

    def told(**changes: tuple[str, str] | None) -> list[str]:
        there = {name: found for name, found in {**right, **changes}.items() if found is not None}
        return list(unmet_requirements(wanted, there, built=["own"]))

    assert told() == told(numpy=None) == told(own=("1", "x")) == []
    assert told(uvicorn=None) == ["uvicorn 0.30 is required, but uvicorn is not installed"]
    assert told(numpy=("2.3.2", ONE)) == ["numpy 2.3.1 is required, but 2.3.2 is installed"]
    assert told(numpy=("2.3.1", "3" * 64)) == [
        (
            "numpy 2.3.1 was installed from a file with sha256 333333333333, which the requirements do"
            " not allow"
        )
    ]
    assert told(extra=("1", ONE)) == ["extra 1 is installed, but is not among the requirements"]
