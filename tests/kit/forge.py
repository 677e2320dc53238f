"""A forger with a key of their own: what they change in a run's folder is made to fit again, and
signed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.forms import manifest
from harness.forms.digest import mark
from harness.record import sources
from harness.record.assemble import assemble
from harness.record.facts import PATH, SCENARIO_PATH, RunFacts
from harness.record.model import PATH as RECORD
from harness.record.model import Record, RecordError, read_model
from harness.record.sources import recipe
from harness.report.appendix import evidence_among, files_of
from harness.report.figures import FOLDER
from harness.report.report import render
from harness.report.view import checked
from harness.run.replay import RecordReplay
from harness.scenario import derive_seed, parse_scenario
from harness.trust import footer, sshsig, statement
from harness.trust.replay import Replay

REPORT = "report.md"
BESIDE = frozenset({REPORT, manifest.NAME, statement.NAME, *checked()})
WORLD = re.compile(rb'"world":"[0-9a-f]{16}"')


def names(folder: Path) -> list[str]:
    """What a manifest lists, if it was made again."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return [name for name in found if name not in BESIDE]


def facts(folder: Path, **changes: Any) -> None:
    """Change facts of the run; a mapping changes the keys that it names."""
    found = json.loads((folder / PATH).read_text())
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(found[key], dict):
            found[key].update(value)
        else:
            found[key] = value
    (folder / PATH).write_text(json.dumps(found))


def rebind(folder: Path) -> None:
    """Let every trial say that it is made of what lies here now, and each of its ranks that it is
    of this trial.
    """
    run = read_model(RunFacts, (folder / PATH).read_bytes(), name=PATH)
    digests = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names(folder)
    }
    recipes = {
        arm: recipe(
            scenario=(folder / SCENARIO_PATH).read_bytes(),
            overrides=run.overrides,
            files=sources.of_arm(digests, arm),
            arguments=arguments,
            inputs={one.name: one.digest for one in run.inputs},
            environment=run.environments[arm].digest if arm in run.environments else None,
        )
        for arm, arguments in run.arguments.items()
    }
    for path in folder.glob("evidence/*/*/events.jsonl"):
        begin, _, rest = path.read_bytes().partition(b"\n")
        event = json.loads(begin)
        event["values"]["recipe"] = recipes[event["values"]["arm"]]
        path.write_bytes(marked(json.dumps(event, separators=(",", ":")).encode() + b"\n" + rest))


def marked(events: bytes) -> bytes:
    """The events of a trial, of whose ranks each says that it is of the world that the first line
    begins.
    """
    begin, _, rest = events.partition(b"\n")
    return begin + b"\n" + WORLD.sub(f'"world":"{mark(begin)}"'.encode(), rest)


def record(folder: Path, change: Callable[[Any], None]) -> None:
    """Change the record."""
    found = json.loads((folder / RECORD).read_text())
    change(found)
    (folder / RECORD).write_bytes(Record.model_validate(found).encode())


def work_out(folder: Path) -> None:
    """Make list, record, figures and appendix follow from the evidence.

    Where a run could not have written it, only what can be.

    Then the record stays as it is, but for the facts of the run.
    """

    def read(name: str) -> bytes:
        return (folder / name).read_bytes()

    digests = {name: hashlib.sha256(read(name)).hexdigest() for name in names(folder)}
    (folder / sources.PATH).write_bytes(sources.listing(digests))
    try:
        found = assemble(read, evidence_among(names(folder)))
    except (RecordError, FileNotFoundError):
        record(folder, lambda stated: stated.update(run=json.loads(read(PATH))))
        return
    (folder / RECORD).write_bytes(found.encode())
    for path in folder.glob(f"{FOLDER}/*"):
        path.unlink()
    for name, content in files_of(found, read).items():
        (folder / name).write_bytes(content)


def sign(folder: Path, key: Path, *, views: bool = True) -> None:
    """Write manifest, report and views for what lies there, sign them, and leave the statement out.

    Run and record name the key that signs now.
    """
    for name in BESIDE:
        (folder / name).unlink(missing_ok=True)
    signer = sshsig.parse(sshsig.sign(b"", key, namespace=sshsig.NAMESPACE_REPORT)).key_fingerprint
    for name, place in ((PATH, lambda found: found), (RECORD, lambda found: found["run"])):
        found = json.loads((folder / name).read_text())
        place(found)["signer"] = {"key": signer, "name": None}
        (folder / name).write_text(json.dumps(found))
    record(folder, lambda _: None)

    def read(name: str) -> bytes:
        return (folder / name).read_bytes()

    listing = manifest.encode(
        {name: hashlib.sha256(read(name)).hexdigest() for name in names(folder)}
    )
    digest = hashlib.sha256(listing).hexdigest()
    found = Record.decode(read(RECORD))
    body = render(found, manifest_digest=digest)
    signature = sshsig.sign(footer.signed_part(body), key, namespace=sshsig.NAMESPACE_REPORT)
    (folder / manifest.NAME).write_bytes(listing)
    (folder / REPORT).write_bytes(footer.attach(body, signature))
    for name, draw in RecordReplay(found).views.items() if views else ():
        (folder / name).write_bytes(draw(read, digest))


def resign(folder: Path, key: Path) -> None:
    """Make the manifest, the report's digest of it, and the signature fit.

    The text stays, whatever it says.
    """
    before = hashlib.sha256((folder / manifest.NAME).read_bytes()).hexdigest()
    listed = manifest.parse((folder / manifest.NAME).read_bytes())
    listing = manifest.encode(
        {path: hashlib.sha256((folder / path).read_bytes()).hexdigest() for path in listed}
    )
    (folder / manifest.NAME).write_bytes(listing)
    report = (folder / REPORT).read_bytes()
    body = report[: report.index(footer.SECTION)]
    body = body.replace(before.encode(), hashlib.sha256(listing).hexdigest().encode())
    signature = sshsig.sign(footer.signed_part(body), key, namespace=sshsig.NAMESPACE_REPORT)
    (folder / REPORT).write_bytes(footer.attach(body, signature))


def seed(folder: Path, cell: str, index: int) -> str:
    """The seed that the scenario gives a trial."""
    scenario = parse_scenario((folder / SCENARIO_PATH).read_bytes(), name=SCENARIO_PATH)
    return str(derive_seed(scenario.seed, scenario.id, cell, index))


def replaced(replay: Replay, parts: dict[str, Any]) -> Replay:
    """A replay with the parts replaced that are named; they are taken out.

    None is what a verifier has by default.
    """
    for name in parts.keys() & {
        "judge",
        "render",
        "signer",
        "rebuild",
        "views",
        "makes_statements",
    }:
        part = parts.pop(name)
        setattr(replay, name, getattr(Replay(), name) if part is None else part)
    return replay


def signer_of(report: Path) -> str:
    """The fingerprint of the key that signed a report, whoever that is."""
    found = footer.split(report.read_bytes())
    assert isinstance(found, footer.Footer)
    return sshsig.parse(found.signature).fingerprint
