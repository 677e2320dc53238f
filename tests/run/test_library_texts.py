"""Texts of library modules, taken from where ranks imported them: only what has the content that
was told.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness.forms.distribution import wheel_lines
from harness.record import environment
from harness.record.facts import ArmEnvironmentFacts, Installed
from harness.record.libraries import RECORD, TEXT_LIMIT, text_path
from harness.record.results import ResultsFolder
from harness.run.environments.cache import ReadyEnvironment
from harness.run.run import keep_texts

OLD, NEW = b"VERSION = 1\n", b"VERSION = 2\n"


@dataclass
class Place:
    """A control in its own environment, and a candidate in the harness'; `told` of the
    candidate, by file.
    """

    tmp_path: Path
    told: dict[str, bytes] = field(default_factory=dict)
    packages: list[Installed] = field(default_factory=list)

    @property
    def old(self) -> Path:
        return self.tmp_path / "env/lib/python3.11/site-packages/engine"

    def keep(self) -> tuple[set[bytes], dict[str, int | None]]:
        """What lies in the evidence then, and what was left out."""
        self.old.mkdir(parents=True, exist_ok=True)
        (self.old / "core.py").write_bytes(OLD)
        lists = {}
        for arm, files in (("control", dict.fromkeys(self.told, OLD)), ("candidate", self.told)):
            told = {file: sha256(content) for file, content in files.items()}
            one = {
                "package": "engine",
                "distribution": "engine",
                "version": "1",
                "record": "absent",
                "files": told,
            }
            lists[arm] = {"x": json.dumps({"installed": {}, "others": [one]}).encode()}
        facts = ArmEnvironmentFacts(
            python="3.11.7", implementation="cpython", packages=self.packages
        )
        own = ReadyEnvironment(
            python=self.tmp_path / "env/bin/python", named=("engine",), facts=facts
        )
        folder = ResultsFolder(self.tmp_path / "results", "engine")
        left = keep_texts(
            folder,
            lists,
            {"control": own},
            environment.capture(),
            of={"engine"},
            arms=("control", "candidate"),
        )
        for name, digest in folder.digests.items():
            assert name in (text_path(digest), text_path(digest, RECORD))
        return {folder.read(name) for name in folder.digests}, left


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, {"engine/core.py": NEW})


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("layout", ["engine", "src/engine"])
def test_an_editable_install_is_found_where_it_leads(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    """Among the packages lies only what leads to the folder that the distribution was installed
    from.
    """
    site, code = tmp_path / "site", tmp_path / "code"
    (code / layout).mkdir(parents=True)
    (code / layout / "core.py").write_bytes(NEW)
    about = site / "engine-2.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: engine\nVersion: 2.0\n")
    (about / "direct_url.json").write_text(
        json.dumps({"url": code.as_uri(), "dir_info": {"editable": True}})
    )
    monkeypatch.syspath_prepend(str(site))
    assert place.keep() == ({OLD, NEW}, {})


def test_a_module_that_was_changed_since_is_not_taken_for_what_ran(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies there now has another digest than ranks told: neither text is kept, and the run
    says so.
    """
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine/core.py").write_text("VERSION = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert place.keep() == (set(), {sha256(OLD): len(OLD), sha256(NEW): None})


def test_a_module_in_an_archive_is_left_out(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A zip on the path is not a folder: its digest stands in the evidence, its text does not."""
    with zipfile.ZipFile(tmp_path / "engine.zip", "w") as archive:
        archive.writestr("engine/core.py", NEW)
    monkeypatch.syspath_prepend(str(tmp_path / "engine.zip"))
    assert place.keep() == (set(), {sha256(OLD): len(OLD), sha256(NEW): None})


def test_a_large_module_is_left_out_with_its_size(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a module beyond the limit the size is told, and its counterpart is not kept either."""
    large = b"#" * (TEXT_LIMIT + 1)
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine/core.py").write_bytes(large)
    monkeypatch.syspath_prepend(str(tmp_path))
    place.told = {"engine/core.py": large}
    assert place.keep() == (set(), {sha256(OLD): len(OLD), sha256(large): TEXT_LIMIT + 1})


def test_a_path_that_leads_out_of_the_package_is_not_followed(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that tells `../secret.py` gets no file into the evidence."""
    (tmp_path / "secret.py").write_bytes(NEW)
    (tmp_path / "site").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    place.told = {"../secret.py": NEW}
    assert place.keep() == (set(), {})


@pytest.mark.parametrize("stated", ["a.py", "b.py"])
def test_a_record_is_taken_from_where_each_arm_has_it(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stated: str
) -> None:
    """From the arm's own environment, or the harness'; only a RECORD with the digest that the facts
    state, without what an installer wrote into it.
    """
    records = {}
    for site, file in ((place.old.parent, "a.py"), (tmp_path / "site", "c.py")):
        about = site / "engine-2.0.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: engine\nVersion: 2.0\n")
        records[file] = f"engine/{file},sha256=x,1\n"
        (about / "RECORD").write_text(f"../bin/engine,sha256=y,1\n{records[file]}")
    digest = sha256(f"engine/{stated},sha256=x,1\n".encode())
    place.packages = [Installed(name="engine", version="2.0", wheel="w", record=digest)]
    place.told = {}
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    kept, left = place.keep()
    lines = {wheel_lines(text) for text in records.values()}
    if stated == "a.py":
        assert (kept, left) == (lines, {})
    else:
        assert (kept, left) == (set(), {digest: None, sha256(wheel_lines(records["c.py"])): 23})
