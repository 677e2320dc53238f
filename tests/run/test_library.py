"""Two releases of a library compared: the report shows which lines of the loaded modules differ, and
names the other modules that differ.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.record.assemble import assemble
from harness.record.changed import COMMENTS_ALONE
from harness.record.libraries import FOLDER, RUN_LINES, TEXT_LIMIT
from harness.record.model import ModuleChange, RecordError
from harness.report.appendix import evidence_among
from tests.kit import forge, wheels
from tests.kit.commands import HOSTILE, Ran, run_command

pytestmark = [pytest.mark.slow, pytest.mark.whole]

RUN = "evidence/run.json"
# A module of the standard library, where that is compiled apart, stands in a release as one of its
# own.
_ORIGIN = importlib.util.find_spec("_queue")
COMPILED = (
    Path(_ORIGIN.origin) if _ORIGIN is not None and str(_ORIGIN.origin).endswith(".so") else None
)
SUBJECT = """
import engine
import engine.cache, engine.long, engine.same, engine.huge, engine.years
import steady


def check(context):
    import importlib
    for name in ("gone", "new", "_queue", "first"):
        if name != "first" or context.rank == 0:
            try:
                importlib.import_module(f"engine.{name}")
            except ModuleNotFoundError:
                pass
    right = engine.layers(7, 2) == [4, 3]
    engine.layers = None          # what is put in place of a function is in no file
    assert right
    context.emit("split")
"""
SCENARIO = """
schema: 1
id: engine
title: The engine splits every layer since 2.0
question: Does engine 2.0 give each layer to a rank?
subject:
  entry: subject:check
  of: installed
  candidate: {environment: {packages: {engine: "2.0", steady: "1.0"}}}
  control:
    environment: {packages: {engine: "1.0", steady: "1.0"}}
    must_fail: {check: split, ranks: every, error: AssertionError, source: assert right}
matrix: {ranks: [2], backend: [none]}
world: {deadline: 30s, start: fresh}
seed: "7"
trials: {candidate: 5, control: 5, accept: {failure_rate_below: 50%}}
checks:
  - {id: split, kind: event, ranks: every, event: split}
"""
HOSTILE_TEXT = f'# {HOSTILE!r}\nNOTE = """\n```\n</details>\n{HOSTILE[:80]}\n## Check it yourself\n"""\n'.replace(
    "\0", ""
)


def release(version: str) -> tuple[str, dict[str, bytes]]:
    """What is in a release: `engine/__init__.py` and the others."""
    new = version == "2.0"
    split = "[-(-layers // ranks), layers // ranks]" if new else "[layers // ranks] * ranks"
    files = {
        "engine/__init__.py": f"def layers(layers, ranks):\n    return {split}\n".encode(),
        "engine/cache.py": HOSTILE_TEXT.encode() if new else b"NOTE = None\n",
        "engine/long.py": (
            "".join(f"LINE_{number} = {version}\n" for number in range(RUN_LINES)).encode()
        ),
        "engine/huge.py": f"VERSION = {version}\n".encode() + b"#" * TEXT_LIMIT,
        "engine/same.py": b"SAME = True\n",
        "engine/first.py": f"VERSION = {version}\n".encode(),
        "engine/unused.py": f"VERSION = {version}\n".encode(),
        "engine/years.py": f"# Copyright © 2024-{2025 + new} Engineers\n\nHERE = True\n".encode(),
        "engine/new.py" if new else "engine/gone.py": b"HERE = True\n",
    }
    if COMPILED is not None:
        files[f"engine/{COMPILED.name}"] = COMPILED.read_bytes() + version.encode()
    return f"VERSION = {version}\n", files


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A run of two releases of a library, in environments of their own."""
    place = tmp_path_factory.mktemp("library")
    for version in ("1.0", "2.0"):
        text, files = release(version)
        wheels.write(place / "wheels", "engine", version, text, more=files)
    wheels.write(place / "wheels", "steady", "1.0", "HERE = True\n")
    folder = place / "scenario"
    folder.mkdir()
    (folder / "scenario.yaml").write_text(SCENARIO)
    (folder / "subject.py").write_text(SUBJECT)
    offered = wheels.settings(place / "wheels", place / "cache")
    ran = run_command(place, "run", str(folder), env=offered)
    assert ran.code == 0, ran.out + ran.err
    return ran


@pytest.fixture
def copied(ran: Ran, tmp_path: Path) -> Ran:
    """The same, to be changed."""
    folder = tmp_path / "results" / "run"
    shutil.copytree(ran.folder, folder)
    (tmp_path / "results" / "latest").symlink_to(folder)
    shutil.copytree(ran.results.parent / "home", tmp_path / "home")
    return Ran(ran.code, ran.out, ran.err, tmp_path / "results")


def changes(ran: Ran) -> dict[str, ModuleChange]:
    (library,) = ran.record.libraries
    assert (library.distribution, library.versions) == (
        "engine",
        {"control": "1.0", "candidate": "2.0"},
    )
    assert (library.alike, library.untold) == (1, 0)
    return {module.file: module for module in library.modules}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.mark.long
def test_the_report_shows_the_lines_that_differ(ran: Ran) -> None:
    """The most changed module comes first, and does not push the others out. Files that one arm
    loaded, compiled files and large ones are named with why, and modules that no rank loaded by
    name.
    """
    found, old, new = changes(ran), release("1.0")[1], release("2.0")[1]
    entry = found["engine/__init__.py"]
    assert entry.lines[2:] == [
        "-    return [layers // ranks] * ranks",
        f"+    return {'[-(-layers // ranks), layers // ranks]'}",
    ]
    assert entry.digests == {
        "control": [sha256(old[entry.file])],
        "candidate": [sha256(new[entry.file])],
    }
    for digest, text in ((entry.digests["control"][0], old), (entry.digests["candidate"][0], new)):
        assert (ran.folder / FOLDER / f"{digest}.py").read_bytes() == text[entry.file]
    assert "engine/unused.py" not in found
    assert "engine/same.py" not in found
    assert found["engine/first.py"].only == {"control": [0], "candidate": [0]}
    assert next(iter(found)) == "engine/long.py"
    long = found["engine/long.py"]
    assert (long.removed, long.added) == (RUN_LINES, RUN_LINES)
    assert RUN_LINES // 2 <= len(long.lines) == 2 * RUN_LINES + 1 - long.more
    (library,) = ran.record.libraries
    assert library.unloaded == ["engine.py", "engine/unused.py"]
    assert {file: module.why for file, module in found.items() if module.why} == {
        "engine/gone.py": "reported by ranks of one arm only",
        "engine/huge.py": "its text is too large to keep in the evidence",
        "engine/new.py": "reported by ranks of one arm only",
        "engine/years.py": COMMENTS_ALONE,
        **({f"engine/{COMPILED.name}": "not Python source"} if COMPILED is not None else {}),
    }
    assert ran.record.run.texts_left == {
        sha256(text["engine/huge.py"]): TEXT_LIMIT + 14 for text in (old, new)
    }
    report = (ran.folder / "report.md").read_text()
    section = report.partition("## What changed")[2].partition("\n## ")[0]
    section += (
        (ran.folder / "appendix.md")
        .read_text()
        .partition("## Diffs of engine")[2]
        .partition("\n## ")[0]
    )
    assert "<details><summary>engine/__init__.py: 1 line removed, 1 added</summary>" in section
    assert "-    return [layers // ranks] * ranks\n+    return [-(-layers" in section
    assert "| rank 0 of the control and rank 0 of the candidate |" in section
    assert f"; {long.more} more lines of the diff are not shown" in section
    assert "Copyright" not in section
    assert (
        "2 other modules differ between the releases, but no rank reported loading them" in section
    )
    assert "steady" not in section


def test_a_hostile_module_stays_text(ran: Ran) -> None:
    """What a library's text holds ends no block, makes no heading, no markup and no landmark of a
    report.
    """
    page = (ran.folder / "report.html").read_text()
    report = "".join((ran.folder / f"{name}.md").read_text() for name in ("report", "appendix"))
    assert changes(ran)["engine/cache.py"].lines
    fences = [line for line in report.splitlines() if line.startswith("````")]
    assert len(fences) == 2
    assert "+## Check it yourself" in report
    assert sum(line == "## Check it yourself" for line in report.splitlines()) == 1
    assert sum(line == "-----BEGIN SSH SIGNATURE-----" for line in report.splitlines()) == 1
    for text in (report, page):
        assert not {"\x1b", "\u202e", "\ufffe"} & set(text)
    assert "<script>alert" not in page
    assert page.count("<details") == page.count("</details>")


def test_whoever_verifies_works_it_out_again(ran: Ran) -> None:
    """Offline, without the packages, from the evidence alone."""
    signer = forge.signer_of(ran.folder / "report.md")
    verified = run_command(ran.results.parent, "verify", str(ran.folder), "--signer", signer)
    assert verified.code == 0, verified.out + verified.err


def path_of(ran: Ran, file: str, arm: str) -> Path:
    return ran.folder / FOLDER / f"{changes(ran)[file].digests[arm][0]}.py"


def another_text(ran: Ran) -> None:
    path_of(ran, "engine/__init__.py", "control").write_text(
        "def layers(layers, ranks):\n    return None\n"
    )


def another_text_by_its_digest(ran: Ran) -> None:
    another = b"def layers(layers, ranks):\n    return None\n"
    path_of(ran, "engine/__init__.py", "control").rename(
        ran.folder / FOLDER / f"{sha256(another)}.py"
    )
    (ran.folder / FOLDER / f"{sha256(another)}.py").write_bytes(another)


def a_text_more(ran: Ran) -> None:
    (ran.folder / FOLDER / f"{sha256(b'')}.py").write_bytes(b"")


def a_text_less(ran: Ran) -> None:
    path_of(ran, "engine/__init__.py", "control").unlink()


def left_out_with_room(ran: Ran) -> None:
    path = path_of(ran, "engine/__init__.py", "control")
    left = {**ran.record.run.texts_left, path.stem: path.stat().st_size}
    path.unlink()
    forge.facts(ran.folder, texts_left=left)


def left_out_of_nothing(ran: Ran) -> None:
    forge.facts(ran.folder, texts_left={**ran.record.run.texts_left, "0" * 64: None})


def files_not_told(ran: Ran) -> None:
    """The lists no longer tell the files of the library, and the texts are gone."""
    for path in (ran.folder / FOLDER).glob("*.py"):
        path.unlink()
    forge.facts(ran.folder, texts_left=None)
    facts = json.loads((ran.folder / RUN).read_text())
    (ran.folder / RUN).write_text(json.dumps({**facts, "texts_left": {}}))
    for path in (ran.folder / "evidence/loaded").glob("*.json"):
        told = json.loads(path.read_text())
        del told["in_full"]
        content = json.dumps(told, sort_keys=True, indent=1).encode() + b"\n"
        path.unlink()
        path.with_name(f"{sha256(content)}.json").write_bytes(content)
        for events in ran.folder.glob("evidence/*/*/events.jsonl"):
            events.write_text(events.read_text().replace(path.stem, sha256(content)))


def a_record_less(ran: Ran) -> None:
    next((ran.folder / FOLDER).glob("*.RECORD")).unlink()


REFUSED: dict[Callable[[Ran], None], str] = {
    another_text: "does not match the digest in its name",
    another_text_by_its_digest: "does not belong to a library that differs between the arms",
    a_text_more: "does not belong to a library that differs between the arms",
    a_text_less: "is missing",
    left_out_with_room: "evidence/library must contain every text that fits within its size limit, and no others",
    left_out_of_nothing: "the run lists 0{64} as omitted, although the arms do not need this file",
    a_record_less: "RECORD is missing",
}


@pytest.mark.parametrize("forgery", REFUSED)
def test_texts_that_are_not_those_that_ranks_loaded(
    copied: Ran, forgery: Callable[[Ran], None]
) -> None:
    """Whoever signs again can put no other text in its place, leave none out that there is room
    for, and add none.
    """
    forgery(copied)
    with pytest.raises(RecordError, match=REFUSED[forgery]):
        work_out(copied)


def test_a_library_whose_files_are_not_told_proves_nothing(copied: Ran) -> None:
    """Who takes the diff out by having ranks tell nothing of it, is left with no PASS."""
    files_not_told(copied)
    record: Any = work_out(copied)
    assert record.judgement.verdict == "INCONCLUSIVE"
    assert "a rank did not report which files of engine 2.0 it loaded for engine" in str(
        record.judgement.reasons
    )


def work_out(ran: Ran) -> Any:
    found = evidence_among(forge.names(ran.folder))
    return assemble(lambda name: (ran.folder / name).read_bytes(), found)
