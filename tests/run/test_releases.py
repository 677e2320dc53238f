"""The releases of a package, read from pip's words, and environments that hold everything else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from harness.run.environments import releases
from harness.run.environments.make import lay_empty
from harness.run.environments.pip import Conflicting, Interpreter, Unavailable, find_interpreter
from harness.scenario import Environment
from tests.kit import wheels

TEXT = """\
  Found link https://index/packages/wobbly-1.0-py3-none-any.whl (from https://index/simple/wobbly/) (requires-python:>=3.8), version: 1.0
  Skipping link: No sources permitted for wobbly: https://index/packages/wobbly-1.0.tar.gz (from https://index/simple/wobbly/)
  Skipping link: none of the wheel's tags (cp39-cp39-win32) are compatible (run pip debug --verbose to show compatible tags): https://index/packages/wobbly-1.1-cp39-cp39-win32.whl (from https://index/simple/wobbly/)
  Link requires a different Python (3.11.7 not in: '>=3.13'): ignored
  Skipping link: 3.11.7 Requires-Python >=3.13: https://index/packages/other-9.0-py3-none-any.whl
  Skipping link: No sources permitted for wobbly: https://index/packages/wobbly-1.2.tar.gz
  Found link https://index/packages/wobbly-1.3-py3-none-any.whl (from https://index/simple/wobbly/), version: 1.3
  Found link https://index/packages/wobbly-1.10rc1-py3-none-any.whl (from x), version: 1.10rc1
ERROR: Ignored the following yanked versions: 0.9, 1.3
ERROR: Could not find a version that satisfies the requirement wobbly==0 (from versions: 1.0, 1.3)
"""


def test_what_pip_passes_over_is_named() -> None:
    """Yanked releases, pre-releases and releases without a fitting wheel are left out, each with
    its reason; files of other packages are not looked at.
    """
    found = releases._read(TEXT, "wobbly")
    assert {version: one.why_not for version, one in found.items()} == {
        "1.0": "",
        "1.1": releases.NO_FILE,
        "1.2": releases.NO_FILE,
        "1.3": releases.YANKED,
        "1.10rc1": releases.PRE_RELEASE,
    }


VERSIONS = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["", "", "1!"]),
        st.sampled_from(["0", "1", "1.0", "1.9", "1.10", "1.10.0.1", "2"]),
        st.sampled_from(["", "", "a1", "b2", "rc1", "rc10"]),
        st.sampled_from(["", "", ".post1", ".post10"]),
        st.sampled_from(["", "", ".dev0", ".dev3"]),
    ),
)


@given(one=VERSIONS, other=VERSIONS)
def test_versions_are_in_their_usual_order(one: str, other: str) -> None:
    """Versions are sorted as PEP 440 orders them."""
    assert (releases.order(one) < releases.order(other)) == (Version(one) < Version(other))


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, Interpreter]:
    """Interpreter of an empty environment, the folder of wheels that pip looks into, and what the
    environment was made from.
    """
    offered = tmp_path / "wheels"
    for name, value in wheels.settings(offered, tmp_path / "cache").items():
        monkeypatch.setenv(name, value)
    base = find_interpreter(None)
    lay_empty(tmp_path / "empty", base)
    return tmp_path / "empty" / "bin" / "python", offered, base


@pytest.mark.whole
def test_only_what_has_to_move_moves(empty: tuple[Path, Path, Interpreter]) -> None:
    """Packages that a version does not fit are freed one by one, and named with both versions; all
    others are held, older than the newest too.
    """
    python, offered, base = empty
    for version, needs in (("1.0", "steady<2"), ("2.0", "steady")):
        wheels.write(offered, "wobbly", version, "", requires=[needs, "still"])
    for version in ("1.0", "2.0", "3.0"):
        wheels.write(
            offered, "steady", version, "", requires=["shaky<2" if version == "1.0" else "shaky"]
        )
        wheels.write(offered, "shaky", version, "")
        wheels.write(offered, "still", version, "")
    like = Environment(packages={"wobbly": "2.0"})
    companions = {"steady": "2.0", "shaky": "2.0", "still": "1.0"}

    def held(version: str) -> releases.HeldEnvironment:
        return releases.hold(python, "wobbly", version, like=like, companions=companions, base=base)

    same = held("2.0")
    assert same.wanted.packages == {"wobbly": "2.0", **companions}
    assert not same.moved
    old = held("1.0")
    assert old.moved == {"shaky": ("2.0", "1.0"), "steady": ("2.0", "1.0")}
    assert old.wanted.packages["still"] == "1.0"
    assert old.plan.known_bytes > 0


@pytest.mark.whole
def test_a_conflict_that_nothing_held_causes_is_raised(
    empty: tuple[Path, Path, Interpreter],
) -> None:
    """A version that excludes its own dependencies cannot be held, and a package that is nowhere is
    named.
    """
    python, offered, base = empty
    wheels.write(offered, "wobbly", "1.0", "", requires=["steady<2", "still"])
    wheels.write(offered, "still", "1.0", "", requires=["steady>=2"])
    for version in ("1.0", "2.0"):
        wheels.write(offered, "steady", version, "")
    with pytest.raises(Conflicting):
        releases.hold(
            python,
            "wobbly",
            "1.0",
            like=Environment(packages={"wobbly": "1.0"}),
            companions={},
            base=base,
        )
    with pytest.raises(Unavailable, match="pip finds no version of nowhere"):
        releases.releases(python, "nowhere", base=base)
