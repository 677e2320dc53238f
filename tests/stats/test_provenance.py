"""Lists of what a rank had loaded, made by hand: what each kind of file proves, and what it does
not.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from harness.stats.counterparts import Counterparts, InstalledCopy, Source
from harness.stats.provenance import judge

CODE, OLD, NOTHING = ("a" * 64, "b" * 64, hashlib.sha256().hexdigest())
REPOSITORY = {"src/engine/core.py": CODE, "engines/torch/core.py": OLD}
Given = dict[str, Any]
FINDER = "__editable___engine_1_0_finder.py"


def known(*installed: str) -> Given:
    """Where the repository has the engine, and the files of its distribution in the arm's
    environment.
    """
    copies = [InstalledCopy(name="engine", version="1.0", files=dict.fromkeys(installed, CODE))]
    return {
        "counterparts": Counterparts(
            roots={"engine": [("", "src/")]}, files=REPOSITORY, installed=copies
        )
    }


def told(
    record: str, *, file: str = "engine/core.py", sha256: str = OLD, name: str | None = "engine"
) -> bytes:
    """A list with one file in question."""
    other = {"package": "engine", "distribution": name, "version": name and "1.0", "record": record}
    return json.dumps({"installed": {}, "others": [{**other, "files": {file: sha256}}]}).encode()


def unproven(listing: bytes, *, declared: tuple[str, ...] = ("engine",), **more: Any) -> str:
    return "; ".join(judge(listing, Source(declared=declared, files=REPOSITORY, **more)).unproven)


PROVED: dict[str, tuple[bytes, Given]] = {
    "the repository's content": (told("as", sha256=CODE), known("engine/core.py")),
    "the same from no distribution": (told("absent", sha256=CODE, name=None), {}),
    "no content at all": (told("absent", sha256=NOTHING, name=None), {}),
    "a package nobody declares": (told("as"), {"declared": ()}),
    "a package the scenario names": (told("as"), {"named": ("engine",)}),
    "a model's own code": (told("absent", name=None), {"inputs": (OLD,)}),
    "what a plug-in brings into ranks": (told("absent", name=None), {"plugins": (OLD,)}),
    "an editable install's redirection": (
        told("as", file=FINDER),
        known("__editable___engine_1_0_finder.pth"),
    ),
    "what is installed on purpose": (told("as"), {"installed": True}),
    "the same, editable": (told("absent"), {"installed": True}),
    "the running Rankproof": (told("tool", name="rankproof"), {}),
}
ACCEPTED: dict[str, tuple[bytes, Given]] = {
    "the interpreter's own start": (told("start", file="sitecustomize.py", name=None), {}),
    "written during the run": (told("made", file="ab/cdef.py", name=None), {}),
    "linked anew by a packager": (told("differs", file="engine/_core.so"), {"declared": ()}),
}
OPEN: dict[str, tuple[bytes, Given, str]] = {
    "an old copy": (told("as"), {}, "but the repository has a different file: set subject.path"),
    "a file that was removed": (
        told("as", file="engine/gone.py"),
        {},
        "but the repository has no such file",
    ),
    "another file's content": (
        told("as", file="torch/core.py", sha256=CODE),
        {},
        "torch/core.py came from an installed",
    ),
    "a changed package": (
        told("differs"),
        {"declared": ()},
        "differs from the RECORD of engine 1.0; reinstall engine",
    ),
    "a changed package, on purpose": (
        told("differs"),
        {"installed": True},
        "engine/core.py came from an installed copy",
    ),
    "compiled, and declared": (
        told("differs", file="engine/_core.so"),
        {},
        "engine/_core.so came from",
    ),
    "a stranger": (
        told("absent", name=None),
        {},
        "came from outside, but the repository has",
    ),
    "a stranger, whatever is installed": (
        told("absent", name=None),
        {"installed": True},
        "came from outside",
    ),
    "somebody's editable install": (told("absent"), {"declared": ()}, "install a wheel of engine"),
    "a copy written during the run": (
        told("made", name=None),
        {},
        "but the repository has a different file",
    ),
    "another Rankproof": (
        told("tool", name="rankproof"),
        {"declared": ("rankproof",)},
        "the running Rankproof",
    ),
    "a list without files": (
        b'{"installed": {"e": "engine 1"}, "others": []}',
        {},
        "whose files were not reported",
    ),
    "a list that was cut": (b'{"installed": {}, "others": [], "more": 7}', {}, "7 more files"),
    "files of another release than was told": (
        (
            b'{"installed": {}, "others": [], "in_full": [{"package": "e", "distribution": "e",'
            b' "version": "1", "record": "as", "files": {}}]}'
        ),
        {},
        "files of e 1 were reported for e, which came from elsewhere",
    ),
    "no files of what differs": (
        b'{"installed": {"e": "e 1"}, "others": []}',
        {"declared": (), "differing": ("e",)},
        "a rank did not report which files of e 1 it loaded for e",
    ),
    "files of another form": (
        b'{"installed": {}, "others": [], "in_full": {"e": 1}}',
        {},
        "cannot be read",
    ),
    "no list": (b"", {}, "cannot be read"),
    "a list of another form": (b'{"installed": [], "others": {"files": 1}}', {}, "cannot be read"),
}


@pytest.mark.parametrize("name", PROVED)
def test_what_proves_a_file(name: str) -> None:
    """The repository's own content under its own path, RECORD of a package that is nobody's
    subject, an input.
    """
    listing, given = PROVED[name]
    assert unproven(listing, **given) == ""


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_accepted_is_named(name: str) -> None:
    """What nothing proves and nobody has to prove stands in the report."""
    listing, given = ACCEPTED[name]
    found = judge(listing, Source(**{"declared": ("engine",), "files": REPOSITORY, **given}))
    assert found.unproven == frozenset()
    assert len(found.beside) == 1


@pytest.mark.parametrize("name", OPEN)
def test_what_proves_nothing(name: str) -> None:
    """Each reason says which file, why it is not the code under test, and what to do."""
    listing, given, words = OPEN[name]
    assert words in unproven(listing, **given)
