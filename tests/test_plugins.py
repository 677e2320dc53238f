"""Registries: kinds of other distributions, which of them can be used, and what is said of the others."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import plugins
from harness.checks import KINDS
from harness.checks.check import Check
from harness.plugins import PluginFailed, Registry, installed

GOOD = """
    from typing import Literal
    from harness.checks.within import WithinCheck
    class Kind(WithinCheck):
        kind: Literal["mine"]
"""
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a distribution with one module, as pip would lay it out, in a folder of its own on the path."""

    def put(code: str, *, name: str = "brings-mine", module: str = "brings", point: str = "mine = brings:Kind") -> None:
        folder = tmp_path / name
        info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        (folder / f"{module}.py").write_text(textwrap.dedent(code))
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "RECORD").write_text(f"{module}.py,,\n{info.name}/METADATA,,\n")
        (info / "entry_points.txt").write_text(f"[rankproof.checks]\n{point}\n")
        monkeypatch.syspath_prepend(str(folder))
        plugins._by_group.cache_clear()

    yield put
    plugins._by_group.cache_clear()
    for module in ("brings", "other"):
        sys.modules.pop(module, None)


def checks() -> Registry[type[Check]]:
    """The registry of checks, filled anew."""
    return Registry("rankproof.checks", Check, {name: kind for name, kind in KINDS.items() if name != "mine"})


def test_a_kind_of_another_distribution_is_found(install: Install) -> None:
    """It stands beside our own, with the distribution, version and digest of its files."""
    install(GOOD)
    registry = checks()
    assert list(registry)[:-1] == list(KINDS)
    assert registry["mine"].__name__ == "Kind"
    plugin = registry.plugins["mine"]
    assert (plugin.group, plugin.name, plugin.distribution, plugin.version) == (
        "rankproof.checks",
        "mine",
        "brings-mine",
        "1.0",
    )
    assert installed("rankproof.checks", "mine") == plugin
    assert installed("rankproof.checks", "yours") is None


def test_the_digest_is_of_the_files(install: Install) -> None:
    """Another byte is another digest; bytecode and metadata are not part of it."""
    install(GOOD)
    before = checks().plugins["mine"].sha256
    install(f"{GOOD}\n    # changed\n")
    assert checks().plugins["mine"].sha256 != before
    install(GOOD)
    assert checks().plugins["mine"].sha256 == before


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise OSError('no disk')", "OSError: no disk"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import nothing_of_that_name\nKind = 1", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("Other = 1", "AttributeError: module 'brings' has no attribute 'Kind'"),
        ("Kind = 1", "it is not a harness.checks.check.Check"),
        ("class Kind: pass", "it is not a harness.checks.check.Check"),
        (
            GOOD.replace("within import WithinCheck", "check import Check").replace("WithinCheck", "Check"),
            "it does not declare properties, example",
        ),
        (GOOD.replace("mine", "yours"), 'its field is not declared as kind: Literal["mine"]'),
        (
            GOOD.replace('        kind: Literal["mine"]', "        pass"),
            'its field is not declared as kind: Literal["mine"]',
        ),
    ],
)
def test_what_cannot_be_used_is_kept_apart_with_the_reason(install: Install, code: str, reason: str) -> None:
    """A plug-in that raises, or brings something else, stops nothing, and is named with what is wrong about it."""
    install(code)
    registry = checks()
    assert list(registry) == list(KINDS)
    assert registry.broken["mine"].startswith("the plug-in brings:Kind of brings-mine cannot be used: ")
    assert reason in registry.broken["mine"]


def test_a_name_is_nobodys_twice(install: Install) -> None:
    """A kind of our name is refused, and of two plug-ins of one name neither counts."""
    install(GOOD.replace("mine", "agree"), point="agree = brings:Kind")
    assert checks()["agree"] is KINDS["agree"]
    assert "has a kind of this name itself" in checks().broken["agree"]
    install(GOOD, name="another", module="other", point="mine = other:Kind")
    install(GOOD)
    registry = checks()
    assert "mine" not in registry
    assert "another distribution brings a kind of this name too" in registry.broken["mine"]
    assert installed("rankproof.checks", "mine") is None


def test_a_plug_in_that_raises_is_named(install: Install) -> None:
    """What a plug-in's kind raises where it must not is told as the plug-in's; what ours raises is our bug."""
    install(GOOD)
    registry = checks()
    words = r"mine \(rankproof.checks\) of brings-mine 1.0 raised KeyError: 1"
    with pytest.raises(PluginFailed, match=words), registry.guarded("mine"):
        raise KeyError(1)
    with pytest.raises(KeyError), registry.guarded("agree"):
        raise KeyError(1)
