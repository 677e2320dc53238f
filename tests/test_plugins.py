"""Registries: kinds of other distributions, which of them can be used, and what is said of the
others.
"""

from __future__ import annotations

import importlib
import os
import py_compile
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter, ValidationError

from harness import plugins
from harness.checks import KINDS
from harness.checks.check import Check
from harness.checks.event import WithinCheck
from harness.cli import main as cli
from harness.faults.fault import Fault
from harness.plugins import Plugin, PluginFailed, imported, installed
from harness.rank.inside import load
from harness.record import plugins as record_plugins
from harness.record.model import RecordError
from harness.registry import OneOf, Registry
from harness.report.view import VIEWS, View
from harness.run import doctor
from harness.subjects import READY
from harness.world.control import server_handle
from tests.test_plugin_kinds import as_plugin

GOOD = """
    from typing import Literal
    from harness.checks.event import WithinCheck
    class Kind(WithinCheck):
        kind: Literal["mine"]
"""
Install = Callable[..., None]
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a distribution with one module, as pip would lay it out, in a folder of its own on
    the path.
    """

    def put(
        code: str,
        *,
        name: str = "brings-mine",
        module: str = "brings",
        point: str = "mine = brings:Kind",
        group: str = "checks",
        inside: str | None = None,
    ) -> None:
        folder = tmp_path / name
        info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        (folder / f"{module}.py").write_text(textwrap.dedent(code))
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "RECORD").write_text(f"{module}.py,,\n{info.name}/METADATA,,\n")
        (info / "entry_points.txt").write_text(f"[rankproof.{group}]\n{point}\n")
        if inside is not None:
            (folder / f"{module}_inside.py").write_text(textwrap.dedent(inside))
            with (info / "RECORD").open("a") as record:
                record.write(f"{module}_inside.py,,\n")
        monkeypatch.syspath_prepend(str(folder))
        plugins._by_group.cache_clear()

    yield put
    plugins._by_group.cache_clear()
    for module in ("brings", "other"):
        sys.modules.pop(module, None)


def checks() -> Registry[type[Check]]:
    """The registry of checks, filled anew."""
    return Registry(
        "rankproof.checks", Check, {name: kind for name, kind in KINDS.items() if name != "mine"}
    )


GROUPS = {
    "checks": "mine",
    "faults": "yours",
    "backends": "theirs",
    "subjects": "ours",
    "views": "mine.txt",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "imports"),
    [
        (
            [
                "verify",
                "docs/sample/late-rank/report.md",
                "--allowed-signers",
                "docs/sample/allowed_signers",
            ],
            False,
        ),
        (["lint", "scenarios/late-rank", "--set", "trials.candidate=60"], False),
        (["lint", "scenarios/late-rank", "--set", "world.deadlin=60s"], False),
        (["list", "scenarios/late-rank"], False),
        (["list", "checks"], True),
    ],
)
def test_no_command_imports_a_plug_in_that_nobody_names(
    command: list[str], imports: bool, tmp_path: Path
) -> None:
    """A distribution with a kind in every group is left alone, but by the commands that list
    kinds.
    """
    info = tmp_path / "brings_mine-1.0.dist-info"
    info.mkdir()
    mark = tmp_path / "was-imported"
    (tmp_path / "brings.py").write_text(f"open({str(mark)!r}, 'w')\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: brings-mine\nVersion: 1.0\n")
    (info / "RECORD").write_text("brings.py,,\n")
    points = [f"[rankproof.{group}]\n{name} = brings:Kind\n" for group, name in GROUPS.items()]
    (info / "entry_points.txt").write_text("".join(points))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli", *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        check=False,
    )
    assert done.returncode in (0, 64), done.stderr
    assert mark.exists() == imports


def plugin_of(registry: Registry[type[Check]]) -> Plugin:
    """The plug-in that brings the kind `mine`, which is asked for."""
    assert "mine" in registry
    return registry.plugins["mine"]


def test_a_kind_that_nobody_asks_for_is_not_imported(install: Install) -> None:
    """Its name is known from the metadata.

    Its code, which could change what judges a run, is not run.
    """
    install("raise SystemExit('it was imported')")
    registry = checks()
    assert "mine" in registry.names
    assert "agree" in registry
    assert "yours" not in registry
    assert "brings" not in sys.modules
    assert "it was imported" in registry.reason("mine")
    assert "mine" not in registry


def test_a_scenario_imports_what_it_names(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two plug-ins only the one whose kind a section names is imported, and its mistakes keep
    their places.
    """
    install(GOOD)
    install(
        "raise SystemExit('it was imported')",
        name="another",
        module="other",
        point="yours = other:Kind",
    )
    registry = checks()
    adapter: TypeAdapter[Any] = TypeAdapter(Annotated[WithinCheck, OneOf(registry)])
    asked = {"id": "soon", "kind": "mine", "ranks": "every", "event": "a", "of": "b", "limit": "1s"}
    with pytest.raises(ValidationError) as raised:
        adapter.validate_python(asked | {"lymit": "1s"})
    assert ("lymit",) in {error["loc"] for error in raised.value.errors()}
    assert "other" not in sys.modules


def test_what_was_imported_is_named_with_all_its_files(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However a module of a distribution with kinds was imported, it is named.

    A helper beside it is in its digest.
    """
    monkeypatch.setattr(plugins, "TRIED", set())
    install(GOOD)
    assert imported() == []
    importlib.import_module("brings")
    (before,) = imported()
    assert (before.distribution, before.version) == ("brings-mine", "1.0")
    folder = tmp_path / "brings-mine"
    (folder / "helper.py").write_text("patched = False\n")
    with (folder / "brings_mine-1.0.dist-info" / "RECORD").open("a") as record:
        record.write("helper.py,,\n")
    plugins._by_group.cache_clear()
    (with_helper,) = imported()
    (folder / "helper.py").write_text("patched = True\n")
    (changed,) = imported()
    assert len({before.sha256, with_helper.sha256, changed.sha256}) == 3


def test_a_module_without_a_source_is_a_module(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytecode alone can be imported, so it is one of the files by which a distribution is
    known.
    """
    monkeypatch.setattr(plugins, "TRIED", set())
    install(GOOD)
    folder = tmp_path / "brings-mine"
    py_compile.compile(str(folder / "brings.py"), cfile=str(folder / "brings.pyc"))
    (folder / "brings.py").unlink()
    (folder / "brings_mine-1.0.dist-info" / "RECORD").write_text("brings.pyc,,\n")
    plugins._by_group.cache_clear()
    importlib.import_module("brings")
    (before,) = imported()
    (folder / "brings.pyc").write_bytes((folder / "brings.pyc").read_bytes() + b"\0")
    (after,) = imported()
    assert before.sha256 != after.sha256


@pytest.mark.parametrize("hides", ["del __file__", "__spec__ = None", "__file__ = 'elsewhere.py'"])
def test_a_module_that_hides_one_of_its_two_places_is_seen(
    install: Install, monkeypatch: pytest.MonkeyPatch, hides: str
) -> None:
    """A module says twice where it came from, and one of them is enough."""
    monkeypatch.setattr(plugins, "TRIED", set())
    install(f"{hides}\n", module="other", point="mine = other:Kind")
    importlib.import_module("other")
    assert [one.distribution for one in imported()] == ["brings-mine"]


def test_the_package_of_a_third_distribution_brings_its_helpers(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry point may name another distribution's package: the modules beside that package are
    in the digest too.
    """
    monkeypatch.setattr(plugins, "TRIED", set())
    install("", name="third", module="other")
    third = tmp_path / "third"
    (third / "third-1.0.dist-info" / "entry_points.txt").unlink()
    (third / "helper.py").write_text("patched = False\n")
    with (third / "third-1.0.dist-info" / "RECORD").open("a") as record:
        record.write("helper.py,,\n")
    install("", point="mine = other:Kind")
    importlib.import_module("other")
    (before,) = imported()
    (third / "helper.py").write_text("patched = True\n")
    (after,) = imported()
    assert (before.distribution, after.distribution) == ("brings-mine", "brings-mine")
    assert before.sha256 != after.sha256


def test_a_plug_in_takes_no_name_of_ours_away(install: Install) -> None:
    """Whoever installs a plug-in with a name of ours can still use ours.

    The plug-in is listed as broken.
    """
    install(GOOD.replace("mine", "agree"), point="agree = brings:Kind")
    registry = checks()
    assert registry.reason("agree") == ""
    assert "agree" in registry.broken


def test_a_plug_in_that_could_not_be_imported_is_named_too(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it did before it raised stays done, and a module that raises leaves no trace among those
    imported.
    """
    monkeypatch.setattr(plugins, "TRIED", set())
    install("raise OSError('too late')", module="other", point="mine = other:Kind")
    assert checks().reason("mine")
    assert "other" not in sys.modules
    assert [one.distribution for one in imported()] == ["brings-mine"]


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
    assert installed("rankproof.nothing", "mine") is None


def test_the_digest_is_of_the_files(install: Install) -> None:
    """Another byte is another digest; bytecode and metadata are not part of it."""
    install(GOOD)
    before = plugin_of(checks()).sha256
    install(f"{GOOD}\n    # changed\n")
    assert plugin_of(checks()).sha256 != before
    install(GOOD)
    assert plugin_of(checks()).sha256 == before


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise OSError('no disk')", "OSError: no disk"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        (
            "import nothing_of_that_name\nKind = 1",
            "ModuleNotFoundError: No module named 'nothing_of_that_name'",
        ),
        ("Other = 1", "AttributeError: module 'brings' has no attribute 'Kind'"),
        ("Kind = 1", "it is not a harness.checks.check.Check"),
        ("class Kind: pass", "it is not a harness.checks.check.Check"),
        (
            GOOD.replace("event import WithinCheck", "check import Check").replace(
                "WithinCheck", "Check"
            ),
            "it does not declare properties, example",
        ),
        (
            f"{GOOD}\n        properties = None",
            "its properties must be of the type harness.checks.check.CheckProperties",
        ),
        (GOOD.replace("mine", "yours"), 'its field is not declared as kind: Literal["mine"]'),
        (
            GOOD.replace('        kind: Literal["mine"]', "        pass"),
            'its field is not declared as kind: Literal["mine"]',
        ),
    ],
)
def test_what_cannot_be_used_is_kept_apart_with_the_reason(
    install: Install, code: str, reason: str
) -> None:
    """A plug-in that raises, or brings something else, stops nothing, and is named with what is
    wrong about it.
    """
    install(code)
    registry = checks()
    assert list(registry) == list(KINDS)
    assert registry.broken["mine"].startswith(
        "the plug-in brings:Kind of brings-mine cannot be used: "
    )
    assert reason in registry.broken["mine"]


def test_a_name_is_nobodys_twice(install: Install) -> None:
    """A kind of our name is refused, and of two plug-ins of one name neither counts."""
    install(GOOD.replace("mine", "agree"), point="agree = brings:Kind")
    assert checks()["agree"] is KINDS["agree"]
    assert "already has a kind with this name" in checks().broken["agree"]
    install(GOOD, name="another", module="other", point="mine = other:Kind")
    install(GOOD)
    registry = checks()
    assert "mine" not in registry
    assert "another distribution also provides a kind with this name" in registry.broken["mine"]
    assert installed("rankproof.checks", "mine") is None


def test_a_plug_in_that_raises_is_named(install: Install) -> None:
    """What a plug-in's kind raises where it must not is told as the plug-in's.

    What ours raises is our bug.
    """
    install(GOOD)
    registry = checks()
    assert "mine" in registry
    words = r"mine \(rankproof.checks\) of brings-mine 1.0 raised KeyError: 1"
    with pytest.raises(PluginFailed, match=words), registry.guarded("mine"):
        raise KeyError(1)
    with pytest.raises(KeyError), registry.guarded("agree"):
        raise KeyError(1)
    words = (
        r"brings-mine 1.0 raised SystemExit: 0 \(test_plugins.py, line \d+\); report this to its"
        r" authors"
    )
    with pytest.raises(PluginFailed, match=words), registry.guarded("mine"):
        raise SystemExit(0)
    with pytest.raises(OSError, match="no port"), registry.guarded("mine", but=(OSError,)):
        raise OSError("no port")


def test_a_distribution_has_one_name(install: Install) -> None:
    """Whichever way it is written in its metadata, a policy lists it by its normal name."""
    install(GOOD, name="Brings._mine")
    assert plugin_of(checks()).distribution == "brings-mine"


FAULT = """
    from pathlib import Path
    from typing import Literal
    from harness.faults.exit import ExitFault
    class Kind(ExitFault):
        kind: Literal["mine"]
        inside_file = Path(__file__).with_name("brings_inside.py")
"""
INSIDE = "def inside(order, emit): pass"


@pytest.mark.parametrize(
    ("code", "inside", "reason"),
    [
        (FAULT, INSIDE, ""),
        (FAULT, f"import time\nfrom harness.rank import emit\n{INSIDE}", ""),
        (FAULT, f"if TYPE_CHECKING:\n    import numpy\n{INSIDE}", ""),
        (
            FAULT.replace('Path(__file__).with_name("brings_inside.py")', "ExitFault.inside_file"),
            None,
            "",
        ),
        (FAULT, None, "which is not the path of a file"),
        (
            FAULT.replace('Path(__file__).with_name("brings_inside.py")', "'brings'"),
            None,
            "is not the path of a file",
        ),
        (
            FAULT.replace('Path(__file__).with_name("brings_inside.py")', "None"),
            None,
            "has no inside_file",
        ),
        (
            FAULT.replace('with_name("brings_inside.py")', "with_name('x').parent.parent / 'x.py'"),
            INSIDE,
            "is not among the files of the distribution",
        ),
        (FAULT, "def insides(order, emit): pass", "has no function inside, which ranks call"),
        (FAULT, "def inside(:", "brings_inside.py, is not Python: "),
        (
            FAULT,
            f"import pydantic\n{INSIDE}",
            "imports pydantic, which may be missing from an arm's environment",
        ),
        (
            FAULT,
            f"{INSIDE}\ndef more():\n    from harness.faults import proof",
            "imports harness.faults, which",
        ),
        (FAULT, f"from . import brings\n{INSIDE}", "imports ., which"),
    ],
)
def test_what_ranks_load_is_looked_at_before(
    install: Install, tmp_path: Path, code: str, inside: str, reason: str
) -> None:
    """A file that ranks could not load, or that no digest holds, is told here, not as a failure of
    the subject.
    """
    (tmp_path / "x.py").write_text(INSIDE)
    install(code, group="faults", inside=inside)
    registry: Registry[type[Fault]] = Registry("rankproof.faults", Fault, {})
    assert reason in registry.broken.get("mine", "")
    assert bool(reason) == ("mine" in registry.broken)


def test_what_lies_beside_rankproof_is_copied_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the folder that Rankproof is installed in lie plug-ins: ranks load a copy, and no rank
    changes the next's.
    """
    monkeypatch.setattr(server_handle, "ROOT", str(tmp_path))
    ours, theirs = tmp_path / "harness" / "ours_inside.py", tmp_path / "acme" / "theirs_inside.py"
    for file in (ours, theirs):
        file.parent.mkdir()
        file.write_text(INSIDE)
    server = object.__new__(server_handle.ServerHandle)
    server.scratch = tmp_path / "scratch"
    assert server.inside(ours) == str(ours)
    copy = Path(server.inside(theirs))
    assert copy.is_relative_to(server.scratch)
    copy.write_text("changed")
    with pytest.raises(
        ImportError, match=r"a rank changed theirs_inside\.py after it was copied for the ranks"
    ):
        load(str(copy))
    assert load(server.inside(theirs)).inside


@pytest.mark.parametrize(
    "name", ["../view.txt", "evidence", "report.md", "results.json", "MANIFEST.sha256", "a/b", ".x"]
)
def test_a_view_is_a_file_of_its_own(install: Install, name: str) -> None:
    """A plug-in's view is not written outside the run's folder, nor over what the run consists
    of.
    """
    code = f"""
        from harness.report.view import View
        Kind = View(name="{name}", media_type="text/plain", checked=True, render=lambda basis: b"")
    """
    install(code, group="views", point=f"{name} = brings:Kind")
    registry: Registry[View] = Registry("rankproof.views", View, {}, taken=VIEWS._taken)
    assert list(registry) == []
    assert name in registry.broken


def test_lists_name_what_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ready subjects of plug-ins are listed with where they are from, and views that cannot be used
    by `doctor`.
    """
    as_plugin(monkeypatch, READY, READY["torch-pipeline"])
    monkeypatch.setitem(READY.broken, "yours", "cannot be used: no")
    monkeypatch.setitem(VIEWS.broken, "theirs", "cannot be used: no")
    assert cli(["list", "--subjects"]) == 0
    said = capsys.readouterr().out
    assert "from:  brings-mine 1.0" in said
    assert "yours\n    cannot be used: no" in said
    assert {answer.what for answer in doctor._plugins()} == {"yours", "theirs"}


def test_a_run_names_each_plug_in_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the same is refused like one too many, one too few, and one of a group that is not
    there.
    """
    facts = Plugin(
        group="rankproof.checks",
        name="mine",
        distribution="brings-mine",
        version="1.0",
        sha256="0" * 64,
    )
    monkeypatch.setattr(record_plugins, "_kinds", lambda scenario: [scenario])
    scenario: Any = facts
    strange = facts.model_copy(update={"group": "rankproof.nothing"})
    for named, word in (
        ([facts, facts], "twice"),
        ([], "does not list"),
        ([facts, strange], "does not use"),
    ):
        run: Any = SimpleNamespace(plugins=named)
        with pytest.raises(RecordError, match=word):
            record_plugins.demand_named(scenario, run)


def test_what_a_plug_in_raises_elsewhere_is_its_own(install: Install) -> None:
    """In a property, a validator or a callback nobody guards it: the files that it passed through
    tell whose it is.
    """
    install(f"{GOOD}\n    def calls(back): back()\n")
    assert "mine" in checks()

    def back() -> None:
        raise KeyError

    for call, expected in (
        (lambda: sys.modules["brings"].calls(back), "brings-mine 1.0"),
        (back, None),
    ):
        with pytest.raises(KeyError) as raised:
            call()
        assert plugins.passed_through(raised.value) == expected
