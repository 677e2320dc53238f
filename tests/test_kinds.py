"""Each kind of check, fault and backend is declared once, and registered under its name."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter

from harness import backends, checks, faults
from harness.backends import BackendProperties
from harness.checks import AnyCheck, CheckProperties
from harness.faults import AnyFault, FaultProperties
from harness.forms.document import parse_document
from harness.registry import Package, declared_in
from harness.world.control.names import ROOT
from harness.world.control.server_handle import BOOT

CHECKS = tuple(checks.KINDS.ours.values())
FAULTS = tuple(faults.KINDS.ours.values())
INSIDE = [
    kind.inside_file
    for kind in (*backends.KINDS.values(), *faults.KINDS.values())
    if kind.inside_file
]


def kind_of(model: Any) -> str:
    """The one word that a model takes for its kind."""
    (word,) = get_args(model.model_fields["kind"].annotation)
    return str(word)


@pytest.mark.parametrize("properties", [CheckProperties, FaultProperties, BackendProperties])
def test_no_property_can_be_left_out(properties: Any) -> None:
    """No property has a default: a made-up kind that leaves any one of them out cannot be
    declared.
    """
    names = [field.name for field in dataclasses.fields(properties)]
    for left_out in names:
        with pytest.raises(TypeError, match=left_out):
            properties(**dict.fromkeys(set(names) - {left_out}))
    with pytest.raises(TypeError):
        properties(*names)


@pytest.mark.parametrize(("registry", "union"), [(checks.KINDS, CHECKS), (faults.KINDS, FAULTS)])
def test_each_kind_is_registered_once_under_its_own_name(
    registry: Any, union: tuple[Any, ...]
) -> None:
    """What a scenario may hold is what the registry has, each with a declaration and a docstring."""
    assert {kind_of(model): model for model in union} == dict(registry)
    for model in union:
        assert isinstance(model.properties, CheckProperties | FaultProperties), model
        assert model.__doc__


@pytest.mark.parametrize(
    ("registry", "union"), [(checks.KINDS, AnyCheck), (faults.KINDS, AnyFault)]
)
def test_the_documented_example_of_each_kind_is_one(registry: Any, union: Any) -> None:
    """The example that the documentation shows is read as a scenario would read it."""
    for name, kind in registry.items():
        given = TypeAdapter(union).validate_python(
            parse_document(kind.example.encode(), name=name).tree
        )
        assert (given.kind, type(given)) == (name, kind)


def test_a_check_is_what_its_options_show() -> None:
    """What is declared of a check is not at odds with the options it takes."""
    for model in CHECKS:
        assert model.properties.needs_an_event == (
            hasattr(model, "event") or "event" in model.model_fields
        ), model
        assert not model.properties.compares_ranks or "ranks" in model.model_fields, model
        assert not model.properties.reports_a_value or model.properties.wrong is not None, model


def test_a_fault_is_what_its_options_show() -> None:
    """What is declared of a fault is not at odds with the options it takes."""
    for model in FAULTS:
        assert model.properties.needs_a_gate == ("at" in model.model_fields), model
        assert model.inside_file is None or model.properties.inside, model


def test_each_backend_is_declared_once() -> None:
    """Every backend that a scenario may name has one declaration."""
    for backend in backends.KINDS.values():
        properties = backend.properties
        assert isinstance(vars(type(backend))["properties"], BackendProperties)
        assert properties.makes_a_group == bool(properties.modules)
        assert properties.peer_gone


@pytest.mark.parametrize("file", INSIDE, ids=lambda file: file.stem)
def test_what_runs_inside_a_rank_needs_no_package(file: Any) -> None:
    """A kind's file for the inside of a rank is loaded by a bare interpreter: the standard library
    and our runtime.
    """
    boot = BOOT.partition("from harness.{module}")[0]
    code = f"{boot}from harness.rank.inside import load; load(sys.argv[1])"
    argv = [sys.executable, "-I", "-S", "-c", code, ROOT, str(file)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


NAMED = """
import sys
from harness.cli import main
assert main(["lint", "scenarios/perl-program"]) == 0
print(*sys.modules, file=sys.stderr)
"""


def test_lint_imports_the_kinds_that_a_scenario_names_and_neither_verdict_nor_report() -> None:
    """A scenario without faults costs no fault's file, nor what judges and renders a run."""
    done = subprocess.run(
        [sys.executable, "-c", NAMED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = set(done.stderr.split())
    assert {"harness.scenario.load", "harness.checks.exit"} <= loaded
    unnamed = {
        "harness.faults.kill",
        "harness.faults.hub",
        "harness.checks.requests",
        "harness.checks.event",
    }
    above = {
        "harness.stats.verdict",
        "harness.record.model",
        "harness.report",
        "harness.trust",
        "numpy",
    }
    assert not loaded & (unnamed | above)


@pytest.mark.parametrize("registry", [checks.KINDS, faults.KINDS])
def test_a_name_is_known_without_its_file(registry: Any) -> None:
    """Names are listed and looked for without an import, in the order in which documentation lists
    them.
    """
    fresh = Package(f"harness.{registry.group.partition('.')[2]}", registry.ours._files)
    assert list(fresh) == list(registry.ours)
    assert "nothing" not in fresh
    assert all(name in fresh for name in fresh)
    assert not fresh._kinds
    assert dict(fresh) == dict(registry.ours)


KIND = """
from typing import Literal

from harness.checks.event import EventCheck


class {name}Check(EventCheck):
    kind: Literal["{kind}"]
"""


def test_a_kind_enters_by_its_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in the folder of a registry is all that a kind needs, and is imported when it is asked
    for.
    """
    folder = tmp_path / "made_up"
    folder.mkdir()
    for name, kind in (("Late", "late"), ("Early", "early"), ("Known", "known")):
        (folder / f"{kind}.py").write_text(KIND.format(name=name, kind=kind))
    monkeypatch.syspath_prepend(str(tmp_path))
    kinds: Package[Any] = Package("made_up", declared_in(folder, first=["known"]))
    assert list(kinds) == ["known", "early", "late"]
    assert "made_up.late" not in sys.modules
    assert kind_of(kinds["late"]) == "late"
    assert "made_up.early" not in sys.modules


def test_no_kind_is_declared_twice(tmp_path: Path) -> None:
    """Two classes of one kind are refused, whichever would be found first."""
    (tmp_path / "two.py").write_text(KIND.format(name="One", kind="late") * 2)
    with pytest.raises(ValueError, match="both declare the kind late"):
        declared_in(tmp_path)


def test_what_an_editor_leaves_beside_modules_declares_nothing(tmp_path: Path) -> None:
    """A lock is a link to nothing, and a file of attributes is no text."""
    (tmp_path / "known.py").write_text(KIND.format(name="Known", kind="known"))
    (tmp_path / ".#known.py").symlink_to("nobody@nowhere.1")
    (tmp_path / "._known.py").write_bytes(b"\xff\xfe")
    assert list(declared_in(tmp_path)) == ["known"]


def test_a_package_without_the_kinds_that_it_lists_is_refused(tmp_path: Path) -> None:
    """As where its files are in an archive: a registry without kinds would refuse every scenario."""
    with pytest.raises(ValueError, match="declares the kinds known"):
        declared_in(tmp_path, first=["known"])
