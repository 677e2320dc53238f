"""Facts that two files of a results folder state: whoever edits one of them and signs again is
refused.
"""

from __future__ import annotations

import io
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.forms import manifest
from harness.forms.digest import sha256
from harness.record.facts import PATH as RUN
from harness.record.model import PATH as RECORD
from harness.record.model import Record
from harness.reproduce.archive import Index, Member, pack, unpack
from harness.run.replay import RecordReplay
from harness.series.replay import SeriesReplay
from harness.series.search import Search
from harness.series.search.record import PATH as SEARCH
from harness.series.search.record import assemble
from harness.series.series import FOLDER as PARTS
from harness.stats.provenance import path_of
from harness.trust.verification import Refused
from tests.kit import forge

pytestmark = [pytest.mark.slow, pytest.mark.whole]

DOCS = Path(__file__).parents[2] / "docs"
SAMPLE = DOCS / "sample/late-rank"
SERIES = DOCS / "search-report/four-models"
EVENTS = "evidence/ranks-2-backend-gloo/candidate-00000/events.jsonl"
BROKEN = "evidence/ranks-2-backend-gloo/control-00000/events.jsonl"
Files = dict[str, bytes]
Edit = Callable[[Path, str], None]


def refusal(folder: Path) -> str:
    """Why the evidence of a folder is refused, whoever signs it; empty where it is not."""
    names = [*forge.names(folder)]
    replay = RecordReplay()
    try:
        found = replay.judge(lambda name: (folder / name).read_bytes(), names)
    except Refused as error:
        return str(error)
    return found or ""


class Pair(NamedTuple):
    """A fact, the two files that state it, and how the first of them comes to state another."""

    fact: str
    files: tuple[str, str]
    edit: Edit


def in_run(*path: str | int, number: bool = False) -> Edit:
    """Change one value of evidence/run.json."""

    def edit(folder: Path, text: str) -> None:
        tree = json.loads((folder / RUN).read_text())
        put(tree, path, len(text) + 10**6 if number else text)
        (folder / RUN).write_text(json.dumps(tree))

    return edit


def in_events(file: str, name: str, *path: str | int, number: bool = False) -> Edit:
    """Change one value of the first event of that name."""

    def edit(folder: Path, text: str) -> None:
        lines = (folder / file).read_bytes().splitlines()
        index = next(i for i, line in enumerate(lines) if json.loads(line)["name"] == name)
        event = json.loads(lines[index])
        put(event["values"], path, len(text) + 10**6 if number else text)
        lines[index] = json.dumps(event, separators=(",", ":")).encode()
        (folder / file).write_bytes(b"\n".join(lines) + b"\n")

    return edit


def in_list_of_events(folder: Path, text: str) -> None:
    """A rank names a list that is not there."""
    in_events(EVENTS, "subject.loaded", "packages")(folder, sha256(text.encode()))


def put(tree: Any, path: tuple[str | int, ...], value: object) -> None:
    for step in path[:-1]:
        tree = tree[step]
    assert tree[path[-1]] != value
    tree[path[-1]] = value


def release_in_run(folder: Path, text: str) -> None:
    """The environment lists another release of a package that ranks loaded."""
    tree = json.loads((folder / RUN).read_text())
    torch = next(one for one in tree["environment"]["packages"] if one["name"] == "torch")
    torch["version"] = text
    (folder / RUN).write_text(json.dumps(tree))


def release_in_list(folder: Path, text: str) -> None:
    """The list of loaded files names another release, under the digest that its ranks report
    then.
    """
    (listing,) = (folder / "evidence/loaded").iterdir()
    tree = json.loads(listing.read_text())
    tree["installed"]["torch"] = f"torch {text}"
    content = json.dumps(tree).encode()
    listing.unlink()
    (folder / path_of(sha256(content))).write_bytes(content)
    for events in folder.glob("evidence/*/*/events.jsonl"):
        data = events.read_bytes().replace(listing.stem.encode(), sha256(content).encode())
        events.write_bytes(data)


def digest_in_list(folder: Path, text: str) -> None:
    """The list of loaded files is changed, and its name and the events stay."""
    (listing,) = (folder / "evidence/loaded").iterdir()
    listing.write_bytes(listing.read_bytes().replace(b"torchgen", text.encode()))


def source_of(arm: str) -> Edit:
    """A line of an arm's code reads otherwise than an error reported it."""

    def edit(folder: Path, text: str) -> None:
        del text
        file = folder / f"evidence/source/{arm}/subject.py"
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("# one more line\n" + "".join(lines))
        digest = sha256(file.read_bytes())
        # The ranks say that they loaded exactly this, so that nothing else refuses it.
        for events in folder.glob(f"evidence/*/{arm}-*/events.jsonl"):
            found = [json.loads(line) for line in events.read_bytes().splitlines()]
            for event in found:
                for module in event["values"].get("modules", ()):
                    module["sha256"] = digest
            data = b"".join(
                json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in found
            )
            events.write_bytes(data)

    return edit


PAIRS = (
    Pair("python", (RUN, EVENTS), in_run("environment", "python")),
    Pair("host", (RUN, EVENTS), in_run("environment", "host")),
    Pair("harness", (RUN, EVENTS), in_run("harness_pid", number=True)),
    Pair("trials", (RUN, EVENTS), in_run("cells", 0, "candidate", number=True)),
    Pair("cell", (RUN, "scenario.yaml"), in_run("cells", 0, "id")),
    Pair("argument", (RUN, "scenario.yaml"), in_run("arguments", "candidate", "patience")),
    Pair("time", (RUN, "its name"), in_run("made")),
    Pair("release", (RUN, "evidence/loaded"), release_in_run),
    Pair("release", ("evidence/loaded", RUN), release_in_list),
    Pair("list", ("evidence/loaded", EVENTS), digest_in_list),
    Pair("list", (EVENTS, "evidence/loaded"), in_list_of_events),
    Pair("scenario", (EVENTS, "scenario.yaml"), in_events(EVENTS, "world.begin", "scenario")),
    Pair("seed", (EVENTS, "scenario.yaml"), in_events(EVENTS, "world.begin", "seed")),
    Pair("backend", (EVENTS, "scenario.yaml"), in_events(EVENTS, "world.begin", "backend")),
    Pair("cell", (EVENTS, "scenario.yaml"), in_events(EVENTS, "world.begin", "cell")),
    Pair("host", (EVENTS, RUN), in_events(EVENTS, "world.begin", "host")),
    Pair("python", (EVENTS, RUN), in_events(EVENTS, "rank.begin", "python")),
    Pair("source line", (BROKEN, "evidence/source"), in_events(BROKEN, "rank.error", "source")),
    Pair(
        "source line",
        (BROKEN, "evidence/source"),
        in_events(BROKEN, "rank.error", "frames", 2, "source"),
    ),
    Pair(
        "line number",
        (BROKEN, "evidence/source"),
        in_events(BROKEN, "rank.error", "line", number=True),
    ),
    Pair("source line", ("evidence/source", BROKEN), source_of("control")),
)
VALUES = st.text("0123456789abcdefx.", min_size=1, max_size=12).map(lambda text: f"9{text}")


@settings(
    max_examples=24, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(pair=st.sampled_from(PAIRS), text=VALUES)
def test_an_edit_of_one_of_two_files_is_refused(pair: Pair, text: str) -> None:
    """Whatever value one file is given, the other contradicts it, also where all else follows."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        shutil.copytree(SAMPLE, folder)
        pair.edit(folder, text)
        if pair.fact != "argument":
            forge.rebind(folder)
        forge.work_out(folder)
        assert refusal(folder), pair


def test_the_sample_itself_is_not_refused(tmp_path: Path) -> None:
    """What nobody edited has no contradiction, also after it was worked out again."""
    folder = tmp_path / "run"
    shutil.copytree(SAMPLE, folder)
    forge.rebind(folder)
    forge.work_out(folder)
    assert refusal(folder) == ""


@pytest.mark.parametrize(
    "pair", PAIRS, ids=lambda pair: f"{pair.fact}-in-{Path(pair.files[0]).name}"
)
def test_each_pair_is_held(pair: Pair, tmp_path: Path) -> None:
    """Every pair is tried at least once."""
    folder = tmp_path / "run"
    shutil.copytree(SAMPLE, folder)
    pair.edit(folder, "9.9.9")
    if pair.fact != "argument":
        forge.rebind(folder)
    forge.work_out(folder)
    assert refusal(folder)


# -- a search and its parts ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def one_part() -> Files:
    """The facts and the bundle of a search of one part."""
    facts = json.loads((SERIES / SEARCH).read_text())
    facts["parts"] = [min(facts["parts"], key=lambda part: bundle_of(part).stat().st_size)]
    # This code would have planned all parts, so that a search of one part is another's.
    facts["code"] = "0" * 64
    facts["models"] = {facts["parts"][0]["model"]: facts["models"][facts["parts"][0]["model"]]}
    bundle = bundle_of(facts["parts"][0])
    path = bundle.relative_to(SERIES).as_posix()
    files = {SEARCH: json.dumps(facts).encode(), path: bundle.read_bytes()}
    return worked_out(files)


def bundle_of(part: Mapping[str, Any]) -> Path:
    return SERIES / PARTS / f"{part['name']}.rankproof.tar.xz"


def worked_out(files: Files) -> Files:
    """The same with the record that it makes."""
    evidence = {name: data for name, data in files.items() if name != RECORD}
    return {**evidence, RECORD: assemble(evidence.__getitem__, list(evidence)).encode()}


def why_not(files: Files) -> str:
    """Why a search is refused, whoever signs it; empty where it is not."""
    try:
        return SeriesReplay(Search()).judge(files.__getitem__, list(files)) or ""
    except Refused as error:
        return str(error)


def in_search(files: Files, change: Callable[[Any], None]) -> Files:
    """The search, and its record, with other facts of it."""
    facts, record = json.loads(files[SEARCH]), json.loads(files[RECORD])
    change(facts)
    change(record["facts"])
    text = json.dumps(record, ensure_ascii=True, indent=1).encode() + b"\n"
    return {**files, SEARCH: json.dumps(facts).encode(), RECORD: text}


def in_part(files: Files, change: Callable[[Path], None], **index: object) -> Files:
    """The search with another part: its folder is changed, and its manifest and index fit again."""
    path = next(name for name in files if name.startswith(PARTS))
    with tempfile.TemporaryDirectory() as place:
        top = Path(place) / "part"
        known = unpack(io.BytesIO(files[path]), top)
        run = top / "run"
        change(run)
        listed = manifest.parse((run / manifest.NAME).read_bytes())
        digests = {name: sha256((run / name).read_bytes()) for name in listed}
        (run / manifest.NAME).write_bytes(manifest.encode(digests))
        there = sorted(one.relative_to(top).as_posix() for one in run.rglob("*") if one.is_file())
        data = {name: (top / name).read_bytes() for name in there}
        members = [
            Member(path=name, size=len(data[name]), sha256=sha256(data[name])) for name in there
        ]
        report = sha256(data["run/report.md"])
        fields = {**dict(known), "members": members, "report": report, **index}
        out = io.BytesIO()
        with patch("harness.reproduce.archive.PRESET", 0):  # of the time, most is xz's
            pack(out, Index.model_validate(fields), lambda name: io.BytesIO(data[name]))
    return {**files, path: out.getvalue()}


def test_a_search_of_one_part_is_not_refused(one_part: Files) -> None:
    """What nobody edited is accepted, also packed again."""
    assert why_not(one_part) == ""
    assert why_not(in_part(one_part, lambda _run: None)) == ""


@pytest.mark.parametrize(
    ("name", "said"), [("transformers", "9.9.0"), ("mlx-lm", "not installed"), ("torch", "")]
)
def test_a_search_names_the_releases_that_its_parts_ran(
    one_part: Files, name: str, said: str
) -> None:
    """A search that names another release than its parts ran is refused, with both in the
    message.
    """
    told = in_search(one_part, lambda facts: facts["versions"].update({name: said}))
    assert f"ran {name} " in why_not(told)
    assert f"but the search states {said}" in why_not(told)


def test_a_part_that_ran_another_release_is_refused(one_part: Files) -> None:
    """The same fact edited in the part, whose record follows: its ranks loaded the other
    release.
    """

    def change(run: Path) -> None:
        facts = json.loads((run / RUN).read_text())
        for one in facts["environment"]["packages"]:
            if one["name"] == "transformers":
                one["version"] = "9.9.0"
        (run / RUN).write_text(json.dumps(facts))
        record = json.loads((run / RECORD).read_text())
        record["run"] = facts
        (run / RECORD).write_bytes(Record.model_validate(record).encode())

    assert "transformers" in why_not(in_part(one_part, change))


def test_the_name_of_a_search_bears_its_time(one_part: Files) -> None:
    """A search that was begun at another time than its name says is refused."""
    told = in_search(one_part, lambda facts: facts.update(made="2026-11-22T20:49:43Z"))
    assert "does not contain its start time" in why_not(told)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace(b"PASS", b"FAIL"), "differs from the text of its record"),
        (
            lambda text: text.replace(b"\n\n", b"\n\nAll is well.\n\n", 1),
            ("differs from the text of its"),
        ),
        (lambda text: text.partition(b"\n## Signature")[0], "differs from the text of its record"),
    ],
)
def test_the_report_of_a_part_is_the_text_of_its_record(
    one_part: Files, change: Callable[[bytes], bytes], words: str
) -> None:
    """A part whose report says what its record does not is refused."""

    def edit(run: Path) -> None:
        text = (run / "report.md").read_bytes()
        assert change(text) != text
        (run / "report.md").write_bytes(change(text))

    assert words in why_not(in_part(one_part, edit))


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ({"report": "0" * 64}, "its index names a different report from"),
        ({"inputs": []}, "its index and its run name different inputs"),
        ({"rankproof": "0.0.1"}, "its index and its run name different versions of Rankproof"),
    ],
)
def test_the_index_of_a_part_fits_its_run(
    one_part: Files, index: dict[str, object], words: str
) -> None:
    """A bundle whose index states another fact than the run in it is refused."""
    assert words in why_not(in_part(one_part, lambda _run: None, **index))


def test_a_file_that_the_manifest_of_a_part_does_not_list_is_refused(one_part: Files) -> None:
    """A bundle holds nothing of a run beside what the run's manifest lists."""
    told = in_part(one_part, lambda run: (run / "notes.txt").write_text("x"))
    assert "its manifest does not list notes.txt" in why_not(told)
